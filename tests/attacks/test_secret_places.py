"""What may become a table. Registration has one door; what an earlier release let in is met at every door."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.security.authentication import user_line
from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served
from tests.attacks.test_folders import put_file, put_into_catalog

ALICE, PASSWORD = "alice", "a password of hers"


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve without users and without roots."""
    home = tmp_path_factory.mktemp("open") / "home"
    with served(home, duckdb=DUCKDB, spark={"enabled": False}) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "place",
    [
        *("/etc/passwd", "/etc", "/etc/../etc/hostname", "/proc/self/environ", "/proc/kmsg", "/proc/1"),
        *("/proc/self/root/etc", "/sys/kernel", "/dev/zero", "/dev", "/run", "/var/run", "/boot"),
        *("~/.ssh", "~/.ssh/id_rsa", "~/.aws", "~"),
    ],
)
def test_places_of_the_system_and_of_secrets_are_no_tables(open_gateway: Served, place: str) -> None:
    with pytest.raises(Refused) as caught:
        open_gateway.register("stolen", place, format="csv")
    assert caught.value.code == "NOT_ALLOWED"


def test_a_file_that_its_owner_hides_is_no_table(open_gateway: Served, tmp_path: Path) -> None:
    hidden = put_file(tmp_path / "data" / "hidden.parquet", 1)
    for mode in (0o600, 0o640):
        hidden.chmod(mode)
        for place in (hidden, hidden.parent):
            with pytest.raises(Refused, match="hidden from other users") as caught:
                open_gateway.register("hidden", place)
            assert caught.value.code == "NOT_ALLOWED"
    hidden.chmod(0o644)
    open_gateway.register("hidden", hidden.parent)


def test_a_folder_whose_name_engines_would_expand_is_no_table(open_gateway: Served, tmp_path: Path) -> None:
    put_file(tmp_path / "a1" / "1.parquet", 1)
    for name in ("a*", "a?", "a[0-9]", "{a1,b}"):
        put_file(tmp_path / name / "1.parquet", 2)
        with pytest.raises(Refused) as caught:
            open_gateway.register("wild", tmp_path / name)
        assert caught.value.code == "NOT_ALLOWED"


@pytest.mark.parametrize("place", ["/etc/passwd", "{home}/metastore.db", "{home}"])
def test_what_was_registered_before_is_refused_at_every_door(door: Door, open_gateway: Served, place: str) -> None:
    put_into_catalog(open_gateway.home, "stolen", place.format(home=open_gateway.home))
    with pytest.raises(Refused, match="No table may lie"):
        open_gateway.ask(door, "SELECT n FROM stolen")


def test_with_users_tables_lie_under_the_roots_alone(tmp_path: Path) -> None:
    users = tmp_path / "private" / "users"
    users.parent.mkdir()
    users.write_text(user_line(ALICE, PASSWORD) + "\n", encoding="utf-8")
    users.chmod(0o600)
    data = put_file(tmp_path / "data" / "t" / "1.parquet", 1).parent
    data.joinpath("1.parquet").chmod(0o600)  # a root is the administrator's word
    login = {"users_file": str(users), "roles": {ALICE: "writer"}}
    arguments: dict[str, Mapping[str, Any]] = {
        "duckdb": DUCKDB,
        "spark": {"enabled": False},
    }
    with served(tmp_path / "home", authentication=login, **arguments) as gateway:
        with pytest.raises(Refused) as caught:
            gateway.register("t", data, ALICE, PASSWORD)
        assert caught.value.code == "ROOTS_REQUIRED"
    roots = {"roots": [str(tmp_path / "data"), str(users.parent)]}
    with served(tmp_path / "home", authentication=login, catalog=roots, **arguments) as gateway:
        gateway.register("t", data, ALICE, PASSWORD)
        assert gateway.ask(Door.HTTP, "SELECT n FROM t", user=ALICE, password=PASSWORD) == [(1,)]
        os.link(users, tmp_path / "data" / "users.csv")  # the same file under another name
        (tmp_path / "data" / "link").symlink_to(users.parent)
        for place in (users, users.parent, tmp_path / "data" / "users.csv", tmp_path / "data" / "link", "/srv"):
            with pytest.raises(Refused) as caught:
                gateway.register("stolen", place, ALICE, PASSWORD, format="csv")
            assert caught.value.code == "NOT_ALLOWED"
