"""Hive's form of SASL: frames of a status, a length and a text, with the mechanisms PLAIN and, by tickets, GSSAPI."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum

PLAIN, GSSAPI = b"PLAIN", b"GSSAPI"
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


def read_mechanism(take: Callable[[int], bytes], mechanisms: Collection[bytes]) -> bytes:
    """Read the client's first frame, which names a mechanism. Raises Refused where it is none of those offered."""
    status, mechanism = _read(take)
    if status != SaslStatus.START or mechanism not in mechanisms:
        offered = " and ".join(name.decode() for name in mechanisms)
        raise Refused(
            f"The gateway supports only the SASL mechanism {offered}: log in with a user name and a password"
            + (", or a Kerberos ticket." if GSSAPI in mechanisms else ".")
        )
    return mechanism


def read_answer(take: Callable[[int], bytes]) -> bytes:
    """Read the client's next frame; drivers differ in its status. Raises Refused."""
    status, answer = _read(take)
    if status not in (SaslStatus.OK, SaslStatus.COMPLETE):
        raise Refused("The client ended the login before it was complete.")
    return answer


def read_credentials(take: Callable[[int], bytes]) -> Credentials:
    """Read the client's answer for PLAIN. Raises Refused."""
    answer = read_answer(take)
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
