"""What clients of each door see of a result that is read while its query runs: HTTP, HiveServer2, Flight SQL."""

from __future__ import annotations

import io
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import pyarrow as pa
import pytest

from engines.errors import EngineError, StatementError
from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway.drivers.flight.messages import DescriptorType, pack, read
from gateway.drivers.flight.protocol.flight_pb2 import FlightDescriptor, PollInfo
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.statements.session import LONG_POLL_S
from gateway.statements.statement import Run
from metastore.records import QueryRecord, QueryState
from sql.errors import AccessDenied
from tests.gateway.conftest import BY_MEMORY, SLOW, settings_for
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import Drivers, driving
from tests.gateway.scripted_gateway import PLAN
from tests.waiting import wait_until

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")
adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="needs ADBC's driver")
TOperationState = pytest.importorskip("TCLIService.ttypes", reason="needs the extra hive").TOperationState

ROWS = 30_000
SOME, MORE = (pa.record_batch({"n": pa.array(range(at, at + ROWS), pa.int64())}) for at in (0, ROWS))
WRONG = StatementError("Division by zero.")
ALL = list(range(2 * ROWS))
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Street:
    """A gateway with all its doors, over engines that give some rows, and wait."""

    drivers: Drivers
    flight: str
    dependable: ScriptedEngine
    go: threading.Event = field(default_factory=threading.Event)
    connections: ExitStack = field(default_factory=ExitStack)

    def script(self, end: EngineError | pa.RecordBatch = MORE) -> str:
        """Return a statement whose engine gives some rows, and this once ``go`` is set."""
        name = f"street {next(_NUMBERS)}"
        self.dependable.script(f"'{name}'", Script(steps=(SOME, self.go, end), plan=PLAN))
        self.dependable.script(
            "limit 0", Script(steps=(SOME.slice(0, 0),), plan=PLAN)
        )  # ADBC's driver asks for columns
        return f"SELECT '{name}' AS n"

    @property
    def run(self) -> Run:
        """The one query that runs."""
        (run,) = self.drivers.gateway.coordinator._alive._runs.values()
        return run

    def ended(self) -> QueryRecord:
        wait_until(lambda: not self.drivers.gateway.coordinator._alive._runs)
        return self.drivers.last_query()

    def pyhive(self) -> Any:
        return self._cursor(hive.connect(self.drivers.host, port=self.drivers.port))

    def impyla(self) -> Any:
        return self._cursor(dbapi.connect(self.drivers.host, self.drivers.port, auth_mechanism="PLAIN"))

    def adbc(self) -> Any:
        return self._cursor(adbc.connect(f"grpc://{self.flight}", autocommit=True))

    def _cursor(self, connection: Any) -> Any:
        self.connections.callback(connection.close)
        cursor = connection.cursor()
        self.connections.callback(lambda: _closed(cursor))
        return cursor

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.drivers.http_port}/v1/queries"

    def post(self, sql: str) -> str:
        """Start a query over HTTP; returns its address."""
        reply = httpx.post(self.url, json={"sql": sql, "wait_s": 0}, timeout=60)
        assert reply.status_code == 202, reply.text
        return f"{self.url}/{reply.json()['id']}"


def _closed(cursor: Any) -> None:
    with suppress(Exception):  # of a query that has failed
        cursor.close()


@pytest.fixture(scope="module")
def open_street(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Street]]:
    fast = ScriptedEngine("duckdb", slots=8)
    dependable = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE, slots=8)
    for engine in (fast, dependable):
        engine.script("select", Script(steps=(SOME,), plan=PLAN))
    entries = [EngineEntry(dependable, speed=SLOW)]
    settings = settings_for(tmp_path_factory.mktemp("home"), routing=BY_MEMORY)
    gateway = wiring.assemble(settings, EngineRegistry(entries))
    with driving(gateway) as drivers, flight_port(gateway) as port:
        yield lambda: Street(drivers, port.address, dependable)


@pytest.fixture
def street(open_street: Callable[[], Street]) -> Iterator[Street]:
    street = open_street()
    with street.connections:
        yield street
        street.go.set()


