"""Two real processes on one home: whichever a client meets, it finds what the other one owns; and one is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import grpc
import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.hs2_client import RawClient, call_bytes, reply_of
from gateway.cli.client import running_address
from gateway.drivers.flight import messages as flight
from gateway.drivers.flight.forwarding import handle_in
from gateway.drivers.flight.protocol.flight_pb2 import Action, FlightDescriptor, FlightInfo, Result
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
)
from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationHandle,
    OperationReply,
    OperationRequest,
    OperationState,
    Reply,
    SessionHandle,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
)
from gateway.drivers.hs2.protocol.thrift import Struct
from gateway.statements.statement import ID_BYTES
from metastore.members.membership import EPOCH_BYTES
from tests.engines.processes import is_running
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e

COUNT = 2
LIMIT_BYTES, BUDGET_BYTES, CACHE_BYTES = 64 << 20, 128 << 20, 10 << 20
START_S = 120.0
NUMBERS, FEW = (f"(VALUES {', '.join(f'({number})' for number in range(count))}) AS" for count in (600, 60))
CROSSED = " CROSS JOIN ".join(f"{NUMBERS} {each}(i)" for each in "abcd")
LONG = f"SELECT sum(a.i % 7 + b.i * c.i % 11 + d.i) AS s FROM {CROSSED}"  # minutes, in little memory
FLIGHT = "/arrow.flight.protocol.FlightService/"
CACHED = {"fusion.cache": "true"}
C = TypeVar("C", bound="Closable")
R = TypeVar("R", bound=Struct)


@dataclass
class Several:
    """A gateway of several processes. url, drivers, flight: addresses of its doors."""

    home: Path
    supervisor: subprocess.Popen[bytes]
    told: dict[str, Any] = field(default_factory=dict)

    def processes(self) -> dict[int, psutil.Process]:
        """Return those that live, by number."""
        found = psutil.Process(self.supervisor.pid).children()
        by_age = sorted(
            (each for each in found if "process" in " ".join(each.cmdline())), key=psutil.Process.create_time
        )
        return dict(enumerate(by_age))

    def number_of(self, mark: bytes | None) -> int | None:
        """Return the number of the process that made a handle, by its mark."""
        assert mark is not None
        with closing(sqlite3.connect(self.home / "metastore.db")) as metastore:
            names = dict(metastore.execute("SELECT id, name FROM gateways"))
        epochs = {bytes.fromhex(member.rpartition("/")[2]): name for member, name in names.items()}
        name = epochs.get(mark[:EPOCH_BYTES])
        number = name.partition(".")[2] if name is not None else None
        return None if number is None else int(number or 0)

    def client(self) -> httpx.Client:
        """Return a client with one connection."""
        return httpx.Client(base_url=self.told["url"], timeout=60, limits=httpx.Limits(max_connections=1))

    def address(self, door: str) -> tuple[str, int]:
        host, _, port = str(self.told[door]).rpartition(":")
        return host, int(port)


class Closable(Protocol):
    def close(self) -> None: ...


class Pair(Generic[C]):
    """A client's connection to each process: the kernel spreads them, so that some are opened in vain."""

    def __init__(self, stack: ExitStack, connect: Callable[[], C], number_of: Callable[[C], int | None]) -> None:
        found: dict[int, C] = {}
        until_s = time.monotonic() + START_S
        while len(found) < COUNT:
            assert time.monotonic() < until_s
            made = connect()
            number = number_of(made)
            assert number is not None
            if number in found:
                made.close()
            else:
                found[number] = made
                stack.callback(made.close)
        self.of = found

    def __iter__(self) -> Iterator[tuple[int, C, C]]:
        """Yield each process's number, its connection, and one to another process."""
        for number, own in self.of.items():
            yield number, own, self.of[(number + 1) % COUNT]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    home = tmp_path_factory.mktemp("home")
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    variables = {
        "FUSION_SPARK__ENABLED": "false",
        "FUSION_DUCKDB__THREADS": "1",
        "FUSION_DUCKDB__SPARE_WORKERS": "0",
        "FUSION_CACHE__BYTES": str(CACHE_BYTES),
        "FUSION_DUCKDB__MEMORY": str(BUDGET_BYTES),
        "FUSION_DUCKDB__MEMORY_LIMIT": str(LIMIT_BYTES),
    }
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--processes", str(COUNT)], env={**os.environ, **variables}, stdout=log, stderr=log
        )
    served = Several(home, process)
    try:
        wait_until(
            lambda: running_address(home) is not None or process.poll() is not None, "it serves", within_s=START_S
        )
        assert process.poll() is None, (home / "serve.log").read_text()
        served.told = json.loads((home / "gateway.json").read_text())
        yield served
        descendants = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(60) == 0
        wait_until(lambda: not [each for each in descendants if is_running(each.pid)], "nothing is left")
        assert running_address(home) is None
    finally:
        process.kill()
        process.wait()


