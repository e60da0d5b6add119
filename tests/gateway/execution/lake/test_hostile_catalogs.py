"""Iceberg catalogs that lie: what they say runs no code, moves no key, and reaches no files but their tables' own."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from engines.duckdb.engine import DuckDBEngine
from gateway.planning.fairness import Requester
from metastore.lake import maintenance, writing
from metastore.lake.iceberg import catalogs
from metastore.lake.resolution import pin
from metastore.lake.values import LakeCommit
from metastore.objects.access import CatalogAccess, ObjectAccess
from sql.errors import LocationRefused, NotAllowed, SqlError, TableChangedConcurrently
from sql.tables import TableSource
from tests.gateway.house import House, opened
from tests.lake_tables import catalog_at

ROWS = pa.table({"id": pa.array(range(5), pa.int64())})


class Server(BaseHTTPRequestHandler):
    """REST catalog with one table, that answers as ``answers`` says."""

    answers: dict[str, Any]
    asked: list[str]

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        self.asked.append(path)
        answer = self.answers.get(path)
        self.send_response(307 if isinstance(answer, str) else 404 if answer is None else 200)
        if isinstance(answer, str):
            self.send_header("Location", answer)
        content = json.dumps(answer).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serving(answers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Server,), {"answers": answers, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.fixture
def answers() -> dict[str, Any]:
    """Return what the hostile server answers, by path."""
    return {
        "/v1/config": {"defaults": {}, "overrides": {}},
        "/v1/namespaces": {"namespaces": [["db"]]},
        "/v1/namespaces/db": {"namespace": ["db"], "properties": {}},
        "/v1/namespaces/db/tables": {"identifiers": [{"namespace": ["db"], "name": "t"}]},
    }


@pytest.fixture
def hostile(answers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield from serving(answers)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """Return another server's address and what it was asked."""
    yield from serving({"/v1/namespaces": {"namespaces": []}})


def access(uri: str, **properties: str) -> CatalogAccess:
    return CatalogAccess("evil", "rest", (("uri", uri), *properties.items()))


def test_a_server_names_no_code(hostile: tuple[str, list[str]], answers: dict[str, Any], tmp_path: Path) -> None:
    command = {"args": ["touch", str(tmp_path / "ran")]}
    answers["/v1/config"]["overrides"] = {"auth": {"type": "custom", "impl": "subprocess.Popen", "custom": command}}
    answers["/v1/config"]["defaults"] = {"py-catalog-impl": "os.system"}
    assert catalogs.listing(access(hostile[0])) == {"db": ["t"]}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["uri", "oauth2-server-uri"])
def test_a_server_sends_nobody_elsewhere(
    hostile: tuple[str, list[str]], elsewhere: tuple[str, list[str]], answers: dict[str, Any], name: str
) -> None:
    answers["/v1/config"]["overrides"] = {name: elsewhere[0]}
    answers["/v1/oauth/tokens"] = {"access_token": "t", "token_type": "bearer", "expires_in": 3_600}
    tokens = {"oauth2-server-uri": f"{hostile[0]}/v1/oauth/tokens"}
    secret = {"credential": "id:secret", **tokens} if name == "oauth2-server-uri" else {"token": "secret"}
    assert catalogs.listing(access(hostile[0], **secret)) == {"db": ["t"]}
    assert elsewhere[1] == []


def test_answers_that_lead_to_another_server_are_not_followed(
    hostile: tuple[str, list[str]], elsewhere: tuple[str, list[str]], answers: dict[str, Any]
) -> None:
    answers["/v1/namespaces"] = f"{elsewhere[0]}/v1/namespaces"
    with pytest.raises(Exception, match="does not answer as it should"):
        catalogs.listing(access(hostile[0]))
    assert elsewhere[1] == []


@pytest.fixture
def local(tmp_path: Path) -> SqlCatalog:
    return catalog_at(tmp_path / "lake")


def table_of(local: SqlCatalog, name: str, location: str) -> tuple[TableSource, ObjectAccess]:
    uri, warehouse = local.properties["uri"], local.properties["warehouse"]
    sql_catalog = CatalogAccess("tests", "sql", (("uri", uri), ("warehouse", warehouse)))
    source = TableSource(f"tests.db.{name}", location, "iceberg", ())
    return source, ObjectAccess(catalogs=(sql_catalog,))


def test_a_table_that_has_moved_since_it_was_judged_is_not_written(local: SqlCatalog, tmp_path: Path) -> None:
    table = local.create_table("db.t", ROWS.schema, location=str(tmp_path / "precious"))
    (tmp_path / "precious" / "file").write_text("precious")
    source, objects = table_of(local, "t", str(tmp_path / "lake" / "db" / "t"))
    with pytest.raises(TableChangedConcurrently):
        maintenance.vacuum(source, dt.timedelta(0), dry_run=False, access=objects)
    rows = tmp_path / "rows.parquet"
    pq.write_table(ROWS, rows)
    with pytest.raises(TableChangedConcurrently):
        writing.commit(source, LakeCommit("q", "INSERT", (str(rows),)), objects)
    assert sorted(path.name for path in (tmp_path / "precious").iterdir()) == ["file", "metadata"]
    assert table.location() == str(tmp_path / "precious")


