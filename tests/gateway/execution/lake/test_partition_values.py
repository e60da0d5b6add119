"""Values at the ends of their types in many partitions: what is read is what was written, whatever a condition asks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from engines.files.pruning import FEW_FILES
from sql.tables import LAKE_FORMATS
from tests.gateway.house import House

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

TEXTS = ("a", "A", "é", "Z z", "%41", "a/b", "=", "ß", "\U0001f600", "10", "9", "null", "日本", "~", "zz" * 30)
ENDS = ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", "1582-10-10 12:00:00")
MOMENTS = [*ENDS, *(f"19{year}-12-31 23:00:00.{year:06}" for year in range(60, 95))]
DAYS = ["0001-01-01", "9999-12-31", "1582-10-15", "1582-10-04", "1969-12-31", "1970-01-01", "1900-02-28"]
DAYS += [f"20{year:02}-02-28" for year in range(30)]
VALUES: Mapping[str, Sequence[str]] = {
    "boolean": ["true", "false"],
    "int": ["-2147483648", "2147483647", *map(str, range(-40, 40, 2))],
    "bigint": ["-9223372036854775808L", "9223372036854775807L", *(f"{number}L" for number in range(-99, 99, 5))],
    "decimal(9,2)": ["9999999.99", "-9999999.50", *(f"{number / 4:.2f}" for number in range(-17, 40))],
    "decimal(38,10)": ["9999999999999999999999999999.9999999999", *(f"{number}.5" for number in range(35))],
    "double": ["1.7E38D", "4.9E-32D", "CAST('Infinity' AS DOUBLE)", *(f"{number / 7}D" for number in range(1, 33))],
    "float": ["CAST(16777217 AS FLOAT)", *(f"CAST({number / 3} AS FLOAT)" for number in range(1, 34))],
    "string": [f"'{text}'" for text in TEXTS] + [f"'{'x' * length}'" for length in range(1, 20)],
    "date": [f"DATE '{day}'" for day in DAYS],
    "timestamp": [f"TIMESTAMP '{moment}'" for moment in MOMENTS],
    "timestamp_ntz": [f"TIMESTAMP_NTZ '{moment}'" for moment in MOMENTS],
}
HIDDEN: Mapping[str, Sequence[str]] = {
    "int": ["bucket(40, c)", "truncate(3, c)"],
    "bigint": ["bucket(40, c)", "truncate(5, c)"],
    "decimal(9,2)": ["bucket(40, c)", "truncate(50, c)"],
    "decimal(38,10)": ["bucket(40, c)"],
    "string": ["bucket(40, c)", "truncate(2, c)"],
    "date": ["years(c)", "months(c)", "days(c)", "bucket(40, c)"],
    "timestamp": ["years(c)", "months(c)", "days(c)", "hours(c)", "bucket(40, c)"],
    "timestamp_ntz": ["years(c)", "months(c)", "days(c)", "hours(c)", "bucket(40, c)"],
}
CASES = [
    (format, type, by)
    for format in LAKE_FORMATS
    for type in VALUES
    for by in ["c", *(HIDDEN.get(type, ()) if format == "iceberg" else ())]
]


@pytest.mark.parametrize(("format", "type", "by"), CASES)
def test_values_are_read_as_they_were_written(house: House, format: str, type: str, by: str) -> None:
    name, values = f"v{CASES.index((format, type, by))}", list(VALUES[type])
    if format == "delta":  # of decimals it takes none below zero
        values = [value for value in values if not (type.startswith("decimal") and value.startswith("-"))]
    assert type == "boolean" or len(values) >= FEW_FILES  # of fewer, none is left out
    rows = ", ".join(f"({number}, CAST({value} AS {type}))" for number, value in enumerate([*values, "NULL"], 1))
    listed = f"(SELECT * FROM VALUES {rows} AS v(id, c))"
    house.done(f"CREATE TABLE {name} (id INT, c {type.upper()}) USING {format} PARTITIONED BY ({by})")
    house.done(f"INSERT INTO {name} SELECT id, c FROM {listed}")
    written = house.done(f"SELECT id, c FROM {listed} ORDER BY id", engine="spark")
    for engine in ("duckdb", "spark"):
        assert house.done(f"SELECT id, c FROM {name} ORDER BY id", engine=engine) == written, engine
    conditions = ["c IS NULL", "c IS NOT NULL"]
    chance = random.Random(name)  # noqa: S311 - what it asks for is no secret
    for value in chance.sample(values, min(4, len(values))):
        probe, end = f"CAST({value} AS {type})", f"CAST({values[0]} AS {type})"
        conditions += [f"c {sign} {probe}" for sign in ("=", "<", ">=", "<>")]
        conditions += [f"c IN ({probe}, {end})", f"c BETWEEN {end} AND {probe}"]
    sums = ", ".join(f"sum(CASE WHEN {condition} THEN id ELSE 0 END)" for condition in conditions)
    (expected,) = house.done(f"SELECT {sums} FROM {listed}", engine="spark")
    for condition, wanted in zip(conditions, expected.values(), strict=True):
        (found,) = house.done(f"SELECT coalesce(sum(id), 0) AS s FROM {name} WHERE {condition}", engine="duckdb")
        assert found["s"] == wanted, condition
