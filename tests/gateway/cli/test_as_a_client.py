"""The ``fusion`` command as a client: on a terminal, in pipes, over a URL, and when things go wrong."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.cli.client import Client
from gateway.cli.terminal import ExitCode
from gateway.security.authentication import user_line
from gateway.server.serve import own_server
from gateway.settings import Settings
from tests.gateway.cli.test_cli import quiet

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e  # each command is a process of its own

FUSION = str(Path(sys.executable).with_name("fusion"))
ROWS = 3_000_000
WIDTH = 80
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONGEST_S = 60.0
CLIENT_MAX_BYTES = 200 << 20
SLOW = "SELECT count(*) FROM wide a JOIN wide b ON a.id % 100 = b.id % 100"


@dataclass(frozen=True, slots=True)
class House:
    """A gateway that runs, over a table ``wide`` of ROWS rows."""

    home: Path
    url: str

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(*arguments, **{"FUSION_HOME": str(self.home)} | variables)

    def states(self) -> list[tuple[str, str]]:
        with Client(self.url) as client:
            return [(each["id"], each["state"]) for each in client.get("/v1/queries")["queries"]]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FUSION_")}
    return {**kept, "FUSION_SPARK__ENABLED": "false", "FUSION_DUCKDB__WORKERS": "1", **variables}


def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FUSION, *arguments],
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return quiet(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def house(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    file = tmp_path_factory.mktemp("data") / "wide.parquet"
    ids = np.arange(ROWS)
    names = pa.compute.binary_join_element_wise(
        "a customer with a long name, number ", pa.array(ids).cast("string"), ""
    )
    pq.write_table(pa.table({"id": ids, "twice": ids * 2, "name": names}), file)
    with own_server(settings) as url:
        house = House(settings.home, url)
        added = house.run("tables", "add", "wide", str(file))
        assert added.returncode == 0, added.stderr
        yield house


def slow_query(house: House) -> subprocess.Popen[str]:
    """Start a query that takes long; its first line on standard error tells the id."""
    command = [FUSION, "query", SLOW, "--url", house.url]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def peak_of(pid: int) -> int:
    """Return the most memory that a process has had, 0 once it has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    told = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(told[0]) << 10 if told else 0


