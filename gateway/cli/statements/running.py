"""Statements of a script: read, run one after the other, and their results written in every format.

START HERE: ``run_statement``.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from gateway.cli.progress import progress_bar
from gateway.cli.statements.printing import print_decision, print_rows, tell_truncation
from gateway.cli.target import Target, connected, fail_request, under
from gateway.cli.terminal import ExitCode, fail, note, terminable
from gateway.cli.text.script import Place, ScriptStatement, statements_of

if TYPE_CHECKING:
    from gateway.cli.client import Client, RequestFailed

ROUTE = "/v1/queries"
STANDARD_INPUT = "-"
MORE_ROWS = "--max-rows prints more, --format csv or json all"
SPIN_AFTER_S = 1.0
RUNNING = ("QUEUED", "RUNNING")


class Output(StrEnum):
    """Formats in which rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


BINARY = (Output.ARROW, Output.PARQUET)


@dataclass(frozen=True, slots=True)
class Script:
    """Statements of a script, with its text. name: name of its file; empty: no file."""

    text: str
    statements: tuple[ScriptStatement, ...]
    name: str = ""

    def place_of(self, error: RequestFailed, statement: ScriptStatement) -> Place | None:
        """Return where in the script an error is; None where that is not known and there is one statement."""
        if error.place is not None:
            return statement.place_in_script(Place(*error.place))
        return statement.start if len(self.statements) > 1 else None

    def fail(self, error: RequestFailed, statement: ScriptStatement) -> NoReturn:
        """End with what is wrong with a statement, and where in the script."""
        fail_request(error, self.text, self.place_of(error, statement), within=self.name)


def read_script(sql: str | None, file: Path | None, dialect: str) -> Script:
    """Read statements from the command line, a file or standard input."""
    if sql is not None and file is not None:
        fail("give statements or --file, not both", ExitCode.USAGE)
    name = ""
    if sql is None and file is None:
        if sys.stdin.isatty():
            fail("no statement: give one, or - for standard input, or --file FILE", ExitCode.USAGE)
        sql = STANDARD_INPUT
    if STANDARD_INPUT in (sql, str(file)):
        text = _decoded(sys.stdin.buffer.read(), "standard input")
    elif file is not None:
        name = str(file)
        try:
            text = _decoded(file.read_bytes(), name)
        except OSError as error:
            fail(f"{file} cannot be read: {error.strerror}")
    else:
        text = sql or ""
    return script_of(text, dialect, name)


def script_of(text: str, dialect: str, name: str = "") -> Script:
    """Return a text with its statements, or as one statement where it has none. name: of its file."""
    return Script(text, tuple(statements_of(text, dialect)) or (ScriptStatement(text),), name)


def decoded(content: bytes) -> str:
    """Return the text of a file. Raises ValueError with the place of the first byte that is none."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"not in UTF-8: line {row}, byte {error.start}") from error


def _decoded(content: bytes, name: str) -> str:
    try:
        return decoded(content)
    except ValueError as error:
        fail(f"{name} is {error}")


def run_script(target: Target, script: Script, form: Output, options: dict[str, Any], *, guard: bool = False) -> None:
    """Run statements one after the other and print their results, up to the first that fails."""
    with terminable(), connected(target) as client:
        for statement in script.statements:
            reply = _run_reported(client, script, statement, options)
            if form is Output.TABLE:
                print_rows(reply)
                tell_truncation(reply, MORE_ROWS)
            else:
                write_result(client, reply["id"], form, guard)


def _run_reported(client: Client, script: Script, statement: ScriptStatement, options: dict[str, Any]) -> Any:
    """Run one statement to its end and tell where it ran, or end with why it failed."""
    from gateway.cli.client import RequestFailed

    try:
        reply = run_statement(client, statement.sql, options, started=lambda query_id: note(f"query {query_id}"))
    except RequestFailed as error:
        script.fail(error, statement)
    print_decision(reply, note)
    if reply["error"]:
        script.fail(RequestFailed.of(reply["error"]), statement)
    return reply


def run_statement(
    client: Client, sql: str, options: dict[str, Any], *, started: Callable[[str], None] = lambda _: None
) -> Any:
    """Run one statement to its end, shown as long as it lasts, and return its record. Raises RequestFailed.

    An interrupt cancels it on the gateway, which is told. started: takes its id.
    """
    with contextlib.ExitStack() as shown:
        is_awaited = False

        def begin(query_id: str) -> None:
            nonlocal is_awaited
            is_awaited = True
            started(query_id)

        def waiting(seconds: float) -> None:
            nonlocal is_awaited
            if is_awaited and seconds > SPIN_AFTER_S:
                shown.enter_context(progress_bar("running; Ctrl-C cancels"))
                is_awaited = False

        def cancelled(reply: Any) -> None:
            shown.close()
            unknown = "interrupted before the gateway told an id; it cancels the query"
            note(unknown if reply is None else after_cancel(reply))

        return client.query(sql, started=begin, waiting=waiting, cancelled=cancelled, **options)


def after_cancel(reply: Mapping[str, Any]) -> str:
    """Return what became of a query that was to be cancelled."""
    match reply["state"]:
        case "CANCELLED":
            return f"cancelled query {reply['id']}"
        case state if state in RUNNING:
            return f"query {reply['id']} is being cancelled; it has not ended yet"
        case state:
            return f"query {reply['id']} had ended: {state}"


def require_file(form: Output) -> None:
    """End where a terminal would get a result that is no text."""
    if form in BINARY and sys.stdout.isatty():
        fail(f"{form} is no text: write it into a file, as in --format {form} > result.{form}", ExitCode.USAGE)


def write_result(client: Client, query_id: str, form: Output, guard: bool = False) -> None:
    """Write the whole result of a query to standard output."""
    sys.stdout.flush()
    path, sink = f"{under(ROUTE, query_id)}/result", sys.stdout.buffer
    try:
        if form is Output.PARQUET:
            _write_parquet(client, path, sink)
        else:
            client.write(path, sink, is_text=form not in BINARY, format=form.value, guard=guard)
    except KeyboardInterrupt:
        note(f"interrupted: the output is not complete; fusion queries result {query_id} prints it again")
        raise


def _write_parquet(client: Client, path: str, sink: BinaryIO) -> None:
    """Write a result as Parquet; it comes as an Arrow stream, which is kept in a file meanwhile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as kept:
        client.write(path, kept, is_text=False, format=Output.ARROW.value)
        kept.seek(0)
        with pa.ipc.open_stream(kept) as stream, pq.ParquetWriter(sink, stream.schema) as writer:
            for batch in stream:
                writer.write_batch(batch)
