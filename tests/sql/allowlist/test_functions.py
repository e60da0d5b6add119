"""Every function of Spark is judged, and what statements may not do with functions is refused."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from engines.errors import StatementError
from engines.protocol import Lease
from engines.spark.engine import SparkConnectEngine
from sql.allowlist.functions import (
    FUNCTIONS,
    GENERATORS,
    IN_EVERY_DIALECT,
    OF_THE_GATEWAY,
    REFUSED,
    REPEATABLE,
    TABLE_FUNCTIONS,
    UNREPEATABLE,
    WITHOUT_CALLS,
)
from sql.errors import NotAllowed, ValueOutOfRange
from sql.limits.arguments import LIMITS
from sql.limits.sizes import COUNTS, FORMATS
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource
from tests.writers import SPARK_SQL

COLUMNS = (Column("n", "int"), Column("s", "string"), Column("d", "date"), Column("at", "timestamp"))
TABLE = TableSource("t", "/t", "parquet", COLUMNS)


def text(sql: str) -> str:
    return check(sql, "spark", catalog={"t": TABLE}, limits=ParserLimits()).sql(SPARK_SQL)


def rows(engine: SparkConnectEngine, sql: str) -> pa.Table:
    with engine.execute(sql, query_id=uuid.uuid4().hex, lease=Lease(1 << 30), deadline_s=120) as stream:
        return pa.Table.from_batches(stream, stream.schema)


def test_a_function_is_judged_once() -> None:
    assert not REPEATABLE & UNREPEATABLE
    assert not FUNCTIONS & REFUSED.keys()
    assert FUNCTIONS >= TABLE_FUNCTIONS >= GENERATORS
    assert FUNCTIONS > IN_EVERY_DIALECT
    assert FUNCTIONS >= {*LIMITS, *COUNTS, *FORMATS}


@pytest.mark.spark
def test_the_list_is_that_of_a_real_spark(spark_engine: SparkConnectEngine) -> None:
    of_spark = set(rows(spark_engine, "SHOW FUNCTIONS").column(0).to_pylist())
    assert of_spark == ((FUNCTIONS - OF_THE_GATEWAY) | REFUSED.keys() | WITHOUT_CALLS)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_says_why(name: str) -> None:
    with pytest.raises(NotAllowed, match=REFUSED[name].split(";")[0].replace("(", r"\(")):
        text(f"SELECT {name}('a', 'b')")


@pytest.mark.parametrize("name", sorted(FUNCTIONS - IN_EVERY_DIALECT - TABLE_FUNCTIONS)[::17])
@pytest.mark.parametrize("dialect", ["hive", "impala"])
def test_what_only_spark_means_is_refused_elsewhere(name: str, dialect: str) -> None:
    with pytest.raises(NotAllowed):
        check(f"SELECT {name}(n) FROM t", dialect, catalog={"t": TABLE}, limits=ParserLimits())


@pytest.mark.parametrize(
    "expression",
    [
        "sequence(1, 1000000000)",
        "sequence(0, 10000000, 2)",
        "transform(sequence(1, 1000), x -> sequence(1, 1000))",
        "array_repeat('x', 100000000)",
        "array_repeat(array_repeat('x', 10000), 10000)",
        "array_insert(array(1), 2000000000, 1)",
        "randstr(100000000)",
        "format_string('%1000000000d', 1)",
        "printf('%-0900000000.3f', 1.5)",
        "length(url_encode(repeat('<', 1000000)))",
        "from_json(s, repeat('array<', 5000))",
        "from_json(s, 'array<array<array<array<array<array<array<array<array<array<array<array<array<array<array<array<"
        "array<array<array<array<array<array<array<array<array<array<array<array<array<array<array<array<int')",
        "from_json(s, concat('a ', upper('int')))",
        f"from_json(s, '{', '.join(f'column_{n} INT' for n in range(5_000))}')",
        "variant_get(parse_json(s), '$.a', concat('i', lower('NT')))",
        "variant_set(parse_json('[]'), '$[2000000000]', 1)",
        "variant_insert(parse_json('[]'), concat('$[20000', '00000]'), 1)",
        "variant_set(parse_json('[]'), '$[\\u0032000000000]', 1)",
        "variant_set(parse_json('[]'), s, 1)",
        "schema_of_xml(repeat('<a>', 1000))",
        "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
        "schema_of_xml('<a/>', map('ROWvalidationXSD\\u0050ath', '/etc/passwd'))",
        "from_xml(s, 'a INT', map(s, s))",
        "from_xml(s, 'a INT', map_from_arrays(array('rowValidationXSDPath'), array('/etc/passwd')))",
        "from_xml(s, 'a INT', options => map('rowValidationXSDPath', '/etc/passwd'))",
        "to_xml(named_struct('a', 1), map('rowValidationXSDPath', '/etc/passwd'))",
        "xpath_string('<a/>', 'system-property(\"user.name\")')",
        "xpath_string('<a/>', concat('system-', 'property(\"user.name\")'))",
        "xpath_string('<a/>', 'sys\\u0074em-property(\"user.name\")')",
        "xpath('<a/>', reverse(')\"eman.resu\"(ytreporp-metsys'))",
        "xpath_boolean(path => 'system-property(\"user.name\")', xml => '<a/>')",
        "histogram_numeric(n, 100000000)",
        "count_min_sketch(n, 0.0000001, 0.9, 1)",
        "count_min_sketch(n, 0.1, 0.999999999999999, 1)",
        "count_min_sketch(n, epsilon => 0.0000001, confidence => 0.9, seed => 1)",
        "theta_sketch_agg(n, 26)",
        "tuple_sketch_agg_double(n, 1.0D, 26)",
        "window(at, '1000 days', '1 microsecond')",
        "window(at, '1000 days', concat('1 micro', 'second'))",
        "window(at, 86400000000, 1)",
        "stack(1000000000, 1)",
        "stack(n, 1)",
    ],
)
def test_what_would_take_the_engine_down_or_tell_of_it_is_refused(expression: str) -> None:
    with pytest.raises(ValueOutOfRange):
        text(f"SELECT {expression} FROM t")


def test_the_key_of_parse_url_is_part_of_a_pattern() -> None:
    statement = check(
        "SELECT parse_url(s, 'QUERY', '((a+)+)+b') FROM t", "spark", catalog={"t": TABLE}, limits=ParserLimits()
    )
    assert statement.explosive_pattern() is not None


@pytest.mark.parametrize(
    "source",
    [
        "explode(sequence(1, 1000000000))",
        "stack(1000000000, 1)",
        "range(0, 10, 1, 100000000)",
        "t LATERAL VIEW explode(array_repeat(repeat('x', 1000), 100000)) e AS x",
        "t, LATERAL explode(sequence(1, 1000000000)) e(x)",
        "t PIVOT (max(repeat(s, 1000000)) FOR n IN (1))",
        "(SELECT length(repeat(x, 10000)) FROM explode(array(repeat('x', 1000))) e(x))",
        "(SELECT length(repeat(y, 10000))"
        " FROM (SELECT n, repeat('x', 1000) AS s FROM t) PIVOT (max(s) FOR n IN (1 AS y)))",
    ],
)
def test_limits_hold_in_from(source: str) -> None:
    with pytest.raises(ValueOutOfRange):
        text(f"SELECT * FROM {source}")


GUARDED = {
    "sequence(1, n)": ("VALUES (5), (CAST(NULL AS INT)) t(n)", "VALUES (2000000000) t(n)"),
    "sequence(n, 1, -1)": ("VALUES (5) t(n)", "VALUES (2000000000) t(n)"),
    "sequence(n, n, 0)": ("VALUES (5) t(n)", None),
    "sequence(DATE '2020-01-01', d)": ("VALUES (DATE '2020-02-01') t(d)", "VALUES (DATE '9020-02-01') t(d)"),
    "sequence(DATE '2020-01-01', d, INTERVAL 1 MONTH)": ("VALUES (DATE '2021-02-01') t(d)", None),
    "sequence(at, TIMESTAMP '2020-01-01 00:00:00', INTERVAL -1 SECOND)": (
        "VALUES (TIMESTAMP '2020-01-01 00:01:00') t(at)",
        "VALUES (TIMESTAMP '2020-02-01 00:00:00') t(at)",
    ),
    "sequence(at, TIMESTAMP '2020-01-03 00:00:00')": ("VALUES (TIMESTAMP '2020-01-01 00:01:00') t(at)", None),
    "array_repeat(s, n)": ("VALUES ('x', 3) t(s, n)", "VALUES ('x', 2000000000) t(s, n)"),
    "array_insert(array(1, 2), n, 7)": ("VALUES (5), (-4) t(n)", "VALUES (2000000000) t(n)"),
    "format_string(s, 1)": ("VALUES ('%5d|') t(s)", "VALUES ('%900000000d') t(s)"),
}


@pytest.mark.spark
@pytest.mark.parametrize("expression", GUARDED)
def test_counts_that_come_from_data_are_checked_as_the_statement_runs(
    expression: str, spark_engine: SparkConnectEngine
) -> None:
    good, bad = GUARDED[expression]
    sql = f"SELECT {expression} AS r FROM {good}"
    assert "RAISE_ERROR" in text(sql)
    ours, theirs = rows(spark_engine, text(sql)), rows(spark_engine, sql)
    assert ours.schema == theirs.schema
    assert sorted(map(str, ours.column(0).to_pylist())) == sorted(map(str, theirs.column(0).to_pylist()))
    if bad is not None:
        with pytest.raises(StatementError, match="at most"):
            rows(spark_engine, text(f"SELECT {expression} AS r FROM {bad}"))
