"""Whatever bytes come: a typed error, nothing of ours in it, and nobody else is disturbed."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as arrow_flight
import pytest

from gateway.drivers.flight import messages
from gateway.drivers.flight.messages import Malformed
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    CancelFlightInfoRequest,
    FlightData,
    FlightDescriptor,
    FlightInfo,
    SessionOptionValue,
    SetSessionOptionsRequest,
    Ticket,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionCreatePreparedStatementRequest,
    CommandGetSqlInfo,
    CommandGetTables,
    CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
    TicketStatementQuery,
)
from gateway.drivers.flight.service import Call, FlightService
from gateway.failures import MAPPED
from gateway.security.principals import Principal
from gateway.statements.session import Session
from tests.gateway.drivers.flight.conftest import Served
from tests.gateway.scripted_gateway import SMALL

SERVICE = "/arrow.flight.protocol.FlightService/"
FEW, MANY = 5_000, 100_000
SEED = 7
ASKED = CommandStatementQuery(query="SELECT nope FROM nowhere")
SQL = ("SELECT x FROM nowhere WHERE a = ?", "CREATE TABLE", "SHOW TABLES LIKE", "SET a", "\x00", "é💡" * 50)
SAMPLES = [
    *(messages.pack(CommandStatementQuery(query=sql)) for sql in SQL),
    messages.pack(CommandGetTables(include_schema=True, table_name_filter_pattern="b%\\")),
    messages.pack(CommandGetXdbcTypeInfo(data_type=12)),
    messages.pack(CommandGetSqlInfo(info=[0, 8, 4711])),
    messages.pack(CommandPreparedStatementQuery(prepared_statement_handle=b"x" * 16)),
    messages.pack(TicketStatementQuery(statement_handle=b"x" * 16)),
    messages.pack(ActionCreatePreparedStatementRequest(query="SELECT ? FROM nowhere")),
    CancelFlightInfoRequest(info=FlightInfo(app_metadata=b"y")).SerializeToString(),
    SetSessionOptionsRequest(session_options={"a": SessionOptionValue(string_value="b")}).SerializeToString(),
]
ACTIONS = ("CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo", "CancelQuery", "SetSessionOptions")


def by_chance() -> random.Random:
    return random.Random(SEED)  # noqa: S311 - no secret


def mangled(chance: random.Random) -> bytes:
    """Return a message that somebody cut, turned, filled up or made up."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(200))
    taken = bytearray(chance.choice(SAMPLES))
    for _ in range(chance.randrange(4)):
        match chance.randrange(4):
            case 0:
                taken = taken[: chance.randrange(len(taken) + 1)]
            case 1 if taken:
                taken[chance.randrange(len(taken))] = chance.randrange(256)
            case 2:
                taken += chance.randbytes(chance.randrange(20))
            case _:
                taken = bytearray(chance.choice(SAMPLES)) + taken
    return bytes(taken)


def requests(chance: random.Random, cases: int) -> Iterator[tuple[str, bytes]]:
    """Return calls and their requests: mangled, or mangled within a whole envelope."""
    for _ in range(cases):
        inner = mangled(chance)
        descriptor = FlightDescriptor(type=2, cmd=inner).SerializeToString()
        choices: list[tuple[str, bytes]] = [
            ("get_flight_info", descriptor),
            ("get_schema", descriptor),
            ("poll_flight_info", descriptor),
            ("do_get", Ticket(ticket=inner).SerializeToString()),
            ("do_action", Action(type=chance.choice(ACTIONS), body=inner).SerializeToString()),
            ("do_put", FlightData(flight_descriptor={"type": 2, "cmd": inner}).SerializeToString()),
            (chance.choice(("get_flight_info", "do_get", "do_action", "do_put")), inner),
        ]
        yield chance.choice(choices)


@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.thorough)])
def test_any_bytes_get_an_answer_or_a_typed_error(scripted: Served, cases: int) -> None:
    service: FlightService = scripted.server.service
    session = service.sessions.open(Session(Principal("tester", address="127.0.0.1"), deadline_s=10.0))
    call = Call(session, lambda act: None)
    answered = refused = 0
    for name, request in requests(by_chance(), cases):
        method: Callable[..., Any] = getattr(service, name)
        try:
            reply = method(iter([request]) if name == "do_put" else request, call)
            if name == "do_get":
                list(reply)
            answered += 1
        except (*MAPPED, Malformed):
            refused += 1

    assert answered > cases // 100
    assert refused > cases // 2


