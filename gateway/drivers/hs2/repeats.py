"""Repeated calls over HTTP, which differ in a few bytes of the body, answered from their bytes alone (ADR 35).

JDBC's driver asks for the state of a finished operation once per row that it reads, each time with the same head: path,
host, login, length. The first request with this head logged in the usual way on this connection; conditions that may
have changed since are checked for each call (``Registry.kept_answer``). Requests with any other byte take the usual
way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

LONGEST_HEAD = 8_192  # bytes; those of drivers have a few hundred
STATE_KEY = "repeats"  # of this connection's ``Repeats`` in the state of a request
_HEAD_END = b"\r\n\r\n"

Answer = Callable[[bytes], bytes | None]
Headers = Sequence[tuple[bytes, bytes]]


class Repeats:
    """Repeated requests of one connection. Used on its event loop alone."""

    def __init__(self) -> None:
        self.is_at_rest = True  # no request is under way, not even a part of one
        self._head = b""  # of requests that are answered here
        self._length = 0  # of their bodies
        self._answer: Answer | None = None
        self._headers: Mapping[str, str] = {}
        self._partial = b""  # of such a request, until the rest of it arrives
        self._first = b""  # piece of a request that takes the usual way
        self._received = 0  # bytes of it
        self._offered: tuple[Answer, int, Mapping[str, str]] | None = None
        self._reply_head: tuple[Headers, int, bytes] = ((), 0, b"")

    # ------------------------------------------------------------------ called by routes

    def offer(self, answer: Answer, body_bytes: int, headers: Mapping[str, str]) -> None:
        """Answer the next requests with the head of the current one.

        answer: returns the body of the reply to a body of ``body_bytes``; None: the request takes the usual way.
        """
        self._offered = (answer, body_bytes, headers)

    # ------------------------------------------------------------------ called by the connection

    def take(self, data: bytes, defaults: Headers) -> tuple[bytes, bytes]:
        """Return a reply, and data that takes the usual way; both are empty until a request is complete."""
        if self._answer is None:
            return b"", data
        if self._partial:
            data, self._partial = self._partial + data, b""
        if data.startswith(self._head):
            missing = len(self._head) + self._length - len(data)
            if missing > 0:
                self._partial = data
                return b"", b""
            body = None if missing else self._answer(data[len(self._head) :])
            if body is not None:
                return self._reply(body, defaults), b""
        return b"", data

    def begin(self, data: bytes) -> None:
        """Note a piece of a request that takes the usual way."""
        if self.is_at_rest:
            self.is_at_rest = False
            self._first, self._received = data[:LONGEST_HEAD], 0
        self._received += len(data)

    def end(self, *, is_at_rest: bool) -> None:
        """Note that a request was answered the usual way."""
        self.is_at_rest = is_at_rest
        head, _, _ = self._first.partition(_HEAD_END)
        if self._offered is not None:
            answer, length, headers = self._offered
            if is_at_rest and len(head) + len(_HEAD_END) + length == self._received:
                self._head, self._length, self._answer, self._headers = head + _HEAD_END, length, answer, headers
        self._first, self._offered = b"", None

    def _reply(self, body: bytes, defaults: Headers) -> bytes:
        known_defaults, length, head = self._reply_head
        if known_defaults is not defaults or length != len(body):
            lines = [b"HTTP/1.1 200 OK", *(name + b": " + value for name, value in defaults)]
            lines += [f"{name}: {value}".encode("latin-1") for name, value in self._headers.items()]
            head = b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", b""])
            self._reply_head = defaults, len(body), head
        return head + body
