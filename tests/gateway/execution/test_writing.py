"""Commits of writes, on a real disk and over a real metastore; what Spark would write, Arrow writes here."""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.compiled import SPARK_WRITER, compiled
from engines.errors import DeadlineExceeded, EngineError, StatementCancelled
from engines.files.listing import data_files
from engines.protocol import WriteTarget
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.partition_values import value_of
from gateway.catalog.registration import Registration
from gateway.commands.command import Write
from gateway.commands.ddl.tables import CreateTable, DropTable
from gateway.commands.dml.inserts import InsertInto
from gateway.errors import WriteFailed, WritePending
from gateway.execution.staged_rows import Produce
from gateway.execution.writing import TableWriter
from gateway.security.policy import Policy
from gateway.statements.partitions import Overwrite
from gateway.statements.statement import Run, Statement
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.records import ManagedFolder, QueryState
from metastore.store import Metastore
from sql.errors import Failure
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource
from tests.metastore.writing import at_once

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = compiled(check("SELECT 1 AS n", "spark", catalog={}, limits=ParserLimits()), [SPARK_WRITER])


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield metastore


@pytest.fixture
def lake(tmp_path: Path) -> LakeTables:
    return LakeTables(tmp_path / "snapshots", wait_s=10.0)


@pytest.fixture
def writer(metastore: Metastore, tmp_path: Path, lake: LakeTables) -> TableWriter:
    rules = Rules(own=(tmp_path / "home", tmp_path / "warehouse"))
    registration = Registration(
        metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=tmp_path / "lists"
    )
    folders = OwnFolders(metastore, tmp_path / "warehouse", "", lake.remove)
    return TableWriter(metastore, folders, registration, lake, retry_s=0.3)


@pytest.fixture
def impatient(metastore: Metastore, tmp_path: Path, lake: LakeTables) -> TableWriter:
    """Return a writer that hardly waits for others."""
    rules = Rules(own=(tmp_path / "home", tmp_path / "warehouse"))
    registration = Registration(
        metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=tmp_path / "lists"
    )
    folders = OwnFolders(metastore, tmp_path / "warehouse", "", lake.remove)
    return TableWriter(metastore, folders, registration, lake, turn_s=0.2)


def a_table(metastore: Metastore, root: Path, files: Mapping[str, int], *, partition: str | None = None) -> TableSource:
    """Register a table of these files, with one row each. partition: type of the column p, which is a folder."""
    for name, value in files.items():
        put_file(root / name, value)
    found = inspect("t", root)
    if partition is not None:
        columns = (Column("n", "bigint"), Column("p", partition))
        found = inspect("t", root, columns=columns)
    return metastore.catalog.put(found, at=NOW).source


def put_file(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([value], pa.int64())}), path)


def producing(files: Mapping[str, int], *, when: threading.Barrier | None = None) -> Produce:
    """Return what writes these files, and then waits until others have written theirs."""

    def produce(_sql: str, target: WriteTarget) -> pa.Schema:
        Path(target.folder).mkdir(parents=True)
        for name, value in files.items():
            put_file(Path(target.folder) / name, value)
        if when is not None:
            when.wait(timeout=10)
        return pa.schema([("n", pa.int64())])

    return produce


def numbers(root: Path) -> list[int]:
    """Return what a reader of a table's folder sees."""
    return sorted(value for file in data_files(root) for value in pq.ParquetFile(file.path).read()["n"].to_pylist())


def insert(
    source: TableSource, *, overwrite: Overwrite | None = Overwrite.STATIC, **constants: str | None
) -> InsertInto:
    return InsertInto(source, ROWS, ("n",), constants, overwrite)


def a_run() -> Run:
    return Run(Statement(sql="INSERT"))


