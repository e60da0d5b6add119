"""A gateway is killed while many ask: no id that was told is unknown, no result is lost, nothing runs for ever."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.cli.client import running_address
from tests.engines.processes import is_running

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e

CLIENTS = 6
KILLS = int(os.environ.get("FUSION_GATEWAY_KILLS", "3"))
STARTED_WITHIN_S = 60.0
NOT_KNOWN = ("QUEUED", "RUNNING")


def served(home: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a gateway without Spark, and return it with its address once it is ready."""
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, "FUSION_SPARK__ENABLED": "false"}, stdout=log, stderr=log
        )
    give_up_s = time.monotonic() + STARTED_WITHIN_S
    while True:
        assert process.poll() is None, (home / "serve.log").read_text()
        assert time.monotonic() < give_up_s, (home / "serve.log").read_text()
        url = running_address(home)
        try:
            if url is not None and httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return process, url
        except httpx.TransportError:  # the address of the one before
            pass
        time.sleep(0.1)


def asked(url: str, chance: random.Random, told: dict[str, str], stopped: threading.Event) -> None:
    """Ask until nobody answers any more; note what was told of each query last."""
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stopped.is_set():
            number, wait_s = chance.randrange(1_000), chance.choice((0.0, 30.0))
            try:
                reply = client.post(
                    "/v1/queries", json={"sql": f"SELECT id FROM numbers WHERE id = {number % 7}", "wait_s": wait_s}
                ).json()
            except httpx.TransportError:
                return
            if "state" in reply:
                told[reply["id"]] = reply["state"]


@pytest.mark.timeout(400)
def test_what_was_told_is_known_afterwards(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "numbers").mkdir()
    pq.write_table(pa.table({"id": pa.array(range(1_000), pa.int64())}), tmp_path / "numbers" / "0.parquet")
    chance, told = random.Random(5), dict[str, str]()  # noqa: S311 - when it dies is no secret
    process, url = served(home)
    httpx.post(f"{url}/v1/tables", json={"name": "numbers", "location": str(tmp_path / "numbers")}).raise_for_status()
    for _ in range(KILLS):
        stopped = threading.Event()
        clients = [
            threading.Thread(target=asked, args=(url, random.Random(seed), told, stopped))  # noqa: S311
            for seed in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(chance.uniform(0.5, 2.0))
        process.kill()
        process.wait(30)
        stopped.set()
        for client in clients:
            client.join(60)
        process, url = served(home)
        with httpx.Client(base_url=url, timeout=30) as reader:
            for query_id, state in told.items():
                now = reader.get(f"/v1/queries/{query_id}").json()
                assert now.get("state") not in (None, *NOT_KNOWN), now
                if state == "FINISHED":
                    assert (now["state"], len(now["rows"])) == ("FINISHED", 1), now
                    assert reader.get(f"/v1/queries/{query_id}/result").json()["rows"] == now["rows"]
            left = reader.get("/v1/queries", params={"limit": 1_000}).json()["queries"]
            assert not [each["id"] for each in left if each["state"] in NOT_KNOWN]
    assert any(state == "FINISHED" for state in told.values())
    assert any(state in NOT_KNOWN for state in told.values())
    os.kill(process.pid, signal.SIGTERM)
    process.wait(60)
    assert not is_running(process.pid)
