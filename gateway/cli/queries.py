"""``fusion query``, ``explain`` and ``queries``: statements and what became of them.

It is long because all forms of a result are printed here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn

import typer

from gateway.cli.progress import progress_bar
from gateway.cli.target import Target, connected, fail_request, to_gateway, under
from gateway.cli.terminal import AsJson, ExitCode, count, fail, line, note, out, plain, print_json, size, terminable
from gateway.cli.text.layout import print_table, printable
from gateway.cli.text.script import Place, ScriptStatement, statements_of
from gateway.presentation.formatting import in_short
from gateway.presentation.trees import branches
from gateway.statements import AUTO
from selector.types import FLOATING, WHOLE, Kind
from selector.wording import percent, seconds_of
from sql.tables import DEFAULT_DATABASE

if TYPE_CHECKING:
    from gateway.cli.client import Client, RequestFailed

ROUTE = "/v1/queries"
STANDARD_INPUT = "-"
SHOWN_SQL = 60  # characters, on a terminal
WIDE = 110  # cells of a terminal on which a list names users
SPIN_AFTER_S = 1.0
RUNNING = ("QUEUED", "RUNNING")

query_app = typer.Typer()
queries_app = typer.Typer(no_args_is_help=True, help="Queries on record.")

Dialect = Annotated[str, typer.Option(help="Dialect of the text.")]
Database = Annotated[str, typer.Option(help="Of names without one before them.")]
EngineName = Annotated[str, typer.Option("--engine", help="auto, or the one engine that may run it.")]
Sql = Annotated[str | None, typer.Argument(help="Statements with semicolons between; - reads standard input.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Read the statements from a file; - is standard input.", allow_dash=True),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Setting of a session, such as fusion.policy=safe; repeatable.")
]
QueryId = Annotated[str, typer.Argument(help="As fusion query and fusion queries list tell it.")]


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

    def fail(self, error: RequestFailed, statement: ScriptStatement) -> NoReturn:
        """End with what is wrong with a statement, and where in the script."""
        place = None
        if error.place is not None:
            place = statement.place_in_script(Place(*error.place))
        elif len(self.statements) > 1:
            place = statement.start
        fail_request(error, self.text, place, within=self.name)


@query_app.command()
@to_gateway
def query(
    target: Target,
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = "spark",
    database: Database = DEFAULT_DATABASE,
    engine: EngineName = AUTO,
    max_rows: Annotated[int, typer.Option(help="Rows of a table to print.", min=0, max=1_000_000)] = 100,
    output: Annotated[Output, typer.Option("--format", help="All but table write the whole result.")] = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    guard: Annotated[bool, typer.Option("--guard", help="csv for spreadsheets: no text is a formula.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a statement is cancelled.", min=1e-3)
    ] = None,
    settings: Settings = None,
) -> None:
    """Run statements one after the other, up to the first that fails.

    Standard error tells each one's id, where it ran and why. Ctrl-C cancels it on the gateway.
    """
    script = _script(sql, file, dialect)
    form = Output.JSON if as_json else output
    _require_file(form)
    if form in BINARY and len(script.statements) > 1:
        fail(f"a file of {form} has one result; there are {len(script.statements)} statements", ExitCode.USAGE)
    options: dict[str, Any] = {"dialect": dialect, "database": database, "engine": engine}
    options["settings"] = dict(map(_setting, settings or ()))
    if timeout is not None:
        options["timeout_s"] = timeout
    options["max_rows"] = max_rows if form is Output.TABLE else 0
    with terminable(), connected(target) as client:
        for statement in script.statements:
            reply = _run(client, script, statement, options)
            if form is Output.TABLE:
                _print_rows(reply)
            else:
                _write_result(client, reply["id"], form, guard)


@query_app.command()
@to_gateway
def explain(
    target: Target,
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = "spark",
    database: Database = DEFAULT_DATABASE,
    engine: EngineName = AUTO,
    policy: Annotated[str, typer.Option(help="expected, safe or paper; the gateway's own without it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Tell where a query would run, why, and what would change that; nothing runs."""
    from gateway.cli.client import RequestFailed

    script = _script(sql, file, dialect)
    if len(script.statements) > 1:
        fail(f"one query at a time is explained; there are {len(script.statements)}", ExitCode.USAGE)
    settings = {"fusion.policy": policy} if policy else {}
    question: dict[str, Any] = {
        "sql": script.statements[0].sql,
        "dialect": dialect,
        "database": database,
        "engine": engine,
    }
    question["settings"] = settings
    with connected(target) as client:
        try:
            reply = client.post("/v1/explain", question)
        except RequestFailed as error:
            script.fail(error, script.statements[0])
    if as_json:
        print_json(reply)
        return
    decision = reply["decision"]
    estimate = decision["estimate"]
    out.print(f"[bold]{decision['engine']}[/bold] (ranking: {', '.join(decision['ranking'])})")
    for reason in decision["reasons"]:
        line(f"  {reason['code']}: {reason['text']}")
    line(
        f"policy {decision['policy']}; expected peak {size(estimate['peak_bytes'])}, with 95 % below "
        f"{size(estimate['upper_bytes'])}, limit {size(decision['limit_bytes'])}{_with_threads(decision['threads'])}"
    )
    _print_prices(decision["prices"])
    for text in (*reply["what_if"], *(basis["text"] for basis in reply["statistics"])):
        line(text)
    _print_plan(estimate["operators"])


