"""Clients that read through every door while gateways are killed, and say what became of each read."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
import httpx
from pyhive import hive  # type: ignore[import-untyped]  # has no types
from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]  # has none
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]  # has none
from thrift_sasl import TSaslClientTransport  # type: ignore[import-untyped]  # has none

from benchmarks.hs2_client import call_bytes, reply_of
from gateway.drivers.flight import messages as flight
from gateway.drivers.flight.protocol.flight_pb2 import FlightDescriptor, FlightInfo, PollInfo
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery
from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchReply,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    OperationRequest,
    OperationState,
    Reply,
    SessionHandle,
    SessionRequest,
    StatusReply,
    StatusRequest,
)
from gateway.drivers.hs2.protocol.thrift import Struct

ENDS_S = 120.0
PAUSE_S = 0.3
AGAIN = ("METASTORE_UNAVAILABLE", "GATEWAY_STOPPED")  # codes of what may be sent again
OF_A_SESSION = 8  # statements, before a client opens another one
T = TypeVar("T")
R = TypeVar("R", bound=Struct)


@dataclass(frozen=True)
class Doors:
    """Addresses of the balancer. hive, flight: host and port."""

    url: str
    hive: str
    flight: str


@dataclass
class Story:
    """What clients saw.

    outcomes: by door and word. wrong: answers that are not right. ids: of queries over HTTP.
    slowest_s: the longest that one request took, over HTTP and Flight.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    slowest_s: float = 0.0

    def ended(self, door: str, outcome: str) -> None:
        self.outcomes[f"{door}: {outcome}"] += 1

    def checked(self, door: str, what: str, right: bool) -> None:
        if right:
            self.ended(door, "answered")
        else:
            self.wrong.append(f"{door}: {what}")

    def again(self, door: str, attempt: Callable[[], T | None], *, is_one_request: bool = True) -> T:
        """Repeat what a gateway's death has cut off, as a client does whose request may be sent again."""
        until_s = time.monotonic() + ENDS_S
        while (done := self._timed(attempt) if is_one_request else attempt()) is None:
            assert time.monotonic() < until_s, f"{door}: nobody answers"
            self.ended(door, "sent again")
            time.sleep(PAUSE_S)
        return done

    def _timed(self, attempt: Callable[[], T]) -> T:
        began_s = time.monotonic()
        done = attempt()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        return done


Statement = tuple[str, int]


def over_http(doors: Doors, story: Story, sql: str, expected: int) -> None:
    """Send a read and poll for its end, each request to whichever gateway the balancer chooses."""
    with httpx.Client(base_url=doors.url, timeout=60) as client:

        def told(request: Callable[[], httpx.Response]) -> httpx.Response:
            def attempt() -> httpx.Response | None:
                with suppress(httpx.TransportError):
                    reply = request()
                    return reply if reply.status_code not in (502, 503, 504) else None
                return None

            return story.again("http", attempt)

        submitted = told(lambda: client.post("/v1/queries", json={"sql": sql, "wait_s": 0, "settings": {}}))
        query_id = submitted.json()["id"]
        story.ids.add(query_id)
        until_s = time.monotonic() + ENDS_S
        while True:
            assert time.monotonic() < until_s, f"{query_id} does not end"
            record = told(lambda: client.get(f"/v1/queries/{query_id}")).json()
            if record["state"] == "FINISHED":
                if record["rows"] is None:  # its rows lie with a gateway that is gone, or just starts again
                    result = client.get(f"/v1/queries/{query_id}/result")
                    if result.status_code == 200:
                        continue
                    story.ended("http", "RESULT_GONE" if result.status_code in (410, 502, 503) else result.text)
                    return
                story.checked("http", query_id, record["rows"] == [[expected]])
                if any(attempt["failure"] == "GATEWAY_LOST" for attempt in record["attempts"]):
                    story.outcomes["taken over"] += 1
                return
            if record["state"] in ("FAILED", "CANCELLED"):
                story.ended("http", record["error"]["code"])
                return
            time.sleep(0.05)


