"""Types and literals: what is written is read as the value it was."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from engines.arrow_types import arrow_type, spark_type
from gateway.drivers.flight import data, parameters
from gateway.drivers.flight.errors import LARGEST_MESSAGE, message
from gateway.drivers.flight.messages import Malformed, read
from gateway.drivers.flight.protocol.flight_pb2 import (
    FlightData,
)
from selector.types import parse
from sql.dialects.names import DIALECTS, SPARK
from sql.errors import Failure, SqlError, ValueOutOfRange
from sql.parsing import ParserLimits
from sql.statement import check

TYPES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
    *(pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.null(), pa.decimal128(10, 2)),
    *(pa.list_(pa.int32()), pa.map_(pa.string(), pa.list_(pa.decimal128(5, 1))), pa.time64("us")),
    pa.struct([("a", pa.map_(pa.string(), pa.int64())), ("b", pa.struct([("c", pa.decimal128(38, 18))]))]),
]
LITERALS = [
    (pa.scalar(None), "NULL"),
    (pa.scalar(True), "TRUE"),
    (pa.scalar(-7), "(-7)"),
    (pa.scalar(2**63 - 1), "9223372036854775807"),
    (pa.scalar(0.1), "0.1E0"),
    (pa.scalar(-1e300), "(-1e+300)"),
    (pa.scalar(float("-inf")), "CAST('-Infinity' AS DOUBLE)"),
    (pa.scalar(float("nan")), "CAST('NaN' AS DOUBLE)"),
    (pa.scalar(Decimal("-0.50"), pa.decimal128(4, 2)), "CAST('-0.50' AS DECIMAL(4, 2))"),
    (pa.scalar("it's \\ ?"), r"'it\'s \\ ?'"),
    (pa.scalar(b"\x00\xff"), "UNHEX('00FF')"),
    (pa.scalar(dt.date(2024, 2, 29)), "CAST('2024-02-29' AS DATE)"),
    (pa.scalar(dt.datetime(2024, 2, 29, 1, 2, 3, 4)), "CAST('2024-02-29 01:02:03.000004' AS TIMESTAMP_NTZ)"),
    (
        pa.scalar(dt.datetime(2024, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        "CAST('2024-02-28 23:00:00+00:00' AS TIMESTAMP)",
    ),
]
LIMITS = ParserLimits()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_columns_type_is_that_of_its_rows(kind: pa.DataType) -> None:
    assert arrow_type(parse(spark_type(kind))) == kind


@pytest.mark.parametrize(("value", "literal"), LITERALS, ids=lambda each: str(each))
def test_literals_in_sparks_words(value: pa.Scalar, literal: str) -> None:
    assert parameters.literal(value, SPARK) == literal


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["", "it's", "a \\ b", '"', "\n\t\0", "💡", "\\'; --", "%_?"])
def test_a_text_is_the_same_text_in_every_dialect(dialect: str, text: str) -> None:
    found = parameters.template("SELECT ? AS value", dialect, LIMITS)
    sql = found.filled(parameters.literals(pa.table({"0": [text]}), dialect))

    literal = check(sql, dialect, catalog={}, limits=LIMITS).tree.expressions[0].this

    assert literal.is_string
    assert literal.this == text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("value", "_"), LITERALS, ids=str)
def test_every_literal_is_accepted_in_every_dialect(dialect: str, value: pa.Scalar, _: str) -> None:
    sql = parameters.template("SELECT 1-? AS value, ? AS other", dialect, LIMITS)
    literal = parameters.literal(value, DIALECTS[dialect])

    check(sql.filled([literal, literal]), dialect, catalog={}, limits=LIMITS)


def test_parameters_are_found_where_they_are() -> None:
    found = parameters.template("SELECT '?', `a?`, ? /* ? */ FROM t WHERE x IN (?,?) -- ?", SPARK, LIMITS)

    assert found.filled(["1", "2", "3"]) == "SELECT '?', `a?`, 1 /* ? */ FROM t WHERE x IN (2,3) -- ?"
    with pytest.raises(SqlError):
        parameters.template("SELECT 'open", SPARK, LIMITS)
    with pytest.raises(SqlError):
        parameters.template("SELECT ?" + " " * LIMITS.statement_bytes, SPARK, LIMITS)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int32()), pa.time64("us"), pa.duration("s"), pa.month_day_nano_interval(), pa.struct([])],
    ids=str,
)
def test_types_without_literals_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueOutOfRange, match="cannot have Arrow's type"):
        parameters.literals(pa.table({"0": pa.nulls(1, kind)}), SPARK)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT a, b FROM t ORDER BY a LIMIT 5", "LIMIT 0"),
        ("SELECT 1 AS a UNION ALL SELECT 2", "LIMIT 0"),
        ("WITH c AS (SELECT 1 AS a) SELECT * FROM c LIMIT 3 OFFSET 1", "LIMIT 0"),
        ("VALUES (1), (2)", "VALUES"),
    ],
)
def test_a_query_without_its_rows(sql: str, columns: str) -> None:
    written = parameters.without_rows(sql, SPARK, LIMITS)

    assert columns in written
    assert "LIMIT 5" not in written
    assert "LIMIT 3" not in written


def test_rows_that_a_client_sends_are_bounded() -> None:
    table = pa.table({"a": ["x" * 1_000]})
    messages = data.encoded_table(table)
    parsed = [read(FlightData, each) for each in messages]

    assert data.decoded(parsed, largest_bytes=10_000) == table
    with pytest.raises(Malformed, match="more than 500 bytes"):
        data.decoded(parsed, largest_bytes=500)


def sent(batch: pa.RecordBatch, **options: Any) -> list[Any]:
    """Return a batch as a client sends it. options: of how Arrow writes it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return [
        FlightData(data_header=bytes(each.metadata), data_body=bytes(each.body or b""))
        for each in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue()))
    ]