def asked(client: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = client.post("/v1/queries", json={"sql": sql, **fields}).json()
    assert "state" in reply, reply
    return reply


class Http:
    """Clients of single processes."""

    def __init__(self, several: Several, stack: ExitStack) -> None:
        self._several = several
        self._stack = stack

    def at(self, number: int) -> httpx.Client:
        """Return a client with a new connection to a process; one that is idle for seconds would be closed."""
        until_s = time.monotonic() + START_S
        while True:
            assert time.monotonic() < until_s
            client = self._several.client()
            session = thrift(client, "OpenSession", OpenSessionRequest(), OpenSessionReply).session
            assert session is not None
            thrift(client, "CloseSession", SessionRequest(session), Reply)
            assert session.identifier is not None
            if self._several.number_of(session.identifier.secret) == number:
                self._stack.callback(client.close)
                return client
            client.close()

    def __iter__(self) -> Iterator[tuple[int, httpx.Client, httpx.Client]]:
        """Yield each process's number, a client of its own, and one of another process."""
        for number in range(COUNT):
            yield number, self.at(number), self.at((number + 1) % COUNT)


@pytest.fixture
def http(several: Several) -> Iterator[Http]:
    with ExitStack() as stack:
        yield Http(several, stack)


@contextmanager
def running(client: httpx.Client, *remainders: int) -> Iterator[list[str]]:
    """Start statements that run for minutes, and yield their ids."""
    ids = [asked(client, LONG.replace("% 7", f"% {each}"), wait_s=0)["id"] for each in remainders]
    try:
        yield ids
    finally:
        for each in ids:
            client.delete(f"/v1/queries/{each}")


def leased(client: httpx.Client) -> set[str]:
    return {each["query_id"] for each in client.get("/v1/leases").json()["leases"]}


# ---------------------------------------------------------------------- HTTP


def test_any_process_tells_of_a_query_and_its_rows(http: Http) -> None:
    for number, own, other in http:
        query_id = asked(own, f"SELECT {number} + 40 AS x")["id"]
        assert other.get(f"/v1/queries/{query_id}").json()["rows"] == [[number + 40]]
        assert other.get(f"/v1/queries/{query_id}/result", params={"format": "csv"}).text.split() == [
            '"x"',
            str(number + 40),
        ]
        assert query_id in other.get(f"/dashboard/queries/{query_id}").text
        head = other.head(f"/v1/queries/{query_id}")
        assert (head.status_code, head.content) == (200, b"")
        assert query_id in {each["id"] for each in other.get("/v1/queries").json()["queries"]}
        assert other.get(f"/v1/queries/{query_id}0").status_code == 404


def test_metrics_tell_of_all_processes(http: Http) -> None:
    for _, own, _ in http:
        lines = own.get("/v1/metrics").text.splitlines()
        for number in range(COUNT):
            assert f'fusion_cache_bytes{{process="{number}"}} 0' in lines
        assert sum(line.startswith("fusion_engine_leased_slots{") for line in lines) == 1, "of all together"
        assert sum(line.startswith("# TYPE fusion_statement_stage_seconds ") for line in lines) == 1
        cache = own.get("/v1/cache").json()
        assert (cache["entries"], cache["limit_bytes"]) == (0, CACHE_BYTES), "each has its part"


def test_a_result_is_computed_once_for_all(http: Http, several: Several, tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array(range(20_000), pa.int64())}), folder / "numbers.parquet")
    own, other = http.at(0), http.at(1)
    own.post("/v1/tables", json={"name": "numbers", "location": str(folder)}).raise_for_status()
    few, many = "SELECT sum(i) AS s FROM numbers", "SELECT i FROM numbers ORDER BY i DESC"
    wait_until(lambda: cache_use(own, few) == "hit", "its files are settled", 30)
    assert cache_use(own, many) == "miss"
    wait_until(lambda: cache_use(http.at(0), many) == "hit", "it is cached")
    wait_until(lambda: usage(other)["entries"] >= 2 * COUNT, "the other process is told")
    for sql in (few, many):
        assert cache_use(other, sql) == "hit"
    answer = asked(other, many, max_rows=3, settings=CACHED)
    assert answer["rows"] == [[19_999], [19_998], [19_997]]
    asked(own, "DROP TABLE numbers")


