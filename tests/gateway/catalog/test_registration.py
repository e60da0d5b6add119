"""What becomes of a table that is dropped or registered in another way while somebody looks at its files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.catalog import registration as registering
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.new_table import NewTable
from gateway.catalog.registration import Registration
from gateway.security.policy import Policy
from gateway.security.principals import Principal, Role
from gateway.statements.statement import Statement
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.records import Inspection, ManagedFolder, QueryState
from metastore.store import Metastore
from sql.errors import LocationRefused, TableChangedConcurrently, TableExists, UnknownTable
from sql.tables import View
from tests.gateway.conftest import Scripted

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
EVE = Principal("eve", Role.ADMIN, authenticated=True)
Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield metastore


@pytest.fixture
def registration(metastore: Metastore, tmp_path: Path) -> Registration:
    rules = Rules(own=(tmp_path / "warehouse",))
    return Registration(metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=tmp_path / "lists")


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Have something happen when the next look at files has just come to its end."""
    due: list[Callable[[], object]] = []

    def looked(*arguments: object, **told: object) -> Inspection:
        try:
            return inspect(*arguments, **told)  # type: ignore[arg-type]  # handed on as they came
        finally:
            while due:
                due.pop()()

    monkeypatch.setattr(registering, "inspect", looked)
    return due.append


def write(folder: Path, rows: int = 1, *, file: str = "1.parquet") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), folder / file)
    return folder


@pytest.mark.parametrize("look", [Registration.refresh, Registration.refresh_after_write])
def test_who_looks_at_files_does_not_bring_back_a_dropped_table(
    metastore: Metastore,
    registration: Registration,
    meanwhile: Meanwhile,
    tmp_path: Path,
    look: Callable[[Registration, str], object],
) -> None:
    metastore.catalog.put(inspect("t", write(tmp_path / "t")), at=NOW, owner="ada")
    meanwhile(lambda: metastore.catalog.remove("t"))
    with pytest.raises(UnknownTable, match="gone"):
        look(registration, "t")
    assert metastore.catalog.list() == ()


def test_a_statement_that_refreshes_says_that_the_table_is_gone(
    scripted: Callable[..., Scripted], meanwhile: Meanwhile
) -> None:
    gateway = scripted().gateway
    meanwhile(lambda: gateway.metastore.catalog.remove("books"))
    record = gateway.coordinator.submit(Statement("REFRESH books")).done.result(timeout=30)
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == "UNKNOWN_TABLE"
    assert gateway.metastore.catalog.get("books") is None


def test_a_refresh_leaves_a_new_registration_as_it_is(
    metastore: Metastore, registration: Registration, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    """The table was dropped, and its name given to other files of another owner, while the old ones were looked at."""
    metastore.catalog.put(inspect("t", write(tmp_path / "old")), at=NOW, owner="ada")

    def exchange() -> None:
        metastore.catalog.remove("t")
        metastore.catalog.put(inspect("t", write(tmp_path / "new", rows=7)), at=NOW, new=True, owner="eve")

    meanwhile(exchange)
    refreshed = registration.refresh("t")
    assert (refreshed.source.location, refreshed.rows, refreshed.owner) == (str(tmp_path / "new"), 7, "eve")


def test_an_old_look_does_not_replace_a_newer_one(
    metastore: Metastore, registration: Registration, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    metastore.catalog.put(inspect("t", write(tmp_path / "t")), at=NOW)

    def more_rows_come() -> None:
        write(tmp_path / "t", rows=4, file="2.parquet")
        registration.refresh_after_write("t")

    meanwhile(more_rows_come)
    assert registration.refresh("t").rows == 1 + 4


def test_registering_a_name_that_a_statement_took_meanwhile(
    metastore: Metastore, registration: Registration, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    """What was made lies in a folder of the gateway's own, which nobody would delete any more."""
    own = tmp_path / "warehouse" / "t-1"

    def make() -> None:
        metastore.folders.add(ManagedFolder(str(own), "1"), at=NOW)
        metastore.catalog.put(inspect("t", write(own)), at=NOW, new=True, owner="ada")

    meanwhile(make)
    with pytest.raises(TableExists, match="drop it first"):
        registration.add(NewTable("t", str(write(tmp_path / "t"))), user=EVE)
    table = metastore.catalog.get("t")
    assert table is not None
    assert (table.source.location, table.owner) == (str(own), "ada")


def test_registering_a_table_of_the_gateways_own_that_is_dropped_meanwhile(
    metastore: Metastore, registration: Registration, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    own = write(tmp_path / "warehouse" / "t-1")
    metastore.folders.add(ManagedFolder(str(own), "1"), at=NOW)
    metastore.catalog.put(inspect("t", own), at=NOW, owner="ada")

    def drop() -> None:
        metastore.catalog.remove("t")
        metastore.folders.remove(str(own))

    meanwhile(drop)
    with pytest.raises((LocationRefused, UnknownTable)):
        registration.add(NewTable("t", str(own)), user=EVE)
    assert metastore.catalog.list() == ()


def test_registering_again_after_a_drop_makes_a_table_of_whoever_asks(
    metastore: Metastore, registration: Registration, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    place = write(tmp_path / "t")
    place.chmod(0o755)
    metastore.catalog.put(inspect("t", place), at=NOW, owner="ada")
    meanwhile(lambda: metastore.catalog.remove("t"))
    registration.add(NewTable("t", str(place)), user=EVE)
    table = metastore.catalog.get("t")
    assert table is not None
    assert table.owner == EVE.owner


def test_a_table_that_changes_each_time_it_is_looked_at(
    metastore: Metastore, registration: Registration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metastore.catalog.put(inspect("t", write(tmp_path / "0")), at=NOW)
    places = iter(range(1, 100))

    def looked(name: str, place: str, **_: object) -> Inspection:
        found = inspect(name, place)
        metastore.catalog.put(inspect("t", write(tmp_path / str(next(places)))), at=NOW)
        return found

    monkeypatch.setattr(registering, "inspect", looked)
    with pytest.raises(TableChangedConcurrently, match="try again"):
        registration.refresh("t")


def test_a_table_does_not_take_the_name_of_a_view(
    metastore: Metastore, registration: Registration, tmp_path: Path
) -> None:
    metastore.views.put(View("t", "SELECT 1 AS n", "spark", ()), at=NOW, replace=False)
    with pytest.raises(TableExists, match="view"):
        registration.add(NewTable("T", str(write(tmp_path / "t"))), user=EVE)
