"""Checks of a machine: certificates that end, disks, and clocks."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import make_url

from engines.adapter import CheckResult
from gateway.cli.client import Client, RequestFailed
from gateway.cli.setup import doctor
from gateway.cli.setup.doctor import CERTIFICATE_WARNING, LEAST_FREE_BYTES, examine, file_system_of
from gateway.server.serve import own_server
from gateway.settings import load
from tests.postgresql import postgresql

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
OFF = {"duckdb": {"enabled": False}, "spark": {"enabled": False}}
FREE_PORTS = {"server": {"port": 0}, "hs2": {"port": 0}, "flight": {"port": 0}}


def results(home: Path, subject: str, **sections: object) -> list[CheckResult]:
    settings = load(home, **(OFF | FREE_PORTS | sections))
    return [result for result in examine(settings) if result.subject == subject]


def certificate(folder: Path, *, ends_at: dt.datetime) -> dict[str, str]:
    """Write a certificate with its key, and return the settings that name them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - 400 * DAY)
        .not_valid_after(ends_at)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "certificate.pem").write_bytes(built.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    (folder / "key.pem").chmod(0o600)
    return {"certificate": str(folder / "certificate.pem"), "key": str(folder / "key.pem")}


@pytest.mark.parametrize(
    ("ends_at", "is_good", "is_needed", "words"),
    [
        (NOW + 200 * DAY, True, False, f"is valid until {NOW + 200 * DAY:%Y-%m-%d}"),
        (NOW + CERTIFICATE_WARNING - DAY, False, False, f"is valid until {NOW + CERTIFICATE_WARNING - DAY:%Y-%m-%d}"),
        (NOW - DAY, False, True, "certificate has expired"),
    ],
)
def test_a_certificate_that_ends_is_told(
    tmp_path: Path, ends_at: dt.datetime, is_good: bool, is_needed: bool, words: str
) -> None:
    (result,) = results(tmp_path, "Certificate", tls=certificate(tmp_path, ends_at=ends_at))
    assert (result.good, result.needed, words in result.detail) == (is_good, is_needed, True), result


@pytest.mark.parametrize(
    ("free_bytes", "is_good", "is_needed"),
    [(1 << 40, True, False), (LEAST_FREE_BYTES, False, False), (LEAST_FREE_BYTES - 1, False, True)],
)
def test_a_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, is_good: bool, is_needed: bool
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (result,) = results(tmp_path, "Disk")
    assert (result.good, result.needed) == (is_good, is_needed)


def test_the_longest_mount_holds_a_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    share = tmp_path / "a share"
    lines = ("/dev/a / ext4 rw 0 0", f"server:/x {str(share).replace(' ', chr(92) + '040')} nfs4 rw 0 0")
    mounts.write_text("\n".join(lines), encoding="utf-8")
    assert file_system_of(share / "home", mounts) == "nfs4"
    assert file_system_of(tmp_path, mounts) == "ext4"
    assert file_system_of(tmp_path, tmp_path / "none") == ""


@pytest.mark.parametrize(("url", "is_needed"), [(None, True), ("postgresql+psycopg://127.0.0.1:1/x", False)])
def test_a_home_on_a_network_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, is_needed: bool
) -> None:
    assert [result.good for result in results(tmp_path, "Home folder")] == [True]
    monkeypatch.setattr(doctor, "file_system_of", lambda _: "nfs4")
    _, network = results(tmp_path, "Home folder", metastore={"url": url})
    assert (network.good, network.needed, "(nfs4)" in network.detail) == (False, is_needed, True)


@pytest.mark.e2e
def test_clocks_that_are_apart_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgresql() as server:
        url = make_url(server.url).render_as_string(hide_password=False)
        (clock,) = results(tmp_path, "Clock", metastore={"url": url})
        assert clock.good, clock
        monkeypatch.setattr(doctor, "CLOCKS_APART_S", 0.0)
        (apart,) = results(tmp_path, "Clock", metastore={"url": url})
        assert not apart.good and "apart from the database's" in apart.detail
    assert results(tmp_path, "Clock") == []


NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("section", "settings", "subject", "words"),
    [
        ("impala", {"coordinators": (NOBODY,)}, "Impala coordinator", NOBODY),
        ("impala", {"auth": "ldap"}, "Impala login", "without a password"),
        ("hive", {"addresses": (NOBODY,)}, "Hive server", f"{NOBODY} does not answer"),
        ("spark", {"remote": f"sc://{NOBODY}"}, "Spark server", "refused"),
        ("spark", {"master": f"spark://{NOBODY}"}, "Spark master", "does not answer"),
        ("spark", {"master": "yarn"}, "Spark master", "without the configuration of Hadoop"),
        ("spark", {"configuration": {"spark.authenticate": "true"}}, "Spark secret", "spark.authenticate.secret"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_told(
    tmp_path: Path, section: str, settings: dict[str, object], subject: str, words: str
) -> None:
    (result,) = results(tmp_path, subject, **{section: {"enabled": True, **settings}})
    assert (result.good, result.needed, words in result.detail) == (False, True, True), result


def test_roots_that_keep_tables_out_are_told(tmp_path: Path) -> None:
    home, inside, outside = tmp_path / "home", tmp_path / "data" / "inside", tmp_path / "elsewhere" / "books"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), folder / "part-0.parquet")
    with own_server(load(home, **(OFF | FREE_PORTS))) as url, Client(url) as client:
        for folder in (inside, outside):
            client.post("/v1/tables", {"name": folder.name, "location": str(folder)})
    roots = [str(tmp_path / "data"), str(tmp_path / "dat")]
    details = [result.detail for result in results(home, "Table roots", catalog={"roots": roots})]
    assert details == [
        f"catalog.roots names {tmp_path / 'dat'}, which is no folder here",
        "outside of catalog.roots, where nothing is read: 1 table, such as books",
    ]
    with own_server(load(home, **(OFF | FREE_PORTS | {"catalog": {"roots": roots}}))) as url, Client(url) as client:
        with pytest.raises(RequestFailed, match=f"books: {outside} lies outside of catalog.roots"):
            client.post("/v1/explain", {"sql": "SELECT * FROM books"})
    assert results(home, "Table roots") == []
    assert results(home, "Tables") == []
    shutil.rmtree(outside)
    (gone,) = results(home, "Tables")
    assert (gone.detail, gone.needed) == ("the files of 1 table are gone, such as books", False)
