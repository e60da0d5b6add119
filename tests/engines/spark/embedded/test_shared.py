"""A gate and a server that several processes share, without the server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.errors import EngineUnavailable
from engines.machine.sharing import Caller, Host, SocketFolder
from engines.spark.embedded.gate import Gate
from engines.spark.embedded.server import ServerSettings, ServerState, SparkConnectServer
from engines.spark.embedded.shared import SharedGate, SharedServer, shared_part
from tests.waiting import wait_until

SOON_S, SHORT_S = 10.0, 0.3
ROOT = Path(__file__).parents[4]
INSIDE = """
import sys, time
from pathlib import Path
from engines.machine.sharing import Caller, SocketFolder
from engines.spark.embedded.shared import SharedGate
class Statement:
    def __init__(self, tag): self.tag = tag
gate = SharedGate(Caller(SocketFolder.opened(Path(sys.argv[1])).path("host")))
short, long, nameless = Statement("short"), Statement("long"), Statement("")
for each in (short, long, nameless):
    gate.enter(each, alone=False, give_up=lambda: None)
gate.leave(short)
print("ready", flush=True)
time.sleep(60)
"""


class Cancelled(Exception):
    """The statement was cancelled."""


def wait_on() -> None:
    """Wait on."""


def cancelled() -> None:
    raise Cancelled


@pytest.fixture
def server(tmp_path: Path) -> SparkConnectServer:
    return SparkConnectServer(ServerSettings(tmp_path / "spark"))


@pytest.fixture
def ended() -> list[str]:
    """Return tags of statements whose jobs were ended."""
    return []


@pytest.fixture
def join(server: SparkConnectServer, ended: list[str], tmp_path: Path) -> Callable[[], tuple[SharedServer, SharedGate]]:
    part = shared_part(server, Gate(), ended.append)
    sockets = SocketFolder.opened(tmp_path)
    Host(sockets.path("host"), part.functions, part.holders).start()

    def joined() -> tuple[SharedServer, SharedGate]:
        caller = Caller(sockets.path("host"))
        return SharedServer(server.settings, caller), SharedGate(caller)

    return joined


def test_one_gate_for_all(join: Callable[[], tuple[SharedServer, SharedGate]]) -> None:
    (_, one), (_, other) = join(), join()
    one.enter("first", alone=False, give_up=wait_on)
    other.enter("second", alone=False, give_up=wait_on)
    assert one.inside == other.inside == 2
    with pytest.raises(Cancelled):
        one.enter("alone", alone=True, give_up=cancelled)
    one.leave("first")
    one.leave("first")  # it is not inside any more
    entered = threading.Event()

    def alone() -> None:
        one.enter("alone", alone=True, give_up=wait_on)
        entered.set()

    threading.Thread(target=alone, daemon=True).start()
    assert not entered.wait(SHORT_S)
    other.leave("second")
    assert entered.wait(SOON_S)
    with pytest.raises(Cancelled):
        other.enter("third", alone=False, give_up=cancelled)
    one.leave("alone")
    with other.closed(wait_s=0.0) as empty:
        assert empty
        with pytest.raises(Cancelled):
            one.enter("fourth", alone=False, give_up=cancelled)
    one.enter("fourth", alone=False, give_up=wait_on)
    with other.closed(wait_s=0.0) as empty:
        assert not empty
    one.leave("fourth")


def test_of_a_process_that_is_killed_nothing_goes_on(
    join: Callable[[], tuple[SharedServer, SharedGate]], ended: list[str], tmp_path: Path
) -> None:
    server, gate = join()
    assert not server.take_lost()
    with subprocess.Popen([sys.executable, "-c", INSIDE, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert gate.inside == 2
        process.kill()
    wait_until(lambda: not gate.inside, "none is", within_s=SOON_S)
    wait_until(lambda: ended == ["long"], "the jobs of one are ended; the other had left before", within_s=SOON_S)
    assert list(server.take_lost()) == ["long"]
    assert not server.take_lost()


def test_the_server_is_told_of_as_it_is(
    join: Callable[[], tuple[SharedServer, SharedGate]], server: SparkConnectServer
) -> None:
    shared, _ = join()
    assert shared.status()[0] is ServerState.NOT_STARTED
    assert shared.may_start()
    assert shared.web_ui() is None
    assert not shared.was_restarted("sc://nowhere")
    assert not shared.ran_out_of_memory("sc://nowhere")
    assert shared.results_folder == server.results_folder
    shared.stop()
    assert server.status()[0] is ServerState.NOT_STARTED, "it is not one process's to stop"
    server.stop()
    with pytest.raises(EngineUnavailable, match="was stopped"):
        shared.begin()
    with pytest.raises(EngineUnavailable, match="was stopped"):
        shared.start()
