"""Functions and constructs of Hive and Impala, one by one: as their references say, or refused; never something else.

``dialects/*.txt`` say what each gives. The texts that the gateway writes are run by DuckDB and by a real Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest

from engines.compiled import outputs_of
from engines.errors import UnsupportedFeature
from engines.spark.engine import SparkConnectEngine
from sql.dialects import hive_functions
from sql.errors import NotAllowed, SqlError, UnknownColumn
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource, View
from tests.engines.conformance import run
from tests.writers import DUCKDB_SQL, SPARK_SQL

ROWS = """
    WITH one AS (SELECT CAST('2024-02-29 13:45:59.5' AS TIMESTAMP) AS t, CAST('2024-02-29' AS DATE) AS d, 'Hello' AS s,
        7 AS n, CAST(2.5 AS DOUBLE) AS x, CAST(NULL AS STRING) AS z, TRUE AS b),
    q5 AS (SELECT 1 AS v, 'a' AS w UNION ALL SELECT 3, 'b' UNION ALL SELECT 4, 'c' UNION ALL SELECT 4, 'c'
        UNION ALL SELECT NULL, NULL)
"""
REFUSED = "refused"
BATCH = 40
SPARK_DECIDES = "meant otherwise by Spark"


class Case(NamedTuple):
    dialect: str
    expression: str
    value: str

    def checked(self) -> CheckedStatement:
        return checked([self])


def cases(dialect: str) -> list[Case]:
    lines = (Path(__file__).parent / "dialects" / f"{dialect}.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.rpartition("=>") for line in lines if line and not line.startswith("#"))
    return [Case(dialect, expression.strip(), value.strip()) for expression, _, value in parts]


def checked(those: Sequence[Case]) -> CheckedStatement:
    columns = ", ".join(f"{case.expression} AS c{place}" for place, case in enumerate(those))
    return check(f"{ROWS} SELECT {columns} FROM one", those[0].dialect, catalog={}, limits=ParserLimits())


ALL = [*cases("impala"), *cases("hive")]
GIVEN = [case for case in ALL if case.value != REFUSED]


def same(found: Any, value: str) -> bool:
    if isinstance(found, bool) or found is None:
        return {True: "true", False: "false", None: "NULL"}[found] == value
    if isinstance(found, dt.datetime):
        return str(found.replace(tzinfo=None)) == value
    try:
        return abs(float(found) - float(value)) < 1e-9 or float(found) == float(value)
    except (TypeError, ValueError):
        return str(found).strip() == value


def values(table: Any) -> list[Any]:
    return list(table.to_pylist()[0].values())


@pytest.mark.parametrize("case", [case for case in ALL if case.value == REFUSED], ids=str)
def test_what_has_no_equal_is_refused_with_a_reason(case: Case) -> None:
    with pytest.raises(SqlError) as caught:
        case.checked()
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_what_duckdb_gives(case: Case) -> None:
    statement = case.checked()
    try:
        text = statement.sql(DUCKDB_SQL)
    except UnsupportedFeature:  # it goes to Spark, below
        return
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            found = values(connection.sql(text).to_arrow_table())[0]
        except duckdb.Error as error:
            assert SPARK_DECIDES in str(error)
            return
    assert same(found, case.value), f"{found!r} from {text}"


@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_a_view_says_what_its_query_says(case: Case) -> None:
    view = View("v", f"{ROWS} SELECT {case.expression} AS c0 FROM one", case.dialect, (Column("c0", "string"),))
    statement = check("SELECT c0 FROM v", "spark", catalog={}, limits=ParserLimits(), views={"v": view})
    source = statement.tree.args["from_"].this
    assert source.this.sql(dialect="spark") == case.checked().tree.sql(dialect="spark")


@pytest.mark.spark
@pytest.mark.parametrize("dialect", ["impala", "hive"])
def test_what_spark_gives(spark_engine: SparkConnectEngine, dialect: str) -> None:
    those = [case for case in GIVEN if case.dialect == dialect]
    wrong = []
    for first in range(0, len(those), BATCH):
        batch = those[first : first + BATCH]
        with run(spark_engine, checked(batch).sql(SPARK_SQL)) as result:
            found = values(pa.Table.from_batches(list(result)))
        wrong += [f"{case}: {value!r}" for case, value in zip(batch, found, strict=True) if not same(value, case.value)]
    assert wrong == []


def test_every_function_that_is_written_anew_is_tried() -> None:
    for dialect in ("impala", "hive"):
        tried = " ".join(case.expression.lower() for case in cases(dialect))
        assert [name for name in hive_functions.names(dialect) if f"{name}(" not in tried] == []


PLACES = TableSource("places", "/data/places", "parquet", (Column("array", "array<int>"), Column("on_sale", "boolean")))


@pytest.mark.parametrize(
    ("dialect", "expression", "spark"),
    [
        ("hive", "`array`[0]", "`array`[0]"),
        ("impala", "`array`[0]", "`array`[0]"),
        ("spark", "`array`[0]", "`array`[0]"),
        ("spark", "array[0]", "`array`[0]"),
        ("impala", "on_sale || on_sale", "(`on_sale` OR `on_sale`)"),
        ("impala", "CAST(on_sale AS STRING)", "(CASE WHEN `on_sale` THEN '1' WHEN NOT `on_sale` THEN '0' END)"),
        (
            "impala",
            "first_value(on_sale IGNORE NULLS) OVER (ORDER BY on_sale)",
            "FIRST_VALUE(`on_sale`) IGNORE NULLS OVER (ORDER BY `on_sale` NULLS LAST)",
        ),
        ("hive", "CAST('abc' AS VARCHAR(2))", "(SUBSTRING(CAST('abc' AS STRING), 1, 2))"),
        ("hive", "CAST(on_sale AS STRING)", "CAST(`on_sale` AS STRING)"),
    ],
)
def test_constructs(dialect: str, expression: str, spark: str) -> None:
    statement = check(
        f"SELECT {expression} AS c FROM places", dialect, catalog={"places": PLACES}, limits=ParserLimits()
    )
    text = statement.sql(SPARK_SQL).replace("TRY_CAST", "CAST")
    assert text == f"SELECT {spark} AS `c` FROM `places` AS `places`"


def test_a_column_that_is_not_there_is_no_list() -> None:
    with pytest.raises((UnknownColumn, NotAllowed)):
        check("SELECT list[0] FROM places", "impala", catalog={"places": PLACES}, limits=ParserLimits())


@pytest.mark.parametrize("dialect", ["hive", "spark"])
def test_a_function_of_several_columns_gets_no_one_name(dialect: str) -> None:
    statement = check(
        "SELECT posexplode(array) FROM places", dialect, catalog={"places": PLACES}, limits=ParserLimits()
    )
    assert statement.sql(SPARK_SQL) == "SELECT POSEXPLODE(`array`) FROM `places` AS `places`"


@pytest.mark.parametrize("dialect", ["hive", "spark"])
@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT pos + 1 AS n, col FROM (SELECT posexplode(array) FROM places) t", ("n", "col")),
        ("SELECT n, x FROM (SELECT posexplode(array) AS (n, x) FROM places) t", ("n", "x")),
        ("SELECT posexplode(array) AS (n, x) FROM places", ("n", "x")),
        ("WITH c AS (SELECT explode(array) FROM places) SELECT col FROM c", ("col",)),
        ("SELECT explode(array) FROM places", None),
    ],
)
def test_functions_that_make_rows_name_their_columns(dialect: str, sql: str, columns: tuple[str, ...] | None) -> None:
    statement = check(sql, dialect, catalog={"places": PLACES}, limits=ParserLimits())
    assert outputs_of(statement.tree) == columns
    with pytest.raises(UnsupportedFeature):
        statement.sql(DUCKDB_SQL)


@pytest.mark.parametrize(
    ("call", "time"),
    [
        ("date_format(current_timestamp(), 'u')", "CURRENT_TIMESTAMP()"),
        ("from_unixtime(86400, 'u')", "FROM_UNIXTIME(86400)"),
    ],
)
def test_the_day_of_the_week_by_a_pattern(call: str, time: str) -> None:
    statement = check(f"SELECT {call} AS d", "hive", catalog={}, limits=ParserLimits())
    assert statement.sql(SPARK_SQL) == f"SELECT CAST((WEEKDAY(TO_DATE({time})) + 1) AS STRING) AS `d`"


def test_spark_itself_has_no_such_pattern() -> None:
    statement = check("SELECT date_format(current_timestamp(), 'u') AS d", "spark", catalog={}, limits=ParserLimits())
    assert statement.sql(SPARK_SQL) == "SELECT DATE_FORMAT(CURRENT_TIMESTAMP(), 'u') AS `d`"
