"""The loop under the schedules, over a real metastore: what is due runs once, so many at once as there are places."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from gateway.statistics import schedule_runner
from gateway.statistics.schedule_runner import ScheduleRunner
from metastore.database.connection import sqlite_url
from metastore.records import AfterMisestimate, Cron, Schedule, Trigger
from metastore.repositories.schedules import Schedules
from metastore.store import Metastore
from tests.waiting import wait_until

DAY = dt.timedelta(days=1)
EVERY_SECOND = Cron("* * * * * *")
ONCE = AfterMisestimate()
Start = Callable[..., ScheduleRunner]


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        yield metastore


@pytest.fixture
def start(metastore: Metastore) -> Iterator[Start]:
    """Start runners over one metastore, and stop them in the end."""
    runners: list[ScheduleRunner] = []

    def begin(
        run: Callable[[ScheduleRunner, str, dt.datetime], None],
        *,
        places: int = 2,
        schedules: Schedules = metastore.schedules,
        take_over: Callable[[], None] = lambda: None,
    ) -> ScheduleRunner:
        runner = ScheduleRunner(schedules, places=places, check_every=DAY)
        runners.append(runner)
        runner.start(lambda name, run_at: run(runner, name, run_at), take_over=take_over)
        return runner

    yield begin
    for runner in runners:
        runner.stop()


def due(metastore: Metastore, *names: str, trigger: Trigger = ONCE) -> None:
    for name in names:
        metastore.schedules.create(Schedule(name, ("books",), trigger, now(), next_run_at=now()))


def known(metastore: Metastore, name: str) -> Schedule:
    schedule = metastore.schedules.get(name)
    assert schedule is not None
    return schedule


def test_what_is_due_runs_once_also_with_two_gateways(metastore: Metastore, start: Start) -> None:
    names = [f"s{number}" for number in range(20)]
    due(metastore, *names)
    ran: list[str] = []

    def run(_: ScheduleRunner, name: str, run_at: dt.datetime) -> None:
        assert known(metastore, name).last_run_at == run_at
        ran.append(name)
        metastore.schedules.succeeded(name, run_at=run_at)

    start(run)
    start(run)
    wait_until(lambda: not any(known(metastore, name).running or known(metastore, name).next_run_at for name in names))
    assert Counter(ran) == Counter(names)


def test_what_finds_no_place_stays_due_for_whoever_has_one(metastore: Metastore, start: Start) -> None:
    due(metastore, "first", "second", "third")
    leave = threading.Event()
    ran: list[tuple[str, ScheduleRunner]] = []

    def run(runner: ScheduleRunner, name: str, _: dt.datetime) -> None:
        ran.append((name, runner))
        leave.wait(30)

    busy = start(run, places=1)
    wait_until(lambda: len(ran) == 1)
    assert ran == [("first", busy)]  # the longest overdue one
    assert not known(metastore, "second").running
    other = start(run, places=1)
    wait_until(lambda: len(ran) == 2)
    assert ran[1] == ("second", other)
    leave.set()  # whose place becomes free takes the rest at once, not only after half a minute
    wait_until(lambda: len(ran) == 3)


def test_times_that_come_while_it_runs_are_left_out_also_where_no_place_is_free(
    metastore: Metastore, start: Start
) -> None:
    due(metastore, "s", trigger=EVERY_SECOND)
    begun: list[dt.datetime] = []

    def run(runner: ScheduleRunner, _: str, run_at: dt.datetime) -> None:
        begun.append(run_at)
        runner.stopped.wait()

    start(run, places=1)
    wait_until(lambda: len(begun) == 1)
    first = known(metastore, "s").next_run_at
    assert first is not None
    wait_until(lambda: (known(metastore, "s").next_run_at or first) > first)
    assert known(metastore, "s").running and len(begun) == 1


def test_a_metastore_that_is_away_and_comes_back_is_asked_again(
    metastore: Metastore, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule_runner, "LOOK_AGAIN_S", 0.05)
    away = threading.Event()
    away.set()
    asked: list[dt.datetime] = []

    class Away(Schedules):
        def due(self, at: dt.datetime) -> tuple[Schedule, ...]:
            asked.append(at)
            if away.is_set():
                raise OperationalError("SELECT", {}, Exception("away"))
            return super().due(at)

        def claim(self, name: str, *, due_at: dt.datetime, next_run_at: dt.datetime | None, at: dt.datetime) -> bool:
            if len(asked) < 5:
                raise OperationalError("UPDATE", {}, Exception("away"))
            return super().claim(name, due_at=due_at, next_run_at=next_run_at, at=at)

    due(metastore, "s")
    ran: list[str] = []
    start(lambda _, name, __: ran.append(name), places=1, schedules=Away(metastore.schedules._engine))
    wait_until(lambda: len(asked) == 2)
    away.clear()  # from here on claims fail, and must not keep the only place
    wait_until(lambda: ran == ["s"])
    assert "schedules wait" in caplog.text


def test_a_change_is_seen_at_once(metastore: Metastore, start: Start) -> None:
    ran: list[str] = []
    runner = start(lambda _, name, __: ran.append(name))
    due(metastore, "s")
    runner.wake()
    wait_until(lambda: ran == ["s"], within_s=schedule_runner.LOOK_AGAIN_S / 2)


def test_runs_end_with_the_runner_and_what_waits_stays_due(metastore: Metastore, start: Start) -> None:
    due(metastore, "first", "second")
    ended: list[str] = []
    begun = threading.Event()

    def run(runner: ScheduleRunner, name: str, _: dt.datetime) -> None:
        begun.set()
        runner.stopped.wait()
        ended.append(name)

    runner = start(run, places=1)
    assert begun.wait(30)
    runner.stop()
    assert ended == ["first"]
    waiting = known(metastore, "second")
    assert not waiting.running and waiting.next_run_at is not None


def test_an_error_in_a_run_is_told_and_frees_its_place(
    metastore: Metastore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    due(metastore, "first", "second")
    ran: list[str] = []

    def run(_: ScheduleRunner, name: str, __: dt.datetime) -> None:
        ran.append(name)
        raise ZeroDivisionError("in a run")

    with caplog.at_level(logging.ERROR):
        start(run, places=1)
        wait_until(lambda: ran == ["first", "second"])
        wait_until(lambda: caplog.text.count("ZeroDivisionError: in a run") == 2)


def test_runs_of_other_gateways_are_looked_at_now_and_then(
    metastore: Metastore, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_runner, "TAKE_OVER_EVERY_S", 0.05)
    looked: list[dt.datetime] = []

    def take_over() -> None:
        looked.append(now())
        if len(looked) == 1:
            raise OperationalError("SELECT", {}, Exception("away"))

    start(lambda *_: None, take_over=take_over)
    wait_until(lambda: len(looked) > 2)
