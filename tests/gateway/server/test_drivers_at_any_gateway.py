"""Drivers of two gateways on one PostgreSQL: any of them answers, and one that is killed takes nothing with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks.hs2_client import call_bytes
from gateway.drivers.flight import messages as flight
from gateway.drivers.flight.protocol.flight_pb2 import (
    FlightDescriptor,
    FlightInfo,
    PollInfo,
    Result,
    SetSessionOptionsRequest,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionCreatePreparedStatementRequest,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
)
from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchReply,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationHandle,
    OperationReply,
    OperationState,
    Reply,
    SessionHandle,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
)
from gateway.drivers.hs2.protocol.thrift import Struct
from tests.gateway.server.processes.test_processes import FLIGHT, Channel, replied, thrift
from tests.gateway.server.test_any_gateway import SLOW, SLOWER, Served, register_numbers
from tests.postgresql import postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

Start = Callable[[str], Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start gateways by the names of their homes."""
    served: list[Served] = []
    with postgresql() as server:

        def begin(name: str) -> Served:
            served.append(Served(tmp_path / name, server.url, flight=0))
            return served[-1]

        try:
            yield begin
        finally:
            for one in served:
                one.http.close()
                if one.process.poll() is None:
                    one.process.kill()
                    one.process.wait()


def opened(gateway: Served) -> SessionHandle:
    session = thrift(gateway.http, "OpenSession", OpenSessionRequest(), OpenSessionReply).session
    assert session is not None
    return session


def begun(gateway: Served, session: SessionHandle, sql: str, *, run_async: bool = False) -> OperationHandle:
    request = ExecuteRequest(session, sql, run_async=run_async)
    reply = thrift(gateway.http, "ExecuteStatement", request, OperationReply)
    assert reply.operation is not None, reply.status
    return reply.operation


def call_of(method: str, request: Struct) -> dict[str, Any]:
    return {"content": call_bytes(method, request), "headers": {"content-type": CONTENT_TYPE}}


def state_of(gateway: Served, operation: OperationHandle) -> int | None:
    return thrift(gateway.http, "GetOperationStatus", StatusRequest(operation), StatusReply).state


def rows_of(gateway: Served, operation: OperationHandle, most: int = 10) -> bytes:
    return replied(gateway.http, "FetchResults", FetchRequest(operation, FetchOrientation.NEXT, most))


def test_hive_drivers_go_on_at_another_gateway(start: Start, tmp_path: Path) -> None:
    one, other = start("one"), start("other")
    register_numbers(one, tmp_path / "n")
    one.ask("CREATE DATABASE sales")
    session = opened(one)
    begun(other, session, "USE sales")  # passed on to the session's own gateway
    begun(other, session, "SET hiveconf:mark=42")
    begun(one, session, "CREATE TEMPORARY VIEW mine AS SELECT 77 AS x")
    assert b"sales" in rows_of(other, begun(other, session, "SELECT current_database() AS d"))
    read = begun(one, session, "SELECT i FROM default.n ORDER BY i")
    first = rows_of(other, read)
    assert (9).to_bytes(8, "big") in first and (10).to_bytes(8, "big") not in first
    plain = opened(one)
    slow = begun(other, plain, SLOW, run_async=True)
    wait_until(lambda: state_of(other, slow) == OperationState.RUNNING, "it runs")

    one.kill()
    while (refused := other.http.post("/cliservice", **call_of("GetOperationStatus", StatusRequest(slow)))).is_error:
        assert refused.status_code == 503, refused.text  # until it is certainly gone
        time.sleep(0.2)

    wait_until(lambda: state_of(other, slow) == OperationState.FINISHED, "it has rows elsewhere", 120)
    (expected,) = other.ask(SLOW)["rows"][0]
    assert expected.to_bytes(8, "big") in rows_of(other, slow)
    assert expected.to_bytes(8, "big") not in rows_of(other, slow), "rows come once"
    gone = thrift(other.http, "FetchResults", FetchRequest(read, FetchOrientation.NEXT, 10), FetchReply)
    assert "no longer kept" in str(gone.status.message), "rows that a client has seen do not come again"
    assert b"sales" in rows_of(other, begun(other, session, "SELECT current_database() AS d"))
    assert b"42" in rows_of(other, begun(other, session, "SELECT '${hiveconf:mark}' AS m"))
    assert (77).to_bytes(4, "big") in rows_of(other, begun(other, session, "SELECT x FROM mine"))
    third = start("third")
    begun(other, session, "USE default")
    begun(third, session, "SET hiveconf:mark=43")
    assert b"default" in rows_of(third, begun(third, session, "SELECT current_database() AS d"))
    assert b"43" in rows_of(other, begun(other, session, "SELECT '${hiveconf:mark}' AS m"))
    ended = thrift(third.http, "CloseSession", SessionRequest(session), Reply)
    assert ended.status.code == StatusCode.SUCCESS
    again = thrift(other.http, "CloseSession", SessionRequest(session), Reply)
    assert again.status.code == StatusCode.INVALID_HANDLE


