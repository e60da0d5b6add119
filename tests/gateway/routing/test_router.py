"""What is known of a statement before it runs, where several fast engines could tell, or one was busy; its files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import EngineBusy, MemoryExceeded
from engines.protocol import EXPLAIN_S, EngineKind, Snapshots, never
from engines.scripted import Script, ScriptedEngine
from gateway.catalog.locations import Locations
from gateway.errors import InvalidSetting
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import IN_PROCESS
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.session import Session
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryState
from selector.decision import ReasonCode
from selector.wording import MIB
from sql.errors import LocationRefused
from sql.tables import TableSource
from tests.gateway.conftest import BY_MEMORY, LIMIT, register, settings_for
from tests.gateway.execution.test_coordinator import ANSWER, PLAN, SQL, failing
from tests.writers import DUCKDB_SQL

UNREADABLE = "no plan that anybody can read"
Build = Callable[..., Gateway]


class BusyAtFirst(ScriptedEngine):
    """Could not plan the first statement in time."""

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        plan = super().explain(sql, deadline_s=deadline_s, cancelled=cancelled)
        if len(self.explained) == 1:
            raise EngineBusy("It could not be planned in time.")
        return plan


@pytest.fixture
def gateway_of(tmp_path: Path, bookstore: Path) -> Iterator[Build]:
    """Build a gateway over some fast engines, with one behind them that takes everything."""
    with ExitStack() as stack:

        def build(*fast: ScriptedEngine) -> Gateway:
            dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE)
            entries = [EngineEntry(each, limit_bytes=LIMIT) for each in fast]
            entries.append(EngineEntry(dependable))
            gateway = wiring.assemble(settings_for(tmp_path / "home", routing=BY_MEMORY), EngineRegistry(entries))
            stack.callback(gateway.close)
            register(gateway, bookstore)
            gateway.start()
            return gateway

        yield build


def fast(name: str, plan: str, kind: type[ScriptedEngine] = ScriptedEngine) -> ScriptedEngine:
    engine = kind(name)
    engine.script("books", replace(ANSWER, plan=plan))
    return engine


@pytest.mark.parametrize(("first", "second"), [(UNREADABLE, PLAN), (PLAN, UNREADABLE)])
def test_the_estimate_is_of_the_fast_engine_that_has_one(gateway_of: Build, first: str, second: str) -> None:
    """What a planner's process knows nothing of is unknown here, too, though it is another object."""
    gateway = gateway_of(fast("first", first), fast("second", second))
    _, decision = gateway.coordinator.explain(Statement(SQL))
    assert decision.estimate.known


def toy(name: str, takes: int, *scripts: Script) -> ScriptedEngine:
    """Return an engine with a cost model of its own. takes: MiB, as its plan says."""
    engine = ScriptedEngine(name, cost_model="tests.engines.toy_cost")
    engine.script("books", *(replace(script, plan=f"takes {takes} MiB") for script in scripts))
    return engine


def test_each_fast_engine_has_a_cost_model_of_its_own_and_a_limit(gateway_of: Build) -> None:
    small, large = toy("small", 10, ANSWER), toy("large", 1_000, ANSWER)
    gateway = gateway_of(large, small, fast("planned", UNREADABLE))
    _, decision = gateway.coordinator.explain(Statement(SQL))
    assert decision.ranking == ("small", "dependable")
    taken = {each.engine: each.estimate.peak_bytes for each in decision.others}
    assert taken == {"large": pytest.approx(1_000 * MIB, rel=1e-3), "planned": None}
    assert decision.estimated_for == "small"
    assert decision.estimate.peak_bytes == pytest.approx(10 * MIB, rel=1e-3)

    pinned = gateway.coordinator.submit(Statement(SQL, engine="large")).done.result(30)
    assert pinned.decision is not None
    assert pinned.state is QueryState.FINISHED
    assert pinned.decision.estimate.peak_bytes == pytest.approx(1_000 * MIB, rel=1e-3)
    small.script("books", replace(failing(MemoryExceeded("full", peak_bytes=MIB)), plan="takes 10 MiB"))
    failed = gateway.coordinator.submit(Statement(SQL + " LIMIT 1")).done.result(30)
    assert [attempt.engine for attempt in failed.attempts] == ["small", "dependable"]
    (missed,) = gateway.metastore.misestimates.list()
    assert (missed.engine, missed.model_bytes) == ("small", 10 * MIB)
    assert missed.estimated_bytes == pytest.approx(10 * MIB, rel=1e-3)


THREADS, MOST_THREADS = 2, 8


