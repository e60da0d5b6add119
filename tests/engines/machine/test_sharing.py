"""Objects of one process that others call: replies, errors, what is held and given back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.errors import EngineBusy
from engines.machine.sharing import Caller, Function, Host, HostGone, SocketFolder
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
HOLDING = """
import sys, time
from pathlib import Path
from engines.machine.sharing import Caller, SocketFolder
with Caller(SocketFolder.opened(Path(sys.argv[1])).path("host")).held("hold", "it"):
    time.sleep(60)
"""
WITHIN_S = 2.0


class Left(Exception):
    """Nobody waits any more."""


@pytest.fixture
def held() -> list[str]:
    return []


@pytest.fixture
def caller(tmp_path: Path, held: list[str]) -> Caller:
    folder = tmp_path / ("long" * 40)  # a path that is too long for a socket
    folder.mkdir()
    free = threading.Semaphore(1)

    def divide(one: int, other: int) -> float:
        if not other:
            raise EngineBusy("by zero")
        return one / other

    @contextmanager
    def hold(has_left: Callable[[], bool], what: str) -> Iterator[tuple[int, dict[str, Function]]]:
        while not free.acquire(timeout=0.02):
            if has_left():
                raise Left
        held.append(what)
        try:
            yield len(held), {"twice": lambda number: 2 * number}
        finally:
            held.remove(what)
            free.release()

    sockets = SocketFolder.opened(folder)
    Host(sockets.path("host"), {"divide": divide}, {"hold": hold}).start()
    return Caller(sockets.path("host"))


def test_replies_and_errors_come_back(caller: Caller) -> None:
    assert caller.call("divide", 1, 4) == 0.25
    with pytest.raises(EngineBusy, match="by zero"):
        caller.call("divide", 1, 0)
    assert caller.call("divide", 9, 3) == 3


def test_what_is_held_is_given_back(caller: Caller, held: list[str]) -> None:
    with caller.held("hold", "it") as (told, call):
        assert (told, held) == (1, ["it"])
        assert call("twice", 21) == 42
        assert caller.call("divide", 1, 1) == 1, "on another connection"
    assert not held
    with pytest.raises(ZeroDivisionError), caller.held("hold", "again"):
        raise ZeroDivisionError
    assert not held


def test_a_wait_is_given_up(caller: Caller, held: list[str]) -> None:
    def give_up() -> None:
        raise Left

    with caller.held("hold", "it"):
        with pytest.raises(Left), caller.held("hold", "in vain", give_up=give_up):
            pass
        assert held == ["it"]
    with caller.held("hold", "next", give_up=give_up):  # nothing is waited for
        assert held == ["next"]


def test_a_process_that_is_killed_gives_back(caller: Caller, held: list[str], tmp_path: Path) -> None:
    (folder,) = tmp_path.iterdir()
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(folder)], cwd=ROOT)
    wait_until(lambda: held == ["it"], "it holds")
    process.kill()
    process.wait()
    wait_until(lambda: not held, "it is given back", within_s=WITHIN_S)


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(HostGone):
        Caller(SocketFolder.opened(tmp_path).path("host")).call("divide", 1, 1)
