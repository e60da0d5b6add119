"""HiveServer2's columns -> Arrow, from the bytes on the wire, without a Python object per value.

Numbers are copied from the buffers, in one step per column. Text is split by thrift's C decoder and parsed by Arrow:
decimals, dates and timestamps are sent as text. Timestamps keep microseconds, as for all engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from TCLIService.ttypes import TStatus, TTypeId  # type: ignore[import-untyped]
from thrift.protocol.fastbinary import decode_binary  # type: ignore[import-untyped]
from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
from thrift.Thrift import TType  # type: ignore[import-untyped]

from engines.arrow_types import arrow_type
from selector.types import Group, InvalidType, Kind, parse

MOMENT_WIDTH = len("2024-02-29 12:34:56.123456")
DEFAULT_DECIMAL = (10, 0)  # Hive's, without precision and scale

_NUMBERS: dict[int, tuple[str, pa.DataType]] = {
    1: ("u1", pa.bool_()),
    2: ("i1", pa.int8()),
    3: (">i2", pa.int16()),
    4: (">i4", pa.int32()),
    5: (">i8", pa.int64()),
    6: (">f8", pa.float64()),
}
"""Field of TColumn -> form of its values on the wire, and their type."""

_TEXTS = (7, 8)
"""Fields of TColumn for text and binary."""

_BY_TYPE_ID: Mapping[int, Kind] = {
    kind.row.driver.hs2: kind
    for kind in Kind
    if kind.row.driver is not None and kind.row.group not in (Group.NESTED, Group.DECIMAL)
}
"""The later of two timestamps counts: Hive's has no zone; the adapter asks Spark for its types."""

Sent: TypeAlias = pa.Array
"""A column as it was sent: numbers, or bytes."""


class _Texts:
    """A TStringColumn or TBinaryColumn as bytes, filled by thrift's C decoder."""

    spec = (
        None,
        (1, TType.LIST, "values", (TType.STRING, "BINARY", False), None),
        (2, TType.STRING, "nulls", "BINARY", None),
    )

    values: Sequence[bytes] = ()
    nulls: bytes = b""


def sent_type(data_type: str) -> pa.DataType:
    """Return the Arrow type of a column by its short name, such as ``decimal(10,2)``; nested values are JSON."""
    try:
        kind = arrow_type(parse(data_type))
    except InvalidType:  # of that server only, such as an interval: sent as text
        return pa.string()
    return pa.string() if pa.types.is_nested(kind) else kind


def type_of(described: Any) -> pa.DataType:
    """Return the Arrow type of a TColumnDesc."""
    entry = described.typeDesc.types[0].primitiveEntry
    if entry is None:
        return pa.string()  # nested, sent as Hive's JSON
    if entry.type == TTypeId.DECIMAL_TYPE:
        qualifiers = entry.typeQualifiers.qualifiers if entry.typeQualifiers else {}
        sizes = [qualifiers[name].i32Value for name in ("precision", "scale") if name in qualifiers]
        return pa.decimal128(*(sizes if len(sizes) == 2 else DEFAULT_DECIMAL))
    return sent_type(_BY_TYPE_ID.get(entry.type, Kind.STRING))


def read_answer(protocol: TBinaryProtocol) -> tuple[TStatus, list[Sent]]:
    """Read a FetchResults_result after its message's head. Returns its status and columns.

    protocol: without C decoder, over a transport that the C decoder can use.
    """
    status = TStatus()
    columns: list[Sent] = []
    for _ in _parts(protocol, (0, TType.STRUCT)):
        for answered, _ in _parts(protocol, (1, TType.STRUCT), (3, TType.STRUCT)):
            if answered == 1:
                status.read(protocol)
                continue
            for _ in _parts(protocol, (3, TType.LIST)):
                _, count = protocol.readListBegin()
                columns.extend(_column(protocol) for _ in range(count))
    return status, columns


def converted(sent: Sent, kind: pa.DataType) -> pa.Array:
    """Return a column in its own type."""
    if sent.type == kind:
        return sent
    if pa.types.is_null(kind):
        return pa.nulls(len(sent))
    if not pa.types.is_binary(sent.type):
        return sent.cast(kind, safe=False)  # a float is sent as the double of the same digits
    text = sent.cast(pa.string())
    if pa.types.is_string(kind):
        return text
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _calendar(text, kind)
    if pa.types.is_time(kind):
        return pc.binary_join_element_wise("1970-01-01", text, " ").cast(pa.timestamp("us")).cast(kind)
    return text.cast(kind)


def _calendar(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        text = pc.utf8_slice_codeunits(text, 0, MOMENT_WIDTH)
    if pc.any(pc.match_substring_regex(text, r"^[+-]")).as_py():  # years without four digits
        unit = "D" if pa.types.is_date(kind) else "us"
        moments = np.array(text.to_pylist(), dtype=f"datetime64[{unit}]")
        return pa.array(moments, kind)
    plain = kind if pa.types.is_date(kind) else pa.timestamp("us")
    return text.cast(plain).cast(kind)


def _column(protocol: TBinaryProtocol) -> Sent:
    column: Sent = None
    for number, _ in _parts(protocol, *((number, TType.STRUCT) for number in (*_NUMBERS, *_TEXTS))):
        column = _numbers(protocol, *_NUMBERS[number]) if number in _NUMBERS else _texts(protocol)
    return column


def _numbers(protocol: TBinaryProtocol, form: str, kind: pa.DataType) -> Sent:
    wire = np.dtype(form)
    rows, data, nulls = 0, b"", b""
    for number, _ in _parts(protocol, (1, TType.LIST), (2, TType.STRING)):
        if number == 1:
            _, rows = protocol.readListBegin()
            data = protocol.trans.readAll(rows * wire.itemsize)
        else:
            nulls = protocol.readBinary()
    values = np.frombuffer(data, wire)
    here = (
        np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else values.astype(wire.newbyteorder("="))
    )
    return pa.Array.from_buffers(kind, rows, [_validity(nulls, rows), pa.py_buffer(here)])


def _texts(protocol: TBinaryProtocol) -> Sent:
    texts = _Texts()
    decode_binary(texts, protocol, [_Texts, _Texts.spec])
    rows = len(texts.values)
    nulls = np.unpackbits(_null_bits(texts.nulls, rows), count=rows, bitorder="little")
    return pa.array(texts.values, pa.binary(), mask=nulls.astype(np.bool_))


def _validity(nulls: bytes, rows: int) -> pa.Buffer | None:
    """Return Arrow's bitmap of values that are not NULL."""
    return pa.py_buffer(np.invert(_null_bits(nulls, rows))) if any(nulls) else None


def _null_bits(nulls: bytes, rows: int) -> NDArray[np.uint8]:
    """Return a bit per row, lowest first, in whole bytes: the sent bytes may lack zeros at their end."""
    bits = np.zeros((rows + 7) // 8, np.uint8)
    sent = np.frombuffer(nulls, np.uint8)[: len(bits)]
    bits[: len(sent)] = sent
    return bits


def _parts(protocol: TBinaryProtocol, *wanted: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the number and kind of a struct's wanted fields, which the caller has to read; skip the others."""
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            return
        if (number, kind) in wanted:
            yield number, kind
        else:
            protocol.skip(kind)