@pytest.fixture
def threaded(tmp_path: Path, bookstore: Path) -> Iterator[tuple[Gateway, ScriptedEngine]]:
    """Build a gateway whose fast engine takes 10 MiB with each thread; its pool ``etl`` has one for a statement."""
    engine = toy("fast", 10, ANSWER)
    entry = EngineEntry(engine, limit_bytes=LIMIT, threads=THREADS, most_threads=MOST_THREADS, threads_by_load=True)
    gateway = wiring.assemble(settings_for(tmp_path / "home", routing=BY_MEMORY), EngineRegistry([entry]))
    with closing(gateway):
        gateway.router._pool_threads = {"etl": 1}
        register(gateway, bookstore)
        gateway.start()
        yield gateway, engine


@pytest.mark.parametrize(
    ("settings", "overlay", "threads"),
    [
        ({}, {}, THREADS),
        ({"fusion.pool": "etl"}, {}, 1),
        ({"fusion.pool": "nobody's"}, {}, THREADS),
        ({"MT_DOP": "4"}, {}, 4),
        ({"fusion.threads": "4", "request_pool": "etl"}, {}, 4),
        ({"fusion.threads": "0", "request_pool": "etl"}, {}, 1),
        ({"fusion.threads": "4"}, {"mt_dop": "3"}, 3),
        ({"fusion.threads": "4"}, {"hiveconf:mt_dop": "0"}, THREADS),
        ({"fusion.threads": "9999"}, {}, MOST_THREADS),
    ],
)
def test_threads_of_a_statement_come_before_its_sessions_its_pools_and_the_engines(
    threaded: tuple[Gateway, ScriptedEngine], settings: dict[str, str], overlay: dict[str, str], threads: int
) -> None:
    """The estimate is of so many threads, and so is the lease."""
    gateway, engine = threaded
    session = Session(IN_PROCESS, deadline_s=60.0)
    for name, value in settings.items():
        gateway.coordinator.submit(session.statement(f"SET {name} = {value}")).done.result(30)
    record = gateway.coordinator.submit(session.statement(SQL, overlay=overlay)).done.result(30)
    assert record.state is QueryState.FINISHED
    assert record.decision is not None
    assert record.decision.threads == threads
    assert record.decision.estimate.peak_bytes == pytest.approx(threads * 10 * MIB, rel=1e-3)
    assert engine.asked[-1].lease.threads == threads
    stored = gateway.metastore.queries.get(record.id)
    assert stored is not None and stored.decision is not None
    assert stored.decision.threads == threads


@pytest.mark.parametrize(("long", "threads"), [(0, 8), (1, 4), (2, 2), (3, 2), (4, 1), (200, 1)])
def test_a_statement_has_fewer_threads_beside_long_ones(long: int, threads: int) -> None:
    engine = ScriptedEngine("duckdb")
    by_load = EngineEntry(engine, threads=8, most_threads=16, threads_by_load=True)
    assert by_load.threads_for(None, beside=long) == threads
    assert by_load.threads_for(5, beside=long) == 5
    assert replace(by_load, threads_by_load=False).threads_for(None, beside=long) == 8
    assert replace(by_load, most_threads=None).threads_for(5, beside=long) == 8


