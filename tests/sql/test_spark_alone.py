"""What runs on Spark alone means there what the client wrote, and names no table that nobody has looked at."""

from __future__ import annotations

from collections import Counter

import pytest

from engines.errors import UnsupportedFeature
from engines.spark.engine import SparkConnectEngine
from sql.errors import NotAllowed, SqlError, UnknownColumn, UnknownTable, ValueOutOfRange
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource, View
from tests.sql.allowlist.test_functions import rows
from tests.writers import DUCKDB_SQL, LIBRARY_SQL, SPARK_SQL

COLUMNS = (Column("a", "int"), Column("s", "string"), Column("l", "array<int>"), Column("v", "variant"))
CATALOG = {name: TableSource(name, f"/{name}", "parquet", COLUMNS) for name in ("t", "u", "other.w")}
LARGE = View("large", "SELECT a AS n, s FROM t WHERE a > 1", "spark", (Column("n", "int"), Column("s", "string")))

SAME = r"""
    SELECT * FROM range(3)
    SELECT r.id + x AS y FROM range(1, 10, 4, 2) AS r JOIN explode(array(1, 2)) AS e(x) ON r.id = x
    SELECT * FROM inline(array(struct(1, 'a'), struct(2, 'b'))) AS i(n, s)
    SELECT * FROM posexplode(map('a', 1)), stack(2, 1, 2, 3), json_tuple('{"a": 1}', 'a', 'b') AS j(x, y)
    SELECT p, k, x::string AS x FROM variant_explode(parse_json('{"a": 1, "b": [2]}')) AS v(p, k, x)
    SELECT n, x FROM VALUES (1, array(1, 2)), (2, array()) AS w(n, l), LATERAL explode(l) AS e(x)
    SELECT n, x FROM VALUES (1, array(1, 2)), (2, array()) AS w(n, l) LEFT JOIN LATERAL explode(l) AS e(x) ON true
    SELECT n, m FROM VALUES (1), (2) AS w(n), LATERAL (SELECT max(x) AS m FROM VALUES (1), (5) AS q(x) WHERE x > n)
    SELECT * FROM (SELECT 1 AS a), LATERAL (SELECT a + 1 AS b), LATERAL (SELECT a * b AS c), (VALUES (7))
    SELECT n, p, x FROM VALUES (1, array(7, 8)), (2, array()) AS w(n, l) LATERAL VIEW OUTER posexplode(l) e AS p, x
    SELECT stack(2, 1, 'a', 2, 'b') AS (n, s)
    SELECT * FROM VALUES (1, 'x', 5), (2, 'x', 9) AS w(k, c, e) PIVOT (sum(e) AS s, max(e) FOR c IN ('x', 'y' AS z))
    SELECT q.* FROM VALUES (1, 'x', 5) AS w(k, c, e) PIVOT (sum(e) FOR (k, c) IN ((1, 'x') AS one, (2, 'y'))) AS q
    SELECT q.* FROM VALUES (1, 2, NULL) AS w(k, a, b) UNPIVOT INCLUDE NULLS (v FOR n IN (a AS `A x`, b)) AS q
    SELECT * FROM VALUES (1, 2, 3, 4) AS w(a, b, c, d) UNPIVOT ((x, y) FOR n IN ((a, b) AS ab, (c, d)))
    SELECT p, q FROM (SELECT 1, 2) AS w(p, q)
    SELECT 'a' COLLATE UTF8_LCASE = 'A' AS e, collation('x' COLLATE system.builtin.UNICODE_CI) AS n
    SELECT CAST('b' AS STRING COLLATE UNICODE_CI) = 'B' AS e
    SELECT CAST(NULL AS STRUCT<a: INT, `b c`: ARRAY<MAP<STRING, DECIMAL(5, 2)>>>) AS s
    SELECT CAST(named_struct('x', '1', 'y', 2.5) AS STRUCT<a INT COMMENT 'it\'s', b: STRING>) AS s
    SELECT CAST('1-2' AS INTERVAL YEAR TO MONTH) AS m, CAST('3' AS INTERVAL DAY) AS d
    SELECT extract(MONTH FROM INTERVAL '3-7' YEAR TO MONTH) m, extract(HOUR FROM INTERVAL '1 5' DAY TO HOUR) AS h
    SELECT v:a.b[1]::int + 1 x, v:['c d']::string y FROM (SELECT parse_json('{"a": {"b": [1, 2]}, "c d": 3}') v)
    SELECT -9 >>> 1 AS a, -9 >> 1 AS b, 1 + 9 >>> 1 AS c, 9 >>> 1 << 2 AS d, 1 | 9 >>> 1 AS e
    WITH w AS (SELECT 1 AS x) TABLE w UNION ALL TABLE w
    SELECT window.end, count(*) n FROM VALUES (TIMESTAMP '2020-01-01') w(at) GROUP BY window(at, '2 hours', '1 hour')
    SELECT session_window.end e FROM VALUES (TIMESTAMP '2020-01-01') w(at) GROUP BY session_window(at, '5 minutes')
    SELECT window FROM VALUES (1) AS w(window) ORDER BY window
    SELECT sum(x) OVER w AS s FROM VALUES (1), (2) AS q(x) WINDOW w AS (ORDER BY x)
    SELECT mask('aB1', lowerChar => 'z') AS m, url_encode('a b') AS u, format_string('%05d|%s', 7, 'x') AS f
    SELECT map_filter(map(1, 2, 3, 1), (k, x) -> x > k) AS m, transform_values(map(1, 2), (k, x) -> k + x) AS t
    SELECT from_json('{"a": 1}', 'a INT, b STRING') AS j, to_json(named_struct('a', 1)) AS k, schema_of_json('[1]') AS s
    SELECT xpath('<a><b>1</b></a>', 'a/b/text()') AS x, from_csv('1,x', 'a INT, b STRING') AS c
    SELECT parse_url('http://a/b?q=1', 'QUERY', 'q') q, timediff(DAY, DATE '2020-01-01', DATE '2020-01-02') h
"""


