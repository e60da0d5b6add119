"""Which results go through files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engines.spark.staging import SMALL_ROWS, can_be_staged, may_be_large


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t",
        "  select a from t",
        "SELECT a FROM t ORDER BY a",
        f"SELECT a FROM t LIMIT {SMALL_ROWS + 1}",
        "SELECT a FROM t LIMIT 5 + n",
        "SELECT a, COUNT(*) FROM t GROUP BY a",
        "SELECT COUNT(*) OVER () FROM t",
        "SELECT (SELECT MAX(a) FROM u) AS m FROM t",
        "SELECT EXPLODE(SEQUENCE(1, 1000000000)) AS n",
        "SELECT STACK(2, 1, 2) AS n",
        "SELECT EXPLODE(COLLECT_LIST(a)) FROM t",
        "SELECT MAX(a) FROM t UNION ALL SELECT a FROM t",
        "WITH w AS (SELECT a FROM t) SELECT a FROM w",
        "(SELECT a FROM t)",
        "FROM t |> LIMIT 2 |> JOIN u",
    ],
)
def test_may_be_large(sql: str) -> None:
    assert may_be_large(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "VALUES (1), (2)",
        "SELECT CURRENT_TIMESTAMP() AS now",
        "SELECT COUNT(*), SUM(a) + 1 FROM t WHERE a > 1",
        "SELECT MAX(a.x) FROM t AS a CROSS JOIN t AS b",
        "WITH w AS (SELECT a FROM t) SELECT MAX(a) FROM w",
        f"SELECT a FROM t ORDER BY a LIMIT {SMALL_ROWS}",
        "SELECT a FROM t UNION ALL SELECT a FROM u LIMIT 10",
        "INSERT INTO t SELECT * FROM u",
        "WITH w AS (SELECT a FROM t) INSERT INTO u SELECT a FROM w",
        "CREATE TABLE u AS SELECT * FROM t",
        "EXPLAIN FORMATTED SELECT * FROM t",
        "SHOW TABLES",
        "SELECT FROM WHERE",
        "",
    ],
)
def test_small_or_not_a_query(sql: str) -> None:
    assert not may_be_large(sql)


def test_types_without_a_parquet_form_go_the_direct_way() -> None:
    plain = [pa.int8(), pa.decimal128(38, 10), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC")]
    assert can_be_staged(pa.schema([("c", kind) for kind in plain]))
    for kind in (pa.null(), pa.duration("us"), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])):
        assert not can_be_staged(pa.schema([("a", pa.int32()), ("b", kind)]))
