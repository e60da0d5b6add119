"""Clients of each door, as cheap as clients can be: a driver's calls in their order, and little read of the replies.

Which calls a driver makes for a statement of one row is held against the drivers themselves by a test. What is not
imitated is what a driver does with the rows.

It is long because each door has its line, by which calls go and replies come, and its drivers' calls.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Protocol
from urllib.parse import urlsplit

import grpc
import typer

from benchmarks import http2
from benchmarks.claim import RunFailed
from benchmarks.hs2_client import RawClient, call_bytes, reply_of
from benchmarks.server_process import GatewayProcess
from gateway.drivers.flight.messages import FLIGHT, DescriptorType, pack, unpack
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    FlightDescriptor,
    FlightInfo,
    Result,
    SessionOptionValue,
    SetSessionOptionsRequest,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
)
from gateway.drivers.hs2.protocol import messages, thrift
from gateway.drivers.hs2.protocol.messages import FetchRequest, HandleIdentifier, OperationHandle, OperationRequest
from gateway.drivers.hs2.protocol.thrift import Struct, Wire

USER = "bench"
WAIT_S = 60
READ_BYTES = 256 << 10
SERVICE = f"/{FLIGHT}.FlightService"
V6 = 5  # of HiveServer2's protocol, which counts from V1 = 0
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_FINISHED = b'"state":"FINISHED"'

Script = Generator[bytes, bytes, bool]
"""The calls of one statement: yields what to send, is sent the reply; returns whether all went well."""


class Driver(StrEnum):
    """Whose calls are made. HTTP: one call; FLIGHT_SQL: a statement that is not prepared, as JDBC's runs one."""

    HTTP = "HTTP"
    PYHIVE = "PyHive"
    IMPYLA = "impyla"
    FLIGHT_SQL = "Flight SQL"
    ADBC = "ADBC"

    @property
    def key(self) -> str:
        """Tell how figures name it."""
        return self.name.lower()


DriversOption = Annotated[str, typer.Option(help="Only these, with commas between them: http,pyhive,adbc.")]


def drivers_named(names: str) -> list[Driver]:
    """Return the drivers that an option names, all where it names none. Raises RunFailed."""
    known = {driver.key: driver for driver in Driver}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise RunFailed(f"no driver {unknown[0]}; there are {', '.join(known)}")
    return [known[name] for name in wanted] or list(Driver)


class Line(Protocol):
    """A connection that carries one call at a time."""

    socket: socket.socket

    def send(self, call: bytes) -> None:
        """Send a call; it fits into what the kernel takes at once."""

    def take(self) -> bytes | None:
        """Read what has come; return the reply once it is whole. Raises ConnectionError where the server has left."""

    def leave(self) -> None:
        """End what does not end with the connection."""


class Conversation:
    """One client, with the statement that is on its way. calls: that were answered so far.

    succeeded: whether the last statement did.
    """

    def __init__(self, line: Line, script: Callable[[str], Script]) -> None:
        self.socket = line.socket
        self.calls = 0
        self.succeeded = False
        self._line = line
        self._script = script
        self._replies = list[bytes]()

    def ask(self, sql: str) -> None:
        """Send a statement's first call."""
        self._running = self._script(sql)
        self._replies = []
        self._line.send(next(self._running))

    def take(self) -> bytes | None:
        """Read what has come, and go on; return all replies once the statement is answered."""
        reply = self._line.take()
        if reply is None:
            return None
        self.calls += 1
        self._replies.append(reply)
        try:
            self._line.send(self._running.send(reply))
        except StopIteration as end:
            self.succeeded = end.value
            return b"".join(self._replies)
        return None

    def answer(self, sql: str) -> bytes:
        """Ask a statement, and wait for its end; returns all replies."""
        self.ask(sql)
        while (replies := self.take()) is None:
            pass
        return replies

    def close(self) -> None:
        """Leave. Sessions that do not end with their connection are closed."""
        self._line.leave()
        self.socket.close()