class HiveOverHttp:
    """A driver of Hive over HTTP, whose session outlives gateways."""

    def __init__(self, doors: Doors, story: Story) -> None:
        self._client = httpx.Client(base_url=doors.url, timeout=60)
        self._story = story
        self._session: SessionHandle | None = None
        self._left = 0

    def ask(self, sql: str, expected: int) -> None:
        if self._session is None or not self._left:
            self._open()
        self._left -= 1
        assert self._session is not None
        session = self._session
        started = self._begun("ExecuteStatement", ExecuteRequest(session, sql, run_async=True), OperationReply)
        operation = started.operation
        assert operation is not None
        until_s = time.monotonic() + ENDS_S
        while True:
            assert time.monotonic() < until_s, "it does not end"
            reply = self._call("GetOperationStatus", StatusRequest(operation), StatusReply)
            if reply.state not in (OperationState.PENDING, OperationState.RUNNING):
                break
            time.sleep(0.05)
        if reply.state != OperationState.FINISHED:
            self._story.ended("hive over http", _word(reply.message or reply.status.message))
            return
        fetch = FetchRequest(operation, FetchOrientation.FIRST, 10)  # from the first row, however often it is sent
        content = self._content("FetchResults", fetch)
        refused = reply_of(content, FetchReply).status.message
        if refused is not None:
            self._story.ended("hive over http", _word(refused))
        else:
            self._story.checked("hive over http", sql, expected.to_bytes(8, "big") in content)
        self._call("CloseOperation", OperationRequest(operation), Reply)

    def _open(self) -> None:
        if self._session is not None:
            self._call("CloseSession", SessionRequest(self._session), Reply)
        self._session = self._begun("OpenSession", OpenSessionRequest(), OpenSessionReply).session
        self._left = OF_A_SESSION

    def _begun(self, method: str, request: Struct, kind: type[R]) -> R:
        """Send what may be sent again where the metastore is away."""

        def attempt() -> R | None:
            reply = self._call(method, request, kind)
            message = getattr(reply, "status").message  # noqa: B009 - of every reply, not of every struct
            assert message is None or _word(message) == "METASTORE_UNAVAILABLE", message
            return reply if message is None else None

        return self._story.again("hive over http", attempt, is_one_request=False)

    def _call(self, method: str, request: Struct, kind: type[R]) -> R:
        return reply_of(self._content(method, request), kind)

    def _content(self, method: str, request: Struct) -> bytes:
        def attempt() -> bytes | None:
            with suppress(httpx.TransportError):
                content, headers = call_bytes(method, request), {"content-type": CONTENT_TYPE}
                reply = self._client.post("/cliservice", content=content, headers=headers)
                return reply.content if reply.status_code == 200 else None
            return None

        return self._story.again("hive over http", attempt)


class HiveOverTcp:
    """PyHive, which connects again when its connection is cut off."""

    def __init__(self, doors: Doors, story: Story) -> None:
        self._host, _, port = doors.hive.rpartition(":")
        self._port = int(port)
        self._story = story
        self._connection: Any = None
        self._socket: Any = None

    def ask(self, sql: str, expected: int) -> None:
        def attempt() -> list[Any] | str | None:
            try:
                if self._connection is None:
                    self._connection = self._connected()
                cursor = self._connection.cursor()
                cursor.execute(sql)
                return list(cursor.fetchall())
            except (TTransportException, OSError, EOFError):
                self._socket.close()
                self._connection = None
            except hive.OperationalError as error:
                word = _word(error.args[0].status.errorMessage)
                return None if word == "METASTORE_UNAVAILABLE" else word
            return None

        outcome = self._story.again("hive over tcp", attempt, is_one_request=False)
        if isinstance(outcome, str):
            self._story.ended("hive over tcp", outcome)
        else:
            self._story.checked("hive over tcp", sql, outcome == [(expected,)])

    def _connected(self) -> Any:
        """Connect as PyHive does, over a socket that is closed whatever happens to it."""
        self._socket = TSocket(self._host, self._port)
        login = partial(hive.get_pure_sasl_client, self._host, sasl_auth="PLAIN", username="ada", password="x")
        return hive.connect(thrift_transport=TSaslClientTransport(login, "PLAIN", self._socket))


