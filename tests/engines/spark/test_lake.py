"""Spark reads snapshots of lake tables."""

from __future__ import annotations

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
