r"""Commands of the shell, which begin with a backslash. A new one is a function and an entry in ``COMMANDS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gateway.cli.shell.editor import EditorFailed, edited
from gateway.cli.shell.history import history_file
from gateway.cli.shell.names import Names
from gateway.cli.shell.session import Display, Shell
from gateway.cli.shell.session_statements import use_database
from gateway.cli.shell.statements import run_one, run_statements
from gateway.cli.statements.printing import print_decision, print_explanation, print_prices
from gateway.cli.statements.running import Output, decoded, script_of
from gateway.cli.tables import print_tables
from gateway.cli.target import message_of
from gateway.cli.terminal import line, note, out, tell_error, tell_error_at
from gateway.cli.text.layout import print_table
from gateway.cli.text.script import Place
from sql.dialects.names import DIALECTS
from sql.tables import database_of

SIGN = "\\"
WORDS_THAT_END = frozenset({"exit", "quit"})
SWITCH = {"on": True, "off": False}
MOST_ROWS = 1_000_000  # of one reply, as the interface has it
FORMATS = (Output.TABLE, Output.CSV, Output.JSON)


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    does: str
    """Line of the list of commands."""
    run: Callable[[Shell, str], None]
    """Function of the shell and the text behind the command's name."""
    argument: str = ""
    """Argument as the list of commands shows it; brackets: it may be missing."""
    values: Callable[[Names], tuple[str, ...]] = lambda _: ()
    """Values of the argument, for completion."""


class CommandFailed(Exception):
    """A command cannot be run; its text says why and what to do."""


def is_command(text: str) -> bool:
    """Tell whether a text is a command, or a word that ends the shell."""
    stripped = text.strip()
    return stripped.startswith(SIGN) or stripped.rstrip(";").strip().lower() in WORDS_THAT_END


def run_command(shell: Shell, text: str) -> None:
    """Run a command, or print why it cannot be run. Raises RequestFailed, httpx.HTTPError."""
    stripped = text.strip()
    if not stripped.startswith(SIGN):
        shell.is_over = True
        return
    name, _, argument = stripped.replace("\n", " ").partition(" ")
    argument = argument.strip().rstrip(";").rstrip()
    name = name.rstrip(";")
    command = COMMANDS.get(name)
    try:
        if command is None:
            raise CommandFailed(unknown_command(name))
        if not argument and command.argument and not command.argument.startswith("["):
            raise CommandFailed(f"{name} lacks its argument: {name} {command.argument}")
        if argument and not command.argument:
            raise CommandFailed(f"{name} takes no argument")
        command.run(shell, argument)
    except (CommandFailed, EditorFailed) as error:
        tell_error(str(error))


def unknown_command(name: str) -> str:
    """Return the message about a command that does not exist, with those of a similar name."""
    near = get_close_matches(name, COMMANDS, n=3, cutoff=0.5) or [other for other in COMMANDS if other[:2] == name[:2]]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"there is no command {name}; {meant}\\? lists all"


# ---------------------------------------------------------------------- catalog


def _describe(shell: Shell, name: str) -> None:
    run_one(shell, f"DESCRIBE {name}" if name else "SHOW TABLES")


def _list_databases(shell: Shell, _: str) -> None:
    run_one(shell, "SHOW DATABASES")


def _list_tables(shell: Shell, _: str) -> None:
    tables = shell.client.get("/v1/tables")["tables"]
    database = shell.session.database
    print_tables(table for table in tables if database_of(table["name"]) == database)


# ---------------------------------------------------------------------- statements


def _edit(shell: Shell, _: str) -> None:
    shell.draft = edited(shell.last_sql).rstrip("\n")


def _run_file(shell: Shell, name: str) -> None:
    file = Path(name).expanduser()
    try:
        text = decoded(file.read_bytes())
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandFailed(f"{file} is {error}") from error
    last = shell.last_sql
    run_statements(shell, script_of(text, shell.session.dialect, str(file)))
    shell.last_sql = last


def _explain(shell: Shell, sql: str) -> None:
    from gateway.cli.client import RequestFailed

    sql = sql or shell.last_sql
    try:
        reply = shell.client.post("/v1/explain", {"sql": sql, **shell.session.request()})
    except RequestFailed as error:
        tell_error_at(message_of(error), sql, Place(*error.place) if error.place else None)
        return
    print_explanation(reply)


def _why(shell: Shell, _: str) -> None:
    reply = _last_reply(shell)
    line(f"query {reply['id']}")
    print_decision(reply, line)
    print_prices((reply["decision"] or {"prices": ()})["prices"])
    if reply["error"]:
        line(f"{reply['error']['code']}: {reply['error']['message']}")


def _last_reply(shell: Shell) -> Mapping[str, Any]:
    if shell.last_reply is None:
        raise CommandFailed("no statement ran yet; run one first")
    return shell.last_reply


# ---------------------------------------------------------------------- session


def _use_database(shell: Shell, name: str) -> None:
    use_database(shell, name.lower())