def checked(sql: str, dialect: str = "spark") -> CheckedStatement:
    return check(sql, dialect, catalog=CATALOG, limits=ParserLimits(), views={"large": LARGE})


@pytest.mark.spark
@pytest.mark.parametrize("sql", [line.strip() for line in SAME.strip().splitlines()])
def test_spark_gives_the_same_for_our_text_as_for_the_clients(sql: str, spark_engine: SparkConnectEngine) -> None:
    theirs, ours = rows(spark_engine, sql), rows(spark_engine, checked(sql).sql(SPARK_SQL))
    assert ours.schema == theirs.schema
    assert Counter(map(str, ours.to_pylist())) == Counter(map(str, theirs.to_pylist()))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT mask(s) FROM t",
        "SELECT parse_url(s, 'HOST') FROM t",
        "SELECT * FROM range(3)",
        "SELECT * FROM t PIVOT (max(a) FOR s IN ('x'))",
        "SELECT s COLLATE UNICODE FROM t",
        "SELECT CAST(NULL AS STRUCT<a: INT>) FROM t",
    ],
)
def test_no_other_engine_gets_what_nobody_has_looked_at_there(sql: str) -> None:
    for writer in (LIBRARY_SQL, DUCKDB_SQL):
        with pytest.raises(UnsupportedFeature):
            checked(sql).sql(writer)