def address(gateway: GatewayProcess, driver: Driver) -> str:
    """Return host:port of the door that a driver goes through."""
    match driver:
        case Driver.HTTP:
            return urlsplit(gateway.url).netloc
        case Driver.PYHIVE | Driver.IMPYLA:
            return gateway.told["drivers"]
        case Driver.FLIGHT_SQL | Driver.ADBC:
            return gateway.told["flight"]


def connect(driver: Driver, address: str, settings: Mapping[str, str]) -> Conversation:
    """Connect as a driver, with a session where the door has sessions. address: host:port; settings: of the session."""
    match driver:
        case Driver.HTTP:
            return Conversation(_HttpLine(_connected(address)), partial(_http_calls, address, settings))
        case Driver.PYHIVE | Driver.IMPYLA:
            client = RawClient(*_host_and_port(address), user=USER, password=USER)
            return Conversation(_Hs2Line(client.socket), _hs2_script(client, HS2_CALLS[driver], settings))
        case Driver.FLIGHT_SQL | Driver.ADBC:
            line = Http2Line(address, flight_token(address))
            if settings:
                line.ask("DoAction", _options(settings))
            return Conversation(line, partial(_flight_sql_calls if driver is Driver.FLIGHT_SQL else _adbc_calls, line))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _connected(address: str) -> socket.socket:
    connected = socket.create_connection(_host_and_port(address))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _received(connected: socket.socket) -> bytes:
    received = connected.recv(READ_BYTES)
    if not received:
        raise ConnectionError("the server closed the connection")
    return received


# ---------------------------------------------------------------------- HTTP


class _HttpLine:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._reply = b""

    def send(self, call: bytes) -> None:
        self._reply = b""
        self.socket.sendall(call)

    def take(self) -> bytes | None:
        self._reply += _received(self.socket)
        head, separator, rest = self._reply.partition(_HEAD_END)
        if not separator:
            return None
        _, _, told = head.lower().partition(_LENGTH)
        return self._reply if len(rest) >= int(told.partition(b"\r\n")[0]) else None

    def leave(self) -> None:
        pass


def _http_calls(address: str, settings: Mapping[str, str], sql: str) -> Script:
    body = json.dumps({"sql": sql, "wait_s": WAIT_S, "settings": dict(settings)} if settings else {"sql": sql}).encode()
    head = f"POST /v1/queries HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    reply = yield f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return _FINISHED in reply


# ---------------------------------------------------------------------- HiveServer2

_MARK = HandleIdentifier(b"number of 16 oct", b"secret of 16 oct")
_OPERATION = OperationHandle(_MARK, int(messages.OperationType.EXECUTE_STATEMENT), True)
_OF_OPERATION = OperationRequest(_OPERATION)
_MARKED = thrift.encode(_MARK)
_BEFORE_NUMBER = _MARKED[: _MARKED.index(_MARK.guid or b"")]