def _own_terminal() -> None:
    """Have Ctrl-C of the terminal reach a process, also where whoever started the tests had it ignored."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command on a terminal of WIDTH columns, as a person has it. shown: all that came, without its styles."""

    def __init__(self, *arguments: str, home: Path, **more: str) -> None:
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
        variables = environment(FUSION_HOME=str(home), TERM="xterm", NO_COLOR="1", **more)
        variables.pop("COLUMNS", None)
        self._process = subprocess.Popen(
            [FUSION, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=variables,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(terminal)
        self._master = master
        self._came = b""
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # which cancels its query
            self._process.wait(LONGEST_S)
        os.close(self._master)

    def until(self, told: Callable[[str], bool]) -> str:
        """Read until something is shown, or to the end."""
        deadline = time.monotonic() + LONGEST_S
        while not told(self.shown) and time.monotonic() < deadline:
            if not select.select([self._master], [], [], 1.0)[0]:
                continue
            try:
                self._came += os.read(self._master, 1 << 16)
            except OSError:  # the other side is closed
                break
            self.shown = STYLE.sub("", self._came.decode(errors="replace").replace("\r\n", "\n"))
        return self.shown

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def terminate(self) -> int:
        """Send SIGTERM, read the rest and return the exit code."""
        self._process.terminate()
        return self.end()

    def end(self) -> int:
        """Read the rest and return the exit code."""
        self.until(lambda _: False)
        return self._process.wait(LONGEST_S)


def test_control_c_cancels_the_query_on_the_gateway_and_says_so(house: House) -> None:
    with Terminal("query", SLOW, home=house.home) as terminal:
        terminal.until(lambda shown: "Ctrl-C" in shown)
        (query_id,) = {line.split()[1] for line in terminal.shown.splitlines() if line.startswith("query ")}
        assert dict(house.states())[query_id] in ("QUEUED", "RUNNING")
        terminal.press(b"\x03")
        assert terminal.end() == ExitCode.INTERRUPTED
    assert f"cancelled query {query_id}" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert (query_id, "CANCELLED") in house.states()
    shown = house.run("queries", "show", query_id)
    assert "CANCELLED" in shown.stdout


def test_a_signal_to_end_cancels_it_too(house: House) -> None:
    process = slow_query(house)
    assert process.stderr is not None
    query_id = process.stderr.readline().split()[1]
    process.send_signal(signal.SIGTERM)
    assert f"cancelled query {query_id}" in process.communicate(timeout=LONGEST_S)[1]
    assert process.returncode == ExitCode.TERMINATED
    assert (query_id, "CANCELLED") in house.states()


def test_another_command_cancels_it(house: House) -> None:
    process = slow_query(house)
    assert process.stderr is not None
    query_id = process.stderr.readline().split()[1]
    running = house.run("queries", "list", "--running", "--json")
    assert query_id in [each["id"] for each in json.loads(running.stdout)["queries"]]
    assert house.run("queries", "cancel", query_id).stdout == f"cancelled query {query_id}\n"
    assert "CANCELLED" in process.communicate(timeout=LONGEST_S)[1]
    assert process.returncode == ExitCode.FAILED
    assert house.run("queries", "cancel", query_id).stdout == f"query {query_id} had ended: CANCELLED\n"


def test_its_time_is_over(house: House) -> None:
    late = house.run("query", SLOW, "--timeout", "0.5")
    assert late.returncode == ExitCode.TIMED_OUT
    assert "DEADLINE_EXCEEDED" in late.stderr


def test_a_table_fits_the_terminal(house: House) -> None:
    with Terminal("query", "SELECT id, name, name AS again, name AS x FROM wide LIMIT 1", home=house.home) as wide:
        assert wide.end() == 0
    assert max(len(line) for line in wide.shown.splitlines()) <= WIDTH
    assert "..." not in wide.shown
    columns = ", ".join(f"id + {number} AS c{number}" for number in range(30))
    with Terminal("query", f"SELECT {columns} FROM wide WHERE id = 5", home=house.home) as block:
        assert block.end() == 0
    assert [line.split() for line in block.shown.splitlines()][-30:] == [[f"c{n}", str(5 + n)] for n in range(30)]


def test_a_list_on_the_terminal_holds_ids_whole(house: House) -> None:
    house.run("query", "SELECT 1 AS one, 'a statement that is longer than what a terminal has room for' AS text")
    newest = house.states()[0][0]
    with Terminal("queries", "list", home=house.home) as listed:
        assert listed.end() == 0
    assert newest in listed.shown
    assert max(len(line) for line in listed.shown.splitlines()) <= WIDTH


def test_a_pipe_gets_whole_lines(house: House) -> None:
    rows = house.run("query", "SELECT name, repeat('x', 500) AS long FROM wide ORDER BY id LIMIT 2").stdout.splitlines()
    assert rows[0].split() == ["name", "long"]
    assert rows[1].split("  ") == ["a customer with a long name, number 0", "x" * 500]
    assert len(rows) == 3
    statement = f"SELECT '{'y' * 300}' AS y"
    house.run("query", statement)
    assert statement in house.run("queries", "list", "--limit", "1").stdout


def test_head_stops_a_download(house: House) -> None:
    for form, first in (("csv", '"id","twice","name"\n'), ("json", '{"columns":[')):
        process = subprocess.Popen(
            [FUSION, "query", "SELECT * FROM wide", "--format", form, "--url", house.url],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(len(first)).decode() == first
            process.stdout.close()
            told = process.stderr.read().decode()
        assert process.returncode == ExitCode.PIPE_CLOSED
        assert "Traceback" not in told
        assert "Exception ignored" not in told
    piped = f"{FUSION} tables list --url {house.url} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", piped], env=environment(), capture_output=True, text=True, timeout=LONGEST_S)
    assert done.stdout.strip() in ("0", str(int(ExitCode.PIPE_CLOSED)))  # whoever is first
    assert "Traceback" not in done.stderr


def test_a_result_larger_than_the_client_is_streamed(house: House) -> None:
    process = subprocess.Popen(
        [FUSION, "query", "SELECT id, twice, name, name AS again FROM wide", "--format", "csv", "--url", house.url],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    lines = size = peak_bytes = 0
    with process:
        assert process.stdout is not None
        while piece := process.stdout.read(1 << 20):
            lines, size = lines + piece.count(b"\n"), size + len(piece)
            peak_bytes = max(peak_bytes, peak_of(process.pid))
    assert process.returncode == 0
    assert lines == ROWS + 1
    assert size > CLIENT_MAX_BYTES
    assert 0 < peak_bytes < CLIENT_MAX_BYTES


def test_a_gateway_that_stops_in_the_middle_is_told(tmp_path: Path, house: House) -> None:
    """A listener that speaks to the gateway for the client, and breaks off within a result."""
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = house.url.removeprefix("http://").split(":")

    def relay(client: socket.socket) -> None:
        with client, socket.create_connection((host, int(port))) as gateway:
            sent = 0
            while sent < 1 << 20:
                for ready in select.select([client, gateway], [], [], LONGEST_S)[0]:
                    piece = ready.recv(1 << 16)
                    if not piece:
                        return
                    (gateway if ready is client else client).sendall(piece)
                    sent += len(piece) if ready is gateway else 0

    def accept() -> None:
        with listening:
            relay(listening.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    broken = run(
        "query", "SELECT * FROM wide", "--format", "csv", "--url", f"http://127.0.0.1:{listening.getsockname()[1]}"
    )
    thread.join()
    assert broken.returncode == ExitCode.UNREACHABLE
    assert "may not be complete" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_scripts_run_up_to_the_first_error(house: House, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "-- first\nSELECT 1 AS a;\nSELECT ';' AS b;\n  SELECT\n nope FROM wide; SELECT 4 AS d\n", encoding="utf-8"
    )
    ran = house.run("query", "-f", str(script), "--format", "csv")
    assert ran.returncode == ExitCode.FAILED
    assert ran.stdout.splitlines() == ['"a"', "1", '"b"', '";"']
    assert f"({script}, line 5, column 2)\n   nope FROM wide; SELECT 4 AS d\n   ^\n" in ran.stderr
    piped = house.run("query", "-", "--json", stdin="SELECT 1 AS a; SELECT 2 AS b;")
    assert [json.loads(line)["rows"] for line in piped.stdout.splitlines()] == [[[1]], [[2]]]
    script.write_bytes(b"SELECT 1;\n\xff")
    assert "not in UTF-8: line 2" in house.run("query", "-f", str(script)).stderr
    assert house.run("query", "-f", str(tmp_path / "none")).returncode == ExitCode.FAILED
    assert house.run("query", "SELECT 1", "-f", str(script)).returncode == ExitCode.USAGE


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "SELECT\n coutn(id) FROM wide",
            "did you mean count or cot or conv? (line 2, column 2)\n   coutn(id) FROM wide\n   ^",
        ),
        ("SELECT 'open", "' is missing at the end of what begins here. (line 1, column 8)\n  SELECT 'open\n         ^"),
        ("SELECT nmae FROM wide", "did you mean name? (line 1, column 8)\n  SELECT nmae FROM wide\n         ^"),
        ("SELECT 1 WHERE", "(line 1, column 10)\n  SELECT 1 WHERE\n           ^"),
    ],
)
def test_a_caret_stands_below_the_error(house: House, sql: str, told: str) -> None:
    for command in ("query", "explain"):
        assert told in house.run(command, sql).stderr


