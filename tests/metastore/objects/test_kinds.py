"""Kinds of object stores: forms of locations, origins of credentials, and requests without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engines.files.manifest import Manifest, SnapshotFile, StoredField
from gateway.settings import StoreSettings, load
from metastore.objects.access import ObjectAccess
from metastore.objects.cache import ObjectCache
from metastore.objects.credentials import with_credentials, with_given
from metastore.objects.errors import ObjectUnreadable, StoreUnavailable
from metastore.objects.kinds.azure import AzureStore
from metastore.objects.kinds.gcs import GcsStore
from metastore.objects.kinds.kind import InvalidLocation, ObjectStore
from metastore.objects.kinds.s3 import S3Store
from metastore.objects.store import copy_of, is_remote, key_of, location_of, origin_of
from tests.other_stores import Emulator, emulator

CONTAINER = "abfss://tables@account.dfs.core.windows.net"
HOST = "account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("written", "canonical", "key"),
    [
        ("s3a://bucket/a/b/", "s3://bucket/a/b", "bucket/a/b"),
        ("S3N://bucket", "s3://bucket", "bucket"),
        (f"{CONTAINER}/a/b", f"{CONTAINER}/a/b", "tables/a/b"),
        ("abfs://tables@account.dfs.core.windows.net", CONTAINER, "tables"),
        ("wasbs://tables@account.blob.core.windows.net/a", f"{CONTAINER}/a", "tables/a"),
        ("az://account.blob.core.windows.net/tables/a", f"{CONTAINER}/a", "tables/a"),
        ("azure://tables@account.dfs.core.windows.net/a", f"{CONTAINER}/a", "tables/a"),
        ("gs://my_bucket.x/a b/c=1", "gs://my_bucket.x/a b/c=1", "my_bucket.x/a b/c=1"),
        ("gcs://bucket/a", "gs://bucket/a", "bucket/a"),
    ],
)
def test_a_location_has_one_form(written: str, canonical: str, key: str, tmp_path: Path) -> None:
    assert is_remote(written)
    assert location_of(written) == canonical
    assert key_of(written) == key
    assert origin_of(copy_of(written, tmp_path), tmp_path) == canonical


@pytest.mark.parametrize(
    "location",
    [
        *("s3://", "s3:///a", "s3://Bucket/a", "s3://bucket/../a", "s3://bucket//a", "s3://bucket/a\nb"),
        *("az://tables/a", "abfss://tables@account.dfs.core.windows.net.evil.example/a", f"{CONTAINER}/../x/a"),
        *("abfss://account.dfs.core.windows.net", "abfss://a@b@account.dfs.core.windows.net/x", f"{CONTAINER}//a"),
        *("abfss://-x-@account.dfs.core.windows.net/a", "abfss://tables@account.dfs.core.chinacloudapi.cn/a"),
        *("gs://", "gs://bucket/./a", "gs://b@c/a", "ftp://bucket/a"),
    ],
)
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(InvalidLocation):
        location_of(location)


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(ValidationError, match="account_key is not of a store such as s3://bucket/folder"):
        StoreSettings(prefix="s3://bucket", account_key="k")
    with pytest.raises(ValidationError, match="region is not of a store such as gs"):
        StoreSettings(prefix="gs://bucket", region="eu")
    with pytest.raises(ValidationError, match="give s3://bucket/folder or abfss://"):
        StoreSettings(prefix="/data")


@pytest.mark.parametrize(
    ("store", "environment", "expected"),
    [
        (AzureStore(CONTAINER), {"AZURE_STORAGE_KEY": "k"}, {"account_key": "k"}),
        (AzureStore(CONTAINER), {"AZURE_STORAGE_KEY": "k", "AZURE_STORAGE_ACCOUNT": "another"}, {}),
        (AzureStore(CONTAINER), {"AZURE_STORAGE_SAS_TOKEN": "t"}, {"sas_token": "t"}),
        (AzureStore(CONTAINER, sas_token="mine"), {"AZURE_STORAGE_KEY": "k"}, {"sas_token": "mine"}),
        (
            AzureStore(CONTAINER),
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"},
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
        ),
        (AzureStore(CONTAINER), {"AZURE_CLIENT_ID": "c"}, {}),
        (GcsStore("gs://b"), {"GOOGLE_APPLICATION_CREDENTIALS": "/f.json"}, {"credentials_file": "/f.json"}),
        (GcsStore("gs://b", "", "/mine"), {"GOOGLE_APPLICATION_CREDENTIALS": "/f"}, {"credentials_file": "/mine"}),
        (S3Store("s3://b"), {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}, {"access_key": "a"}),
    ],
)
def test_credentials_are_those_of_the_settings_or_the_environment(
    store: ObjectStore, environment: dict[str, str], expected: dict[str, str]
) -> None:
    found = with_credentials(store, {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", **environment})
    values = {name: getattr(found, name) for name in found.CREDENTIALS if getattr(found, name)}
    assert values.items() >= expected.items()
    assert bool(values) == bool(expected)
    assert ObjectAccess.from_text(ObjectAccess((found,)).to_text()).stores == (found,)


@pytest.mark.parametrize(
    ("location", "properties", "expected"),
    [
        (f"{CONTAINER}/t", {f"adls.sas-token.{HOST}": "t"}, AzureStore(f"{CONTAINER}/t", sas_token="t")),
        (f"{CONTAINER}/t", {"adls.sas-token.account": "t"}, AzureStore(f"{CONTAINER}/t", sas_token="t")),
        (f"{CONTAINER}/t", {"adls.sas-token.another": "t"}, None),
        (f"{CONTAINER}/t", {"adls.account-key": "k"}, AzureStore(f"{CONTAINER}/t", account_key="k")),
        (
            "gs://b/t",
            {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "9"},
            GcsStore("gs://b/t", token="t", token_expires_ms="9"),
        ),
        ("s3://b/t", {"s3.region": "eu"}, None),
    ],
)
def test_a_catalog_gives_credentials_for_a_table(
    location: str, properties: dict[str, str], expected: ObjectStore | None
) -> None:
    assert with_given(None, location, properties) == expected


def test_what_a_catalog_gives_takes_the_place_of_the_settings_credentials() -> None:
    own = AzureStore(CONTAINER, "http://127.0.0.1:1", account_key="k")
    given = with_given(own, f"{CONTAINER}/t", {f"adls.sas-token.{HOST}": "t"})
    assert given == AzureStore(f"{CONTAINER}/t", "http://127.0.0.1:1", sas_token="t")


@pytest.fixture(scope="module", params=["azure", "gcs"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(request.param, tmp_path_factory.mktemp("store")) as store:
        yield store


def test_what_a_store_answers_is_told(running: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, location = running.store, f"{running.store.prefix}/t/a.parquet"
    with store.filesystem.open_output_stream(store.key(location)) as sink:
        pq.write_table(pa.table({"a": range(100_000)}), sink)
    size = store.filesystem.get_file_info(store.key(location)).size
    cache = ObjectCache(tmp_path, 1 << 30)

    def read(name: str, location: str, by: ObjectStore) -> None:
        file = SnapshotFile(str(copy_of(location, tmp_path)), size, 100_000, {})
        with cache.reading(name, Manifest((StoredField("a", "a", None, {}),), (file,)), by, None):
            pass

    monkeypatch.setattr("metastore.objects.requests.LONGEST_S", 2.0)
    running.pause()
    try:
        with pytest.raises(StoreUnavailable):
            read("silent", location, store)
    finally:
        running.resume()
    read("again", location, store)
    assert pq.read_table(copy_of(location, tmp_path))["a"].to_pylist() == list(range(100_000))
    with pytest.raises(ObjectUnreadable, match="is gone"):
        read("gone", f"{store.prefix}/t/b.parquet", store)
    with pytest.raises(ObjectUnreadable, match="credentials") as refused:
        read("denied", f"{store.prefix}/t/c.parquet", replace(store, **{store.CREDENTIALS[0]: "d3Jvbmc="}))
    assert "d3Jvbmc=" not in str(refused.value)
    cache.close()


@pytest.mark.parametrize(
    "sections",
    [
        {"catalog": {"warehouse": "s3://lake/tables"}},
        {"catalog": {"roots": ["/srv", "gs://lake/tables"]}},
        {"objects": {"folder": "abfss://lake@account.dfs.core.windows.net/copies"}},
    ],
)
def test_folders_of_this_machine_are_in_no_store(sections: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="this is a path on the gateway's machine"):
        load(tmp_path, **sections)


def test_the_warehouse_of_delta_tables_lies_in_a_store(tmp_path: Path) -> None:
    stores = {"lake": {"prefix": "s3://lake/tables"}}
    settings = load(tmp_path, stores=stores, catalog={"delta_warehouse": "s3a://lake/tables/own/"})
    assert settings.catalog.delta_warehouse == "s3://lake/tables/own"
    for elsewhere in ("s3://lake/other", "/srv/lake", "s3://lake/tables2"):
        with pytest.raises(ValidationError, match="delta_warehouse"):
            load(tmp_path, stores=stores, catalog={"delta_warehouse": elsewhere})