@dataclass(frozen=True, slots=True)
class Hs2Calls:
    """A driver's calls. then: those after ExecuteStatement, about the operation; what it waits for is asked again.

    configuration, timeout_s: None where the driver's protocol, or the driver, says nothing.
    """

    configuration: Mapping[str, str] | None
    timeout_s: int | None
    run_async: bool
    then: tuple[tuple[str, Struct], ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of all calls."""
        return ("ExecuteStatement", *(method for method, _ in self.then))


HS2_CALLS: Mapping[Driver, Hs2Calls] = {
    Driver.PYHIVE: Hs2Calls(
        configuration={},
        timeout_s=0,
        run_async=False,
        then=(
            ("FetchResults", FetchRequest(_OPERATION, max_rows=1_000)),
            ("GetResultSetMetadata", _OF_OPERATION),
            ("FetchResults", FetchRequest(_OPERATION, max_rows=1_000)),
            ("CloseOperation", _OF_OPERATION),
        ),
    ),
    Driver.IMPYLA: Hs2Calls(
        configuration=None,
        timeout_s=None,
        run_async=True,
        then=(
            ("GetOperationStatus", _OF_OPERATION),
            ("GetResultSetMetadata", _OF_OPERATION),
            ("FetchResults", FetchRequest(_OPERATION, max_rows=10_240)),
            ("FetchResults", FetchRequest(_OPERATION, max_rows=10_240)),
            ("GetLog", _OF_OPERATION),
            ("CloseImpalaOperation", _OF_OPERATION),
        ),
    ),
}
_STATUS_OK = thrift.field_head(Wire.STRUCT, 1) + thrift.encode(messages.Status())[:-1]  # a struct more may follow
RUNNING = {messages.OperationState.RUNNING, messages.OperationState.PENDING}


class _Hs2Line:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(None)
        self._reply = b""

    def send(self, call: bytes) -> None:
        self._reply = b""
        self.socket.sendall(len(call).to_bytes(4, "big") + call)

    def take(self) -> bytes | None:
        self._reply += _received(self.socket)
        whole = len(self._reply) >= 4 + int.from_bytes(self._reply[:4], "big")
        return self._reply[4:] if whole and len(self._reply) > 4 else None

    def leave(self) -> None:
        pass


def _hs2_script(client: RawClient, calls: Hs2Calls, settings: Mapping[str, str]) -> Callable[[str], Script]:
    """Open a session; returns what asks in it."""
    told = {f"set:hiveconf:{name}": value for name, value in settings.items()}
    configuration = None if calls.configuration is None and not told else {**(calls.configuration or {}), **told}
    opening = messages.OpenSessionRequest(version=V6, configuration=configuration)
    opened = client.ask("OpenSession", opening, messages.OpenSessionReply)
    if opened.session is None:
        raise ConnectionError(opened.status.message)
    session = opened.session
    then = [(method, *_around_handle(call_bytes(method, request))) for method, request in calls.then]

    def script(sql: str) -> Script:
        execute = messages.ExecuteRequest(session, sql, None, calls.run_async, calls.timeout_s)
        reply = yield call_bytes("ExecuteStatement", execute)
        handle, succeeded = _handle_in(reply), _STATUS_OK in reply
        for method, before, after in then if handle else ():
            reply = yield before + handle + after
            while method == "GetOperationStatus" and reply_of(reply, messages.StatusReply).state in RUNNING:
                reply = yield before + handle + after
            succeeded &= _STATUS_OK in reply or method == "GetLog"
        return succeeded

    return script


def _around_handle(call: bytes) -> tuple[bytes, bytes]:
    before, _, after = call.partition(_MARKED)
    return before, after


def _handle_in(reply: bytes) -> bytes:
    """Return the number and the secret of the operation as they stand in a reply, empty where there is none."""
    at = reply.find(_BEFORE_NUMBER)
    return reply[at : at + len(_MARKED)] if at >= 0 else b""


# ---------------------------------------------------------------------- Flight SQL


class Http2Line:
    """A connection of gRPC, its windows as wide as they get, so that nobody has to widen them. token: of a session.

    failed: whether the last reply held no message, as those of errors do.
    """

    def __init__(self, address: str, token: str) -> None:
        self.socket = _connected(address)
        self.socket.sendall(http2.greeting())
        login = {"authorization": f"Bearer {token}"}
        methods = "GetFlightInfo", "DoGet", "DoAction"
        self._headers = {
            method: http2.call_headers(f"{SERVICE}/{method}", address, login.items()) for method in methods
        }
        self._frames = http2.Frames()
        self._stream = -1
        self.failed = False
        self._reply = list[bytes]()

    def call(self, method: str, message: bytes) -> bytes:
        """Return a call, of the next stream."""
        self._stream += 2
        self._reply = []
        return http2.request(self._stream, self._headers[method], message)

    def send(self, call: bytes) -> None:
        """Send a call."""
        self.socket.sendall(call)

    def ask(self, method: str, message: bytes) -> list[bytes]:
        """Make a call and wait for its end; returns its messages, none where it failed. Raises ConnectionError."""
        self.send(self.call(method, message))
        while (told := self.take()) is None:
            pass
        return list(self.messages(told))

    def leave(self) -> None:
        """End the session."""
        self.ask("DoAction", _action("CloseSession", b""))

    def take(self) -> bytes | None:
        """Return a reply's data once it has ended, of an error its trailers. Raises ConnectionError."""
        whole = None
        for frame in self._received():
            if frame.kind == http2.FrameKind.DATA:
                self._reply.append(frame.payload)
            if _is_last(frame):
                self.failed = not self._reply
                whole = frame.payload if self.failed else b"".join(self._reply)
        return whole

    def frames(self) -> Iterator[http2.Frame]:
        """Yield the frames of a reply, to its end. Raises ConnectionError."""
        while True:
            for frame in self._received():
                yield frame
                if _is_last(frame):
                    return

    def _received(self) -> Iterator[http2.Frame]:
        """Yield what has come of the reply; what is of the connection is answered."""
        for frame in self._frames.feed(_received(self.socket)):
            if frame.stream == self._stream:
                yield frame
            elif frame.kind == http2.FrameKind.GOAWAY:
                raise ConnectionError("the server wants no more calls")
            elif answer := http2.answer_to(frame):
                self.socket.sendall(answer)

    def messages(self, reply: bytes) -> Iterator[bytes]:
        """Yield gRPC's messages in the last reply; an error has none."""
        return iter(()) if self.failed else http2.messages(reply)


def _is_last(frame: http2.Frame) -> bool:
    return frame.ends_stream or frame.kind == http2.FrameKind.RST_STREAM


def flight_infos(line: Http2Line, sql: str) -> list[FlightInfo]:
    """Run a statement; returns where its rows are, nothing where it failed."""
    told = line.ask("GetFlightInfo", _descriptor(pack(CommandStatementQuery(query=sql))))
    return [FlightInfo.FromString(message) for message in told]


def flight_token(address: str) -> str:
    """Log in; returns the token of a session. Raises ConnectionError."""
    with grpc.insecure_channel(address) as channel:
        handshake = channel.stream_stream(f"{SERVICE}/Handshake")
        call = handshake(iter(()))
        told = dict(call.initial_metadata())
        if "authorization" not in told:
            raise ConnectionError(f"no session: {call.details()}")
        list(call)
    return str(told["authorization"]).removeprefix("Bearer ")


def _options(settings: Mapping[str, str]) -> bytes:
    options = {name: SessionOptionValue(string_value=value) for name, value in settings.items()}
    return _action("SetSessionOptions", SetSessionOptionsRequest(session_options=options).SerializeToString())


def _action(kind: str, body: bytes) -> bytes:
    return bytes(Action(type=kind, body=body).SerializeToString())


def _flight_sql_calls(line: Http2Line, sql: str) -> Script:
    return (yield from _rows_of(line, pack(CommandStatementQuery(query=sql))))


def _adbc_calls(line: Http2Line, sql: str) -> Script:
    asked = pack(ActionCreatePreparedStatementRequest(query=sql))
    made = yield line.call("DoAction", _action("CreatePreparedStatement", asked))
    succeeded = False
    for message in line.messages(made):
        handle = unpack(Result.FromString(message).body)[1].prepared_statement_handle
        succeeded = yield from _rows_of(line, pack(CommandPreparedStatementQuery(prepared_statement_handle=handle)))
        closing = pack(ActionClosePreparedStatementRequest(prepared_statement_handle=handle))
        yield line.call("DoAction", _action("ClosePreparedStatement", closing))
    return succeeded


def _rows_of(line: Http2Line, command: bytes) -> Script:
    told = yield line.call("GetFlightInfo", _descriptor(command))
    succeeded = False
    for message in line.messages(told):
        for endpoint in FlightInfo.FromString(message).endpoint:
            yield line.call("DoGet", endpoint.ticket.SerializeToString())
            succeeded = not line.failed
    return succeeded


def _descriptor(command: bytes) -> bytes:
    return bytes(FlightDescriptor(type=DescriptorType.COMMAND, cmd=command).SerializeToString())
