"""Statements that blow texts up: refused before anything runs, or stopped by a check when they run on Spark."""

from __future__ import annotations

import pytest

from sql.errors import SqlError, ValueOutOfRange
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.attacks.doors import Door, Refused, Served
from tests.gateway.conftest import BOOKS
from tests.writers import DUCKDB_SQL, SPARK_SQL

TABLE = TableSource("t", "/t", "parquet", (Column("a", "string"), Column("n", "int"), Column("arr", "array<string>")))
BILLION = 1_000_000_000
LAYERS = "||".join(["s"] * 10)
LARGE = "repeat('x', 1000000)"
THRICE = "a || a || a"
LINE = "concat_ws(',', a, a, a, a, a, a, a, a, a, a)"
ESCAPED = (
    f"replace(replace(replace(replace(replace({LINE}, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), "
    "'\"', '&quot;'), '\\'', '&#39;')"
)
KEY = f"SELECT md5(concat_ws('|', {', '.join(['k'] * 20)})) AS k"
KEYS = f"WITH b AS (SELECT a AS k FROM t), c AS ({KEY} FROM b), d AS ({KEY} FROM c), e AS ({KEY} FROM d) {KEY} FROM e"

TOO_LONG = (
    f"SELECT repeat('x', {BILLION})",
    "SELECT repeat('x', 1000 * 1000 * 1000)",
    "SELECT repeat(repeat(a, 1000), 1000) FROM t",
    f"SELECT space({BILLION})",
    f"SELECT lpad(a, {BILLION}, 'x') FROM t",
    f"SELECT rpad('a', {BILLION})",
    f"SELECT format_number(n, {BILLION}) FROM t",
    "SELECT replace(repeat('a', 100000), 'a', repeat('b', 100000))",
    "SELECT regexp_replace(repeat('a', 100000), '', repeat('b', 100000))",
    "SELECT concat(repeat('x', 1000000), repeat('x', 1000000))",
    f"WITH a AS (SELECT repeat('x', 1000) AS s), b AS (SELECT {LAYERS} AS s FROM a), "
    f"c AS (SELECT {LAYERS} AS s FROM b), d AS (SELECT {LAYERS} AS s FROM c), "
    f"e AS (SELECT {LAYERS} AS s FROM d) SELECT length(s) FROM e",
    "SELECT x FROM (SELECT concat(y, y, y, y) AS x FROM (SELECT z || z || z AS y FROM "
    "(SELECT repeat('a', 100000) AS z) AS u) AS v) AS w",
    "SELECT aggregate(split(repeat('a,', 30), ','), 'x', (acc, e) -> concat(acc, acc))",
    "SELECT aggregate(split(repeat('a,', 1000), ','), '', (acc, e) -> acc || repeat('x', 100000))",
    "SELECT transform(split(repeat('a,', 10000), ','), e -> repeat('x', 10000))",
    "SELECT array_join(split(repeat('a,', 100000), ','), repeat('x', 100000))",
    f"SELECT n FROM t WHERE length(repeat('x', {BILLION})) > n",
    f"SELECT n FROM t ORDER BY repeat('x', {BILLION})",
    f"SELECT count(*) FROM t GROUP BY repeat('x', {BILLION})",
    f"SELECT n FROM t AS u JOIN t AS v ON u.a = repeat('x', {BILLION})",
    f"SELECT (SELECT repeat('x', {BILLION}))",
    f"SELECT 1 UNION ALL SELECT repeat('x', {BILLION})",
    f"SELECT sum(length(repeat('x', {BILLION}))) OVER () FROM t",
    f"VALUES (repeat('x', {BILLION}))",
    "SELECT approx_count_distinct(n, 0.0001) FROM t",
    "SELECT approx_percentile(n, 0.5, 2147483647) FROM t",
    "SELECT round(CAST(n AS DOUBLE), 600000000) FROM t",  # Java computes with as many digits
    "SELECT bround(1.5D, length(repeat('x', 1000000)) * 600)",
    "SELECT ceil(CAST(n AS DOUBLE), -600000000) FROM t",
    "SELECT hex(hex(hex(hex(hex(hex(repeat('x', 100000)))))))",
    f"SELECT listagg({LARGE}, ',') FROM t",
    f"SELECT string_agg(a, {LARGE}) FROM t",
    f"SELECT size(collect_list({LARGE})) FROM t",
    f"SELECT array_agg({LARGE}) OVER () FROM t",
    "SELECT replace(replace(replace(repeat('a', 1000), 'a', repeat('b', 100)), 'b', repeat('c', 100)), 'c', 'dd')",
    "SELECT translate(repeat('a', 1000000), 'a', '\U0001f600')",
    "SELECT regexp_replace(repeat('a', 1000000), '(.*)', '$1$1$1$1')",
    f"SELECT 1 AS a UNION ALL SELECT 2 ORDER BY repeat('x', {BILLION})",
    f"SELECT repeat('x', 1000000) AS a FROM t ORDER BY {THRICE}",
    # What a subquery made, however it comes by its name
    f"SELECT u.s || u.s || u.s FROM (SELECT {LARGE} AS s) AS u, (SELECT 'a' AS s) AS v",
    f"SELECT b || b || b FROM (SELECT 1 AS a, 1 AS a, 'x' AS b UNION ALL SELECT 1, 1, {LARGE}) AS u",
    f"SELECT r || r || r FROM (SELECT 1 AS a, 1 AS a, {LARGE} AS b) AS u(p, q, r)",
    f"SELECT r || r || r FROM (SELECT *, {LARGE} FROM t) AS u(p, q, o, r)",
    f"SELECT concat(s.f, s.f, s.f) FROM (SELECT named_struct('f', {LARGE}) AS s) AS u",
    f"SELECT col1 || col1 || col1 FROM (VALUES ({LARGE}))",
    f"WITH v(c) AS (VALUES ({LARGE})) SELECT c || c || c FROM v",
    f"SELECT (SELECT concat(u.s, u.s, u.s)) FROM (SELECT {LARGE} AS s) AS u",
    f"SELECT col || col || col FROM t LATERAL VIEW explode(array({LARGE})) x",
    "WITH RECURSIVE r AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM r) SELECT s FROM r",
    "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT concat(s, repeat('x', 100000)) FROM r) SELECT s FROM r",
    "WITH RECURSIVE r(s) MAX RECURSION LEVEL 100000 AS (SELECT 'x' UNION ALL SELECT s || repeat('x', 100) FROM r) "
    "SELECT s FROM r",
    "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT r.s || r.s FROM r JOIN t ON t.a = r.s) SELECT s FROM r",
    f"SELECT u.s || u.s FROM (SELECT 'a' AS s) AS v JOIN (SELECT {LARGE} AS s) AS u",
)
SHORT_ENOUGH = (
    "SELECT repeat('x', 1000)",
    "SELECT lpad(a, 20, ' ') || rpad(a, 30, '.') FROM t",
    "SELECT collect_list(named_struct('a', a, 'b', a)), listagg(a, ',') FROM t GROUP BY n",
    "SELECT aggregate(arr, '', (acc, e) -> concat(acc, ',', e)) FROM t",
    "SELECT aggregate(arr, 0, (acc, e) -> acc + length(e), acc -> acc * 10) FROM t",
    "SELECT transform(transform(arr, e -> upper(e)), e -> concat(e, '!')) FROM t",
    "SELECT regexp_replace(a, '[0-9]+', '<number>'), replace(replace(a, 'a', 'bb'), 'c', 'dd') FROM t",
    "SELECT approx_count_distinct(n), approx_count_distinct(n, 0.02), percentile_approx(n, 0.5, 10000) FROM t",
    "SELECT array_join(arr, ', '), format_number(n, 2), space(3) FROM t",
    f"SELECT {ESCAPED} FROM t",
    f"SELECT {ESCAPED.replace('replace', 'regexp_replace')} FROM t",
    "SELECT translate(translate(translate(translate(a, 'äöü', 'aou'), '-', '_'), 'x', 'y'), '.,', '  ') FROM t",
    "SELECT regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace("
    "a, '\\\\s+', ' '), '^ +', ''), ' +$', ''), '[0-9]+', '#'), '#+', '#'), '[.]+', '.'), '--', '-') FROM t",
    "SELECT replace(replace(replace(replace(a, '\\r\\n', '\\n'), 'Street', 'St.'), 'foo', 'foobar'), 'a', 'b') FROM t",
    "SELECT aggregate(arr, '', (acc, e) -> regexp_replace(concat(acc, e), ' +', ' ')) FROM t",
    "SELECT lpad(a, 4000, ' ') || rpad(a, 4000, ' ') || lpad(CAST(n AS STRING), 10, '0') FROM t",
    KEYS,
    "SELECT format_number(n, '#,###,##0.00'), round(n, 2), round(n, -3), ceil(n / 3, 1), floor(n) FROM t",
    "SELECT collect_list(named_struct('n', n, 'x', x)) FROM (SELECT n, collect_list(named_struct('a', a)) AS x "
    "FROM t GROUP BY n) AS u GROUP BY n",
    "WITH RECURSIVE r AS (SELECT 1 AS n, 'x' AS p UNION ALL SELECT r.n + 1, r.p || t.a FROM r JOIN t ON t.n = r.n) "
    "SELECT p FROM r",
    "WITH RECURSIVE way AS (SELECT 'x' AS a, array('x') AS path, 1 AS n UNION ALL SELECT r.a, concat(way.path, "
    "array(r.a)), way.n + 1 FROM t AS r JOIN way ON r.n = way.n) SELECT path FROM way",
    f"SELECT left({LARGE}, 10) || left({LARGE}, 10), length({LARGE}) + length({LARGE})",
    f"SELECT t.a || t.a || t.a || u.n FROM t JOIN (SELECT 1 AS n, {LARGE} AS s) AS u ON u.n = t.n",
)


