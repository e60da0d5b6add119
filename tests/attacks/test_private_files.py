"""What the gateway makes is nobody else's, under whatever umask it was started."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.machine.private_files import open_private
from gateway.cli.main import app
from gateway.security.authentication import user_line
from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Served, served

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(home: Path) -> list[str]:
    """Return what others may look into, of a home folder and all below."""
    found = [home, *home.rglob("*")]
    return [f"{path} {stat.S_IMODE(path.lstat().st_mode):o}" for path in found if path.lstat().st_mode & OTHERS]


def use(gateway: Served, bookstore: Path) -> None:
    with gateway.http() as client:
        client.post("/v1/tables", json={"name": "books", "location": str(bookstore / "books")}).raise_for_status()
    for door in (Door.HTTP, Door.HS2, Door.FLIGHT):
        gateway.ask(door, "SELECT id, isbn FROM books")


@pytest.mark.parametrize("mask", [pytest.param(0o022, marks=pytest.mark.thorough), 0o000])
def test_home_is_closed_whatever_the_umask(tmp_path: Path, bookstore: Path, mask: int) -> None:
    home = tmp_path / "home"
    with umask(mask), served(home, duckdb=DUCKDB, spark={"enabled": False}) as gateway:
        use(gateway, bookstore)
        own = {"metastore.db-wal", "metastore.db-shm", "results.db", "results.db-wal", "gateway.lock", "gateway.json"}
        assert own <= set(os.listdir(home))
        assert list((home / "results").glob("*.arrow"))
        assert open_to_others(home) == []


def test_what_an_earlier_release_left_open_is_closed(tmp_path: Path, bookstore: Path) -> None:
    home = tmp_path / "home"
    with umask(0o022), served(home, duckdb=DUCKDB, spark={"enabled": False}) as gateway:
        use(gateway, bookstore)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    outside = tmp_path / "outside"
    outside.write_text("somebody else's", encoding="utf-8")
    outside.chmod(0o644)
    (home / "results" / "link").symlink_to(outside)
    with umask(0o022), served(home, duckdb=DUCKDB, spark={"enabled": False}):
        assert not home.stat().st_mode & OTHERS
        assert [path for path in open_to_others(home) if "link" not in path] == []
    assert outside.stat().st_mode & OTHERS


@pytest.mark.spark
def test_what_spark_and_jobs_make_is_closed(tmp_path: Path, bookstore: Path) -> None:
    home = tmp_path / "home"
    with umask(0o000), served(home, duckdb=DUCKDB) as gateway:
        use(gateway, bookstore)
        gateway.ask(Door.HTTP, "SELECT id, isbn FROM books", engine="spark")
        gateway.ask(Door.HTTP, "CREATE TABLE made AS SELECT id FROM books")
        gateway.ask(Door.HTTP, "INSERT INTO made SELECT id + 1 FROM made")
        gateway.ask(Door.HTTP, "COMPUTE STATS books")
        assert (home / "spark" / "secret.properties").exists()
        assert list((home / "jobs").glob("*.log"))
        assert list((home / "warehouse").rglob("*.parquet"))
        assert open_to_others(home) == []


def test_a_users_file_that_others_may_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "users"
    users.write_text(user_line("alice", "secret") + "\n", encoding="utf-8")
    users.chmod(0o640)
    home = tmp_path / "home"
    with served(home, duckdb=DUCKDB, spark={"enabled": False}, authentication={"users_file": str(users)}) as gateway:
        assert f"chmod 600 {users}" in gateway.log
        assert "catalog.roots is not set" in gateway.log
    monkeypatch.setenv("FUSION_AUTHENTICATION__USERS_FILE", str(users))
    monkeypatch.setenv("FUSION_CATALOG__ROOTS", f'["{home / "data"}"]')
    told = CliRunner().invoke(app, ["doctor", "--home", str(home)]).output
    assert f"chmod 600 {users}" in told.replace("\n", "")
    assert "is in the home folder" in told.replace("\n", " ")
    users.chmod(0o600)
    assert "chmod" not in CliRunner().invoke(app, ["doctor", "--home", str(home)]).output


def test_a_shared_folder_is_no_home(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with umask(0o022):  # which a server closes for its whole process
        told = CliRunner().invoke(app, ["serve", "--home", str(shared)])
    assert told.exit_code != 0
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_a_file_of_ours_that_was_left_open_is_closed_before_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("", encoding="utf-8")
    log.chmod(0o666)
    with open_private(log) as file:
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        file.write(b"secret")