def test_of_overwrites_at_once_one_result_is_left(metastore: Metastore, writer: TableWriter, tmp_path: Path) -> None:
    writers = 8
    source = a_table(metastore, tmp_path / "t", {"old.parquet": 0})
    both_written = threading.Barrier(writers)

    def overwrite(value: int) -> None:
        writer.write(insert(source), a_run(), producing({f"{value}.parquet": value}, when=both_written))

    threads = [threading.Thread(target=overwrite, args=[value]) for value in range(1, writers + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbers(tmp_path / "t")) == 1
    assert list((tmp_path / "t").glob(".*")) == []


def test_a_commit_waits_for_another_gateways(metastore: Metastore, writer: TableWriter, tmp_path: Path) -> None:
    root = tmp_path / "t"
    source = a_table(metastore, root, {"old.parquet": 0})
    folder = os.open(root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as another process would hold it
    arguments = (insert(source), a_run(), producing({"new.parquet": 1}))
    thread = threading.Thread(target=writer.write, args=arguments)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert numbers(root) == [0]
    os.close(folder)
    thread.join(10)
    assert numbers(root) == [1]


@pytest.fixture
def held(metastore: Metastore, tmp_path: Path) -> Iterator[TableSource]:
    """Make a table whose folder is held as another process would hold it, for ever."""
    source = a_table(metastore, tmp_path / "t", {"old.parquet": 0})
    folder = os.open(tmp_path / "t", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield source
    os.close(folder)


WRITES: Mapping[str, Callable[[TableSource], Write]] = {
    "insert": lambda table: insert(table),
    "overwrite": lambda table: insert(table, overwrite=Overwrite.STATIC),
    "drop": lambda table: DropTable(table.name, existing=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("ending", [StatementCancelled, DeadlineExceeded])
def test_a_write_that_waits_for_others_hears_cancel_and_deadline(
    writer: TableWriter, held: TableSource, write: Callable[[TableSource], Write], ending: type[EngineError]
) -> None:
    deadline_s = 0.2 if ending is DeadlineExceeded else 60.0
    run = Run(Statement(sql="INSERT", deadline_s=deadline_s))
    if ending is StatementCancelled:
        threading.Timer(0.2, run.cancel).start()
    with pytest.raises(ending):
        writer.write(write(held), run, producing({"new.parquet": 1}))
    assert numbers(Path(held.location)) == [0]
    assert list(Path(held.location).glob(".*")) == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_write_does_not_wait_for_ever_for_who_hangs(
    metastore: Metastore, impatient: TableWriter, held: TableSource, write: Callable[[TableSource], Write]
) -> None:
    with pytest.raises(WriteFailed, match="send it again") as caught:
        impatient.write(write(held), a_run(), producing({"new.parquet": 1}))
    assert caught.value.failure.code == "TABLE_BUSY"
    assert numbers(Path(held.location)) == [0]
    assert metastore.catalog.get(held.name) is not None


def test_a_gateway_starts_while_another_holds_a_folder(
    metastore: Metastore, writer: TableWriter, held: TableSource
) -> None:
    dead = a_run()
    at_once(metastore.queries).open(dead.record)
    metastore.commits.begin(dead.id, held.location, at=NOW)
    at_once(metastore.queries).close(dead.id, QueryState.FAILED, at=NOW, error=Failure("GATEWAY_STOPPED", "stopped"))
    writer.recover()
    assert numbers(Path(held.location)) == [0]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_committed_write_whose_files_cannot_be_moved_is_late_and_not_failed(
    metastore: Metastore, writer: TableWriter, tmp_path: Path, overwrite: bool
) -> None:
    root = tmp_path / "t"
    source = a_table(metastore, root, {"old.parquet": 0})
    (root / "new.parquet").mkdir()  # in the way: no file can take its name
    with pytest.raises(WriteFailed, match="do not send it again") as caught:
        writer.write(
            insert(source, overwrite=Overwrite.STATIC if overwrite else None), a_run(), producing({"new.parquet": 1})
        )
    assert caught.value.failure.code == WritePending.code
    assert numbers(root) == [0]  # what is replaced goes last: readers never miss rows
    with pytest.raises(WriteFailed) as caught:
        writer.write(insert(source, overwrite=None), a_run(), producing({"more.parquet": 2}))
    assert caught.value.failure.code == WriteFailed.code  # it would have come before the one that waits
    writer.recover()  # a gateway that starts does not fail either
    assert numbers(root) == [0]
    (root / "new.parquet").rmdir()
    writer.write(insert(source, overwrite=None), a_run(), producing({"more.parquet": 2}))
    assert numbers(root) == ([1, 2] if overwrite else [0, 1, 2])
    assert list(root.glob(".*")) == []


def test_a_disk_that_is_well_again_soon_is_waited_for(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    source = a_table(metastore, root, {"old.parquet": 0})
    (root / "new.parquet").mkdir()
    threading.Timer(0.1, (root / "new.parquet").rmdir).start()
    writer.write(insert(source), a_run(), producing({"new.parquet": 1}))
    assert numbers(root) == [1]


def test_a_commit_that_was_broken_off_in_the_middle_is_ended(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    a_table(metastore, root, {"old.parquet": 0, "1.parquet": 1})  # of the new files, one is in its place already
    put_file(root / ".fusion-commit-20260101_000000_aa" / "2.parquet", 2)
    metastore.commits.begin("20260101_000000_aa", str(root), at=NOW)
    metastore.commits.prepare("20260101_000000_aa", files=["1.parquet", "2.parquet"], replaced=["old.parquet"])
    writer.recover()
    assert numbers(root) == [1, 2]
    assert list(root.glob(".*")) == []


@pytest.mark.parametrize(
    ("data_type", "folder", "constant", "written"),
    [
        ("int", "1", "01", "1"),
        ("bigint", "1", " 1", "1"),
        ("int", "01", "1", "1"),  # a folder that somebody else named
        ("date", "2024-01-05", "2024-1-5", "2024-01-05"),
        ("string", "__HIVE_DEFAULT_PARTITION__", "", "__HIVE_DEFAULT_PARTITION__"),
        ("string", "__HIVE_DEFAULT_PARTITION__", None, "__HIVE_DEFAULT_PARTITION__"),
        ("string", "01", "01", "01"),
        ("decimal(5,2)", "1.50", "1.5", "1.50"),
    ],
)
@pytest.mark.parametrize("rows", [True, False])
def test_an_overwritten_partition_is_found_by_its_value(
    metastore: Metastore,
    writer: TableWriter,
    tmp_path: Path,
    data_type: str,
    folder: str,
    constant: str | None,
    written: str,
    rows: bool,
) -> None:
    root = tmp_path / "t"
    files = {f"p={folder}/old.parquet": 0, "p=7777/other.parquet": 5}
    if data_type == "date":
        files = {f"p={folder}/old.parquet": 0, "p=2024-01-06/other.parquet": 5}
    source = a_table(metastore, root, files, partition=data_type)
    produced = {f"p={written}/new.parquet": 1} if rows else {}
    writer.write(insert(source, p=constant), a_run(), producing(produced))
    assert numbers(root) == ([1, 5] if rows else [5])


@pytest.mark.parametrize(
    ("data_type", "texts"),
    [
        ("int", ["1", "01", " 1", "+1"]),
        ("double", ["1.0", "1", "1e0"]),
        ("boolean", ["true", "T", "yes", "1"]),
        ("date", ["2024-01-01", "2024-1-1", "2024", "2024-01-01 12:00:00"]),
        ("timestamp", ["2024-01-05 00:00:00", "2024-01-05", "2024-1-5T00:00", "2024-01-05 02:00:00+02:00"]),
        ("decimal(5,2)", ["1.50", "1.5", "1.495"]),
        ("string", ["", None, "__HIVE_DEFAULT_PARTITION__"]),
    ],
)
def test_texts_of_one_partition(data_type: str, texts: list[str | None]) -> None:
    assert len({value_of(text, data_type) for text in texts}) == 1


def test_texts_of_other_partitions() -> None:
    assert value_of("01", "string") != value_of("1", "string")
    assert value_of("1", "int") != value_of("2", "int")
    assert value_of("no number", "int") == "no number"


def test_files_that_another_table_uses_stay(metastore: Metastore, writer: TableWriter, tmp_path: Path) -> None:
    root = tmp_path / "warehouse" / "t-1"
    a_table(metastore, root, {"1.parquet": 1})
    metastore.folders.add(ManagedFolder(str(root), "1"), at=NOW)
    metastore.catalog.put(inspect("second", root), at=NOW)
    writer.write(DropTable("t", existing=True), a_run(), producing({}))
    assert metastore.catalog.get("t") is None
    assert numbers(root) == [1]
    writer.write(DropTable("second", existing=True), a_run(), producing({}))
    assert not root.exists()


def test_a_copy_of_a_home_leaves_the_files_of_the_first_one(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    dropped, unmade = (tmp_path / "first home" / "warehouse" / name for name in ("t-1", "u-2"))
    a_table(metastore, dropped, {"1.parquet": 1})
    producing({"1.parquet": 2})("", WriteTarget(str(unmade), "parquet"))
    for number, folder in enumerate((dropped, unmade), 1):
        metastore.folders.add(ManagedFolder(str(folder), str(number)), at=NOW)
    writer.write(DropTable("t", existing=True), a_run(), producing({}))
    writer.recover()
    assert metastore.catalog.get("t") is None
    assert (numbers(dropped), numbers(unmade)) == ([1], [2])


def test_a_table_that_is_inside_another_keeps_its_files(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    root = tmp_path / "warehouse" / "t-1"
    a_table(metastore, root, {"p=1/1.parquet": 1})
    metastore.catalog.put(inspect("inner", root / "p=1"), at=NOW)
    writer.write(DropTable("t", existing=True), a_run(), producing({}))
    assert numbers(root / "p=1") == [1]


def test_the_folder_of_a_table_that_was_never_made_is_swept(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    run = a_run()
    at_once(metastore.queries).open(run.record)
    target = tmp_path / "warehouse" / f"t-{run.id}"
    metastore.folders.add(ManagedFolder(str(target), run.id), at=NOW)
    producing({"1.parquet": 1})("", WriteTarget(str(target), "parquet"))
    foreign = tmp_path / "warehouse" / f"other-{run.id}"  # named like one of ours, and on no record
    foreign.mkdir()
    writer.recover()
    assert target.exists()  # somebody is at it
    at_once(metastore.queries).close(run.id, QueryState.FAILED, at=NOW, error=Failure("GATEWAY_STOPPED", "stopped"))
    writer.recover()
    assert not target.exists()
    assert foreign.exists()
    assert metastore.folders.list() == ()


def test_the_folder_of_a_table_that_was_made_is_not_swept(
    metastore: Metastore, writer: TableWriter, tmp_path: Path
) -> None:
    run = a_run()
    at_once(metastore.queries).open(run.record)
    create = CreateTable("made", ROWS, ())
    writer.write(create, run, producing({"1.parquet": 1}))
    at_once(metastore.queries).close(
        run.id, QueryState.FAILED, at=NOW, error=Failure("GATEWAY_STOPPED", "killed too early")
    )
    writer.recover()
    assert numbers(tmp_path / "warehouse" / f"made-{run.id}") == [1]


def test_a_table_whose_folder_is_gone_can_be_dropped(metastore: Metastore, writer: TableWriter, tmp_path: Path) -> None:
    source = a_table(metastore, tmp_path / "t", {"1.parquet": 1})
    shutil.rmtree(source.location)
    writer.write(DropTable("t", existing=True), a_run(), producing({}))
    assert metastore.catalog.get("t") is None
