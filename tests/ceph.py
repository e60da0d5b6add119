"""Ceph's object gateway for tests: a monitor, a store in memory and the gateway, of Debian's packages.

``apt install ceph-mon ceph-osd radosgw``; without them tests skip. Nobody logs in but the gateway's one user.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from engines.machine.ports import free_port
from metastore.objects.kinds.s3 import S3Store
from tests.other_stores import Emulator, running

ACCESS_KEY, BUCKET = "admin", "plain"
COMMAND_WITHIN_S = 120
CONF = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{monitor}]
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
# The object gateway asks for an encrypted connection, which needs keys.
ms mon client mode = crc
ms bind port min = 20000
ms bind port max = 60000
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 2147483648
# It would not write to a disk that is nearly full.
mon data avail crit = 0
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.socket
pid file = {folder}/$name.pid
rgw frontends = beast endpoint=127.0.0.1:{port}
"""


@contextmanager
def ceph(folder: Path) -> Iterator[Emulator]:
    """Start Ceph with an empty bucket and end it afterwards; the test is skipped where it is missing."""
    if shutil.which("radosgw") is None:
        pytest.skip("there is no Ceph here: apt install ceph-mon ceph-osd radosgw")
    monitor, port, fsid, key = free_port(), free_port(), str(uuid.uuid4()), secrets.token_hex(16)
    conf = folder / "ceph.conf"
    conf.write_text(CONF.format(fsid=fsid, monitor=monitor, port=port, folder=folder), encoding="utf-8")

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [program, "-c", str(conf), *arguments], check=True, capture_output=True, timeout=COMMAND_WITHIN_S
        )

    keys, addresses = str(folder / "keyring"), str(folder / "addresses")
    run("ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    run("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{monitor}]", "--fsid", fsid, addresses)
    for server in ("mon", "osd", "rgw"):
        (folder / server).mkdir()
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", addresses, "--keyring", keys)
    with ExitStack() as servers:
        servers.enter_context(running(["ceph-mon", "-c", str(conf), "-i", "a", "-f"], monitor, folder / "mon"))
        disk = str(uuid.uuid4())
        run("ceph", "osd", "new", disk)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        servers.enter_context(running(["ceph-osd", "-c", str(conf), "-i", "0", "-f"], monitor, folder / "osd"))
        user = ("--uid=tables", "--display-name=tables", f"--access-key={ACCESS_KEY}", f"--secret={key}")
        run("radosgw-admin", "user", "create", *user)
        gateway = ["radosgw", "-c", str(conf), "-n", "client.rgw", "-f"]
        process = servers.enter_context(running(gateway, port, folder / "rgw"))
        store = S3Store(f"s3://{BUCKET}", f"http://127.0.0.1:{port}", "us-east-1", ACCESS_KEY, key)
        pafs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=key,
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        yield Emulator(store, {"endpoint": store.endpoint, "access_key": ACCESS_KEY, "secret_key": key}, key, process)