def test_estimate_and_lease_follow_the_threads_that_the_load_leaves(threaded: tuple[Gateway, ScriptedEngine]) -> None:
    gateway, engine = threaded
    _, alone = gateway.coordinator.explain(Statement(SQL))
    with gateway.admission.lease(Request(engine.name, 0), wait_s=0):
        record = gateway.coordinator.submit(Statement(SQL)).done.result(30)
        fixed = gateway.coordinator.submit(Statement(SQL, threads=THREADS)).done.result(30)
    assert record.decision is not None and fixed.decision is not None
    assert (alone.threads, record.decision.threads, fixed.decision.threads) == (THREADS, THREADS // 2, THREADS)
    assert record.decision.estimate.peak_bytes == pytest.approx(THREADS // 2 * 10 * MIB, rel=1e-3)
    assert engine.asked[-2].lease.threads == THREADS // 2
    with gateway.admission.lease(Request(engine.name, 0, expected_s=0.1), wait_s=0):
        _, beside_short = gateway.coordinator.explain(Statement(SQL))
    assert beside_short.threads == THREADS


def test_estimates_of_other_threads_are_not_mixed_up(threaded: tuple[Gateway, ScriptedEngine]) -> None:
    gateway, engine = threaded
    for threads in (1, 4, 1, None, 4):
        _, decision = gateway.coordinator.explain(Statement(SQL, threads=threads))
        assert decision.estimate.peak_bytes == pytest.approx((threads or THREADS) * 10 * MIB, rel=1e-3)
    assert len(engine.explained) == 3


@pytest.mark.parametrize("value", ["-1", "two", "1.5", "", "٣", "10000", "9" * 10_000, "1;2"])
def test_threads_that_are_no_number_are_refused(value: str) -> None:
    session = Session(IN_PROCESS, deadline_s=60.0)
    for name in ("fusion.threads", "MT_DOP"):
        with pytest.raises(InvalidSetting, match="number of threads"):
            session.set(name, value)


def test_a_miss_of_one_fast_engine_does_not_rule_out_another(gateway_of: Build) -> None:
    first, second = toy("first", 10, failing(MemoryExceeded("full", peak_bytes=MIB))), toy("second", 20, ANSWER)
    gateway = gateway_of(first, second)
    ran = gateway.coordinator.submit(Statement(SQL)).done.result(30)
    assert [attempt.engine for attempt in ran.attempts] == ["first", "second"]
    assert ran.state is QueryState.FINISHED
    _, decision = gateway.coordinator.explain(Statement(SQL))
    assert decision.ranking == ("second", "dependable")
    assert ReasonCode.MISESTIMATE_ON_RECORD in [reason.code for reason in decision.reasons]


def test_a_dependable_engine_without_words_for_a_statement_is_not_in_the_ranking(
    tmp_path: Path, bookstore: Path
) -> None:
    other = ScriptedEngine("other", kind=EngineKind.DEPENDABLE, writer=DUCKDB_SQL)
    spark = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
    entries = [EngineEntry(each) for each in (other, spark)]
    gateway = wiring.assemble(settings_for(tmp_path / "home", routing=BY_MEMORY), EngineRegistry(entries))
    try:
        register(gateway, bookstore)
        gateway.start()
        _, decision = gateway.coordinator.explain(Statement("SELECT initcap('a') AS t FROM books"))
        assert decision.ranking == ("spark",)
        assert ReasonCode.DIALECT in [reason.code for reason in decision.reasons]
        _, decision = gateway.coordinator.explain(Statement("SELECT upper('a') AS t FROM books"))
        assert set(decision.ranking) == {"other", "spark"}
    finally:
        gateway.close()


def test_a_plan_that_was_not_made_in_time_is_asked_for_again(gateway_of: Build) -> None:
    engine = fast("fast", PLAN, BusyAtFirst)
    gateway = gateway_of(engine)
    for engine_name, known in (("dependable", False), ("fast", True)):
        _, decision = gateway.coordinator.explain(Statement(SQL))
        assert (decision.engine, decision.estimate.known) == (engine_name, known)
    assert len(engine.explained) == 2


def test_a_plan_is_asked_for_again_when_a_table_of_the_statement_changes(gateway_of: Build, tmp_path: Path) -> None:
    engine = fast("fast", PLAN)
    gateway = gateway_of(engine)
    gateway.coordinator.explain(Statement(SQL))
    put = gateway.metastore.catalog.put
    pq.write_table(pa.table({"n": [1]}), tmp_path / "other.parquet")
    put(inspect("other", tmp_path / "other.parquet"), at=dt.datetime.now(dt.UTC))
    gateway.coordinator.explain(Statement(SQL))
    assert len(engine.explained) == 1
    books = gateway.metastore.catalog.get("books")
    assert books is not None
    put(replace(inspect("books", books.source.location), rows=7), at=dt.datetime.now(dt.UTC))
    gateway.coordinator.explain(Statement(SQL))
    assert len(engine.explained) == 2


def test_files_are_looked_at_just_before_they_are_opened_and_after(
    gateway_of: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes a system call for each folder: none but for a list, for a plan, before rows and after them."""
    engine = fast("fast", PLAN)
    gateway = gateway_of(engine)
    looks: list[tuple[int, int]] = []  # how many plans and queries the engine had been asked for
    look = Locations.require_unchanged

    def noted(self: Locations, table: TableSource, *, own: Callable[[TableSource], bool]) -> None:
        looks.append((len(engine.explained), len(engine.asked)))
        look(self, table, own=own)

    monkeypatch.setattr(Locations, "require_unchanged", noted)
    for _ in range(2):
        assert gateway.coordinator.submit(Statement(SQL)).done.result(30).state is QueryState.FINISHED
    assert looks == [(0, 0), (0, 0), (1, 0), (1, 1), (1, 1), (1, 1), (1, 2)]


@pytest.mark.parametrize("planned_before", [False, True])
def test_no_engine_opens_files_that_were_exchanged(gateway_of: Build, tmp_path: Path, planned_before: bool) -> None:
    engine = fast("fast", PLAN)
    gateway = gateway_of(engine)
    place, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    for folder in (place, elsewhere):
        folder.mkdir()
        pq.write_table(pa.table({"id": [1], "price": [1.0]}), folder / "1.parquet")
    gateway.metastore.catalog.put(inspect("my_books", place), at=dt.datetime.now(dt.UTC))
    statement = SQL.replace("books", "my_books")
    if planned_before:
        gateway.coordinator.explain(Statement(statement))
    place.rename(tmp_path / "aside")
    place.symlink_to(elsewhere)
    with pytest.raises(LocationRefused):
        gateway.coordinator.submit(Statement(statement))
    assert (len(engine.explained), engine.asked) == (int(planned_before), [])
    assert gateway.spool.query_ids() == frozenset()
