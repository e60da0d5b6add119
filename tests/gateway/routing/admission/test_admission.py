"""Leases, turns, pools and raises, each by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from engines.errors import EngineBusy, StatementCancelled
from gateway.errors import PoolFull
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.holdings import Holdings, Room
from gateway.routing.admission.turns import FEW_PASSED, MOST_PASSED
from gateway.routing.admission.values import DEFAULT_POOL, EngineBudget, Need, Pool, Request, WhenFull
from gateway.security.principals import Principal

SOON_S = 5.0
LONG_S = 30.0


def somebody(name: str) -> Principal:
    return Principal(name, authenticated=True)


ALICE, BOB, CAROL = somebody("alice"), somebody("bob"), somebody("carol")


class Clients:
    """Threads that each hold a lease until they are told to end it; ``order`` is that in which they got it."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.order: list[str] = []
        self._threads = ThreadPoolExecutor(300)
        self._ends: dict[str, threading.Event] = {}
        self._runs: dict[str, Future[None]] = {}
        self._began: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def ask(self, name: str, request: Request, *, wait_s: float = LONG_S) -> None:
        """Have a thread ask, and return once it waits or holds."""
        self._ends[name], self._began[name] = threading.Event(), threading.Event()
        before = len(self.admission.waiting()) + sum(state.slots_held for state in self.admission.describe().engines)
        self._runs[name] = self._threads.submit(self._hold, name, request, wait_s)
        until_s = time.monotonic() + SOON_S
        while True:
            held = sum(state.slots_held for state in self.admission.describe().engines)
            if len(self.admission.waiting()) + held > before or self._runs[name].done():
                return
            assert time.monotonic() < until_s
            time.sleep(0.001)

    def _hold(self, name: str, request: Request, wait_s: float) -> None:
        with self.admission.lease(request, wait_s=wait_s):
            with self._lock:
                self.order.append(name)
            self._began[name].set()
            self._ends[name].wait(LONG_S)

    def has(self, name: str) -> bool:
        """Tell whether somebody holds a lease, who was given it before this call."""
        return self._began[name].wait(0.2)

    def end(self, name: str) -> None:
        """Have somebody end its lease."""
        assert self._began[name].wait(SOON_S), f"{name} has no lease"
        self._ends[name].set()
        self._runs[name].result(SOON_S)

    def error(self, name: str) -> BaseException | None:
        """Return what somebody's wait ended with."""
        return self._runs[name].exception(SOON_S)

    def close(self) -> None:
        """End all."""
        for each in self._ends.values():
            each.set()
        self._threads.shutdown()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def clients_of(opened: ExitStack, admission: Admission) -> Clients:
    clients = Clients(admission)
    opened.callback(clients.close)
    return clients


def held(admission: Admission, engine: int = 0) -> tuple[int, int]:
    state = admission.describe().engines[engine]
    return state.slots_held, state.bytes_held


def test_slots_and_bytes_are_held_until_the_lease_ends() -> None:
    admission = Admission([EngineBudget("fast", 2, 100)])
    with admission.lease(Request("fast", 60), wait_s=0) as grant:
        assert grant.lease.memory_bytes == 60
        with pytest.raises(EngineBusy, match="memory"), admission.lease(Request("fast", 60), wait_s=0):
            pass
        with admission.lease(Request("fast", 40), wait_s=0):
            assert held(admission) == (2, 100)
            with pytest.raises(EngineBusy, match="No slot"), admission.lease(Request("fast", 0), wait_s=0):
                pass
    assert held(admission) == (0, 0)


def test_a_lease_is_given_back_after_an_error() -> None:
    admission = Admission([EngineBudget("fast", 1)])
    with pytest.raises(RuntimeError), admission.lease(Request("fast", 1), wait_s=0):
        raise RuntimeError
    with admission.lease(Request("fast", 1), wait_s=0):
        pass


def test_who_waits_gets_the_slot_that_becomes_free(opened: ExitStack) -> None:
    clients = clients_of(opened, Admission([EngineBudget("fast", 1)]))
    clients.ask("first", Request("fast", 1))
    clients.ask("second", Request("fast", 1))
    assert not clients.has("second")
    clients.end("first")
    assert clients.has("second")


