"""Changes beside other writes: what is done again, what is not, and what is left when it comes to nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import StatementError
from engines.files.listing import data_files
from engines.protocol import WriteTarget
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.registration import Registration
from gateway.commands.classification import read_command
from gateway.commands.dml.change_queries import CHANGED, ChangeRows
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.errors import SeveralMatches, WriteConflict
from gateway.execution.changing.table_changer import TRIES
from gateway.execution.staged_rows import Produce
from gateway.execution.writing import TableWriter
from gateway.security.policy import Policy
from gateway.statements.partitions import Overwrite, PartitionSettings
from gateway.statements.statement import Run, Statement
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.records import ManagedFolder
from metastore.store import Metastore
from sql.parsing import ParserLimits
from sql.tables import TableSource

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
UPDATE = "UPDATE t SET n = 7 WHERE n = 1"
OF_ITSELF = "UPDATE t SET n = 7 WHERE n IN (SELECT n FROM t)"
MERGE = "MERGE INTO t USING (VALUES (1)) AS s(n) ON t.n = s.n WHEN MATCHED THEN UPDATE SET n = 7"


def put_file(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([value], pa.int64())}), path)


class World:
    """A table t of two files, one row each, and a writer. The engine is played: it says that 1.parquet is hit."""

    def __init__(self, metastore: Metastore, folder: Path) -> None:
        self.metastore = metastore
        self.root = folder / "warehouse" / "t"
        for value in (1, 2):
            put_file(self.root / f"{value}.parquet", value)
        metastore.folders.add(ManagedFolder(str(self.root), "q"), at=NOW)
        self.source: TableSource = metastore.catalog.put(inspect("t", self.root), at=NOW).source
        rules = Rules(own=(folder / "home", folder / "warehouse"))
        registration = Registration(metastore, Locations(rules), policy=Policy(), announce=lambda: None)
        self.writer = TableWriter(metastore, folder / "warehouse", registration)
        self.rewrites = 0

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
            put_file(Path(target.folder) / f"added-{value}-{self.rewrites}.parquet", value)
            return pa.schema([("n", pa.int64())])

        self.writer.write(write, Run(Statement(sql=sql)), produce)

    def numbers(self) -> list[int]:
        return sorted(pq.ParquetFile(file.path).read()["n"][0].as_py() for file in data_files(self.root))

    def hidden(self) -> list[Path]:
        return list(self.root.glob(".*"))

    def _producing(self, meanwhile: Callable[[], None], matches: int) -> Produce:
        def produce(_sql: str, target: WriteTarget) -> pa.Schema:
            folder = Path(target.folder)
            (read,) = (each for each in target.read if each.source.name == CHANGED)
            if not target.columns:
                folder.mkdir(parents=True)
                hit = [file for file in read.files if not file.endswith("/2.parquet")]
                rows = [{"..file": f"file://{f}", "matches": matches, "updated": 1, "deleted": 0} for f in hit]
                pq.write_table(pa.Table.from_pylist(rows), folder / "part.parquet")
                return pa.schema([])
            self.rewrites += 1
            for at, _ in enumerate(read.files):
                put_file(folder / f"new-{self.rewrites}-{at}.parquet", 7)
            meanwhile()
            return pa.schema([("n", pa.int64())])

        return produce


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield World(metastore, tmp_path)


def once(action: Callable[[], None]) -> Callable[[], None]:
    waiting = [action]
    return lambda: waiting.pop()() if waiting else None


def test_files_without_rows_to_be_changed_stay(world: World) -> None:
    assert world.change(UPDATE).to_pylist() == [{"num_affected_rows": 1}]
    assert world.numbers() == [2, 7]
    assert (world.root / "2.parquet").exists()
    assert not (world.root / "1.parquet").exists()
    assert world.hidden() == []
    assert world.metastore.commits.list() == ()


def test_rows_that_were_only_added_come_after_an_update(world: World) -> None:
    world.change(UPDATE, once(lambda: world.insert(1)))
    assert world.numbers() == [1, 2, 7]
    assert world.rewrites == 1


@pytest.mark.parametrize("sql", [OF_ITSELF, MERGE])
def test_what_looks_at_the_whole_table_is_done_again_with_rows_that_were_added(world: World, sql: str) -> None:
    world.change(sql, once(lambda: world.insert(1)))
    assert world.numbers() == [2, 7, 7]
    assert world.rewrites == 2
    assert world.hidden() == []


def test_rows_that_others_replaced_are_not_brought_back(world: World) -> None:
    world.change(UPDATE, once(lambda: world.insert(5, Overwrite.STATIC)))
    assert world.numbers() == [7]  # of the file that came in the place of both
    assert world.rewrites == 2


def test_a_table_that_others_replace_each_time_is_left_as_it_is(world: World) -> None:
    with pytest.raises(WriteConflict, match=f"each of the {TRIES} times"):
        world.change(UPDATE, lambda: world.insert(5, Overwrite.STATIC))
    assert world.numbers() == [5]
    assert world.rewrites == TRIES
    assert world.hidden() == []
    assert world.metastore.commits.list() == ()


def test_what_fails_leaves_nothing(world: World) -> None:
    def fail() -> None:
        raise StatementError("it does not fit")

    with pytest.raises(StatementError, match="does not fit"):
        world.change(UPDATE, fail)
    with pytest.raises(SeveralMatches, match="meets 3 rows"):
        world.change(MERGE, matches=3)
    assert world.numbers() == [1, 2]
    assert world.rewrites == 1
    assert world.hidden() == []


def test_a_failure_over_files_that_others_replaced_is_none_of_the_statements(world: World) -> None:
    def lose() -> None:
        world.insert(5, Overwrite.STATIC)
        raise StatementError("there is no such file")

    world.change(UPDATE, once(lose))
    assert world.numbers() == [7]
    with pytest.raises(WriteConflict):
        world.change(UPDATE, lose)
    assert world.numbers() == [5]


def test_a_commit_that_was_broken_off_is_ended_by_the_next_gateway(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill between the rename and the first move would leave it."""
    with monkeypatch.context() as patched:
        patched.setattr(type(world.writer._changer), "_files", lambda *_: data_files(world.root))
        patched.setattr(world.writer._changer, "_make_visible", lambda *_: None)
        world.change(UPDATE)
    assert world.numbers() == [1, 2]
    world.writer.recover()
    assert world.numbers() == [2, 7]
    assert world.hidden() == []
