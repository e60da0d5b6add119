"""Conformance of an engine to each lake format: an engine that reads the format inherits its class."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from engines.errors import UnsupportedFeature
from engines.protocol import Engine, Lease
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.lake.values import At, SnapshotName
from sql.tables import TableSource
from tests.lake_tables import add_without_partition, catalog_at, delete_by_position, delete_by_vector, map_columns

NUMBERED_BACKWARDS = {
    "file_row_number": pa.array(range(9, -1, -1), pa.int64()),
    "_metadata": pa.array([{"row_index": number, "file_path": "x"} for number in range(9, -1, -1)]),
    "fusion deleted key": pa.array(range(10), pa.int64()),
    "position": pa.array(range(10), pa.int64()),
}
NAMES_OF_ENGINES = tuple(NUMBERED_BACKWARDS)
"""Names by which engines, or we, know the number of a row."""
HIDING = ("file_row_number", "_metadata")
"""Those that hide it from an engine, which may leave the statement to another one."""
TEXTS = pa.table({"id": pa.array([0, 1], pa.int64()), "s": ["é", "\\x41z"]})
LEASE = Lease(memory_bytes=256 << 20)
ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)]})


def table_at(folder: Path, format: str, manifests: Path, *, version: str | None = None) -> TableSource:
    """Return the table in a folder with its newest snapshot, or another one."""
    name = None if version is None else SnapshotName(At.VERSION, version)
    state = pin_location(format, TablePlace(str(folder)), name, manifests)
    return TableSource("t", str(folder), format, state.columns, state.partition_columns, snapshot=state.snapshot)


class LakeConformance:
    """What both formats share. A subclass gives the engine."""

    def rows(self, engine: Engine, sql: str, table: TableSource) -> list[dict[str, Any]]:
        """Return the rows of a statement about one table, after it was planned."""
        engine.explain(sql, snapshots=[table])
        with engine.execute(sql, query_id=uuid.uuid4().hex, lease=LEASE, deadline_s=120.0, snapshots=[table]) as result:
            found: list[dict[str, Any]] = pa.Table.from_batches(list(result), result.schema).to_pylist()
            return found

    def ids(self, engine: Engine, table: TableSource) -> list[int]:
        """Return the ids of a table, in order."""
        return [row["id"] for row in self.rows(engine, "SELECT id FROM t ORDER BY id", table)]

    def require(
        self, engine: Engine, sql: str, table: TableSource, values: list[Any], *, may_refuse: bool = False
    ) -> None:
        """Require the values of a statement's one column. may_refuse: the engine may leave it to another one."""
        try:
            rows = self.rows(engine, sql, table)
        except UnsupportedFeature:
            assert may_refuse
            return
        assert [value for row in rows for value in row.values()] == values


