"""A statement's answer is the same on a real DuckDB and on a real Spark, or it is left to Spark and says why."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.both_engines import BothEngines, Outcome
from benchmarks.generated_queries import queries, write_tables
from engines.duckdb.engine import DuckDBEngine
from engines.spark.engine import SparkConnectEngine
from metastore.discovery.inspection import inspect
from sql.tables import TableSource

pytestmark = pytest.mark.spark

SEED, QUERIES = 11, 150
LEAST_EQUAL = 0.7  # of the generated queries; each of the others has to say why Spark runs it

CORNERS = """
    round(2.5), round(-2.5), round(0.285D, 2), round(1.005D, 2), round(25, -1), bround(2.5, 0), bround(-0.125, 2)
    -7 DIV 2, -7 % 2, pmod(-7, 2), -7.5 % 2, pmod(-7.5, 2), 7 / 2, 1.5 / 7, 2 / 3.0, 10 / 3.00
    cast(10 AS decimal(7, 2)) / cast(3 AS decimal(7, 2)), cast(-1 AS decimal(38, 10)) / 3, 1.10 * 2L, 3BD + 1
    cast(1.0000000001 AS decimal(38, 10)) = cast(1 AS decimal(38, 0)), 0.1F = 0.1, 1 = 1.0, '12' = 12
    coalesce(1.5F, 2), coalesce(1, 1.50), if(true, 1, 1.5), nvl('1', '2'), greatest(1, NULL, 3), least(NULL, 2)
    ln(0), ln(-1), sqrt(-1D), log10(1000), log2(8), exp(1000), pow(10, 400), atan2(-0D, -1D), sign(-3), cbrt(27)
    double('NaN') = double('NaN'), double('NaN') > 1e308, isnan(NULL), nullif(1, 1.0)
    nvl2(NULL, 1, 2), decode(NULL, NULL, 1, 2)
    substring('abc', -5, 3), substring('abc', 0, 2), substring('abc', 2)
    substring('abc', -2), substring('abc', 2, -1)
    instr('abc', ''), locate('b', 'abcb', 3), locate('b', 'abc', 3), lpad('abc', 2, 'x')
    lpad('abc', -1, 'x'), rpad('a', 3)
    left('abc', -1), right('abc', 5), repeat('a', -1), space(NULL), concat('a', NULL), concat_ws(',', 'a', NULL, 'b')
    concat('a', 1.50, DATE '2020-01-01', true), 'a' || 1, trim('  a '), trim(LEADING 'x' FROM 'xxa'), ltrim('\\ta')
    upper('Zoë'), lower('ÀÉ'), length('añ☃'), octet_length('añ☃'), ascii('☃'), ascii(''), translate('abc', 'ab', 'x')
    'a_c' LIKE 'a\\\\_c', 'abc' LIKE 'a\\\\_c', 'a%' LIKE '%\\\\%', 'ABC' ILIKE 'a_c'
    'a\\n' RLIKE 'a$', 'a\\rb' RLIKE 'a.b'
    regexp_replace('aXbX', 'X', '[$0]'), regexp_extract('foo', '(o)(x)?', 2), regexp_extract('foo', 'z', 0)
    split_part('a,b,c', ',', -1), substring_index('a.b.c', '.', 1), replace('abc', '', 'x'), md5('a')
    sha2('a', 256), hex(-1)
    cast(' 5 ' AS int), cast('+5' AS int), cast('.5' AS double), cast(2.5 AS int)
    cast(-1.9D AS int), cast('t' AS boolean)
    cast(1.25 AS decimal(3, 1)), cast(-1.25 AS decimal(3, 1)), cast(1.35D AS decimal(3, 1))
    cast(0.0000001BD AS string)
    cast(123.0D AS string), cast('abcd' AS varchar(3))
    try_cast('x' AS int), try_cast('1.5' AS int)
    add_months(DATE '2020-01-31', 1), DATE '2020-01-31' + INTERVAL 1 MONTH, DATE '2020-02-29' - INTERVAL 1 YEAR
    dayofweek(DATE '2020-01-05'), weekday(DATE '2020-01-05'), weekofyear(DATE '2021-01-03')
    last_day(DATE '2020-02-01')
    trunc(DATE '2020-05-05', 'quarter'), trunc(DATE '2020-05-05', 'week'), next_day(DATE '2020-01-01', 'MO')
    date_trunc('MONTH', TIMESTAMP '1500-01-15 10:00:00'), cast(TIMESTAMP '0099-01-01 00:00:00.5' AS string)
    date_format(TIMESTAMP '2020-01-02 03:04:05.678', 'yyyy-MM-dd HH:mm:ss.SSS'), cast(DATE '1582-10-04' AS timestamp)
    unix_timestamp(TIMESTAMP '1969-12-31 23:59:59.5'), unix_seconds(TIMESTAMP '1969-12-31 23:59:59.5')
    NULL, nullif(NULL, 1), coalesce(NULL, NULL), max(NULL), (SELECT NULL), if(NULL, 1, 2), NOT NULL, NULL AND true
    decode(1, 1, 2), decode(1, 2, 2L), decode(1, 1, 'a'), decode(1, 1, NULL), decode(1, 1, 2.50), decode(1, 1, 2, 3)
    'it''s', r'\\d', 'a\\_b', '\\u0041', 'x' 'y', 'a1' RLIKE r'\\d', "double"
    date_format(DATE '2020-01-02', 'EEE, d MMM yy'), datediff(DATE '2020-03-01', '2020-02-01'), DATE '2020-01-01' - 1
