"""Gateways on one database: who lives, and that nobody else writes."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import create_engine, text, update

from metastore.database.models import GatewayRow
from metastore.members.fence import EPOCH, Fenced
from metastore.members.membership import EARLIER_TTL, LEAVING, LONGEST_NAME, SURE_S, TTL, Membership, database_time
from metastore.records import QueryState
from metastore.repositories.drained_engines import Drained
from metastore.store import Metastore
from tests.metastore.examples import NOON, query
from tests.metastore.writing import at_once
from tests.waiting import wait_until

SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def others(url: str) -> Iterator[Metastore]:
    """Give the same database as another gateway sees it."""
    with Metastore(url) as metastore:
        yield metastore


def age(membership: Membership, by: dt.timedelta) -> None:
    """Let a member's last sign of life have been earlier."""
    with membership._engine.begin() as connection:
        then = database_time(connection) - by
        row = update(GatewayRow).where(GatewayRow.id == membership.current)
        connection.execute(row.values(seen_at=then, alive_until=then + TTL))


def test_a_member_has_a_new_id_at_each_start(store: Metastore, others: Metastore) -> None:
    first = store.membership.join("one")
    other = others.membership.join("two", "127.0.0.1:7")
    second = store.membership.join("one")
    assert first != second
    members = {member.id: (member.name, member.address) for member in store.membership.members()}
    assert members == {second: ("one", ""), other: ("two", "127.0.0.1:7")}
    others.membership.leave()
    assert [member.id for member in store.membership.members()] == [second]


def test_long_names_stay_apart_and_fit(store: Metastore) -> None:
    names = ["h" * 80 + f"-{number:016x}.63" for number in range(2)]
    ids = [store.membership.join(name) for name in names]
    assert {member.id for member in store.membership.members()} == set(ids)
    assert max(map(len, ids)) <= LONGEST_NAME + len("/12345678")


def test_a_silent_member_is_removed_and_one_that_renews_is_not(store: Metastore, others: Metastore) -> None:
    store.membership.join("judge")
    silent = others.membership.join("silent")
    assert store.membership.remove_silent() == ()
    age(others.membership, TTL + SECOND)
    assert others.membership.renew()
    assert store.membership.remove_silent() == ()
    age(others.membership, TTL + SECOND)
    assert store.membership.remove_silent() == (silent,)
    assert not others.membership.renew()
    assert others.membership.join("silent") != silent
    assert others.membership.renew()


def test_one_that_is_alone_and_one_of_an_earlier_release_are_judged_in_their_way(store: Metastore, url: str) -> None:
    store.membership.join("alone", solo=True)
    engine = create_engine(url)
    with engine.begin() as connection:
        now = database_time(connection)
        for name, seen in (("fresh", now - EARLIER_TTL / 2), ("stale", now - 2 * EARLIER_TTL)):
            connection.execute(GatewayRow.__table__.insert().values(id=name, seen_at=seen))  # type: ignore[attr-defined]  # a Table
    engine.dispose()
    assert store.membership.remove_silent() == ("stale",)
    assert {member.name for member in store.membership.members()} == {"alone", "fresh"}


def test_whoever_was_removed_writes_nothing(store: Metastore, others: Metastore) -> None:
    others.membership.join("paused")
    at_once(others.queries).open(query("of the paused one"))
    store.membership.remove("paused")
    with pytest.raises(Fenced):
        at_once(others.queries).close("of the paused one", QueryState.FINISHED, at=NOON)
    with pytest.raises(Fenced):
        others.drained.add(Drained("duckdb", "ann", NOON))
    assert store.drained.list() == ()
    left = store.queries.get("of the paused one")
    assert left is not None
    assert left.state is QueryState.QUEUED

    others.membership.join("paused")
    others.drained.add(Drained("duckdb", "ann", NOON))
    assert len(store.drained.list()) == 1


def test_steps_from_before_a_new_id_are_not_written_after_it(store: Metastore, others: Metastore) -> None:
    others.membership.join("paused")
    at_once(others.queries).open(query("q"))
    pending = others.queries.writer.close("q", QueryState.FINISHED, at=NOON)
    store.membership.remove("paused")
    others.queries.writer.disown(["q"])
    others.membership.join("paused")
    for late in (pending, others.queries.writer.close("q", QueryState.FINISHED, at=NOON)):
        with pytest.raises(Fenced):
            others.queries.writer.wait(late)


