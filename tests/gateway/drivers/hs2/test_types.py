"""Types and values as clients of Hive and Impala know them: their names, intervals, nested values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from gateway.drivers.hs2 import metadata
from gateway.drivers.hs2.protocol import rowset
from gateway.drivers.hs2.protocol.messages import NEWEST_VERSION
from gateway.drivers.hs2.protocol.types import DAY_TIME, INTERVALS_VERSION, YEAR_MONTH, table_schema
from selector.types import hive_name
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.test_impyla import connect
from tests.gateway.drivers.hs2.test_protocol import columns_of, rows_of

STRING_TYPE, ARRAY_TYPE, MAP_TYPE = 7, 10, 11
V6 = 5
DAY_S = 86_400


def texts(array: pa.Array, **how: Any) -> list[str | None]:
    """Return a column's values as they are sent, which is the same in columns and in rows."""
    batch = pa.record_batch({"x": array})
    (column,) = columns_of(rowset.encode(batch, offset=0, columnar=True, **how))
    assert rows_of(rowset.encode(batch, offset=0, columnar=False, **how)) == [[value] for value in column]
    return column


@pytest.mark.parametrize(
    ("spark", "hive"),
    [
        ("timestamp_ntz", "timestamp"),
        ("timestamp", "timestamp"),
        ("time(6)", "string"),
        ("variant", "string"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("varchar(7)", "varchar(7)"),
        ("struct<`a b`:timestamp_ntz,c:array<time(6)>>", "struct<`a b`:timestamp,c:array<string>>"),
        ("map<timestamp_ntz,struct<>>", "map<timestamp,struct<>>"),
        ("no type", "no type"),
        ("", ""),
    ],
)
def test_types_have_hives_names(spark: str, hive: str) -> None:
    assert hive_name(spark) == hive


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.timedelta(days=1, hours=2, minutes=3, seconds=4), "1 02:03:04.000000000"),
        (-dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5), "-1 02:03:04.000005000"),
        (dt.timedelta(), "0 00:00:00.000000000"),
        (-dt.timedelta(microseconds=1), "-0 00:00:00.000001000"),
    ],
)
def test_an_interval_of_days_is_written_as_hive_does(value: dt.timedelta, text: str) -> None:
    assert texts(pa.array([value, None], pa.duration("us"))) == [text, None]
    assert texts(pa.array([[value, None]]), nested_json=True) == [f'["{text}",null]']
    assert texts(pa.array([[value, None]])) == [f'["{text}",null]']


def test_an_interval_may_be_longer_than_pythons_longest() -> None:
    seconds = 2**62
    days, rest = divmod(seconds, DAY_S)
    clock = f"{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    assert texts(pa.array([seconds], pa.duration("s"))) == [f"{days} {clock}.000000000"]


@pytest.mark.parametrize(("months", "text"), [(14, "1-2"), (-14, "-1-2"), (0, "0-0"), (-1, "-0-1"), (12_000, "1000-0")])
def test_an_interval_of_months_is_written_as_hive_does(months: int, text: str) -> None:
    assert texts(pa.array([pa.MonthDayNano([months, 0, 0]), None])) == [text, None]


@pytest.mark.parametrize(
    ("version", "numbers"),
    [(NEWEST_VERSION, [DAY_TIME, YEAR_MONTH]), (INTERVALS_VERSION, [DAY_TIME, YEAR_MONTH]), (V6, [STRING_TYPE] * 2)],
)
def test_intervals_have_a_type_where_the_protocol_knows_them(version: int, numbers: list[int]) -> None:
    schema = pa.schema([("d", pa.duration("us")), ("m", pa.month_day_nano_interval())])
    assert type_ids(schema, version) == numbers


def test_nested_values_are_texts_to_impalas_drivers() -> None:
    schema = pa.schema([("a", pa.list_(pa.int8())), ("m", pa.map_(pa.string(), pa.int8()))])
    assert type_ids(schema, V6) == [ARRAY_TYPE, MAP_TYPE]
    assert type_ids(schema, V6, nested_as_texts=True) == [STRING_TYPE] * 2


def type_ids(schema: pa.Schema, version: int, *, nested_as_texts: bool = False) -> list[int | None]:
    described = table_schema(schema, version, nested_as_texts=nested_as_texts).columns or []
    entries = [each.type.entries[0] for each in described if each.type and each.type.entries]
    return [entry.primitive.type_id for entry in entries if entry.primitive]