def test_settings_of_a_statement(house: House) -> None:
    assert "fusion.policy is one of" in house.run("query", "SELECT 1", "--set", "fusion.policy=bold").stderr
    assert house.run("query", "SELECT 1", "--set", "fusion.policy").returncode == ExitCode.USAGE


def test_a_table_is_not_replaced_by_accident_and_can_be_removed(house: House, tmp_path: Path) -> None:
    for name, rows in (("one", 1), ("two", 2)):
        pq.write_table(pa.table({"id": range(rows)}), tmp_path / f"{name}.parquet")
    assert house.run("tables", "add", "t", str(tmp_path / "one.parquet")).returncode == 0
    refused = house.run("tables", "add", "t", str(tmp_path / "two.parquet"))
    assert refused.returncode == ExitCode.FAILED
    assert "TABLE_EXISTS" in refused.stderr
    assert "--replace" in refused.stderr
    assert json.loads(house.run("tables", "show", "t", "--json").stdout)["rows"] == 1
    assert "2 rows" in house.run("tables", "add", "t", str(tmp_path / "two.parquet"), "--replace").stdout
    shown = house.run("tables", "show", "t").stdout
    assert "rows        2" in shown
    assert "id" in shown
    assert house.run("tables", "remove", "t").returncode == ExitCode.USAGE  # nobody is there to be asked
    assert "UNKNOWN_TABLE" in house.run("tables", "remove", "a`b; DROP TABLE wide", "--yes").stderr
    assert "wide" in house.run("tables", "list").stdout


