"""Statements about the session, which the gateway refuses over HTTP: USE, SET and RESET.

Their grammar is the gateway's own. The gateway checks the new values before they hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.cli.shell.session import Session, Shell
from gateway.cli.terminal import note, out
from gateway.cli.text.layout import print_table
from gateway.cli.text.script import tokens_of

if TYPE_CHECKING:
    from gateway.commands.session import ResetOptions, SetOption, ShowOptions, UseDatabase

VERBS = frozenset({"USE", "SET", "RESET"})
UNDEFINED = "<undefined>"


def first_word(sql: str, dialect: str) -> str:
    """Return the first word of a statement in capitals, behind comments; empty: there is none."""
    tokens = tokens_of(sql, dialect)
    return tokens[0].text.upper() if tokens else ""


def run_session_statement(shell: Shell, sql: str) -> bool:
    """Run a statement about the session; return False for all others. Raises RequestFailed."""
    if first_word(sql, shell.session.dialect) not in VERBS:
        return False
    from gateway.commands.session import ResetOptions, SetOption, ShowOptions, UseDatabase

    match read_session_statement(sql, shell.session.dialect):
        case UseDatabase(database):
            use_database(shell, database)
        case SetOption(name, value):
            shell.adopt(shell.session.with_setting(name, value))
            note(f"{name} is {value}")
        case ResetOptions(name):
            shell.adopt(shell.session.without_setting(name))
            note(f"{name or 'every setting'} has its default")
        case ShowOptions() as shown:
            _print_settings(shell.session, shown)
    return True


def use_database(shell: Shell, database: str) -> None:
    """Let bare names mean tables of a database that exists. Raises RequestFailed."""
    shell.adopt(replace(shell.session, database=database))
    note(f"bare names are in {database}")


def read_session_statement(sql: str, dialect: str) -> UseDatabase | SetOption | ResetOptions | ShowOptions:
    """Read a statement about the session. Raises RequestFailed with what is wrong and where."""
    from gateway.cli.client import RequestFailed
    from gateway.commands.grammar.reader import Context, Reader
    from gateway.commands.session import UseDatabase, parse
    from sql.errors import SqlError
    from sql.parsing import USUAL_LIMITS

    reader = Reader(sql, Context(dialect, {}, USUAL_LIMITS))
    try:
        if reader.accept("USE"):
            database = reader.new_database()  # its existence is the gateway's to check
            reader.end()
            return UseDatabase(database)
        statement = parse(reader)
    except SqlError as error:
        place = (error.position.line, error.position.column) if error.position else None
        raise RequestFailed(error.code, error.message, place) from error
    assert statement is not None  # its verb is SET or RESET
    return statement


def _print_settings(session: Session, shown: ShowOptions) -> None:
    """Print settings of the session with their values, one or all, those of the gateway first."""
    from gateway.statements.settings import OBEYED

    meanings = {option.name: option.meaning for option in OBEYED}
    values = {option.name: str(option.default) for option in OBEYED} | session.all_settings()
    if shown.name is not None:
        name = shown.name.lower()
        values = {shown.name: next((value for other, value in values.items() if other.lower() == name), UNDEFINED)}
    if shown.meanings:
        rows = [(name, value, meanings.get(name, "")) for name, value in values.items()]
        print_table(out, ("key", "value", "meaning"), rows, whole={0})
    else:
        print_table(out, ("key", "value"), list(values.items()))