def cache_use(client: httpx.Client, sql: str) -> str:
    return str(
        client.post("/v1/queries", json={"sql": sql, "max_rows": 1, "settings": CACHED}).headers["X-Fusion-Cache"]
    )


def usage(client: httpx.Client) -> dict[str, int]:
    counters: dict[str, int] = client.get("/v1/cache").json()
    return counters


def test_a_large_result_is_passed_on_as_it_is_read(http: Http) -> None:
    values = " CROSS JOIN ".join(f"{FEW} {each}(i)" for each in "abc")
    for _, own, other in http:
        query_id = asked(own, f"SELECT a.i AS x, b.i AS y FROM {values}", max_rows=0)["id"]
        lines = 0
        with other.stream("GET", f"/v1/queries/{query_id}/result", params={"format": "csv"}) as reply:
            for line in reply.iter_lines():
                lines += 1
                assert line.count(",") == 1
        assert lines == 60**3 + 1


def test_any_process_cancels_a_query(http: Http) -> None:
    own, other = http.at(1), http.at(0)
    with running(own, 7) as (query_id,):
        wait_until(lambda: query_id in leased(other), "it has its lease")
        assert other.get(f"/v1/queries/{query_id}").json()["state"] == "RUNNING"
        assert other.delete(f"/v1/queries/{query_id}").json()["state"] == "CANCELLED"
        assert own.get(f"/v1/queries/{query_id}").json()["state"] == "CANCELLED"
        assert query_id not in leased(own)


@pytest.mark.thorough
def test_all_processes_take_turns_for_one_budget(http: Http) -> None:
    """Two statements fit into it; the third one waits, whichever process has it, and comes next."""
    one, other = http.at(0), http.at(1)
    with running(one, 7) as (first,), running(other, 8) as (second,), running(one, 9) as (third,):

        def ledger() -> dict[str, int]:
            (duckdb,) = [each for each in other.get("/v1/engines").json()["engines"] if each["name"] == "duckdb"]
            return dict(duckdb["ledger"])

        wait_until(lambda: leased(one) == leased(other) == {first, second}, "two run")
        wait_until(lambda: ledger()["waiting"] == 1, "one waits")
        assert ledger()["bytes_held"] == ledger()["capacity_bytes"] == BUDGET_BYTES
        waits = other.get(f"/v1/queries/{third}").json()
        assert (waits["state"], waits["waiting"]["needs"], waits["waiting"]["place"]) == ("QUEUED", "memory", 1)
        assert other.delete(f"/v1/queries/{second}").json()["state"] == "CANCELLED"
        wait_until(lambda: leased(other) == {first, third}, "its turn comes")
    wait_until(lambda: not leased(http.at(1)), "all is given back")


# ---------------------------------------------------------------------- HiveServer2


def replied(client: httpx.Client, method: str, request: Struct) -> bytes:
    reply = client.post("/cliservice", content=call_bytes(method, request), headers={"content-type": CONTENT_TYPE})
    assert reply.status_code == 200, reply.text
    return reply.content


def thrift(client: httpx.Client, method: str, request: Struct, kind: type[R]) -> R:
    return reply_of(replied(client, method, request), kind)


def test_sessions_over_http_are_everywhere(http: Http, several: Several) -> None:
    for number, own, other in http:
        session = thrift(own, "OpenSession", OpenSessionRequest(), OpenSessionReply).session
        assert session is not None
        assert session.identifier is not None and several.number_of(session.identifier.secret) == number
        started = thrift(
            other, "ExecuteStatement", ExecuteRequest(session, f"SELECT {number} + 40 AS x"), OperationReply
        )
        assert started.operation is not None
        assert started.operation.identifier is not None
        assert several.number_of(started.operation.identifier.secret) == number
        fetch = FetchRequest(started.operation, FetchOrientation.NEXT, 10)
        assert (number + 40).to_bytes(4, "big") in replied(other, "FetchResults", fetch)
        assert (
            thrift(own, "GetOperationStatus", StatusRequest(started.operation), StatusReply).state
            == OperationState.FINISHED
        )
        assert thrift(other, "CloseSession", SessionRequest(session), Reply).status.code == StatusCode.SUCCESS
        assert thrift(own, "CloseSession", SessionRequest(session), Reply).status.code == StatusCode.INVALID_HANDLE


