"""Planners of gateways in a test's process: their processes go from one gateway to the next.

A process takes a second of a processor until it can work, and most tests have a gateway of their own.
"""

from __future__ import annotations

from collections import defaultdict

from engines.machine.environment import child_environment
from gateway.planning.pool import Planners
from gateway.planning.process import PlannerProcess

_Environment = frozenset[tuple[str, str]]
_waiting: defaultdict[_Environment, list[PlannerProcess]] = defaultdict(list)


class LastingPlanners(Planners):
    """Planners that begin with processes of gateways that have ended, and leave theirs to the next ones."""

    def warm_up(self) -> None:
        """Have all processes."""
        for _ in range(self._size):
            self._give_back(_waiting_process() or PlannerProcess())

    def close(self) -> None:
        """Leave the processes to the next gateway."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        _waiting[_environment()] += idle

    def _take(self) -> PlannerProcess:
        with self._lock:
            is_empty = not self._idle
        return (_waiting_process() if is_empty else None) or super()._take()


def end_waiting() -> None:
    """End all processes that wait for a gateway."""
    for processes in _waiting.values():
        for process in processes:
            process.close()
    _waiting.clear()


def _environment() -> _Environment:
    """Return the environment of new processes: one that was started in another one is of no use."""
    return frozenset(child_environment().items())


def _waiting_process() -> PlannerProcess | None:
    waiting = _waiting[_environment()]
    while waiting:
        process = waiting.pop()
        if process.alive:
            return process
    return None
