"""Rules for catalogs that commands add: what an operator who is no administrator could try."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog.lake.known_catalogs import LONGEST_SECRET, KnownCatalogs
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.snapshot import CatalogSnapshot, CatalogView
from gateway.routing.engines import EngineRegistry
from gateway.settings import load
from metastore.objects.access import CatalogAccess
from metastore.records import AddedCatalog
from metastore.store import Metastore
from sql.errors import LocationRefused, NotAllowed

LAKE = AddedCatalog("lake", "rest", "https://catalog.example/iceberg/", properties={"scope": "all"})
HIVE: dict[str, Any] = {"type": "hive", "uri": "thrift://hive.example:9083"}
SECRET = ":".join(("id", "never-shown"))


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "lake").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "outside").write_text(SECRET, encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "large").write_text("x" * (LONGEST_SECRET + 1), encoding="utf-8")
    return folder


@pytest.fixture
def known(tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> KnownCatalogs:
    monkeypatch.setenv("FUSION_CATALOGS_LAKE", SECRET)
    monkeypatch.setenv("FUSION_CATALOGS__OF_SETTINGS__TOKEN", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    allowed = ("https://catalog.example/iceberg", "thrift://hive.example:9083")
    limits = {"iceberg_uris": allowed, "iceberg_secrets": secrets}
    stores = {"lake": {"prefix": "s3://lake/tables", "access_key": "a", "secret_key": "b"}}
    settings = load(tmp_path / "home", catalog=limits, stores=stores)
    metastore = Metastore(f"sqlite:///{tmp_path / 'm.db'}")
    return KnownCatalogs(settings, CatalogView(metastore, EngineRegistry([])))


@pytest.mark.parametrize(
    "uri",
    [
        "http://catalog.example/iceberg",
        "https://catalog.example/icebergs",
        "https://catalog.example/",
        "https://catalog.example:444/iceberg",
        "https://catalog.example.evil.example/iceberg",
        "https://catalog.example@evil.example/iceberg",
        "https://evil.example/https://catalog.example/iceberg",
        "https://catalog.example/iceberg/../admin",
        "https://catalog.example/iceberg/%2e%2e/admin",
        "https://catalog.example/iceberg?x=1",
        "https://catalog.example/iceberg#x",
        "https://catalog.example\\@evil.example/iceberg",
        "https://169.254.169.254/iceberg",
        "https://catalog.example/iceberg\n",
        "thrift://hive.example:9083",
        "file:///etc/passwd",
    ],
)
def test_addresses_that_the_settings_do_not_allow_are_refused(known: KnownCatalogs, uri: str) -> None:
    with pytest.raises(NotAllowed, match="iceberg_uris"):
        known.require_allowed(replace(LAKE, uri=uri))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "sql", "uri": "sqlite:////etc/passwd"}, "types rest and hive"),
        ({"type": "glue"}, "types rest and hive"),
        ({"type": "hive"}, "iceberg_uris"),
        ({"name": "spark_catalog"}, "the gateway's own catalog"),
        ({"name": "a.b"}, "name of a catalog"),
        ({"name": "Lake"}, "name of a catalog"),
        ({**HIVE, "warehouse": "/etc"}, "warehouse"),
        ({**HIVE, "warehouse": "file:///etc"}, "warehouse"),
        ({**HIVE, "warehouse": "s3://elsewhere/w"}, "warehouse"),
        ({**HIVE, "warehouse": "s3://lake/tables/../w"}, "warehouse"),
        ({"uri": ""}, "has an address"),
        ({"properties": {"py-io-impl": "os.system"}}, "not a property"),
        ({"properties": {"py-catalog-impl": "os.system"}}, "not a property"),
        ({"properties": {"auth": "{}"}}, "not a property"),
        ({"properties": {"uri": "https://evil.example"}}, "not a property"),
        ({"properties": {"oauth2-server-uri": "https://evil.example"}}, "not a property"),
        ({"properties": {"s3.endpoint": "https://evil.example"}}, "not a property"),
        ({"properties": {"header.X-Any": "x"}}, "not a property"),
        ({"properties": {"credential": "id:x"}}, "change that secret now"),
        ({"properties": {"s3.secret-access-key": "x"}}, "change that secret now"),
        ({"properties": {"Token": "x"}}, "change that secret now"),
    ],
)
def test_definitions_that_reach_further_are_refused(known: KnownCatalogs, change: dict[str, Any], words: str) -> None:
    with pytest.raises(NotAllowed, match=words):
        known.require_allowed(replace(LAKE, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"credential_env": "FUSION_CATALOGS__OF_SETTINGS__TOKEN"},
        {"credential_env": "AWS_SECRET_ACCESS_KEY"},
        {"credential_env": "FUSION_CATALOGS_MISSING"},
        {"credential_file": "../outside"},
        {"credential_file": "link"},
        {"credential_file": "large"},
        {"credential_file": "missing"},
        {"credential_file": "."},
        {"credential_env": "FUSION_CATALOGS_LAKE", "credential_file": "lake"},
    ],
)
def test_other_secrets_of_the_gateway_are_not_taken(known: KnownCatalogs, change: dict[str, Any]) -> None:
    built = known.built(replace(LAKE, **change))
    assert built.problem
    assert SECRET not in str(built.access.properties)
    assert SECRET not in built.problem


@pytest.mark.parametrize("change", [{"credential_env": "FUSION_CATALOGS_LAKE"}, {"credential_file": "lake"}])
def test_a_secret_is_taken_from_where_the_catalog_names_it(known: KnownCatalogs, change: dict[str, Any]) -> None:
    built = known.built(replace(LAKE, **change))
    assert not built.problem
    assert dict(built.access.properties)["credential"] == SECRET
    assert dict(built.access.properties)["oauth2-server-uri"] == "https://catalog.example/iceberg/v1/oauth/tokens"
    assert SECRET not in repr(built)


def test_catalogs_of_both_types_are_allowed(known: KnownCatalogs) -> None:
    changes: tuple[dict[str, Any], ...] = ({"warehouse": "main"}, {**HIVE, "warehouse": "s3://lake/tables/w"}, HIVE)
    for change in changes:
        known.require_allowed(replace(LAKE, **change))


def test_settings_that_allow_a_catalog_no_more_stop_it(known: KnownCatalogs) -> None:
    elsewhere = replace(LAKE, uri="https://other.example/")
    known._catalog._snapshot = CatalogSnapshot(1, catalogs={"lake": LAKE, "other": elsewhere})
    assert "iceberg_uris" in known.all()["other"].problem
    assert [access.name for access in known.access().catalogs] == ["of_settings", "lake"]
    known._catalog._snapshot = CatalogSnapshot(2)
    assert "lake" not in known.all()
    assert known.access().catalog_named("lake") is not None  # for statements that run


def test_the_folder_of_secrets_is_no_table(known: KnownCatalogs, secrets: Path) -> None:
    with pytest.raises(LocationRefused):
        Locations(Rules.of(known._settings)).admit(secrets)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://ann:p/w?d@db.example:5432/c?password=x", "postgresql://db.example:5432/c"),
        ("https://user:word@catalog.example/v?token=x#y", "https://catalog.example/v"),
        ("sqlite:////data/c.db", "sqlite:////data/c.db"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_secrets(uri: str, shown: str) -> None:
    assert CatalogAccess("c", "sql", (("uri", uri),)).shown_uri == shown
