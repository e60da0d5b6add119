"""A gateway and its workers are killed while many ask: no id that was told is unknown, no result is lost.

And nothing runs for ever, whatever died: of fifty processes that are killed one is the gateway itself, and the others
are those in which it parses, plans and runs statements, and those of its metastore where that is a server.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.cli.client import running_address
from tests.engines.processes import is_running
from tests.postgresql import PostgreSQL, postgresql
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e

CLIENTS = 6
OF_ONE_LIFE = 50
ONE_BURST = 25  # kills between two answers
LONGEST_GAP_S = 0.2
STARTED_WITHIN_S = 60.0
ENDS_FIRST = 0.5  # of a gateway's lives end once nothing runs there any more
ONE_OF_THE_DATABASE = 10  # of so many kills one is of the metastore's server, where it has one
NOT_NOW = 503
NOT_KNOWN = ("QUEUED", "RUNNING")


def served(home: Path, database: PostgreSQL | None) -> tuple[subprocess.Popen[bytes], str]:
    """Start a gateway without Spark, and return it with its address once it is ready. database: None for SQLite."""
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    environment = {**os.environ, "FUSION_SPARK__ENABLED": "false"}
    if database is not None:
        environment["FUSION_METASTORE__URL"] = database.url
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
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


@dataclass
class Told:
    """What clients were told of queries: the state last, and the row that each asks for. codes: of errors."""

    states: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)

    def wait_for_one_more(self) -> None:
        """Wait until a client was told of one more query that ended well."""
        before = self._finished()
        wait_until(lambda: self._finished() > before, "an answer")

    def _finished(self) -> int:
        return list(self.states.values()).count("FINISHED")


def asked(url: str, chance: random.Random, told: Told, stopped: threading.Event) -> None:
    """Ask until nobody answers any more."""
    with httpx.Client(base_url=url, timeout=60) as client:
        while not stopped.is_set():
            number, wait_s = chance.randrange(1_000), chance.choice((0.0, 30.0))
            sql = f"SELECT id FROM numbers WHERE id = {number % 7}"
            try:
                reply = client.post("/v1/queries", json={"sql": sql, "wait_s": wait_s}).json()
            except httpx.TransportError:
                return
            error = reply.get("error")
            if error:
                told.codes.add(error["code"])
            if "state" in reply:
                told.wanted[reply["id"]] = number % 7
                told.states[reply["id"]] = reply["state"]


def kill_helpers(gateway: int, chance: random.Random, kills: int, told: Told, database: PostgreSQL | None) -> None:
    """Kill processes that work for the gateway at random; now and then a statement gets by.

    On a busy machine no process lives long enough for that by itself.
    """
    process = psutil.Process(gateway)
    for number in range(kills):
        if number % ONE_BURST == 0:
            told.wait_for_one_more()
        time.sleep(chance.uniform(0.0, LONGEST_GAP_S))
        if database is not None and chance.randrange(ONE_OF_THE_DATABASE) == 0:
            database.kill_one(chance)
            continue
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # it has just ended by itself
            chance.choice([each for each in process.children() if is_helper(each)]).kill()


def is_helper(process: psutil.Process) -> bool:
    """Tell whether it is one that plans, parses or runs statements, and lives."""
    try:
        return any("worker" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def check(url: str, told: Told) -> None:
    """Ask a gateway that came up after a kill for all that was told before, once it has run again what it may."""
    wait_until(lambda: has_none_open(url), "all reads that were open run again", 120)
    with httpx.Client(base_url=url, timeout=60) as reader:
        for query_id, state in told.states.items():
            now = reader.get(f"/v1/queries/{query_id}").json()
            assert now.get("state") not in (None, *NOT_KNOWN), (query_id, state, now)
            if now["state"] == "FINISHED":
                assert now["rows"] == [[told.wanted[query_id]]], now
            if state == "FINISHED":
                assert now["state"] == "FINISHED"
                assert reader.get(f"/v1/queries/{query_id}/result").json()["rows"] == now["rows"]


def has_none_open(url: str) -> bool:
    """Tell whether a gateway, and its metastore, say that nothing is under way."""
    listed = httpx.get(f"{url}/v1/queries", params={"limit": 1_000}, timeout=60)
    return listed.status_code != NOT_NOW and all(each["state"] not in NOT_KNOWN for each in listed.json()["queries"])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def database(request: pytest.FixtureRequest) -> Iterator[PostgreSQL | None]:
    if request.param == "sqlite":
        yield None
        return
    with postgresql() as server:
        yield server


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(15, marks=pytest.mark.timeout(600)),
        pytest.param(5_000, marks=[pytest.mark.thorough, pytest.mark.timeout(12_000)]),
    ],
)
def test_what_was_told_is_known_afterwards(tmp_path: Path, kills: int, database: PostgreSQL | None) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "numbers").mkdir()
    pq.write_table(pa.table({"id": pa.array(range(1_000), pa.int64())}), tmp_path / "numbers" / "0.parquet")
    chance, states, codes = random.Random(5), set[str](), set[str]()  # noqa: S311 - when it dies is no secret
    process, url = served(home, database)
    numbers = {"name": "numbers", "location": str(tmp_path / "numbers")}
    httpx.post(f"{url}/v1/tables", json=numbers, timeout=60).raise_for_status()
    for killed in range(0, kills, OF_ONE_LIFE):
        told, stopped = Told(), threading.Event()
        clients = [
            threading.Thread(target=asked, args=(url, random.Random(killed + seed), told, stopped), daemon=True)  # noqa: S311
            for seed in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        kill_helpers(process.pid, chance, min(OF_ONE_LIFE, kills - killed) - 1, told, database)
        time.sleep(chance.uniform(0.2, 2.0))
        if chance.random() < ENDS_FIRST:
            stopped.set()
            wait_until(partial(has_none_open, url), "all ended", within_s=90)
        process.kill()
        process.wait(30)
        stopped.set()
        for client in clients:
            client.join(90)
        process, url = served(home, database)
        check(url, told)
        states |= set(told.states.values())
        codes |= told.codes
    assert "FINISHED" in states
    assert states & set(NOT_KNOWN)
    assert "INTERNAL" not in codes
    os.kill(process.pid, signal.SIGTERM)
    process.wait(60)
    assert not is_running(process.pid)
