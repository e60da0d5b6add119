"""``fusion shell`` on a real terminal, over a gateway that runs."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from gateway.cli.client import Client
from gateway.cli.shell.names import NameCache
from gateway.cli.shell.prompt import ShellCompleter
from gateway.cli.shell.session import Session, Shell
from gateway.cli.shell.statements import run_one
from gateway.cli.terminal import ExitCode
from gateway.server.serve import own_server
from tests.gateway.cli.test_as_a_client import Terminal, run
from tests.gateway.cli.test_cli import quiet
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e  # each shell is a process of its own

ROWS = 1_000_000
SLOW = "SELECT count(*) FROM wide a JOIN wide b ON a.id % 2 = b.id % 2 AND a.twice <> b.id;"
ENTER, CTRL_C, CTRL_D, UP, ALT_ENTER = "\r", "\x03", "\x04", "\x1b[A", "\x1b\r"


@dataclass(frozen=True, slots=True)
class House:
    """A gateway that runs, over a table ``wide`` of ROWS rows, and a database ``sales``."""

    home: Path
    url: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("shell")
    pq.write_table(
        pa.table({"id": range(ROWS), "twice": range(0, 2 * ROWS, 2)}), folder / "wide.parquet", compression="zstd"
    )
    with own_server(quiet(folder / "home")) as url, Client(url) as client:
        client.post("/v1/tables", {"name": "wide", "location": str(folder / "wide.parquet")})
        client.query("CREATE DATABASE sales")
        yield House(folder / "home", url)


class Typist:
    """A person at ``fusion shell``, who types once the prompt is there. Its last space is a move of the cursor."""

    def __init__(self, house: House, history: Path, *arguments: str, **more: str) -> None:
        variables = {"FUSION_SHELL_HISTORY": str(history), "PROMPT_TOOLKIT_NO_CPR": "1", **more}
        self.terminal = Terminal("shell", "--home", str(house.home), *arguments, home=house.home, **variables)

    def __enter__(self) -> Self:
        try:
            self.see(">")
        except AssertionError:
            self.terminal.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.terminal.__exit__()

    def see(self, text: str, start: int = 0) -> str:
        """Return all that was shown since a start, once a text is there."""
        shown = self.terminal.until(lambda shown: text in shown[start:])[start:]
        assert text in shown, shown
        return shown

    def type(self, keys: str, until: str = "") -> str:
        """Press keys, and return all that is shown until a text is there."""
        start = len(self.terminal.shown)
        self.terminal.press(keys.encode())
        return self.see(until, start) if until else ""

    def run(self, text: str, until: str = "(query ") -> str:
        """Type a line, and return all that is shown until a text is there and the next prompt behind it."""
        start = len(self.terminal.shown)
        self.type(text + ENTER, until)
        self.terminal.until(lambda shown: ">" in shown[start:].partition(until)[2])
        return self.terminal.shown[start:]

    def end(self) -> int:
        self.terminal.press(CTRL_D.encode())
        return self.terminal.end()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history"


def states(house: House) -> dict[str, str]:
    with Client(house.url) as client:
        return {query["id"]: query["state"] for query in client.get("/v1/queries")["queries"]}


def test_a_statement_has_several_lines_and_a_line_several_statements(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.type("SELECT ';' AS sign," + ENTER, "->")
        lines = person.run("count(*) AS n FROM wide;", "1 row in ")
        assert f"│ ;    │ {ROWS} │" in lines
        assert " on duckdb (query 2" in lines
        both = person.run("SELECT 41 AS a; SELECT 42 AS b;", "│ 42 │")
        assert both.index("│ 41 │") < both.index("│ 42 │")
        assert person.end() == 0


def test_history_lasts_and_is_private(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.run("SELECT 6 * 7 AS answer;")
        assert person.run("exit", "exit")
        assert person.terminal.end() == 0
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Typist(house, history) as person:
        person.type(UP + UP, "SELECT 6 * 7 AS answer;")
        assert "│     42 │" in person.run("")
        person.type("\x12" + "6 *", "`6 *': SELECT 6 * 7")  # Ctrl-R
        assert person.run(ENTER, "│     42 │")


def test_a_history_that_cannot_be_written_is_told_once(house: House) -> None:
    with Typist(house, Path("/proc/nowhere/history")) as person:
        person.run("SELECT 1 AS a;")
        person.run("SELECT 2 AS a;")
        assert person.terminal.shown.count("the history in /proc/nowhere/history cannot be used") == 1


def test_control_c_cancels_what_runs_and_clears_what_is_typed(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.type(SLOW + ENTER, "Ctrl-C cancels")
        (query_id,) = (query_id for query_id, state in states(house).items() if state == "RUNNING")
        person.type(CTRL_C, f"cancelled query {query_id}")
        assert states(house)[query_id] == "CANCELLED"
        person.type("SELECT 'nobody', ", "nobody")
        person.type(CTRL_C, "default>")
        assert "│      2 │" in person.run("SELECT 2 AS number;")
        assert person.end() == 0
    assert "Traceback" not in person.terminal.shown


def test_an_error_tells_where_and_the_shell_goes_on(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.type("SELECT 1 AS a;  SELECT" + ENTER, "->")
        failed = person.run("nope FROM wide; SELECT 3 AS c;", "^")
        assert "│ 1 │" in failed
        assert "(line 2, column 1)\n  nope FROM wide; SELECT 3 AS c;\n  ^" in failed
        assert "│ 3 │" not in failed
        assert "did you mean \\timing" in person.run(r"\timng on", "lists all")
        assert "│ 4 │" in person.run("SELECT 4 AS d;")
        person.type("SELECT 5 +", "5 +")
        assert "error: SYNTAX_ERROR" in person.run(ALT_ENTER, "^")


def test_the_catalog_is_shown(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        assert "│ wide " in person.run(r"\d")
        columns = person.run(r"\d wide")
        assert "│ twice    │ bigint    │" in columns
        assert "2 rows in" in columns
        assert "│ sales " in person.run(r"\l")
        assert "1,000,000 │" in person.run(r"\dt", "│ wide ")
        assert r"\explain [SQL]" in person.run(r"\?", "Ctrl-R")


def test_database_engine_and_settings_hold(house: House, history: Path) -> None:
    with Typist(house, history, "--set", "hivevar:a=5") as person:
        assert "sales>" in person.run("USE sales;", "in sales")
        assert "│ sales " in person.run("SELECT current_database() AS d;")
        assert "UNKNOWN_TABLE" in person.run("SELECT * FROM wide;", "error: ")
        assert "UNKNOWN_DATABASE" in person.run("USE nowhere;", "error: ")
        person.run("SET hivevar:b = 6;", "is 6")
        assert "│   56 │" in person.run("SELECT ${hivevar:a}${hivevar:b} AS both;")
        assert "INVALID_SETTING" in person.run("SET fusion.policy = bold;", "error: ")
        assert "hivevar:b = 6" in person.run(r"\status", "last query")
        assert "sales[duckdb]>" in person.run(r"\engine duckdb", "engine is duckdb")
        assert "UNKNOWN_ENGINE" in person.run(r"\engine nobody", "error: ")
        assert "sales>" in person.run("RESET;", "has its default")
        assert "<undefined>" in person.run("SET hivevar:b;", "<undefined>")
        assert "default>" in person.run(r"\c default", "in default")
        assert "NO_SESSION" in person.run("CREATE TEMPORARY VIEW v AS SELECT 1 AS a;", "error: ")


def test_rows_in_every_form(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.run(r"\x", "is on")
        assert "row 1\na  1\nbb  " not in person.run("SELECT 1 AS a, 2 AS bb;", "bb  2")
        person.run(r"\x off", "is off")
        person.run(r"\format csv", "is csv")
        assert '"a","b"\n1,"x"\n' in person.run("SELECT 1 AS a, 'x' AS b;")
        person.run(r"\format json", "is json")
        shown = person.run("SELECT 1 AS a;").splitlines()
        (reply,) = (json.loads(row) for row in shown if row.startswith("{"))
        assert reply["rows"] == [[1]]
        assert "there are table, csv, json" in person.run(r"\format xml", "error: ")
        person.run(r"\timing off", "is off")
        assert "1 row on duckdb (query " in person.run("SELECT 1 AS a;")


def test_long_results_go_to_a_pager_unless_it_is_off(house: House, history: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    with Typist(house, history, PAGER=f"tee -a {pages}") as person:
        person.run("SELECT id FROM wide WHERE id < 5;", "5 rows in")
        assert not pages.exists()
        person.run("SELECT id FROM wide WHERE id < 60;", "60 rows in")
        assert "│ 59 │" in pages.read_text(encoding="utf-8")
        paged_bytes = pages.stat().st_size
        person.run(r"\pager off", "is off")
        person.run("SELECT id FROM wide WHERE id < 61;", "61 rows in")
        assert pages.stat().st_size == paged_bytes
        person.run(r"\rows 3", "3 rows")
        assert "3 of 61 rows" in person.run("SELECT id FROM wide WHERE id < 61;")


def test_statements_come_from_an_editor_and_from_files(house: House, history: Path, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT 11 AS a;\nSELECT nope;\n", encoding="utf-8")
    with Typist(house, history, EDITOR="sed -i s/5/7/") as person:
        person.run("SELECT 5 AS a;")
        person.type(r"\e" + ENTER, "SELECT 7 AS a;")
        assert "│ 7 │" in person.run("")
        ran = person.run(rf"\i {file}", "^")
        assert "│ 11 │" in ran
        assert "script.sql, line 2, column 8)" in "".join(ran.split("\n"))
        assert "cannot be read" in person.run(r"\i /nowhere", "error: ")
        assert "FITS" in person.run(r"\explain SELECT count(*) FROM wide", "column data scan")
        person.run("SELECT count(*) AS n FROM wide;")
        assert "FITS" in person.run(r"\why", "FITS")
        pointed = person.run(r"\explain SELECT nope FROM wide", "^")
        assert "(line 1, column 8)\n  SELECT nope FROM wide\n         ^" in pointed


def test_names_are_fetched_and_completed(house: House) -> None:
    with Client(house.url) as client:
        names = NameCache(client)
        completer = ShellCompleter(Shell(client, names, Session()))

        def completions(text: str) -> list[str]:
            return [completion.text for completion in completer.get_completions(Document(text), CompleteEvent())]

        assert completions("SELECT * FROM wi") == []
        names.start()
        wait_until(lambda: bool(names.latest.tables), "names were fetched")
        assert completions("SELECT * FROM wi") == ["wide"]
        assert completions("SELECT w.tw") == []
        assert completions("SELECT approx_count") == ["approx_count_distinct"]
        assert completions(r"\d w") == ["wide"]
        assert completions(r"\en") == [r"\engine"]
        assert completions(r"\engine d") == ["duckdb"]
        names.close()


def test_names_are_fetched_anew_after_a_statement_that_changes_them(house: House) -> None:
    with Client(house.url) as client:
        names = NameCache(client)
        shell = Shell(client, names, Session("sales"))
        names.start()
        wait_until(lambda: bool(names.latest.tables), "names were fetched")
        run_one(shell, "CREATE TABLE fresh (seldom INT)")
        wait_until(lambda: names.latest.tables.get("sales.fresh") == ("seldom",), "the new table is there")
        assert shell.last_reply is not None
        names.close()


def test_a_lost_gateway_is_told_and_the_next_statement_tries_again(tmp_path: Path, history: Path) -> None:
    settings = quiet(tmp_path / "home")
    with own_server(settings) as url:
        house = House(settings.home, url)
        person = Typist(house, history)
        person.__enter__()
    with person.terminal:
        assert "no gateway answers at" in person.run("SELECT 1 AS a;", "error: ")
        port = int(url.rpartition(":")[2])
        again = settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})
        with own_server(again):
            assert "│ 2 │" in person.run("SELECT 2 AS a;")
            assert person.end() == 0


def test_a_signal_ends_the_shell_as_it_ends_a_query(house: House, history: Path) -> None:
    with Typist(house, history) as person:
        person.run("SELECT 1 AS a;")
        assert person.terminal.terminate() == ExitCode.TERMINATED
    assert "Traceback" not in person.terminal.shown


def test_without_a_terminal_statements_run_as_a_query_does(house: House) -> None:
    script = "SELECT 1 AS a;\nSELECT nope FROM wide; SELECT 3 AS c;"
    by_shell = run("shell", "--url", house.url, stdin=script)
    by_query = run("query", "-", "--url", house.url, stdin=script)
    assert (
        (by_shell.returncode, by_shell.stdout) == (by_query.returncode, by_query.stdout) == (ExitCode.FAILED, "a\n1\n")
    )
    assert "(line 2, column 8)" in by_shell.stderr


def test_a_shell_ends_where_it_cannot_begin(house: House, history: Path) -> None:
    with Terminal("shell", "--database", "nowhere", home=house.home, FUSION_SHELL_HISTORY=str(history)) as terminal:
        assert terminal.end() == ExitCode.FAILED
        assert "UNKNOWN_DATABASE" in terminal.shown
    with Terminal("--url", "http://127.0.0.1:1", "shell", home=house.home) as terminal:
        assert terminal.end() == ExitCode.UNREACHABLE