"""
"""What engines are known to see differently, in Spark's SQL; a line is one query."""

MORE_CORNERS = r"""
    amount * qty AS a, amount * 10000 AS b, short * short AS c, amount + amount AS d, amount / 3 AS e FROM pay
    sum(amount * qty) AS a, avg(short * qty) AS b, max(short + amount) AS c FROM pay
    cast(9999999999999999.99 AS decimal(18,2)) + 9999999999999999.99 AS a, amount % short AS b FROM pay
    n FROM one WHERE EXISTS (SELECT y AS n FROM two WHERE two.y = n)
    x FROM one WHERE EXISTS (SELECT y * 0 AS x FROM two WHERE x > 1)
    x FROM one WHERE NOT EXISTS (SELECT two.id AS x FROM two WHERE two.k = x)
    n, (SELECT max(y) AS n FROM two WHERE two.k = n) AS q FROM one
    id, n FROM one JOIN two USING (id) WHERE EXISTS (SELECT z AS id FROM three WHERE three.y > id)
    s FROM one WHERE s NOT LIKE ALL ('a%', 'b%')
    s FROM one WHERE s NOT LIKE ANY ('a%', 'b%')
    s FROM one WHERE s NOT ILIKE ANY ('A%', 'b%')
    'abc' NOT LIKE ALL ('a%', 'b%') AS a, 'abc' NOT ILIKE ALL ('A%', 'b%') AS b, NOT 'abc' LIKE ANY ('a%', 'b') AS c
    4 | 2 & 3 AS a, 1 | 2 ^ 3 & 2 AS b, 7 & 3 ^ 1 | 8 AS c, 1 + 2 | 4 & 6 - 1 AS d, 8 ^ 1 + 1 AS e
    '1' || 2 + 3 AS a, 2 + 3 || '4' AS b, 'a' || 1 * 2 || 'b' AS c, '5' || '1' - 1 AS d
    m / cast(3 AS int) AS a, m / -(3) AS b, m / -3 AS c, m / (3) AS d, m * int(3) AS e, m / round(3) AS f FROM one
    3 AS k, m / k AS a, m * k AS b, round(m * k, 1) AS c, round(100) * m AS d, m / ceil(3L) AS e FROM one
    * FROM one JOIN two USING (id) JOIN three USING (y)
    one.*, two.* FROM one LEFT JOIN two USING (id) LEFT JOIN three USING (y)
    two.*, three.*, id FROM two JOIN three USING (y, id) LEFT JOIN one USING (id)
    * FROM one JOIN two USING (id) JOIN three ON three.id = one.id
    sum(k * 1000000000) FILTER (WHERE k < 2) AS a, max(100 / (k - 5)) FILTER (WHERE k < 2) AS b FROM two
    var_pop(k * 2) FILTER (WHERE k < 9) AS a, percentile(k * 2, 0.25) FILTER (WHERE k < 2) AS b FROM two
    cast(1e39 AS float) AS a, cast(x * 1e39 AS float) AS b, try_cast(-1e39 AS float) AS c FROM one
    -(2147483648) AS a, -2147483648 AS b, -(-2147483647) AS c, -9223372036854775808L AS d, -128Y AS e
    -2147483648 % -1 AS a, -2147483648 % (n - 2) AS b, pmod(-2147483648, n - 2) AS c FROM one WHERE n = 1
    n, n + 1 AS k, 1 AS one, count(*) AS c FROM one GROUP BY ROLLUP (n, n + 1)
    to_date(concat(' 2020-01-0', id)) AS a, to_date(t, 'yyyy-MM-dd') AS b FROM one
    year(try_cast(concat('000', id - 1, '-01-01') AS date)) AS a FROM one
    s RLIKE '(?:(?:a{10}){10}){10}' AS a, regexp_extract('ab', '((a)|b)*', 2) AS b, s RLIKE '(?:ab?){3}' AS c FROM one
    n, count(*) AS c FROM one WHERE id > 5 GROUP BY ROLLUP (n)
    n, count(*) AS c FROM one WHERE id > 5 GROUP BY GROUPING SETS ((n), ()) HAVING count(*) = 0
    n FROM one WHERE n NOT IN (SELECT k FROM two) OR id > 2
    n FROM one WHERE NOT (n IN (SELECT k FROM two) AND id > 1)
    one.id, two.k FROM one CROSS JOIN two ON one.id = two.id
    pow(x, double('NaN')) AS a, pow(n, double('Infinity')) AS b, pow(-n, double('-Infinity')) AS c FROM one
    cast(m * 1.000000000000000001 AS double) AS a, sum(k) OVER w AS b FROM one, two WINDOW v AS (ORDER BY k), w AS v
    col1, col2 FROM VALUES (1.25F, 1), (2, 16777217), (3Y, 1.5F)
    x, y FROM (SELECT NULL AS x, 1 AS y) UNION ALL SELECT 1, NULL
    * FROM (one JOIN two USING (id)) d
    d.w FROM (two JOIN three ON two.id = three.id) AS d(q, w, e, r, t, y)
    id FROM one WHERE EXISTS (SELECT k FROM two WHERE k > 9 UNION SELECT z FROM three WHERE z > 7)
    id FROM one WHERE NOT EXISTS (SELECT k FROM two INTERSECT SELECT z FROM three)
    max(x) AS a FROM one
    min(x) AS a FROM one
    max(x) AS a, min(x) AS b, count(*) AS n FROM one
    max(m) AS a FROM one
    min(t) AS a FROM one
    max(s) AS a FROM one
    max(f) AS a FROM zeros
    min(d) AS a, max(f) AS b FROM zeros
    cast(min(d) AS string) AS a, cast(max(d) AS string) AS b FROM zeros
    max(u.d) AS a FROM (SELECT d FROM zeros) u
    x FROM one WHERE x > (SELECT min(d) FROM zeros)
    max(d) + 1 AS a FROM zeros HAVING max(d) < 2
    cast(x AS string) AS s FROM (SELECT DISTINCT z AS x FROM zeros) q
    cast(x AS string) AS s FROM (SELECT DISTINCT * FROM (SELECT z AS x FROM zeros) p) q
    cast(x AS string) AS s, n FROM (SELECT z AS x, count(*) AS n FROM zeros GROUP BY z) q
    cast(x AS string) AS s, n FROM (SELECT z AS x, count(*) AS n FROM zeros GROUP BY ROLLUP(z)) q
    cast(x AS string) AS s FROM (SELECT z AS x FROM zeros UNION SELECT d FROM zeros) q
    cast(x AS string) AS s FROM (SELECT z AS x FROM zeros UNION ALL SELECT d FROM zeros) q
    cast(x AS string) AS s FROM (SELECT z AS x FROM zeros EXCEPT SELECT b FROM zeros) q
    x.y, x.d FROM (SELECT two.id, three.id, two.y, three.z AS d FROM two JOIN three ON two.id = three.id) x
"""
"""What a reader of this package found, with its tables; a line is what follows SELECT."""

