"""The rows of one query while they are written: when they can be read, and what a second try has to bring."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from engines.errors import EngineError, EngineUnavailable
from gateway.errors import NotFinished, ResultInterrupted, ResultTooLarge
from gateway.execution.spooling.results import HELD_BYTES, ResultFile, Spool, SpooledResult
from gateway.execution.streaming import early_results
from gateway.execution.streaming.early_result import EarlyResult
from gateway.execution.streaming.early_results import EarlyResults
from gateway.statements.statement import Run, Statement
from tests.waiting import wait_until

ROWS = HELD_BYTES // 8  # of one batch: more than a statement keeps in memory, with the batch after it
LIMIT_BYTES = 8 << 20
LOST = EngineUnavailable("The worker was lost.")
Step: TypeAlias = pa.RecordBatch | EngineError | threading.Event | Callable[[], object]


def numbered(first: int, count: int = ROWS) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


class Stream:
    """An engine's rows, as a test has them come."""

    def __init__(self, *steps: Step, schema: pa.Schema | None = None) -> None:
        self._steps = steps
        self.schema = schema or numbered(0, 0).schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for step in self._steps:
            if isinstance(step, EngineError):
                raise step
            if isinstance(step, threading.Event):
                assert step.wait(60)
            elif isinstance(step, pa.RecordBatch):
                yield step
            else:
                step()