def test_many_who_want_the_same_are_asked_for_once(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    admission = Admission([EngineBudget("fast", slots=1)])
    clients, asked, room = clients_of(opened, admission), list[Request](), Holdings.room
    for number in range(20):
        clients.ask(str(number), Request("fast", 0, ALICE))

    def counted(holdings: Holdings, request: Request, *arguments: Any) -> Room | Need:
        asked.append(request)
        return room(holdings, request, *arguments)

    monkeypatch.setattr(Holdings, "room", counted)
    clients.end("0")
    assert clients.has("1")
    assert len(asked) == 2  # before somebody got the slot, and after


def test_a_cancel_wakes_who_waits_at_once() -> None:
    admission, cancelled = Admission([EngineBudget("fast", 1)]), threading.Event()
    with admission.lease(Request("fast", 1), wait_s=0), ThreadPoolExecutor(1) as threads:

        def wait() -> float:
            begun_s = time.monotonic()
            with (
                pytest.raises(StatementCancelled),
                admission.lease(Request("fast", 1, query_id="q"), wait_s=LONG_S, cancelled=cancelled.is_set),
            ):
                pass
            return time.monotonic() - begun_s

        waiting = threads.submit(wait)
        while not admission.waiting():
            time.sleep(0.001)
        admission.wake("another")
        cancelled.set()
        admission.wake("q")
        assert waiting.result(SOON_S) < SOON_S
        assert admission.waiting() == ()


def test_a_raise_takes_what_is_free_and_never_more() -> None:
    admission = Admission([EngineBudget("fast", 4, 100, limit_bytes=80)])
    with admission.lease(Request("fast", 30), wait_s=0) as one, admission.lease(Request("fast", 10), wait_s=0):
        assert not one.raise_to(81)  # its own limit
        assert one.raise_to(80)
        assert held(admission) == (2, 90)
        with admission.lease(Request("fast", 5), wait_s=0) as small:
            assert not small.raise_to(11)
            assert small.raise_to(10)
            assert small.raise_to(3)  # it has more already
            assert small.lease.memory_bytes == 10
        assert held(admission) == (2, 90)
    assert not one.raise_to(90)  # it has ended
    assert held(admission) == (0, 0)


def test_many_small_ones_at_once_and_a_large_one_alone(opened: ExitStack) -> None:
    clients = clients_of(opened, Admission([EngineBudget("fast", 20, 100, limit_bytes=100)]))
    for number in range(10):
        clients.ask(f"small {number}", Request("fast", 10, somebody(f"user {number}")))
    assert held(clients.admission) == (10, 100)
    clients.ask("large", Request("fast", 100, ALICE))
    for number in range(10):
        assert not clients.has("large")
        clients.end(f"small {number}")
    assert clients.has("large")


def test_one_that_does_not_fit_is_passed_a_few_times_only(opened: ExitStack) -> None:
    clients = clients_of(opened, Admission([EngineBudget("fast", 100, 100)]))
    clients.ask("holder", Request("fast", 60, ALICE))
    clients.ask("large", Request("fast", 50, ALICE))
    for number in range(FEW_PASSED + 2):
        clients.ask(f"small {number}", Request("fast", 1, ALICE))
    assert [clients.has(f"small {number}") for number in range(FEW_PASSED + 2)] == [True] * FEW_PASSED + [False] * 2
    needs = [each.needs for each in clients.admission.waiting()]
    assert needs == [Need.MEMORY, Need.TURN, Need.TURN]
    clients.end("holder")
    assert all(clients.has(name) for name in ("large", f"small {FEW_PASSED}", f"small {FEW_PASSED + 1}"))


def test_those_that_end_before_it_could_start_pass_it_more_often_and_not_for_ever() -> None:
    admission = Admission([EngineBudget("fast", 100, 100)])
    with ThreadPoolExecutor(1) as threads, admission.lease(Request("fast", 60, ALICE, expected_s=1e6), wait_s=0):

        def large() -> None:
            with admission.lease(Request("fast", 50, ALICE), wait_s=0.5):
                pass

        waiting = threads.submit(large)
        while not admission.waiting():
            time.sleep(0.001)
        for _ in range(MOST_PASSED):
            with admission.lease(Request("fast", 1, ALICE, expected_s=0.1), wait_s=0):
                pass
        with pytest.raises(EngineBusy), admission.lease(Request("fast", 1, ALICE, expected_s=0.1), wait_s=0):
            pass
        with pytest.raises(EngineBusy):
            waiting.result(SOON_S)
        with admission.lease(Request("fast", 1, ALICE), wait_s=0):  # it is in nobody's way any more
            pass


def test_a_flood_does_not_pass_somebody_who_holds_nothing(opened: ExitStack) -> None:
    """Not even where that one needs more than is free: it waits for what runs, and not for what comes."""
    clients = clients_of(opened, Admission([EngineBudget("fast", 4, 100)]))
    for number in range(4):
        clients.ask(f"flood {number}", Request("fast", 25, ALICE))
    clients.ask("single", Request("fast", 50, BOB))
    for number in range(4, 9):
        clients.ask(f"flood {number}", Request("fast", 25, ALICE))
    clients.end("flood 0")
    assert held(clients.admission) == (3, 75)
    clients.end("flood 1")
    assert clients.has("single")
    assert clients.order == [f"flood {number}" for number in range(4)] + ["single"]


@pytest.mark.parametrize(("weight", "first"), [(1.0, {4}), (3.0, {6})])
def test_pools_share_by_weight(opened: ExitStack, weight: float, first: set[int]) -> None:
    clients = clients_of(opened, Admission([EngineBudget("fast", 1)], [Pool("etl"), Pool("reports", weight=weight)]))
    clients.ask("holder", Request("fast", 1, CAROL))
    for number in range(8):
        clients.ask(f"etl {number}", Request("fast", 1, ALICE, "etl"))
    for number in range(8):
        clients.ask(f"reports {number}", Request("fast", 1, BOB, "reports"))
    clients.end("holder")
    for turn in range(8):
        while len(clients.order) < turn + 2:
            time.sleep(0.001)
        clients.end(clients.order[turn + 1])
    assert sum(name.startswith("reports") for name in clients.order[1:9]) in first


def test_a_pools_limits_hold_over_all_engines(opened: ExitStack) -> None:
    engines = [EngineBudget("one", 9, 900), EngineBudget("two", 9, 900), EngineBudget("spilling", 9)]
    admission = Admission(engines, [Pool("etl", memory_bytes=100, slots=3)])
    clients = clients_of(opened, admission)
    clients.ask("a", Request("one", 60, ALICE, "etl"))
    with (
        pytest.raises(EngineBusy, match="pool etl is full"),
        admission.lease(Request("two", 50, ALICE, "etl"), wait_s=0),
    ):
        pass
    with admission.lease(Request("two", 50, ALICE), wait_s=0):  # of no pool
        pass
    clients.ask("b", Request("spilling", 1_000, ALICE, "etl"))  # its memory counts nowhere
    with admission.lease(Request("two", 40, ALICE, "etl"), wait_s=0) as grant:
        assert not grant.raise_to(41)
        with pytest.raises(EngineBusy, match="No slot"), admission.lease(Request("two", 0, BOB, "etl"), wait_s=0):
            pass
    etl = admission.describe().pools[1]
    assert (etl.pool.name, etl.slots_held, etl.bytes_held) == ("etl", 2, 60)


def test_a_statement_leases_no_more_than_its_pool_has() -> None:
    admission = Admission([EngineBudget("fast", 1, 1_000, 500)], [Pool("small", memory_bytes=100)])
    assert (admission.limit_bytes("fast", "small"), admission.limit_bytes("fast", "")) == (100, 500)
    with admission.lease(Request("fast", 500, pool="small"), wait_s=0) as grant:
        assert grant.lease.memory_bytes == 100


@pytest.mark.parametrize(("when_full", "error"), [(WhenFull.NEXT, EngineBusy), (WhenFull.REFUSE, PoolFull)])
def test_a_full_pool_takes_the_next_engine_or_refuses(
    opened: ExitStack, when_full: WhenFull, error: type[Exception]
) -> None:
    pool = Pool("etl", slots=1, queue=1, queue_s=0.3, when_full=when_full)
    clients = clients_of(opened, Admission([EngineBudget("fast", 9)], [pool]))
    clients.ask("holder", Request("fast", 1, ALICE, "etl"))
    clients.ask("waiting", Request("fast", 1, ALICE, "etl"))
    begun_s = time.monotonic()
    clients.ask("too many", Request("fast", 1, ALICE, "etl"))
    assert isinstance(clients.error("too many"), error)
    assert time.monotonic() - begun_s < 0.25  # at once
    assert isinstance(clients.error("waiting"), error)  # after the pool's time
    with clients.admission.lease(Request("fast", 1, ALICE), wait_s=0):
        pass


def test_an_unknown_pool_is_the_default_one() -> None:
    admission = Admission([EngineBudget("fast", 9)], [Pool(DEFAULT_POOL, slots=1), Pool("etl")])
    with admission.lease(Request("fast", 1, pool="nobody's"), wait_s=0):
        with pytest.raises(EngineBusy), admission.lease(Request("fast", 1), wait_s=0):
            pass
        with admission.lease(Request("fast", 1, pool="etl"), wait_s=0):
            pass


def test_pool_limits_of_others_hold_nobody_up(opened: ExitStack) -> None:
    clients = clients_of(opened, Admission([EngineBudget("fast", 9)], [Pool("etl", slots=1)]))
    for number in range(5):
        clients.ask(f"etl {number}", Request("fast", 1, ALICE, "etl"))
    clients.ask("other", Request("fast", 1, BOB))
    assert clients.has("other")
    assert clients.admission.congestion(Request("fast", 1, CAROL))[0] == 0.0


def test_the_expected_wait_follows_what_holders_still_take(opened: ExitStack) -> None:
    admission = Admission([EngineBudget("fast", 2, 100)])
    clients = clients_of(opened, admission)
    clients.ask("long", Request("fast", 60, ALICE, expected_s=20.0))
    clients.ask("short", Request("fast", 40, ALICE, expected_s=10.0))
    assert admission.congestion(Request("fast", 40, BOB))[0] == pytest.approx(10.0, abs=1.0)
    assert admission.congestion(Request("fast", 41, BOB))[0] == pytest.approx(20.0, abs=1.0)
    clients.ask("next", Request("fast", 40, ALICE, query_id="q7", expected_s=5.0))
    assert admission.congestion(Request("fast", 40, ALICE))[0] == pytest.approx(15.0, abs=1.0)
    assert admission.congestion(Request("fast", 40, BOB))[0] == pytest.approx(10.0, abs=1.0)  # it would be first
    (told,) = admission.waiting()
    assert (told.query_id, told.engine, told.pool, told.account) == ("q7", "fast", DEFAULT_POOL, "alice")
    assert (told.needs, told.place, told.memory_bytes) == (Need.SLOT, 1, 40)
    assert told.expected_s == pytest.approx(10.0, abs=1.0)


def test_a_grant_says_what_the_engine_is_told() -> None:
    admission = Admission([EngineBudget("fast", 1, 100)])
    with admission.lease(Request("fast", 10, threads=3, careful=True), wait_s=0) as grant:
        assert isinstance(grant, Grant)
        assert (grant.lease.memory_bytes, grant.lease.threads, grant.lease.careful) == (10, 3, True)


def test_a_guest_finds_shared_memory_where_none_is_kept() -> None:
    """A budget that is one statement's limit has nothing to keep; what is free of it is for guests, too."""
    admission = Admission([EngineBudget("fast", slots=1, capacity_bytes=100, limit_bytes=100, guest_slots=1)])
    alice, bob = Principal("alice", authenticated=True), Principal("bob", authenticated=True)
    with admission.lease(Request("fast", 60, alice), wait_s=0):
        assert admission.congestion(Request("fast", 40, bob))[0] == 0.0
        assert admission.congestion(Request("fast", 41, bob))[0] > 0.0
        with admission.lease(Request("fast", 40, bob), wait_s=0) as grant:
            (held,) = admission.describe().engines
            assert (held.slots_held, held.bytes_held) == (2, 100)
            assert not grant.raise_to(41)
        with pytest.raises(EngineBusy), admission.lease(Request("fast", 41, bob), wait_s=0):
            pass
    (held,) = admission.describe().engines
    assert (held.slots_held, held.bytes_held) == (0, 0)


def test_no_more_long_ones_than_the_processors_take_and_short_ones_pass(opened: ExitStack) -> None:
    admission = Admission([EngineBudget("fast", 8, 100, guest_slots=1, guest_bytes=10, abreast=3)])
    clients = clients_of(opened, admission)
    unknown, long, short = (Request("fast", 1, ALICE, expected_s=expected_s) for expected_s in (None, 60.0, 0.1))
    clients.ask("unknown", unknown)
    clients.ask("first", long)
    clients.ask("second", long)
    clients.ask("third", long)
    assert not clients.has("third")
    (waiting,) = admission.waiting()
    assert waiting.needs is Need.PROCESSORS
    assert waiting.expected_s == pytest.approx(1.0, abs=0.5)  # what an unknown one is taken to run
    assert admission.congestion(long)[0] > 0
    assert admission.congestion(short)[0] == 0
    for number in range(3):
        clients.ask(f"short {number}", short)
        assert clients.has(f"short {number}")
    assert admission.long_at("fast") == 4
    clients.ask("short 3", short)
    assert not clients.has("short 3")
    assert [each.needs for each in admission.waiting()] == [Need.PROCESSORS] * 2
    clients.ask("of bob", Request("fast", 1, BOB, expected_s=60.0))
    assert clients.has("of bob")  # who holds nothing is a guest, as ever
    clients.end("unknown")
    assert clients.has("third")


def test_short_ones_leave_a_long_one_its_turn(opened: ExitStack) -> None:
    admission = Admission([EngineBudget("fast", 2, abreast=1)])
    clients = clients_of(opened, admission)
    clients.ask("long", Request("fast", 0, ALICE, expected_s=60.0))
    clients.ask("next", Request("fast", 0, ALICE, expected_s=60.0))
    clients.ask("short", Request("fast", 0, ALICE, expected_s=0.1))
    assert clients.has("short")
    clients.ask("other", Request("fast", 0, ALICE, expected_s=0.1))
    clients.end("long")
    assert clients.has("next")
    assert not clients.has("other")
