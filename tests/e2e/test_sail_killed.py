"""A gateway over Sail and one dependable engine: a kill -9 of Sail in mid-statement is a failover, not an error."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import psutil
import pytest

pytest.importorskip("pysail", reason="Sail is not installed: pip install fusion-sql-gateway[sail]")
pytest.importorskip("pyspark", reason="Sail's client is not installed: pip install fusion-sql-gateway[sail]")
pytest.importorskip("duckdb", reason="the dependable engine of this test is made of DuckDB")

from engines.adapter import GROUP
from gateway.cli.client import running_address
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FUSION = str(Path(sys.executable).with_name("fusion"))
SETTINGS = """
[sail]
enabled = true
memory_limit = "256 MiB"
slots = 1

[toydependable]
enabled = true

[duckdb]
enabled = false

[spark]
enabled = false

[server]
port = 0

[hs2]
enabled = false

[flight]
enabled = false
"""
POINTS = {"toydependable": "tests.engines.toy:DEPENDABLE", "sail": "engines.sail.adapter:ADAPTER"}
SIDE = 30_000  # rows; a billion pairs take a second even where they are quick
SLOW = (
    f"SELECT count(*) AS n FROM (SELECT id FROM books WHERE id <= {SIDE}) a "
    f"CROSS JOIN (SELECT id FROM books WHERE id <= {SIDE}) b WHERE (a.id * b.id) % 7 = 3"
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    home = tmp_path_factory.mktemp("sail") / "home"
    home.mkdir(mode=0o700)
    (home / "fusion.toml").write_text(SETTINGS, encoding="utf-8")
    site = tmp_path_factory.mktemp("site")
    package = site / "toys-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n", encoding="utf-8")
    missing = {name: place for name, place in POINTS.items() if name not in entry_points(group=GROUP).names}
    points = "".join(f"{name} = {place}\n" for name, place in missing.items())
    (package / "entry_points.txt").write_text(f"[fusion.engines]\n{points}", encoding="utf-8")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    log = home.with_suffix(".log")
    with log.open("wb") as output:
        process = psutil.Popen(
            [FUSION, "serve", "--home", str(home)], env={**os.environ, "PYTHONPATH": path}, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: running_address(home) is not None or process.poll() is not None, "the gateway starts")
        url = running_address(home)
        assert url is not None, log.read_text(encoding="utf-8")
        with httpx.Client(base_url=url, timeout=120) as client:
            client.post("/v1/tables", json={"name": "books", "location": str(bookstore / "books")}).raise_for_status()
            yield client, process
    finally:
        process.terminate()
        process.wait(60)


def servers(gateway: psutil.Process) -> list[psutil.Process]:
    """Return the processes of Sail that belong to a gateway."""
    found = []
    for child in gateway.children(recursive=True):
        try:
            command = child.cmdline()
        except psutil.Error:
            continue
        if "pysail.cli" in " ".join(command) and "--pid-file" not in command:
            found.append(child)
    return found


def test_it_runs_there_by_its_own_estimate(gateway: tuple[httpx.Client, psutil.Process]) -> None:
    client, _ = gateway
    reply = client.post("/v1/queries", json={"sql": "SELECT count(*) AS n FROM books"}).raise_for_status().json()
    assert (reply["state"], reply["engine"]) == ("FINISHED", "sail"), reply
    assert reply["decision"]["estimate"]["peak_bytes"] > 0


def test_a_kill_in_mid_statement_is_a_failover(gateway: tuple[httpx.Client, psutil.Process]) -> None:
    client, process = gateway
    ready = servers(process)  # looked for ahead: on a busy machine that takes as long as the statement

    def kill() -> None:
        until_s = time.monotonic() + 30
        while not client.get("/v1/leases").json()["leases"] and time.monotonic() < until_s:
            time.sleep(0.02)
        time.sleep(0.2)  # it runs by now
        for server in ready:
            server.send_signal(signal.SIGKILL)

    assert ready
    killer = threading.Thread(target=kill)
    killer.start()
    reply = client.post("/v1/queries", json={"sql": SLOW, "wait_s": 100}).raise_for_status().json()
    killer.join()
    assert reply["state"] == "FINISHED", reply
    assert [attempt["engine"] for attempt in reply["attempts"]] == ["sail", "toydependable"], reply