def test_a_table_is_removed_and_its_files_stay(tmp_path: Path) -> None:
    file, home = tmp_path / "t.parquet", tmp_path / "home"
    pq.write_table(pa.table({"id": [1]}), file)
    variables = {"FUSION_HOME": str(home)}
    assert run("tables", "add", "t", str(file), **variables).returncode == 0
    removed = run("tables", "remove", "t", "--yes", **variables)
    assert removed.stdout == "t is removed\n", removed.stderr
    assert file.exists()
    assert "t" not in run("tables", "list", **variables).stdout.split()


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables", "list"),
        ("tables", "show", "wide"),
        ("queries", "list"),
        ("stats", "jobs"),
        ("stats", "keys"),
        ("stats", "schedule", "list"),
        ("misestimates", "list"),
        ("explain", "SELECT id FROM wide"),
        ("query", "SELECT 1 AS one"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_programs_read_json(house: House, arguments: tuple[str, ...]) -> None:
    assert json.loads(house.run(*arguments, "--json").stdout)


def test_a_result_is_printed_again(house: House) -> None:
    house.run("query", "SELECT 7 AS seven")
    query_id = house.states()[0][0]
    assert house.run("queries", "result", query_id, "--format", "csv").stdout == '"seven"\n7\n'
    assert house.run("queries", "result", query_id).stdout.split() == ["seven", "7"]
    assert "NOT_FOUND" in house.run("queries", "result", "none", "--format", "csv").stderr
    assert "NOT_FOUND" in house.run("queries", "show", "../tables").stderr


def test_users_log_in_without_a_password_in_the_command_line(settings: Settings, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(user_line("ann", "right", None) + "\n", encoding="utf-8")
    users.chmod(0o600)
    login = settings.authentication.model_copy(update={"users_file": users, "anonymous": "never"})
    with own_server(settings.model_copy(update={"authentication": login, "home": tmp_path / "home"})) as url:
        sql = ("query", "SELECT 1 AS one", "--format", "csv")
        refused = run(*sql, FUSION_URL=url)
        assert "AUTHENTICATION_FAILED" in refused.stderr
        assert "--user" in refused.stderr
        right, wrong = {"FUSION_PASSWORD": "right"}, {"FUSION_PASSWORD": "wrong"}
        assert run(*sql, "--user", "ann", FUSION_URL=url, **right).stdout == '"one"\n1\n'
        assert run(*sql, "--url", url, FUSION_USER="ann", **right).returncode == 0
        assert run(*sql, "--url", url, FUSION_USER="ann", **wrong).returncode == ExitCode.FAILED
        answer = ("query", "SELECT 41 + 1 AS answer", "--url", url, "--user", "ann")
        with Terminal(*answer, home=tmp_path / "none") as asked:
            asked.until(lambda shown: "Password of ann: " in shown)
            asked.press(b"right\n")
            assert asked.end() == 0
        assert "42" in asked.shown
        assert "right" not in asked.shown


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--url", "http://127.0.0.1:1"), ExitCode.UNREACHABLE, "no gateway answers at http://127.0.0.1:1"),
        (("--url", "ftp://somewhere"), ExitCode.USAGE, "give it as http://HOST:PORT"),
        (("--url", "http://ann:secret@127.0.0.1"), ExitCode.USAGE, "FUSION_PASSWORD"),
        (("--url", "http://127.0.0.1:1", "--home", "x"), ExitCode.USAGE, "exclude each other"),
        (("--url", "https://127.0.0.1:1", "--certificate", "/none"), ExitCode.USAGE, "is no file"),
    ],
)
def test_addresses_that_cannot_be(arguments: tuple[str, ...], code: int, told: str) -> None:
    done = run("tables", "list", *arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[duckdb]\nworkers = 2\nmemory_limit 3\n", "(at line 3, column 14)"),
        (b"[duckdb]\nworkerz = 2\n", "duckdb.workerz: unknown setting; did you mean workers?"),
        (b"\xff", "not in UTF-8"),
        (b'[metastore]\nurl = "postgresql+psycopg://joe:secret@127.0.0.1:1/x"\n', "the metastore (metastore.url)"),
        (b'[metastore]\nurl = "nonsense"\n', "the metastore (metastore.url)"),
    ],
)
def test_what_is_wrong_with_a_home_is_said(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "fusion.toml").write_bytes(content)
    for command in (("query", "SELECT 1"), ("serve", "--port", "0")):
        done = run(*command, "--home", str(tmp_path))
        assert done.returncode == ExitCode.FAILED
        assert told in done.stderr
        assert "Traceback" not in done.stderr
        assert "secret" not in done.stderr


