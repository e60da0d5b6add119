"""HTTP/2 frame by frame, as far as gRPC needs it, for clients and servers that are to cost next to nothing (RFC 9113).

Heads of requests are written without compression; heads of replies are not read. Replies are bounded by the windows
that a client offers: it offers all there can be, once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
FIRST_WINDOW_BYTES = 65_535  # of a connection and of a stream, where nothing else is said
LARGEST_WINDOW_BYTES = (1 << 31) - 1
LARGEST_FRAME_BYTES = (1 << 24) - 1
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 0x4, 0x5  # settings
_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
_MESSAGE = struct.Struct(">BI")  # gRPC's: whether it is compressed, and its length


class FrameKind(IntEnum):
    """What a frame is."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. stream: 0 of the connection itself."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends_stream(self) -> bool:
        """Tell whether its sender says no more on its stream."""
        return self.kind in (FrameKind.DATA, FrameKind.HEADERS) and bool(self.flags & END_STREAM)

    def encode(self) -> bytes:
        """Return its bytes."""
        size = len(self.payload)
        return _HEAD.pack(size >> 8, size & 0xFF, self.kind, self.flags, self.stream) + self.payload


class Frames:
    """Cuts what one side sends into frames. skip: bytes before the first of them."""

    def __init__(self, skip: int = 0) -> None:
        self._held = list[bytes]()
        self._missing = 0  # bytes, until it is worth a look
        self._skip = skip

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._held.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data, at, end = b"".join(self._held), 0, HEAD_BYTES
        while end <= len(data):
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            end += high << 8 | low
            if end > len(data):
                break
            yield Frame(kind, flags, stream, data[at + HEAD_BYTES : end])
            at, end = end, end + HEAD_BYTES
        self._held, self._missing = [data[at:]], end - len(data)


def greeting() -> bytes:
    """Return what a client sends first: the preface, and the widest windows and frames there are."""
    settings = {INITIAL_WINDOW_SIZE: LARGEST_WINDOW_BYTES, MAX_FRAME_SIZE: LARGEST_FRAME_BYTES}
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings.items())
    return PREFACE + Frame(FrameKind.SETTINGS, 0, 0, payload).encode() + _more(LARGEST_WINDOW_BYTES)


def settings_of(frame: Frame) -> dict[int, int]:
    """Return what a frame of settings says."""
    return dict(_SETTING.iter_unpack(frame.payload))


def answer_to(frame: Frame) -> bytes:
    """Return what a frame of the connection wants as an answer, nothing where it wants none."""
    if frame.kind not in (FrameKind.SETTINGS, FrameKind.PING) or frame.flags & ACK:
        return b""
    return Frame(frame.kind, ACK, 0, frame.payload if frame.kind == FrameKind.PING else b"").encode()


def widening(frame: Frame) -> int:
    """Return by how many bytes a frame widens the window of its stream."""
    return int(_NUMBER.unpack(frame.payload)[0])


def request(stream: int, headers: Mapping[str, str], message: bytes) -> bytes:
    """Return one call of gRPC with its only message."""
    head = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    body = _MESSAGE.pack(0, len(message)) + message
    frames = Frame(FrameKind.HEADERS, END_HEADERS, stream, head), Frame(FrameKind.DATA, END_STREAM, stream, body)
    return b"".join(frame.encode() for frame in frames)


def messages(data: bytes) -> Iterator[bytes]:
    """Yield gRPC's messages in the data of a stream."""
    at = 0
    while at < len(data):
        _, size = _MESSAGE.unpack_from(data, at)
        at += _MESSAGE.size + size
        yield data[at - size : at]


def call_headers(path: str, authority: str, more: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the headers of a call of gRPC."""
    pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": authority}
    return {**pseudo, "te": "trailers", "content-type": "application/grpc", **dict(more)}


def _more(window_bytes: int) -> bytes:
    """Return the frame that makes a connection's window as wide as that."""
    payload = _NUMBER.pack(window_bytes - FIRST_WINDOW_BYTES)
    return Frame(FrameKind.WINDOW_UPDATE, 0, 0, payload).encode()


def _text(text: str) -> bytes:
    """Write a text of less than 4 KiB as HPACK does: seven bits of its length are in the first byte."""
    octets = text.encode("ascii")
    rest = len(octets) - 127
    if rest < 0:
        return bytes((len(octets),)) + octets
    return b"\x7f" + (bytes((rest,)) if rest < 128 else bytes((rest & 127 | 128, rest >> 7))) + octets
