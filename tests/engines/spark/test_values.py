"""Values at the extremes of their types, as Spark gives them, and results that Arrow cannot hold as they come."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.arrow_leaves import with_valid_text
from engines.errors import UnsupportedFeature
from engines.protocol import WriteTarget
from engines.spark.engine import SparkConnectEngine
from gateway.presentation.values.json_values import json_column
from sql.tables import Column, TableSource
from tests.engines.conformance import ask
from tests.gateway.extreme_values import EXTREMES, Extreme

pytestmark = pytest.mark.spark


def test_days_between_two_calendars_choose_their_rows(spark_engine: SparkConnectEngine, tmp_path: Path) -> None:
    """The 4th of October 1582 was followed by the 15th in the calendar of Spark's old classes."""
    days = [dt.date(1582, 10, 1) + dt.timedelta(days) for days in range(0, 20, 3)]
    for number, day in enumerate(days):  # a row group for each
        moment = dt.datetime(day.year, day.month, day.day, 1, 2, 3)
        row = {"id": [number], "d": [day], "t": pa.array([moment], pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(row), tmp_path / f"{number}.parquet")
    columns = (Column("id", "bigint"), Column("d", "date"), Column("t", "timestamp"))
    spark_engine.use_tables([TableSource("days", str(tmp_path), "parquet", columns)])
    for number, day in enumerate(days):
        for condition in (f"d = DATE'{day}'", f"d IN (DATE'{day}')", f"t = TIMESTAMP'{day} 01:02:03'"):
            assert ask(spark_engine, f"SELECT id FROM days WHERE {condition}")["id"].to_pylist() == [number], condition


@pytest.fixture(scope="module")
def extremes(spark_engine: SparkConnectEngine) -> Iterator[dict[int, pa.Array]]:
    """Ask for all of them in one statement."""
    columns = ", ".join(f"{extreme.sql} AS c{number}" for number, extreme in enumerate(EXTREMES))
    (batch,) = ask(spark_engine, f"SELECT {columns}").to_batches()
    yield dict(zip((id(extreme) for extreme in EXTREMES), with_valid_text(batch).columns, strict=True))


@pytest.mark.parametrize("extreme", EXTREMES, ids=lambda extreme: f"{extreme.kind} {extreme.sql[:40]}")
def test_a_value_comes_as_the_doors_expect_it(extremes: dict[int, pa.Array], extreme: Extreme) -> None:
    column = extremes[id(extreme)]

    assert json.dumps(json_column(column)) == json.dumps([extreme.json])
    if not pa.types.is_nested(column.type):
        assert column.type == extreme.value.type


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("IF(id = 1, NULL, map(id, map()))", [[[0, []]], None, [[2, []]]]),
        ("IF(id = 1, NULL, map(INTERVAL '1' MONTH, map()))", [[["0-1", []]], None, [["0-1", []]]]),
        ("IF(id = 1, NULL, array(parse_json(CAST(id AS STRING)), NULL))", [["0", None], None, ["2", None]]),
        (
            "IF(id = 1, NULL, named_struct('`{0}', parse_json(CAST(id AS STRING))))",
            [{"`{0}": "0"}, None, {"`{0}": "2"}],
        ),
        ("IF(id = 1, NULL, map(id, make_interval(id)))", [[[0, "0 seconds"]], None, [[2, "2 years"]]]),
        ("IF(id = 1, NULL, TIME'01:02:03')", ["01:02:03", None, "01:02:03"]),
        ("array(IF(id = 1, NULL, INTERVAL '1' YEAR))", [["1-0"], [None], ["1-0"]]),
        ("IF(id = 1, NULL, array())", [[], None, []]),
    ],
)
def test_rows_without_a_value_stay_without_one(
    spark_engine: SparkConnectEngine, sql: str, values: list[object]
) -> None:
    answer = ask(spark_engine, f"SELECT {sql} AS v, id FROM range(0, 3, 1, 1)")

    assert [value for chunk in answer["v"].chunks for value in json_column(chunk)] == values
    assert answer["id"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("sql", ["INTERVAL '1' DAY", "INTERVAL '1' MONTH", "parse_json('1')", "make_interval(1)"])
def test_a_table_has_no_column_of_a_type_without_a_form(
    spark_engine: SparkConnectEngine, tmp_path_factory: pytest.TempPathFactory, sql: str
) -> None:
    target = WriteTarget(str(tmp_path_factory.mktemp("written") / "rows"), "parquet")

    with pytest.raises(UnsupportedFeature, match=r"A table cannot hold the column v, .*; cast it to STRING\."):
        spark_engine.write(f"SELECT {sql} AS v", target, query_id=f"w {sql}", deadline_s=60)