def test_a_gateway_for_one_command_is_announced(tmp_path: Path) -> None:
    done = run("query", "SELECT 1 AS one", "--format", "csv", "--home", str(tmp_path))
    assert done.stdout == '"one"\n1\n'
    assert "starting one for this command" in done.stderr.splitlines()[0]


def test_doctor_finds_what_keeps_a_gateway_from_serving(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "fusion.toml").write_text(
            f"""
            [server]
            port = {taken.getsockname()[1]}
            [hs2]
            port = 0
            [flight]
            enabled = false
            [duckdb]
            enabled = false
            [metastore]
            url = "postgresql+psycopg://joe:secret@127.0.0.1:1/x"
            [authentication]
            users_file = "{tmp_path / "users"}"
            [tls]
            certificate = "{tmp_path / "certificate.pem"}"
            """,
            encoding="utf-8",
        )
        done = run("doctor", "--home", str(tmp_path))
        assert done.returncode == ExitCode.FAILED
        assert "secret" not in done.stdout
        found = json.loads(run("doctor", "--json", "--home", str(tmp_path)).stdout)["findings"]
    missing = [each["subject"] for each in found if each["needed"] and not each["good"]]
    assert missing == ["Engines", "Users file", "Certificate", "Port", "Metastore"]
    assert all(each["remedy"] for each in found if each["needed"] and not each["good"])
    for subject in missing:
        assert f"missing {subject}: " in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_FUSION_COMPLETE" in script
    if shell == "bash":
        typed = (
            f'{script}\nCOMP_WORDS=(fusion query --ti); COMP_CWORD=2; _fusion_completion {FUSION}; echo "$COMPREPLY"'
        )
        done = subprocess.run(
            ["bash", "-c", typed], env=environment(), capture_output=True, text=True, timeout=LONGEST_S
        )
        assert done.stdout.strip() == "--timeout"


def test_the_version_is_told() -> None:
    assert run("--version").stdout.startswith("fusion 0.")


def test_the_gateway_may_be_named_before_the_command(house: House) -> None:
    listed = run("--url", house.url, "tables", "list", "--json", FUSION_HOME="/nowhere")
    assert listed.returncode == 0 and "wide" in listed.stdout
    at_home = run("--home", str(house.home), "savings", "--since", "2w", FUSION_URL="http://127.0.0.1:1")
    assert at_home.returncode == 0, at_home.stderr
    both = run("--url", house.url, "--home", str(house.home), "tables", "list")
    assert (both.returncode, "exclude each other" in both.stderr) == (ExitCode.USAGE, True)


def test_savings_and_parity_are_told(house: House) -> None:
    house.run("query", "SELECT count(*) FROM wide")
    told = house.run("savings", "--by", "user", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["by"] == "user"
    assert house.run("savings", "--csv").stdout.startswith("key,queries,")
    assert "give a number and h, d or w" in house.run("savings", "--since", "1y").stderr
    assert "compared 0, different 0" in house.run("parity", "list").stdout
    assert house.run("parity", "show", "nobody").returncode == ExitCode.FAILED
    released = house.run("parity", "release", "nobody")
    assert (released.returncode, "no open case" in released.stderr) == (ExitCode.FAILED, True)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_results_are_written_as_arrow_and_as_parquet(house: House, tmp_path: Path, form: str) -> None:
    sql = "SELECT id, twice, name, CAST(NULL AS DECIMAL(9, 2)) AS d FROM wide WHERE id < 100000 ORDER BY id"
    file = tmp_path / f"result.{form}"
    with file.open("wb") as sink:
        done = subprocess.run(
            [FUSION, "query", sql, "--format", form, "--url", house.url],
            stdout=sink,
            stderr=subprocess.PIPE,
            check=False,
            timeout=LONGEST_S,
        )
    assert done.returncode == 0, done.stderr
    table = pq.read_table(file) if form == "parquet" else pa.ipc.open_stream(file.read_bytes()).read_all()
    assert table.num_rows == 100_000
    assert table.column("id").to_pylist() == list(range(100_000))
    assert table.schema.field("d").type == pa.decimal128(9, 2)
    empty = house.run("query", "SELECT 1; SELECT 2", "--format", form)
    assert (empty.returncode, "has one result" in empty.stderr) == (ExitCode.USAGE, True)


def test_a_terminal_gets_no_binary_files(house: House) -> None:
    with Terminal("query", "SELECT 1", "--format", "parquet", home=house.home) as asked:
        assert asked.end() == ExitCode.USAGE
        assert "write it into a file" in asked.shown