@queries_app.command("list")
@to_gateway
def list_queries(
    target: Target,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1, max=1_000)] = 20,
    running: Annotated[bool, typer.Option("--running", help="Of them, only those that run or wait.")] = False,
    as_json: AsJson = False,
) -> None:
    """List queries, newest first."""
    with connected(target) as client:
        reply = client.get(ROUTE, limit=limit)
    if running:
        reply["queries"] = [query for query in reply["queries"] if query["state"] in RUNNING]
    if as_json:
        print_json(reply)
        return
    rows: list[tuple[str, ...]] = []
    for query in reply["queries"]:
        statement = " ".join(query["sql"].split())
        if out.is_terminal and len(statement) > SHOWN_SQL:
            statement = f"{statement[: SHOWN_SQL - 3]}..."
        rows.append((query["id"], _state(query), _engine(query), _seconds(query), query["user"], statement))
    headings: tuple[str, ...] = ("id", "state", "engine", "seconds", "user", "statement")
    if out.is_terminal and out.width < WIDE:
        headings, rows = (*headings[:4], headings[5]), [(*row[:4], row[5]) for row in rows]
    print_table(out, headings, rows, right={3}, whole={0, 1, 2, 3})


@queries_app.command("show")
@to_gateway
def show_query(target: Target, query_id: QueryId, as_json: AsJson = False) -> None:
    """Show a query: its statement, where it ran and why, and how it ended."""
    with connected(target) as client:
        reply = client.get(under(ROUTE, query_id), max_rows=0)
    if as_json:
        print_json(reply)
        return
    shown = {name: reply[name] for name in ("id", "state", "engine", "user", "dialect", "submitted_at", "finished_at")}
    shown |= {"seconds": _seconds(reply), "rows": count(reply["row_count"]) if reply["row_count"] is not None else None}
    for name, value in shown.items():
        line(f"{name.removesuffix('_at'):<10}{'-' if value is None else printable(str(value))}")
    if reply["waiting"]:
        line(f"{'waiting':<10}{printable(reply['waiting']['text'])}")
    for part in reply["sql"].splitlines():
        line(f"  {printable(part)}")
    _print_decision(reply, line)
    if reply["error"]:
        line(f"{reply['error']['code']}: {reply['error']['message']}")


