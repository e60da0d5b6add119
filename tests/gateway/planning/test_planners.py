"""Planners: no statement keeps one for longer than it may, and none keeps all of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from engines.errors import DeadlineExceeded, EngineBusy, StatementCancelled
from gateway.planning.fairness import FairSlots, Requester
from gateway.planning.pool import Planners
from gateway.planning.process import PlannerFault, PlannerProcess, Shared
from gateway.planning.worker import LONGEST_TOLD, described
from sql.errors import StatementTooComplex, StatementTooDeep
from tests.waiting import wait_until

CPU_S = 0.5
PATIENCE_S = 60.0
ENDLESS = range(10**12)  # for a mean that is computed in Python


@pytest.fixture(scope="module")
def planners() -> Iterator[Planners]:
    pool = Planners(size=2, cpu_s=CPU_S, wait_s=PATIENCE_S)
    pool.warm_up()
    yield pool
    pool.close()


def requester(user: str = "ann", seconds: float = PATIENCE_S, cancelled: threading.Event | None = None) -> Requester:
    return Requester(user, time.monotonic() + seconds, (cancelled or threading.Event()).is_set)


def test_what_computes_for_too_long_in_python_is_stopped(planners: Planners) -> None:
    with (
        planners.place(requester()) as place,
        pytest.raises(StatementTooComplex, match=r"more than 0\.5 s of computing"),
    ):
        place.call(statistics.mean, ENDLESS)
    with planners.place(requester()) as place:
        assert place.call(abs, -1) == 1


def test_what_computes_for_too_long_within_one_call_of_a_library_is_stopped(planners: Planners) -> None:
    with planners.place(requester()) as place, pytest.raises(StatementTooComplex):
        place.call(re.fullmatch, "((a+)+)+b", "a" * 60)
    with planners.place(requester()) as place:
        assert place.call(abs, -1) == 1


def test_what_takes_too_much_memory_is_stopped(planners: Planners) -> None:
    with planners.place(requester()) as place, pytest.raises(StatementTooComplex, match="memory"):
        place.call(bytearray, 8 << 30)


def test_what_earlier_calls_left_in_a_process_fails_no_later_one(planners: Planners) -> None:
    with planners.place(requester()) as place:
        first = place.call(os.getpid)
        for number in range(2):
            assert place.call(os.getpid) == first
            place.call(exec, f"import numpy, builtins; builtins.rest{number} = numpy.empty({700 << 20}, 'b')")
        assert place.call(os.getpid) != first, "it held more than one call may take"
        place.call(exec, f"import numpy; numpy.empty({700 << 20}, 'b')")
        with pytest.raises(StatementTooComplex, match="memory"):
            place.call(exec, f"import numpy; numpy.empty({8 << 30}, 'b')")


def test_a_cancel_and_a_deadline_are_heard_in_the_middle(planners: Planners) -> None:
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    with planners.place(requester(cancelled=cancelled)) as place, pytest.raises(StatementCancelled):
        place.call(time.sleep, PATIENCE_S)
    with planners.place(requester(seconds=0.2)) as place, pytest.raises(DeadlineExceeded):
        place.call(time.sleep, PATIENCE_S)


KILLED_GATEWAY = """
import os, signal, sys, threading, time
from gateway.planning.fairness import Requester
from gateway.planning.process import PlannerProcess

