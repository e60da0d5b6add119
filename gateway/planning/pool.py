"""Planners: a few processes that parse statements and estimate plans, shared fairly between users."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engines.errors import EngineBusy
from gateway.planning.fairness import FairSlots, Requester
from gateway.planning.messages import MEMORY_BYTES
from gateway.planning.process import PlannerProcess, ProcessLost
from sql.errors import StatementTooComplex

log = logging.getLogger(__name__)

MOST_BEGUN = 2  # processes that one statement may end
MOST_LOST = 5  # processes that end under one statement, for whatever reason


class Place:
    """A planner that one statement holds."""

    def __init__(self, planners: Planners, requester: Requester) -> None:
        self._planners = planners
        self._asker = requester

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Run a function in a process. Raises what it raises, StatementTooComplex, and EngineBusy."""
        return self._planners._run(function, arguments, self._asker)


class Planners:
    """Pool of planner processes. Thread-safe.

    size: calls at once; one user's statements make half of them at most, so that others find a process free.
    cpu_s: largest processor time of one call.
    wait_s: longest wait for a place.
    memory_bytes: that one call may take beyond what its process holds.

    Processes start when they are first needed.
    """

    def __init__(self, *, size: int, cpu_s: float, wait_s: float, memory_bytes: int = MEMORY_BYTES) -> None:
        self._size = size
        self._places = FairSlots(size, wait_s=wait_s)
        self.wait_s = wait_s
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._idle: list[PlannerProcess] = []
        self._closed = False

    @contextmanager
    def place(self, requester: Requester) -> Iterator[Place]:
        """Hold a place. Raises EngineBusy where none becomes free in time, StatementCancelled, DeadlineExceeded."""
        with self._places.hold(requester):
            yield Place(self, requester)

    def warm_up(self) -> None:
        """Start the processes ahead of the first statements; one takes a second until it can work."""
        for _ in range(self._size):
            self._give_back(PlannerProcess())

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def _run(self, function: Callable[..., Any], arguments: tuple[object, ...], requester: Requester) -> Any:
        begun = 0
        for _ in range(MOST_LOST):
            process = self._take()
            try:
                return process.call(
                    function, *arguments, cpu_s=self._cpu_s, memory_bytes=self._memory_bytes, requester=requester
                )
            except ProcessLost as error:
                log.warning("%s, %s", error, "in the middle of a statement" if error.begun else "before a statement")
                begun += error.begun
            finally:
                self._give_back(process)
            if begun == MOST_BEGUN:
                raise StatementTooComplex("Planning the statement ended its process twice; write it in another way.")
        raise EngineBusy("The processes that plan statements end as soon as they start; the gateway's log says more.")

    def _take(self) -> PlannerProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.alive:
                    return process
        return PlannerProcess()

    def _give_back(self, process: PlannerProcess) -> None:
        with self._lock:
            if process.alive and not self._closed:
                self._idle.append(process)
                return
            closed = self._closed
        process.close()
        if not closed:  # another one begins now, so that whoever needs it need not wait for all of its start
            replacement = PlannerProcess()
            with self._lock:
                if not self._closed:
                    self._idle.insert(0, replacement)
                    return
            replacement.close()
