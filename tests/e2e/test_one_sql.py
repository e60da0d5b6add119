"""A statement's answer is the same on a real DuckDB and on a real Spark, or it is left to Spark and says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.both_engines import BothEngines, Outcome
from benchmarks.generated_queries import queries, write_tables
from engines.duckdb.pool import DuckDBEngine
from engines.protocol import TableSource
from engines.spark.engine import SparkConnectEngine
from metastore.inspection import inspect

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
    cast(123.0D AS string), cast(0.1F AS string), cast('abcd' AS varchar(3))
    try_cast('x' AS int), try_cast('1.5' AS int)
    add_months(DATE '2020-01-31', 1), DATE '2020-01-31' + INTERVAL 1 MONTH, DATE '2020-02-29' - INTERVAL 1 YEAR
    dayofweek(DATE '2020-01-05'), weekday(DATE '2020-01-05'), weekofyear(DATE '2021-01-03')
    last_day(DATE '2020-02-01')
    trunc(DATE '2020-05-05', 'quarter'), trunc(DATE '2020-05-05', 'week'), next_day(DATE '2020-01-01', 'MO')
    date_trunc('MONTH', TIMESTAMP '1500-01-15 10:00:00'), cast(TIMESTAMP '0099-01-01 00:00:00.5' AS string)
    date_format(TIMESTAMP '2020-01-02 03:04:05.678', 'yyyy-MM-dd HH:mm:ss.SSS'), cast(DATE '1582-10-04' AS timestamp)
    unix_timestamp(TIMESTAMP '1969-12-31 23:59:59.5'), unix_seconds(TIMESTAMP '1969-12-31 23:59:59.5')
    'it''s', r'\\d', 'a\\_b', '\\u0041', 'x' 'y', 'a1' RLIKE r'\\d', "double"
    date_format(DATE '2020-01-02', 'EEE, d MMM yy'), datediff(DATE '2020-03-01', '2020-02-01'), DATE '2020-01-01' - 1
"""
"""What engines are known to see differently, in Spark's SQL; a line is one query."""


@pytest.fixture(scope="module")
def engines(spark_engine: SparkConnectEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothEngines]:
    folder = tmp_path_factory.mktemp("one_sql")
    duckdb = DuckDBEngine(workers=2, threads=1)
    yield BothEngines(duckdb, spark_engine, (*write_tables(folder), _unsigned(folder / "unsigned")))
    duckdb.close()


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
