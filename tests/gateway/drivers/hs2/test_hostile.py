"""What nobody should send: it is refused with a typed error or by closing, it costs little, and nobody else notices."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from gateway.drivers.hs2.dispatch import Dispatcher
from gateway.drivers.hs2.protocol import messages, thrift
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchRequest,
    HandleIdentifier,
    OpenSessionReply,
    OpenSessionRequest,
    OperationHandle,
    OperationReply,
    OperationRequest,
    SessionHandle,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
    TablesRequest,
)
from gateway.drivers.hs2.protocol.thrift import Decoder, Frame, Malformed, Wire
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.service import PendingReply
from gateway.security.authentication import WRONG, Anonymous, user_line
from gateway.security.principals import Principal
from gateway.settings import AuthenticationSettings, Hs2Settings
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.wire import Client, broken, call_bytes, reply_of
from tests.waiting import wait_until

CASES = 100_000
SOCKET_CASES = 300
MIB = 1 << 20
SEED = 20_261_121
HANDLE = SessionHandle(HandleIdentifier(b"g" * 16, b"s" * 16))
OPERATION = OperationHandle(HandleIdentifier(b"o" * 16, b"t" * 16), 0, True)
CALLS = [
    call_bytes("OpenSession", OpenSessionRequest(9, "joe", "any", {"use:database": "default", "set:hiveconf:a": "b"})),
    call_bytes("ExecuteStatement", ExecuteRequest(HANDLE, "SELECT 1", {"a": "b"}, True, 7)),
    call_bytes("GetTables", TablesRequest(HANDLE, "", "%", "b_ks", ["TABLE", "VIEW"])),
    call_bytes("GetOperationStatus", StatusRequest(OPERATION, False)),
    call_bytes("FetchResults", FetchRequest(OPERATION, 0, 1_000, 0)),
    call_bytes("CloseSession", SessionRequest(HANDLE)),
    call_bytes("NoSuchCall", SessionRequest(HANDLE)),
]


def mutations(count: int) -> Iterator[bytes]:
    """Yield calls with bytes changed, put in, taken out, repeated or cut off, and plain noise."""
    chance = random.Random(SEED)  # noqa: S311 - no secret
    edges = [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00" * 4, bytes([Wire.MAP, Wire.STRUCT])]
    for number in range(count):
        if number % 10 == 0:
            yield chance.randbytes(chance.randrange(200))
            continue
        data = bytearray(chance.choice(CALLS))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data) or 1)
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = chance.randbytes(1)
                case 1:
                    edge = chance.choice(edges)
                    data[at : at + len(edge)] = edge
                case 2:
                    data[at:at] = chance.randbytes(chance.randrange(8))
                case 3:
                    del data[at : at + chance.randrange(8)]
                case _:
                    data[at:at] = data[at : at + chance.randrange(64)]
        yield bytes(data)


@pytest.fixture
def dispatcher(drivers: Drivers) -> Dispatcher:
    return Dispatcher(drivers.gateway.hs2)


def settle(outcome: bytes | PendingReply[bytes]) -> None:
    if isinstance(outcome, PendingReply):
        outcome.abandon()


def test_no_bytes_break_the_decoder(dispatcher: Dispatcher, drivers: Drivers) -> None:
    """At least 100,000 cases, each of them answered or refused as malformed, and none at length."""
    peer = Peer("127.0.0.1", Principal("joe", address="127.0.0.1"))
    refused = 0
    slowest_s = 0.0
    cases = [*broken(CALLS), *mutations(CASES)]
    assert len(cases) >= CASES
    for data in cases:
        begun = time.perf_counter()
        try:
            settle(dispatcher.frame(data, peer))
        except Malformed:
            refused += 1
        slowest_s = max(slowest_s, time.perf_counter() - begun)
        if drivers.gateway.hs2.registry.count() > 32:
            drivers.gateway.hs2.registry.leave()
    assert CASES / 4 < refused < len(cases)
    assert slowest_s < 5.0
    drivers.gateway.hs2.registry.leave()


@pytest.mark.parametrize(
    "payload",
    [
        thrift.field_head(Wire.STRING, 1) + struct.pack(">i", 2**31 - 1),
        thrift.field_head(Wire.LIST, 1) + thrift.list_head(Wire.STRUCT, 2**31 - 1),
        thrift.field_head(Wire.LIST, 5) + thrift.list_head(Wire.BYTE, 2**31 - 1),
        thrift.field_head(Wire.MAP, 4) + struct.pack(">bbi", Wire.STRING, Wire.STRING, 2**31 - 1),
        thrift.field_head(Wire.SET, 9) + thrift.list_head(Wire.I64, -1),
        thrift.field_head(Wire.STRUCT, 7) * 10_000,
        (thrift.field_head(Wire.LIST, 7) + thrift.list_head(Wire.LIST, 1)) * 10_000,
        thrift.field_head(Wire.BOOL, 7) * 2 + b"\x01" * 1_000_000,
        b"\x01" * 1_000_000,
    ],
    ids=lambda payload: payload[:8].hex(),
)
def test_lengths_and_depths_that_lie_cost_nothing(payload: bytes) -> None:
    data = thrift.head(thrift.MessageKind.CALL, "OpenSession", 1) + thrift.field_head(Wire.STRUCT, 1) + payload
    decoder = Decoder(Frame(data))
    decoder.call()
    begun = time.process_time()
    with pytest.raises(Malformed):
        decoder.arguments(OpenSessionRequest)
    assert time.process_time() - begun < 2.0


def test_sockets_full_of_noise_are_closed(drivers: Drivers) -> None:
    process = psutil.Process()
    with Client(drivers) as bystander:
        session = bystander.open_session()
        before = process.memory_info().rss
        for number, data in enumerate(mutations(SOCKET_CASES)):
            with Client(drivers, user="noise" if number % 3 else None) as client:
                if number % 3 == 1:
                    client.send(data)
                else:  # as it is: half a handshake, half a frame, another protocol
                    client.socket.sendall(data)
                client.socket.shutdown(socket.SHUT_WR)
                assert client.is_closed(), data
        told = bystander.ask("GetCatalogs", SessionRequest(session), OperationReply)
        assert told.status.code == StatusCode.SUCCESS
    wait_until(lambda: drivers.server.connections == 0)
    assert process.memory_info().rss - before < 64 * MIB


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">BI", 1, 2**32 - 1),
        struct.pack(">BI", 1, 5) + b"PLAIN" + struct.pack(">BI", 5, 2**31),
        struct.pack(">BI", 4, 0),
    ],
    ids=["HTTP", "TLS", "a long mechanism", "a long answer", "an error"],
)
def test_other_protocols_are_closed(drivers: Drivers, data: bytes) -> None:
    with Client(drivers, user=None) as client:
        client.socket.sendall(data)
        assert client.is_closed()


def test_another_mechanism_is_refused_in_words(drivers: Drivers) -> None:
    with Client(drivers, user=None) as client:
        client.socket.sendall(struct.pack(">BI", 1, 6) + b"GSSAPI" + struct.pack(">BI", 2, 0))
        status, length = struct.unpack(">BI", client.receive(5))
        assert status == 3
        assert "PLAIN" in client.receive(length).decode()
        assert client.is_closed()


def test_a_frame_of_two_gigabytes_is_not_waited_for(drivers: Drivers) -> None:
    with Client(drivers) as client:
        client.socket.sendall(struct.pack(">I", 2**31))
        assert client.is_closed()


def test_a_message_without_frames_ends_somewhere(drivers: Drivers) -> None:
    with Client(drivers, user=None) as client:
        head = thrift.head(thrift.MessageKind.CALL, "OpenSession", 1) + thrift.field_head(Wire.STRUCT, 1)
        client.socket.sendall(head + thrift.field_head(Wire.STRING, 2) + struct.pack(">i", 2**31 - 1))
        assert client.is_closed()


def test_an_unknown_call_is_answered(drivers: Drivers) -> None:
    with Client(drivers) as client:
        client.send(CALLS[-1])
        reply = Frame(client.frame())
        assert reply.take(4) == struct.pack(">I", thrift.VERSION | thrift.MessageKind.EXCEPTION)
        session = client.open_session()
        assert session.identifier is not None


def test_handles_of_others_are_unknown(drivers: Drivers) -> None:
    """Neither another connection nor another user nor a wrong secret gets at a session or an operation."""
    with Client(drivers) as owner, Client(drivers, user="eve") as other, Client(drivers) as again:
        session = owner.open_session()
        started = owner.ask("ExecuteStatement", ExecuteRequest(session, "SELECT 1"), OperationReply)
        assert started.operation is not None
        assert started.operation.identifier is not None
        assert started.operation.identifier.guid is not None
        forged = OperationHandle(HandleIdentifier(started.operation.identifier.guid, b"x" * 16), 0, True)
        asked = StatusRequest(started.operation)
        assert owner.ask("GetOperationStatus", asked, StatusReply).state == 2
        assert owner.ask("GetOperationStatus", asked, StatusReply).state == 2  # from what was kept
        for client in (other, again):
            told = client.ask("GetOperationStatus", asked, StatusReply)
            assert told.status.code == StatusCode.INVALID_HANDLE
            told = client.ask("ExecuteStatement", ExecuteRequest(session, "SELECT 2"), StatusReply)
            assert told.status.code == StatusCode.INVALID_HANDLE
            told = client.ask("CloseSession", SessionRequest(session), StatusReply)
            assert told.status.code == StatusCode.INVALID_HANDLE
        cancelled = OperationRequest(started.operation)  # impala-shell cancels on a connection of its own
        assert other.ask("CancelOperation", cancelled, StatusReply).status.code == StatusCode.INVALID_HANDLE
        assert again.ask("CancelOperation", cancelled, StatusReply).status.code == StatusCode.SUCCESS
        told = owner.ask("GetOperationStatus", StatusRequest(forged), StatusReply)
        assert told.status.code == StatusCode.INVALID_HANDLE
        replayed = OperationRequest(started.operation)
        assert owner.ask("CloseOperation", replayed, StatusReply).status.code == StatusCode.SUCCESS
        assert owner.ask("CloseOperation", replayed, StatusReply).status.code == StatusCode.INVALID_HANDLE
        assert owner.ask("GetOperationStatus", asked, StatusReply).status.code == StatusCode.INVALID_HANDLE


def test_a_thousand_silent_connections_keep_nobody_out(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, connections=64, handshake_s=5.0))
    silent = []
    try:
        for number in range(1_000):
            silent.append(socket.create_connection((drivers.host, drivers.port), timeout=5))
            if number % 100 == 99:
                with Client(drivers) as client:
                    session = client.open_session()
                    asked = ExecuteRequest(session, "SELECT 1")
                    assert client.ask("ExecuteStatement", asked, OperationReply).status.code == StatusCode.SUCCESS
                assert drivers.server.connections <= 64
        wait_until(lambda: drivers.server.connections == 0)
    finally:
        for each in silent:
            each.close()


def test_who_has_no_session_gives_way(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, connections=1))
    with Client(drivers, user=None) as chatty, Client(drivers) as guest:
        chatty.send(CALLS[-1])
        guest.open_session()
        assert chatty.is_closed()
        with Client(drivers, user=None) as late:  # all places are taken by those who have one
            assert late.is_closed()
        guest.open_session()


def test_sessions_are_limited_per_user_and_in_total(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, sessions=3, sessions_per_user=2))

    def opened(client: Client) -> OpenSessionReply:
        return client.ask("OpenSession", OpenSessionRequest(), OpenSessionReply)

    with Client(drivers) as joe, Client(drivers, user="ann") as ann:
        codes = [opened(joe).status.code for _ in range(3)]
        assert codes == [StatusCode.SUCCESS, StatusCode.SUCCESS, StatusCode.ERROR]
        assert opened(ann).status.code == StatusCode.SUCCESS
        full = opened(ann).status
        assert (full.code, full.sqlstate) == (StatusCode.ERROR, "53300")
        assert full.message == "Too many sessions are open; try again later."
    wait_until(lambda: drivers.gateway.hs2.registry.count() == 0)
    with Client(drivers) as joe:
        assert opened(joe).status.code == StatusCode.SUCCESS


def test_an_idle_session_is_closed(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, idle_s=0.2))
    peer = Peer("127.0.0.1", Principal("joe", address="127.0.0.1"))
    service = drivers.gateway.hs2
    service.open_session(OpenSessionRequest(), peer)
    wait_until(lambda: service.registry.count() == 0)


def test_a_client_that_waits_is_not_idle(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, idle_s=1.0))
    dispatcher, peer = Dispatcher(drivers.gateway.hs2), Peer("127.0.0.1", Principal("joe", address="127.0.0.1"))
    opened = dispatcher.frame(call_bytes("OpenSession", OpenSessionRequest()), peer)
    assert isinstance(opened, bytes)
    session = reply_of(opened, OpenSessionReply).session
    later = dispatcher.frame(call_bytes("ExecuteStatement", ExecuteRequest(session, "SELECT 'forever'")), peer)
    assert isinstance(later, PendingReply)
    time.sleep(3.5)
    assert drivers.gateway.hs2.registry.count() == 1
    later.abandon()
    wait_until(lambda: drivers.gateway.hs2.registry.count() == 0)


def test_passwords(serve: Callable[..., Drivers], tmp_path_factory: pytest.TempPathFactory) -> None:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text(f"# people\n{user_line('joe', 'right')}\n", encoding="utf-8")
    drivers = serve(authentication=AuthenticationSettings(users_file=users, anonymous=Anonymous.NEVER))
    for user, password, refusal in (
        ("joe", "right", None),
        ("joe", "wrong", WRONG),
        ("ann", "right", WRONG),
        ("joe", "", "A user name and a password are required; log in."),
    ):
        with Client(drivers, user=user, password=password) as client:
            assert client.refusal == (None if refusal is None else f"Error validating the login: {refusal}")
            assert refusal is None or client.is_closed()
    with Client(drivers, user=None) as client:  # without SASL, the session says who it is
        client.send(call_bytes("OpenSession", OpenSessionRequest(9, "joe", "wrong")))
        time.sleep(0.1)
        refused = reply_of(client.socket.recv(4_096), OpenSessionReply).status
        assert (refused.sqlstate, refused.message) == ("28000", WRONG)
        client.send(call_bytes("OpenSession", OpenSessionRequest(9, "joe", "right")))
        time.sleep(0.1)
        assert reply_of(client.socket.recv(4_096), OpenSessionReply).session is not None


def test_nobody_acts_for_another(drivers: Drivers) -> None:
    with Client(drivers) as client:
        asked = OpenSessionRequest(9, "joe", None, {"hive.server2.proxy.user": "root"})
        refused = client.ask("OpenSession", asked, OpenSessionReply).status
        assert (refused.code, refused.message) == (
            StatusCode.ERROR,
            "joe cannot act for root: impersonation is not supported.",
        )


def test_delegation_tokens_are_refused(drivers: Drivers) -> None:
    with Client(drivers) as client:
        session = client.open_session()
        for method in ("GetDelegationToken", "CancelDelegationToken", "RenewDelegationToken"):
            told = client.ask(method, SessionRequest(session), messages.TokenReply)
            assert told.status.code == StatusCode.ERROR
            assert "not supported" in (told.status.message or "")
            assert told.token is None
