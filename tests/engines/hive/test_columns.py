"""What HiveServer2 sends and what Arrow gets, byte for byte; tests/engines/hive/test_hive.py meets a real server's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from TCLIService import ttypes  # type: ignore[import-untyped]
from TCLIService.TCLIService import FetchResults_result  # type: ignore[import-untyped]
from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
from thrift.transport.TTransport import TMemoryBuffer  # type: ignore[import-untyped]

from engines.hive.columns import converted, read_answer, sent_type, type_of

COLUMNS = {
    "boolVal": (ttypes.TBoolColumn, pa.bool_(), st.booleans()),
    "byteVal": (ttypes.TByteColumn, pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "i16Val": (ttypes.TI16Column, pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "i32Val": (ttypes.TI32Column, pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64Val": (ttypes.TI64Column, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "doubleVal": (ttypes.TDoubleColumn, pa.float64(), st.floats(allow_nan=False)),
    "stringVal": (ttypes.TStringColumn, pa.binary(), st.text()),
    "binaryVal": (ttypes.TBinaryColumn, pa.binary(), st.binary()),
}
WHEN_NULL = {"boolVal": False, "doubleVal": 0.0, "stringVal": "", "binaryVal": b""}
SUCCESS = ttypes.TStatus(ttypes.TStatusCode.SUCCESS_STATUS)


def bits_of(values: list[Any]) -> bytes:
    """Return the bitmap of what is null as servers send it: without zeros at its end."""
    bits = bytearray((len(values) + 7) // 8)
    for position, value in enumerate(values):
        bits[position // 8] |= (value is None) << position % 8
    return bytes(bits).rstrip(b"\0")


def column(member: str, values: list[Any]) -> ttypes.TColumn:
    """Return values as the stubs hold them."""
    blank = WHEN_NULL.get(member, 0)
    sent = COLUMNS[member][0]([blank if value is None else value for value in values], bits_of(values))
    return ttypes.TColumn(**{member: sent})


def answer(*columns: ttypes.TColumn, status: ttypes.TStatus = SUCCESS) -> tuple[Any, list[pa.Array]]:
    """Write an answer with PyHive's stubs and read it back."""
    rows = ttypes.TRowSet(startRowOffset=7, rows=[], columns=list(columns))
    written = TMemoryBuffer()
    FetchResults_result(ttypes.TFetchResultsResp(status, False, rows)).write(TBinaryProtocol(written))
    return read_answer(TBinaryProtocol(_Readable(written.getvalue())))


class _Readable(TMemoryBuffer):  # type: ignore[misc]
    """A buffer that the C decoder reads from, as it does from a connection."""

    @property
    def cstringio_buf(self) -> Any:
        return self._buffer

    def cstringio_refill(self, partial: bytes, size: int) -> Any:
        raise EOFError


@pytest.mark.parametrize("member", COLUMNS)
def test_values_and_nulls(member: str) -> None:
    @settings(max_examples=25)
    @given(st.lists(st.none() | COLUMNS[member][2], max_size=40))
    def check(values: list[Any]) -> None:
        status, columns = answer(column(member, values))
        assert status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
        assert columns[0].type == COLUMNS[member][1]
        read = columns[0].to_pylist()
        texts = [value.decode() if isinstance(value, bytes) and member == "stringVal" else value for value in read]
        assert texts == values

    check()


def test_columns_stay_in_order_and_empty_answers_are_answers() -> None:
    _, columns = answer(column("i32Val", [1, None]), column("stringVal", ["a", None]), column("boolVal", [None, True]))
    assert [sent.to_pylist() for sent in columns] == [[1, None], [b"a", None], [None, True]]
    assert answer()[1] == []
    assert len(answer(column("i64Val", []))[1][0]) == 0


