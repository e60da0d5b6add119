"""Three gateways on one PostgreSQL behind HAProxy, killed and stopped one after the other, while clients read."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import postgresql
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.thorough, pytest.mark.timeout(900)]

COUNT, CLIENTS = 3, 8
CHAOS_S, EVERY_S = 90.0, 15.0
ROWS = 200_000
STATEMENTS: tuple[tuple[str, list[list[int]]], ...] = (
    ("SELECT count(*) AS n FROM n WHERE i < 1000", [[1_000]]),
    ("SELECT max(i) AS n FROM n", [[ROWS - 1]]),
    ("SELECT count(*) AS n FROM n AS a JOIN n AS b ON a.i = b.i", [[ROWS]]),
    ("SELECT count(*) AS n FROM (SELECT i % 1000 AS g, count(*) FROM n GROUP BY 1) AS t", [[1_000]]),
    (
        "SELECT count(*) AS n FROM (SELECT i FROM n WHERE i < 3000) AS a "
        "CROSS JOIN (SELECT i FROM n WHERE i < 1500) AS b "
        "WHERE levenshtein(CAST(a.i AS STRING), CAST(b.i AS STRING)) >= 0",
        [[4_500_000]],
    ),
)
BALANCER = """
global
    stats socket {socket}
defaults
    mode http
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    timeout check 2s
    option redispatch
    retries 2
    default-server check inter 500ms fall 1 rise 1
frontend http
    bind 127.0.0.1:{port}
    default_backend gateways
backend gateways
    balance roundrobin
    option httpchk GET /readyz
    option forwardfor
    retry-on conn-failure
{servers}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[Served]]:
    """Start three gateways, whose ports stay the same over restarts."""
    with postgresql() as server:
        started = [Served(tmp_path / f"g{number}", server.url, port=free_port()) for number in range(COUNT)]
        try:
            yield started
        finally:
            for one in started:
                one.http.close()
                with suppress(ProcessLookupError):
                    one.process.send_signal(signal.SIGCONT)
                one.process.kill()
                one.process.wait()


@pytest.fixture
def url(gateways: list[Served], tmp_path: Path) -> Iterator[str]:
    """Start a balancer over them."""
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("there is no HAProxy here: apt install haproxy")
    port = free_port()
    servers = "\n".join(f"    server g{number} 127.0.0.1:{one.port}" for number, one in enumerate(gateways))
    file = tmp_path / "haproxy.cfg"
    file.write_text(BALANCER.format(port=port, servers=servers, socket=tmp_path / "stats"), encoding="utf-8")
    with (tmp_path / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([haproxy, "-db", "-f", str(file)], stdout=log, stderr=log)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def ask(url: str, chance: random.Random, outcomes: Counter[str], wrong: list[str], ids: set[str]) -> None:
    """Send one read and poll for its end, each request to whichever gateway the balancer chooses."""
    sql, expected = chance.choice(STATEMENTS)
    with httpx.Client(base_url=url, timeout=60) as client:

        def told(request: Callable[[], httpx.Response]) -> httpx.Response | None:
            try:
                reply = request()
            except httpx.TransportError:
                return None
            return reply if reply.status_code not in (502, 503, 504) else None

        until_s = time.monotonic() + 120
        submitted = None
        while submitted is None:  # a read may be sent again
            assert time.monotonic() < until_s, "nobody took the statement"
            submitted = told(lambda: client.post("/v1/queries", json={"sql": sql, "wait_s": 0, "settings": {}}))
            if submitted is None:
                outcomes["sent again"] += 1
                time.sleep(0.3)
        query_id = submitted.json()["id"]
        ids.add(query_id)
        while True:
            assert time.monotonic() < until_s, f"{query_id} does not end"
            reply = told(lambda: client.get(f"/v1/queries/{query_id}"))
            if reply is None:
                outcomes["polled again"] += 1
                time.sleep(0.3)
                continue
            record = reply.json()
            if record["state"] == "FINISHED":
                if record["rows"] is None:  # its rows lie with a gateway that is gone, or just starts again
                    result = client.get(f"/v1/queries/{query_id}/result")
                    if result.status_code == 200:
                        continue
                    outcomes["RESULT_GONE" if result.status_code in (410, 502, 503) else f"? {result.text}"] += 1
                elif record["rows"] != expected:
                    wrong.append(f"{query_id}: {record['rows']}")
                else:
                    outcomes["answered"] += 1
                    outcomes["answered by another gateway"] += any(
                        attempt["failure"] == "GATEWAY_LOST" for attempt in record["attempts"]
                    )
                return
            if record["state"] in ("FAILED", "CANCELLED"):
                outcomes[record["error"]["code"]] += 1
                return
            time.sleep(0.05)


def test_reads_survive_kills_and_pauses(gateways: list[Served], url: str, tmp_path: Path) -> None:
    folder = tmp_path / "n"
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array(range(ROWS), pa.int64())}), folder / "n.parquet")
    gateways[0].http.post("/v1/tables", json={"name": "n", "location": str(folder)}).raise_for_status()
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    ids: set[str] = set()
    failures: list[BaseException] = []
    stopping = threading.Event()

    def client(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        try:
            while not stopping.is_set():
                ask(url, chance, outcomes, wrong, ids)
        except BaseException as error:  # told by the test
            failures.append(error)

    clients = [threading.Thread(target=client, args=(seed,), daemon=True) for seed in range(CLIENTS)]
    for thread in clients:
        thread.start()
    chance, until_s = random.Random(1), time.monotonic() + CHAOS_S  # noqa: S311 - no secret
    kills = pauses = 0
    while time.monotonic() < until_s and not failures:
        time.sleep(EVERY_S / 2)
        victim = chance.choice(gateways)
        if (kills + pauses) % 3 == 2:
            victim.process.send_signal(signal.SIGSTOP)
            time.sleep(12)
            victim.process.send_signal(signal.SIGCONT)
            pauses += 1
        else:
            victim.kill()
            time.sleep(EVERY_S / 2)
            victim.start()
            kills += 1
    stopping.set()
    for thread in clients:
        thread.join(150)
    print(f"{kills} kills, {pauses} pauses: {dict(outcomes)}")
    assert not failures, failures
    assert not wrong
    typed = {"answered", "answered by another gateway", "sent again", "polled again", "RESULT_GONE", "GATEWAY_LOST"}
    assert set(outcomes) <= typed, outcomes
    assert outcomes["answered by another gateway"] > 0
    lost = outcomes["RESULT_GONE"] + outcomes["GATEWAY_LOST"]
    assert outcomes["answered"] >= 0.99 * (outcomes["answered"] + lost), outcomes

    http = gateways[0].http
    running = http.get("/v1/queries", params={"state": "RUNNING"}).json()["queries"]
    assert not {query["id"] for query in running} & ids
    wait_until(lambda: not http.get("/v1/leases").json()["leases"], "nothing is leased", 10)