@pytest.mark.thorough  # over HTTP, test_any_gateway.py
def test_a_gateway_that_is_stopped_leaves_sessions_and_reads_to_the_others(start: Start, tmp_path: Path) -> None:
    one, other = start("one"), start("other")
    register_numbers(one, tmp_path / "n")
    session = opened(one)
    begun(one, session, "SET hiveconf:mark=44")
    slow = begun(one, session, SLOWER, run_async=True)
    wait_until(lambda: state_of(one, slow) == OperationState.RUNNING, "it runs")
    one.stop()
    wait_until(lambda: state_of(other, slow) == OperationState.FINISHED, "it has rows elsewhere", 120)
    assert rows_of(other, slow) == rows_of(other, begun(other, session, SLOWER))
    assert b"44" in rows_of(other, begun(other, session, "SELECT '${hiveconf:mark}' AS m"))


def options(**settings: str) -> bytes:
    request = SetSessionOptionsRequest()
    for name, value in settings.items():
        request.session_options[name].string_value = value
    return bytes(request.SerializeToString())


def polled(channel: Channel, command: bytes, headers: list[tuple[str, str]]) -> PollInfo:
    descriptor = FlightDescriptor(type=2, cmd=command).SerializeToString()
    call = channel.unary(f"{FLIGHT}PollFlightInfo")
    return flight.read(PollInfo, call(descriptor, metadata=headers, timeout=60))


@pytest.mark.thorough  # between processes, processes/test_processes.py
def test_clients_of_flight_go_on_at_another_gateway(start: Start, tmp_path: Path) -> None:
    one, other = start("one"), start("other")
    register_numbers(one, tmp_path / "n")
    one.ask("CREATE DATABASE sales")
    with closing(Channel(one.flight)) as own, closing(Channel(other.flight)) as far:
        info, _ = far.info("SELECT i FROM n ORDER BY i", own.own)  # its session is at the other gateway
        rows = own.rows(info, own.own)
        assert far.rows(info, own.own) == rows
        assert far.rows(info, far.own) == rows  # in another session of the same user
        with pytest.raises(grpc.RpcError) as wrong:
            far.info("SELECT nothing FROM n", own.own)
        assert "UNKNOWN_COLUMN" in str(wrong.value.trailing_metadata())
        assert wrong.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        with closing(Channel(start("second").flight)) as near:
            assert near.rows(info, own.own) == rows
            assert own.rows(info, near.own) == rows
            mixed, _ = own.info("SELECT 6 AS x", own.own)
            assert near.rows(mixed, far.own), "a token of one gateway, a handle of another, at a third one"
            slow = (
                f"SELECT * FROM ({SLOW.replace('FROM n', 'FROM default.n').replace('JOIN n', 'JOIN default.n')}) AS t"
            )
            ticket = polled(far, flight.pack(CommandStatementQuery(query=slow)), own.own).flight_descriptor.cmd
            near.act("SetSessionOptions", options(schema="sales"), own.own)
            one.kill()
            deadline_s = time.monotonic() + 120
            while True:
                assert time.monotonic() < deadline_s
                try:
                    now = polled(far, ticket, own.own)
                except grpc.RpcError as error:
                    assert "GATEWAY_STOPPED" in str(error.trailing_metadata())  # until it is certainly gone
                    time.sleep(0.2)
                    continue
                if not now.flight_descriptor.cmd:
                    break
                ticket = now.flight_descriptor.cmd
            asked = flight.pack(ActionCreatePreparedStatementRequest(query="SELECT current_database() AS d"))
            _, made = flight.unpack(flight.read(Result, far.act("CreatePreparedStatement", asked, own.own)[0]).body)
            prepared = CommandPreparedStatementQuery(prepared_statement_handle=made.prepared_statement_handle)
            executed, _ = near.asked("GetFlightInfo", flight.pack(prepared), own.own)
            assert any(b"sales" in each for each in near.rows(executed, own.own))
        result = FlightInfo.FromString(now.info.SerializeToString())
        (expected,) = other.ask(SLOW)["rows"][0]
        assert any(expected.to_bytes(8, "little") in each for each in far.rows(result, own.own))
        with pytest.raises(grpc.RpcError) as gone:
            far.rows(info, own.own)
        assert "RESULT_GONE" in str(gone.value.trailing_metadata())
        again, _ = far.info("SELECT 5 AS x", own.own)
        assert far.rows(again, own.own)
        with closing(Channel(start("third").flight)) as third:
            third.act("CloseSession", b"", own.own)
        with pytest.raises(grpc.RpcError) as ended:
            far.info("SELECT 1 AS x", own.own)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
