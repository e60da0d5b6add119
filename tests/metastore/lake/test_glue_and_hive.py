"""Iceberg catalogs of the types glue and hive: the Glue of moto over a real object store, and a real Hive Metastore."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines.machine.ports import free_port
from gateway.settings import load
from metastore.lake import resolution
from metastore.lake.iceberg import catalogs, writing
from metastore.lake.place import place_of
from metastore.lake.values import LakeUnreadable
from sql.tables import Column, TableSource
from tests.hive_metastore import hive_metastore
from tests.object_store import object_store
from tests.other_stores import running

Sections = dict[str, dict[str, Any]]


@contextmanager
def _glue(folder: Path) -> Iterator[Sections]:
    """Yield the sections of a gateway's settings. Keys of Glue are those of the warehouse's store."""
    pytest.importorskip("boto3", reason="Glue's library is not installed: pip install 'fusion-sql-gateway[glue]'")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, folder), object_store(folder / "store") as server:
        store = {name: getattr(server.store(), name) for name in ("prefix", "endpoint", "access_key", "secret_key")}
        glue = {
            "type": "glue",
            "warehouse": f"{store['prefix']}/ice",
            "properties": {"glue.endpoint": f"http://127.0.0.1:{port}"},
        }
        yield {"stores": {"plain": store}, "catalogs": {"c": glue}}


@contextmanager
def _hive(folder: Path) -> Iterator[Sections]:
    with hive_metastore(folder) as uri:
        yield {"catalogs": {"c": {"type": "hive", "uri": uri}}}


@pytest.mark.e2e
@pytest.mark.parametrize("sections_of", [pytest.param(_glue, id="glue"), pytest.param(_hive, id="hive")])
def test_a_table_is_made_changed_listed_and_dropped(
    sections_of: Callable[[Path], AbstractContextManager[Sections]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    with sections_of(tmp_path) as sections:
        access = load(tmp_path / "home", **sections).object_access
        (catalog,) = access.catalogs
        catalogs.require_namespace(catalog, "sales", there=True)
        table = TableSource("c.sales.t", "file:///nowhere", "iceberg", (Column("id", "bigint"),))
        place = place_of(table, access)
        writing.create(place, table.columns, (), {})
        opened, _ = catalogs.load(place)
        opened.append(pa.table({"id": [1, 2]}))
        assert catalogs.listing(catalog)["sales"] == ["t"]
        snapshot = resolution.pin(table, None, tmp_path / "manifests", access).snapshot
        assert snapshot.rows == 2
        catalogs.drop(place)
        assert catalogs.listing(catalog)["sales"] == []
        catalogs.require_namespace(catalog, "sales", there=False)
        assert "sales" not in catalogs.listing(catalog)


@pytest.mark.parametrize(
    ("section", "library"),
    [
        ({"type": "hive", "uri": "thrift://127.0.0.1:9"}, "thrift"),
        (
            {"type": "glue", "properties": {"glue.endpoint": "http://127.0.0.1:9", "client.region": "us-east-1"}},
            "boto3",
        ),
    ],
)
def test_a_catalog_that_does_not_answer_is_told(section: dict[str, Any], library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (catalog,) = load(tmp_path, catalogs={"c": section}).object_access.catalogs
    with pytest.raises(LakeUnreadable, match="the catalog c does not"):
        catalogs.listing(catalog)
