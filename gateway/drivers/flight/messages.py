"""Messages of Flight and Flight SQL from bytes and to bytes; ``protocol/*.proto`` defines them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message

import gateway.drivers.flight.protocol.flight_sql_pb2 as flight_sql_pb2

FLIGHT = "arrow.flight.protocol"
FLIGHT_SQL = f"{FLIGHT}.sql"

M = TypeVar("M", bound=Message)


class Malformed(Exception):
    """Bytes are not a message, or not the expected one."""


class DescriptorType(IntEnum):
    """Content of a FlightDescriptor."""

    COMMAND = 2


class CancelStatus(IntEnum):
    """Progress of a cancellation."""

    CANCELLED = 1
    CANCELLING = 2
    NOT_CANCELLABLE = 3


class OptionError(IntEnum):
    """Reason why a session's option was not set."""

    INVALID_NAME = 1
    INVALID_VALUE = 2
    ERROR = 3


SESSION_CLOSED = 1


def read(kind: type[M], data: bytes) -> M:
    """Return the message in bytes. Raises Malformed."""
    try:
        message: M = kind.FromString(data)
    except DecodeError as error:
        raise Malformed(f"The bytes are not a {kind.__name__}.") from error
    return message


def pack(message: Message) -> bytes:
    """Return a message of Flight SQL in the envelope that names its kind."""
    name = f"type.googleapis.com/{FLIGHT_SQL}.{message.DESCRIPTOR.name}"
    data: bytes = Envelope(type_url=name, value=message.SerializeToString()).SerializeToString()
    return data


def unpack(data: bytes) -> tuple[str, Any]:
    """Return the kind of a message of Flight SQL, and the message out of its envelope. Raises Malformed."""
    try:
        envelope = Envelope.FromString(data)
    except DecodeError as error:
        raise Malformed("The bytes are not a message of Flight SQL.") from error
    package, _, name = envelope.type_url.rpartition("/")[2].rpartition(".")
    if package != FLIGHT_SQL:
        raise Malformed("The bytes are not a message of Flight SQL.")
    if name not in flight_sql_pb2.DESCRIPTOR.message_types_by_name:
        raise Malformed(f"{name[:80]} is not a message that the gateway knows.")
    return name, read(getattr(flight_sql_pb2, name), envelope.value)
