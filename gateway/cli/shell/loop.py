"""The shell's loop: read, run, print, until the input ends. Whatever a statement ends with, the next one is read."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from gateway.cli.shell.commands import is_command, run_command
from gateway.cli.shell.history import PrivateHistory, history_file
from gateway.cli.shell.names import NameCache
from gateway.cli.shell.prompt import line_editor, prompt_text
from gateway.cli.shell.session import Session, Shell, require_accepted
from gateway.cli.shell.statements import run_statements, telling_errors
from gateway.cli.statements.running import script_of
from gateway.cli.terminal import Terminated, note

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from gateway.cli.client import Client

DISTRIBUTION = "fusion-sql-gateway"


def run_shell(client: Client, session: Session) -> None:
    """Run statements that a person types, until Ctrl-D. Raises RequestFailed where the gateway refuses the session."""
    require_accepted(client, session)
    note(f"fusion {version(DISTRIBUTION)}, gateway at {client.url}; \\? lists commands, Ctrl-D ends")
    shell = Shell(client, NameCache(client), session)
    history = PrivateHistory(history_file())
    editor = line_editor(shell, history)
    shell.names.start()
    try:
        while not shell.is_over:
            _tell_problem(history)
            _read_and_run(shell, editor)
    finally:
        shell.names.close()


def _tell_problem(history: PrivateHistory) -> None:
    problem = history.pop_problem()
    if problem is not None:
        note(problem)


def _read_and_run(shell: Shell, editor: PromptSession[str]) -> None:
    draft, shell.draft = shell.draft, ""
    try:
        with _ended_by_signal(editor):
            text = editor.prompt(prompt_text(shell.session), default=draft)
        with telling_errors(shell.client):
            run_text(shell, text)
    except EOFError:
        shell.is_over = True
    except Terminated:
        raise
    except KeyboardInterrupt:  # the input is cleared, or the statement cancelled
        return


@contextmanager
def _ended_by_signal(editor: PromptSession[str]) -> Iterator[None]:
    """Let SIGTERM end a prompt from its own loop, where Terminated raised by a signal would be an error to show."""
    has_come = False

    def leave() -> None:
        prompt = editor.app.future
        if prompt is not None and not prompt.done():
            prompt.set_exception(Terminated)

    def end(*_: object) -> None:
        nonlocal has_come
        has_come = True
        if editor.app.loop is None:  # before the prompt, or after it
            raise Terminated
        editor.app.loop.call_soon_threadsafe(leave)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if has_come:  # as the prompt ended by itself
        raise Terminated


def run_text(shell: Shell, text: str) -> None:
    """Run what was typed: a command, or statements."""
    if is_command(text):
        run_command(shell, text)
    elif text.strip():
        run_statements(shell, script_of(text, shell.session.dialect))
