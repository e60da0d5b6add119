"""Downloads that nobody reads: bounded memory at every door, ended after a while, and all of it given back."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks import stalled
from tests.attacks.conftest import register_bookstore
from tests.attacks.doors import Served, served
from tests.attacks.stalled import Stalled, get

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

MIB = 1 << 20
CLIENTS = 80
MOST_BYTES, MOST_KEPT_BYTES = 1_500 * MIB, 200 * MIB
STALL_S, DROPPED_WITHIN_S, GIVEN_BACK_WITHIN_S = 3.0, 60.0, 60.0
# 100,000 rows of half a kilobyte, and eight of seven megabytes
LONG = (
    "SELECT t.id, repeat(concat('x', cast(t.id AS string)), 90) AS text FROM transactions t, books b WHERE b.id <= 20"
)
WIDE = "SELECT text FROM wide WHERE id <= 8"
WIDER = "SELECT text FROM wide WHERE id = 9"
DOORS = ("json", "csv", "arrow", "page", "hs2", "hs2-http", "flight")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("downloads") / "home"
    with served(
        home,
        duckdb={"workers": 2, "threads": 1, "memory_limit": "512MiB"},
        spark={"enabled": False},
        results={"downloads": 1_000, "downloads_per_user": 500, "stall_s": STALL_S},
        flight={"calls": 512},
    ) as gateway:
        register_bookstore(gateway, bookstore)
        register_wide(gateway, tmp_path_factory.mktemp("tables") / "wide")
        yield gateway


def register_wide(gateway: Served, folder: Path) -> None:
    """Register eight texts of seven megabytes, and one of twenty."""
    folder.mkdir()
    texts = [str(number) * (7 if number < 9 else 20) * 1_000_000 for number in range(1, 10)]
    pq.write_table(pa.table({"id": range(1, 10), "text": texts}), folder / "part.parquet")
    gateway.register("wide", folder)


def query_id(gateway: Served, sql: str) -> str:
    with gateway.http() as client:
        reply = client.post("/v1/queries", json={"sql": sql, "wait_s": 300, "max_rows": 0}).json()
    assert reply["state"] == "FINISHED", reply
    return str(reply["id"])


def attack(gateway: Served, door: str, sql: str, clients: int, attackers: Stalled) -> None:
    """Have clients ask for a result at a door."""
    if door == "flight":
        pytest.importorskip("grpc")
        ask = partial(attackers.flight, gateway, stalled.ticket_of(gateway, sql))
    elif door == "hs2":
        for number in range(clients):
            attackers.hs2(gateway, sql, f"user{number % 8}")
        return
    elif door == "hs2-http":
        ask = partial(attackers.http, gateway, stalled.fetch_over_http(gateway, sql))
    else:
        path = f"/v1/queries/{query_id(gateway, sql)}"
        query = "?max_rows=1000000" if door == "page" else f"/result?format={door}"
        ask = partial(attackers.http, gateway, get(path + query))
    for _ in range(clients):
        ask()


def others_are_served(gateway: Served) -> None:
    with gateway.http() as client:
        assert client.post("/v1/queries", json={"sql": "SELECT 1 AS one", "wait_s": 60}).json()["rows"] == [[1]]


def peak_bytes(process: psutil.Process, seconds: float) -> int:
    peak, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.02)
    return peak


@pytest.mark.parametrize("sql", [LONG, WIDE], ids=["long", "wide"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.thorough
def test_clients_that_do_not_read_cost_little_and_nothing_in_the_end(gateway: Served, door: str, sql: str) -> None:
    with Stalled() as attackers:
        attack(gateway, door, sql, 1, attackers)  # what a first one costs is not the attack's
    before = gateway.process.memory_info().rss
    with Stalled() as attackers:
        attack(gateway, door, sql, CLIENTS, attackers)
        peak = peak_bytes(gateway.process, 2.0)
        others_are_served(gateway)
        peak = max(peak, peak_bytes(gateway.process, STALL_S))
    assert peak < MOST_BYTES, f"{peak / MIB:,.0f} MiB"
    until_s = time.monotonic() + GIVEN_BACK_WITHIN_S
    while (after := gateway.process.memory_info().rss) > before + MOST_KEPT_BYTES and time.monotonic() < until_s:
        time.sleep(0.2)
    print(f"{door}: {before / MIB:,.0f} MiB, at most {peak / MIB:,.0f} MiB, {after / MIB:,.0f} MiB in the end")
    assert after <= before + MOST_KEPT_BYTES


@pytest.mark.parametrize("door", [door for door in DOORS if not door.startswith("hs2")])
def test_a_client_that_does_not_read_is_dropped(gateway: Served, door: str) -> None:
    """Replies of HiveServer2 are so small that the kernel takes them whole."""
    with Stalled() as attackers:
        begun = time.monotonic()
        if door == "flight":
            grpc = pytest.importorskip("grpc")
            call = attackers.flight(gateway, stalled.ticket_of(gateway, LONG))
            time.sleep(STALL_S + 3.0)
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
            assert caught.value.code() is grpc.StatusCode.CANCELLED
            return
        attack(gateway, door, LONG, 1, attackers)
        assert attackers.dropped(within_s=DROPPED_WITHIN_S) == 1
        assert time.monotonic() - begun > STALL_S


def test_one_user_has_a_bounded_number_of_downloads(tmp_path: Path, bookstore: Path) -> None:
    most = 3
    with served(
        tmp_path / "home",
        duckdb={"workers": 1, "threads": 1},
        spark={"enabled": False},
        results={"downloads_per_user": most, "downloads": 10},
    ) as gateway:
        register_bookstore(gateway, bookstore)
        found = query_id(gateway, LONG)
        with Stalled() as attackers:
            for _ in range(most):
                attackers.http(gateway, get(f"/v1/queries/{found}/result"))
            for attacker in attackers.sockets:
                attacker.recv(1, socket.MSG_PEEK)  # each has begun
            with gateway.http() as client:
                for path in (f"/v1/queries/{found}/result?format=csv", f"/v1/queries/{found}?max_rows=1000000"):
                    refused = client.get(path)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "TOO_MANY_DOWNLOADS")
                assert client.get(f"/v1/queries/{found}?max_rows=1").json()["rows"]  # small replies need no place
            others_are_served(gateway)
        until_s = time.monotonic() + DROPPED_WITHIN_S
        with gateway.http() as client:
            while client.get(f"/v1/queries/{found}/result?format=csv").status_code != 200:
                assert time.monotonic() < until_s, "places are not given back"
                time.sleep(0.1)


def test_a_row_has_a_largest_size(gateway: Served) -> None:
    with gateway.http() as client:
        reply = client.post("/v1/queries", json={"sql": WIDER, "wait_s": 60})
    assert reply.json()["error"]["code"] == "RESULT_TOO_LARGE"
