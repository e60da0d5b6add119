"""One SQL: what DuckDB is given so that it answers as Spark does, pair by pair, and what is left to Spark."""

from __future__ import annotations

import pytest

from engines.errors import NoEquivalent
from sql.errors import NotAllowed
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.writers import DUCKDB_SQL, SPARK_SQL

COLUMNS = (
    "id bigint, tiny tinyint, n int, x double, f float, m decimal(7;2), s string, flag boolean, d date, t timestamp"
)
BOOKS = TableSource(
    "books",
    "/data/books",
    "parquet",
    tuple(Column(name, kind.replace(";", ",")) for name, kind in map(str.split, COLUMNS.split(", "))),
)
BELOW = 'CASE WHEN "id" = -1 THEN 1 ELSE "id" END'
SPARK_ONLY = "CAST('meant otherwise by Spark: {}' AS {})"


def checked(sql: str, dialect: str = "spark") -> CheckedStatement:
    return check(sql, dialect, catalog={"books": BOOKS}, limits=ParserLimits())


def written(expression: str, dialect: str = "spark") -> str:
    """Return an expression as DuckDB gets it."""
    text = checked(f"SELECT {expression} AS c FROM books", dialect).sql(DUCKDB_SQL)
    return text.removeprefix("SELECT ").removesuffix(' AS "c" FROM "books" AS "books"')


def without_zero(divisor: str, quotient: str, kind: str) -> str:
    return f"CASE WHEN {divisor} = 0 THEN {SPARK_ONLY.format('division by zero', kind)} ELSE {quotient} END"


@pytest.mark.parametrize(
    ("spark", "duckdb"),
    [
        ("n + 1", '("n" + 1)'),
        ("tiny + n", '(CAST("tiny" AS INTEGER) + "n")'),
        ("n / 2", '(CAST("n" AS DOUBLE) / CAST(2 AS DOUBLE))'),
        ("n DIV id", without_zero('"id"', 'CAST("n" AS BIGINT) // "id"', "BIGINT")),
        ("n % id", without_zero('"id"', f'CAST("n" AS BIGINT) % {BELOW}', "BIGINT")),
        ("n % 3", '("n" % 3)'),
        ("n % -1", '("n" % 1)'),
        ("x / n", without_zero('"n"', '"x" / CAST("n" AS DOUBLE)', "DOUBLE")),
        ("m + 0.5", '("m" + 0.5)'),
        ("m * m", 'CAST(("m" * "m") AS DECIMAL(15, 4))'),
        ("m * 2", 'CAST(("m" * CAST(2 AS DECIMAL(1, 0))) AS DECIMAL(9, 2))'),
        ("m * 2L", 'CAST(("m" * CAST(CAST(2 AS BIGINT) AS DECIMAL(1, 0))) AS DECIMAL(9, 2))'),
        ("-m", '(-"m")'),
        ("f + n", '(CAST("f" AS DOUBLE) + CAST("n" AS DOUBLE))'),
        ("m * id", 'CAST(("m" * CAST("id" AS DECIMAL(20, 0))) AS DECIMAL(28, 2))'),
        ("m * n", 'CAST(("m" * CAST("n" AS DECIMAL(10, 0))) AS DECIMAL(18, 2))'),
        ("m * (m * m)", 'CAST((CAST("m" AS DECIMAL(19, 2)) * ("m" * "m")) AS DECIMAL(23, 6))'),
        ("4 | n & 3 ^ 1", '(4 | xor(("n" & 3), 1))'),
        ("m * int(2)", 'CAST(("m" * CAST(CAST(2 AS INTEGER) AS DECIMAL(10, 0))) AS DECIMAL(18, 2))'),
        ("m * -(2)", 'CAST(("m" * CAST((-CAST(2 AS INTEGER)) AS DECIMAL(10, 0))) AS DECIMAL(18, 2))'),
        ("-128Y", "CAST(-128 AS TINYINT)"),
    ],
)
def test_arithmetic(spark: str, duckdb: str) -> None:
    assert written(spark) == duckdb


def test_a_quotient_of_decimals_is_taken_of_whole_numbers() -> None:
    above = '(CAST("m" * CAST(100 AS DECIMAL(3, 0)) AS HUGEINT) * CAST(10000 AS HUGEINT))'  # 6 digits, m has 2
    below = "CAST(CAST(3 AS DECIMAL(1, 0)) AS HUGEINT)"
    half = f"(abs({below}) // 2)"
    whole = f"(({above} + CASE WHEN {above} < 0 THEN -{half} ELSE {half} END) // {below})"
    point = "CAST(0.000001 AS DECIMAL(6, 6))"
    assert written("m / 3") == f"(CAST(CAST({whole} AS DECIMAL(38, 0)) * {point} AS DECIMAL(11, 6)))"


