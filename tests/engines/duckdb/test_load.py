"""DuckDB under load: statements are watched and given more while they run, and there are as many workers as of them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import EngineUnavailable, MemoryExceeded, StatementCancelled
from engines.protocol import Elastic, Lease, Watch, unwatched
from sql.tables import Column, TableSource
from tests.engines.processes import is_running
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.duckdb import engine as pools
from engines.duckdb import wire
from engines.duckdb.engine import DuckDBEngine, PooledStatement
from engines.duckdb.worker.worker import AddressSpaceCap

pytestmark = pytest.mark.e2e

MIB = 1 << 20
SMALL, ENOUGH = Lease(96 * MIB, threads=1), Lease(512 * MIB, threads=1)  # one: who watches has the other processor
BUILD_ROWS = 2_500_000
JOIN = (
    "SELECT count(*) AS n, sum(b.v + a.v) AS total FROM (SELECT hash(range) AS k, range AS v FROM range(6000000)) a "
    f"JOIN (SELECT hash(range) AS k, range * 3 AS v, range AS w FROM range({BUILD_ROWS})) b ON a.k = b.k"
)
"""Its build side takes about 150 MiB, more than a small lease."""

SLOW = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
SHORT = 50  # statements
MOST_ROUNDS = 12
GROUPS, GROUPED_ROWS = 300_007, 2_000_000
GROUPING = (
    f"SELECT count(*) AS n FROM (SELECT n % {GROUPS} AS k, count(*) AS c, max(n) AS m FROM range(4000000) t(n) "
    "GROUP BY k) WHERE c > 0 AND m > 0"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=2)
    yield engine
    engine.close()


def finish(statement: PooledStatement) -> list[dict[str, object]]:
    with statement as result:
        return [row for batch in result for row in batch.to_pylist()]


def run(pool: DuckDBEngine, sql: str, lease: Lease = ENOUGH, query_id: str = "q") -> list[dict[str, object]]:
    return finish(pool.execute(sql, query_id=query_id, lease=lease, deadline_s=60))


def test_what_a_statement_holds_is_told_while_it_runs(pool: DuckDBEngine) -> None:
    held: list[int] = []
    statement = pool.execute(JOIN, query_id="watched", lease=ENOUGH, deadline_s=60, watch=held.append)
    assert finish(statement)[0]["n"] == BUILD_ROWS
    peak_bytes = statement.actuals.peak_bytes
    assert peak_bytes is not None and peak_bytes > SMALL.memory_bytes
    assert held[0] < peak_bytes / 2, "it is told before memory is full"
    assert max(held) == pytest.approx(peak_bytes, rel=0.05)


def test_nothing_is_told_of_what_ends_at_once(pool: DuckDBEngine) -> None:
    told: list[int] = []
    for _ in range(SHORT):
        finish(pool.execute("SELECT 1 AS x", query_id="short", lease=ENOUGH, deadline_s=60, watch=told.append))
    assert len(told) < SHORT / 10  # on a busy machine, one or the other does not end at once


def test_a_statement_that_is_given_more_in_time_ends_well(pool: DuckDBEngine) -> None:
    with pytest.raises(MemoryExceeded):
        run(pool, JOIN, SMALL)
    raised: list[int] = []

    def watch(held_bytes: int) -> None:
        if held_bytes > SMALL.memory_bytes // 3 and not raised:
            raised.append(held_bytes)
            pool.raise_limit("raised", ENOUGH.memory_bytes)

    statement = pool.execute(JOIN, query_id="raised", lease=SMALL, deadline_s=60, watch=watch)
    assert finish(statement)[0]["n"] == BUILD_ROWS
    assert raised
    assert (statement.actuals.peak_bytes or 0) > SMALL.memory_bytes
    with pytest.raises(MemoryExceeded):  # what the instance was given is not the next statement's
        run(pool, JOIN, SMALL)


def test_a_statement_is_given_more_before_a_worker_has_it() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=2)) as pool:
        assert run(pool, "SELECT 1 AS x") == [{"x": 1}]
        with ThreadPoolExecutor(2) as threads:
            slow = threads.submit(run, pool, SLOW, ENOUGH, "slow")
            wait_until(lambda: "1 busy" in pool.status().detail, "the worker is busy")
            waiting = threads.submit(run, pool, JOIN, SMALL, "waiting")
            wait_until(lambda: "waiting" in pool._running, "it waits for the worker")
            pool.raise_limit("waiting", ENOUGH.memory_bytes)
            pool.raise_limit("waiting", SMALL.memory_bytes)  # never less
            pool.cancel("slow")
            with pytest.raises(StatementCancelled):
                slow.result(timeout=20)
            assert waiting.result(timeout=60)[0]["n"] == BUILD_ROWS


def test_what_a_process_may_take_in_all_is_raised_while_a_statement_runs_and_not_after_it() -> None:
    def soft_bytes() -> int:
        return resource.getrlimit(resource.RLIMIT_AS)[0]

    before, cap, most = soft_bytes(), AddressSpaceCap(), 1 << 46
    cap.raise_to(most)
    assert soft_bytes() == before
    with cap.hold(most):
        assert soft_bytes() == most
        cap.raise_to(most // 2)
        assert soft_bytes() == most
        cap.raise_to(2 * most)
        assert soft_bytes() == 2 * most
    assert soft_bytes() == before


def raising(pool: DuckDBEngine, query_id: str, memory_bytes: int) -> Watch:
    return lambda progress: pool.raise_limit(query_id, memory_bytes)


def test_raises_that_come_too_late_or_are_none_do_nothing(pool: DuckDBEngine) -> None:
    assert isinstance(pool, Elastic)
    pool.raise_limit("nobody", ENOUGH.memory_bytes)
    statement = pool.execute("SELECT 1 AS x", query_id="late", lease=SMALL, deadline_s=60)
    assert finish(statement) == [{"x": 1}]
    statement._statement.raise_limit(ENOUGH.memory_bytes)
    pool.raise_limit("late", ENOUGH.memory_bytes)
    with pytest.raises(MemoryExceeded):
        run(pool, JOIN, SMALL)
    lowered = pool.execute(
        JOIN, query_id="lowered", lease=ENOUGH, deadline_s=60, watch=raising(pool, "lowered", 32 * MIB)
    )
    assert finish(lowered)[0]["n"] == BUILD_ROWS


def test_many_raises_at_once_from_several_threads(pool: DuckDBEngine) -> None:
    ended = threading.Event()

    def raise_again() -> None:
        megabytes = 0
        while not ended.wait(0.001):
            megabytes += 1
            pool.raise_limit("often", ENOUGH.memory_bytes + megabytes * MIB)

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(raise_again) for _ in range(2)]
        for _ in range(5):
            assert run(pool, JOIN, SMALL if _ else ENOUGH, "often")[0]["n"] == BUILD_ROWS
        ended.set()
        for each in running:
            each.result(timeout=5)


def test_who_watches_badly_harms_nobody(pool: DuckDBEngine) -> None:
    def fail(held_bytes: int) -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            finish(pool.execute(JOIN, query_id="bad", lease=ENOUGH, deadline_s=60, watch=fail))
        assert run(pool, "SELECT 1 AS x") == [{"x": 1}]


def test_the_peak_follows_the_threads_of_a_lease(pool: DuckDBEngine, tmp_path: Path) -> None:
    numbers = pa.array(range(GROUPED_ROWS), pa.int64())
    pq.write_table(pa.table({"n": numbers}), tmp_path / "numbers.parquet", row_group_size=100_000)
    pool.use_tables([TableSource("numbers", str(tmp_path), "parquet", (Column("n", "bigint"),))])
    grouping = GROUPING.replace("range(4000000) t(n)", "numbers")

    def peak(threads: int | None) -> int:
        lease = replace(ENOUGH, threads=threads)
        statement = pool.execute(grouping, query_id="threads", lease=lease, deadline_s=60)
        assert finish(statement) == [{"n": GROUPS}]
        assert statement.actuals.peak_bytes is not None
        return statement.actuals.peak_bytes

    one, two, four, usual = (peak(threads) for threads in (1, 2, 4, None))
    assert 1.2 * one < two < four
    assert usual > 1.1 * one


def test_workers_come_with_statements_and_go_when_idle() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, most_workers=3, threads=1, idle_s=1.0)) as pool:
        wait_until(lambda: len(pool.worker_pids()) == 1, "the smallest number is ready")
        assert pool.slots == 3
        with ThreadPoolExecutor(5) as threads:
            running = [threads.submit(run, pool, SLOW, SMALL, f"slow {n}") for n in range(3)]
            wait_until(lambda: "3 busy" in pool.status().detail, "all of them run")
            one_more = threads.submit(run, pool, "SELECT 1 AS x")
            time.sleep(0.3)
            assert not one_more.done()
            assert len(pool.worker_pids()) == 3
            for n in range(3):
                pool.cancel(f"slow {n}")
            for each in running:
                with pytest.raises(StatementCancelled):
                    each.result(timeout=20)
            assert one_more.result(timeout=20) == [{"x": 1}]
        before = pool.worker_pids()
        wait_until(lambda: len(pool.worker_pids()) == 1, "those that are idle end")
        wait_until(lambda: sum(map(is_running, before)) == 1, "their processes too")
        assert run(pool, "SELECT 1 AS x") == [{"x": 1}]


def test_workers_that_are_killed_while_there_are_more_and_fewer_of_them_lose_nothing() -> None:
    """Every statement ends: with its rows, or with the error that its process was lost."""
    with contextlib.closing(DuckDBEngine(workers=1, most_workers=3, threads=1, spare=1, idle_s=1.0)) as pool:
        ended = threading.Event()
        killed, good = list[int](), list[int]()

        def has_answered(before: int) -> bool:
            return len(good) > before or ended.is_set()

        def kill_now_and_then() -> None:
            while not ended.wait(0.6):
                for pid in pool.worker_pids()[-1:]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, (signal.SIGKILL, signal.SIGTERM)[len(killed) % 2])
                        killed.append(pid)
                wait_until(partial(has_answered, len(good)), "an answer between two kills")

        def ask(number: int) -> bool:
            try:
                rows = run(pool, f"SELECT count(*) AS n, {number} AS mine FROM range(6000000) t(x) WHERE x % 3 = 0")
            except EngineUnavailable:
                return False
            assert rows == [{"n": 2_000_000, "mine": number}]
            good.append(number)
            return True

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        answered = []
        try:
            for _ in range(MOST_ROUNDS):
                with ThreadPoolExecutor(4) as threads:
                    answered += list(threads.map(ask, range(12)))
                time.sleep(1.2)  # some end, as they are too many
                if len(answered) >= 36 and len(killed) >= 4:  # on a busy machine, few are killed in a round
                    break
        finally:
            ended.set()
            killer.join()
        assert len(killed) >= 4
        assert sum(answered) >= len(answered) / 4
        whole = "2 of 2 workers, 0 busy, 0 starting"
        wait_until(lambda: not {*killed} & {*pool.worker_pids()}, "the last one that was killed is gone")
        wait_until(lambda: pool.status().detail == whole, "the smallest number and the spare one")
        assert run(pool, "SELECT 1 AS x") == [{"x": 1}]


def test_a_worker_that_hangs_is_ended_while_others_are_started() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, most_workers=2, threads=1, idle_s=1.0)) as pool:
        wait_until(lambda: len(pool.worker_pids()) == 1, "it is ready")
        (hung,) = pool.worker_pids()
        with ThreadPoolExecutor(2) as threads:
            slow = threads.submit(run, pool, SLOW, SMALL, "hung")
            wait_until(lambda: "1 busy" in pool.status().detail, "it is busy")
            os.kill(hung, signal.SIGSTOP)
            pool.raise_limit("hung", ENOUGH.memory_bytes)  # nobody hears it, nobody waits
            assert run(pool, "SELECT 1 AS x") == [{"x": 1}]
            pool.cancel("hung")
            with pytest.raises(StatementCancelled):
                slow.result(timeout=20)
        wait_until(lambda: not is_running(hung), "it is ended")


def test_never_more_workers_than_the_most_and_the_spare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "STARTING_AT_ONCE", 8)
    most = 0
    with contextlib.closing(DuckDBEngine(workers=1, most_workers=3, threads=1, spare=1, idle_s=1.0)) as pool:
        with ThreadPoolExecutor(12) as threads:
            asked = [threads.submit(run, pool, GROUPING, ENOUGH, f"q{n}") for n in range(40)]
            while not all(each.done() for each in asked):
                with pool._changed:
                    most = max(most, len(pool.worker_pids()) + pool._starting)
                time.sleep(0.005)
            assert all(each.result() == [{"n": GROUPS}] for each in asked)
    assert 2 < most <= 4


def test_where_nobody_watches_the_worker_does_not_look(pool: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[wire.Frame] = []
    receive = wire.Receiver.receive

    def noted(frames: wire.Receiver, **options: Any) -> tuple[wire.Frame, memoryview]:
        frame = receive(frames, **options)
        told.append(frame[0])
        return frame

    monkeypatch.setattr(wire.Receiver, "receive", noted)
    for watch, is_told in ((unwatched, False), (lambda held_bytes: None, True)):
        told.clear()
        finish(pool.execute(JOIN, query_id="q", lease=ENOUGH, deadline_s=60, watch=watch))
        assert (wire.Frame.HELD in told) is is_told
