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