STORED_QUESTIONS = r"""
    max({c}) AS a FROM stored
    min({c}) AS a FROM stored
    min({c}) AS a, max({c}) AS b, count(*) AS n FROM stored
    count({c}) AS a, count(DISTINCT {c}) AS b FROM stored
    max(x) AS a FROM (SELECT {c} AS x FROM stored UNION ALL SELECT {c} FROM stored) q
    count(*) AS n FROM stored WHERE {c} = (SELECT max({c}) FROM stored)
    count(*) AS n FROM stored WHERE {c} > (SELECT min({c}) FROM stored)
    {c}, count(*) AS n FROM stored GROUP BY {c}
    {c} FROM stored ORDER BY {c} DESC LIMIT 5
    {c} FROM stored ORDER BY {c} ASC NULLS LAST LIMIT 5
    count(*) AS n FROM stored a JOIN stored b ON a.{c} = b.{c} AND b.id < 9
"""
"""Questions of a column in Parquet files that their bounds might answer; a line is what follows SELECT."""

LEFT_TO_SPARK = r"""
    first(k * 1000000000) FILTER (WHERE k < 2) AS a FROM two
    TIMESTAMP '2020-01-01 23:00:00' AS a, try_cast('2020-01-01 24:00:00' AS timestamp) AS b
    try_cast(concat('2020-01-01 24:00:0', id) AS timestamp) AS a FROM one
    upper(), upper('a', 1), isnull(1, 5), count(), lag() OVER (ORDER BY id) FROM one
    'x' AS lit, count(*) AS c FROM one GROUP BY ROLLUP (lit)
    count(*) AS c FROM one GROUP BY CUBE (1)
    'x' AS lit, n, count(*) AS c FROM one GROUP BY GROUPING SETS ((lit, n), (n), ())
    s RLIKE '(ab{100}){20}' AS a FROM one
    regexp_extract('aab', '(a*)*', 1) AS a
    * FROM (SELECT two.id, three.id FROM two JOIN three ON two.id = three.id) x
    x.id FROM (SELECT two.id, three.id FROM two JOIN three ON two.id = three.id) x
    n FROM one WHERE EXISTS (SELECT 1 FROM two AS one WHERE one.y > n)
    -(-2147483648) AS a
    cast(b AS bigint) AS a FROM zeros
    cast(z AS string) AS s, count(*) AS n FROM zeros GROUP BY z
    try_cast('0000-01-01' AS date) IS NULL AS a
    to_date(concat(' 2020-01-0', id), 'yyyy-MM-dd') AS a FROM one
    cast(0.1F AS string) AS a
    cast(concat(id, 'e9') AS decimal(9, 0)) AS a FROM one WHERE id < 0 OR id = 1
    var_pop(id + 100000000) AS a FROM one
    n IN (SELECT k FROM two) AS a FROM one
"""
"""What goes to Spark, before it runs or when a value is met; a line is what follows SELECT."""

