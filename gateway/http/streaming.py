"""Replies with rows that are written while they are read: what is in memory of one is a batch of its result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Generator

from anyio import CapacityLimiter, to_thread
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError, TooManyDownloads, failure_of
from gateway.execution.spooling.downloads import ROOM_POLL_S, Downloads
from gateway.http.errors import reply

log = logging.getLogger(__name__)

CUT_KEY = "cut"  # where a request's state has what closes its connection, once what was written is sent
THREADS = 8  # that write rows, so that downloads in a flood keep no statement waiting

Chunks = Generator[bytes, None, None]


class RowStream(StreamingResponse):
    """Rows of a result, as one of its user's downloads.

    chunks: of the reply; an empty one says that the next row is still to come, or has no room yet. Where the query
    fails meanwhile, the connection is closed before the end of the reply: its status said 200, and rows that just stop
    would be taken for all. A client that does not read is the connection's affair (``protocol.PatientProtocol``).
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
        """Send it, or say that the user has too many downloads under way."""
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
        """Send the rows, and their end only where all have come."""
        try:
            await super().stream_response(send)
        except GatewayError as error:
            log.info("query %s: its rows end here: %s", self._query_id, error.message)
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
