"""A table of one gateway that changes all the time, read at another one: each statement sees one state of it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import postgresql

pytestmark = [pytest.mark.e2e, pytest.mark.thorough, pytest.mark.timeout(900)]

CHANGES, READERS, STATES = 1_000, 4, 3
ROWS = 500
SQL = "SELECT min(p.x) AS a, max(p.x) AS b, min(q.x) AS c, max(q.x) AS d, count(*) AS n FROM t p JOIN t q ON p.i = q.i"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    with postgresql() as server:
        one, other = (Served(tmp_path / name, server.url) for name in ("one", "other"))
        try:
            yield one, other
        finally:
            for served in (one, other):
                served.kill()


def test_no_statement_sees_half_a_change(pair: tuple[Served, Served], tmp_path: Path) -> None:
    one, other = pair
    for state in range(STATES):
        folder = tmp_path / f"t{state}"
        folder.mkdir()
        for part in range(state + 1):  # each state has its own number of files and rows
            table = pa.table({"i": pa.array(range(ROWS), pa.int64()), "x": pa.array([state] * ROWS, pa.int64())})
            pq.write_table(table.slice(0, ROWS - part), folder / f"{part}.parquet")
    joined = [_joined(state) for state in range(STATES)]
    assert len(set(joined)) == STATES
    seen, wrong, done = Counter[int](), list[object](), threading.Event()

    def register(state: int) -> None:
        body = {"name": "t", "location": str(tmp_path / f"t{state}")}
        one.http.post("/v1/tables", json=body).raise_for_status()

    def read() -> None:
        with httpx.Client(base_url=str(other.http.base_url), timeout=60) as client:
            while not done.is_set():
                record = client.post("/v1/queries", json={"sql": SQL, "wait_s": 30}).json()
                if record.get("rows") is None:
                    wrong.append(record)
                    return
                a, b, c, d, count = record["rows"][0]
                if not (a == b == c == d and count == joined[a]):
                    wrong.append(record["rows"])
                    return
                seen[a] += 1

    register(0)
    time.sleep(2)
    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    chance = random.Random(3)  # noqa: S311 - no secret
    began_s = time.monotonic()
    for _ in range(CHANGES):
        register(chance.randrange(STATES))
        if wrong:
            break
    took_s = time.monotonic() - began_s
    done.set()
    for reader in readers:
        reader.join(60)
    print(f"{CHANGES} changes in {took_s:.0f} s, {dict(seen)} statements")
    assert not wrong, wrong[:3]
    assert len(seen) == STATES and sum(seen.values()) > 50


def _joined(state: int) -> int:
    """Return how many rows the join of a state with itself has."""
    files = Counter[int]()
    for part in range(state + 1):
        files.update(range(ROWS - part))
    return sum(times * times for times in files.values())
