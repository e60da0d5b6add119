"""Three gateways on one PostgreSQL behind HAProxy, killed and stopped one after the other, while clients read."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.chaos_clients import Doors, Story, clients
from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import PostgreSQL, postgresql
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.thorough,
    pytest.mark.timeout(1_800),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PyHive's transport leaves sockets open that it cannot use
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # in which it is wrapped
]

COUNT = 3
CLIENTS = int(os.environ.get("CHAOS_CLIENTS", "8"))
CHAOS_S, EVERY_S = float(os.environ.get("CHAOS_S", "90")), float(os.environ.get("CHAOS_EVERY_S", "15"))
PAUSE_S = float(os.environ.get("CHAOS_PAUSE_S", "12"))
AWAY_S, HANGS_S = 20.0, 5.5
ROWS = 200_000
STATEMENTS: tuple[tuple[str, int], ...] = (
    ("SELECT count(*) AS n FROM n WHERE i < 1000", 1_000),
    ("SELECT max(i) AS n FROM n", ROWS - 1),
    ("SELECT count(*) AS n FROM n AS a JOIN n AS b ON a.i = b.i", ROWS),
    ("SELECT count(*) AS n FROM (SELECT i % 1000 AS g, count(*) FROM n GROUP BY 1) AS t", 1_000),
    (
        "SELECT count(*) AS n FROM (SELECT i FROM n WHERE i < 3000) AS a "
        "CROSS JOIN (SELECT i FROM n WHERE i < 1500) AS b "
        "WHERE levenshtein(CAST(a.i AS STRING), CAST(b.i AS STRING)) >= 0",
        4_500_000,
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
{http_servers}
listen hive
    mode tcp
    bind 127.0.0.1:{hive}
    balance roundrobin
    option httpchk GET /readyz
{hive_servers}
listen flight
    mode tcp
    bind 127.0.0.1:{flight}
    balance roundrobin
    option httpchk GET /readyz
{flight_servers}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def database() -> Iterator[PostgreSQL]:
    with postgresql() as server:
        yield server


@pytest.fixture
def gateways(database: PostgreSQL, tmp_path: Path) -> Iterator[list[Served]]:
    """Start three gateways, whose ports stay the same over restarts."""
    started = [
        Served(tmp_path / f"g{number}", database.url, port=free_port(), hive=free_port(), flight=free_port())
        for number in range(COUNT)
    ]
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
def table(gateways: list[Served], tmp_path: Path) -> None:
    """Register the table that all read."""
    folder = tmp_path / "n"
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array(range(ROWS), pa.int64())}), folder / "n.parquet")
    gateways[0].http.post("/v1/tables", json={"name": "n", "location": str(folder)}).raise_for_status()


@pytest.fixture
def doors(gateways: list[Served], tmp_path: Path) -> Iterator[Doors]:
    """Start a balancer over them."""
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("there is no HAProxy here: apt install haproxy")
    port, hive, flight = free_port(), free_port(), free_port()

    def servers(port_of: Callable[[Served], int]) -> str:
        return "\n".join(
            f"    server g{number} 127.0.0.1:{port_of(one)} check port {one.port} on-marked-down shutdown-sessions"
            for number, one in enumerate(gateways)
        )

    file = tmp_path / "haproxy.cfg"
    balancer = BALANCER.format(
        port=port,
        hive=hive,
        flight=flight,
        http_servers=servers(lambda one: one.port),
        hive_servers=servers(lambda one: one.hive_port),
        flight_servers=servers(lambda one: one.flight_port),
        socket=tmp_path / "stats",
    )
    file.write_text(balancer, encoding="utf-8")
    with (tmp_path / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([haproxy, "-db", "-f", str(file)], stdout=log, stderr=log)
    yield Doors(f"http://127.0.0.1:{port}", f"127.0.0.1:{hive}", f"127.0.0.1:{flight}")
    process.terminate()
    process.wait()


def words_of(story: Story) -> Counter[str]:
    """Return what clients saw, whichever door they came through."""
    words = Counter[str]()
    for outcome, times in story.outcomes.items():
        words[outcome.rpartition(": ")[2]] += times
    return words


def nothing_is_left(gateway: Served, story: Story) -> None:
    gc.collect()  # while those warnings are ignored
    running = gateway.http.get("/v1/queries", params={"state": "RUNNING"}).json()["queries"]
    assert not {query["id"] for query in running} & story.ids
    wait_until(lambda: not gateway.http.get("/v1/leases").json()["leases"], "nothing is leased", 10)


@pytest.mark.usefixtures("table")
def test_reads_survive_kills_and_pauses(gateways: list[Served], doors: Doors) -> None:
    story = Story()
    threads = clients(doors, story, CLIENTS, STATEMENTS)
    chance, until_s = random.Random(1), time.monotonic() + CHAOS_S  # noqa: S311 - no secret
    kills = pauses = 0
    while time.monotonic() < until_s and not story.failures:
        time.sleep(EVERY_S / 2)
        victim = chance.choice(gateways)
        if (kills + pauses) % 3 == 2:
            victim.process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            victim.process.send_signal(signal.SIGCONT)
            pauses += 1
        else:
            victim.kill()
            time.sleep(EVERY_S / 2)
            victim.start()
            kills += 1
    story.stopping.set()
    for thread in threads:
        thread.join(150)
    outcomes = story.outcomes
    print(f"{kills} kills, {pauses} pauses: {dict(sorted(outcomes.items()))}")
    assert not story.failures, story.failures
    assert not story.wrong
    words = words_of(story)
    assert set(words) <= {"answered", "taken over", "sent again", "RESULT_GONE", "GATEWAY_LOST"}, outcomes
    assert words["taken over"] > 0
    lost = words["RESULT_GONE"] + words["GATEWAY_LOST"]
    assert words["answered"] >= 0.99 * (words["answered"] + lost), outcomes
    nothing_is_left(gateways[0], story)


@pytest.mark.usefixtures("table")
def test_reads_survive_a_metastore_that_is_killed_and_that_hangs(
    database: PostgreSQL, gateways: list[Served], doors: Doors
) -> None:
    story = Story()
    threads = clients(doors, story, CLIENTS, STATEMENTS)
    chance = random.Random(2)  # noqa: S311 - no secret
    for turn in range(4):
        time.sleep(8)
        if turn % 2:
            with database.paused():
                time.sleep(AWAY_S)
        else:
            database.kill_one(chance)
    time.sleep(8)
    story.stopping.set()
    for thread in threads:
        thread.join(150)
    print(f"{dict(sorted(story.outcomes.items()))}, slowest reply {story.slowest_s:.1f} s")
    assert not story.failures, story.failures
    assert not story.wrong
    words = words_of(story)
    assert set(words) <= {"answered", "sent again", "METASTORE_UNAVAILABLE"}, story.outcomes
    assert words["answered"] > 99 * words["METASTORE_UNAVAILABLE"], story.outcomes
    assert story.slowest_s < HANGS_S
    nothing_is_left(gateways[0], story)
