"""Arrow over Flight: messages of an IPC stream, each in an envelope of protobuf.

Rows go from the spool's file to the client as they stand; only a batch that is too large for a client's message is cut
into pieces. What is held is one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from gateway.flight.messages import Malformed

LARGEST_BODY = 8 << 20  # of one message; ADBC's driver takes 16 MiB at most unless it is told otherwise
_CONTINUATION = b"\xff\xff\xff\xff"  # what an IPC message starts with
_HEADER_TAG, _BODY_TAG = b"\x12", b"\xc2\x3e"  # FlightData's fields 2 and 1000
_ALIGNMENT = 8
_MESSAGE_HEADER, _SCHEMA_ENDIANNESS, _BATCH_COMPRESSION = 2, 0, 3  # numbers of fields in Arrow's format of messages


def encoded(file: pa.NativeFile) -> Iterator[bytes]:
    """Return an IPC stream as messages of type FlightData, schema first."""
    head: list[pa.Buffer] = []
    for message in pa.ipc.MessageReader.open_stream(file):
        if message.type != "record batch":
            head.append(message.serialize())
        elif message.body.size > LARGEST_BODY:
            for piece in _pieces(_batch(head, message)):
                yield _flight_data(pa.ipc.read_message(piece.serialize()))
            continue
        yield _flight_data(message)


def encoded_table(table: pa.Table) -> Iterator[bytes]:
    """Return a small table as messages of type FlightData."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return encoded(pa.BufferReader(sink.getvalue()))


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
        for found in pa.ipc.MessageReader.open_stream(stream):
            _require_plain(found)
        with pa.ipc.open_stream(stream) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Malformed("The parameters are not Arrow's.") from error
    return table


def _require_plain(message: pa.Message) -> None:
    """Raise Malformed for a message whose rows take more memory than its bytes: they would have to be unpacked.

    Arrow has checked that the header, a flatbuffer, is whole.
    """
    header = bytes(message.metadata)
    (root,) = struct.unpack_from("<I", header)
    at = _field(header, root, _MESSAGE_HEADER) or 0
    table = at + struct.unpack_from("<I", header, at)[0]
    match message.type:
        case "schema":
            endianness = _field(header, table, _SCHEMA_ENDIANNESS)
            if endianness is not None and struct.unpack_from("<h", header, endianness) != (0,):
                raise Malformed("Parameters are little-endian here.")
        case "record batch":
            if _field(header, table, _BATCH_COMPRESSION) is not None:
                raise Malformed("Parameters are not compressed here.")
        case _:
            raise Malformed(f"Parameters hold no message of the kind {message.type}.")


def _field(header: bytes, table: int, number: int) -> int | None:
    """Return where a field of a flatbuffer's table stands, None where it was left out."""
    fields = table - struct.unpack_from("<i", header, table)[0]
    (size,) = struct.unpack_from("<H", header, fields)
    slot = 2 * (2 + number)  # behind the sizes of this list and of the table
    (offset,) = struct.unpack_from("<H", header, fields + slot) if slot < size else (0,)
    return table + offset if offset else None


def _flight_data(message: pa.Message) -> bytes:
    header, body = message.metadata, message.body
    parts = [_HEADER_TAG, _varint(header.size), header]
    if body is not None and body.size:
        parts += [_BODY_TAG, _varint(body.size), body]
    return b"".join(parts)


def _batch(head: list[pa.Buffer], message: pa.Message) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(b"".join([*head, message.serialize()]))) as reader:
        return reader.read_next_batch()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its pieces have room in a message; a row that is larger by itself stays whole."""
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
