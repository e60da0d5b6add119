"""Views of lake tables: files that are all alike are read so that DuckDB knows how many rows they have."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

import duckdb

from engines.duckdb.worker import lake
from engines.duckdb.worker.footers import Footers
from engines.duckdb.worker.instance import Blank, Instance
from engines.files.manifest import read_manifest
from tests.engines.lake_conformance import table_at
from tests.lake_tables import catalog_at

ROWS = 5_000
NUMBERS = pa.table({"id": pa.array(range(ROWS), pa.int64()), "n": pa.array(range(ROWS), pa.int32())})


class View:
    """The view of a table's newest snapshot, in an instance of its own. text: the statement that made it."""

    def __init__(self, folder: Path, format: str, manifests: Path) -> None:
        source = table_at(folder, format, manifests)
        assert source.snapshot is not None
        manifest = read_manifest(source.snapshot.manifest)
        self._connection = duckdb.connect()
        alike = lake.view_of_alike(source, manifest, Footers().columns_of)
        self.text = alike or lake.view(source, manifest, self._connection.register, Footers().columns_of)
        self._connection.execute(self.text)

    @property
    def is_by_schema(self) -> bool:
        return "schema=" in self.text

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return self._connection.execute(sql, list(parameters)).fetchall()

    def estimated_rows(self) -> int:
        """Return the rows that DuckDB expects of the whole table."""
        ((_, plan),) = self.rows("EXPLAIN (FORMAT JSON) SELECT * FROM t")
        return int(scan_of(json.loads(plan))["extra_info"]["Estimated Cardinality"])


def scan_of(plan: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the scan below the one branch of a plan."""
    (node,) = plan
    while node["children"]:
        (node,) = node["children"]
    return node


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Make an Iceberg table of two files."""
    made = catalog_at(tmp_path / "lake").create_table("db.t", NUMBERS.schema)
    for part in (NUMBERS.slice(0, ROWS // 2), NUMBERS.slice(ROWS // 2)):
        made.append(part)
    return made


def view_of(table: Table, manifests: Path) -> View:
    return View(Path(table.location()), "iceberg", manifests)


def test_duckdb_knows_the_rows_of_files_that_are_alike(table: Table, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "delta", NUMBERS)
    for view in (view_of(table, tmp_path), View(tmp_path / "delta", "delta", tmp_path)):
        assert not view.is_by_schema
        assert view.estimated_rows() == pytest.approx(ROWS, rel=0.2)
        assert view.rows("SELECT count(*), sum(id), sum(n) FROM t") == [(ROWS, sum(range(ROWS)), sum(range(ROWS)))]


def test_values_of_folders_are_those_of_the_log(tmp_path: Path) -> None:
    texts = ["a b", "c/d", None, "é=%20", "NULL", "null", "+", "'", "[x]*", " x ", "1", "ﬁ"]
    days = [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None] * 4
    numbers = [0, -5, None, 2**31 - 1] * 3
    flags = [True, False, None] * 4
    rows = pa.table({"id": pa.array(range(12), pa.int64()), "s": texts, "d": days, "i": numbers, "b": flags})
    write_deltalake(tmp_path / "t", rows, partition_by=["s", "d", "i", "b"])
    view = View(tmp_path / "t", "delta", tmp_path)
    assert "hive_types=" in view.text
    assert view.estimated_rows() == len(texts)
    expected = list(zip(range(12), texts, days, numbers, flags, strict=True))
    assert view.rows("SELECT * FROM t ORDER BY id") == expected
    for row in expected:
        condition = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in ("s", "d", "i", "b"))
        assert view.rows(f"SELECT id FROM t WHERE {condition}", row[1:]) == [(row[0],)]


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "CAST(p AS VARCHAR) = '1.50'"),
        (pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")), "epoch(p) = 1704067200"),
    ],
    ids=["decimal", "timestamp"],
)
def test_values_of_other_types_come_from_the_log_alone(tmp_path: Path, values: pa.Array, condition: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": pa.array([1], pa.int64()), "p": values}), partition_by=["p"])
    view = View(tmp_path / "t", "delta", tmp_path)
    assert view.is_by_schema
    assert view.rows(f"SELECT id FROM t WHERE {condition}") == [(1,)]


def test_a_folder_that_contradicts_the_log_is_not_read(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "p": [1, 2]}), partition_by=["p"])
    log = tmp_path / "t" / "_delta_log" / "00000000000000000000.json"
    log.write_text(
        log.read_text(encoding="utf-8").replace('"partitionValues":{"p":"1"}', '"partitionValues":{"p":"7"}')
    )
    view = View(tmp_path / "t", "delta", tmp_path)
    assert view.is_by_schema
    assert view.rows("SELECT p FROM t ORDER BY p") == [(2,), (7,)]


def test_a_renamed_column_is_read_by_its_id(table: Table, tmp_path: Path) -> None:
    with table.update_schema() as update:
        update.rename_column("n", "id2")
        update.rename_column("id", "n")
    view = view_of(table, tmp_path)
    assert not view.is_by_schema
    assert view.rows("SELECT typeof(n), typeof(id2) FROM t LIMIT 1") == [("BIGINT", "INTEGER")]
    table.append(NUMBERS.slice(0, 1).rename_columns(["n", "id2"]))
    mixed = view_of(table, tmp_path)
    assert mixed.is_by_schema
    assert mixed.rows("SELECT count(n), count(id2) FROM t") == [(ROWS + 1, ROWS + 1)]


def test_a_column_that_is_dropped_and_added_again_is_another_one(table: Table, tmp_path: Path) -> None:
    with table.update_schema() as update:
        update.delete_column("n")
    with table.update_schema() as update:
        update.add_column("n", StringType())
    assert view_of(table, tmp_path).rows("SELECT count(*), count(n) FROM t") == [(ROWS, 0)]


def test_files_of_another_type_are_read_by_the_schema(table: Table, tmp_path: Path) -> None:
    with table.update_schema() as update:
        update.update_column("n", LongType())
    view = view_of(table, tmp_path)
    assert view.is_by_schema
    assert view.rows("SELECT typeof(n), sum(n) OVER () FROM t LIMIT 1") == [("BIGINT", sum(range(ROWS)))]


def test_all_lake_tables_of_a_statement_are_read_in_one_way(table: Table, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "plain", NUMBERS)
    write_deltalake(tmp_path / "evolved", NUMBERS)
    write_deltalake(tmp_path / "evolved", NUMBERS.append_column("m", NUMBERS["n"]), mode="append", schema_mode="merge")
    sources = {name: replace(table_at(tmp_path / name, "delta", tmp_path), name=name) for name in ("plain", "evolved")}
    sources["t"] = table_at(Path(table.location()), "iceberg", tmp_path)
    instance = Instance(Blank(threads=1), sources, Footers())
    instance.limit(256 << 20)

    def expected_rows(*names: str) -> list[int]:
        """Return the rows that DuckDB expects of each table, in a statement that reads them all."""
        instance.make_views({name: sources[name] for name in names}, for_plan=True)
        plans = (json.loads(instance.explain(f"SELECT * FROM {name}")) for name in names)
        return [int(scan_of(plan)["extra_info"]["Estimated Cardinality"]) for plan in plans]

    assert min(expected_rows("plain", "t")) > ROWS / 2
    assert max(expected_rows("plain", "t", "evolved")) < ROWS / 2
    assert min(expected_rows("plain")) > ROWS / 2
    instance.close()
