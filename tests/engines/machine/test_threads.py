"""Threads that are used again."""

from __future__ import annotations

import threading

import pytest

from engines.machine import threads as module
from engines.machine.threads import Threads
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
