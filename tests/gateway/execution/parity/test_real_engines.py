"""A fault in what DuckDB is asked is found by comparing its answers with Spark's, and its template goes to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine, PooledStatement
from gateway.execution.parity import sampler
from gateway.settings import ParitySettings
from metastore.query_log.parity import ParityCounts
from selector.decision import ReasonCode
from tests.gateway.house import House, opened
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.spark

RIGHT = (
    "SELECT word, count(*) AS n, sum(x) AS total FROM t WHERE id > 10 GROUP BY word ORDER BY word",
    "SELECT a.id, b.word FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.id < 50",
    "SELECT id, CAST(x AS STRING) AS text, round(x, 1) AS r, id % 7 AS m FROM t ORDER BY id DESC",
    "SELECT DISTINCT word FROM t",
    "SELECT avg(x) AS mean, stddev(x) AS spread, count(DISTINCT word) AS words FROM t",
    "SELECT id, rank() OVER (PARTITION BY word ORDER BY id) AS place FROM t",
)


class Faulty(DuckDBEngine):
    """A DuckDB that is asked for ``>=`` in the place of ``>``: as if its writer were wrong."""

    is_faulty = False

    def execute(self, sql: str, **options: Any) -> PooledStatement:
        return super().execute(sql.replace(" > ", " >= ") if self.is_faulty else sql, **options)


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    folder = tmp_path / "t"
    folder.mkdir()
    ids = range(1_000)
    words = [f"word {number % 13}" if number % 17 else None for number in ids]
    rows = {"id": pa.array(ids, pa.int64()), "x": [number / 7 for number in ids], "word": words}
    pq.write_table(pa.table(rows), folder / "part-0.parquet")
    engine = Faulty(workers=1, threads=1)
    spark = request.getfixturevalue("spark_engine")
    with opened(tmp_path / "home", engine, spark, parity=ParitySettings(share=1.0)) as house:
        house.register("t", folder)
        yield house
    engine.close()


def counts(house: House) -> ParityCounts:
    wait_until(house.gateway.coordinator.parity.is_idle, "all samples are compared")
    return house.gateway.metastore.parity.counts(sampler._now())


def test_right_answers_are_the_same(house: House) -> None:
    on_duckdb = [house.ended(sql).engine for sql in RIGHT].count("duckdb")
    assert on_duckdb == len(RIGHT)
    found = counts(house)
    assert (found.compared, found.different, found.left_out) == (on_duckdb, 0, {})
    assert found.seconds > 0.0


def test_a_fault_in_the_text_for_duckdb_is_found_and_its_template_goes_to_spark(house: House) -> None:
    engine = house.gateway.engines["duckdb"].engine
    assert isinstance(engine, Faulty)
    engine.is_faulty = True
    wrong = house.ended("SELECT count(*) AS n FROM t WHERE id > 10")
    assert wrong.engine == "duckdb"
    assert (counts(house).compared, counts(house).different) == (1, 1)
    (case,) = house.gateway.metastore.parity.cases()
    assert (case.query_id, case.difference) == (wrong.id, "n: 990 and 989")
    assert (case.rows, case.other_rows) == (("(990,)",), ("(989,)",))

    other_literal = house.ended("SELECT count(*) AS n FROM t WHERE id > 500")
    assert other_literal.engine == "spark"
    assert other_literal.decision is not None
    assert other_literal.decision.reasons[0].code is ReasonCode.DIALECT
    assert house.ended("SELECT count(*) AS n FROM t").engine == "duckdb"
    assert house.gateway.metastore.parity.release(wrong.id, by="op", at=sampler._now())
    house.gateway.router.open_cases.changed()
    assert house.ended("SELECT count(*) AS n FROM t WHERE id > 500").engine == "duckdb"
