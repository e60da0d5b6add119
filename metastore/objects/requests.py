"""Requests to object stores that end, whatever the store answers, and the errors that they make."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import pyarrow as pa

from engines.machine.threads import Threads
from metastore.objects.errors import ObjectUnreadable, StoreUnavailable
from metastore.objects.kinds.kind import CONNECT_S, REQUEST_S, TRIES, ObjectStore

log = logging.getLogger(__name__)

LONGEST_S = CONNECT_S + REQUEST_S * TRIES
"""Longest wait for an answer, all tries included."""
_threads = Threads("requests")

Answer = TypeVar("Answer")


def answered(store: ObjectStore, request: Callable[[], Answer]) -> Answer:
    """Return what a request to a store returns. Raises OSError where it takes too long, and what it raises.

    A server that accepted connections and answered nothing kept pyarrow 26 waiting for more than 150 s on Azure, and
    for 120 s on Google. The thread of such a request stays until the connection ends.
    """
    if store.ENDS:
        return request()
    future: Future[Answer] = Future()
    _threads.run(partial(settle, future, request))
    try:
        return future.result(LONGEST_S)
    except TimeoutError as failure:
        if future.done():
            raise
        raise OSError(f"no answer within {LONGEST_S:.0f} s") from failure


def settle(future: Future[Answer], call: Callable[[], Answer]) -> None:
    """Run a call, and put its outcome into a future."""
    try:
        outcome = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(outcome)


def object_error(failure: Exception, location: str, store: ObjectStore) -> Exception:
    """Return the error that stands for one of a store."""
    text = str(failure)
    if isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
        return ObjectUnreadable("the gateway's disk is full: the administrator makes room where objects.folder lies")
    if isinstance(failure, FileNotFoundError) or any(word in text for word in store.GONE):
        return ObjectUnreadable(
            f"its file {location} is gone, as after a VACUUM; the next statement reads what is there"
        )
    if any(word in text for word in store.DENIED):
        return ObjectUnreadable(f"the store does not let the gateway read {location}: see the credentials of its store")
    if isinstance(failure, pa.ArrowInvalid):
        return ObjectUnreadable(f"its file {location} is no Parquet file, or is damaged")
    log.warning("%s cannot be fetched: %s", location, " ".join(text.split())[:500])
    return StoreUnavailable(location)
