"""One locked DuckDB instance: what it keeps of a statement that comes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sql.tables import Column, TableSource

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

import duckdb

from engines.duckdb.worker.footers import Footers
from engines.duckdb.worker.instance import SHORT_S, Blank, Instance

SQL = "SELECT n FROM t WHERE n > 1"
ROWS = 3


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(ROWS + 2)}), folder / "x.parquet")
    sources = {"t": TableSource("t", str(folder), "parquet", (Column("n", "bigint"),))}
    instance = Instance(Blank(threads=1), sources, Footers())
    instance.make_views(sources)
    yield instance
    instance.close()


def reads_ahead(instance: Instance) -> bool:
    asked = "SELECT NOT current_setting('disable_parquet_prefetching')::BOOLEAN"
    ((found,),) = instance._connection.execute(asked).fetchall()
    return bool(found)


def run(instance: Instance, sql: str = SQL, *, took_s: float) -> bool:
    """Run a statement that took so long, as far as it knows; returns whether it read ahead."""
    relation = instance.query(sql)
    ahead = reads_ahead(instance)
    assert relation.to_arrow_table().num_rows == ROWS
    instance.ran(sql, took_s)
    return ahead


def test_only_a_short_statement_that_comes_again_does_not_read_ahead(instance: Instance) -> None:
    assert run(instance, took_s=SHORT_S)
    assert not run(instance, took_s=2 * SHORT_S)
    assert run(instance, took_s=SHORT_S)
    assert run(instance, f"{SQL} ORDER BY n", took_s=SHORT_S)  # another one, and new
    assert not run(instance, took_s=SHORT_S)


def test_one_that_failed_is_not_taken_for_short(instance: Instance) -> None:
    run(instance, took_s=SHORT_S)
    instance.query(SQL)  # which never ended well
    assert run(instance, took_s=SHORT_S)


def test_what_is_measured_is_what_is_read_of_it(instance: Instance) -> None:
    peaks: list[int] = []
    while not any(peaks) and len(peaks) < 20:  # DuckDB may look at its buffers when the groups are gone
        run(instance, f"{SQL} GROUP BY n", took_s=0.0)
        measured = json.loads(instance.profile())
        peaks.append(measured["system"]["peak_buffer_memory"])
    assert measured.keys() == {"operator", "system"}
    assert peaks[-1] > 0, "of the groups"
    (node,) = measured["operator"]
    while node.get("children"):
        (node,) = node["children"]
    assert (node["type"], node["intermediate_rows"]) == ("TABLE_SCAN", ROWS)


@pytest.mark.parametrize(
    "setting", ["enable_external_access=true", "enable_external_file_cache=true", "TimeZone='CET'"]
)
def test_what_may_change_for_a_statement_opens_no_other_setting(instance: Instance, setting: str) -> None:
    instance._connection.execute("SET disable_parquet_prefetching=true")
    with pytest.raises(duckdb.Error, match=r"lock|disabled|[Cc]annot"):
        instance._connection.execute(f"SET {setting}")
