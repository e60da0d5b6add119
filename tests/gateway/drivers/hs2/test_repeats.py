"""Calls that a client repeats over one HTTP connection, as JDBC's driver does for every row that it reads."""

from __future__ import annotations

import base64
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from benchmarks.hs2_client import call_bytes, reply_of
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    OperationRequest,
    OperationState,
    Reply,
    StatusReply,
    StatusRequest,
)
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.server.connections import protocol
from gateway.settings import AuthenticationSettings
from tests.gateway.drivers.hs2.conftest import Drivers

pytestmark = pytest.mark.e2e
WITHIN_S = 10.0
TIMES = 50
FIRST = 2  # of which one makes the answer, and the other one has the connection keep it
ANSWER = struct.pack(">q", 42)  # in a row set
NO_HANDLE = 4  # InvalidHandle's code for drivers
Answer = tuple[int, dict[str, str], bytes]


class Connection:
    """One HTTP connection, byte by byte."""

    def __init__(self, drivers: Drivers, *, user: str = "joe", password: str = "any") -> None:  # noqa: S107
        self.socket = socket.create_connection((drivers.host, drivers.http_port), timeout=WITHIN_S)
        self.login = (user, password)
        self.operation: Any = None
        self._read = self.socket.makefile("rb")

    def request(self, body: bytes, *, login: tuple[str, str] | None = None) -> bytes:
        """Return a request as a driver writes it."""
        told = base64.b64encode(":".join(login or self.login).encode()).decode()
        lines = ["POST /cliservice HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/x-thrift"]
        lines += [f"Authorization: Basic {told}", f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body

    def status(self, sequence: int = 1) -> bytes:
        """Return the call that is repeated."""
        return call_bytes("GetOperationStatus", StatusRequest(self.operation), sequence)

    def close(self) -> None:
        self._read.close()
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)
            if len(pieces) > 1:
                time.sleep(0.01)

    def receive(self) -> Answer:
        """Read one reply: status, headers, body."""
        status = int(self._read.readline().split()[1])
        headers = {}
        while line := self._read.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, self._read.read(int(headers["content-length"]))
        chunks = []
        while size := int(self._read.readline(), 16):
            chunks.append(self._read.read(size))
            self._read.readline()
        self._read.readline()
        return status, headers, b"".join(chunks)

    def ask(self, body: bytes, **options: Any) -> Answer:
        self.send(self.request(body, **options))
        return self.receive()

    def run(self, sql: str) -> None:
        """Run a statement to its end, and have the connection know its status."""
        opened = reply_of(self.ask(call_bytes("OpenSession", OpenSessionRequest()))[2], OpenSessionReply)
        asked = ExecuteRequest(opened.session, sql)
        self.operation = reply_of(self.ask(call_bytes("ExecuteStatement", asked))[2], OperationReply).operation
        for _ in range(FIRST):
            told = reply_of(self.ask(self.status())[2], StatusReply)
            assert told.state == OperationState.FINISHED, told


