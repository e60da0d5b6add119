"""A PostgreSQL that hangs under a gateway: whoever asks is told so soon, and what runs is recorded afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.gateway.server.test_any_gateway import NUMBERS, SLOW, Served, register_numbers
from tests.postgresql import PostgreSQL, postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

AWAY_S, HANGS_S = 14.0, 5.0


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with postgresql() as running:
        yield running


def test_nobody_waits_for_a_metastore_that_hangs(server: PostgreSQL, tmp_path: Path) -> None:
    served = Served(tmp_path / "home", server.url)
    try:
        register_numbers(served, tmp_path / "n")
        done = served.ask("SELECT 1 AS x")["id"]
        running = served.ask(f"{SLOW} AND a.i < {NUMBERS // 4}", wait_s=0, timeout_s=600)["id"]
        wait_until(lambda: bool(served.look(running)["attempts"]), "it runs")
        took_s, statuses = list[float](), set[int]()

        def ask(number: int) -> None:
            with httpx.Client(base_url=str(served.http.base_url), timeout=60) as client:
                until_s = time.monotonic() + AWAY_S
                while (began_s := time.monotonic()) < until_s - HANGS_S:
                    match number % 4:
                        case 0:
                            reply = client.post("/v1/queries", json={"sql": f"SELECT {number} AS y", "wait_s": 0})
                        case 1:
                            reply = client.get(f"/v1/queries/{done}")
                        case 2:
                            reply = client.get("/v1/tables")
                        case _:
                            reply = client.get("/readyz")
                    took_s.append(time.monotonic() - began_s)
                    statuses.add(reply.status_code)
                    assert reply.status_code == 503, reply.text
                    time.sleep(0.1)

        with server.paused(), ThreadPoolExecutor(8) as threads:
            began_s = time.monotonic()
            list(threads.map(ask, range(8)))
            time.sleep(max(0.0, AWAY_S - (time.monotonic() - began_s)))
        assert statuses == {503}
        assert max(took_s) < HANGS_S, sorted(took_s)[-5:]
        wait_until(lambda: served.http.get("/readyz").status_code == 200, "it answers again", 10)
        assert served.look(done)["rows"] == [[1]]
        wait_until(lambda: served.look(running)["state"] == "FINISHED", "it is recorded", 120)
        assert served.ask("SELECT 2 AS x")["rows"] == [[2]]
    finally:
        served.kill()
