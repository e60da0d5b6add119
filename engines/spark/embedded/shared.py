"""One embedded server for several processes: it and its gate are in one process, and the others call both.

Each process handles its own statements on the server. When a process ends, its statements leave the gate, and their
jobs on the server are ended, as nobody will read their rows.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

from engines.adapter import SharedPart
from engines.errors import EngineUnavailable
from engines.machine.sharing import Caller, Function, HostGone
from engines.spark.embedded.gate import Gate
from engines.spark.embedded.server import ServerSettings, ServerState, SparkConnectServer
from engines.spark.embedded.web_ui import WebUi

_ENTER, _CLOSED = "spark.enter", "spark.closed"


class _CallerGone(Exception):
    """The caller does not wait any more."""


def shared_part(server: SparkConnectServer, gate: Gate, end_jobs: Callable[[str], None]) -> SharedPart:
    """Return the functions and holders of a server and its gate. end_jobs: called with a statement's tag."""
    one_at_a_time = threading.Lock()
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take_lost() -> list[str]:
        tags: list[str] = []
        with contextlib.suppress(queue.Empty):
            while True:
                tags.append(lost.get_nowait())
        return tags

    def begin() -> str | None:
        starting = server.begin()
        return starting.result() if starting.done() else None

    @contextmanager
    def enter(has_left: Callable[[], bool], alone: bool, tag: str) -> Iterator[tuple[None, Mapping[str, Function]]]:
        def give_up() -> None:
            if has_left():
                raise _CallerGone

        who = object()
        gate.enter(who, alone=alone, give_up=give_up)
        try:
            yield None, {}
        except (EOFError, OSError):  # its process has died
            if tag:
                end_jobs(tag)
                lost.put(tag)
            raise
        finally:
            gate.leave(who)

    @contextmanager
    def closed(_: Callable[[], bool], wait_s: float) -> Iterator[tuple[bool, Mapping[str, Function]]]:
        with one_at_a_time, gate.closed(wait_s=wait_s) as empty:
            yield empty, {}

    functions: dict[str, Function] = {
        "spark.begin": begin,
        "spark.start": server.start,
        "spark.status": server.status,
        "spark.may_start": server.may_start,
        "spark.restart": server.restart,
        "spark.was_restarted": server.was_restarted,
        "spark.ran_out_of_memory": server.ran_out_of_memory,
        "spark.web_ui": server.web_ui,
        "spark.take_lost": take_lost,
        "spark.inside": lambda: gate.inside,
    }
    return SharedPart(functions, {_ENTER: enter, _CLOSED: closed}, server.stop)


class SharedServer(SparkConnectServer):
    """The embedded server of another process. Thread-safe."""

    def __init__(self, settings: ServerSettings, caller: Caller) -> None:
        super().__init__(settings)
        self._caller = caller

    def begin(self) -> Future[str]:
        """See ``SparkConnectServer.begin``."""
        future: Future[str] = Future()
        address = self._caller.call("spark.begin")
        if address is not None:
            future.set_result(address)
        else:
            threading.Thread(target=self._wait_for, args=(future,), name="spark-start", daemon=True).start()
        return future

    def start(self) -> str:
        """See ``SparkConnectServer.start``."""
        return str(self._caller.call("spark.start"))

    def status(self) -> tuple[ServerState, str]:
        """See ``SparkConnectServer.status``."""
        status: tuple[ServerState, str] = self._caller.call("spark.status")
        return status

    def may_start(self) -> bool:
        """See ``SparkConnectServer.may_start``."""
        return bool(self._caller.call("spark.may_start"))

    def restart(self, reason: str) -> None:
        """See ``SparkConnectServer.restart``."""
        self._caller.call("spark.restart", reason)

    def was_restarted(self, address: str) -> bool:
        """See ``SparkConnectServer.was_restarted``."""
        return bool(self._caller.call("spark.was_restarted", address))

    def ran_out_of_memory(self, address: str) -> bool:
        """See ``SparkConnectServer.ran_out_of_memory``."""
        return bool(self._caller.call("spark.ran_out_of_memory", address))

    def web_ui(self) -> WebUi | None:
        """See ``SparkConnectServer.web_ui``."""
        web_ui: WebUi | None = self._caller.call("spark.web_ui")
        return web_ui

    def take_lost(self) -> Collection[str]:
        """See ``SparkConnectServer.take_lost``: one of the processes checks each for leftovers."""
        tags: Collection[str] = self._caller.call("spark.take_lost")
        return tags

    def stop(self) -> None:
        """Leave the server to the others."""

    def _wait_for(self, address: Future[str]) -> None:
        try:
            address.set_result(self.start())
        except (EngineUnavailable, HostGone) as error:
            address.set_exception(EngineUnavailable(str(error)))


class SharedGate(Gate):
    """The gate of a server that several processes share. Thread-safe. Each statement that enters has to leave."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller
        self._lock = threading.Lock()
        self._entered: dict[object, ExitStack] = {}

    @property
    def inside(self) -> int:
        """Number of statements inside, of all processes."""
        return int(self._caller.call("spark.inside"))

    def enter(self, who: object, *, alone: bool, give_up: Callable[[], None]) -> None:
        """See ``Gate.enter``. who: a statement, with its tag on Spark."""
        held = ExitStack()
        held.enter_context(self._caller.held(_ENTER, alone, str(getattr(who, "tag", "")), give_up=give_up))
        with self._lock:
            self._entered[who] = held

    def leave(self, who: object) -> None:
        """See ``Gate.leave``."""
        with self._lock:
            held = self._entered.pop(who, None)
        if held is not None:
            held.close()

    @contextlib.contextmanager
    def closed(self, *, wait_s: float) -> Iterator[bool]:
        """See ``Gate.closed``."""
        with self._caller.held(_CLOSED, wait_s) as (empty, _):
            yield empty