def opened(client: RawClient) -> SessionHandle:
    session = client.ask("OpenSession", OpenSessionRequest(), OpenSessionReply).session
    assert session is not None
    return session


def test_a_cancel_over_tcp_finds_the_connection_of_another_process(several: Several) -> None:
    """As impala-shell cancels: on a connection of its own, which the kernel may give to another process."""
    sessions: dict[RawClient, SessionHandle] = {}

    def number_of(client: RawClient) -> int | None:
        sessions[client] = opened(client)
        identifier = sessions[client].identifier
        return several.number_of(identifier.secret if identifier is not None else None)

    class Closing(RawClient):
        def close(self) -> None:
            self.socket.close()

    host, port = several.address("drivers")
    with ExitStack() as stack:
        pair = Pair(stack, lambda: Closing(host, port, user="ada", password="any"), number_of)
        for _, own, other in pair:
            request = ExecuteRequest(sessions[own], LONG, run_async=True)
            operation = own.ask("ExecuteStatement", request, OperationReply).operation
            assert operation is not None and operation.identifier is not None
            wrong = OperationHandle(
                type(operation.identifier)(operation.identifier.guid, b"\0" * 16), operation.kind, True
            )
            assert other.ask("CancelOperation", OperationRequest(wrong), Reply).status.code == StatusCode.INVALID_HANDLE
            assert (
                other.ask("GetOperationStatus", StatusRequest(operation), StatusReply).status.code
                == StatusCode.INVALID_HANDLE
            )
            assert other.ask("CancelOperation", OperationRequest(operation), Reply).status.code == StatusCode.SUCCESS

            def is_cancelled(own: RawClient = own, operation: OperationHandle = operation) -> bool:
                return (
                    own.ask("GetOperationStatus", StatusRequest(operation), StatusReply).state
                    == OperationState.CANCELED
                )

            wait_until(is_cancelled, "it is cancelled")


# ---------------------------------------------------------------------- Flight SQL


