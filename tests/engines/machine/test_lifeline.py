"""The supervisor against real processes: nothing that it started may outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.processes import ends_within, is_running

GRACE_S = 0.5
SOON_S = 5.0

COMMAND_WITH_CHILD = 'sleep 600 & echo $! > "$0.draft"; mv "$0.draft" "$0"; wait'
DEAF_COMMAND = 'trap "" TERM; echo $$ > "$0.draft"; mv "$0.draft" "$0"; while :; do sleep 1; done'
POLITE_COMMAND = (
    'trap "echo bye > $0.bye; exit 3" TERM; echo $$ > "$0.draft"; mv "$0.draft" "$0"; while :; do sleep 0.05; done'
)

PARENT = """
import os, subprocess, sys, time
lifeline = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
if sys.argv[1] == "forks":
    if os.fork() == 0:  # holds the pipe open after the parent's end
        time.sleep(8)
        os._exit(0)
time.sleep(600)
"""


def lifeline(*command: str, options: Sequence[str] = ()) -> list[str]:
    return [sys.executable, "-m", "engines.machine.lifeline", "--grace", str(GRACE_S), *options, "--", *command]


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()  # to kill it would leave its command behind


def written_pid(file: Path) -> int:
    give_up_s = time.monotonic() + SOON_S
    while not file.exists():
        assert time.monotonic() < give_up_s, "the command did not start"
        time.sleep(0.02)
    return int(file.read_text())


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 128 + 9)])
def test_exits_with_the_commands_status(script: str, status: int) -> None:
    with started(lifeline("sh", "-c", script)) as process:
        assert process.wait(SOON_S) == status


def test_command_that_does_not_exist() -> None:
    with started(lifeline("no-such-command")) as process:
        assert process.wait(SOON_S) == 127
        assert process.stderr is not None
        assert b"no-such-command" in process.stderr.read()


def test_writes_the_commands_pid(tmp_path: Path) -> None:
    file = tmp_path / "command"
    options = ["--pid-file", str(tmp_path / "pid")]
    with started(lifeline("sh", "-c", POLITE_COMMAND, str(file), options=options)):
        assert written_pid(file) == written_pid(tmp_path / "pid")


def test_closed_pipe_ends_the_whole_group(tmp_path: Path) -> None:
    file = tmp_path / "grandchild"
    with started(lifeline("sh", "-c", COMMAND_WITH_CHILD, str(file))) as process:
        grandchild = written_pid(file)
        assert is_running(grandchild)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SOON_S) == 128 + signal.SIGTERM
        assert ends_within(grandchild, SOON_S)


def test_command_that_ends_leaves_no_child_behind(tmp_path: Path) -> None:
    file = tmp_path / "grandchild"
    script = 'sleep 600 & echo $! > "$0.draft"; mv "$0.draft" "$0"'
    with started(lifeline("sh", "-c", script, str(file))) as process:
        assert process.wait(SOON_S) == 0
        assert ends_within(written_pid(file), SOON_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_command_in_its_own_way(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "command"
    with started(lifeline("sh", "-c", POLITE_COMMAND, str(file))) as process:
        written_pid(file)
        process.send_signal(number)
        assert process.wait(SOON_S) == 3
        assert Path(f"{file}.bye").exists()


def test_deaf_command_is_killed_after_the_grace(tmp_path: Path) -> None:
    file = tmp_path / "command"
    with started(lifeline("sh", "-c", DEAF_COMMAND, str(file))) as process:
        pid = written_pid(file)
        process.terminate()
        assert process.wait(GRACE_S + SOON_S) == 128 + signal.SIGKILL
        assert ends_within(pid, SOON_S)


@pytest.mark.parametrize("how", ["plain", "forks"])
@pytest.mark.parametrize("script", [COMMAND_WITH_CHILD, DEAF_COMMAND])
def test_killed_parent_takes_the_command_along(tmp_path: Path, how: str, script: str) -> None:
    file = tmp_path / "pid"
    with started([sys.executable, "-c", PARENT, how, *lifeline("sh", "-c", script, str(file))]) as parent:
        pid = written_pid(file)
        os.kill(parent.pid, signal.SIGKILL)
        assert ends_within(pid, GRACE_S + SOON_S)