def _checked(sql: str) -> CheckedStatement:
    return check(sql, "spark", catalog={"t": TABLE}, limits=ParserLimits())


@pytest.mark.parametrize("sql", TOO_LONG)
def test_what_a_statement_builds_by_its_constants_has_an_end(sql: str) -> None:
    with pytest.raises(ValueOutOfRange):
        _checked(sql)


@pytest.mark.parametrize("sql", SHORT_ENOUGH)
def test_ordinary_texts_are_left_alone(sql: str) -> None:
    assert "raise_error" not in _checked(sql).sql(SPARK_SQL).lower()


def test_layers_of_doubling_are_measured_once_each() -> None:
    layers = 60
    sql = "SELECT 1 AS s"
    for _ in range(layers):
        sql = f"SELECT a.s FROM ({sql}) AS a WHERE a.s IS NOT NULL"
    assert _checked(sql).sql(SPARK_SQL)


def test_counts_from_data_are_checked_on_spark_only() -> None:
    statement = _checked("SELECT repeat(a, n) AS x, lpad(a, n + 1, ' ') AS y, lpad(a, 3, ' ') AS z FROM t")
    assert statement.sql(SPARK_SQL).lower().count("raise_error") == 2
    assert "raise_error" not in statement.sql(DUCKDB_SQL).lower()
    with pytest.raises(SqlError):  # it is ours
        _checked("SELECT raise_error('x')")


