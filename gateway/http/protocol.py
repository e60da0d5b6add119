"""HTTP from people and programs that may stop in the middle: a connection has a while for each whole request.

Uvicorn waits without an end for a first request, and for the rest of one that has begun. Connections that say nothing
would take one descriptor after the other, until nobody can connect any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0


class PatientProtocol(H11Protocol):
    """One connection, closed where a request is not whole within ``REQUEST_S``; answers take as long as they take."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what came, which is a request's rest or another piece of it."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._watch()

    def _watch(self) -> None:
        """Let time run while a request is awaited, and only then; pieces of one do not set it back."""
        if self.transport.is_closing() or self._is_answering():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._give_up)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _give_up(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # the rest has to wait for us
            self._watch()
        else:
            self.transport.close()