class Bench:
    """A query with its rows."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder, limit_bytes=LIMIT_BYTES, row_bytes=1 << 20)
        self.run = Run(Statement("SELECT n FROM t"))
        early = EarlyResults(self.spool, enabled=True).begin(self.run)
        assert early is not None
        self.early: EarlyResult = early

    def write(self, *steps: Step, schema: pa.Schema | None = None) -> SpooledResult:
        return self.early.write(Stream(*steps, schema=schema), publish=lambda rename: rename())  # type: ignore[arg-type]

    def lose(self, *steps: Step) -> None:
        """Have a try write, and lose it."""
        with pytest.raises(EngineUnavailable):
            self.write(*steps, LOST)

    def read(self, batches: int) -> list[int]:
        """Read that many batches from the first one on, all of which must be there."""
        with self.early.open() as result:
            rows: list[int] = []
            for _ in range(batches):
                assert not result.is_behind
                rows += result.read_batch()["n"].to_pylist()
            return rows

    def result(self) -> list[int]:
        with self.spool.open(self.run.id) as result:
            return [n for batch in result for n in batch["n"].to_pylist()]

    def files(self) -> list[str]:
        return sorted(file.suffix for file in self.spool.path(self.run.id).parent.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "results")


def test_rows_are_read_while_they_are_written_and_are_the_result(bench: Bench) -> None:
    ready, seen = bench.early.rows_after(0), list[list[int]]()

    def look() -> None:
        assert ready.done() and bench.run.ready.done() and not bench.run.done.done()
        seen.append(bench.read(2))
        with bench.early.open() as result:
            while not result.is_behind:
                result.read_batch()
            end = result.tell()
        assert not bench.early.rows_after(end).done()

    written = bench.write(numbered(0), numbered(ROWS), look, numbered(2 * ROWS))
    assert seen == [list(range(2 * ROWS))]
    assert (written.rows, written.held) == (3 * ROWS, None)
    assert bench.result() == list(range(3 * ROWS))
    assert written.bytes == bench.spool.path(bench.run.id).stat().st_size
    assert bench.files() == [".arrow"]
    assert pa.ipc.open_stream(bench.spool.path(bench.run.id)).read_all().num_rows == 3 * ROWS


def test_a_waiting_reader_is_told_of_each_batch_and_of_none_twice(bench: Bench) -> None:
    with pytest.raises(NotFinished), bench.early.open():
        pass
    go = threading.Event()
    writing = threading.Thread(target=lambda: bench.write(numbered(0), numbered(ROWS), go, numbered(2 * ROWS)))
    writing.start()
    bench.early.rows_after(0).result(60)
    with bench.early.open() as result:
        while not result.is_behind:
            result.read_batch()
        come = bench.early.rows_after(result.tell())
        assert not come.done()
        go.set()
        come.result(60)
        assert not result.is_behind
        assert result.read_batch()["n"][0].as_py() == 2 * ROWS
    writing.join()


def test_a_small_result_stays_in_memory_and_is_not_told_early(bench: Bench) -> None:
    written = bench.write(numbered(0, 10), lambda: None, numbered(10, 10))
    assert written.held is not None
    assert not bench.run.ready.done()
    assert bench.result() == list(range(20))
    assert written.rows == 20


def test_a_few_rows_that_nothing_follows_can_be_read_soon(bench: Bench) -> None:
    def look() -> None:
        bench.run.ready.result(60)
        assert bench.read(1) == [0, 1, 2]

    assert bench.write(numbered(0, 3), look, numbered(3, 3)).rows == 6
    assert bench.result() == list(range(6))


def test_a_lost_try_that_nobody_read_leaves_nothing(bench: Bench) -> None:
    bench.lose(numbered(0), numbered(ROWS))
    assert bench.files() == []
    assert not bench.early.is_readable
    other = pa.record_batch({"m": ["a", "b"]})
    assert bench.write(other, schema=other.schema).rows == 2  # whatever comes then


@pytest.mark.parametrize("cut", [ROWS, ROWS // 2 + 3, 2 * ROWS])
def test_a_second_try_goes_on_behind_what_was_given(bench: Bench, cut: int) -> None:
    """cut: rows of its first batch, which need not end where those of the lost try did."""
    bench.lose(numbered(0), numbered(ROWS), lambda: bench.read(2), numbered(7_000_000))
    assert bench.early.sent_rows == 2 * ROWS
    assert bench.read(2) == list(range(2 * ROWS)), "what was given can be read again meanwhile"

    def look() -> None:
        assert bench.early.readable_rows > 2 * ROWS

    written = bench.write(numbered(0, cut), numbered(cut, 3 * ROWS - cut), look)
    assert written.rows == 3 * ROWS
    assert bench.result() == list(range(3 * ROWS))
    assert written.bytes == bench.spool.path(bench.run.id).stat().st_size


@pytest.mark.parametrize(
    "second",
    [
        (numbered(1),),
        (numbered(0, ROWS - 1),),
        (numbered(0, ROWS - 1), numbered(0)),
        (),
    ],
    ids=["others", "fewer", "others later", "none"],
)
def test_a_second_try_with_other_rows_is_an_error_that_says_how_many_there_were(
    bench: Bench, second: Sequence[pa.RecordBatch]
) -> None:
    bench.lose(numbered(0), numbered(ROWS), lambda: bench.read(1))
    with pytest.raises(ResultInterrupted, match=rf"after {ROWS:,} rows") as failed:
        bench.write(*second)
    assert failed.value.sent_rows == ROWS
    assert bench.read(1) == list(range(ROWS))


def test_a_second_try_with_other_columns_is_an_error_once_columns_were_told(bench: Bench) -> None:
    def look() -> None:
        with bench.early.open():
            pass

    bench.lose(numbered(0), numbered(ROWS), look)
    assert bench.early.sent_rows == 0
    with pytest.raises(ResultInterrupted):
        bench.write(pa.record_batch({"m": ["a"]}), schema=pa.schema([("m", pa.string())]))


def test_nan_is_the_same_as_itself_and_zero_is_not_minus_zero(tmp_path: Path) -> None:
    first = pa.record_batch({"n": pa.array([math.nan, 0.0, None] * ROWS)})
    others = pa.record_batch({"n": pa.array([math.nan, -0.0, None] * ROWS)})
    for number, (again, is_same) in enumerate([(first, True), (others, False)]):
        bench = Bench(tmp_path / str(number))
        with pytest.raises(EngineUnavailable):
            bench.write(first, partial(bench.read, 1), LOST, schema=first.schema)
        if is_same:
            assert bench.write(again, schema=first.schema).rows == 3 * ROWS
        else:
            with pytest.raises(ResultInterrupted):
                bench.write(again, schema=first.schema)


def test_a_result_that_grows_too_large_ends_with_what_was_given(bench: Bench) -> None:
    batches = [numbered(at * ROWS) for at in range(2 + LIMIT_BYTES // HELD_BYTES)]
    with pytest.raises(ResultTooLarge) as failed:
        bench.write(*batches[:2], lambda: bench.read(1), *batches[2:])
    told = bench.early.final_error(failed.value)
    assert isinstance(told, ResultInterrupted)
    assert f"after {ROWS:,} rows" in told.message
    assert failed.value.message in told.message


def test_a_failed_query_leaves_no_file_and_its_readers_hear_of_it(bench: Bench) -> None:
    bench.lose(numbered(0), numbered(ROWS), lambda: bench.read(1))
    assert bench.files() == [".part"]
    bench.run.done.set_result(bench.run.record)  # which is not FINISHED
    assert bench.files() == []
    assert not bench.early.is_readable
    assert bench.early.rows_after(10**9).done()


def test_what_a_kill_leaves_goes_at_the_next_start(bench: Bench) -> None:
    bench.lose(numbered(0), numbered(ROWS), lambda: bench.read(1))
    assert bench.spool.keep_only({bench.run.id}) == 1
    assert bench.files() == []


def test_no_thread_stays_for_rows_that_are_soon_to_be_written() -> None:
    called: list[int] = []
    later = early_results._Later(0.01)
    for number in range(50):
        later.call(partial(called.append, number))
    wait_until(lambda: len(called) == 50)
    assert called == list(range(50))
    wait_until(lambda: not later._is_running)


def test_a_result_of_a_plain_file_is_never_behind(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbered(0).schema) as writer:
        writer.write_batch(numbered(0))
    result = ResultFile(pa.BufferReader(sink.getvalue()))
    assert not result.is_behind
    assert sum(batch.num_rows for batch in result) == ROWS
    assert not result.is_behind


def test_a_run_is_ready_once_whoever_says_so_at_the_same_time() -> None:
    for _ in range(20):
        run, told = Run(Statement("SELECT 1")), list[object]()
        run.ready.add_done_callback(told.append)
        threads = [threading.Thread(target=run.is_ready) for _ in range(4)]
        for each in threads:
            each.start()
        run.done.set_result(run.record)
        for each in threads:
            each.join()
        assert told == [run.ready]
        assert run.ready.done()
