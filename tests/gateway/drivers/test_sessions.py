"""The store of sessions that HiveServer2 and Flight SQL share: its bounds, its expiry, and who ends what."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from sqlalchemy import create_engine

from gateway.drivers.flight.sessions import Sessions
from gateway.drivers.handles import Handles
from gateway.drivers.hs2.errors import InvalidHandle
from gateway.drivers.hs2.operations import Identifier, Operation
from gateway.drivers.hs2.registry import Peer, Registry
from gateway.drivers.operations import StatementOperation
from gateway.drivers.sessions import DriverSession, SessionStore
from gateway.errors import AuthenticationFailed, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session
from gateway.statements.statement import Run, Statement
from metastore.members.membership import Membership

ALICE, BOB = Principal("alice", authenticated=True), Principal("bob", authenticated=True)
SESSIONS, PER_USER, THREADS, HELD = 8, 3, 16, 200
NEVER_S = 3_600.0


@dataclass(eq=False)
class Work:
    """What a session holds here. closed: how often it was ended."""

    done: Future[Any] = field(default_factory=Future)
    closed: int = 0
    identifier: Identifier = field(default_factory=lambda: Identifier(secrets.token_bytes(16), b""))
    run: Run = field(default_factory=lambda: Run(Statement("SELECT 1")))

    def close(self) -> None:
        self.closed += 1
        if not self.done.done():
            self.done.set_result(None)


class Closed(Exception):
    """The error of this door."""


class Door(SessionStore[DriverSession[Work], Work]):
    """The store with the least that a protocol adds."""

    keys = itertools.count()

    def open(self, session: Session, spare: DriverSession[Work] | None = None) -> DriverSession[Work]:
        opened = DriverSession[Work](session=session, key=str(next(self.keys)))

        def make_room() -> DriverSession[Work] | None:
            if spare is None:
                self._require_room(session.principal)
            return spare

        self._add(opened, make_room)
        return opened

    def hold(self, session: DriverSession[Work], work: Work) -> bytes:
        self._hold(session, work.identifier.guid, work, lambda: [])
        return work.identifier.guid

    def find(self, handle: bytes) -> Work | None:
        held = self._held(handle)
        return held[1] if held is not None else None


def current(user: Principal) -> Principal:
    return user


def session_of(user: Principal) -> Session:
    return Session(user, deadline_s=60.0)


def limits(idle_s: float = NEVER_S) -> Limits:
    return Limits(SESSIONS, PER_USER, idle_s)


def door(users: Callable[[Principal], Principal] = current, idle_s: float = NEVER_S) -> Door:
    return Door(limits(idle_s), users, ended=Closed)


@dataclass(frozen=True)
class OneOf:
    """One of the doors, as these tests use it."""

    store: SessionStore[Any, Any]
    open: Callable[[Principal], Any]
    hold: Callable[[Any, Work], object]
    ended: type[Exception]


def plain_door() -> OneOf:
    store = door()
    return OneOf(store, lambda user: store.open(session_of(user)), store.hold, Closed)


def nothing(*_: object) -> Any:
    """Continue nothing: no other gateway is gone."""
    raise AssertionError


def handles() -> Handles:
    return Handles(Membership(create_engine("sqlite://")))


def hs2_door() -> OneOf:
    store = Registry(limits(), current, handles(), continued=nothing, statement=nothing)

    def open_one(user: Principal) -> Any:
        return store.open(session_of(user), Peer("127.0.0.1", user), 0)

    return OneOf(store, open_one, lambda session, work: store.add(session, cast(Operation, work)), InvalidHandle)


def flight_door() -> OneOf:
    store = Sessions(limits(), current, handles(), held_bytes=1 << 20, continued=nothing, statement=nothing)

    def open_one(user: Principal) -> Any:
        opened = store.open(session_of(user))
        claimed = store.claim(opened.token)
        opened.session.end_wait()
        opened.session.end_wait()
        return claimed

    def hold(session: Any, work: Work) -> object:
        return store.hold(session, cast(StatementOperation, work))

    return OneOf(store, open_one, hold, AuthenticationFailed)


doors = pytest.mark.parametrize("make", [plain_door, hs2_door, flight_door])


@doors
def test_no_more_open_than_may_be_however_many_come_at_once(make: Callable[[], OneOf]) -> None:
    one = make()
    users = [Principal(f"user{number}", authenticated=True) for number in range(4)]
    begin = threading.Barrier(THREADS)

    def come(number: int) -> Any:
        begin.wait()
        try:
            return one.open(users[number % len(users)])
        except TooManySessions:
            return None

    with ThreadPoolExecutor(THREADS) as pool:
        opened = [each for each in pool.map(come, range(THREADS)) if each is not None]
    assert len(opened) == SESSIONS  # four users may have three each, which would be more
    for user in users:
        assert sum(each.session.principal is user for each in opened) <= PER_USER
    for each in opened:
        one.store.close(each)
    assert [one.open(ALICE) is not None for _ in range(PER_USER)] == [True] * PER_USER
    with pytest.raises(TooManySessions, match="alice has 3 sessions open already"):
        one.open(ALICE)
    one.open(BOB)


@doors
def test_what_comes_while_a_session_is_closed_is_ended_too(make: Callable[[], OneOf]) -> None:
    one = make()
    session = one.open(ALICE)
    works = [Work() for _ in range(HELD)]
    refused = []
    begin = threading.Barrier(3)

    def bring(mine: list[Work]) -> None:
        begin.wait()
        for work in mine:
            try:
                one.hold(session, work)
            except one.ended:
                refused.append(work)

    bringing = [threading.Thread(target=bring, args=(works[part::2],)) for part in range(2)]
    for each in bringing:
        each.start()
    begin.wait()
    one.store.close(session)
    for each in bringing:
        each.join()
    with pytest.raises(one.ended):
        one.hold(session, late := Work())
    assert [work.closed for work in (*works, late)] == [1] * (HELD + 1)
    assert (one.store.count(), one.store.running(), session.operations) == (0, 0, {})


def test_what_nobody_asks_anything_of_ends_and_what_somebody_waits_for_stays() -> None:
    store = door(idle_s=0.0)
    idle, waiting = store.open(session_of(ALICE)), store.open(session_of(BOB))
    waiting.session.begin_wait()
    store.hold(idle, lost := Work())
    handle = store.hold(waiting, awaited := Work())
    store.close_idle()
    assert (store.count(), lost.closed, awaited.closed) == (1, 1, 0)
    assert store.find(handle) is awaited
    waiting.session.end_wait()
    store.close_idle()
    assert (store.count(), awaited.closed) == (0, 1)


def test_a_session_ends_with_its_user() -> None:
    gone = set[str]()

    def users(user: Principal) -> Principal:
        if user.name in gone:
            raise AuthenticationFailed("There is no such user.")
        return user

    store = door(users)
    of_alice, of_bob = store.open(session_of(ALICE)), store.open(session_of(BOB))
    store.hold(of_alice, work := Work())
    store.require_current(of_alice)
    gone.add("alice")
    with pytest.raises(AuthenticationFailed):
        store.require_current(of_alice)
    assert (store.count(), work.closed) == (1, 1)
    gone.add("bob")
    store.close_idle()
    assert (store.count(), store.is_current(of_bob)) == (0, False)


def test_one_that_gives_way_takes_with_it_what_it_holds() -> None:
    store = door()
    spare = store.open(session_of(ALICE))
    handle = store.hold(spare, work := Work())
    store.open(session_of(ALICE), spare)
    assert (store.count(), work.closed, store.find(handle)) == (1, 1, None)


def test_what_is_released_is_ended_once() -> None:
    store = door()
    session = store.open(session_of(ALICE))
    handle = store.hold(session, work := Work())
    store.hold(session, other := Work())
    assert store.running() == 2
    store.release(handle)
    store.release(handle)
    assert (work.closed, store.running()) == (1, 1)
    store.leave()
    store.leave()
    assert (work.closed, other.closed, store.count()) == (1, 1, 0)


def test_doors_do_not_share_their_bounds() -> None:
    full, other = door(), door()
    for user in (ALICE, ALICE, ALICE):
        full.open(session_of(user))
    with pytest.raises(TooManySessions):
        full.open(session_of(ALICE))
    other.open(session_of(ALICE))
