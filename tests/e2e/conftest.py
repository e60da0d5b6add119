"""A real bookstore made by Spark, and real gateways over it: processes of their own, as people start them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.client import running_address
from tests.engines.processes import is_running

SCALE = 1 / 128
MEMORY_LIMIT = "96MiB"  # Q9 takes 58 MiB, the surprise more than there is
START_WITHIN_S = 180.0
TABLES = ("books", "customers", "transactions")


@dataclass(slots=True)
class RealGateway:
    """``fusion serve`` on a home folder."""

    home: Path
    process: subprocess.Popen[bytes]
    http: httpx.Client

    def query(self, sql: str, **fields: Any) -> dict[str, Any]:
        """Run a query to its end."""
        reply: dict[str, Any] = self.http.post("/v1/queries", json={"sql": sql, "wait_s": 200, **fields}).json()
        assert "attempts" in reply, reply
        return reply

    def submit(self, sql: str, **fields: Any) -> str:
        """Start a query and return its id."""
        return str(self.http.post("/v1/queries", json={"sql": sql, "wait_s": 0, **fields}).json()["id"])

    def ended(self, query_id: str, within_s: float) -> dict[str, Any]:
        """Wait for a query's end."""
        give_up_s = time.monotonic() + within_s
        while True:
            reply: dict[str, Any] = self.http.get(f"/v1/queries/{query_id}").json()
            if reply["state"] not in ("QUEUED", "RUNNING"):
                return reply
            assert time.monotonic() < give_up_s, f"{query_id} still {reply['state']} after {within_s} s"
            time.sleep(0.1)

    def processes(self, word: str) -> list[int]:
        """Return the ids of its descendants whose command line holds a word."""
        command = ["ps", "-ww", "-eo", "pid,ppid,args"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        children: dict[int, list[tuple[int, str]]] = {}
        for line in listed.splitlines()[1:]:
            pid, parent, arguments = line.split(None, 2)
            children.setdefault(int(parent), []).append((int(pid), arguments))
        found: list[int] = []
        wanted = [self.process.pid]
        while wanted:
            for child, arguments in children.get(wanted.pop(), ()):
                wanted.append(child)
                if word in arguments:
                    found.append(child)
        return found


@pytest.fixture(scope="session")
def bookstore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "statsproc", "generate", "--out", str(folder), "--scale", str(SCALE)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], RealGateway]]:
    """Start gateways; all are ended after the session, and none may leave a process behind."""
    started: list[RealGateway] = []

    def start(home: Path) -> RealGateway:
        command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
        variables = {"FUSION_DUCKDB__MEMORY_LIMIT": MEMORY_LIMIT, "FUSION_DUCKDB__WORKERS": "2"}
        home.mkdir(parents=True, exist_ok=True)
        with (home / "serve.log").open("ab") as log:
            process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
        give_up_s = time.monotonic() + START_WITHIN_S
        while (url := running_address(home)) is None:
            assert process.poll() is None, (home / "serve.log").read_text()
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        gateway = RealGateway(home, process, httpx.Client(base_url=url, timeout=240))
        started.append(gateway)
        return gateway

    yield start
    left = []
    for gateway in started:
        descendants = gateway.processes("")
        gateway.http.close()
        gateway.process.terminate()
        gateway.process.wait(30)
        give_up_s = time.monotonic() + 15
        while (left := [pid for pid in descendants if is_running(pid)]) and time.monotonic() < give_up_s:
            time.sleep(0.1)
    assert left == [], "a gateway left processes behind"


@pytest.fixture(scope="session")
def gateway(
    serve: Callable[[Path], RealGateway], bookstore: Path, tmp_path_factory: pytest.TempPathFactory
) -> RealGateway:
    """One gateway with tables and statistics for all tests that leave it whole."""
    made = serve(tmp_path_factory.mktemp("home"))
    for name in TABLES:
        made.http.post("/v1/tables", json={"name": name, "location": str(bookstore / name)}).raise_for_status()
    job = made.http.post("/v1/stats/jobs", json={"tables": list(TABLES)}).json()
    give_up_s = time.monotonic() + 240
    while job["finished_at"] is None:
        assert time.monotonic() < give_up_s
        time.sleep(0.3)
        job = made.http.get(f"/v1/stats/jobs/{job['id']}").json()
    assert job["error"] is None
    return made
