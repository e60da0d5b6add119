"""Retries while the database restarts: calls are repeated until it answers, so that running statements are not lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError

log = logging.getLogger(__name__)

RETRY_S = 60.0
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0

Answer = TypeVar("Answer")


def retry(ask: Callable[[], Answer], *, retry_s: float = RETRY_S) -> Answer:
    """Ask the database, again for as long as it does not answer; what it raises in the end passes through.

    ask: a whole transaction, which does no harm when it is repeated.
    """
    until_s = time.monotonic() + retry_s
    wait_s = FIRST_WAIT_S
    while True:
        try:
            return ask()
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() + wait_s > until_s:
                raise
            log.warning("the metastore does not answer, trying again: %s", error.orig)
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def retry_insert(write: Callable[[], None]) -> None:
    """Repeat a transaction that inserts; a row that is there at a second try was written at the first."""
    tries = 0

    def attempt() -> None:
        nonlocal tries
        tries += 1
        try:
            write()
        except IntegrityError:
            if tries == 1:
                raise

    retry(attempt)
