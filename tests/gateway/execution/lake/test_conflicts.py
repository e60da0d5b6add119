"""Changes beside other commits: what is done again, what is not, and what is left when it comes to nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import StatementError
from engines.files.manifest import SnapshotFile, read_manifest
from engines.protocol import WriteTarget
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.registration import Registration
from gateway.commands.classification import read_command
from gateway.commands.dml.change_queries import CHANGED, ChangeRows
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.errors import SeveralMatches, WriteConflict
from gateway.execution.lake.writer import TRIES
from gateway.execution.staged_rows import Produce
from gateway.execution.writing import TableWriter
from gateway.security.policy import Policy
from gateway.statements.partitions import Overwrite, PartitionSettings
from gateway.statements.statement import Run, Statement
from metastore.database.connection import sqlite_url
from metastore.lake import writing
from metastore.lake.resolution import pin
from metastore.records import Inspection, ManagedFolder
from metastore.store import Metastore
from sql.parsing import ParserLimits
from sql.tables import LAKE_FORMATS, Column, TableSource

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
UPDATE = "UPDATE t SET n = 7 WHERE n = 1"
OF_ITSELF = "UPDATE t SET n = 7 WHERE n IN (SELECT n FROM t)"
MERGE = "MERGE INTO t USING (VALUES (1)) AS s(n) ON t.n = s.n WHEN MATCHED THEN UPDATE SET n = 7"


def put_file(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([value], pa.int64())}), path)


class World:
    """A lake table t of two files, one row each, and a writer. The engine is played: it changes rows that are not 2."""

    def __init__(self, metastore: Metastore, lake: LakeTables, folder: Path, format: str) -> None:
        self.folder = folder
        root = folder / "warehouse" / "t"
        self.source = TableSource("t", str(root), format, (Column("n", "bigint"),))
        root.mkdir(parents=True)
        writing.create(self.source, (), {})
        metastore.folders.add(ManagedFolder(str(root), "q"), at=NOW)
        metastore.catalog.put(Inspection(self.source, 0, 0, 0), at=NOW)
        rules = Rules(own=(folder / "home", folder / "warehouse"))
        registration = Registration(
            metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=folder / "lists", lake=lake
        )
        folders = OwnFolders(metastore, folder / "warehouse", "", lake.remove)
        self.writer = TableWriter(metastore, folders, registration, lake)
        self.rewrites = 0
        self.own: frozenset[str] = frozenset()  # files of the table that the last rewrite's sub-queries read
        for value in (1, 2):
            self.insert(value)

    def change(self, sql: str, meanwhile: Callable[[], None] = lambda: None, *, matches: int = 1) -> pa.Table:
        change = read_command(sql, Context("spark", {"t": self.source}, ParserLimits()), FAMILIES)
        assert isinstance(change, ChangeRows)
        return self.writer.write(change, Run(Statement(sql=sql)), self._producing(meanwhile, matches))

    def insert(self, value: int, mode: Overwrite | None = None) -> None:
        verb = "OVERWRITE" if mode else "INTO"
        sql = f"INSERT {verb} t SELECT {value} AS n"
        context = Context("spark", {"t": self.source}, ParserLimits(), partitions=PartitionSettings(mode))
        write = read_command(sql, context, FAMILIES)
        assert isinstance(write, InsertInto)

        def produce(_sql: str, target: WriteTarget) -> pa.Schema:
            put_file(Path(target.folder) / "part.parquet", value)
            return pa.schema([("n", pa.int64())])

        self.writer.write(write, Run(Statement(sql=sql)), produce)

    def files(self) -> tuple[SnapshotFile, ...]:
        return read_manifest(pin(self.source, None, self.folder / "manifests").snapshot.manifest).files

    def numbers(self) -> list[int]:
        return sorted(number for file in self.files() for number in values(file.path))

    def staged(self) -> list[Path]:
        return list((self.folder / "warehouse").glob("*-rows-*"))

    def _producing(self, meanwhile: Callable[[], None], matches: int) -> Produce:
        def produce(_sql: str, target: WriteTarget) -> pa.Schema:
            folder = Path(target.folder)
            if not any(table.source.name == CHANGED for table in target.read):
                put_file(folder / "part.parquet", 1)  # a MERGE's source
                return pa.schema([("n", pa.int64())])
            (read,) = (table for table in target.read if table.source.name == CHANGED)
            if not target.columns:
                folder.mkdir(parents=True)
                hit = [file for file in read.files if values(file) != [2]]
                rows = [{"..file": f"file://{file}", "matches": matches, "updated": 1, "deleted": 0} for file in hit]
                pq.write_table(pa.Table.from_pylist(rows), folder / "part.parquet")
                return pa.schema([])
            self.rewrites += 1
            self.own = frozenset(path for table in target.read if table.source.name == "t" for path in table.files)
            for at, _ in enumerate(read.files):
                put_file(folder / f"{at}.parquet", 7)
            meanwhile()
            return pa.schema([("n", pa.int64())])

        return produce


def values(path: str) -> list[int]:
    numbers: list[int] = pq.ParquetFile(path).read()["n"].to_pylist()
    return numbers


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeTables]:
    tables = LakeTables(tmp_path_factory.mktemp("snapshots"), wait_s=30.0)
    yield tables
    tables.close()


@pytest.fixture(params=LAKE_FORMATS)
def world(tmp_path: Path, lake: LakeTables, request: pytest.FixtureRequest) -> Iterator[World]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield World(metastore, lake, tmp_path, request.param)


def once(action: Callable[[], None]) -> Callable[[], None]:
    waiting = [action]
    return lambda: waiting.pop()() if waiting else None


def test_files_without_rows_to_be_changed_stay(world: World) -> None:
    (kept,) = (file.path for file in world.files() if values(file.path) == [2])
    assert world.change(UPDATE).to_pylist() == [{"num_affected_rows": 1}]
    assert world.numbers() == [2, 7]
    assert kept in {file.path for file in world.files()}
    assert world.staged() == []


def test_rows_that_were_only_added_come_after_an_update(world: World) -> None:
    world.change(UPDATE, once(lambda: world.insert(1)))
    assert world.numbers() == [1, 2, 7]
    assert world.rewrites == 1


@pytest.mark.parametrize("sql", [OF_ITSELF, MERGE])
def test_what_looks_at_the_whole_table_is_done_again_with_rows_that_were_added(world: World, sql: str) -> None:
    before = {file.path for file in world.files()}
    world.change(sql, once(lambda: world.insert(1)))
    assert world.numbers() == [2, 7, 7]
    assert world.rewrites == 2
    assert world.own > before
    assert world.staged() == []


def test_rows_that_others_replaced_are_not_brought_back(world: World) -> None:
    world.change(UPDATE, once(lambda: world.insert(5, Overwrite.STATIC)))
    assert world.numbers() == [7]  # of the file that came in the place of both
    assert world.rewrites == 2


def test_a_table_that_others_replace_each_time_is_left_as_it_is(world: World) -> None:
    with pytest.raises(WriteConflict, match=f"each of the {TRIES} times"):
        world.change(UPDATE, lambda: world.insert(5, Overwrite.STATIC))
    assert world.numbers() == [5]
    assert world.rewrites == TRIES
    assert world.staged() == []


def test_what_fails_leaves_nothing(world: World) -> None:
    def fail() -> None:
        raise StatementError("it does not fit")

    with pytest.raises(StatementError, match="does not fit"):
        world.change(UPDATE, fail)
    with pytest.raises(SeveralMatches, match="meets 3 rows"):
        world.change(MERGE, matches=3)
    assert world.numbers() == [1, 2]
    assert world.rewrites == 1
    assert world.staged() == []
