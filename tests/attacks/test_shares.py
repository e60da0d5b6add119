"""One user's flood leaves room for the others: places, slots, and commands, which need neither."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines.errors import EngineBusy
from gateway.errors import TooManyQueries
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.places import Places
from gateway.routing.admission.values import EngineBudget, Request
from gateway.security.principals import Principal, Role
from tests.attacks.conftest import register_bookstore
from tests.attacks.doors import Door, Refused, Served, served

FLOOD, SLOTS = 64, 64
CROSS_JOIN = "SELECT count(*) FROM transactions a, transactions b, transactions c WHERE (a.id * b.id + c.id) % 9973 = 7"
ANSWERED_WITHIN_S = 20.0  # where it took a minute to be refused


def somebody(name: str, *, address: str = "10.0.0.1", authenticated: bool = True) -> Principal:
    return Principal(name, Role.WRITER, authenticated, address)


def taken(places: Places, who: Principal, wanted: int) -> int:
    for count in range(wanted):
        try:
            places.take(who)
        except TooManyQueries:
            return count
    return wanted


def test_a_lone_user_has_most_places_and_never_all() -> None:
    places = Places(SLOTS)
    assert taken(places, somebody("alice"), FLOOD) == SLOTS * 3 // 4
    assert taken(places, somebody("bob"), 8) == 8
    assert taken(places, somebody("carol"), 1) == 1


def test_two_floods_leave_room_for_a_third_user() -> None:
    places, alice, bob = Places(SLOTS), somebody("alice"), somebody("bob")
    for _ in range(FLOOD):
        for who in (alice, bob):
            taken(places, who, 1)
    assert taken(places, somebody("carol"), 4) == 4


def test_names_that_nobody_proved_share_what_an_address_may_have() -> None:
    places = Places(SLOTS)
    held = sum(taken(places, somebody(f"name{n}", authenticated=False), 10) for n in range(FLOOD))
    assert SLOTS // 2 < held < SLOTS
    assert taken(places, somebody("bob"), 4) == 4
    assert taken(places, somebody("name", address="10.0.0.2", authenticated=False), 1) == 1


@pytest.mark.parametrize("most", [1, 2])
def test_few_places_are_of_use(most: int) -> None:
    places = Places(most)
    places.take(somebody("alice"))
    with pytest.raises(TooManyQueries):
        places.take(somebody("alice"))
    places.give_back(somebody("alice"))
    places.take(somebody("bob"))


def test_who_waits_for_a_slot_waits_behind_turns_and_not_behind_a_flood() -> None:
    admission, order = Admission([EngineBudget("fast", slots=1)]), list[str]()
    names = ["alice"] * 10 + ["bob"] * 2

    def run(name: str) -> None:
        with admission.lease(Request("fast", 1, somebody(name)), wait_s=30):
            order.append(name)

    with ThreadPoolExecutor(len(names)) as pool:
        with admission.lease(Request("fast", 1, somebody("carol")), wait_s=0):
            for number, name in enumerate(names, 1):
                pool.submit(run, name)
                while len(admission.waiting()) < number:
                    time.sleep(0.001)
    assert sorted(order) == sorted(names)
    assert set(order[:2]) == {"alice", "bob"}
    assert set(order[2:4]) == {"alice", "bob"}


def test_a_small_statement_of_somebody_else_has_a_slot_at_once() -> None:
    """Within what the engine has: what is kept for it, nobody else was given."""
    budget = EngineBudget("fast", slots=1, capacity_bytes=110, limit_bytes=100, guest_slots=1, guest_bytes=10)
    admission = Admission([budget])
    alice, bob = somebody("alice"), somebody("bob")
    with admission.lease(Request("fast", 100, alice), wait_s=0):
        for who, needed_bytes in ((alice, 1), (bob, 50)):
            with (
                pytest.raises(EngineBusy, match="No slot"),
                admission.lease(Request("fast", needed_bytes, who), wait_s=0),
            ):
                pass
        with admission.lease(Request("fast", 10, bob), wait_s=0) as grant:
            (held,) = admission.describe().engines
            assert (held.slots_held, held.bytes_held) == (2, 110)
            assert not grant.raise_to(11)


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Served]:
    """Serve a gateway that one user has filled with statements that do not end."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    with served(
        tmp_path_factory.mktemp("shares") / "home",
        duckdb={"workers": 1, "threads": 1},
        spark={"enabled": False},
        limits={"queue_s": 600},
    ) as gateway:
        register_bookstore(gateway, bookstore)
        with gateway.http("mallory") as client:
            sent = [client.post("/v1/queries", json={"sql": CROSS_JOIN, "wait_s": 0}) for _ in range(FLOOD)]
            assert {reply.status_code for reply in sent} == {202, 503}
            refused = next(reply for reply in sent if reply.status_code == 503).json()["error"]
            assert refused["code"] == "TOO_MANY_QUERIES"
            yield gateway
            for reply in sent:
                if reply.status_code == 202:
                    client.delete(f"/v1/queries/{reply.json()['id']}")


def test_others_are_answered_through_every_door(flooded: Served, door: Door) -> None:
    begun = time.monotonic()
    assert flooded.ask(door, "SELECT 1 AS one", user="ann") == [(1,)]
    assert time.monotonic() - begun < ANSWERED_WITHIN_S


def test_commands_are_behind_no_queries(flooded: Served, door: Door) -> None:
    """Not even behind one's own."""
    with pytest.raises(Refused, match="share") as caught:
        flooded.ask(door, CROSS_JOIN, user="mallory")
    assert caught.value.code == "TOO_MANY_QUERIES" or caught.value.sqlstate == "53300"
    begun = time.monotonic()
    rows = flooded.ask(door, "SHOW TABLES", user="mallory")
    assert {"books", "transactions"} <= {value for row in rows for value in row}
    assert flooded.ask(door, "DESCRIBE books", user="mallory")
    if door is not Door.HTTP:
        flooded.ask(door, "USE default", user="mallory")
    assert time.monotonic() - begun < ANSWERED_WITHIN_S
