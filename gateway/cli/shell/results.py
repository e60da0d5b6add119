"""Results in a shell: rows, on pages where they are longer than the terminal, and a line about the statement."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gateway.cli.shell.session import Display
from gateway.cli.statements.printing import engine_of, print_rows, seconds_taken
from gateway.cli.statements.running import ROUTE, Output, write_result
from gateway.cli.target import under
from gateway.cli.terminal import note, out
from gateway.presentation.formatting import counted

if TYPE_CHECKING:
    from gateway.cli.client import Client

PAGER = "PAGER"
USUAL_PAGER = "less"
LESS_OPTIONS = "FRSX"  # end where one screen is enough, keep colours, do not fold, leave the text on the screen


def show_result(client: Client, reply: Mapping[str, Any], display: Display) -> None:
    """Print the rows of a statement that has finished, then a line about it."""
    if reply["columns"]:
        if display.output is Output.TABLE:
            _show_table(reply, display)
        else:
            _show_text(client, reply, display)
    show_failures(reply["attempts"])
    note(summary(reply, display))


def show_failures(attempts: list[Mapping[str, Any]]) -> None:
    """Tell the attempts that failed, after which a statement went on elsewhere."""
    for attempt in attempts:
        if attempt["failure"]:
            after = "" if attempt["wall_s"] is None else f" after {attempt['wall_s']:.2f} s"
            note(f"{attempt['engine']} failed{after}: {attempt['message']}")


def summary(reply: Mapping[str, Any], display: Display) -> str:
    """Return the line about a statement: its rows, seconds, engine and id."""
    rows = counted(reply["row_count"], "row") if reply["columns"] and reply["row_count"] is not None else "done"
    if reply["truncated"] and display.output is Output.TABLE:
        rows = f"{len(reply['rows'] or []):,} of {rows} (\\rows N shows more)"
    seconds = f" in {seconds_taken(reply)} s" if display.timing else ""
    return f"{rows}{seconds} on {engine_of(reply)} (query {reply['id']})"


def _show_table(reply: Mapping[str, Any], display: Display) -> None:
    if not out.is_terminal:
        print_rows(reply, blocks=display.blocks)
        return
    with out.capture() as captured:
        print_rows(reply, blocks=display.blocks)
    show_text(captured.get(), display)


def show_text(text: str, display: Display) -> None:
    """Write a text to the terminal, through a pager if it is longer."""
    command = _pager(text.count("\n"), display)
    if command is None:
        sys.stdout.write(text)
        return
    with _paging(command) as sink:
        sink.write(text.encode(errors="backslashreplace"))


def _show_text(client: Client, reply: Mapping[str, Any], display: Display) -> None:
    command = _pager(reply["row_count"] or 0, display)
    if command is None:
        write_result(client, reply["id"], display.output)
        return
    with _paging(command) as sink:
        client.write(f"{under(ROUTE, reply['id'])}/result", sink, format=display.output.value)


def _pager(lines: int, display: Display) -> list[str] | None:
    """Return the command of a pager for so many lines; None: they fit, no pager is wanted, or there is none."""
    if not display.pager or not out.is_terminal or lines < out.size.height:
        return None
    try:
        command = shlex.split(os.environ.get(PAGER) or USUAL_PAGER)
    except ValueError:  # a quote is not closed
        return None
    return command if command and shutil.which(command[0]) else None


@contextmanager
def _paging(command: list[str]) -> Iterator[BinaryIO]:
    """Give a pager's input and wait for its end. Ctrl-C meanwhile is the pager's."""
    sys.stdout.flush()
    before = signal.signal(signal.SIGINT, lambda *_: None)  # programs get the default back, unlike SIG_IGN
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env={"LESS": LESS_OPTIONS, **os.environ})
        try:
            with suppress(BrokenPipeError):  # the reader has seen enough
                yield cast(BinaryIO, process.stdin)
        finally:
            with suppress(BrokenPipeError):
                process.communicate()
    finally:
        signal.signal(signal.SIGINT, before)