@pytest.mark.parametrize(
    ("spark", "duckdb"),
    [
        ("n = id", '("n" = "id")'),
        ("m > 3", '("m" > 3)'),
        ("x < m", '("x" < "m")'),
        ("f = 0.1", '(CAST("f" AS DOUBLE) = CAST(0.1 AS DOUBLE))'),
        ("n <=> id", '("n" IS NOT DISTINCT FROM "id")'),
        ("d >= '2020-1-31'", "(\"d\" >= DATE '2020-01-31')"),
        ("d < t", '(CAST("d" AS TIMESTAMPTZ) < "t")'),
        ("n = '3'", "(CAST(\"n\" AS BIGINT) = CAST('3' AS BIGINT))"),
        ("n BETWEEN 1 AND 3", '("n" BETWEEN 1 AND 3)'),
        ("n IN (1, 2)", '("n" IN (1, 2))'),
        ("s NOT LIKE 'a\\\\_b%'", "(NOT (\"s\" LIKE 'a\\_b%' ESCAPE '\\'))"),
        ("s LIKE 'a%'", "(\"s\" LIKE 'a%')"),
        ("s NOT LIKE ANY ('a', 'b')", "((NOT (\"s\" LIKE 'a')) OR (NOT (\"s\" LIKE 'b')))"),
        ("s NOT LIKE ALL ('a', 'b')", "((NOT (\"s\" LIKE 'a')) AND (NOT (\"s\" LIKE 'b')))"),
        ("s RLIKE '^[a-c]+x'", "regexp_matches(\"s\", '^[a-c]+x')"),
    ],
)
def test_comparisons(spark: str, duckdb: str) -> None:
    assert written(spark) == duckdb


@pytest.mark.parametrize(
    ("spark", "duckdb"),
    [
        ("substring(s, 0, 2)", 'substring("s", 1, 2)'),
        ("concat(s, n)", '("s" || CAST("n" AS VARCHAR))'),
        ("length(s)", 'CAST(length("s") AS INTEGER)'),
        ("left(s, n)", 'left("s", CASE WHEN "n" < 0 THEN 0 ELSE "n" END)'),
        ("trim(s)", "trim(\"s\", ' ')"),
        ("instr(s, 'a')", "CAST(instr(\"s\", 'a') AS INTEGER)"),
        ("regexp_replace(s, '(a)b', '<$1>')", "regexp_replace(\"s\", '(a)b', '<\\1>', 'g')"),
        ("d + INTERVAL 1 MONTH", 'CAST("d" + to_months(1) AS DATE)'),
        ("date_sub(d, 3)", '("d" - 3)'),
        ("datediff(d, d)", 'CAST("d" - "d" AS INTEGER)'),
        ("dayofweek(d)", 'CAST(dayofweek("d") + 1 AS INTEGER)'),
        ("weekday(d)", 'CAST(isodow("d") - 1 AS INTEGER)'),
        ("trunc(d, 'MM')", "CAST(date_trunc('month', \"d\") AS DATE)"),
        ("ln(x)", 'CASE WHEN "x" > 0 THEN ln("x") END'),
        ("coalesce(n, id)", 'coalesce(CAST("n" AS BIGINT), "id")'),
        ("ceil(m)", 'CAST(ceil("m") AS DECIMAL(6, 0))'),
        ("cast(m AS int)", 'CAST(trunc("m") AS INTEGER)'),
        ("cast('1999-1-2' AS date)", "DATE '1999-01-02'"),
        ("count_if(flag)", 'count(CASE WHEN "flag" THEN 1 END)'),
        ("sum(n)", 'CAST(sum("n") AS BIGINT)'),
        ("sum(n) FILTER (WHERE flag)", 'CAST(sum("n") FILTER (WHERE "flag") AS BIGINT)'),
        ("sum(n + 1) FILTER (WHERE flag)", 'CAST(sum(CASE WHEN "flag" THEN ("n" + 1) END) AS BIGINT)'),
        ("count(*) FILTER (WHERE flag) OVER ()", 'count(*) FILTER (WHERE "flag") OVER ()'),
        ("sum(m)", 'CAST(sum("m") AS DECIMAL(17, 2))'),
        ("row_number() OVER (ORDER BY n)", 'CAST(row_number() OVER (ORDER BY "n" NULLS FIRST) AS INTEGER)'),
        (
            "count(DISTINCT n, s)",
            'count(DISTINCT CASE WHEN "n" IS NOT NULL AND "s" IS NOT NULL THEN ("n", "s") END)',
        ),
    ],
)
def test_functions(spark: str, duckdb: str) -> None:
    assert written(spark) == duckdb