def test_files_outside_of_a_catalogs_table_are_not_rewritten(local: SqlCatalog, tmp_path: Path) -> None:
    secret = tmp_path / "secret.parquet"
    table = local.create_table("db.t", ROWS.schema)
    for _ in range(2):
        table.append(ROWS)
    file = next(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    secret.write_bytes(file.read_bytes())
    table.add_files([str(secret)], check_duplicate_files=False)
    source, objects = table_of(local, "t", table.location().removeprefix("file://"))
    with pytest.raises(NotAllowed, match="outside the table's folder"):
        maintenance.compact(source, "q", objects)


def test_a_commit_deletes_no_file_that_metadata_name(local: SqlCatalog, tmp_path: Path) -> None:
    properties = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    table = local.create_table("db.t", ROWS.schema, properties=properties)
    for _ in range(2):
        table.append(ROWS)
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    metadata = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    content["metadata-log"].insert(0, {"metadata-file": str(precious), "timestamp-ms": 1})
    metadata.write_text(json.dumps(content))
    source, objects = table_of(local, "t", table.location().removeprefix("file://"))
    for number in range(3):
        writing.set_properties(source, {"n": str(number)}, objects)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "value"),
    [(catalogs.CODE, "shutil.rmtree"), ("write.metadata.path", "{folder}"), ("write.data.path", "{folder}")],
)
def test_setting_a_property_obeys_no_hostile_one(local: SqlCatalog, tmp_path: Path, name: str, value: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    table = local.create_table("db.t", ROWS.schema)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    content["properties"][name] = value.format(folder=elsewhere)
    metadata.write_text(json.dumps(content))
    source, objects = table_of(local, "t", table.location().removeprefix("file://"))
    with pytest.raises(NotAllowed):
        writing.set_properties(source, {"n": "1"}, objects)
    assert metadata.exists()
    assert list(elsewhere.iterdir()) == []
    writing.set_properties(source, {name: None}, objects)
    writing.set_properties(source, {"n": "1"}, objects)


def test_metadata_of_another_table_are_another_state(local: SqlCatalog, tmp_path: Path) -> None:
    table = local.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    source, objects = table_of(local, "t", "")
    first = pin(source, None, tmp_path / "m", objects)
    (first_catalog,) = objects.catalogs
    copied = SqlCatalog("other", **local.properties)
    copied.create_namespace("db")
    copied.register_table("db.t", table.metadata_location)
    other = CatalogAccess("other", first_catalog.type, first_catalog.properties)
    second = pin(TableSource("other.db.t", "", "iceberg", ()), None, tmp_path / "m", ObjectAccess(catalogs=(other,)))
    assert first.snapshot.manifest != second.snapshot.manifest


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine, local: SqlCatalog) -> Iterator[House]:
    named = {"type": "sql", "uri": local.properties["uri"], "warehouse": local.properties["warehouse"]}
    with opened(tmp_path / "home", duckdb, catalogs={"tests": named}) as house:
        yield house


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_catalogs_table_is_apart_from_those_that_are_registered(
    house: House, local: SqlCatalog, tmp_path: Path, format: str
) -> None:
    folder = tmp_path / "ann"
    folder.mkdir()
    if format == "delta":
        write_deltalake(folder, ROWS)
    else:
        pq.write_table(ROWS, folder / "a.parquet")
    house.register("anns", folder)
    files = set(folder.rglob("*"))
    for name, place in (("at", folder), ("below", folder / "x"), ("around", tmp_path)):
        local.create_table(f"db.{name}", ROWS.schema, location=str(place))
        house.gateway.catalogs.refresh("tests", Requester("test", time.monotonic() + 60))
        for sql in ("SELECT * FROM tests.db.{}", "VACUUM tests.db.{}"):
            with pytest.raises(SqlError, match="lies where a table is registered"):
                house.done(sql.format(name))
    assert files <= set(folder.rglob("*"))


def test_a_catalogs_tables_are_not_registered_by_their_place(house: House, local: SqlCatalog, tmp_path: Path) -> None:
    local.create_table("db.closed", ROWS.schema).append(ROWS)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    for folder in ("lake", "link"):
        with pytest.raises(LocationRefused, match="warehouse of the catalog tests"):
            house.register("mine", tmp_path / folder / "db" / "closed")
    write_deltalake(tmp_path / "beside", ROWS)
    house.register("beside", tmp_path / "beside")


def test_pipes_in_the_place_of_metadata_are_not_waited_for(house: House, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "piped").create_table("db.t", ROWS.schema)
    folder = Path(table.location().removeprefix("file://"))
    house.register("piped", folder)
    os.mkfifo(folder / "metadata" / "v9.metadata.json")
    assert house.done("SELECT count(*) AS n FROM piped") == [{"n": 0}]