def test_the_name_of_a_lateral_view_keeps_its_quotes() -> None:
    sql = "SELECT x FROM t LATERAL VIEW explode(l) `a b; drop``c` AS x"
    assert "LATERAL VIEW EXPLODE(`l`) `a b; drop``c` AS `x`" in checked(sql).sql(SPARK_SQL)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT p FROM t AS x(p, q, r, v)", {"t"}),
        ("SELECT x.p, n FROM t AS x(p, q, r, v) JOIN large AS y(n, m) ON x.p = y.n", {"t"}),
        ("SELECT n FROM large PIVOT (max(s) FOR n IN (1))", {"t"}),
        ("SELECT e.x FROM large, LATERAL (SELECT n + u.a AS x FROM u) e", {"t", "u"}),
        ("SELECT * FROM explode(array((SELECT max(a) FROM u))) AS e(x)", {"u"}),
        ("SELECT * FROM t LATERAL VIEW explode(array((SELECT max(a) FROM other.w))) e AS x", {"t", "other.w"}),
        ("SELECT * FROM t UNPIVOT (x FOR n IN (a))", {"t"}),
        ("SELECT s COLLATE UNICODE FROM (TABLE other.w)", {"other.w"}),
        ("SELECT v:a FROM t WHERE s IN (SELECT s COLLATE UTF8_LCASE FROM u)", {"t", "u"}),
    ],
)
def test_tables_are_found_in_every_construct(sql: str, tables: set[str]) -> None:
    assert {table.name for table in checked(sql).tables} == tables


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT a FROM t AS x(p, q, r, v)", UnknownColumn),
        ("SELECT x.a FROM t AS x(p, q, r, v)", UnknownColumn),
        ("SELECT * FROM t, LATERAL (SELECT t.nosuch FROM u) e", UnknownColumn),
        ("SELECT * FROM t, LATERAL (SELECT * FROM secret) e", UnknownTable),
        ("SELECT * FROM explode(array((SELECT max(a) FROM secret)))", UnknownTable),
        ("SELECT * FROM t LATERAL VIEW explode(array((SELECT max(a) FROM secret))) e AS x", UnknownTable),
        ("SELECT * FROM secret PIVOT (max(a) FOR s IN (1))", UnknownTable),
        ("TABLE secret", UnknownTable),
        ("SELECT * FROM u UNION ALL TABLE secret", UnknownTable),
        ("SELECT a FROM t ORDER BY (SELECT max(s) COLLATE UNICODE FROM secret)", UnknownTable),
        ("SELECT * FROM t PIVOT (max(a) FOR s IN (SELECT s FROM u))", NotAllowed),
        ("SELECT * FROM t PIVOT (max((SELECT max(a) FROM secret)) FOR s IN (1))", NotAllowed),
        ("SELECT * FROM TABLE(t)", NotAllowed),
        ("SELECT * FROM explode(TABLE(secret))", NotAllowed),
        ("SELECT * FROM explode(collection => TABLE(secret))", NotAllowed),
        ("SELECT * FROM explode(TABLE secret)", UnknownTable),
        ("SELECT * FROM t, LATERAL inline(TABLE(secret))", NotAllowed),
        ("SELECT * FROM IDENTIFIER('secret')", UnknownTable),
        ("SELECT IDENTIFIER(a) FROM t", NotAllowed),
        ("SELECT * FROM read_files('/etc/passwd')", NotAllowed),
        ("SELECT * FROM parquet.`/etc/passwd` AS x(a)", NotAllowed),
        ("TABLE parquet.`/etc/passwd`", NotAllowed),
        ("SELECT * FROM java_method('java.lang.System', 'getenv')", NotAllowed),
        ("SELECT * FROM t AS x(a INT)", NotAllowed),
        ("SELECT CAST(a AS STRUCT<x: hllsketch>) FROM t", SqlError),
        (f"SELECT CAST(NULL AS {'ARRAY<' * 60}INT{'>' * 60})", NotAllowed),
        ("EXECUTE IMMEDIATE 'SELECT 1'", NotAllowed),
        ("DECLARE VARIABLE x INT", NotAllowed),
        ("SELECT * FROM t PIVOT (max(a) FOR s IN ('x')) AS q(m, n)", NotAllowed),
        (f"SELECT * FROM t PIVOT (max(a), min(a) FOR s IN ({', '.join(map(str, range(501)))}))", ValueOutOfRange),
        (f"SELECT * FROM t UNPIVOT (x FOR n IN ({', '.join(['a'] * 1001)}))", ValueOutOfRange),
    ],
)
def test_what_is_not_there_or_not_looked_at_is_refused(sql: str, error: type[SqlError]) -> None:
    with pytest.raises(error):
        checked(sql)
