"""Whether any file of a table has changed, however somebody tries to hide it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.catalog import file_stamps
from gateway.catalog.file_stamps import SETTLED_S, FileStamps, files_at

SETTLES_S = 0.05
ROWS = b"1,a\n2,b\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    for name in ("one", "day=1/two", "day=2/three"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(ROWS)
    time.sleep(SETTLES_S)
    return folder


def seen(*places: Path) -> FileStamps | None:
    return files_at(map(str, places), settled_s=SETTLES_S / 2)


def overwrite(table: Path) -> None:
    """Change a byte in its place, and set the time of change back."""
    file = table / "day=1" / "two"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"9")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def append(table: Path) -> None:
    with (table / "one").open("ab") as opened:
        opened.write(b"3,c\n")


def link(table: Path) -> None:
    (table / "one").unlink()
    (table / "one").symlink_to(table / "day=1" / "two")


def rename_over(table: Path) -> None:
    """Put another file with the same size and time in the place of one."""
    file = table / "one"
    before = file.stat()
    other = table.parent / "other"
    other.write_bytes(ROWS[::-1])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


def exchange(table: Path) -> None:
    """Put another folder in the place of the table's."""
    table.rename(table.parent / "away")
    (table.parent / "away" / "day=1").rename(table.parent / "day=1")
    table.mkdir()
    (table.parent / "day=1").rename(table / "day=1")
    (table.parent / "away" / "day=2").rename(table / "day=2")
    (table / "one").write_bytes(ROWS)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file came": lambda table: (table / "four").write_bytes(ROWS),
    "a file came into a partition": lambda table: (table / "day=2" / "four").write_bytes(ROWS),
    "a partition came": lambda table: (table / "day=3").mkdir(),
    "a file went": lambda table: (table / "day=1" / "two").unlink(),
    "a file grew": append,
    "another name": lambda table: (table / "one").rename(table / "uno"),
    "another partition": lambda table: (table / "day=1").rename(table / "day=9"),
    "a byte in its place": overwrite,
    "another file of the same size and time": rename_over,
    "another folder with the same names": exchange,
    "nobody may read it": lambda table: (table / "one").chmod(0),
    "a link in its place": link,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen(table: Path, change: Callable[[Path], object]) -> None:
    before = seen(table)
    assert before is not None and before.are_unchanged()
    change(table)
    assert not before.are_unchanged()


def test_reading_changes_nothing(table: Path) -> None:
    before = seen(table)
    (table / "one").read_bytes()
    list(table.iterdir())
    assert before is not None and before.are_unchanged()
    assert [Path(path).name for path, _ in before.stamps].count("table") == 1
    assert {Path(path).name for path, _ in before.stamps} == {"table", "one", "day=1", "two", "day=2", "three"}


def test_all_tables_count(table: Path, tmp_path: Path) -> None:
    (single := tmp_path / "single.csv").write_bytes(ROWS)
    time.sleep(SETTLES_S)
    before = seen(table, single, table)
    assert before is not None and len(before.stamps) == 7
    single.write_bytes(ROWS[:4])
    assert not before.are_unchanged()


def test_what_has_just_changed_may_change_again_in_the_same_tick(table: Path) -> None:
    assert files_at([str(table)], settled_s=SETTLED_S) is None
    later = time.time() + 3_600
    os.utime(table / "one", (later, later))
    time.sleep(SETTLES_S)
    assert seen(table) is None  # a clock that goes ahead of ours


def test_what_is_not_clear_is_not_told(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(tmp_path / "nowhere") is None
    (linked := tmp_path / "linked").mkdir()
    (linked / "in").symlink_to(table / "day=1")
    os.mkfifo(tmp_path / "pipe")
    time.sleep(SETTLES_S)
    assert seen(linked) is None
    assert seen(tmp_path / "pipe") is None
    monkeypatch.setattr(file_stamps, "MOST_FILES", 6)
    assert seen(table) is not None
    monkeypatch.setattr(file_stamps, "MOST_FILES", 5)
    assert seen(table) is None