# ---------------------------------------------------------------------- HiveServer2


@pytest.mark.parametrize("driver", [Street.pyhive, Street.impyla], ids=["pyhive", "impyla"])
def test_a_driver_of_hive_reads_while_the_query_runs(street: Street, driver: Callable[[Street], Any]) -> None:
    cursor = driver(street)
    cursor.arraysize = 1_000
    cursor.execute(street.script())
    rows = cursor.fetchmany(ROWS)
    assert not street.go.is_set()
    assert street.run.state is QueryState.RUNNING
    with ThreadPoolExecutor(1) as thread:
        rest = thread.submit(cursor.fetchall)
        with pytest.raises(TimeoutError):
            rest.result(0.3)  # it waits for what is still to come
        street.go.set()
        rows += rest.result(60)
    assert [n for (n,) in rows] == ALL
    assert cursor.fetchone() is None
    assert street.ended().rows == 2 * ROWS


def test_a_query_has_finished_for_a_driver_of_hive_once_rows_are_there(street: Street) -> None:
    cursor = street.pyhive()
    cursor.execute(street.script(), async_=True)
    wait_until(lambda: cursor.poll().operationState == TOperationState.FINISHED_STATE)
    assert street.run.state is QueryState.RUNNING
    assert not street.run.done.done()
    street.go.set()
    assert len(cursor.fetchall()) == 2 * ROWS


@pytest.mark.parametrize("driver", [Street.pyhive, Street.impyla], ids=["pyhive", "impyla"])
def test_a_driver_of_hive_hears_that_no_more_rows_come(street: Street, driver: Callable[[Street], Any]) -> None:
    cursor = driver(street)
    cursor.execute(street.script(WRONG))
    assert len(cursor.fetchmany(1_000)) == 1_000
    street.go.set()
    with pytest.raises(Exception, match=r"after 30,000 rows .* Division by zero"):
        cursor.fetchall()
    assert street.ended().error.code == "RESULT_INTERRUPTED"  # type: ignore[union-attr]
    if driver is Street.pyhive:
        assert cursor.poll().operationState == TOperationState.ERROR_STATE


def test_a_driver_of_hive_goes_back_to_the_first_row_and_on(street: Street) -> None:
    """Rows behind those that were read are found again, before the query's end and after it."""
    cursor = street.pyhive()
    cursor.execute(street.script(), async_=True)
    wait_until(lambda: cursor.poll().operationState == TOperationState.FINISHED_STATE)
    ttypes = pytest.importorskip("TCLIService.ttypes", reason="needs the extra hive")

    def fetch(orientation: int) -> Any:
        asked = ttypes.TFetchResultsReq(cursor._operationHandle, orientation, 10_000, 0)
        reply = cursor._connection.client.FetchResults(asked)
        return reply.results.columns[0].i64Val.values, reply.hasMoreRows

    first, is_more = fetch(ttypes.TFetchOrientation.FETCH_NEXT)
    assert (first, is_more) == (ALL[:10_000], True)
    assert fetch(ttypes.TFetchOrientation.FETCH_FIRST) == (first, True)
    street.go.set()
    street.ended()
    rows = list(first)
    is_more = True
    while is_more:
        more, is_more = fetch(ttypes.TFetchOrientation.FETCH_NEXT)
        rows += more
    assert rows == ALL
    assert fetch(ttypes.TFetchOrientation.FETCH_FIRST) == (first, True)


def test_a_driver_of_hive_cancels_in_the_middle(street: Street) -> None:
    cursor = street.pyhive()
    cursor.execute(street.script())
    assert cursor.fetchone() == (0,)
    cursor.cancel()
    with pytest.raises(hive.OperationalError, match="cancelled"):
        cursor.fetchall()
    assert street.ended().state is QueryState.CANCELLED


def test_a_driver_of_hive_that_closes_in_the_middle_ends_the_query(street: Street) -> None:
    cursor = street.pyhive()
    cursor.execute(street.script())
    assert cursor.fetchone() == (0,)
    cursor.close()
    record = street.ended()
    assert record.state is QueryState.CANCELLED
    results = street.drivers.gateway.settings.home / "results"
    wait_until(lambda: not list(results.glob(f"{record.id}*")))