def test_failure_is_read_with_its_words() -> None:
    failure = ttypes.TStatus(ttypes.TStatusCode.ERROR_STATUS, ["*stack"], "42000", 40000, "no")
    status, columns = answer(status=failure)
    assert (status.statusCode, status.sqlState, status.errorMessage) == (ttypes.TStatusCode.ERROR_STATUS, "42000", "no")
    assert columns == []


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("date", "1582-10-03", dt.date(1582, 10, 3)),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("timestamp_ntz", "2024-03-31 02:30:00", dt.datetime(2024, 3, 31, 2, 30)),
        ("timestamp_ntz", "1969-12-31 23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("timestamp_ntz", "2024-03-31 02:30:00.123456789", dt.datetime(2024, 3, 31, 2, 30, 0, 123456)),
        ("timestamp", "2024-03-31 02:30:00.5", dt.datetime(2024, 3, 31, 2, 30, 0, 500000, tzinfo=dt.UTC)),
        ("time(6)", "23:59:59.000001", dt.time(23, 59, 59, 1)),
        ("decimal(10,2)", "-99999999.99", Decimal("-99999999.99")),
        ("decimal(10,2)", "1", Decimal("1.00")),  # Hive leaves zeros out
        ("decimal(38,38)", "0." + "0" * 37 + "1", Decimal("1e-38")),
        ("string", "Ünï ☃", "Ünï ☃"),
        ("array<int>", "[1,null]", "[1,null]"),
        ("interval day", "1 00:00:00.000000000", "1 00:00:00.000000000"),
    ],
)
def test_text_becomes_what_it_means(data_type: str, text: str, value: Any) -> None:
    column = converted(pa.array([text.encode(), None], pa.binary()), sent_type(data_type))
    assert column.to_pylist() == [value, None]
    assert column.type == sent_type(data_type)


def test_years_that_have_not_four_digits() -> None:
    """Python has no such dates, Arrow has: days since 1970."""
    days = converted(pa.array([b"-0044-03-15", b"+12024-01-01", None, b"1970-01-02"], pa.binary()), pa.date32())
    assert days.cast(pa.int32()).to_pylist() == [-735525, 3672148, None, 1]
    moments = converted(pa.array([b"+12024-01-01 00:00:00.5"], pa.binary()), pa.timestamp("us", tz="UTC"))
    assert moments.cast(pa.int64()).to_pylist() == [3672148 * 86_400_000_000 + 500_000]


def test_floats_come_as_doubles_and_void_as_text() -> None:
    assert converted(pa.array([0.1, None]), pa.float32()).equals(pa.array([0.1, None], pa.float32()))
    assert converted(pa.array([b"", b""]), pa.null()).to_pylist() == [None, None]


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        converted(pa.array([b"\xff"]), pa.string())


@pytest.mark.parametrize(
    ("type_id", "qualifiers", "kind"),
    [
        (ttypes.TTypeId.DECIMAL_TYPE, {"precision": 12, "scale": 3}, pa.decimal128(12, 3)),
        (ttypes.TTypeId.DECIMAL_TYPE, {}, pa.decimal128(10, 0)),
        (ttypes.TTypeId.VARCHAR_TYPE, {"characterMaximumLength": 3}, pa.string()),
        (ttypes.TTypeId.TIMESTAMP_TYPE, {}, pa.timestamp("us")),
        (ttypes.TTypeId.FLOAT_TYPE, {}, pa.float32()),
        (ttypes.TTypeId.STRUCT_TYPE, {}, pa.string()),
        (99, {}, pa.string()),  # of a newer server
    ],
)
def test_types_as_hive_describes_them(type_id: int, qualifiers: dict[str, int], kind: pa.DataType) -> None:
    told = {name: ttypes.TTypeQualifierValue(i32Value=value) for name, value in qualifiers.items()}
    entry = ttypes.TPrimitiveTypeEntry(type_id, ttypes.TTypeQualifiers(told) if told else None)
    described = ttypes.TColumnDesc("c", ttypes.TTypeDesc([ttypes.TTypeEntry(primitiveEntry=entry)]), 1)
    assert type_of(described) == kind


def test_nested_types_of_a_server_that_tells_their_parts() -> None:
    entry = ttypes.TTypeEntry(arrayEntry=ttypes.TArrayTypeEntry(1))
    assert type_of(ttypes.TColumnDesc("c", ttypes.TTypeDesc([entry]), 1)) == pa.string()
