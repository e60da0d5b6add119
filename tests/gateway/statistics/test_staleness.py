"""Staleness of lake tables: beside a real build, after commits of the formats' own libraries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engines.protocol import EngineKind
from engines.scripted import ScriptedEngine
from gateway.statistics.staleness import Drift
from metastore.records import Staleness
from tests.gateway.house import House, opened
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector
from tests.statsproc.test_lake import built

ROWS = pa.table({"id": range(100)})
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with opened(tmp_path / "home", ScriptedEngine("fast", kind=EngineKind.FAST)) as house:
        yield house


def computed(house: House, folder: Path, format: str, manifests: Path) -> None:
    """Register a table as t, and compute its statistics."""
    house.register("t", folder)
    found = built(folder, format, manifests)
    house.gateway.metastore.statistics.publish(found.statistics, at=NOON, parts=found.parts)


def drift(house: House) -> Drift | None:
    table = house.gateway.catalog.current().tables["t"]
    return house.gateway.freshness.look(table, house.gateway.metastore.statistics.current("t"))


def test_each_commit_of_a_delta_table_counts(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, ROWS)
    computed(house, folder, "delta", tmp_path / "m")
    assert drift(house) == Drift(0, 0, 0, 1)
    delete_by_vector(folder, [1, 2])
    assert drift(house) == Drift(0, 1, 0, 1)
    write_deltalake(folder, ROWS, mode="append")
    assert drift(house) == Drift(1, 1, 0, 2)
    stale = house.gateway.freshness.why_stale(
        Staleness(changed_files=0.5),
        house.gateway.catalog.current().tables["t"],
        house.gateway.metastore.statistics.current("t"),
        at=NOON,
    )
    assert stale == "100% of its files have changed"
    DeltaTable(folder).restore(0)
    assert drift(house) == Drift(0, 0, 0, 1)


def test_without_marks_the_number_of_files_tells(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, ROWS)
    house.register("t", folder)
    house.gateway.metastore.statistics.publish(built(folder, "delta", tmp_path / "m").statistics, at=NOON)
    assert drift(house) == Drift(0, 0, 0, 1)
    write_deltalake(folder, ROWS, mode="append")
    assert drift(house) == Drift(1, 0, 0, 2)
    write_deltalake(folder, ROWS.slice(0, 0), mode="overwrite")
    assert drift(house) == Drift(0, 0, 1, 1)


def test_a_table_that_cannot_be_read_is_due(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, ROWS)
    computed(house, folder, "delta", tmp_path / "m")
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{", encoding="utf-8")
    table, build = house.gateway.catalog.current().tables["t"], house.gateway.metastore.statistics.current("t")
    assert house.gateway.freshness.why_stale(Staleness(changed_files=0.5), table, build, at=NOON) is not None


def test_each_commit_of_an_iceberg_table_counts(house: House, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    folder = Path(table.location().removeprefix("file://"))
    computed(house, folder, "iceberg", tmp_path / "m")
    assert drift(house) == Drift(0, 0, 0, 1)
    delete_by_position(table, [5])
    assert drift(house) == Drift(0, 1, 0, 1)
    table.overwrite(ROWS)
    assert drift(house) == Drift(1, 0, 1, 2)