OF_SEVERAL_TYPES = ("2", "3L", "1.25F", "2.50", "'7'", "DATE '2024-02-29'", "NULL")
FORMS = (
    "CASE WHEN x < 0 THEN {} WHEN x > 0 THEN {} ELSE {} END",
    *("coalesce({}, {}, {})", "decode(x, 0, {}, 1, {}, {})", "{} IN ({}, {})", "{} BETWEEN {} AND {}"),
)
MOST_AT_ONCE = 60


@pytest.fixture(scope="module")
def engines(spark_engine: SparkConnectEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothEngines]:
    folder = tmp_path_factory.mktemp("one_sql")
    duckdb = DuckDBEngine(workers=2, threads=1)
    tables = (*write_tables(folder), _unsigned(folder / "unsigned"), *_small(folder), _stored(folder / "stored"))
    yield BothEngines(duckdb, spark_engine, tables)
    duckdb.close()


def _small(folder: Path) -> Iterator[TableSource]:
    """Write tables of a few rows whose values lie at the edges of their types."""
    ids = pa.array([1, 2, 3], pa.int64())
    tables = {
        "one": {
            "id": ids,
            "n": pa.array([1, 2, None], pa.int32()),
            "x": pa.array([1.5, -1.0, None]),
            "m": pa.array([Decimal("1.00"), Decimal("-2.50"), None], pa.decimal128(7, 2)),
            "s": pa.array(["abc", "x", None]),
            "t": pa.array([dt.datetime(2020, 1, 31, 10, tzinfo=dt.UTC), None, None], pa.timestamp("us", tz="UTC")),
        },
        "two": {"id": ids[:2], "y": pa.array([10, 20], pa.int32()), "k": pa.array([1, 5], pa.int32())},
        "three": {"id": ids[:2], "y": pa.array([10, 20], pa.int32()), "z": pa.array([7, 8], pa.int32())},
        "zeros": {
            "d": pa.array([0.0, 0.5, None]),
            "f": pa.array([0.0, 0.5, None], pa.float32()),
            "b": pa.array([2.0**63, -(2.0**63), 0.5]),
            "z": pa.array([-0.0, 0.5, None]),
        },
        "pay": {
            "amount": pa.array([Decimal("1000000000000.00"), Decimal("0.01"), None], pa.decimal128(18, 2)),
            "short": pa.array([Decimal("9999999999.99"), Decimal("1.01"), Decimal(-5)], pa.decimal128(12, 2)),
            "qty": pa.array([20_000, 3, 1], pa.int32()),
        },
    }
    for name, columns in tables.items():
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "part-0.parquet")
        yield inspect(name, folder / name).source


