"""Files that changed after they were registered: a statement reads what all engines read alike, or is refused."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.files.listing import InspectionFailed, data_files
from engines.files.manifest import KEEP_S, read_manifest
from gateway.catalog import readable_files
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.new_table import NewTable
from gateway.catalog.registration import Registration
from gateway.planning.fairness import Requester
from gateway.security.policy import Policy
from gateway.security.principals import Principal, Role
from metastore.database.connection import sqlite_url
from metastore.discovery.inspector import require_fitting
from metastore.records import ManagedFolder
from metastore.store import Metastore
from sql.errors import TableUnreadable
from sql.tables import Column, TableSource

ADA = Principal("ada", Role.ADMIN, authenticated=True)


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield metastore


@pytest.fixture
def registration(metastore: Metastore, tmp_path: Path) -> Registration:
    rules = Rules(own=(tmp_path / "home",), roots=(tmp_path / "data",))
    return Registration(metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=tmp_path / "lists")


@pytest.fixture
def table(registration: Registration, tmp_path: Path) -> Callable[..., Path]:
    """Register a table ``t`` of one file; returns its folder."""

    def register(ending: str = "parquet", under: str = "", **columns: Any) -> Path:
        folder = tmp_path / "data" / "t"
        write(folder / under / f"a.{ending}", **(columns or {"x": pa.array([1], pa.int64())}))
        registration.add(NewTable("t", str(folder)), user=ADA)
        require(registration)
        return folder

    return register


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (pa_orc if path.suffix == ".orc" else pq).write_table(pa.table(columns), path)


def require(registration: Registration) -> None:
    known = registration._registered("t")
    registration.pinned((known.source,), Requester("ada", time.monotonic() + 60))


def refused(registration: Registration) -> str:
    with pytest.raises(TableUnreadable, match=r"^t cannot be read: ") as refusal:
        require(registration)
    return refusal.value.message


@pytest.mark.parametrize("ending", ["parquet", "orc"])
@pytest.mark.parametrize("name", ["b", "a", "more/c"])  # another file, the same one, one in a sub-folder
def test_a_later_file_of_another_type_is_named(
    registration: Registration, table: Callable[..., Path], ending: str, name: str
) -> None:
    folder = table(ending)
    write(folder / f"{name}.{ending}", x=pa.array([2.7]))
    for _ in range(2):
        assert f"{Path(name).name}.{ending} holds the column x as double" in refused(registration)
    assert str(folder) not in refused(registration)
    write(folder / f"{name}.{ending}", x=pa.array([3], pa.int32()))
    require(registration)


def test_a_later_file_of_a_type_that_spark_cannot_read_is_named(
    registration: Registration, table: Callable[..., Path]
) -> None:
    folder = table(t=pa.array([1], pa.timestamp("us")))
    write(folder / "b.parquet", t=pa.array([1], pa.timestamp("ns")))
    assert "b.parquet holds a TIMESTAMP in nanoseconds in the column t" in refused(registration)


def test_a_damaged_later_file_is_named(registration: Registration, table: Callable[..., Path]) -> None:
    folder = table()
    (folder / "b.parquet").write_bytes(b"PAR1 no footer")
    assert "b.parquet is not a readable Parquet file" in refused(registration)
    (folder / "b.parquet").write_bytes(b"")  # has no rows, so that nobody reads it
    require(registration)


@pytest.mark.parametrize(
    ("own", "other", "content", "told"),
    [
        ("a.csv", "b.parquet", b"PAR1 of any content", "b.parquet is a file of parquet, and the table is one of csv"),
        ("a.csv", "b", b"ORC", "b is a file of orc"),
        ("a.csv", "b.json", b'{"x": 1}\n', "b.json is a file of json"),
        ("a.json", "b.csv", b"x,y\n1,2\n", "b.csv is a file of csv, and the table is one of json"),
        ("a.json", "b.json", b"Obj\x01 of any content", "b.json is a file of avro"),
        ("a.csv", "b.txt", b"x,y\n1,2\n", None),
        ("a.csv", "b.csv", b'{"x",y}\n1,2\n', None),
    ],
)
def test_a_later_file_of_another_format_is_not_read_as_text(
    registration: Registration, tmp_path: Path, own: str, other: str, content: bytes, told: str | None
) -> None:
    """Spark reads any bytes as text, so that it answered with rows that nobody has."""
    folder = tmp_path / "data" / "t"
    folder.mkdir(parents=True)
    (folder / own).write_bytes(b"x,y\n1,2\n" if own.endswith("csv") else b'{"x": 1, "y": 2}\n')
    registration.create(NewTable("t", str(folder)), user=ADA)
    require(registration)
    (folder / other).write_bytes(content)
    if told is None:
        require(registration)
    else:
        assert told in refused(registration)


def test_a_table_that_became_one_of_a_lake_format_is_not_read(
    registration: Registration, table: Callable[..., Path]
) -> None:
    folder = table()
    (folder / "_delta_log").mkdir()
    assert "is a table of Delta Lake" in refused(registration)


def test_other_partition_folders_are_told(registration: Registration, table: Callable[..., Path]) -> None:
    folder = table(under="p=1")
    write(folder / "p=2" / "b.parquet", x=pa.array([2], pa.int64()))
    require(registration)
    write(folder / "p=" / "c.parquet", x=pa.array([3], pa.int64()))
    assert "'p=' without a value" in refused(registration)
    shutil.rmtree(folder / "p=")
    for part in ("p=1", "p=2"):
        (folder / part).rename(folder / part.replace("p", "q"))
    assert "its partition folders are q now, not p" in refused(registration)


def test_a_table_whose_files_are_gone_is_told_so_until_they_are_back(
    registration: Registration, table: Callable[..., Path]
) -> None:
    folder = table()
    (folder / "a.parquet").unlink()
    assert "its files are gone" in refused(registration)
    write(folder / "b.parquet", x=pa.array([2], pa.int64()))
    require(registration)
    shutil.rmtree(folder)
    assert "its files are gone" in refused(registration)


def test_a_table_of_declared_columns_may_have_no_files(registration: Registration, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "t"
    folder.mkdir(parents=True)
    registration.create(NewTable("t", str(folder), columns=(Column("x", "bigint"),)), user=ADA)
    require(registration)
    write(folder / "a.parquet", x=["a text"])
    assert "a.parquet holds the column x as string" in refused(registration)


def test_files_that_were_looked_into_are_not_opened_again(
    registration: Registration, table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[list[str]] = []

    def counted(source: Any, files: list[Path]) -> None:
        opened.append([file.name for file in files])
        require_fitting(source, files)

    monkeypatch.setattr(readable_files, "require_fitting", counted)
    folder = table()
    for name in ("b.parquet", "c.parquet"):
        write(folder / name, x=pa.array([2], pa.int64()))
        require(registration)
        require(registration)
    assert opened == [["a.parquet"], ["b.parquet"], ["c.parquet"]]


def test_files_that_the_gateway_wrote_are_not_looked_into(
    registration: Registration, metastore: Metastore, table: Callable[..., Path], tmp_path: Path
) -> None:
    metastore.folders.add(ManagedFolder(str(tmp_path / "data" / "t"), "q"), at=dt.datetime.now(dt.UTC))
    folder = table()
    write(folder / "b.parquet", x=pa.array([2.5]))
    require(registration)


@pytest.mark.parametrize("part", ["", "p=1", "p=1/a.parquet", "to_come"])
@pytest.mark.parametrize("way", ["add", "create"])
def test_no_part_of_a_lake_table_can_be_registered(
    registration: Registration, tmp_path: Path, part: str, way: str
) -> None:
    lake = tmp_path / "data" / "lake"
    write(lake / "p=1" / "a.parquet", n=[1])
    (lake / "_delta_log").mkdir()
    wanted = NewTable("t", str(lake / part), columns=(Column("n", "bigint"),))
    with pytest.raises(InspectionFailed, match="is a table of Delta Lake"):
        (registration.add if way == "add" else registration.create)(wanted, user=ADA)
    assert sorted(path.name for path in lake.iterdir()) == ["_delta_log", "p=1"]


def test_what_lies_above_the_roots_does_not_count(registration: Registration, tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    write(tmp_path / "data" / "t" / "a.parquet", n=[1])
    registration.add(NewTable("t", str(tmp_path / "data" / "t")), user=ADA)
    require(registration)


def pinned(registration: Registration) -> TableSource:
    (table,) = registration.pinned((registration._registered("t").source,), Requester("ada", time.monotonic() + 60))
    assert table.snapshot is not None
    return table


def names(table: TableSource) -> list[str]:
    assert table.snapshot is not None
    manifest = read_manifest(table.snapshot.manifest)
    return [manifest.relative(file) for file in manifest.files]


def test_files_are_listed_once_while_they_stay(
    registration: Registration, table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []

    def counted(root: Path, alive: Callable[[], None]) -> Any:
        listed.append(root)
        return data_files(root, alive)

    folder = table(under="deep")
    (folder / "deep" / "empty.parquet").touch()
    monkeypatch.setattr(readable_files, "data_files", counted)
    monkeypatch.setattr(registration.files, "_settled_s", 0.01)
    time.sleep(0.05)
    first = pinned(registration)
    assert all(pinned(registration) is first for _ in range(3))
    assert (len(listed), names(first)) == (1, ["deep/a.parquet"])
    write(folder / "deep" / "b.parquet", x=pa.array([2], pa.int64()))
    assert names(pinned(registration)) == ["deep/a.parquet", "deep/b.parquet"]
    (folder / "deep" / "b.parquet").unlink()
    time.sleep(0.05)
    assert pinned(registration) == first


def test_what_has_just_changed_is_listed_again(registration: Registration, table: Callable[..., Path]) -> None:
    folder = table()
    first = pinned(registration)
    assert first.snapshot is not None and not first.snapshot.is_settled
    assert pinned(registration) is first  # of the same files
    os.utime(folder / "a.parquet")
    assert pinned(registration).snapshot != first.snapshot


def test_a_name_that_is_no_text_is_told(registration: Registration, table: Callable[..., Path]) -> None:
    folder = table()
    shutil.copy(folder / "a.parquet", folder / os.fsdecode(b"\xff.parquet"))
    assert "is not UTF-8" in refused(registration)


def test_old_lists_are_deleted(registration: Registration, table: Callable[..., Path], tmp_path: Path) -> None:
    folder = table()
    before = pinned(registration)
    assert before.snapshot is not None
    os.utime(before.snapshot.manifest, (time.time() - 2 * KEEP_S,) * 2)
    registration.files._delete_at_s = time.monotonic()
    write(folder / "b.parquet", x=pa.array([2], pa.int64()))
    after = pinned(registration)
    assert after.snapshot is not None
    assert [str(path) for path in (tmp_path / "lists").iterdir()] == [after.snapshot.manifest]


def test_several_threads_list_the_same_files(registration: Registration, table: Callable[..., Path]) -> None:
    folder = table()
    for number in range(20):
        write(folder / f"{number}.parquet", x=pa.array([2], pa.int64()))
        begin = threading.Barrier(8)

        def look(begin: threading.Barrier = begin) -> TableSource:
            begin.wait()
            return pinned(registration)

        with ThreadPoolExecutor(8) as threads:
            looks = [threads.submit(look) for _ in range(8)]
        assert {len(names(one.result())) for one in looks} == {number + 2}
