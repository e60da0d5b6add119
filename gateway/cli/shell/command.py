"""``fusion shell``: its options. Everything that an interactive shell needs is imported once one starts."""

from __future__ import annotations

import sys

import typer

from gateway.cli.queries import Database, Dialect, EngineName, Settings, read_settings
from gateway.cli.statements.running import STANDARD_INPUT, Output, read_script, run_script
from gateway.cli.target import Target, connected, to_gateway
from gateway.cli.terminal import terminable
from gateway.statements import AUTO
from sql.tables import DEFAULT_DATABASE

BATCH_ROWS = 100  # of a table, as fusion query prints them

shell_app = typer.Typer()


@shell_app.command()
@to_gateway
def shell(
    target: Target,
    dialect: Dialect = "spark",
    database: Database = DEFAULT_DATABASE,
    engine: EngineName = AUTO,
    settings: Settings = None,
) -> None:
    r"""Type statements, each with a semicolon at its end; \? lists commands, Ctrl-D ends.

    Where standard input is no terminal, its statements run as fusion query runs them.
    """
    from gateway.cli.shell.session import Session

    session = Session(database, engine, dialect, read_settings(settings))
    if not sys.stdin.isatty():
        script = read_script(STANDARD_INPUT, None, dialect)
        run_script(target, script, Output.TABLE, {**session.request(), "max_rows": BATCH_ROWS})
        return
    from gateway.cli.shell.loop import run_shell

    with terminable(), connected(target) as client:
        run_shell(client, session)
