"""Statements that a shell runs: each under its session, with its result or its error printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.cli.shell.results import show_failures, show_result
from gateway.cli.shell.session import Shell
from gateway.cli.shell.session_statements import first_word, run_session_statement
from gateway.cli.statements.running import Output, Script, run_statement
from gateway.cli.target import message_of, unreachable
from gateway.cli.terminal import tell_error, tell_error_at

if TYPE_CHECKING:
    from gateway.cli.client import Client

RENAMING = frozenset({"CREATE", "DROP", "ALTER", "REFRESH", "INVALIDATE", "MSCK"})
"""First words of statements that may change names of databases, tables or columns."""


def run_statements(shell: Shell, script: Script) -> None:
    """Run statements one after the other, up to the first that fails."""
    from gateway.cli.client import RequestFailed

    shell.last_sql = script.text
    for statement in script.statements:
        try:
            run_one(shell, statement.sql)
        except RequestFailed as error:
            place = script.place_of(error, statement)
            tell_error_at(message_of(error), script.text, place, within=script.name)
            return


def run_one(shell: Shell, sql: str) -> None:
    """Run one statement and print its result. Raises RequestFailed, httpx.HTTPError."""
    from gateway.cli.client import RequestFailed

    if run_session_statement(shell, sql):
        return
    rows = shell.display.max_rows if shell.display.output is Output.TABLE else 0
    reply = run_statement(shell.client, sql, {**shell.session.request(), "max_rows": rows})
    shell.last_reply = reply
    if reply["error"]:
        show_failures(reply["attempts"][:-1])
        raise RequestFailed.of(reply["error"])
    show_result(shell.client, reply, shell.display)
    if first_word(sql, shell.session.dialect) in RENAMING:
        shell.names.refresh()


@contextmanager
def telling_errors(client: Client) -> Iterator[None]:
    """Print what a request fails with, and go on."""
    import httpx

    from gateway.cli.client import RequestFailed

    try:
        yield
    except RequestFailed as error:
        tell_error(message_of(error))  # without its place, which is in a text that nobody typed
    except httpx.ConnectError as error:
        tell_error(unreachable(client.url, error))
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        problem = f"the gateway at {client.url} stopped, or the way to it broke, in the middle: {why}"
        tell_error(f"{problem}; the next statement tries again")
