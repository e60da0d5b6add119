"""One admission for real processes: never above a limit in any of them together, and what a dead one held is free."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.errors import EngineBusy, StatementCancelled
from engines.machine.sharing import Caller, Host, SocketFolder
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.shared import DifferentBudgets, Ledger, SharedAdmission
from gateway.routing.admission.usage import Of
from gateway.routing.admission.values import EngineBudget, Need, Request
from tests.gateway.routing.admission.leasing_process import (
    ENGINE,
    HOST,
    POOLS,
    PROCESSES,
    SUMS,
    locked,
    set_to,
    sums,
)
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]
SECONDS = 1.5
SMALL = EngineBudget("fast", slots=1, capacity_bytes=100, limit_bytes=100)
AT_ONCE_S = 1.0
WAITING = f"""
import sys
from pathlib import Path
from tests.gateway.routing.admission.test_shared import HOST, SMALL, Caller, Request, SharedAdmission, SocketFolder
admission = SharedAdmission(Caller(SocketFolder.opened(Path(sys.argv[1])).path(HOST)), "other", [SMALL])
with admission.lease(Request("{SMALL.name}", 10), wait_s={60}):
    sys.exit("there was no room")
"""
Join = Callable[[str], SharedAdmission]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    hosted = Ledger()
    Host(SocketFolder.opened(tmp_path).path(HOST), hosted.functions(), hosted.holders()).start()
    return hosted


@pytest.fixture
def join(ledger: Ledger, tmp_path: Path) -> Iterator[Join]:
    """Join as another process, whose name is given."""
    yield lambda name: SharedAdmission(Caller(SocketFolder.opened(tmp_path).path(HOST)), name, [SMALL])


def test_what_processes_lease_is_never_above_a_limit_and_a_dead_one_gives_all_back(
    ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / SUMS).write_bytes(b"\0" * 1_000)
    module = "tests.gateway.routing.admission.leasing_process"
    processes = [
        subprocess.Popen([sys.executable, "-m", module, str(tmp_path), str(number), str(SECONDS)], cwd=ROOT)
        for number in range(PROCESSES)
    ]
    most, looks, killed = [0, 0, 0], 0, False
    (pool,) = POOLS
    assert ENGINE.capacity_bytes is not None and pool.slots is not None and pool.memory_bytes is not None
    while any(each.poll() is None for each in processes):
        with locked(tmp_path) as file:
            held = sums(file)
            if not killed and all(slots for slots, *_ in held):
                victim = processes[0]
                set_to(file, 0, 0, 0, 0)  # from here on it is counted no more, though it still holds
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                killed = True
        slots, held_bytes, of_pool = (sum(each) for each in zip(*held, strict=True))
        assert slots <= ENGINE.slots + ENGINE.guest_slots
        assert held_bytes <= ENGINE.capacity_bytes
        assert of_pool <= pool.memory_bytes
        most = [max(pair) for pair in zip(most, (slots, held_bytes, of_pool), strict=True)]
        looks += 1
        time.sleep(0.001)
    assert [each.returncode for each in processes] == [-signal.SIGKILL, 0, 0]
    assert looks > 50
    assert most[0] > 1
    assert most[1] > ENGINE.capacity_bytes // 2

    def is_free() -> bool:
        state = ledger.admission.describe()
        levels = [(each.slots_held, each.bytes_held, each.waiting) for each in state.engines]
        levels += [(each.slots_held, each.bytes_held, each.waiting) for each in state.pools]
        return not any(map(any, levels))

    wait_until(is_free, "all is free", within_s=AT_ONCE_S)
    counted = ledger.admission.waited()
    assert sum(sum(each.up_to) for each in counted.values()) > looks // 10


def test_a_cancel_ends_the_wait_of_its_own_process(join: Join) -> None:
    one, other = join("one"), join("other")
    cancelled, outcome = threading.Event(), list[Exception]()

    def wait() -> None:
        try:
            with other.lease(Request("fast", 10, query_id="q"), wait_s=60, cancelled=cancelled.is_set):
                raise AssertionError("there was no room")
        except StatementCancelled as error:
            outcome.append(error)

    with one.lease(Request("fast", 10), wait_s=0):
        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: bool(one.waiting()), "it waits")
        (waiting,) = other.waiting()
        assert (waiting.query_id, waiting.needs, waiting.place) == ("q", Need.SLOT, 1)
        one.wake("q")  # nobody of this process waits for it
        other.wake("q")  # and it is not cancelled yet
        time.sleep(0.05)
        assert one.waiting()
        cancelled.set()
        began_s = time.monotonic()
        other.wake("q")
        waiter.join()
        assert time.monotonic() - began_s < AT_ONCE_S
    assert len(outcome) == 1
    assert not one.waiting()


def test_processes_see_each_other(join: Join) -> None:
    one, other = join("one"), join("other")
    asked = Request("fast", 30, query_id="q")
    with one.lease(asked, wait_s=0) as grant:
        assert grant.lease.memory_bytes == 30
        assert [each.query_id for each in other.leases()] == ["q"]
        assert other.congestion(Request("fast", 30))[0] > 0
        assert other.long_at("fast") == 1
        with pytest.raises(EngineBusy, match="No slot of fast"), other.lease(asked, wait_s=0.01):
            pass
        assert grant.raise_to(100)
        assert not grant.raise_to(101)
        assert grant.lease.memory_bytes == 100
        (engine,) = other.describe().engines
        assert (engine.slots_held, engine.bytes_held) == (1, 100)
    assert not grant.raise_to(10), "it was given back"
    assert not other.leases()
    assert other.refusals() == {("fast", "default", EngineBusy.code): 1}
    assert other.usage(Of.ENGINE, "fast").intervals[-1].most.bytes == 100
    assert other.limit_bytes("fast", "") == 100


def test_who_waits_for_a_dead_process_is_forgotten(join: Join, ledger: Ledger, tmp_path: Path) -> None:
    one = join("one")
    with one.lease(Request("fast", 10), wait_s=0):
        process = subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path)], cwd=ROOT)
        wait_until(lambda: bool(one.waiting()), "it waits")
        ledger.forget("one")  # another one's end is nothing to it
        time.sleep(0.05)
        assert one.waiting()
        process.kill()
        process.wait()
        ledger.forget("other")
        wait_until(lambda: not one.waiting(), "it waits no more", within_s=AT_ONCE_S)


def test_all_processes_have_the_same_engines(join: Join, tmp_path: Path) -> None:
    join("one")
    with pytest.raises(DifferentBudgets):
        SharedAdmission(Caller(SocketFolder.opened(tmp_path).path(HOST)), "other", [ENGINE])


def test_whatever_tells_of_leases_is_asked_of_the_common_admission() -> None:
    """A method that is not asked there would tell of an admission of its own, in which nobody holds anything."""
    public = {name for name in vars(Admission) if not name.startswith("_")}
    of_what_there_is, of_its_own_grants = {"pool", "limit_bytes"}, {"raise_to"}
    assert public - vars(SharedAdmission).keys() == of_what_there_is | of_its_own_grants