NESTED = [
    (pa.array([[1, None, -2], [], None]), ["[1,null,-2]", "[]", None], None),
    (pa.array([['q"z\\\n', "ä😀", None]]), ['["q\\"z\\\\\\n","ä😀",null]'], None),
    (pa.array([{"a": 1, "b b": None}]), ['{"a":1,"b b":null}'], None),
    (
        pa.array([[(1, "x"), (-2, None)]], pa.map_(pa.int32(), pa.string())),
        ['{1:"x",-2:null}'],
        ['{"1":"x","-2":null}'],
    ),
    (pa.array([[Decimal("1.50"), Decimal("-0.01")]]), ["[1.50,-0.01]"], ['["1.50","-0.01"]']),
    (pa.array([[float("nan"), float("-inf"), -0.0, 1e300]]), ["[NaN,-Infinity,-0.0,1e+300]"], None),
    (pa.array([[b"\xff\x00"]]), ['["/wA="]'], None),
    (pa.array([[dt.date(1500, 2, 28)]]), ['["1500-02-28"]'], None),
    (pa.array([[dt.datetime(2020, 1, 1, 1, 2, 3, 4)]]), ['["2020-01-01 01:02:03.000004"]'], None),
    (pa.array([[dt.time(1, 2, 3)]]), ['["01:02:03.000000"]'], None),
    (pa.array([[True, False]]), ["[true,false]"], None),
    (pa.array([{"m": [{"k": Decimal("7")}]}]), ['{"m":[{"k":7}]}'], ['{"m":[{"k":"7"}]}']),
]


@pytest.mark.parametrize(("array", "hive", "json"), NESTED)
def test_nested_values_are_written_as_hive_does_or_as_json(
    array: pa.Array, hive: list[str | None], json: list[str | None] | None
) -> None:
    assert texts(array) == hive
    wanted = json or [text.replace("NaN,-Infinity", '"NaN","-Infinity"') if text else text for text in hive]
    assert texts(array, nested_json=True) == wanted


# ---------------------------------------------------------------------- a real DuckDB


@pytest.fixture(scope="module")
def walls(bookshop: Drivers) -> Iterator[str]:
    """Make a view with a timestamp that has no zone."""
    with closing(connect(bookshop, "NOSASL")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SET fusion.dialect = spark")
        cursor.execute("CREATE VIEW walls AS SELECT CAST('1500-02-28 01:02:03.5' AS TIMESTAMP_NTZ) AS wall, 1 AS n")
        yield "walls"
        cursor.execute("DROP VIEW walls")


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_a_driver_is_told_hives_types_in_every_dialect(bookshop: Drivers, walls: str, dialect: str) -> None:
    with closing(connect(bookshop, "PLAIN")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"SET fusion.dialect = {dialect}")
        cursor.execute(f"DESCRIBE {walls}")
        assert [row[:2] for row in cursor.fetchall()] == [("wall", "timestamp"), ("n", "int")]
        assert [column[:2] for column in cursor.get_table_schema(walls)] == [("wall", "TIMESTAMP"), ("n", "INT")]
        cursor.execute(f"SELECT wall FROM {walls}")
        assert cursor.description[0][:2] == ("wall", "TIMESTAMP")
        assert cursor.fetchall() == [(dt.datetime(1500, 2, 28, 1, 2, 3, 500_000),)]


@pytest.mark.parametrize(
    ("dialect", "name"), [("spark", "timestamp_ntz"), ("hive", "timestamp"), ("impala", "timestamp")]
)
def test_over_http_the_dialect_says_what_types_are_called(
    bookshop: Drivers, walls: str, dialect: str, name: str
) -> None:
    body = {"sql": f"DESCRIBE {walls}", "dialect": dialect}
    reply = httpx.post(f"http://{bookshop.host}:{bookshop.http_port}/v1/queries", json=body, timeout=60.0).json()
    assert reply["rows"][0][:2] == ["wall", name]


def test_who_asks_is_told_to_themselves_alone(bookshop: Drivers) -> None:
    pyhive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
    for user in ("ann", "joe", "ann", "o'neil ä"):
        for where in ("user()", "current_user()"):
            with closing(pyhive.connect(bookshop.host, port=bookshop.port, username=user)) as connection:
                cursor = connection.cursor()
                cursor.execute(
                    f"SELECT {where} AS me, X'1F' AS raw, count(*) AS n FROM books WHERE {where} = current_user"
                )
                ((me, raw, n),) = cursor.fetchall()
                assert (me, raw) == (user, b"\x1f")
                assert n > 0


def test_impalas_dialect_of_sqlalchemy_reads_the_version(bookshop: Drivers) -> None:
    with closing(connect(bookshop, "PLAIN")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("select version()")
        ((version,),) = cursor.fetchall()
    assert version.split()[:3] == ["impalad", "version", "4.5.0"]


def test_a_setting_makes_nested_values_json(drivers: Drivers) -> None:
    with closing(connect(drivers, "PLAIN")) as connection, closing(connection.cursor()) as cursor:
        for name, value in (("fusion.nested_json", "true"), ("STRINGIFY_MAP_KEYS", "0")):
            cursor.execute(f"SET {name} = {value}")
            cursor.execute("SELECT 'every type'")
            assert cursor.fetchall()[0][-2] == '{"a":1}'
        cursor.execute("SET fusion.nested_json")
        assert cursor.fetchall()[0][1] == "0"


def test_the_list_of_types_has_hives_names_once() -> None:
    names = metadata.type_info()["TYPE_NAME"].to_pylist()
    assert {"TIMESTAMP", "DECIMAL", "ARRAY", "BINARY"} <= set(names)
    assert not {"TIMESTAMP_NTZ", "TIME", "VARIANT"} & set(names)
    assert len(names) == len(set(names))