def _use_engine(shell: Shell, name: str) -> None:
    shell.adopt(replace(shell.session, engine=name.lower()))
    note(f"engine is {shell.session.engine}")


def _use_dialect(shell: Shell, name: str) -> None:
    shell.adopt(replace(shell.session, dialect=name.lower()))
    note(f"dialect is {shell.session.dialect}")


def _show_status(shell: Shell, _: str) -> None:
    session, display = shell.session, shell.display
    settings = ", ".join(f"{name} = {value}" for name, value in session.settings.items())
    facts = {
        "gateway": shell.client.url,
        "database": session.database,
        "engine": session.engine,
        "dialect": session.dialect,
        "settings": settings or "-",
        "format": f"{display.output}{', expanded' * display.blocks}, at most {display.max_rows:,} rows of a table",
        "timing": _named(display.timing),
        "pager": _named(display.pager),
        "history": str(history_file()),
        "last query": shell.last_reply["id"] if shell.last_reply else "-",
    }
    for name, value in facts.items():
        line(f"{name:<12}{value}")


# ---------------------------------------------------------------------- display


def _use_format(shell: Shell, name: str) -> None:
    if name.lower() not in FORMATS:
        raise CommandFailed(f"there is no format {name}; there are {', '.join(FORMATS)}")
    _display(shell, replace(shell.display, output=Output(name.lower())), f"format is {name.lower()}")


def _expand(shell: Shell, text: str) -> None:
    blocks = _switched(text, shell.display.blocks)
    _display(shell, replace(shell.display, blocks=blocks), f"expanded display is {_named(blocks)}")


def _time(shell: Shell, text: str) -> None:
    timing = _switched(text, shell.display.timing)
    _display(shell, replace(shell.display, timing=timing), f"timing is {_named(timing)}")


def _page(shell: Shell, text: str) -> None:
    pager = _switched(text, shell.display.pager)
    _display(shell, replace(shell.display, pager=pager), f"pager is {_named(pager)}")


def _limit_rows(shell: Shell, text: str) -> None:
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_ROWS:
        raise CommandFailed(f"{text} is no number of rows; give one up to {MOST_ROWS:,}")
    _display(shell, replace(shell.display, max_rows=int(text)), f"tables have at most {int(text):,} rows")


def _display(shell: Shell, display: Display, message: str) -> None:
    shell.display = display
    note(message)


def _switched(text: str, current: bool) -> bool:
    """Return the state that a text asks for; an empty one asks for the other one."""
    if text and text.lower() not in SWITCH:
        raise CommandFailed(f"{text} is neither on nor off; give one of them")
    return SWITCH[text.lower()] if text else not current


def _named(state: bool) -> str:
    return "on" if state else "off"


# ---------------------------------------------------------------------- the shell itself


def _show_commands(_: Shell, __: str) -> None:
    rows = [(f"{name} {command.argument}".rstrip(), command.does) for name, command in COMMANDS.items()]
    print_table(out, ("command", "does"), rows, whole={0})
    note("exit, quit and Ctrl-D end the shell; Ctrl-R searches the history; Alt-Enter sends an unfinished statement")


def _quit(shell: Shell, _: str) -> None:
    shell.is_over = True


def _switches(_: Names) -> tuple[str, ...]:
    return tuple(SWITCH)


COMMANDS: Mapping[str, Command] = {
    r"\?": Command("lists commands", _show_commands),
    r"\c": Command("uses a database, as USE does", _use_database, "DATABASE", lambda names: names.databases),
    r"\d": Command(
        "lists tables and views of the database, or the columns of one",
        _describe,
        "[NAME]",
        lambda names: tuple(names.tables),
    ),
    r"\dialect": Command("reads statements in a dialect", _use_dialect, "NAME", lambda _: tuple(DIALECTS)),
    r"\dt": Command("lists registered tables of the database with rows and bytes", _list_tables),
    r"\e": Command("edits the last statements with $EDITOR", _edit),
    r"\engine": Command(
        "lets one engine run statements, or auto", _use_engine, "NAME", lambda names: ("auto", *names.engines)
    ),
    r"\explain": Command("tells where a query, or the last one, would run, and why", _explain, "[SQL]"),
    r"\format": Command("prints rows as table, csv or json", _use_format, "NAME", lambda _: FORMATS),
    r"\i": Command("runs the statements of a file", _run_file, "FILE"),
    r"\l": Command("lists databases", _list_databases),
    r"\pager": Command("pages results that are longer than the terminal", _page, "[on|off]", _switches),
    r"\q": Command("ends the shell", _quit),
    r"\rows": Command("prints at most so many rows of a table", _limit_rows, "N"),
    r"\status": Command("shows the gateway and the values that hold", _show_status),
    r"\timing": Command("tells the seconds of statements", _time, "[on|off]", _switches),
    r"\why": Command("tells why the last query ran where it did", _why),
    r"\x": Command("prints every row as a block of lines", _expand, "[on|off]", _switches),
}
