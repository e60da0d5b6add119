"""Arrow over Flight: messages of an IPC stream, each in an envelope of protobuf.

Rows go from the spool's file to the client unchanged; only a batch that is too large for a client's message is split.
One batch is in memory at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from gateway.drivers.flight.messages import Malformed
from gateway.execution.spooling.downloads import WIDE_BYTES
from gateway.execution.spooling.flatbuffer import field, root
from gateway.execution.spooling.results import ResultFile, in_memory

LARGEST_BODY = WIDE_BYTES  # of one message; ADBC's driver takes 16 MiB at most by default
_CONTINUATION = b"\xff\xff\xff\xff"  # start of an IPC message
_HEADER_TAG, _BODY_TAG = b"\x12", b"\xc2\x3e"  # FlightData's fields 2 and 1000
_ALIGNMENT = 8
_MESSAGE_HEADER, _SCHEMA_ENDIANNESS, _BATCH_COMPRESSION = 2, 0, 3  # numbers of fields in Arrow's format of messages


def encoded(result: ResultFile, messages: Iterator[pa.Message | None]) -> Iterator[bytes]:
    """Yield a result as messages of type FlightData, schema first. messages: its batches.

    A None among them is a wait for the next batch, and yields an empty message, which is not to be sent.
    """
    yield _flight_data(result.head)
    for message in messages:
        if message is None:
            yield b""
        elif message.body.size > LARGEST_BODY:
            for piece in _pieces(result.decode(message)):
                yield _flight_data(pa.ipc.read_message(piece.serialize()))
        else:
            yield _flight_data(message)


def encoded_table(table: pa.Table) -> Iterator[bytes]:
    """Return a small table as messages of type FlightData."""
    result = in_memory(table)
    return encoded(result, result.messages())


def decoded(messages: Iterable[Any], *, largest_bytes: int) -> pa.Table:
    """Return the rows that a client sent as messages of type FlightData. Raises Malformed."""
    pieces: list[bytes] = []
    size = 0
    for message in messages:
        if not message.data_header:
            continue
        padded = message.data_header + bytes(-len(message.data_header) % _ALIGNMENT)
        pieces += [_CONTINUATION, len(padded).to_bytes(4, "little"), padded, message.data_body]
        size += len(padded) + len(message.data_body)
        if size > largest_bytes:
            raise Malformed(f"The parameters take more than {largest_bytes:,} bytes.")
    if not pieces:
        return pa.table({})
    stream = pa.py_buffer(b"".join(pieces))
    try:
        for part in pa.ipc.MessageReader.open_stream(stream):
            _require_plain(part)
        with pa.ipc.open_stream(stream) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Malformed("The parameters are not a valid Arrow stream.") from error
    return table


def _require_plain(message: pa.Message) -> None:
    """Raise Malformed for a message whose rows take more memory than its bytes: compressed, or in another byte order.

    Arrow has validated the header, a flatbuffer.
    """
    header = bytes(message.metadata)
    at = field(header, root(header), _MESSAGE_HEADER) or 0
    table = at + struct.unpack_from("<I", header, at)[0]
    match message.type:
        case "schema":
            endianness = field(header, table, _SCHEMA_ENDIANNESS)
            if endianness is not None and struct.unpack_from("<h", header, endianness) != (0,):
                raise Malformed("Parameters must be little-endian.")
        case "record batch":
            if field(header, table, _BATCH_COMPRESSION) is not None:
                raise Malformed("Parameters must not be compressed.")
        case _:
            raise Malformed(f"Parameters must not have a message of the type {message.type}.")


def _flight_data(message: pa.Message) -> bytes:
    header, body = message.metadata, message.body
    parts = [_HEADER_TAG, _varint(header.size), header]
    if body is not None and body.size:
        parts += [_BODY_TAG, _varint(body.size), body]
    return b"".join(parts)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its pieces fit into a message; a larger row stays whole."""
    if batch.num_rows < 2 or pa.ipc.get_record_batch_size(batch) <= LARGEST_BODY:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def _varint(number: int) -> bytes:
    """Write a number as protobuf does: seven bits a byte, the lowest first."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)
