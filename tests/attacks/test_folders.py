"""What is deleted, moved and read on the disk: only what is a table's, and only folders that the gateway made."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.database.connection import sqlite_url
from metastore.records import Inspection
from metastore.store import Metastore
from sql.tables import Column, TableSource
from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def lazy_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve with a Spark that is never started: what only deletes needs none."""
    around = tmp_path_factory.mktemp("around")
    for name in ("other", "inner"):
        (around / name).mkdir()
    with served(around / "home", duckdb=DUCKDB, spark={"warm_up": False}) as gateway:
        put_file(gateway.home / "warehouse" / "kept" / "1.parquet", 1)
        put_file(gateway.home / "results" / "1.parquet", 1)
        (around / "link").symlink_to(gateway.home)
        (around / "inner" / "results").symlink_to(gateway.home / "results")
        yield gateway


def put_file(path: Path, *values: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), path)
    return path


def put_into_catalog(home: Path, name: str, location: str) -> None:
    """Put a table into the catalog as an earlier release did, which looked at no place."""
    source = TableSource(name, location, "parquet", (Column("n", "bigint"),))
    with Metastore(sqlite_url(home / "metastore.db")) as metastore:
        metastore.catalog.put(Inspection(source, files=1, bytes=1, rows=1), at=NOW)


def location_of(gateway: Served, table: str) -> Path:
    (made,) = (gateway.home / "warehouse").glob(f"{table}-*")
    return made


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "place",
    [
        *("{home}", "{home}/", "{home}/.", "{home}/warehouse", "{home}/warehouse/..", "{home}/results", "/"),
        *("{home}/warehouse/../metastore.db", "{home}/../home", "{around}", "{around}/other/../home"),
        *("file:{home}", "file://{home}", "file:{quoted}%2Fwarehouse%2F.."),
        *("{around}/link", "{around}/link/warehouse/..", "{around}/inner/results"),
    ],
)
def test_no_table_lies_in_the_gateways_home_or_around_it(lazy_gateway: Served, place: str) -> None:
    home = lazy_gateway.home
    location = place.format(home=home, around=home.parent, quoted=quote(str(home), safe=""))
    with pytest.raises(Refused) as caught:
        lazy_gateway.register("stolen", location)
    assert caught.value.code == "NOT_ALLOWED"


@pytest.mark.parametrize("location", ["", ".", "..", "home", "file:", "file:.", "./home", "~nobody-at-all"])
def test_a_location_is_an_absolute_path(lazy_gateway: Served, location: str) -> None:
    with pytest.raises(Refused) as caught:
        lazy_gateway.register("here", location)
    assert caught.value.code == "TABLE_UNREADABLE"


@pytest.mark.parametrize("place", ["{home}/warehouse/..", "{home}/warehouse/../..", "{home}", "{home}/warehouse/kept"])
def test_drop_deletes_no_folder_that_the_gateway_did_not_make(door: Door, lazy_gateway: Served, place: str) -> None:
    bystander = put_file(lazy_gateway.home.parent / "bystander.parquet", 1)
    put_into_catalog(lazy_gateway.home, "stolen", place.format(home=lazy_gateway.home))
    lazy_gateway.ask(door, "DROP TABLE stolen")
    with pytest.raises(Refused):
        lazy_gateway.ask(door, "SELECT n FROM stolen")
    assert (lazy_gateway.home / "metastore.db").exists()
    assert (lazy_gateway.home / "warehouse" / "kept" / "1.parquet").exists()
    assert bystander.exists()


def test_the_tables_of_an_earlier_release_are_still_deleted_with_their_folders(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home, duckdb=DUCKDB, spark={"warm_up": False}) as gateway:
        with gateway.http() as client:
            query_id = client.post("/v1/queries", json={"sql": "SELECT 1"}).json()["id"]
    made = put_file(home / "warehouse" / f"old-{query_id}" / "1.parquet", 1).parent
    foreign = put_file(home / "warehouse" / "other-20260101_000000_aaaa" / "1.parquet", 1).parent
    put_into_catalog(home, "old", str(made))
    put_into_catalog(home, "other", str(foreign))
    with served(home, duckdb=DUCKDB, spark={"warm_up": False}) as gateway:
        for table in ("old", "other"):
            gateway.ask(Door.HTTP, f"DROP TABLE {table}")
    assert not made.exists()
    assert foreign.exists()


