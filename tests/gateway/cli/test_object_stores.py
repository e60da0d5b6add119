"""The command line over a real object store and its catalog: tables are added, and `doctor` asks both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from benchmarks.object_store_server import ACCESS_KEY, ObjectStoreServer
from gateway.cli.main import app
from tests.object_store import object_store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with object_store(tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSION_HOME", str(tmp_path))
    monkeypatch.setenv("FUSION_STORES__PLAIN__SECRET_KEY", server.secret_key)
    monkeypatch.setenv("FUSION_CATALOGS_SECOND", f"{ACCESS_KEY}:{server.secret_key}")
    text = f"""
[spark]
enabled = false
[server]
port = 0
[hs2]
port = 0
[flight]
port = 0
[stores.plain]
prefix = "s3://plain/"
endpoint = "{server.endpoint}"
access_key = "{ACCESS_KEY}"
[catalog]
iceberg_uris = ["{server.catalog}"]
[catalogs.lake]
uri = "{server.catalog}"
warehouse = "s3://warehouse"
credential = "{ACCESS_KEY}:{server.secret_key}"
"""
    (tmp_path / "fusion.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_table_is_added_and_read(home: Path, server: ObjectStoreServer) -> None:
    write_deltalake("s3://plain/o", pa.table({"id": [1, 2]}), storage_options=server.store().delta_options())
    run = CliRunner().invoke
    added = run(app, ["tables", "add", "orders", "s3://plain/o"])
    assert added.output.endswith("orders: delta, 1 columns, 2 rows\n")
    elsewhere = run(app, ["tables", "add", "others", "s3://elsewhere/o"])
    assert elsewhere.exit_code != 0
    assert "stores.NAME.prefix" in elsewhere.output
    assert "2" in run(app, ["query", "SELECT count(*) FROM orders"]).output
    warmed = run(app, ["cache", "warm", "orders", "--columns", "id"])
    assert "1 column(s) of orders are on this machine" in warmed.output
    assert "copied here" in run(app, ["tables", "show", "orders"]).output
    assert "UNKNOWN_COLUMN" in run(app, ["cache", "warm", "orders", "--columns", "x"]).output


def test_doctor_asks_stores_and_catalogs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = CliRunner().invoke(app, ["doctor"]).output
    assert "ok      Store plain: s3://plain answers" in told
    assert "ok      Catalog lake: 0 tables" in told
    monkeypatch.setenv("FUSION_STORES__PLAIN__SECRET_KEY", "another")
    monkeypatch.setenv("FUSION_CATALOGS__LAKE__CREDENTIAL", "nobody:nothing")
    told = CliRunner().invoke(app, ["doctor"]).output
    assert "see the endpoint, the region and the keys of stores.plain" in " ".join(told.split())
    assert "does not accept the gateway's credentials" in " ".join(told.split())
    assert "another" not in told


def test_catalogs_are_listed_tested_added_and_removed(
    home: Path, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*command: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(command))
        assert result.exit_code == code, result.output
        assert server.secret_key not in result.output
        return " ".join(result.output.split())

    assert f"lake rest {server.catalog} s3://warehouse 0" in told("catalogs", "list")
    assert "of the settings" in told("catalogs", "test", "lake")
    assert "There is no Iceberg catalog lak; did you mean lake?" in told("catalogs", "show", "lak", code=1)
    added = ("catalogs", "add", "second", "--uri", server.catalog, "--warehouse", "s3://warehouse")
    assert "change that secret now" in told(*added, "--property", "token=x", code=1)
    assert "does not accept the gateway's credentials" in told(*added, code=1)
    usable = (*added, "--credential-env", "FUSION_CATALOGS_SECOND", "--property", "scope=all")
    assert told(*usable).endswith("second: rest, 0 tables")
    assert "DATABASE_EXISTS" in told(*usable, code=1)
    assert "of a command" in told("catalogs", "show", "second")
    assert "second" in told("query", "SHOW CATALOGS")
    assert "second is removed" in told("catalogs", "remove", "second")
    assert "remove catalogs.lake from fusion.toml" in told("catalogs", "remove", "lake", code=1)
    monkeypatch.setenv("FUSION_CATALOGS__LAKE__CREDENTIAL", "nobody:nothing")
    refused = told("catalogs", "test", "lake", code=1)
    assert "does not accept the gateway's credentials" in refused
    assert "see catalogs.lake in fusion.toml" in refused
