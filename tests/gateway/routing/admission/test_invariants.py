"""Random engines, pools, users and statements in real threads: nothing is ever above a limit, and nobody is forgotten.

The sums are kept a second time, by the threads themselves: each adds what it was given after it got it, and takes it
off before it gives it back, so that the second sum is never above the real one.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.errors import EngineBusy, StatementCancelled
from gateway.errors import PoolFull
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.turns import FEW_PASSED, MOST_PASSED
from gateway.routing.admission.values import DEFAULT_POOL, EngineBudget, Pool, Request, WhenFull
from gateway.security.principals import Principal

WITHIN_S = 30.0
THREADS = 30
UNTIL_CANCELLED_S = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """One statement. raises: totals to ask for while it runs. cancel: soon after it came. wait_s: its time."""

    engine: int
    memory_bytes: int
    user: int
    pool: int
    runs_ms: int
    expected_s: float | None
    raises: tuple[int, ...]
    cancel: bool
    wait_s: float


budgets = st.builds(
    lambda slots, limit, times, guests, kept, long: (slots, limit, int(limit * times), guests, int(kept * limit), long),
    st.integers(1, 6),
    st.integers(20, 100),
    st.floats(1.0, 5.0),
    st.integers(0, 1),
    st.floats(0.0, 1.0),
    st.none() | st.integers(1, 6),
)
pools = st.builds(
    lambda weight, memory_bytes, slots, queue, when: (weight, memory_bytes, slots, queue, when),
    st.floats(0.1, 9.0),
    st.none() | st.integers(20, 200),
    st.none() | st.integers(1, 5),
    st.none() | st.integers(0, 20),
    st.sampled_from(WhenFull),
)


def statements_of(chance: random.Random) -> list[Step]:
    """Return statements in random order, of which many come at once."""
    return [
        Step(
            engine=chance.randrange(3),
            memory_bytes=chance.choice((0, 1, 10, 30, 60, 100)),
            user=chance.randrange(4),
            pool=chance.randrange(4),
            runs_ms=chance.randrange(8),
            expected_s=chance.choice((None, 0.0, 0.01, 1.0)),
            raises=tuple(chance.choice((5, 40, 70, 100, 120)) for _ in range(chance.randrange(3))),
            cancel=chance.random() < 0.1,
            wait_s=chance.choice((0.0, 0.01, WITHIN_S, WITHIN_S, WITHIN_S)),
        )
        for _ in range(chance.randrange(20, 120))
    ]


@dataclass(slots=True)
class Seen:
    """What threads hold, counted by themselves, and what went wrong."""

    admission: Admission
    budgets: dict[str, EngineBudget]
    pools: dict[str, Pool]
    lock: threading.Lock = field(default_factory=threading.Lock)
    bytes_of: Counter[str] = field(default_factory=Counter)
    slots_of: Counter[str] = field(default_factory=Counter)
    abreast_of: Counter[tuple[str, bool]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)

    def add(self, engine: str, pool: str, slots: int, memory_bytes: int) -> None:
        budget = self.budgets[engine]
        counted = 0 if budget.capacity_bytes is None else memory_bytes
        with self.lock:
            for name in (f"engine {engine}", f"pool {pool}"):
                self.slots_of[name] += slots
                self.bytes_of[name] += counted
            limits = [
                (f"engine {engine}", budget.slots + budget.guest_slots, budget.capacity_bytes),
                (f"pool {pool}", self.pools[pool].slots, self.pools[pool].memory_bytes),
            ]
            for name, slots_limit, bytes_limit in limits:
                if slots_limit is not None and self.slots_of[name] > slots_limit:
                    self.wrong.append(f"{self.slots_of[name]} slots of {name}, which has {slots_limit}")
                if bytes_limit is not None and self.bytes_of[name] > bytes_limit:
                    self.wrong.append(f"{self.bytes_of[name]} bytes of {name}, which has {bytes_limit}")

    def add_abreast(self, engine: str, is_long: bool, count: int) -> None:
        budget = self.budgets[engine]
        with self.lock:
            self.abreast_of[engine, is_long] += count
            most = budget.slots if budget.abreast is None else budget.abreast
            if self.abreast_of[engine, is_long] > most + budget.guest_slots:
                self.wrong.append(f"{self.abreast_of[engine, is_long]} abreast on {engine}, which has {most}")

    def look(self) -> None:
        """Hold what admission says of itself against its limits."""
        state = self.admission.describe()
        for engine in state.engines:
            budget = engine.budget
            if engine.slots_held > budget.slots + budget.guest_slots:
                self.wrong.append(f"{engine.slots_held} slots held of {budget}")
            if budget.capacity_bytes is not None and engine.bytes_held > budget.capacity_bytes:
                self.wrong.append(f"{engine.bytes_held} bytes held of {budget}")
        for each in state.pools:
            if each.pool.memory_bytes is not None and each.bytes_held > each.pool.memory_bytes:
                self.wrong.append(f"{each.bytes_held} bytes held of {each.pool}")

    def run(self, number: int, step: Step, engine: str, pool: str) -> None:
        """Be one statement."""
        cancelled = threading.Event()
        who = Principal(f"user {step.user}", authenticated=step.user % 2 == 0, address="10.0.0.1")
        query_id = f"q{number}"
        asked = Request(engine, step.memory_bytes, who, pool, query_id, step.expected_s)
        if step.cancel:
            threading.Timer(0.005, self._cancel, (query_id, cancelled)).start()
        wait_s = max(step.wait_s, UNTIL_CANCELLED_S) if step.cancel else step.wait_s
        begun_s = time.monotonic()
        try:
            with self.admission.lease(asked, wait_s=wait_s, cancelled=cancelled.is_set) as grant:
                self.add_abreast(engine, asked.is_long, 1)
                self._hold(grant, step, engine, self.admission.pool(pool).name)
                self.add_abreast(engine, asked.is_long, -1)
            end = "served"
        except StatementCancelled:
            end = "cancelled"
        except EngineBusy:
            end = "busy"
        except PoolFull:
            end = "full"
        took_s = time.monotonic() - begun_s
        with self.lock:
            self.ended[end] += 1
            if end == "busy" and wait_s >= WITHIN_S and self.pools[self.admission.pool(pool).name].queue is None:
                self.wrong.append(f"{query_id} waited for {took_s:.1f} s for nothing: a wakeup was lost")

    def _cancel(self, query_id: str, cancelled: threading.Event) -> None:
        cancelled.set()
        self.admission.wake(query_id)

    def _hold(self, grant: Grant, step: Step, engine: str, pool: str) -> None:
        held = grant.lease.memory_bytes
        self.add(engine, pool, 1, held)
        limit = self.budgets[engine].limit_bytes
        for total in step.raises:
            if grant.raise_to(total):
                now = grant.lease.memory_bytes
                if now < total or (limit is not None and now > limit):
                    self.wrong.append(f"raised to {now} of {total}, with a limit of {limit}")
                self.add(engine, pool, 0, now - held)
                held = now
        time.sleep(step.runs_ms / 1_000)
        self.look()
        self.add(engine, pool, -1, -held)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(budgets, min_size=1, max_size=3),
    st.lists(pools, min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_no_interleaving_is_above_a_limit_and_all_are_served(
    engines: list[tuple[int, int, int, int, int, int | None]],
    told_pools: list[tuple[float, int | None, int | None, int | None, WhenFull]],
    seed: int,
) -> None:
    found = {}
    for number, (slots, limit, capacity, guests, kept, long) in enumerate(engines):
        spills = number == 2
        kept = 0 if spills else min(kept, capacity - limit)
        name = f"engine {number}"
        of_memory = None if spills else capacity, None if spills else limit
        found[name] = EngineBudget(name, slots, *of_memory, guests, kept, long)
    named = {
        f"pool {number}": Pool(f"pool {number}", weight, memory_bytes, slots, queue, None, when)
        for number, (weight, memory_bytes, slots, queue, when) in enumerate(told_pools)
    }
    admission = Admission(found.values(), named.values())
    seen = Seen(admission, found, {DEFAULT_POOL: Pool(DEFAULT_POOL)} | named)
    statements = statements_of(random.Random(seed))  # noqa: S311 - not for secrets
    engine_names, begun_s = list(found), time.monotonic()
    runs: list[Future[None]] = []
    with ThreadPoolExecutor(24) as threads:
        for number, step in enumerate(statements):
            engine = engine_names[step.engine % len(engine_names)]
            runs.append(threads.submit(seen.run, number, step, engine, f"pool {step.pool}"))
    assert [run.exception() for run in runs if run.exception()] == []
    assert seen.wrong == []
    assert seen.ended.total() == len(statements)
    assert time.monotonic() - begun_s < UNTIL_CANCELLED_S
    assert admission.waiting() == ()
    state = admission.describe()
    assert {(each.slots_held, each.bytes_held, each.waiting) for each in state.engines} == {(0, 0, 0)}
    assert {(each.slots_held, each.bytes_held, each.waiting) for each in state.pools} == {(0, 0, 0)}
    assert admission._holdings._parts == {}


@pytest.mark.parametrize(("expected_s", "most"), [(None, FEW_PASSED), (0.0, MOST_PASSED)])
def test_nobody_is_passed_for_ever(expected_s: float | None, most: int) -> None:
    """Small ones come without end, of the same user; a large one has its turn all the same."""
    admission = Admission([EngineBudget("fast", 50, 100)])
    stop, started = threading.Event(), threading.Event()
    passed, found = Counter[str](), list[int]()

    def small() -> None:
        while not stop.is_set():
            with admission.lease(Request("fast", 10, expected_s=expected_s), wait_s=WITHIN_S):
                if started.is_set():
                    passed["small"] += 1
                time.sleep(0.002)

    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(small) for _ in range(THREADS)]
        time.sleep(0.1)
        for _ in range(3):
            passed.clear()
            started.set()
            with admission.lease(Request("fast", 100), wait_s=WITHIN_S):
                started.clear()
                found.append(passed["small"])
        stop.set()
    assert all(each.exception() is None for each in running)
    assert max(found) <= most + THREADS  # some had their turn before it came, and were counted late
