"""Run a command that must not outlive the process that started it.

    python -m engines.machine.lifeline [--grace SECONDS] [--pid-file FILE] -- COMMAND...

Standard input is a pipe from the parent. When it closes, which the kernel does even for a parent killed by ``kill -9``,
or on SIGTERM, the command's whole process group is ended: TERM first, KILL after the grace period. The exit status is
the command's (128 + signal number when a signal ended it).

Only the standard library is used, so the file can also be run by its path.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

DEFAULT_GRACE_S = 10.0
COMMAND_NOT_FOUND = 127  # a shell's exit status for it

_PARENT_CHECK_S = 1.0
_END_CHECK_S = 0.05


class _Lifeline:
    """The command, and the three causes of its end: itself, the parent's end, a signal to this process."""

    def __init__(self, command: Sequence[str], grace_s: float) -> None:
        self._grace_s = grace_s
        self._parent = os.getppid()
        self._is_ending = False
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._child.pid

    def hold(self) -> int:
        """Wait until the command ends or must end; return its exit status."""
        while self._child.poll() is None and not self._is_ending and self._parent_lives():
            pass
        self._end_group()
        status = self._child.wait()
        return status if status >= 0 else 128 - status

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._is_ending = True

    def _parent_lives(self) -> bool:
        """Wait for an event for a moment. Return False once the parent is gone."""
        readable, _, _ = select.select([sys.stdin.fileno(), self._woken], [], [], _PARENT_CHECK_S)
        if self._woken in readable:
            os.read(self._woken, 512)
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 512):
            return False
        # A process that the parent forked may hold the pipe open after the parent's end.
        return os.getppid() == self._parent

    def _end_group(self) -> None:
        if self._child.poll() is None:
            self._signal_group(signal.SIGTERM)
            give_up = time.monotonic() + self._grace_s
            while self._child.poll() is None and time.monotonic() < give_up:
                time.sleep(_END_CHECK_S)
        self._signal_group(signal.SIGKILL)  # whatever is left of the group

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return  # the group is gone already


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="engines.machine.lifeline", description="End a command with its parent.")
    parser.add_argument("--grace", type=float, default=DEFAULT_GRACE_S, help="seconds between TERM and KILL")
    parser.add_argument("--pid-file", type=Path, help="where to write the command's process id")
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args(arguments)
    try:
        lifeline = _Lifeline(options.command, options.grace)
    except OSError as error:
        print(f"{options.command[0]}: {error.strerror}", file=sys.stderr)
        return COMMAND_NOT_FOUND
    if options.pid_file:
        options.pid_file.write_text(str(lifeline.pid), encoding="ascii")
    return lifeline.hold()


if __name__ == "__main__":
    sys.exit(main())