@queries_app.command("cancel")
@to_gateway
def cancel_query(target: Target, query_id: QueryId, as_json: AsJson = False) -> None:
    """Cancel a query; one that has ended stays as it is."""
    with connected(target) as client:
        before = client.get(under(ROUTE, query_id), max_rows=0)
        reply = client.delete(under(ROUTE, query_id))
    if as_json:
        print_json(reply)
    elif before["state"] not in RUNNING:
        line(f"query {reply['id']} had ended: {reply['state']}")
    else:
        line(_after_cancel(reply))


@queries_app.command("result")
@to_gateway
def show_result(
    target: Target,
    query_id: QueryId,
    output: Annotated[Output, typer.Option("--format", help="csv and json print the whole result.")] = Output.TABLE,
    max_rows: Annotated[int, typer.Option(help="Rows of a table to print.", min=0, max=1_000_000)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    guard: Annotated[bool, typer.Option("--guard", help="csv for spreadsheets: no text is a formula.")] = False,
) -> None:
    """Print the rows of a query that has finished, for as long as the gateway keeps them."""
    form = Output.JSON if as_json else output
    _require_file(form)
    with terminable(), connected(target) as client:
        if form is not Output.TABLE:
            _write_result(client, query_id, form, guard)
            return
        reply = client.get(under(ROUTE, query_id), max_rows=max_rows)
    if reply["columns"] is None:
        fail(f"query {reply['id']} has no result to show: {reply['state']}")
    _print_rows(reply)


def _script(sql: str | None, file: Path | None, dialect: str) -> Script:
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
    statements = tuple(statements_of(text, dialect)) or (ScriptStatement(text),)
    return Script(text, statements, name)


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        fail(f"{name} is not in UTF-8: line {row}, byte {error.start}")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        fail(f"--set {text}: give it as name=value", ExitCode.USAGE)
    return name.strip(), value.strip()


def _run(client: Client, script: Script, statement: ScriptStatement, options: dict[str, Any]) -> Any:
    """Run one statement to its end, or end with why it failed."""
    from gateway.cli.client import RequestFailed

    with contextlib.ExitStack() as shown:
        began = ""

        def started(query_id: str) -> None:
            nonlocal began
            began = query_id
            note(f"query {query_id}")

        def waiting(seconds: float) -> None:
            nonlocal began
            if began and seconds > SPIN_AFTER_S:
                shown.enter_context(progress_bar("running; Ctrl-C cancels"))
                began = ""

        def cancelled(reply: Any) -> None:
            shown.close()
            unknown = "interrupted before the gateway told an id; it cancels the query"
            note(unknown if reply is None else _after_cancel(reply))

        try:
            reply = client.query(statement.sql, started=started, waiting=waiting, cancelled=cancelled, **options)
        except RequestFailed as error:
            script.fail(error, statement)
    _print_decision(reply, note)
    if reply["error"]:
        script.fail(RequestFailed.of(reply["error"]), statement)
    return reply


def _after_cancel(reply: Mapping[str, Any]) -> str:
    match reply["state"]:
        case "CANCELLED":
            return f"cancelled query {reply['id']}"
        case state if state in RUNNING:
            return f"query {reply['id']} is being cancelled; it has not ended yet"
        case state:
            return f"query {reply['id']} had ended: {state}"


def _require_file(form: Output) -> None:
    if form in BINARY and sys.stdout.isatty():
        fail(f"{form} is no text: write it into a file, as in --format {form} > result.{form}", ExitCode.USAGE)


def _write_result(client: Client, query_id: str, form: Output, guard: bool) -> None:
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


def _print_decision(reply: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    for attempt in reply["attempts"]:
        if attempt["failure"]:
            tell(f"{attempt['engine']}: failed: {attempt['message']}")
        elif attempt["wall_s"] is not None:
            tell(f"{attempt['engine']}: {attempt['wall_s']:.2f} s")
    for reason in (reply["decision"] or {"reasons": []})["reasons"]:
        tell(f"  {reason['code']}: {reason['text']}")


def _state(reply: Mapping[str, Any]) -> str:
    """Return a query's state, with its place in line where it has one: ``QUEUED 2nd, ~4.0 s``."""
    waiting = reply["waiting"]
    return (
        f"{reply['state']} {in_short(waiting['place'], waiting['expected_s'])}".strip() if waiting else reply["state"]
    )


def _engine(reply: Mapping[str, Any]) -> str:
    """Return where a query ran, or whose earlier result it was answered with: ``duckdb (cached)``."""
    from selector.decision import ReasonCode  # with it comes numpy, for which --help does not wait

    reasons = (reply["decision"] or {"reasons": []})["reasons"]
    is_cached = any(reason["code"] == ReasonCode.CACHED for reason in reasons)
    return f"{reply['engine']} (cached)" if is_cached else reply["engine"] or "-"


def _seconds(reply: Mapping[str, Any]) -> str:
    """Return how long a query took, or has taken so far."""
    since = dt.datetime.fromisoformat(reply["submitted_at"])
    until = dt.datetime.fromisoformat(reply["finished_at"]) if reply["finished_at"] else dt.datetime.now(dt.UTC)
    return f"{(until - since).total_seconds():,.2f}"


def _print_rows(reply: Mapping[str, Any]) -> None:
    columns, rows = reply["columns"] or [], reply["rows"] or []
    numbers = {*WHOLE, Kind.DECIMAL, *FLOATING}
    right = {place for place, column in enumerate(columns) if column["type"].partition("(")[0] in numbers}
    print_table(
        out, [column["name"] for column in columns], [[plain(value) for value in row] for row in rows], right=right
    )
    if reply["truncated"]:
        note(f"{len(rows):,} of {reply['row_count']:,} rows; --max-rows prints more, --format csv or json all")


def _with_threads(threads: int | None) -> str:
    return "" if threads is None else f", {threads} thread{'s' * (threads > 1)}"


def _print_prices(prices: Sequence[Mapping[str, Any]]) -> None:
    """Print what was weighed: a table for people, a line each for what reads them from a pipe."""
    headings = ("engine", "fits", "takes", "a miss costs", "waits", "in all, if tried first")
    rows = []
    for price in prices:
        fits = "-" if price["fits"] is None else percent(price["fits"])
        missed = "-" if price["fits"] == 1.0 else seconds_of(price["miss_s"])
        first = "-" if price["first_s"] is None else seconds_of(price["first_s"])
        waits = seconds_of(price["wait_s"] + price["held_s"])
        rows.append((price["engine"], fits, seconds_of(price["seconds"]), missed, waits, first))
    if prices and out.is_terminal:
        print_table(out, headings, rows)
        return
    for engine, *cells in rows:
        details = ", ".join(f"{heading} {cell}" for heading, cell in zip(headings[1:], cells, strict=True))
        line(f"{engine}: {details}")


def _print_plan(operators: Sequence[Mapping[str, Any]]) -> None:
    """Print a plan's operators: a table for people, a line each for what reads them from a pipe."""
    drawn = list(zip(branches([part["depth"] for part in operators]), operators, strict=True))
    if not out.is_terminal:
        for branch, part in drawn:
            rows = (
                f"{count(part['rows'])} rows (at most {count(part['upper_rows'])}, engine {count(part['engine_rows'])})"
            )
            remarks = "; ".join((part["basis"], *part["notes"]))
            line(f"{branch}{part['operator']}: {rows}, {size(part['held_bytes'])}; {remarks}")
        return
    headings = ("operator", "our rows", "at most", "engine's rows", "holds", "our rows come from", "note")
    cells = [
        (
            f"{branch}{part['operator']}",
            *(count(part[name]) for name in ("rows", "upper_rows", "engine_rows")),
            *(size(part["held_bytes"]), part["basis"], "; ".join(part["notes"])),
        )
        for branch, part in drawn
    ]
    if operators:
        print_table(out, headings, cells, right={1, 2, 3, 4})