def test_wrong_bytes_over_the_wire_are_invalid_arguments(scripted: Served) -> None:
    chance = by_chance()
    with grpc.insecure_channel(scripted.server.address) as channel:
        for name in ("GetFlightInfo", "GetSchema", "PollFlightInfo", "DoGet", "DoAction", "DoPut"):
            kind = {"DoGet": channel.unary_stream, "DoAction": channel.unary_stream, "DoPut": channel.stream_stream}
            method = kind.get(name, channel.unary_unary)(f"{SERVICE}{name}")
            for _ in range(20):
                garbage = b"\xff" + chance.randbytes(50)
                with pytest.raises(grpc.RpcError) as caught:
                    reply = method(iter([garbage]) if name == "DoPut" else garbage)
                    list(reply)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert "are no" in caught.value.details()


def test_unknown_calls_and_messages_that_are_too_long_are_refused(scripted: Served) -> None:
    with grpc.insecure_channel(scripted.server.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(f"{SERVICE}DoExchange")(iter([b""])))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{SERVICE}GetFlightInfo")(bytes(4 << 20))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("header", ["é", "Bearer", "Bearer é", "Basic \x7f", "x" * 4_000])
def test_headers_that_are_no_login_are_none(scripted: Served, header: str) -> None:
    with grpc.insecure_channel(scripted.server.address) as channel:
        listed = channel.unary_stream(f"{SERVICE}ListActions")
        sent = (("authorization", header.encode("latin-1")), ("cookie", b"\xff=;;=\xfe"))
        try:
            assert list(listed(b"", metadata=sent))
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL)
            assert "Traceback" not in error.details()


def test_parameters_that_are_not_arrows_are_refused(scripted: Served) -> None:
    service: FlightService = scripted.server.service
    session = service.sessions.open(Session(Principal("tester", address="127.0.0.1"), deadline_s=10.0))
    call = Call(session, lambda act: None)
    asked = ActionCreatePreparedStatementRequest(query="SELECT ? AS answer")
    action = Action(type="CreatePreparedStatement", body=messages.pack(asked))
    (result,) = service.do_action(action.SerializeToString(), call)
    handle = messages.unpack(result.body)[1].prepared_statement_handle
    command = messages.pack(CommandPreparedStatementQuery(prepared_statement_handle=handle))
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict({"0": ["a text"]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sent = list(pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())))
    chance = by_chance()
    bound = 0
    for _ in range(3_000):
        pieces = []
        for message in sent:
            header, body = bytearray(message.metadata), bytearray(message.body or b"")
            for part in (header, body):
                if part and chance.random() < 0.5:
                    part[chance.randrange(len(part))] = chance.randrange(256)
            pieces.append(FlightData(data_header=bytes(header), data_body=bytes(body)))
        pieces[0].flight_descriptor.type = 2
        pieces[0].flight_descriptor.cmd = command
        try:
            service.do_put((piece.SerializeToString() for piece in pieces), call)
            bound += 1
        except (*MAPPED, Malformed):
            continue

    assert bound


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_parameters_that_would_have_to_be_unpacked_are_refused(scripted: Served, compression: str | None) -> None:
    batch = pa.record_batch({"0": ["x" * 100_000]})
    with arrow_flight.connect(f"grpc://{scripted.server.address}") as client:
        options = arrow_flight.FlightCallOptions(
            headers=[client.authenticate_basic_token("tester", "")],
            write_options=pa.ipc.IpcWriteOptions(compression=compression),
        )
        asked = messages.pack(ActionCreatePreparedStatementRequest(query="SELECT ? AS answer"))
        (result,) = client.do_action(arrow_flight.Action("CreatePreparedStatement", asked), options)
        handle = messages.unpack(result.body.to_pybytes())[1].prepared_statement_handle
        bound = CommandPreparedStatementQuery(prepared_statement_handle=handle)
        descriptor = arrow_flight.FlightDescriptor.for_command(messages.pack(bound))
        writer, replies = client.do_put(descriptor, batch.schema, options)
        writer.write_batch(batch)
        writer.done_writing()
        if compression is None:
            assert replies.read() is not None
            writer.close()
        else:
            with pytest.raises(pa.ArrowInvalid, match="Parameters must not be compressed"):
                writer.close()


def test_many_silent_connections_disturb_nobody(scripted: Served) -> None:
    host, _, port = scripted.server.address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(500)]
    for number, each in enumerate(silent):
        each.send(b"" if number % 2 else b"GET / HTTP/1.1\r\n\r\n")
    try:
        with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(SMALL)
            assert cursor.fetchall() == [(42,), (43,)]
    finally:
        for each in silent:
            each.close()