class DeltaConformance(LakeConformance):
    """Reading Delta tables."""

    def test_deletion_vectors(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", ROWS)
        delete_by_vector(tmp_path / "t", [1, 3])
        table = table_at(tmp_path / "t", "delta", tmp_path)
        assert table.snapshot is not None
        assert table.snapshot.rows == 8
        assert self.ids(engine, table) == [0, 2, 4, 5, 6, 7, 8, 9]

    def test_an_older_version(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", ROWS)
        DeltaTable(tmp_path / "t").delete("id > 4")
        assert self.ids(engine, table_at(tmp_path / "t", "delta", tmp_path)) == [0, 1, 2, 3, 4]
        assert self.ids(engine, table_at(tmp_path / "t", "delta", tmp_path, version="0")) == list(range(10))

    def test_partition_values_come_from_the_log(self, engine: Engine, tmp_path: Path) -> None:
        values: dict[str, list[Any]] = {
            "text": ["a b", "c/d", None, "é=%20"],
            "day": [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None, dt.date(2024, 1, 1)],
            "amount": [Decimal("1.50"), Decimal("2.05"), None, Decimal("0.00")],
            "flag": [True, False, None, True],
            "moment": [dt.datetime(2024, 1, 1, 12, 30, 0, 5, tzinfo=dt.UTC), *[None] * 3],
        }
        rows = pa.table({"id": pa.array(range(4), pa.int64()), **values})
        write_deltalake(tmp_path / "t", rows, partition_by=list(values))
        table = table_at(tmp_path / "t", "delta", tmp_path)
        found = self.rows(engine, "SELECT * FROM t ORDER BY id", table)
        assert [row["text"] for row in found] == values["text"]
        assert [row["day"] for row in found] == values["day"]
        assert [row["amount"] for row in found] == values["amount"]
        assert [row["flag"] for row in found] == values["flag"]
        assert [row["moment"] for row in found] == values["moment"]
        assert self.rows(engine, "SELECT id FROM t WHERE text = 'c/d'", table) == [{"id": 1}]

    def test_folders_with_signs_in_their_names(self, engine: Engine, tmp_path: Path) -> None:
        values = ["a\\b", "a=b", "a?b", "a\nb", "a#b", "a&b"]
        rows = pa.table({"id": pa.array(range(6), pa.int64()), "p": values})
        write_deltalake(tmp_path / "t", rows, partition_by=["p"])
        log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
        text = log.read_text()
        for folder in (tmp_path / "t").glob("p=*"):  # other writers do not escape them
            text = text.replace(quote(folder.name, safe="="), quote(unquote(folder.name), safe="="))
            folder.rename(folder.with_name(unquote(folder.name)))
        log.write_text(text)
        table = table_at(tmp_path / "t", "delta", tmp_path)
        assert [row["p"] for row in self.rows(engine, "SELECT id, p FROM t ORDER BY id", table)] == values
        self.require(engine, "SELECT id FROM t WHERE p = concat('a', chr(92), 'b')", table, [0])

    def test_subqueries_over_partitions(self, engine: Engine, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array(range(4), pa.int64()), "p": ["a", "b", None, "a"]})
        write_deltalake(tmp_path / "t", rows, partition_by="p")
        table = table_at(tmp_path / "t", "delta", tmp_path)
        odd = "(SELECT 1 FROM (VALUES (1), (3)) AS v(k) WHERE v.k = t.id)"
        for sql in (
            f"SELECT id, CASE WHEN EXISTS {odd} THEN 1 ELSE 0 END AS hit FROM t ORDER BY id",
            f"SELECT id, COALESCE(MAX(one), 0) AS hit FROM (SELECT id, {odd} AS one FROM t) GROUP BY id ORDER BY id",
            "SELECT id, CASE WHEN id IN (SELECT k FROM (VALUES (1), (3)) AS v(k)) THEN 1 ELSE 0 END AS hit FROM t "
            "ORDER BY id",
        ):
            assert [row["hit"] for row in self.rows(engine, sql, table)] == [0, 1, 0, 1], sql

    def test_renamed_columns(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", ROWS)
        map_columns(tmp_path / "t", {"name": "label"})
        table = table_at(tmp_path / "t", "delta", tmp_path)
        assert [column.name for column in table.columns] == ["id", "label"]
        assert self.rows(engine, "SELECT label FROM t WHERE id = 7", table) == [{"label": "n7"}]

    def test_a_column_that_came_later(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", ROWS)
        more = pa.table({"id": pa.array([10], pa.int64()), "name": ["n10"], "extra": [2.5]})
        write_deltalake(tmp_path / "t", more, mode="append", schema_mode="merge")
        table = table_at(tmp_path / "t", "delta", tmp_path)
        found = self.rows(engine, "SELECT id, extra FROM t WHERE id > 8 ORDER BY id", table)
        assert found == [{"id": 9, "extra": None}, {"id": 10, "extra": 2.5}]

    def test_a_table_without_rows(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", ROWS.slice(0, 0))
        assert self.ids(engine, table_at(tmp_path / "t", "delta", tmp_path)) == []

    def test_names_that_are_patterns(self, engine: Engine, tmp_path: Path) -> None:
        """delta-rs makes folders of the columns' names as they are."""
        rows = pa.table(
            {"id": pa.array(range(4), pa.int64()), "{x}": ["a", "b", "a", None], "[y]*": ["?", "z", "\\", "?"]}
        )
        write_deltalake(tmp_path / "t", rows, partition_by=["{x}", "[y]*"])
        assert self.ids(engine, table_at(tmp_path / "t", "delta", tmp_path)) == [0, 1, 2, 3]

    @pytest.mark.parametrize("name", NAMES_OF_ENGINES)
    def test_columns_named_as_what_engines_add(self, engine: Engine, name: str, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array(range(10), pa.int64()), name: NUMBERED_BACKWARDS[name]})
        write_deltalake(tmp_path / "t", rows)
        delete_by_vector(tmp_path / "t", [0, 1, 2])
        table = table_at(tmp_path / "t", "delta", tmp_path)
        self.require(engine, "SELECT id FROM t ORDER BY id", table, list(range(3, 10)), may_refuse=name in HIDING)

    @pytest.mark.parametrize("has_bytes", [False, True])
    def test_texts_that_files_store_without_a_type(self, engine: Engine, has_bytes: bool, tmp_path: Path) -> None:
        rows = TEXTS.append_column("b", pa.array([b"\x00", b"\\x41"])) if has_bytes else TEXTS
        write_deltalake(tmp_path / "t", rows)
        (file,) = (tmp_path / "t").glob("*.parquet")
        pq.write_table(rows.set_column(1, "s", rows["s"].cast(pa.binary())), file)
        table = table_at(tmp_path / "t", "delta", tmp_path)
        self.require(engine, "SELECT s FROM t ORDER BY id", table, TEXTS["s"].to_pylist(), may_refuse=has_bytes)
        self.require(engine, "SELECT id FROM t WHERE s = 'é'", table, [0], may_refuse=has_bytes)

    def test_bytes_that_a_file_stores_as_text(self, engine: Engine, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "t", TEXTS.set_column(1, "s", TEXTS["s"].cast(pa.binary())))
        (file,) = (tmp_path / "t").glob("*.parquet")
        pq.write_table(TEXTS, file)
        table = table_at(tmp_path / "t", "delta", tmp_path)
        values = [text.encode() for text in TEXTS["s"].to_pylist()]
        self.require(engine, "SELECT s FROM t ORDER BY id", table, values, may_refuse=True)


class IcebergConformance(LakeConformance):
    """Reading Iceberg tables."""

    @pytest.mark.parametrize("name", NAMES_OF_ENGINES)
    def test_columns_named_as_what_engines_add(self, engine: Engine, name: str, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array(range(10), pa.int64()), name: NUMBERED_BACKWARDS[name]})
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        delete_by_position(table, [0, 1, 2])
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        self.require(engine, "SELECT id FROM t ORDER BY id", source, list(range(3, 10)), may_refuse=name in HIDING)

    @pytest.mark.parametrize("with_ids", [False, True])
    @pytest.mark.parametrize(
        "values", [["a", "b", None], [b"\x01\x02", b"i\xb7\x1dy\xf8!", None]], ids=["text", "bytes"]
    )
    def test_partition_values_that_files_lack(
        self, engine: Engine, values: list[Any], with_ids: bool, tmp_path: Path
    ) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.array(values).type)])
        table = catalog_at(tmp_path / "lake").create_table("db.t", schema)
        add_without_partition(table, "p", values, with_ids=with_ids)
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        found = self.rows(engine, "SELECT id, p FROM t ORDER BY id", source)
        assert [row["p"] for row in found] == values
        assert self.rows(engine, "SELECT id FROM t WHERE p IS NULL", source) == [{"id": 2}]

    def test_names_that_are_patterns(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        folder = Path(table.location()) / "data"
        folder.mkdir(parents=True)
        names = ("h[1]", "h1", "f?", "f2", "{a,b}", "a", "*")
        for number, name in enumerate(names):
            pq.write_table(ROWS.slice(number, 1), folder / f"{name}.parquet")
        added = [number for number, name in enumerate(names) if name not in ("f2", "a")]
        table.add_files([str(folder / f"{names[number]}.parquet") for number in added])
        assert self.ids(engine, table_at(Path(table.location()), "iceberg", tmp_path)) == added

    def test_position_deletes(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        table.append(ROWS)
        delete_by_position(table, [0, 9])
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert source.snapshot is not None
        assert source.snapshot.rows == 8
        assert self.ids(engine, source) == list(range(1, 9))

    def test_evolved_columns(self, engine: Engine, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array([1], pa.int64()), "a": pa.array([5], pa.int32()), "b": ["old"]})
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        with table.update_schema() as update:
            update.rename_column("a", "count")
            update.delete_column("b")
        with table.update_schema() as update:
            update.add_column("b", DoubleType())  # another column of the name, whose old values are not its own
            update.update_column("count", field_type=LongType())
            update.move_first("count")
        table.append(pa.table({"count": pa.array([1 << 40], pa.int64()), "id": pa.array([2], pa.int64()), "b": [0.5]}))
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert [(column.name, column.data_type) for column in source.columns] == [
            ("count", "bigint"),
            ("id", "bigint"),
            ("b", "double"),
        ]
        assert self.rows(engine, "SELECT * FROM t ORDER BY id", source) == [
            {"count": 5, "id": 1, "b": None},
            {"count": 1 << 40, "id": 2, "b": 0.5},
        ]

    def test_names_that_other_columns_had(self, engine: Engine, tmp_path: Path) -> None:
        """Files have rows of both columns under the name, and statistics of the wrong one."""
        columns = {name: pa.array([value], pa.int64()) for name, value in zip("iabcd", (1, 2, 3, 4, 5), strict=True)}
        rows = pa.table(columns)
        table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
        table.append(rows)
        for old, new in (("a", "_"), ("b", "a"), ("_", "b"), ("c", "old")):
            with table.update_schema() as update:
                update.rename_column(old, new)
        with table.update_schema() as update:
            update.delete_column("d")
        with table.update_schema() as update:
            update.add_column("c", LongType())
            update.add_column("D", LongType())
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        for condition, is_met in {
            **{"a = 3": True, "a = 2": False, "b < 3": True, "b >= 3": False, "a IN (3, 7)": True, "a > 2": True},
            **{"c IS NULL": True, "c IS NOT NULL": False, "c = 4": False, "old = 4": True, "D IS NULL": True},
            **{"D = 5": False, "i = 1": True, "coalesce(c, 9) = 9": True, "a = 3 AND b = 2": True},
        }.items():
            assert bool(self.rows(engine, f"SELECT i FROM t WHERE {condition}", source)) == is_met, condition

    def test_hidden_and_evolved_partitions(self, engine: Engine, tmp_path: Path) -> None:
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "moment", TimestampType(), required=False),
        )
        spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "day"))
        table = catalog_at(tmp_path / "lake").create_table("db.t", schema, partition_spec=spec)
        moments = [dt.datetime(2024, 1, 1 + i % 3, 12) for i in range(10)]
        rows = ROWS.append_column("moment", pa.array(moments, pa.timestamp("us")))
        table.append(rows)
        with table.update_spec() as update:
            update.add_field("name", IdentityTransform())
        table.append(rows.slice(0, 2))
        source = table_at(Path(table.location()), "iceberg", tmp_path)
        assert len(self.ids(engine, source)) == 12
        where = "SELECT COUNT(*) AS n FROM t WHERE name = 'n1'"
        assert self.rows(engine, where, source) == [{"n": 2}]

    def test_a_tag(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        table.append(ROWS.slice(0, 3))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, "first").commit()
        table.append(ROWS.slice(3, 7))
        folder = Path(table.location())
        assert self.ids(engine, table_at(folder, "iceberg", tmp_path, version="first")) == [0, 1, 2]
        assert self.ids(engine, table_at(folder, "iceberg", tmp_path)) == list(range(10))

    def test_a_table_without_a_snapshot(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        assert self.ids(engine, table_at(Path(table.location()), "iceberg", tmp_path)) == []

    def test_files_that_were_added_as_they_are(self, engine: Engine, tmp_path: Path) -> None:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        place = Path(table.location()) / "data" / "added.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, place)
        table.add_files([str(place)])
        assert self.ids(engine, table_at(Path(table.location()), "iceberg", tmp_path)) == list(range(10))