def test_what_is_repeated_counts_by_its_length_where_data_decides() -> None:
    assert "octet_length" in _checked("SELECT repeat(a, n) FROM t").sql(SPARK_SQL).lower()
    assert "octet_length" in _checked("SELECT repeat(a, 5000) FROM t").sql(SPARK_SQL).lower()
    assert "raise_error" not in _checked("SELECT repeat(a, 50) FROM t").sql(SPARK_SQL).lower()
    assert "10000.0" in _checked(f"SELECT repeat('{'x' * 10_000}', n) FROM t").sql(SPARK_SQL)


@pytest.mark.parametrize("sql", [f"SELECT repeat('x', {BILLION})", f"SELECT md5(lpad('x', {BILLION}, 'y'))"])
def test_each_door_refuses_them(door: Door, duckdb_gateway: Served, sql: str) -> None:
    for engine in ("auto", "duckdb"):
        with pytest.raises(Refused, match="are allowed: build a shorter one") as caught:
            duckdb_gateway.ask(door, sql, engine=engine)
        assert caught.value.code == "VALUE_OUT_OF_RANGE" or caught.value.sqlstate == "22003"


def test_bound_parameters_are_no_way_around(duckdb_gateway: Served) -> None:
    with pytest.raises(Refused, match="are allowed: build a shorter one"):
        duckdb_gateway.ask(Door.FLIGHT, "SELECT repeat('x', ?)", parameters=[BILLION])
    with pytest.raises(Refused, match="are allowed: build a shorter one"):
        duckdb_gateway.ask(Door.FLIGHT, "SELECT replace(repeat('a', 100000), 'a', ?)", parameters=["b" * 10_000])


@pytest.mark.spark
def test_counts_from_data_do_not_end_spark(door: Door, spark_gateway: Served) -> None:
    pid_file = spark_gateway.home / "spark" / "server.pid"
    assert spark_gateway.ask(door, "SELECT count(*) AS n FROM books", engine="spark") == [(BOOKS,)]
    pid = pid_file.read_text()
    for sql in (
        f"SELECT max(length(repeat(category, id * {BILLION // 10}))) AS n FROM books",
        f"SELECT max(length(rpad(category, id * {BILLION // 10}, 'x'))) AS n FROM books",
        "SELECT max(length(repeat(repeat('x', CAST(id + 10000 AS INT)), CAST(id + 10000 AS INT)))) AS n FROM books",
        "SELECT length(repeat(max(category), CAST(count(*) * 100000 AS INT))) AS n FROM books",
    ):
        with pytest.raises(Refused, match="characters at most"):
            spark_gateway.ask(door, sql, engine="spark")
    longest = spark_gateway.ask(
        door, "SELECT max(length(lpad('x', CAST(id AS INT), 'y'))) AS n FROM books", engine="spark"
    )
    assert longest == [(BOOKS,)]
    texts = "SELECT length(repeat(repeat('ab', CAST(count(*) AS INT)), 2)) AS n FROM books"
    assert spark_gateway.ask(door, texts, engine="spark") == [(4 * BOOKS,)]
    priced = "SELECT format_number(max(id), '#,##0.0') AS n FROM books"
    assert spark_gateway.ask(door, priced, engine="spark") == [(f"{BOOKS:,}.0",)]
    by_a_query = "SELECT length(repeat('x', (SELECT CAST(max(id) AS INT) FROM books))) AS n"
    assert spark_gateway.ask(door, by_a_query, engine="spark") == [(BOOKS,)]
    padded = "SELECT length(rpad(category, CAST(count(*) AS INT), 'x')) AS n FROM books GROUP BY category"
    grouped = f"SELECT max(n) AS n FROM ({padded}) AS t"
    assert spark_gateway.ask(door, grouped, engine="spark") == [(BOOKS // 20,)]
    assert pid_file.read_text() == pid
