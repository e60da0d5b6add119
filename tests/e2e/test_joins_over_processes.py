"""50 joins come at once to three gateways that share an engine for four: never more than fits, and in fair turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.cli.client import running_address
from gateway.security.authentication import user_line
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = [pytest.mark.e2e, pytest.mark.thorough, pytest.mark.timeout(900)]

PROCESSES, JOINS, AT_ONCE = 3, 50, 4
LIMIT_BYTES = 256 << 20
BUDGET_BYTES = AT_ONCE * LIMIT_BYTES
ROWS = 1_000_000
JOIN = "SELECT count(*) AS n, sum(a.v + b.v) AS s FROM big a JOIN big b ON a.i = b.i WHERE a.v + b.v > {number}"
START_S = 180.0
USERS = ("ann", "bob")


@dataclass
class Served:
    """Several gateways of one home. url: of all; the kernel spreads connections."""

    url: str
    supervisor: psutil.Process

    def client(self, user: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, auth=(user, user), timeout=600)

    def workers(self) -> list[psutil.Process]:
        """Return the processes in which statements run."""
        return [each for each in self.supervisor.children(recursive=True) if "duckdb" in " ".join(_command(each))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / "home"
    home.mkdir()
    users = tmp_path / "users"
    users.write_text("".join(f"{user_line(name, name)}\n" for name in USERS))
    users.chmod(0o600)
    variables = {
        "FUSION_SPARK__ENABLED": "false",
        "FUSION_DUCKDB__MEMORY": str(BUDGET_BYTES),
        "FUSION_DUCKDB__MEMORY_LIMIT": str(LIMIT_BYTES),
        "FUSION_DUCKDB__WORKERS": "12",
        "FUSION_ROUTING__LEASE_BY_ESTIMATE": "false",
        "FUSION_AUTHENTICATION__USERS_FILE": str(users),
        "FUSION_AUTHENTICATION__DEFAULT_ROLE": "admin",
        "FUSION_CATALOG__ROOTS": json.dumps([str(tmp_path / "data")]),
    }
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--processes", str(PROCESSES)], env={**os.environ, **variables}, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: running_address(home) is not None or process.poll() is not None, "it serves", START_S)
        assert process.poll() is None, (home / "serve.log").read_text()
        url = json.loads((home / "gateway.json").read_text())["url"]
        yield Served(url, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(60)


def test_joins_of_all_gateways_never_hold_more_than_the_budget(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "big"
    folder.mkdir(parents=True)
    numbers = pa.array(range(ROWS), pa.int64())
    pq.write_table(pa.table({"i": numbers, "v": numbers}), folder / "big.parquet")
    with served.client("ann") as client:
        client.post("/v1/tables", json={"name": "big", "location": str(folder)}).raise_for_status()
        warm = client.post("/v1/queries", json={"sql": JOIN.format(number=-1), "wait_s": 300}).json()
        assert warm["state"] == "FINISHED", warm["error"]
    idle_bytes = sum(_unique(each) for each in served.workers())
    done, most = threading.Event(), dict.fromkeys(("slots", "bytes", "grown"), 0)
    own_slots = set[int]()

    def sample() -> None:
        while not done.is_set():
            with served.client("bob") as client:  # a new connection: another process tells
                for engine in client.get("/v1/engines").json()["engines"]:
                    if engine["name"] == "duckdb":
                        ledger = engine["ledger"]
                        own_slots.add(ledger["slots_held"])
                        most["slots"] = max(most["slots"], ledger["slots_held"])
                        most["bytes"] = max(most["bytes"], ledger["bytes_held"])
            most["grown"] = max(most["grown"], sum(_unique(each) for each in served.workers()) - idle_bytes)
            time.sleep(0.02)

    finished = list[str]()

    def ask(number: int) -> dict[str, Any]:
        user = USERS[number == JOINS - 1]  # the last one is another user's only statement
        with served.client(user) as client:
            reply: dict[str, Any] = client.post(
                "/v1/queries", json={"sql": JOIN.format(number=number), "wait_s": 600, "timeout_s": 600}
            ).json()
        finished.append(user)
        return reply

    sampling = threading.Thread(target=sample)
    sampling.start()
    with ThreadPoolExecutor(JOINS) as threads:
        begun = [threads.submit(ask, number) for number in range(JOINS - 1)]
        time.sleep(0.5)
        begun.append(threads.submit(ask, JOINS - 1))
        replies = [each.result() for each in begun]
    done.set()
    sampling.join()
    place = finished.index("bob")
    print(f"most at once: {most}, of {BUDGET_BYTES >> 20} MiB; the other user's was number {place + 1} to end")
    for number, reply in enumerate(replies):
        assert reply["state"] == "FINISHED", reply["error"]
        above = [2 * value for value in range(ROWS) if 2 * value > number]
        assert reply["rows"] == [[len(above), sum(above)]]
        assert len(reply["attempts"]) == 1
    assert most["bytes"] <= BUDGET_BYTES
    assert max(own_slots) > 1
    assert most["grown"] <= BUDGET_BYTES
    assert place < JOINS // 2, "one user's many statements do not keep another's from its turn"


def _unique(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0