class Flight:
    """A client of Flight SQL with a token, which outlives gateways."""

    _service = "/arrow.flight.protocol.FlightService/"

    def __init__(self, doors: Doors, story: Story) -> None:
        options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 500)]
        self._channel = grpc.insecure_channel(doors.flight, options)
        self._story = story
        self._headers: list[tuple[str, str]] = []

    def ask(self, sql: str, expected: int) -> None:
        descriptor = FlightDescriptor(type=2, cmd=flight.pack(CommandStatementQuery(query=sql)))
        until_s = time.monotonic() + ENDS_S
        try:
            while True:
                assert time.monotonic() < until_s, "it does not end"
                content = descriptor.SerializeToString()
                polled = flight.read(PollInfo, self._called(self._poll, content))
                if not polled.flight_descriptor.cmd:
                    break
                descriptor = polled.flight_descriptor
            info = FlightInfo.FromString(polled.info.SerializeToString())
            ticket = info.endpoint[0].ticket.SerializeToString()
            rows = self._called(self._get, ticket)
            self._story.checked("flight", sql, any(expected.to_bytes(8, "little") in each for each in rows))
        except grpc.RpcError as error:
            codes = dict(error.trailing_metadata() or ())
            self._story.ended("flight", codes.get("fusion-code", f"{error.code()}: {error.details()}"))

    def _poll(self, content: bytes) -> bytes:
        call = self._channel.unary_unary(f"{self._service}PollFlightInfo")
        reply, told = call.with_call(content, metadata=self._headers, timeout=60)
        headers = dict(told.initial_metadata())
        if "authorization" in headers and not self._headers:
            self._headers = [("authorization", headers["authorization"])]
        return bytes(reply)

    def _get(self, ticket: bytes) -> list[bytes]:
        return list(self._channel.unary_stream(f"{self._service}DoGet")(ticket, metadata=self._headers, timeout=60))

    def _called(self, call: Callable[[bytes], T], content: bytes) -> T:
        def attempt() -> T | None:
            try:
                return call(content)
            except grpc.RpcError as error:
                code = dict(error.trailing_metadata() or ()).get("fusion-code", "")
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:  # its token was not told to others yet
                    self._headers = []
                elif error.code() is not grpc.StatusCode.UNAVAILABLE or code not in ("", *AGAIN):
                    raise
            return None

        return self._story.again("flight", attempt)


def _word(message: str | None) -> str:
    """Return the code of an error that a driver of Hive is told in words."""
    message = message or ""
    if "stopped before the query ended" in message:
        return "GATEWAY_LOST"
    if "metastore" in message.lower():
        return "METASTORE_UNAVAILABLE"
    if "no longer kept" in message or "may have been fetched" in message:
        return "RESULT_GONE"
    return message


def clients(doors: Doors, story: Story, count: int, statements: tuple[Statement, ...]) -> list[threading.Thread]:
    """Start clients, a quarter of them at each door."""

    def serve(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        ask: Callable[[str, int], None]
        match seed % 4:
            case 0:
                ask = lambda sql, expected: over_http(doors, story, sql, expected)  # noqa: E731 - one of four
            case 1:
                ask = HiveOverHttp(doors, story).ask
            case 2:
                ask = HiveOverTcp(doors, story).ask
            case _:
                ask = Flight(doors, story).ask
        try:
            while not story.stopping.is_set():
                ask(*chance.choice(statements))
        except BaseException as error:  # told by the test
            story.failures.append(error)

    threads = [threading.Thread(target=serve, args=(seed,), daemon=True) for seed in range(count)]
    for thread in threads:
        thread.start()
    return threads
