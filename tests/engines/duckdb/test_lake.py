"""DuckDB reads snapshots of lake tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engines.errors import StatementError, UnsupportedFeature
from engines.protocol import Engine
from tests.engines.lake_conformance import DeltaConformance, IcebergConformance, table_at
from tests.lake_tables import catalog_at

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.duckdb.engine import DuckDBEngine

pytestmark = pytest.mark.e2e  # real worker processes


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    duckdb = DuckDBEngine(workers=1, threads=1)
    yield duckdb
    duckdb.close()


class TestDelta(DeltaConformance): ...


class TestIceberg(IcebergConformance):
    def test_renamed_nested_fields_are_left_to_others(self, engine: Engine, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array([1], pa.int64()), "place": [{"x": 1, "y": 2}]})
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        with table.update_schema() as update:
            update.rename_column("place.x", "z")
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        with pytest.raises(UnsupportedFeature, match="renamed fields of the column place"):
            self.ids(engine, source)


def test_files_beside_those_of_the_snapshot_cannot_be_read(engine: Engine, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", pa.schema([("id", pa.int64())]))
    source = table_at(Path(table.location()), "iceberg", tmp_path)
    with pytest.raises(StatementError, match="disabled by configuration"):
        TestIceberg().rows(engine, f"SELECT * FROM read_text('{tmp_path}/lake/catalog.db')", source)