@pytest.mark.parametrize(
    ("spark", "duckdb"),
    [
        (
            "SELECT ID FROM books ORDER BY id DESC",
            'SELECT "ID" AS "ID" FROM "books" AS "books" ORDER BY 1 DESC NULLS LAST',
        ),
        (
            "SELECT n AS k, count(*) AS c FROM books GROUP BY k HAVING c > 1",
            'SELECT "n" AS "k", count(*) AS "c" FROM "books" AS "books" GROUP BY "n" HAVING (count(*) > 1)',
        ),
        (
            "SELECT n + 1 AS a, a * 2 AS b FROM books",
            'SELECT ("n" + 1) AS "a", (("n" + 1) * 2) AS "b" FROM "books" AS "books"',
        ),
        (
            "SELECT s, n, grouping_id() AS g FROM books GROUP BY s, n WITH ROLLUP",
            'SELECT "s", "n", CAST(grouping_id("s", "n") AS BIGINT) AS "g" FROM "books" AS "books" '
            'GROUP BY ROLLUP ("s", "n") HAVING count(*) > 0',
        ),
        (
            "SELECT n FROM books UNION SELECT id FROM books",
            '(SELECT CAST(c0 AS BIGINT) AS "n" FROM (SELECT "n" FROM "books" AS "books") AS side(c0)) UNION '
            '(SELECT "id" FROM "books" AS "books")',
        ),
        (
            "SELECT * FROM VALUES (1, 'a') AS v",
            "SELECT * FROM (SELECT * FROM (VALUES (CAST(1 AS INTEGER), CAST('a' AS VARCHAR))) "
            'AS inline("col1", "col2")) AS "v"',
        ),
        (
            "SELECT twice FROM (SELECT m * 2 AS twice FROM books) AS b",
            'SELECT CAST("twice" AS DECIMAL(9, 2)) AS "twice" FROM '
            '(SELECT ("m" * CAST(2 AS DECIMAL(1, 0))) AS "twice" FROM "books" AS "books") AS "b"',
        ),
        (
            "SELECT n FROM books WHERE EXISTS (SELECT y AS n FROM (VALUES (1)) AS v(y) WHERE y = n)",
            'SELECT "n" FROM "books" AS "books" WHERE EXISTS (SELECT "y" AS "n" FROM '
            '(SELECT * FROM (VALUES (CAST(1 AS INTEGER))) AS inline("col1")) AS "v"("y") WHERE ("y" = "books"."n"))',
        ),
        (
            "SELECT b.* FROM (SELECT n, id FROM books) a JOIN (SELECT x, s, id FROM books) b USING (id) "
            "JOIN (SELECT s FROM books) c USING (s)",
            'SELECT "b"."id" AS "id", "b"."s" AS "s", "b"."x" AS "x" FROM '
            '(SELECT "n", "id" FROM "books" AS "books") AS "a" '
            'JOIN (SELECT "x", "s", "id" FROM "books" AS "books") AS "b" USING ("id") '
            'JOIN (SELECT "s" FROM "books" AS "books") AS "c" USING ("s")',
        ),
        (
            "SELECT * FROM books b LEFT SEMI JOIN books c ON b.id = c.id",
            'SELECT * FROM "books" AS "b" SEMI JOIN "books" AS "c" ON ("b"."id" = "c"."id")',
        ),
    ],
)
def test_queries(spark: str, duckdb: str) -> None:
    assert checked(spark).sql(DUCKDB_SQL) == duckdb


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT initcap(s) FROM books", "the function initcap."),
        ("SELECT approx_count_distinct(n) FROM books", "the function approx_count_distinct."),
        ("SELECT collect_list(n) FROM books", "the function collect_list."),
        ("SELECT s RLIKE '(?=a)b' FROM books", "the regular expression '(?=a)b'."),
        ("SELECT s LIKE 'a\\\\b' FROM books", "a pattern of LIKE in which the escape stands before something else."),
        ("SELECT d - d FROM books", "arithmetic with date and date."),
        ("SELECT date_format(d, 'QQQ') FROM books", "the pattern QQQ."),
        ("SELECT upper(s, 1) FROM books", "upper with 2 arguments."),
        ("SELECT length() FROM books", "length with 0 arguments."),
        ("SELECT lag() OVER (ORDER BY n) FROM books", "lag with 0 arguments."),
        ("SELECT count() FROM books", "count with 0 arguments."),
        ("SELECT first(n + 1) FILTER (WHERE flag) FROM books", "FILTER of first over what is computed."),
        ("SELECT 1 AS k, count(*) FROM books GROUP BY CUBE (k, n)", "a literal among the keys of several groups."),
        ("SELECT s RLIKE '(?:a{500}){3}' FROM books", "the regular expression '(?:a{500}){3}', for what it repeats."),
        ("SELECT s RLIKE '(a|b?)+' FROM books", "the regular expression '(a|b?)+', for what it repeats."),
        ("SELECT -(-2147483648) FROM books", "the least number of a type without its sign."),
        ("SELECT try_cast('0000-01-01' AS date) FROM books", "'0000-01-01' as a date."),
        ("SELECT timestamp '2020-01-01 24:00:00' > t FROM books", "'2020-01-01 24:00:00' as a timestamp."),
        ("SELECT to_date(s, 'yyyy-MM-dd') FROM books", "TO_DATE of a text with a format."),
        ("SELECT k FROM (SELECT n AS k, id AS k FROM books) q", "the name k, which more than one column has."),
        ("SELECT n FROM books LATERAL VIEW explode(array(1)) e AS c", "LATERALS of SELECT."),
        ("SELECT n FROM books TABLESAMPLE (10 PERCENT)", "SAMPLE of A table."),
        ("SELECT d > 'soon' FROM books", "'soon' as a date."),
        (
            "SELECT sum(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM books",
            "a frame over a range of values.",
        ),
    ],
)
def test_what_is_not_portable_is_named(sql: str, what: str) -> None:
    with pytest.raises(NoEquivalent) as caught:
        checked(sql).sql(DUCKDB_SQL)
    assert caught.value.message == what