class Channel:
    """A client's connection. token: that it was given first."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        _, headers = self.info("SELECT 1 AS x", [])
        self.token = headers["authorization"]

    def info(self, sql: str, headers: list[tuple[str, str]]) -> tuple[FlightInfo, dict[str, str]]:
        command = flight.pack(CommandStatementQuery(query=sql))
        return self.asked("GetFlightInfo", command, headers)

    def asked(self, method: str, command: bytes, headers: list[tuple[str, str]]) -> tuple[FlightInfo, dict[str, str]]:
        descriptor = FlightDescriptor(type=2, cmd=command).SerializeToString()
        reply, call = self._channel.unary_unary(f"{FLIGHT}{method}").with_call(descriptor, metadata=headers, timeout=60)
        return flight.read(FlightInfo, reply), dict(call.initial_metadata())

    def unary(self, method: str) -> Any:
        return self._channel.unary_unary(method)

    def rows(self, info: FlightInfo, headers: list[tuple[str, str]]) -> list[bytes]:
        ticket = info.endpoint[0].ticket.SerializeToString()
        return list(self._channel.unary_stream(f"{FLIGHT}DoGet")(ticket, metadata=headers, timeout=60))

    def act(self, kind: str, body: bytes, headers: list[tuple[str, str]]) -> list[bytes]:
        action = Action(type=kind, body=body).SerializeToString()
        return list(self._channel.unary_stream(f"{FLIGHT}DoAction")(action, metadata=headers, timeout=60))

    @property
    def own(self) -> list[tuple[str, str]]:
        """Headers of its session."""
        return [("authorization", self.token)]

    def close(self) -> None:
        self._channel.close()


def test_sessions_tickets_and_prepared_statements_of_flight_are_everywhere(several: Several) -> None:
    with ExitStack() as stack:
        pair = Pair(
            stack,
            lambda: Channel(several.told["flight"]),
            lambda each: several.number_of(handle_in(each.token.removeprefix("Bearer "))[ID_BYTES:]),
        )
        for number, own, other in pair:
            info, _ = own.info(f"SELECT {number} + 40 AS x", own.own)
            assert several.number_of(info.app_metadata[ID_BYTES:]) == number
            expected = own.rows(info, own.own)
            assert any((number + 40).to_bytes(4, "little") in each for each in expected)
            assert other.rows(info, own.own) == expected  # where the token's session is
            assert other.rows(info, other.own) == expected  # where the ticket is, of another session of the same user
            assert other.rows(info, []) == expected  # without a session of its own
            asked = flight.pack(ActionCreatePreparedStatementRequest(query=f"SELECT {number} + 50 AS y"))
            _, made = flight.unpack(flight.read(Result, other.act("CreatePreparedStatement", asked, own.own)[0]).body)
            assert isinstance(made, ActionCreatePreparedStatementResult)
            assert several.number_of(made.prepared_statement_handle[ID_BYTES:]) == number
            command = CommandPreparedStatementQuery(prepared_statement_handle=made.prepared_statement_handle)
            prepared, _ = other.asked("GetFlightInfo", flight.pack(command), other.own)
            assert any((number + 50).to_bytes(4, "little") in each for each in other.rows(prepared, other.own))
        for _, own, other in pair:
            other.act("CloseSession", b"", own.own)
            with pytest.raises(grpc.RpcError) as ended:
                own.info("SELECT 1 AS x", own.own)
            assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


# ---------------------------------------------------------------------- a process dies


def test_reads_of_a_process_that_is_killed_run_again_and_the_rest_is_told(several: Several, http: Http) -> None:
    victim, survivor = 1, 0
    client, dying = http.at(survivor), http.at(victim)
    done = asked(dying, "SELECT 7 AS x")["id"]
    session = thrift(dying, "OpenSession", OpenSessionRequest(), OpenSessionReply).session
    assert session is not None
    lost = asked(dying, LONG, wait_s=0)["id"]
    with running(client, 8) as (kept,):
        wait_until(lambda: {lost, kept} <= leased(client), "both run")

        os.kill(several.processes()[victim].pid, signal.SIGKILL)

        def failures() -> list[str | None]:
            try:
                reply = client.get(f"/v1/queries/{lost}")
            except httpx.TransportError:  # a new connection that the killed process had not accepted yet
                return []
            return [attempt["failure"] for attempt in reply.json()["attempts"]]

        wait_until(lambda: failures() == ["GATEWAY_LOST", None], "it runs again elsewhere")
        wait_until(lambda: client.get(f"/v1/queries/{lost}").json()["state"] == "RUNNING", "it has a slot")
        assert client.delete(f"/v1/queries/{lost}").json()["state"] == "CANCELLED"
        assert client.get(f"/v1/queries/{done}").json()["rows"] == [[7]]
        closed = thrift(client, "CloseSession", SessionRequest(session), Reply)
        assert closed.status.code == StatusCode.SUCCESS, "a session goes on elsewhere, too"
        assert client.get(f"/v1/queries/{kept}").json()["state"] == "RUNNING"

        wait_until(lambda: len(several.processes()) == COUNT, "it is started again", within_s=START_S)
        new = http.at(victim)
        assert new.get(f"/v1/queries/{done}").json()["rows"] == [[7]]
        assert new.get(f"/v1/queries/{lost}").json()["state"] == "CANCELLED"
        assert new.delete(f"/v1/queries/{kept}").json()["state"] == "CANCELLED"
        wait_until(lambda: not leased(new), "all is given back")


@pytest.mark.thorough
def test_all_end_with_the_supervisor(tmp_path: Path) -> None:
    """It alone knows what is leased: another gateway may start only once all of them have ended."""
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(tmp_path), "--port", "0"]
    environment = {**os.environ, "FUSION_SPARK__ENABLED": "false", "FUSION_DUCKDB__WORKERS": "1"}
    with (tmp_path / "serve.log").open("ab") as log:
        process = subprocess.Popen([*command, "--processes", "2"], env=environment, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: (tmp_path / "sockets" / "0.calls").exists() or process.poll() is not None,
            "the first one is there",
            within_s=START_S,
        )
        assert process.poll() is None, (tmp_path / "serve.log").read_text()
        descendants = psutil.Process(process.pid).children(recursive=True)
        assert descendants
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not [each for each in descendants if is_running(each.pid)], "nothing is left", within_s=20.0)
