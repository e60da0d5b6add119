"""Types of columns in files: which Spark cannot read, and which it reads as another type without a loss."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.files.stored_types import StoredColumn, StoredColumns, first_misfit, fits, holds_floats

NOW = dt.datetime(2026, 3, 1, 12)


def _columns(path: Path, table: pa.Table, **options: Any) -> dict[str, StoredColumn]:
    pq.write_table(table, path, **options)
    return {column.name: column for column in StoredColumns().parquet(pq.read_metadata(path))}


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([1], pa.timestamp("ns")), "a TIMESTAMP in nanoseconds"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "a TIMESTAMP in nanoseconds"),
        (pa.array([1], pa.time32("ms")), "a TIME in milliseconds"),
        (pa.array([1.5], pa.float16()), "a FLOAT16"),
        (pa.array([Decimal(1)], pa.decimal256(50, 2)), "a DECIMAL of 50 digits"),
        (pa.array([[{"t": 1}]], pa.list_(pa.struct([("t", pa.timestamp("ns"))]))), "a TIMESTAMP in nanoseconds"),
    ],
)
def test_types_that_spark_cannot_read_are_told(tmp_path: Path, values: pa.Array, what: str) -> None:
    columns = _columns(tmp_path / "a.parquet", pa.table({"a.b": [{"c.d": [1]}], "x": values, "z": [1]}))
    assert columns["x"].unreadable == what
    assert (columns["a.b"].unreadable, columns["z"].unreadable) == ("", "")


def test_instants_of_96_bits_are_read_at_any_depth(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([NOW], pa.timestamp("ns")), "s": [{"t": NOW}]})
    columns = _columns(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
    assert columns["t"] == StoredColumn("t", "timestamp")
    assert columns["s"] == StoredColumn("s", "struct<t:timestamp>")


BYTES = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


@pytest.mark.parametrize(
    ("spark", "arrow", "data_type", "unreadable"),
    [
        ("variant", BYTES, "variant", ""),
        ({"type": "array", "elementType": "variant", "containsNull": True}, pa.list_(BYTES), "array<variant>", ""),
        ("interval day to second", pa.int64(), "bigint", "an interval"),
        (
            {"type": "array", "elementType": "interval month", "containsNull": True},
            pa.list_(pa.int32()),
            "array<int>",
            "an interval",
        ),
        (None, BYTES, "struct<metadata:binary,value:binary>", ""),
        ("long", pa.float64(), "double", ""),
    ],
)
def test_what_spark_noted_of_its_own_types_counts(
    tmp_path: Path, spark: Any, arrow: pa.DataType, data_type: str, unreadable: str
) -> None:
    note = json.dumps({"type": "struct", "fields": [{"name": "v", "type": spark, "nullable": True, "metadata": {}}]})
    table = pa.table({"v": pa.nulls(1, arrow)}).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": note} if spark else {}
    )
    assert _columns(tmp_path / "a.parquet", table) == {"v": StoredColumn("v", data_type, unreadable)}


@pytest.mark.parametrize(
    "note", [b"", b"[]", b"{", b'{"fields": 3}', b'{"fields": [1]}', b"[" * 100_000, b'{"fields": [{"name": {}}]}']
)
def test_a_broken_note_is_ignored(tmp_path: Path, note: bytes) -> None:
    table = pa.table({"n": [1]}).replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": note})
    assert _columns(tmp_path / "a.parquet", table) == {"n": StoredColumn("n", "bigint")}


def test_columns_are_the_same_object_while_files_are_alike(tmp_path: Path) -> None:
    looks = StoredColumns()
    found = []
    for number, kind in enumerate([pa.int32(), pa.int32(), pa.int64(), pa.int32()]):
        pq.write_table(pa.table({"n": pa.array([number], kind)}), tmp_path / f"{number}.parquet")
        found.append(looks.parquet(pq.read_metadata(tmp_path / f"{number}.parquet")))
    assert found[0] is found[1]
    assert [columns[0].data_type for columns in found] == ["int", "int", "bigint", "int"]


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        ("tinyint", "bigint"),
        ("int", "double"),
        ("int", "decimal(10,0)"),
        ("bigint", "decimal(20,0)"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("decimal(9,2)", "decimal(11,4)"),
        ("varchar(3)", "string"),
        ("binary", "string"),
        ("void", "int"),
        ("struct<a:int>", "struct<a:bigint,b:string>"),
        ("array<struct<a:int>>", "array<struct<A:double>>"),
    ],
)
def test_what_spark_widens_fits_one_way_alone(stored: str, declared: str) -> None:
    assert fits(stored, stored)
    assert fits(stored, declared)
    if {stored, declared} not in ({"varchar(3)", "string"}, {"binary", "string"}):
        assert not fits(declared, stored)


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        ("double", "bigint"),  # 2.7 would be 3
        ("double", "float"),
        ("bigint", "double"),
        ("int", "smallint"),
        ("int", "boolean"),  # 5 would be true
        ("int", "date"),
        ("date", "int"),
        ("timestamp", "date"),
        ("timestamp", "bigint"),
        ("decimal(10,3)", "decimal(10,2)"),  # 1.255 would be 1.26
        ("decimal(10,2)", "decimal(10,3)"),
        ("int", "decimal(9,0)"),
        ("tinyint", "decimal(9,0)"),  # an INT in the file
        ("int", "string"),
        ("string", "int"),
        ("void", "string"),
        ("variant", "struct<metadata:binary,value:binary>"),
        ("struct<b:int>", "struct<a:int>"),
        ("array<double>", "array<bigint>"),
        ("map<string,double>", "map<string,int>"),
        ("array<int>", "int"),
    ],
)
def test_what_would_come_to_other_values_does_not_fit(stored: str, declared: str) -> None:
    assert not fits(stored, declared)


def test_the_first_misfit_is_found_whatever_the_case() -> None:
    stored = [StoredColumn("A", "int"), StoredColumn("x", "double"), StoredColumn("more", "binary", "a FLOAT16")]
    assert first_misfit(stored, {"a": "bigint"}) is None
    assert first_misfit(stored, {"a": "bigint", "x": "bigint"}) is stored[1]
    assert first_misfit(stored, {"more": "binary"}) is stored[2]


def test_unsigned_numbers_are_widened_to_no_decimal(tmp_path: Path) -> None:
    (large,) = _columns(tmp_path / "a.parquet", pa.table({"n": pa.array([1], pa.uint64())})).values()
    assert (large.fits("decimal(20,0)"), large.fits("decimal(38,2)")) == (True, False)
    (small,) = _columns(tmp_path / "b.parquet", pa.table({"n": pa.array([1], pa.uint8())})).values()
    assert (small.fits("bigint"), small.fits("double"), small.fits("decimal(20,0)")) == (True, True, False)


@pytest.mark.parametrize("data_type", ["float", "array<double>", "struct<a:map<string,float>>"])
def test_floats_are_found_at_any_depth(data_type: str) -> None:
    assert holds_floats(data_type)
    assert not holds_floats("struct<a:decimal(3,1),b:array<bigint>>")