@pytest.mark.spark
def test_writes_stay_in_their_tables_through_every_door(door: Door, spark_gateway: Served, tmp_path: Path) -> None:
    """A real Spark writes; a planted commit, a victim outside and another table's files stay as they are."""
    name = f"t_{door.value.replace('-', '_')}"
    root = tmp_path / "data" / "table"
    put_file(root / "p=1" / "old.parquet", 1)
    victim = put_file(tmp_path / "victim.parquet", 7)
    planted = root / ".fusion-commit-20200101_000000_aaaaaaaaaa"
    put_file(planted / "planted.parquet", 13)
    (planted / "replaced.json").write_text(json.dumps(["../../victim.parquet", str(victim)]), encoding="utf-8")
    spark_gateway.register(name, root)
    spark_gateway.ask(door, f"INSERT INTO {name} PARTITION (p = 2) SELECT 2")
    assert victim.exists()
    assert sorted(spark_gateway.ask(door, f"SELECT n, p FROM {name}")) == [(1, 1), (2, 2)]
    spark_gateway.ask(door, f"INSERT OVERWRITE TABLE {name} PARTITION (p = 1) SELECT 3")
    assert sorted(spark_gateway.ask(door, f"SELECT n, p FROM {name}", engine="spark")) == [(2, 2), (3, 1)]
    assert victim.exists()
    assert (planted / "planted.parquet").exists()

    spark_gateway.ask(door, f"CREATE TABLE {name}_made AS SELECT n FROM {name}")
    made = location_of(spark_gateway, f"{name}_made")
    assert made.parent == spark_gateway.home / "warehouse"
    with pytest.raises(Refused) as caught:
        spark_gateway.register("alias", made)
    assert caught.value.code == "NOT_ALLOWED"
    spark_gateway.register(f"{name}_made", made)  # to look at it again
    with pytest.raises(Refused) as caught:
        spark_gateway.register(f"{name}_made", root)  # its folder would be nobody's
    assert caught.value.code == "TABLE_EXISTS"
    spark_gateway.ask(door, f"DROP TABLE {name}_made")
    assert not made.exists()
    spark_gateway.ask(door, f"DROP TABLE {name}")
    assert names_in(root) >= {"p=2", "p=1"}


@pytest.mark.spark
def test_an_overwrite_deletes_no_other_tables_files(door: Door, spark_gateway: Served, tmp_path: Path) -> None:
    name = f"o_{door.value.replace('-', '_')}"
    inner = put_file(tmp_path / "data" / "inner" / "1.parquet", 1)
    put_file(tmp_path / "data" / "2.parquet", 2)
    spark_gateway.register(f"{name}_inner", inner.parent)
    spark_gateway.register(name, tmp_path / "data")
    for table in (name, f"{name}_inner"):
        with pytest.raises(Refused, match="also those of"):
            spark_gateway.ask(door, f"INSERT OVERWRITE TABLE {table} SELECT 9")
    assert spark_gateway.ask(door, f"SELECT n FROM {name}_inner") == [(1,)]
    for table in (name, f"{name}_inner"):
        spark_gateway.ask(door, f"DROP TABLE {table}")


@pytest.mark.spark
def test_a_folder_swapped_for_a_link_takes_no_write_and_gives_no_row(
    door: Door, spark_gateway: Served, tmp_path: Path
) -> None:
    name = f"l_{door.value.replace('-', '_')}"
    root = put_file(tmp_path / "data" / "table" / "p=1" / "1.parquet", 1).parent.parent
    elsewhere = put_file(tmp_path / "elsewhere" / "secret.parquet", 42).parent
    before = names_in(elsewhere)
    spark_gateway.register(name, root)
    assert spark_gateway.ask(door, f"SELECT n FROM {name}") == [(1,)]
    statements = [f"INSERT {how} {name} PARTITION (p = 1) SELECT 2" for how in ("INTO", "OVERWRITE")]

    def all_are_refused() -> None:
        for engine in ("duckdb", "spark"):
            with pytest.raises(Refused, match="link"):
                spark_gateway.ask(door, f"SELECT n FROM {name}", engine=engine)
        for statement in (*statements, f"CREATE TABLE {name}_copy AS SELECT n FROM {name}", f"REFRESH {name}"):
            with pytest.raises(Refused, match="link"):
                spark_gateway.ask(door, statement)
        assert names_in(elsewhere) == before

    (root / "p=1").rename(tmp_path / "aside")
    (root / "p=1").symlink_to(elsewhere)  # a partition
    all_are_refused()
    (root / "p=1").unlink()
    (tmp_path / "aside").rename(root / "p=1")
    assert spark_gateway.ask(door, f"SELECT n FROM {name}") == [(1,)]
    (root / "p=1" / "2.parquet").symlink_to(elsewhere / "secret.parquet")  # a file
    all_are_refused()
    (root / "p=1" / "2.parquet").unlink()
    root.rename(tmp_path / "aside")
    root.symlink_to(elsewhere)  # the folder
    all_are_refused()
    root.unlink()
    (tmp_path / "aside").rename(root)
    root.parent.rename(tmp_path / "aside")
    root.parent.symlink_to(tmp_path / "aside")  # a folder around it
    all_are_refused()
    spark_gateway.ask(door, f"DROP TABLE {name}")
    assert (tmp_path / "aside" / "table" / "p=1" / "1.parquet").exists()