def _stored(folder: Path) -> TableSource:
    """Write each atomic type to a file of several row groups; two columns have NaN, infinities and both zeros."""
    numbers = [0.0, -0.0, None, 1.5, float("nan"), -2.25, float("inf"), float("-inf"), None, 7.0]
    wholes = [0, 0, None, 1, 2, -2, 3, -3, None, 7]
    days = [None if whole is None else dt.date(2020, 1, 1) + dt.timedelta(days=whole) for whole in wholes]
    columns = {
        "id": pa.array(range(10), pa.int64()),
        "f": pa.array(numbers, pa.float32()),
        "d": pa.array(numbers, pa.float64()),
        "e": pa.array([None if whole is None else abs(whole) / 4 for whole in wholes], pa.float64()),
        "i": pa.array(wholes, pa.int32()),
        "m": pa.array([None if whole is None else Decimal(whole) for whole in wholes], pa.decimal128(9, 2)),
        "s": pa.array([None if whole is None else "é" * 80 + str(whole) for whole in wholes]),
        "b": pa.array([None if whole is None else whole > 0 for whole in wholes], pa.bool_()),
        "y": pa.array(days, pa.date32()),
        "t": pa.array(days, pa.date32()).cast(pa.timestamp("us", "UTC")),
    }
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=3)  # of one file, DuckDB trusts bounds
    return inspect("stored", folder).source


def _unsigned(folder: Path) -> TableSource:
    """Write a table of types that Spark does not have: it reads them as wider ones."""
    kinds = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    folder.mkdir()
    pq.write_table(
        pa.table({str(kind): pa.array([0, 3, 200, None], kind) for kind in kinds}), folder / "part-0.parquet"
    )
    return inspect("unsigned", folder).source


def test_unsigned_numbers_can_become_negative(engines: BothEngines) -> None:
    found = engines.ask(
        "SELECT uint8 - 5 AS a, uint16 - 5 AS b, uint32 - 5 AS c, uint64 - 5 AS d, -uint8 AS e FROM unsigned"
    )
    assert (found.outcome, found.detail) == (Outcome.EQUAL, "")


@pytest.mark.parametrize("line", [line.strip() for line in CORNERS.strip().splitlines()])
def test_what_engines_see_differently_is_equal(engines: BothEngines, line: str) -> None:
    found = engines.ask(f"SELECT {line}", names=False)
    assert (found.outcome, found.detail) == (Outcome.EQUAL, "")


@pytest.mark.parametrize("line", [line.strip() for line in MORE_CORNERS.strip().splitlines()])
def test_what_a_reader_found_is_equal(engines: BothEngines, line: str) -> None:
    found = engines.ask(f"SELECT {line}")
    assert (found.outcome, found.detail) == (Outcome.EQUAL, "")


@pytest.mark.parametrize("column", ["f", "d", "e", "i", "m", "s", "b", "y", "t"])
def test_what_bounds_of_files_might_answer_is_equal(engines: BothEngines, column: str) -> None:
    asked = [f"SELECT {line.strip().format(c=column)}" for line in STORED_QUESTIONS.strip().splitlines()]
    outcomes = {sql: engines.ask(sql) for sql in asked}
    assert {sql: found for sql, found in outcomes.items() if found.outcome is not Outcome.EQUAL} == {}


@pytest.mark.parametrize("line", [line.strip() for line in LEFT_TO_SPARK.strip().splitlines()])
def test_what_only_spark_knows_is_left_to_it(engines: BothEngines, line: str) -> None:
    found = engines.ask(f"SELECT {line}")
    assert found.outcome in (Outcome.PINNED, Outcome.HANDED_OVER), found


@pytest.mark.parametrize("form", FORMS)
def test_what_has_values_of_three_types_is_equal(engines: BothEngines, form: str) -> None:
    expressions = [form.format(*values) for values in product(OF_SEVERAL_TYPES, repeat=3)]
    written = [sql for sql in expressions if engines.writes(f"SELECT {sql} AS c FROM one")]
    assert len(written) > len(expressions) / 4
    for at in range(0, len(written), MOST_AT_ONCE):
        columns = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(written[at : at + MOST_AT_ONCE], at))
        found = engines.ask(f"SELECT {columns} FROM one")
        assert (found.outcome, found.detail) == (Outcome.EQUAL, "")


@pytest.mark.thorough
def test_generated_queries_have_equal_answers(engines: BothEngines) -> None:
    asked = list(queries(SEED, QUERIES))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(engines.ask, asked))
    different = [(one.detail, sql) for one, sql in zip(found, asked, strict=True) if one.outcome is Outcome.DIFFERENT]
    assert different == []
    counted = Counter(one.outcome for one in found)
    assert counted[Outcome.EQUAL] >= LEAST_EQUAL * QUERIES, counted
    assert all(one.detail for one in found if one.outcome is not Outcome.EQUAL)
