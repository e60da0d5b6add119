"""Hive's form of SASL: frames of a status, a length and a text, with the mechanism PLAIN."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

MECHANISM = b"PLAIN"
LONGEST_TEXT = 64 << 10
_FRAME = struct.Struct(">BI")


class SaslStatus(IntEnum):
    """Status of a frame."""

    START = 1
    OK = 2
    BAD = 3
    COMPLETE = 5


class Refused(Exception):
    """The client's part of the exchange is invalid; the message is for the client."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Content of PLAIN. authorization_id: user to act for; empty: the user itself."""

    authorization_id: str
    name: str
    password: str


def frame(status: SaslStatus, text: bytes) -> bytes:
    """Write a frame."""
    return _FRAME.pack(status, len(text)) + text


def read_credentials(take: Callable[[int], bytes]) -> Credentials:
    """Read the client's two frames; drivers differ in the second one's status. Raises Refused."""
    status, mechanism = _read(take)
    if status != SaslStatus.START or mechanism != MECHANISM:
        raise Refused("The gateway supports only the SASL mechanism PLAIN, with a user name and a password.")
    status, answer = _read(take)
    if status not in (SaslStatus.OK, SaslStatus.COMPLETE):
        raise Refused("The exchange ended before the user name was sent.")
    parts = answer.split(b"\0")
    if len(parts) != 3:
        raise Refused("The answer is not valid for PLAIN.")
    try:
        return Credentials(*(part.decode() for part in parts))
    except UnicodeDecodeError as error:
        raise Refused("The user name or the password is not UTF-8.") from error


def _read(take: Callable[[int], bytes]) -> tuple[int, bytes]:
    status, length = _FRAME.unpack(take(_FRAME.size))
    if length > LONGEST_TEXT:
        raise Refused("The frame is too long.")
    return status, take(length)