# ---------------------------------------------------------------------- HTTP


@pytest.mark.parametrize("format", ["arrow", "csv", "json"])
def test_http_sends_rows_while_the_query_runs(street: Street, format: str) -> None:
    query = street.post(street.script())
    with httpx.stream("GET", f"{query}/result?format={format}&wait_s=60", timeout=60) as reply:
        assert reply.status_code == 200
        chunks = reply.iter_raw()
        body = b""
        while len(body) < ROWS:  # a byte per row, and more
            body += next(chunks)
        assert street.run.state is QueryState.RUNNING
        street.go.set()
        body += b"".join(chunks)
    rows: list[Any]
    if format == "arrow":
        rows = pa.ipc.open_stream(body).read_all()["n"].to_pylist()
    elif format == "csv":
        rows = [int(line) for line in body.decode().split()[1:]]
    else:
        rows = [n for (n,) in json.loads(body)["rows"]]
    assert rows == ALL
    again = httpx.get(f"{query}/result?format={format}", timeout=60)
    assert again.content == body, "what was read early is the result"


@pytest.mark.parametrize("format", ["arrow", "csv", "json"])
def test_http_breaks_off_where_the_query_fails(street: Street, format: str, caplog: pytest.LogCaptureFixture) -> None:
    query = street.post(street.script(WRONG))
    body = io.BytesIO()
    with httpx.stream("GET", f"{query}/result?format={format}&wait_s=60", timeout=60) as reply:
        with pytest.raises(httpx.RemoteProtocolError):
            for chunk in reply.iter_raw():
                body.write(chunk)
                if body.tell() > ROWS:
                    street.go.set()
    assert body.tell() > ROWS
    if format == "arrow":
        assert not body.getvalue().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    if format == "json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(body.getvalue())
    error = httpx.get(query).json()["error"]
    assert error["code"] == "RESULT_INTERRUPTED"
    assert f"after {ROWS:,} rows" in error["message"]
    assert httpx.get(f"{query}/result").status_code == 409
    wait_until(lambda: not street.drivers.gateway.downloads.under_way)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_http_waits_for_rows_as_long_as_it_is_told(street: Street) -> None:
    name = street.script()
    street.dependable.script(name.partition("'")[2].partition("'")[0], Script(steps=(street.go, SOME), plan=PLAN))
    query = street.post(name)
    assert httpx.get(f"{query}/result").json()["error"]["code"] == "NOT_FINISHED"
    assert httpx.get(f"{query}/result?wait_s=0.2").status_code == 409
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(httpx.get, f"{query}/result?wait_s=60", timeout=60)
        street.go.set()
        assert len(waiting.result(60).json()["rows"]) == ROWS


def test_http_shows_a_whole_page_of_a_query_that_runs(street: Street) -> None:
    query = street.post(street.script())
    street.run.ready.result(60)
    assert httpx.get(query).json()["rows"] is None, "nobody asked for rows"
    for max_rows in (3, ROWS - 1):
        shown = httpx.get(f"{query}?max_rows={max_rows}").json()
        assert (shown["state"], shown["truncated"]) == ("RUNNING", True)
        assert [column["name"] for column in shown["columns"]] == ["n"]
        assert [n for (n,) in shown["rows"]] == ALL[:max_rows]
    assert httpx.get(f"{query}?max_rows={ROWS + 1}").json()["rows"] is None, "there may be more on that page"
    street.go.set()
    street.ended()
    assert len(httpx.get(f"{query}?max_rows={3 * ROWS}").json()["rows"]) == 2 * ROWS


def test_http_ends_the_reply_of_a_query_that_is_cancelled(street: Street) -> None:
    query = street.post(street.script())
    with httpx.stream("GET", f"{query}/result?wait_s=60", timeout=60) as reply:
        chunks = reply.iter_raw()
        next(chunks)
        assert httpx.delete(query, timeout=60).json()["state"] == "CANCELLED"
        with pytest.raises(httpx.RemoteProtocolError):
            list(chunks)


