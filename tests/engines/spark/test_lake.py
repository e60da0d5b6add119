"""Spark reads snapshots of lake tables."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from engines.protocol import Engine
from engines.spark.engine import SparkConnectEngine
from tests.engines.lake_conformance import DeltaConformance, IcebergConformance, table_at
from tests.lake_tables import catalog_at

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.fixture
def engine(spark_engine: SparkConnectEngine) -> Engine:
    return spark_engine


class TestDelta(DeltaConformance): ...


class TestIceberg(IcebergConformance):
    def test_renamed_nested_fields(self, engine: Engine, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array([1], pa.int64()), "place": [{"x": 1, "y": 2}]})
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        with table.update_schema() as update:
            update.rename_column("place.x", "z")
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert self.rows(engine, "SELECT place FROM t", source) == [{"place": {"z": 1, "y": 2}}]

    def test_names_that_other_nested_fields_had(self, engine: Engine, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array([1], pa.int64()), "place": [{"x": 1, "y": 2}]})
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        for old, new in (("place.x", "_"), ("place.y", "x"), ("place._", "y")):
            with table.update_schema() as update:
                update.rename_column(old, new)
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert self.rows(engine, "SELECT id FROM t WHERE place.x = 2", source) == [{"id": 1}]
        assert self.rows(engine, "SELECT id FROM t WHERE place.y = 2", source) == []

    def test_a_table_whose_older_schemas_are_gone(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", pa.schema([("id", pa.int64()), ("a", pa.int64())]))
        table.append(pa.table({"id": [1], "a": [2]}))
        for old, new in (("a", "b"), ("id", "a"), ("b", "id")):
            with table.update_schema() as update:
                update.rename_column(old, new)
        path = Path(table.metadata_location.removeprefix("file://"))
        metadata = json.loads(path.read_text(encoding="utf-8"))
        metadata["schemas"] = metadata["schemas"][-1:]
        path.write_text(json.dumps(metadata), encoding="utf-8")
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert self.rows(engine, "SELECT a FROM t WHERE id = 2", source) == [{"a": 1}]
