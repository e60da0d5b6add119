"""Stores of Azure and Google for tests, one process each: Azurite, and gcs_server.py over gcp-storage-emulator.

Azurite is an npm package (``npm install azurite``), found on PATH or in node_modules; without it tests skip.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from engines.machine.ports import free_port
from metastore.objects.kinds.azure import AzureStore
from metastore.objects.kinds.gcs import GcsStore
from metastore.objects.kinds.kind import ObjectStore
from tests.azurite_proxy import proxied
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running store with an empty bucket. store: how it is reached. settings: of the gateway, without the prefix."""

    store: ObjectStore
    settings: Mapping[str, str]
    secret: str = field(repr=False)
    """Text that is in no file of the gateway, no log and no other process."""
    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        """Let it accept connections and answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def emulator(kind: str, folder: Path) -> Iterator[Emulator]:
    """Start a store of a kind, azure or gcs, and end it afterwards; the test is skipped where it is missing."""
    with (_azurite if kind == "azure" else _google)(folder) as emulated:
        yield emulated


@contextmanager
def _azurite(folder: Path) -> Iterator[Emulator]:
    program = shutil.which("azurite-blob", path=f"{os.environ['PATH']}:{ROOT / 'node_modules' / '.bin'}")
    if program is None:
        pytest.skip("there is no Azure store here: npm install azurite")
    port, key = free_port(), base64.b64encode(secrets.token_bytes(32)).decode()
    command = [program, "--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    command += ["--skipApiVersionCheck"]
    with running(command, port, folder, {"AZURITE_ACCOUNTS": f"tables:{key}"}) as process, proxied(port) as door:
        store = AzureStore("abfss://plain@tables.dfs.core.windows.net", f"http://127.0.0.1:{door}", account_key=key)
        store.filesystem.create_dir("plain")
        yield Emulator(store, {"endpoint": store.endpoint, "account_key": key}, key, process)


@contextmanager
def _google(folder: Path) -> Iterator[Emulator]:
    pytest.importorskip(
        "gcp_storage_emulator", reason="there is no Google store here: pip install gcp-storage-emulator"
    )
    port = free_port()
    pem = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "gateway@project.iam.gserviceaccount.com",
        "private_key": pem.decode(),
        "private_key_id": "1",
        "token_uri": f"http://127.0.0.1:{port}/token",
    }
    file = folder / "service_account.json"
    file.write_text(json.dumps(account), encoding="utf-8")
    with running([sys.executable, "-m", "tests.gcs_server", str(port), "plain"], port, folder, {}) as process:
        store = GcsStore("gs://plain", f"http://127.0.0.1:{port}", str(file))
        settings = {"endpoint": store.endpoint, "credentials_file": str(file)}
        yield Emulator(store, settings, pem.decode().splitlines()[5], process)


@contextmanager
def running(
    command: list[str], port: int, folder: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until it is needed no more. variables: of its environment, beside ours."""

    def is_up() -> bool:
        assert process.poll() is None, f"the server ended: {folder}/server.log"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log, cwd=ROOT)
    try:
        wait_until(is_up, f"{folder}/server.log")
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
