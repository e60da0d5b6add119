"""What pipelines hold together while a few threads run them."""

from __future__ import annotations

import pytest

from engines.duckdb.memory.schedule import CHUNK_ROWS, Pipeline, SinkState, peak
from selector.cardinality.tree import EstimatedNode
from selector.plan import Operator, PlanNode

WORK = 1_000_000.0
THREADS = 2


def kept(held_bytes: float, **more: float) -> SinkState:
    part = EstimatedNode(PlanNode(Operator.SORT, "SORT"), 1.0, "given")
    return SinkState(part, filling_bytes=held_bytes, held_bytes=held_bytes, **more)  # type: ignore[arg-type]


def pipeline(
    sink: SinkState | None = None,
    *,
    reads: SinkState | None = None,
    rows: float = WORK,
    work: float = WORK,
    tasks: int = 2,
) -> Pipeline:
    made = Pipeline(work=work, read_rows=work, tasks=tasks)
    if sink is not None:
        made.sinks.append(sink)
        sink.writers[made] = rows
    if reads is not None:
        made.reads.append(reads)
        made.needs.add(reads)
        reads.readers.add(made)
    return made


def most(*pipelines: Pipeline, threads: int = THREADS) -> float:
    return peak(pipelines, threads).bytes


def test_what_is_kept_stays_until_its_last_reader_is_done() -> None:
    table, result = kept(100.0), kept(30.0)
    build, probe = pipeline(table), pipeline(result, reads=table)
    assert most(probe, build, pipeline(reads=result)) == pytest.approx(100.0 + 30.0)


def test_rows_that_are_given_back_as_they_are_read_are_there_once() -> None:
    groups, ordered = kept(100.0, drained_bytes=100.0), kept(90.0)
    assert most(pipeline(groups), pipeline(ordered, reads=groups)) == pytest.approx(100.0)


def test_pipelines_that_wait_for_nothing_fill_memory_together_and_others_do_not() -> None:
    def two(*, ordered: bool) -> float:
        some, others = kept(100.0), kept(70.0)
        first, second = pipeline(some), pipeline(others)
        after_first = pipeline(kept(1.0), reads=some, work=1.0)
        if ordered:
            second.waits.add(after_first)
        return most(first, after_first, second, pipeline(reads=others))

    assert two(ordered=True) == pytest.approx(101.0)
    assert two(ordered=False) > 130.0


def test_a_short_pipeline_is_done_in_one_turn() -> None:
    long_, short = kept(100.0), kept(70.0)
    queue = [pipeline(long_), pipeline(short, work=1_000.0, rows=1_000.0), pipeline(kept(1.0), reads=short, work=1.0)]
    assert most(*queue, pipeline(reads=long_)) < 120.0  # the long one has hardly begun


def test_few_rows_of_many_come_at_the_end() -> None:
    def both(rows: float) -> float:
        late, other = kept(100.0, floor_bytes=100.0), kept(70.0)
        writer = pipeline(late, rows=rows, work=10 * WORK)
        return most(writer, pipeline(other), pipeline(kept(1.0), reads=other, work=1.0), pipeline(reads=late))

    assert both(CHUNK_ROWS) == pytest.approx(101.0)
    assert both(10 * WORK) > 160.0


def test_tables_are_made_when_all_build_sides_beside_are_filled() -> None:
    small, large = (SinkState(kept(0.0).part, filling_bytes=10.0, held_bytes=held) for held in (110.0, 10.0))
    small.beside = large.beside = [small, large]
    first, second = pipeline(small, work=1.0, rows=1.0), pipeline(large)
    second.sinks[0].task_bytes = 40.0
    probe = pipeline(reads=small, work=1.0)
    probe.reads.append(large)
    probe.needs.add(large)
    large.readers.add(probe)
    assert most(first, second, probe) == pytest.approx(110.0 + 10.0)  # and not beside what the second one's tasks need


def test_a_task_that_is_done_needs_nothing_any_more() -> None:
    groups = kept(10.0, task_bytes=50.0)
    assert most(pipeline(groups, tasks=2), pipeline(reads=groups)) == pytest.approx(10.0 + 2 * 50.0)
    groups = kept(90.0, task_bytes=50.0)
    short = pipeline(groups, rows=1.0, work=1.0, tasks=2)
    assert most(short, pipeline(groups, tasks=1), pipeline(reads=groups)) == pytest.approx(90.0 + 50.0)


def test_each_task_that_has_begun_has_read_and_those_that_work_decode() -> None:
    scans = [Pipeline(work=WORK, read_rows=WORK, tasks=1, read_bytes=10.0, scan_bytes=3.0) for _ in range(4)]
    assert peak(scans, THREADS).bytes == pytest.approx(4 * 10.0 + THREADS * 3.0)
    assert peak(scans, 1).bytes == pytest.approx(4 * 10.0 + 3.0)


def test_nothing_is_held_by_nobody() -> None:
    assert peak([], THREADS).largest is None
    one = kept(5.0)
    assert peak([pipeline(one)], THREADS).largest is one.part
