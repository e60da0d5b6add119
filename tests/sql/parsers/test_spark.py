"""Spark's grammar where the library's differs; Spark answers our text as it answers the client's."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from engines.errors import EngineError, UnsupportedFeature
from engines.protocol import Lease
from engines.spark.engine import SparkConnectEngine
from sql.errors import SqlError
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from tests.writers import DUCKDB_SQL, SPARK_SQL

ROWS = "VALUES (1, 2), (2, 4), (3, 6) t(x, y)"
ANSWERED = (
    "SELECT DATE '2020-01-01' :: STRING, -1 :: STRING, TIMESTAMP '2020-01-01 10:00:00' :: DATE",
    "SELECT 20 >>> 1, 20 >> 1, 1 << 2 + 1, 6 & 3 | 8 ^ 1",
    "SELECT X'1f', X\"1F\", X '2F', 'a' 'b' \"c\"",
    "SELECT X'', array(X'', X'1f') = array(X''), x IS NOT NULL, NOT x IS NULL FROM VALUES (1) t(x)",
    "SELECT typeof(st_geogfromwkb(X'0101000000000000000000f03f0000000000000040')::GEOGRAPHY(ANY))",
    "SELECT 'x' 'y', 'date' '2020-01-01', 'timestamp' 'x', \"X\" '1F'",
    "SELECT + 1, + '1', - 5, -(-5), -2147483648",
    "SELECT all, distinct FROM VALUES (1, 2) t(all, distinct)",
    "SELECT all FROM VALUES (1) t(all)",
    "SELECT ALL x FROM VALUES (1), (1) t(x)",
    "SELECT current_date AS r FROM VALUES (1) t(current_date)",
    "SELECT current_user AS r FROM VALUES ('me') t(current_user)",
    "SELECT * FROM VALUES 1, 2, 3 AS t(a)",
    "SELECT INTERVAL 1 DAY 2 HOURS, INTERVAL '1-2' YEAR TO MONTH, INTERVAL '1 day -2 hours', INTERVAL -3 MONTH",
    "SELECT DATE '2020-01-31' + INTERVAL 1 MONTH + INTERVAL 1 DAY",
    "SELECT substr('abc', 2), substring('abc', 2, 1), substring('abc' FROM 2)",
    "SELECT position('b' IN 'abc'), position('b', 'abc')",
    "SELECT trim('x' FROM 'xax'), trim('xax'), overlay('abc' PLACING 'z' FROM 2), overlay('abc', 'z', 2)",
    f"FROM {ROWS} |> ORDER BY x |> LIMIT 2 |> WHERE x > 1",
    f"SELECT DISTINCT y > 2 AS large FROM {ROWS} |> AGGREGATE count(*) AS c",
    f"SELECT x FROM {ROWS} |> EXTEND x + 1 AS z |> SET x = z * 2 |> DROP z",
    "SELECT 3 AS x, 4 AS y |> AGGREGATE GROUP BY 1, 2",
    f"SELECT * FROM {ROWS} |> AGGREGATE sum(y) AS s GROUP BY x > 1 AS large |> SELECT s |> ORDER BY s DESC |> LIMIT 1",
    f"SELECT x FROM {ROWS} |> AS u |> JOIN (SELECT 2 AS k) v ON u.x = v.k |> SELECT u.x, v.k",
    "SELECT 1 AS x |> UNION ALL VALUES (2), (3) |> WHERE x > 1 |> ORDER BY x",
    f"FROM {ROWS} |> WHERE t.x > 1 |> SELECT t.y",
    f"(SELECT x FROM {ROWS} ORDER BY x LIMIT 2) |> AGGREGATE max(x)",
    "VALUES (0), (1) t(a) |> SELECT a * 2 AS r",
    "SELECT t.t.a FROM (SELECT 1 AS a, named_struct('a', 2) AS t) t",
    "SELECT a.b.c FROM (SELECT named_struct('b', named_struct('c', 9)) AS a) f CROSS JOIN (SELECT 5 AS c) b",
    "SELECT named_struct('a', named_struct('b', 1)) AS c FROM VALUES ('a') t(c) GROUP BY c HAVING c.a.b > 0",
    "SELECT x1 FROM VALUES (1), (2) a(x1) LEFT SEMI JOIN VALUES (1) b(y1) ON x1 = y1",
    "SELECT x1 FROM VALUES (1), (2) a(x1) LEFT ANTI JOIN VALUES (1) b(y1) ON x1 = y1",
    "SELECT k, j FROM VALUES (1), (2) a(k) CROSS JOIN VALUES (1), (3) b(j) ON k = j",
    "SELECT struct(NULL, 'a'), array(1, NULL)",
    "SELECT col1.field, field FROM VALUES (named_struct('field', 1))",
    "SELECT grouping__id FROM VALUES (1) t(x) GROUP BY CUBE(x) ORDER BY grouping__id",
    "SELECT extract(month FROM DATE '2020-05-01'), EXTRACT(YEAR FROM DATE '2020-05-01')",
    "SELECT d.* FROM ((SELECT 1 AS x, 2 AS y) t JOIN (SELECT 1 AS x, 5 AS z) u ON t.x = u.x) AS d(a, b, c, e)",
    "SELECT x, d.z FROM ((SELECT 1 AS x, 2 AS y) t JOIN (SELECT 1 AS x, 5 AS z) u USING (x)) d WHERE d.y > 1",
    "SELECT * FROM ((SELECT 1 AS x) s JOIN (SELECT 1 AS y) u ON x = y) d CROSS JOIN ((SELECT 7 AS z) v) w",
    "WITH RECURSIVE r(n) MAX RECURSION LEVEL 150 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 120) "
    "SELECT max(n) FROM r",
    "WITH RECURSIVE max MAX RECURSION LEVEL 3 (SELECT 1 AS recursion) SELECT recursion FROM max",
    "SELECT `(x + 1)`, `count(1)` FROM (SELECT x + 1, count(*) FROM VALUES (1) t(x) GROUP BY x)",
)
REFUSED = (
    "SELECT 1 ! IN (1, 2)",
    "SELECT 1 IS ! NULL",
    "SELECT 'a' ! LIKE 'a'",
    "SELECT FALSE IS NOT NULL :: STRING",
    'SELECT "a" AS "b"',
    'SELECT 1 FROM VALUES (1) "t"',
    "SELECT 0x1F",
    "SELECT 20 > > 1",
    "WITH t AS (SELECT 1), t AS (SELECT 2) SELECT * FROM t",
    "SELECT rank() OVER (PARTITION BY x, ORDER BY x) FROM VALUES (1) t(x)",
    "SELECT 1,",
    "SELECT 1 >>>> 2",
    "SELECT 1E309",
    "SELECT x, count(*) FROM VALUES (1) t(x) GROUP BY ROLLUP(x, ())",
    "SELECT 3.4028235E39F",
    "SELECT 1 FROM VALUES ('a') t(x) WHERE x LIKE ANY ()",
    "SELECT INTERVAL 'foo 1 day'",
    "SELECT INTERVAL '2' SECOND + '1'",
    "SELECT + true",
    "SELECT date_format(TIMESTAMP '2018-11-17 13:33:33', 'u')",
    "SELECT x FROM VALUES (1, 2) t(x, y) |> WHERE y > 1",
    "SELECT 1 AS x |> AGGREGATE",
    "WITH t MAX RECURSION LEVEL x AS (SELECT 1) SELECT * FROM t",
    "SELECT s.x FROM ((SELECT 1 AS x) s JOIN (SELECT 1 AS y) u ON x = y) d",
)


def checked(sql: str) -> CheckedStatement:
    return check(sql, "spark", catalog={}, limits=ParserLimits(), facts={"current_user": "ann"})


@pytest.mark.parametrize("sql", ANSWERED)
def test_our_text_is_read_as_the_same_tree_again(sql: str) -> None:
    text = checked(sql).sql(SPARK_SQL)
    assert checked(text).sql(SPARK_SQL) == text


@pytest.mark.parametrize("sql", [sql for sql in ANSWERED if "|>" in sql and "UNION" not in sql])
def test_pipes_are_written_as_they_came_and_run_on_spark(sql: str) -> None:
    statement = checked(sql)
    assert statement.sql(SPARK_SQL).count("|>") == sql.count("|>")
    with pytest.raises(UnsupportedFeature):
        statement.sql(DUCKDB_SQL)


def test_columns_come_before_functions_without_brackets() -> None:
    assert "CURRENT_DATE()" in checked("SELECT current_date").sql(SPARK_SQL)
    assert "CURRENT_DATE()" not in checked("SELECT current_date FROM VALUES (1) t(current_date)").sql(
        "engines.spark_sql.writer"
    )
    own = checked("SELECT current_user AS current_user")
    assert "'ann' AS `current_user`" in own.sql(SPARK_SQL)
    assert own.tells_of_session


def test_a_quoted_word_is_no_function() -> None:
    with pytest.raises(SqlError, match="There is no column nope"):
        checked("SELECT nope FROM VALUES (1) t(x)")


@pytest.mark.parametrize("sql", REFUSED[:11])
def test_what_spark_cannot_read_is_refused_where_it_stands(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        checked(sql)
    assert caught.value.code in ("SYNTAX_ERROR", "UNKNOWN_COLUMN")


def answer(engine: SparkConnectEngine, sql: str) -> pa.Table | EngineError:
    try:
        with engine.execute(sql, query_id=uuid.uuid4().hex, lease=Lease(1 << 30), deadline_s=120.0) as stream:
            return pa.Table.from_batches(stream, stream.schema)
    except EngineError as error:
        return error


@pytest.mark.spark
@pytest.mark.parametrize("sql", ANSWERED)
def test_spark_answers_our_text_as_the_clients(spark_engine: SparkConnectEngine, sql: str) -> None:
    """Names of columns, too. What the session tells is put in beforehand."""
    theirs, ours = answer(spark_engine, sql), answer(spark_engine, checked(sql).sql(SPARK_SQL))
    assert isinstance(theirs, pa.Table)
    assert isinstance(ours, pa.Table)
    assert ours.schema == theirs.schema
    assert ours.to_pydict() == theirs.to_pydict()


@pytest.mark.spark
@pytest.mark.parametrize("sql", REFUSED)
def test_what_spark_refuses_nobody_answers(spark_engine: SparkConnectEngine, sql: str) -> None:
    assert isinstance(answer(spark_engine, sql), EngineError)
    try:
        statement = checked(sql)
    except SqlError:
        return
    assert isinstance(answer(spark_engine, statement.sql(SPARK_SQL)), EngineError)
    with pytest.raises(UnsupportedFeature):
        statement.sql(DUCKDB_SQL)