TEXTS = pa.record_batch({"a": ["x" * 1_000], "b": [7]})


@pytest.mark.parametrize("version", [pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5])
def test_rows_that_are_not_compressed_arrive(version: pa.ipc.MetadataVersion) -> None:
    assert data.decoded(sent(TEXTS, metadata_version=version), largest_bytes=10_000).to_batches() == [TEXTS]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_rows_are_refused_wherever_they_stand(compression: str) -> None:
    schema, batch = sent(TEXTS, compression=compression)
    with pytest.raises(Malformed, match="must not be compressed"):
        data.decoded([schema, batch], largest_bytes=10_000)

    _, plain = sent(TEXTS)
    framed = b"\xff\xff\xff\xff" + len(batch.data_header).to_bytes(4, "little") + batch.data_header + batch.data_body
    hidden = FlightData(data_header=plain.data_header, data_body=plain.data_body + framed)
    with pytest.raises(Malformed, match="must not be compressed"):
        data.decoded([schema, hidden], largest_bytes=10_000)


def test_dictionaries_and_another_machines_bytes_are_refused() -> None:
    batch = pa.record_batch({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    with pytest.raises(Malformed, match="type dictionary"):
        data.decoded(sent(batch), largest_bytes=10_000)

    schema, plain = sent(pa.record_batch({"a": [7]}))
    header = bytearray(schema.data_header)
    fields = header.index(struct.pack("<4H", 8, 8, 0, 4))  # of a schema that leaves its endianness out
    struct.pack_into("<H", header, fields + 4, 4)
    schema.data_header = bytes(header)
    with pytest.raises(Malformed, match="little-endian"):
        data.decoded([schema, plain], largest_bytes=10_000)


@pytest.mark.parametrize("text", ["a" * 100_000, "💡" * 5_000, "%" * 3_000])
def test_a_message_has_room_in_a_reply(text: str) -> None:
    shown = message(Failure("SYNTAX_ERROR", text))

    assert shown.startswith(text[:100])
    assert shown.endswith(" ...")
    assert len(shown.encode()) <= LARGEST_MESSAGE


def test_a_short_message_stays_as_it_is() -> None:
    assert message(Failure("SYNTAX_ERROR", "Syntax error near 'ü'.")) == "Syntax error near 'ü'."
