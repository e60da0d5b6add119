"""HTTP protocol with a time limit for each whole request and reply, as clients may stall.

Uvicorn waits without an end for a first request, and for the rest of one that has begun. Connections that say nothing
would take one descriptor after the other, until nobody can connect any more.

What a driver asks again for every row that it reads is answered here (``drivers/hs2/repeats.py``): Uvicorn, the guards
and a route in between take ten times as long as the answer itself.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.drivers.hs2.repeats import STATE_KEY, Repeats
from gateway.http.streaming import CUT_KEY

REQUEST_S = 10.0
_RESET = struct.pack("ii", 1, 0)  # as the kernel has it: linger for no time
MOST_AWAITED = 512  # connections without a request; beyond that, the oldest gives way to a new one
MOVED_BYTES = 64 << 10  # of a reply, that a client has to take within its time


class PatientProtocol(H11Protocol):
    """One connection, closed where a request is not whole within ``REQUEST_S``.

    Answers take as long as they take, but a client that does not read is let go of after ``stall_s``, with what waits
    for it in memory.
    """

    stall_s = 60.0
    _awaited: ClassVar[dict[PatientProtocol, None]] = {}  # in the order in which they began to be
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _replied_s = -math.inf  # when a repeated request was answered, by the loop's clock

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._repeats = Repeats()
        self.app_state = {**self.app_state, STATE_KEY: self._repeats, CUT_KEY: self._cut}

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes of a request."""
        if self._repeats.is_at_rest and not self.flow.write_paused:
            reply, data = self._repeats.take(data, self.server_state.default_headers)
            if reply:
                self.transport.write(reply)
                self._note_reply()
            if not data:
                return
        self._repeats.begin(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._repeats.end(is_at_rest=self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0])
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers of the connection."""
        super().connection_lost(exc)
        self._stop_awaiting()
        if self._stalled is not None:
            self._stalled.cancel()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without requests; those that were repeated set no timer back, and count here."""
        left_s = self._replied_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _cut(self) -> None:
        """Close the connection in the middle of a reply, behind what was written of it."""
        self.transport.close()

    def _note_reply(self) -> None:
        self._replied_s = self.loop.time()
        if self._awaited.pop(self, self) is None:
            self._awaited[self] = None  # as the newest of those that are awaited

    def _watch_reading(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        waiting_bytes = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self.stall_s, self._require_reading, waiting_bytes)

    def _require_reading(self, waiting_bytes: int) -> None:
        """Close the connection of a client that reads almost nothing."""
        if self.transport.get_write_buffer_size() > max(0, waiting_bytes - MOVED_BYTES):
            client = self.transport.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # or the kernel kept on offering the rest
            self.transport.abort()
        else:
            self._watch_reading()

    def _watch(self) -> None:
        """Let time run while a request is awaited, and only then; pieces of one do not set it back."""
        if self.transport.is_closing() or self._is_answering():
            self._stop_awaiting()
            if self.transport.is_closing() and self._stalled is None and self.transport.get_write_buffer_size():
                self._watch_reading()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._give_up)
            self._awaited[self] = None
            if len(self._awaited) > MOST_AWAITED:
                next(iter(self._awaited))._leave()

    def _stop_awaiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._awaited.pop(self, None)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _give_up(self) -> None:
        self._timer = None
        left_s = self._replied_s + REQUEST_S - self.loop.time()
        if left_s > 0:
            self._timer = self.loop.call_later(left_s, self._give_up)
        elif self.flow.read_paused:  # the rest has to wait for us
            self._watch()
        else:
            self._leave()

    def _leave(self) -> None:
        self._awaited.pop(self, None)
        self.transport.close()
        self._watch_reading()  # what is still to be sent may never be


def patient(stall_s: float) -> type[PatientProtocol]:
    """Return the protocol with a time limit of its own for clients that do not read."""
    return type("PatientProtocol", (PatientProtocol,), {"stall_s": stall_s, "_awaited": {}})
