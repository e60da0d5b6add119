"""Replies that are written while their rows are read, a batch at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Generator

from anyio import CapacityLimiter, to_thread
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.errors import TooManyDownloads
from gateway.execution.spooling.downloads import ROOM_POLL_S, Downloads
from gateway.failures import failure_of
from gateway.http.errors import reply
from sql.errors import FusionError

log = logging.getLogger(__name__)

CUT_KEY = "cut"  # in a request's state, the function that closes its connection after the data written so far
THREADS = 8  # that write rows, so that a flood of downloads delays no statement

Chunks = Generator[bytes, None, None]


class RowStream(StreamingResponse):
    """Rows of a result, as one of its user's downloads.

    chunks: parts of the reply; an empty one: the next row is still to come, or has no memory yet.

    If the query fails meanwhile, the connection is closed before the end of the reply: its status was 200 already, and
    a client would take the rows so far for all rows. The connection handles clients that do not read
    (``protocol.PatientProtocol``).
    """

    def __init__(
        self,
        chunks: Chunks,
        *,
        media_type: str,
        downloads: Downloads,
        user: str,
        query_id: str,
        threads: CapacityLimiter,
    ) -> None:
        super().__init__(self._paced(), media_type=media_type)
        self._chunks = chunks
        self._downloads = downloads
        self._user = user
        self._query_id = query_id
        self._threads = threads
        self._cut: Callable[[], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the rows, unless the user has too many downloads already."""
        try:
            place = contextlib.ExitStack()
            place.enter_context(self._downloads.place(self._user))
        except TooManyDownloads as error:
            await reply(failure_of(error), self._query_id)(scope, receive, send)
            return
        self._cut = scope.get("state", {}).get(CUT_KEY)
        with place, contextlib.closing(self._chunks):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the rows, and the end of the reply only after all of them."""
        try:
            await super().stream_response(send)
        except FusionError as error:
            log.info("query %s failed while its rows were sent: %s", self._query_id, error.message)
            if self._cut is None:
                raise
            self._cut()
            await asyncio.Event().wait()  # until the connection is closed, which ends this

    async def _paced(self) -> AsyncIterator[bytes]:
        while (chunk := await to_thread.run_sync(next, self._chunks, None, limiter=self._threads)) is not None:
            if chunk:
                yield chunk
            else:
                await asyncio.sleep(ROOM_POLL_S)