@pytest.mark.parametrize(
    ("dialect", "expression", "spark"),
    [
        ("impala", "CAST(s AS INT)", "TRY_CAST(`s` AS INT)"),
        ("impala", "isnull(n, 5)", "IFNULL(`n`, 5)"),
        ("impala", "isnull(n)", "ISNULL(`n`)"),
        ("hive", "nvl(n, 0)", "NVL(`n`, 0)"),
        ("spark", "s || n + 1", "(`s` || `n`) + 1"),
        ("spark", "1 | n & 3", "1 | (`n` & 3)"),
        ("spark", "log10(x)", "LOG10(`x`)"),
        ("spark", "2L * m", "2L * `m`"),
        ("spark", "'it''s'", "'it\\'s'"),
        ("spark", "r'\\d'", "'\\\\d'"),
        ("spark", "datediff(DAY, d, d)", "DATEDIFF(DAY, `d`, `d`)"),
    ],
)
def test_other_dialects_become_sparks(dialect: str, expression: str, spark: str) -> None:
    text = checked(f"SELECT {expression} AS c FROM books", dialect).sql(SPARK_SQL)
    assert text == f"SELECT {spark} AS `c` FROM `books` AS `books`"


@pytest.mark.parametrize(
    ("dialect", "expression", "what"),
    [
        ("hive", "n | 2 & 3", "Put brackets"),
        ("impala", "n & 2 + 3", "Put brackets"),
    ],
)
def test_what_spark_means_otherwise_is_refused(dialect: str, expression: str, what: str) -> None:
    with pytest.raises(NotAllowed, match=what):
        checked(f"SELECT {expression} AS c FROM books", dialect)


def test_brackets_are_enough_where_dialects_rank_operators_differently() -> None:
    assert checked("SELECT n | (2 & 3) AS c FROM books", "impala").sql(SPARK_SQL).startswith("SELECT `n` | (2 & 3) AS")


@pytest.mark.parametrize(("dialect", "first"), [("spark", "FIRST"), ("hive", "FIRST"), ("impala", "LAST")])
def test_null_goes_where_the_statements_dialect_puts_it(dialect: str, first: str) -> None:
    text = checked("SELECT n FROM books ORDER BY n", dialect).sql(DUCKDB_SQL)
    assert text.endswith(f"ORDER BY 1 NULLS {first}")


def test_what_is_nested_deep_does_not_grow_without_end() -> None:
    nested = "upper(substring(" * 30 + "s" + ", n, n))" * 30
    with pytest.raises(NoEquivalent, match="too long"):
        checked(f"SELECT {nested} FROM books").sql(DUCKDB_SQL)
    members = ", ".join(map(str, range(20_000)))
    assert members in checked(f"SELECT n IN ({members}) FROM books").sql(DUCKDB_SQL)


def test_hints_go_where_they_mean_something() -> None:
    statement = checked("SELECT /*+ ENGINE(Spark), BROADCAST(b), STRAIGHT(b) */ b.n FROM books b")
    assert statement.engine == "spark"
    assert statement.sql(SPARK_SQL) == "SELECT /*+ BROADCAST(b) */ `b`.`n` FROM `books` AS `b`"
    assert statement.sql(DUCKDB_SQL) == 'SELECT "b"."n" FROM "books" AS "b"'
    assert statement.fingerprint == checked("SELECT b.n FROM books b").fingerprint
