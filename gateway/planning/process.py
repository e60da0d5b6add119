"""Planner process, as the gateway sees it: start it, run functions in it, end it."""

from __future__ import annotations

import contextlib
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from engines.errors import DeadlineExceeded, StatementCancelled
from engines.machine.environment import child_environment
from gateway.planning.fairness import Requester
from gateway.planning.messages import MEMORY_BYTES, Call, ForgetValues, Outcome, ReplaceMapping, SharedValue, ShareValue
from sql.errors import StatementTooComplex

log = logging.getLogger(__name__)

MOST_SHARED = 256  # values that a process remembers
MOST_SHARED_BYTES = 64 << 20
POLL_S = 0.05  # between two looks at whether the statement was cancelled
STOPPED = (-24,)  # exit status of a process that the kernel ended for its processor time (SIGXCPU)


class PlannerFault(RuntimeError):
    """A function failed with what it should not fail with; the message is its traceback."""


class ProcessLost(Exception):
    """The process ended before it told the outcome of a call."""

    def __init__(self, exit_status: int, *, begun: bool) -> None:
        super().__init__(f"a planner ended with exit status {exit_status}")
        self.begun = begun
        """Whether it had begun on the call: only then can the call be what ended it."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Argument that many calls share: it is sent once.

    value: the argument, the same object in each call.
    series: name of successive versions of a mapping: only the difference is sent, and the old version is forgotten.
    """

    value: Any
    series: str | None = None


class PlannerProcess:
    """One process. Not thread-safe."""

    def __init__(self) -> None:
        self._ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gateway.planning.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**child_environment(), "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
            )
        self._shared: dict[int, object] = {}
        self._newest: dict[str | None, Mapping[Any, object]] = {}  # of each series; one of those that are kept
        self._shared_bytes = 0

    @property
    def pid(self) -> int:
        """The operating system's id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def call(
        self,
        function: Callable[..., Any],
        *arguments: object,
        cpu_s: float,
        requester: Requester,
        memory_bytes: int = MEMORY_BYTES,
    ) -> Any:
        """Run a function in the process and return its result.

        Raises what the function raises (SqlError, EngineError), StatementTooComplex, StatementCancelled,
        DeadlineExceeded, ProcessLost.
        """
        begun = False
        try:
            self._make_room([argument for argument in arguments if isinstance(argument, Shared)])
            sent = [self._lent(argument) if isinstance(argument, Shared) else argument for argument in arguments]
            self._send(Call(function, sent, cpu_s, memory_bytes))
            outcome, value = self._receive(requester)
            if outcome is Outcome.BEGUN:
                begun = True
                outcome, value = self._receive(requester)
        except (EOFError, OSError) as error:
            self.close()
            if self._process.returncode in STOPPED:
                raise _too_long(cpu_s) from error
            raise ProcessLost(self._process.returncode, begun=begun) from error
        except (StatementCancelled, DeadlineExceeded):
            self.close()
            raise
        match outcome:
            case Outcome.DONE:
                return value
            case Outcome.FAILED:
                raise value
            case Outcome.TOO_LONG:
                raise _too_long(cpu_s)
            case Outcome.TOO_LARGE:
                self.close()
                raise StatementTooComplex("Planning the statement takes too much memory; write it in smaller parts.")
            case _:
                raise PlannerFault(value)

    def _receive(self, requester: Requester) -> tuple[Outcome, Any]:
        while not self._ours.poll(POLL_S):
            requester.require()
        reply: tuple[Outcome, Any] = pickle.loads(self._ours.recv_bytes())  # noqa: S301 - of the process that we started
        return reply

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._ours.close()

    def _lent(self, shared: Shared) -> SharedValue:
        key = id(shared.value)  # which no other object has while this one is held here
        if key not in self._shared:
            before = self._newest.get(shared.series)
            if before is None:
                self._shared_bytes += self._send(ShareValue(key, shared.value))
            else:
                self._shared_bytes += self._send(_replacement(before, shared.value))
                del self._shared[id(before)]
            self._shared[key] = shared.value
            if shared.series is not None:
                self._newest[shared.series] = shared.value
        return SharedValue(key)

    def _make_room(self, shared: Sequence[Shared]) -> None:
        """Drop all shared values before a call that would make them too many."""
        new = {id(argument.value) for argument in shared} - self._shared.keys()
        if (
            self._shared
            and new
            and (len(self._shared) + len(new) > MOST_SHARED or self._shared_bytes > MOST_SHARED_BYTES)
        ):
            self._shared.clear()
            self._newest.clear()
            self._shared_bytes = 0
            self._send(ForgetValues())

    def _send(self, message: object) -> int:
        """Send a message; returns how many bytes it has."""
        pickled = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._ours.send_bytes(pickled)
        return len(pickled)


def _replacement(before: Mapping[Any, object], after: Mapping[Any, object]) -> ReplaceMapping:
    changed = {key: value for key, value in after.items() if before.get(key) is not value}
    return ReplaceMapping(id(after), id(before), changed, [key for key in before if key not in after])


def _too_long(cpu_s: float) -> StatementTooComplex:
    return StatementTooComplex(
        f"Planning the statement takes more than {cpu_s:g} s of computing; write it in smaller parts."
    )