process = PlannerProcess()
print(process.pid, flush=True)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
process.call(exec, sys.argv[1], cpu_s=60.0, requester=Requester("ann", time.monotonic() + 60.0))
"""
"""A gateway that is killed while a process works for it."""


def test_what_a_killed_gateway_had_begun_is_not_finished(tmp_path: Path) -> None:
    begun, committed = tmp_path / "begun", tmp_path / "committed"
    work = f"open({str(begun)!r}, 'w'); import time; time.sleep(4); open({str(committed)!r}, 'w')"
    gateway = subprocess.run(
        [sys.executable, "-c", KILLED_GATEWAY, work], capture_output=True, text=True, timeout=60, check=False
    )
    assert gateway.returncode == -signal.SIGKILL
    assert begun.exists()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(gateway.stdout)).wait(2.0)  # long before the end of its work
    assert not committed.exists()


def test_a_statement_that_ends_its_process_is_tried_once_more(planners: Planners) -> None:
    with planners.place(requester()) as place, pytest.raises(StatementTooComplex, match="ended its process twice"):
        place.call(os._exit, 3)
    with planners.place(requester()) as place:
        assert place.call(abs, -1) == 1


def test_processes_that_end_before_they_begin_are_no_fault_of_the_statement() -> None:
    """As they do where the kernel is short of memory, or an administrator ends them."""
    planners, ended = Planners(size=1, cpu_s=CPU_S, wait_s=PATIENCE_S), threading.Event()

    def end_all() -> None:
        while not ended.is_set():
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "gateway.planning.worker" in child.cmdline():
                        child.kill()
            time.sleep(0.01)

    attacker = threading.Thread(target=end_all)
    attacker.start()
    try:
        with planners.place(requester()) as place, pytest.raises(EngineBusy, match="end as soon as they start"):
            place.call(abs, -1)
    finally:
        ended.set()
        attacker.join(PATIENCE_S)
    with planners.place(requester()) as place:
        assert place.call(abs, -1) == 1
    planners.close()


def test_a_defect_is_told_with_its_traceback(planners: Planners) -> None:
    with planners.place(requester()) as place, pytest.raises(PlannerFault, match="ZeroDivisionError"):
        place.call(divmod, 1, 0)


def test_what_calls_have_in_common_is_sent_once(planners: Planners) -> None:
    large = Shared(list(range(1_000)))
    with planners.place(requester()) as place:
        assert [place.call(len, large) for _ in range(3)] == [1_000] * 3


def test_of_mappings_in_a_series_what_differs_is_sent() -> None:
    first = {f"t{number}": f"{number:04}" * 250 for number in range(1_000)}
    second = {**first, "new": "y", "t1": "other"}
    del second["t2"]
    third = dict(first)
    process = PlannerProcess()
    sizes = []

    def ask(mapping: dict[str, str]) -> None:
        seen = process.call(dict, Shared(mapping, series="tables"), cpu_s=CPU_S, requester=requester())
        assert seen == mapping
        sizes.append(process._shared_bytes)

    for mapping in (first, second, second, third, {}, first):
        ask(mapping)
    process.close()
    first_bytes, after_bytes = sizes[0], sizes[3]
    assert first_bytes > 1_000_000
    assert sizes[2] == sizes[1]
    assert after_bytes < first_bytes + 10_000


def test_a_user_holds_half_of_the_places_and_others_find_one() -> None:
    places = FairSlots(4, wait_s=0.0)
    with places.hold(requester("mallory")), places.hold(requester("mallory")):
        with pytest.raises(EngineBusy), places.hold(requester("mallory")):
            pass
        with places.hold(requester("ann")), places.hold(requester("bob")):
            pass


def test_users_take_turns() -> None:
    places, order, may_leave = FairSlots(2, wait_s=PATIENCE_S), list[str](), threading.Event()

    def hold(user: str) -> None:
        with places.hold(requester(user)):
            order.append(user)
            assert may_leave.wait(PATIENCE_S)

    def waiting(count: int) -> Callable[[], bool]:
        return lambda: len(places._shares.waiting) == count

    with places.hold(requester("mallory")), places.hold(requester("bob")):
        threads = [threading.Thread(target=hold, args=(user,)) for user in (*4 * ["mallory"], "ann")]
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(waiting(number), "it waits behind the others")
    wait_until(lambda: len(order) == 2, "both places are taken")
    assert sorted(order) == ["ann", "mallory"]
    may_leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(order) == len(threads)


def test_of_many_that_wait_each_gets_a_place_and_only_who_gets_one_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    waiters, size, woken = 60, 4, list[str]()
    places, inside, most = FairSlots(size, wait_s=PATIENCE_S), Counter[str](), Counter[str]()
    notify = threading.Condition.notify

    def counted(condition: threading.Condition, n: int = 1) -> None:
        if condition._lock is places._lock:  # type: ignore[attr-defined]
            woken.append("one")
        notify(condition, n)

    monkeypatch.setattr(threading.Condition, "notify", counted)
    lock = threading.Lock()

    def hold(number: int) -> None:
        user = f"user {number % 3}"
        with places.hold(requester(user)):
            with lock:
                inside[user] += 1
                most[user], most["all"] = max(most[user], inside[user]), max(most["all"], inside.total())
            time.sleep(0.001)
            with lock:
                inside[user] -= 1

    with ThreadPoolExecutor(waiters) as threads:
        list(threads.map(hold, range(waiters)))
    assert most["all"] <= size
    assert max(most[f"user {number}"] for number in range(3)) <= size // 2
    assert len(woken) == waiters
    assert not places._shares.held
    assert not places._shares.waiting


def test_who_leaves_while_it_waits_keeps_no_place() -> None:
    places, cancelled = FairSlots(2, wait_s=PATIENCE_S), threading.Event()

    def wait() -> None:
        with pytest.raises(StatementCancelled), places.hold(requester(cancelled=cancelled)):
            pass

    with places.hold(requester("mallory")), places.hold(requester("bob")):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(places._shares.waiting) == 1, "it waits")
        cancelled.set()
        thread.join(PATIENCE_S)
        assert not places._shares.waiting
    with places.hold(requester("ann")), places.hold(requester("bob")):
        pass
    assert not places._shares.held


def test_a_runaway_does_not_keep_another_user_waiting(planners: Planners) -> None:
    ended = threading.Event()

    def attack() -> None:
        while not ended.is_set():
            with planners.place(requester("mallory")) as place, pytest.raises(StatementTooComplex):
                place.call(statistics.mean, ENDLESS)

    with planners.place(requester("mallory")) as first, planners.place(requester("ann")) as second:
        assert [first.call(abs, -1), second.call(abs, -1)] == [1, 1]  # both have started
    attackers = [threading.Thread(target=attack) for _ in range(12)]
    for attacker in attackers:
        attacker.start()
    try:
        for _ in range(10):
            begun = time.monotonic()
            with planners.place(requester("ann")) as place:
                place.call(abs, -1)
            assert time.monotonic() - begun < 12 * CPU_S  # what it takes to wait for all of them
    finally:
        ended.set()
        for attacker in attackers:
            attacker.join(PATIENCE_S)


def _deep(level: int = 0) -> int:
    return _other(level + 1) + 1


def _other(level: int) -> int:
    return _deep(level + 1) + 1


def _fail(text: str) -> None:
    raise ValueError(text)


def test_a_recursion_is_a_statement_that_is_nested_too_deep(planners: Planners) -> None:
    with planners.place(requester()) as place, pytest.raises(StatementTooDeep):
        place.call(_deep)


def test_a_defect_is_told_in_few_words() -> None:
    try:
        _deep()
    except RecursionError as error:
        assert 1_000 < len(described(error)) <= LONGEST_TOLD
    try:
        _fail("x" * 3_000_000)
    except ValueError as error:
        assert len(described(error)) <= LONGEST_TOLD