def test_a_removal_waits_for_a_transaction_under_way(store: Metastore, others: Metastore) -> None:
    """Otherwise it might be committed by one that is dead for the others."""
    if store._engine.dialect.name == "sqlite":
        pytest.skip("on SQLite whoever writes is alone")
    store.membership.join("judge")
    dead = others.membership.join("slow")
    removed: list[str] = []
    with others._engine.begin() as connection:
        connection.execute(text("UPDATE catalog_version SET version = version + 1"))
        age_of = create_engine(store._engine.url)
        with age_of.begin() as judge:
            then = database_time(judge) - TTL - SECOND
            judge.execute(update(GatewayRow).where(GatewayRow.id == dead).values(alive_until=then))
        age_of.dispose()
        thread = threading.Thread(target=lambda: removed.extend(store.membership.remove_silent()))
        thread.start()
        thread.join(0.3)
        assert not removed
    wait_until(lambda: removed == [dead], "the removal")
    thread.join()


def test_what_began_under_an_earlier_id_writes_nothing_under_the_next_one(store: Metastore, others: Metastore) -> None:
    before = others.membership.join("paused")
    store.membership.remove("paused")
    others.membership.join("paused")
    token = EPOCH.set(before)
    try:
        with pytest.raises(Fenced):
            others.drained.add(Drained("duckdb", "ann", NOON))
        with pytest.raises(Fenced):
            others.membership.require_alive()
        at_once(others.queries).open(query("of somebody else"))  # written by whatever thread is at hand
    finally:
        EPOCH.reset(token)
    others.membership.require_alive()
    assert store.drained.list() == ()
    assert store.queries.get("of somebody else") is not None


def test_whoever_has_left_writes_nothing(store: Metastore, others: Metastore) -> None:
    others.membership.join("leaver")
    others.membership.leave()
    with pytest.raises(Fenced):
        others.drained.add(Drained("duckdb", "ann", NOON))
    assert store.membership.members() == ()


def test_one_that_has_not_renewed_for_long_hands_out_nothing(store: Metastore) -> None:
    assert store.membership.may_grant()  # nobody else is there yet
    store.membership.join("one")
    assert store.membership.may_grant()
    store.membership._renewed_s -= SURE_S
    assert not store.membership.may_grant()
    assert store.membership.renew()
    assert store.membership.may_grant()


class Parts:
    """What a member publishes."""

    def __init__(self, before_exchange: Callable[[], object] = lambda: None) -> None:
        self.before_exchange = before_exchange
        self.seen: list[Mapping[str, Any]] = []
        self.is_published = False

    def look(self, me: str, published: Mapping[str, Any], now_s: float) -> None:
        self.seen.append(published)
        self.before_exchange()

    def exchange(self, me: str, published: Mapping[str, Any], now_s: float) -> tuple[dict[str, Any], bool]:
        self.seen.append(published)
        return {"of": me}, False

    def confirm(self) -> None:
        self.is_published = True


def test_members_see_what_the_others_publish(store: Metastore, others: Metastore) -> None:
    store.membership.join("one")
    me = others.membership.join("two")
    assert others.membership.renew(Parts(), is_leaving=True)
    parts = Parts()
    assert store.membership.renew(parts)
    assert parts.seen == [{me: {"of": me, LEAVING: True}}] * 2
    assert parts.is_published
    states = {state.member.name: state.is_leaving for state in store.membership.states()}
    assert states == {"one": False, "two": True}


def test_a_sign_of_life_waits_for_nobody(store: Metastore, others: Metastore) -> None:
    """Where the others exchange for too long, a member lives on with what it has."""
    if not store.membership.tells_news:
        pytest.skip("on SQLite whoever writes is alone")
    store.membership.join("one")
    others.membership.join("two")
    parts = Parts()

    class Slow(Parts):
        def exchange(self, me: str, published: Mapping[str, Any], now_s: float) -> tuple[dict[str, Any], bool]:
            began_s = time.monotonic()
            assert store.membership.renew(parts)
            assert time.monotonic() - began_s < TTL.total_seconds()
            return super().exchange(me, published, now_s)

    assert others.membership.renew(Slow())
    assert not parts.is_published
    assert store.membership.renew(parts)
    assert parts.is_published