def test_http_lets_go_of_a_client_that_leaves_while_it_waits_for_rows(street: Street) -> None:
    query = street.post(street.script())
    downloads = street.drivers.gateway.downloads
    with httpx.stream("GET", f"{query}/result?wait_s=60", timeout=60) as reply:
        next(reply.iter_raw())
        assert downloads.under_way == 1
    wait_until(lambda: not downloads.under_way)
    assert street.run.state is QueryState.RUNNING, "it is not the client's to end"


def test_rows_of_others_are_not_shown_early(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    query = street.post(street.script())
    street.run.ready.result(60)

    def deny(*_: object) -> None:
        raise AccessDenied("It belongs to somebody else.")

    monkeypatch.setattr(street.drivers.gateway.policy, "require", deny)
    reply = httpx.get(f"{query}/result?wait_s=60")
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "NOT_YOUR_QUERY")


# ---------------------------------------------------------------------- Flight SQL


def test_flight_sends_rows_while_the_query_runs(street: Street) -> None:
    cursor = street.adbc()
    cursor.execute(street.script())
    assert not street.go.is_set()
    assert street.run.state is QueryState.RUNNING
    with closing(cursor.fetch_record_batch()) as reader:
        rows = reader.read_next_batch()["n"].to_pylist()
        assert street.run.state is QueryState.RUNNING
        street.go.set()
        rows += [n for batch in reader for n in batch["n"].to_pylist()]
    assert rows == ALL
    assert street.ended().rows == 2 * ROWS


def test_flight_raises_where_the_query_fails(street: Street) -> None:
    cursor = street.adbc()
    cursor.execute(street.script(WRONG))
    with closing(cursor.fetch_record_batch()) as reader:
        assert reader.read_next_batch().num_rows
        street.go.set()
        with pytest.raises(Exception, match=r"after 30,000 rows .* Division by zero") as failed:
            reader.read_all()
    assert "Aborted" in str(failed.value)
    assert street.ended().error.code == "RESULT_INTERRUPTED"  # type: ignore[union-attr]


def test_flight_tells_of_rows_and_how_to_ask_again(street: Street) -> None:
    with grpc.insecure_channel(street.flight) as channel:
        poll = channel.unary_unary("/arrow.flight.protocol.FlightService/PollFlightInfo")
        asked = FlightDescriptor(type=DescriptorType.COMMAND, cmd=pack(CommandStatementQuery(query=street.script())))
        first = read(PollInfo, poll(asked.SerializeToString()))
        while not first.info.endpoint:
            first = read(PollInfo, poll(first.flight_descriptor.SerializeToString()))
        assert street.run.state is QueryState.RUNNING
        assert first.info.total_records == -1
        again = first.flight_descriptor.SerializeToString()
        begun = time.monotonic()
        second = read(PollInfo, poll(again))
        assert time.monotonic() - begun > LONG_POLL_S / 2, "there was no news"
        assert second.info.endpoint[0] == first.info.endpoint[0]
        assert second.HasField("flight_descriptor")
        street.go.set()
        street.ended()
        last = read(PollInfo, poll(again))
        assert not last.HasField("flight_descriptor")
        assert (last.info.total_records, last.info.endpoint[0]) == (2 * ROWS, first.info.endpoint[0])


def test_flight_drops_nobody_who_waits_for_rows(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = street.drivers.gateway.downloads
    cursor = street.adbc()
    cursor.execute(street.script())
    with closing(cursor.fetch_record_batch()) as reader:
        rows = reader.read_next_batch()["n"].to_pylist()
        monkeypatch.setattr(downloads, "stall_s", 0.3)
        wait_until(lambda: bool(downloads._watched))
        with pytest.raises(TimeoutError):
            street.run.done.result(1.0)  # longer than a client may read nothing
        assert downloads.drop_stalled() == 0
        street.go.set()
        rows += [n for batch in reader for n in batch["n"].to_pylist()]
    assert rows == ALL
