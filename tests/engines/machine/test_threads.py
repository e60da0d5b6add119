"""Threads that are used again, and one that computes at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from engines.machine import threads as module
from engines.machine.threads import OneAtATime, Threads
from tests.waiting import wait_until


def named(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def test_all_work_runs_at_once_and_threads_are_used_again() -> None:
    threads, meet = Threads("at once"), threading.Barrier(9)
    for _ in range(3):
        for _ in range(8):
            threads.run(lambda: meet.wait(timeout=30))
        meet.wait(timeout=30)  # with fewer threads than pieces of work nobody would ever get here
        wait_until(lambda: len(threads._idle) == 8, "all are idle")
        assert len(named("at once")) == 8


def test_what_work_raises_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, told, done = Threads("raising"), list[threading.ExceptHookArgs](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", told.append)

    def fail() -> None:
        raise LookupError("not there")

    threads.run(fail)
    wait_until(lambda: len(threads._idle) == 1, "it is idle")
    threads.run(done.set)
    assert done.wait(timeout=30)
    assert [each.exc_type for each in told] == [LookupError]
    assert len(named("raising")) == 1


def test_idle_threads_end_and_no_work_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.001)
    threads, done = Threads("idle"), threading.Semaphore(0)
    for _ in range(2_000):
        threads.run(done.release)
        assert done.acquire(timeout=30)
    wait_until(lambda: not named("idle"), "all have ended")


LONG_S = 3_600.0


def test_one_computes_at_a_time() -> None:
    one, inside, most = OneAtATime(wait_s=LONG_S), 0, 0

    def compute(_: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with one.turn():
                inside += 1
                most = max(most, inside)
                time.sleep(0)  # whoever waits would get its turn now
                inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(compute, range(8)))
    assert most == 1


def test_who_waits_for_something_lets_others_compute_and_leaves_once() -> None:
    one, may_end = OneAtATime(wait_s=LONG_S), threading.Event()

    def wait() -> None:
        with one.turn() as leave:
            leave()
            assert may_end.wait(timeout=30)
            leave()  # nor at its end: the turn is another's by then

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        with one.turn():
            may_end.set()
            waiting.result(timeout=30)
            assert one._lock.locked()


def test_who_holds_up_others_loses_its_turn_and_is_not_waited_for_again() -> None:
    one = OneAtATime(wait_s=0.05)
    with one.turn() as leave:
        with one.turn():  # once its time was over
            leave()
            assert one._lock.locked(), "who comes late ends its own turn alone"
        assert not one._lock.locked(), "nobody waits for it any more"
        with one.turn():
            assert one._lock.locked(), "who comes next computes alone"


def test_among_too_many_who_waited_goes_on_and_takes_no_turn_away() -> None:
    one, entered = OneAtATime(wait_s=1.0), threading.Event()
    lock = one._lock

    def enter() -> None:
        with one.turn():
            entered.set()

    with one.turn(), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(enter)
        while not entered.wait(timeout=0.01):
            one._turns += 1  # as if others before it had come to theirs
        waiting.result(timeout=30)
        assert one._lock is lock
        assert lock.locked()