@pytest.fixture
def connection(drivers: Drivers) -> Iterator[Connection]:
    with closing(Connection(drivers)) as connection:
        connection.run("SELECT 1")
        yield connection


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Tell how many requests went the usual way, on which each shows its login."""
    seen, recognise = [], UsersFile.recognise

    def noted(self: UsersFile, login: Any) -> Any:
        seen.append(login)
        return recognise(self, login)

    monkeypatch.setattr(UsersFile, "recognise", noted)
    return lambda: len(seen)


def test_the_reply_is_the_usual_one(connection: Connection, logins: Callable[[], int]) -> None:
    usual = connection.ask(connection.status(), login=("joe", "another"))
    assert logins() == 1
    connection.ask(connection.status())
    assert logins() == 2
    quick = connection.ask(connection.status())
    assert logins() == 2
    assert quick[0] == usual[0] == 200
    assert quick[2] == usual[2]
    for headers in (quick[1], usual[1]):
        assert headers.pop("date")
        headers.pop("transfer-encoding", None)
        headers.pop("content-length", None)
    assert quick[1] == usual[1]


def test_each_reply_has_the_number_of_its_call(connection: Connection, logins: Callable[[], int]) -> None:
    for sequence in range(TIMES):
        _, _, reply = connection.ask(connection.status(sequence))
        assert int.from_bytes(reply[26:30], "big") == sequence
    assert logins() == 0


@pytest.mark.parametrize(
    "cut",
    [
        lambda data: [data[:-20], data[-20:]],
        lambda data: [data[:40], data[40:]],
        lambda data: [data[: data.index(b"\r\n\r\n") + 4], data[data.index(b"\r\n\r\n") + 4 :]],
        lambda data: [bytes([byte]) for byte in data],
    ],
    ids=["in the body", "in the head", "between them", "everywhere"],
)
def test_requests_in_pieces(connection: Connection, cut: Callable[[bytes], Sequence[bytes]]) -> None:
    for sequence in (7, 8):
        connection.send(*cut(connection.request(connection.status(sequence))))
        status, _, reply = connection.receive()
        assert (status, int.from_bytes(reply[26:30], "big")) == (200, sequence)


def test_beelines_question_with_the_progress_is_kept_apart(connection: Connection, logins: Callable[[], int]) -> None:
    plain = connection.status()
    with_progress = call_bytes("GetOperationStatus", StatusRequest(connection.operation, True))
    replies = [reply_of(connection.ask(call)[2], StatusReply) for call in [with_progress, plain] * TIMES]
    assert {reply.state for reply in replies} == {OperationState.FINISHED}
    assert [reply.progress is not None for reply in replies] == [True, False] * TIMES
    asked = logins()
    assert connection.ask(plain)[2] == connection.ask(plain)[2]
    assert logins() == asked
    for _ in range(FIRST):
        connection.ask(with_progress)
    asked = logins()
    for _ in range(TIMES):
        assert reply_of(connection.ask(with_progress)[2], StatusReply).progress is not None
    assert logins() == asked


def test_requests_at_once_are_answered_in_their_order(connection: Connection) -> None:
    calls = [
        connection.status(1),
        connection.status(2),
        call_bytes("GetInfo", OperationRequest()),
        connection.status(3),
    ]
    connection.send(b"".join(map(connection.request, calls)))
    replies = [connection.receive()[2] for _ in calls]
    assert [int.from_bytes(replies[at][26:30], "big") for at in (0, 1, 3)] == [1, 2, 3]


def test_rows_come_in_between(connection: Connection) -> None:
    fetch = call_bytes("FetchResults", FetchRequest(connection.operation, FetchOrientation.NEXT, 100))
    for has_rows in (True, False):
        assert (ANSWER in connection.ask(fetch)[2]) is has_rows
        assert reply_of(connection.ask(connection.status())[2], StatusReply).state == OperationState.FINISHED


def test_what_is_no_such_call_goes_the_usual_way(connection: Connection) -> None:
    call = connection.status()
    assert connection.ask(bytes(len(call)))[0] == 400
    assert connection.ask(call)[0] == 200


def test_only_its_user_learns_of_an_operation(connection: Connection) -> None:
    assert reply_of(connection.ask(connection.status(), login=("ann", "any"))[2], StatusReply).status.code == NO_HANDLE
    assert reply_of(connection.ask(connection.status(), login=("ann", "any"))[2], StatusReply).status.code == NO_HANDLE
    assert reply_of(connection.ask(connection.status())[2], StatusReply).status.code == 0


def test_an_operation_that_is_closed_is_none(connection: Connection) -> None:
    closed = connection.ask(call_bytes("CloseOperation", OperationRequest(connection.operation)))[2]
    assert reply_of(closed, Reply).status.code == 0
    assert reply_of(connection.ask(connection.status())[2], StatusReply).status.code == NO_HANDLE


def test_a_password_that_was_changed_counts_at_once(
    serve: Callable[..., Drivers], tmp_path_factory: pytest.TempPathFactory
) -> None:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text(user_line("joe", "right"), encoding="utf-8")
    drivers = serve(authentication=AuthenticationSettings(users_file=users, anonymous=Anonymous.NEVER))
    with closing(Connection(drivers, password="right")) as connection:
        connection.run("SELECT 1")
        assert connection.ask(connection.status())[0] == 200

        users.write_text(user_line("joe", "changed, and longer"), encoding="utf-8")

        assert connection.ask(connection.status())[0] == 401


def test_a_connection_that_repeats_stays_and_a_silent_one_does_not(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_s = 0.5
    monkeypatch.setattr(protocol, "REQUEST_S", wait_s)
    with closing(Connection(drivers)) as connection:
        connection.run("SELECT 1")
        until_s = time.monotonic() + 4 * wait_s
        while time.monotonic() < until_s:
            assert connection.ask(connection.status())[0] == 200
            time.sleep(wait_s / 5)
        connection.send(connection.request(connection.status())[:-1])
        assert connection.socket.recv(1) == b""
