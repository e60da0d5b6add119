"""Schedules: definitions come back whole, a due run is claimed once, and what became of a run decides what is next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from metastore.errors import ScheduleExists
from metastore.records import ALL_TABLES, AfterMisestimate, Cron, Mode, Schedule, Staleness
from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON

NIGHTLY = Schedule("nightly", ("books", "sales"), Cron("0 3 * * *", "Europe/Berlin"), NOON, next_run_at=NOON + MINUTE)
STALE = Schedule("stale", ALL_TABLES, Staleness(0.1, 7.0), NOON, Mode.SAMPLE, 0.25)
WAITING = Schedule("waiting", ("books", "sales"), AfterMisestimate(), NOON, Mode.INCREMENTAL)


@pytest.mark.parametrize("schedule", [NIGHTLY, STALE, WAITING], ids=lambda schedule: schedule.name)
def test_a_definition_comes_back_as_it_was_written(store: Metastore, schedule: Schedule) -> None:
    store.schedules.create(schedule)
    assert store.schedules.get(schedule.name) == schedule
    assert store.schedules.list() == (schedule,)
    with pytest.raises(ScheduleExists):
        store.schedules.create(schedule)
    assert store.schedules.remove(schedule.name)
    assert not store.schedules.remove(schedule.name)
    assert store.schedules.get(schedule.name) is None


def test_a_change_leaves_the_next_time_alone_unless_it_is_meant(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    sampled = replace(NIGHTLY, tables=("books",), mode=Mode.SAMPLE, share=0.5, next_run_at=NOON + 9 * MINUTE)
    assert store.schedules.define(sampled, due_anew=False)
    assert store.schedules.get("nightly") == replace(sampled, next_run_at=NIGHTLY.next_run_at)
    paused = replace(NIGHTLY, paused=True, next_run_at=None)
    assert store.schedules.define(paused, due_anew=True)
    assert store.schedules.get("nightly") == paused
    assert store.schedules.next_due_at() is None
    assert not store.schedules.define(STALE, due_anew=True)


def test_only_what_is_due_is_due(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    store.schedules.create(replace(STALE, next_run_at=NOON))
    store.schedules.create(WAITING)
    assert [schedule.name for schedule in store.schedules.due(NOON)] == ["stale"]
    assert [schedule.name for schedule in store.schedules.due(NOON + MINUTE)] == ["stale", "nightly"]
    assert store.schedules.next_due_at() == NOON


def test_of_many_gateways_one_gets_a_due_run(url: str, store: Metastore) -> None:
    store.schedules.create(NIGHTLY)

    def claim(gateway: Metastore) -> bool:
        return gateway.schedules.claim(
            "nightly", due_at=NOON + MINUTE, next_run_at=NOON + 9 * MINUTE, at=NOON + 2 * MINUTE
        )

    with ExitStack() as opened, ThreadPoolExecutor(4) as threads:
        gateways = [opened.enter_context(Metastore(url)) for _ in range(4)]
        assert sorted(threads.map(claim, gateways)) == [False, False, False, True]
    claimed = store.schedules.get("nightly")
    assert claimed is not None
    assert (claimed.running, claimed.last_run_at, claimed.next_run_at) == (True, NOON + 2 * MINUTE, NOON + 9 * MINUTE)


def test_misestimates_are_gathered_until_a_job_takes_them(store: Metastore) -> None:
    store.schedules.create(WAITING)
    store.schedules.create(replace(WAITING, name="all", tables=ALL_TABLES))
    store.schedules.create(replace(WAITING, name="paused", paused=True))
    store.schedules.create(replace(NIGHTLY, next_run_at=None))
    assert store.schedules.misestimated(["sales", "other"], due_at=NOON + MINUTE) == ("all", "waiting")
    assert store.schedules.misestimated(["books"], due_at=NOON + 2 * MINUTE) == ()
    assert [(schedule.name, schedule.awaited) for schedule in store.schedules.due(NOON + MINUTE)] == [
        ("all", ("books", "other", "sales")),
        ("waiting", ("books", "sales")),
    ]
    store.schedules.started("waiting", job_id="j1", tables=("sales",), at=NOON + MINUTE)
    taken = store.schedules.get("waiting")
    assert taken is not None
    assert (taken.awaited, taken.last_job_id, taken.last_run_at) == (("books",), "j1", NOON + MINUTE)


def test_failures_count_until_a_success(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    for due_at, retry_at in ((NOON + MINUTE, NOON + 2 * MINUTE), (NOON + 2 * MINUTE, NOON + 4 * MINUTE)):
        assert store.schedules.claim("nightly", due_at=due_at, next_run_at=NOON + 9 * MINUTE, at=due_at)
        for _ in range(2):  # each of two gateways takes note of the same end
            store.schedules.failed("nightly", run_at=due_at, error="gone", retry_at=retry_at)
    again = store.schedules.get("nightly")
    assert again is not None
    assert (again.failures, again.retries, again.next_run_at) == (2, 2, NOON + 4 * MINUTE)
    assert store.schedules.claim("nightly", due_at=NOON + 4 * MINUTE, next_run_at=NOON + 9 * MINUTE, at=NOON)
    store.schedules.failed("nightly", run_at=NOON, error="still gone")
    given_up = store.schedules.get("nightly")
    assert given_up is not None
    assert (given_up.failures, given_up.retries, given_up.last_error) == (3, 0, "still gone")
    assert given_up.next_run_at == NOON + 9 * MINUTE
    assert store.schedules.claim("nightly", due_at=NOON + 9 * MINUTE, next_run_at=None, at=NOON + 9 * MINUTE)
    assert store.schedules.succeeded("nightly", run_at=NOON + 9 * MINUTE)
    well = store.schedules.get("nightly")
    assert well is not None
    assert (well.failures, well.last_error, well.running) == (0, None, False)


def test_a_schedule_that_was_paused_during_a_run_stays_paused(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    store.schedules.started("nightly", job_id="j1", tables=("books",), at=NOON)
    store.schedules.define(replace(NIGHTLY, paused=True, next_run_at=None), due_anew=True)
    assert store.schedules.failed("nightly", run_at=NOON, error="gone", retry_at=NOON + 2 * MINUTE)
    store.schedules.started("nightly", job_id="j2", tables=("books",), at=NOON + MINUTE)
    assert store.schedules.postponed("nightly", run_at=NOON + MINUTE, until=NOON + 3 * MINUTE)
    assert store.schedules.next_due_at() is None


def test_what_goes_by_the_clock_leaves_out_times_while_it_runs(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    assert store.schedules.claim("nightly", due_at=NOON + MINUTE, next_run_at=NOON + 2 * MINUTE, at=NOON + MINUTE)
    (running,) = store.schedules.due(NOON + 2 * MINUTE)
    assert running.running
    assert not store.schedules.claim("nightly", due_at=NOON + 2 * MINUTE, next_run_at=None, at=NOON + 2 * MINUTE)
    assert store.schedules.leave_out("nightly", due_at=NOON + 2 * MINUTE, next_run_at=NOON + 3 * MINUTE)
    assert not store.schedules.leave_out("nightly", due_at=NOON + 2 * MINUTE, next_run_at=NOON + 9 * MINUTE)
    known = store.schedules.get("nightly")
    assert known is not None
    assert (known.last_run_at, known.next_run_at) == (NOON + MINUTE, NOON + 3 * MINUTE)
    assert store.schedules.succeeded("nightly", run_at=NOON + MINUTE)
    assert not store.schedules.leave_out("nightly", due_at=NOON + 3 * MINUTE, next_run_at=NOON + 9 * MINUTE)


def test_a_misestimate_during_a_run_is_due_once_that_has_ended(store: Metastore) -> None:
    store.schedules.create(WAITING)
    store.schedules.misestimated(["books"], due_at=NOON)
    assert store.schedules.claim("waiting", due_at=NOON, next_run_at=None, at=NOON)
    store.schedules.started("waiting", job_id="j1", tables=("books",), at=NOON + MINUTE)
    assert store.schedules.misestimated(["sales"], due_at=NOON + 2 * MINUTE) == ("waiting",)
    assert store.schedules.next_due_at() is None
    assert store.schedules.due(NOON + 3 * MINUTE) == ()
    assert not store.schedules.claim("waiting", due_at=NOON + 2 * MINUTE, next_run_at=None, at=NOON + 3 * MINUTE)
    assert store.schedules.succeeded("waiting", run_at=NOON + MINUTE)
    (due,) = store.schedules.due(NOON + 3 * MINUTE)
    assert (due.awaited, due.next_run_at) == (("sales",), NOON + 2 * MINUTE)


def test_the_end_of_an_earlier_run_does_not_end_the_one_that_runs(store: Metastore) -> None:
    store.schedules.create(NIGHTLY)
    store.schedules.started("nightly", job_id="j1", tables=("books",), at=NOON)
    assert store.schedules.succeeded("nightly", run_at=NOON)
    assert store.schedules.claim("nightly", due_at=NOON + MINUTE, next_run_at=NOON + 9 * MINUTE, at=NOON + MINUTE)
    assert not store.schedules.succeeded("nightly", run_at=NOON)
    assert not store.schedules.failed("nightly", run_at=NOON, error="late")
    assert not store.schedules.postponed("nightly", run_at=NOON, until=NOON + 2 * MINUTE)
    known = store.schedules.get("nightly")
    assert known is not None
    assert (known.running, known.failures, known.next_run_at) == (True, 0, NOON + 9 * MINUTE)
