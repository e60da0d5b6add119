"""Clients that ask for rows and read none: real ones, over sockets whose own buffers are small."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from typing import Any

import httpx

from benchmarks.hs2_client import RawClient, call_bytes, reply_of
from gateway.drivers.hs2.protocol import messages as hs2
from tests.attacks.doors import Served

RECEIVE_BUFFER = 4 << 10
TIMEOUT_S = 300.0
DROPPED = select.POLLHUP | select.POLLERR
SERVICE = "/arrow.flight.protocol.FlightService/"


class Stalled:
    """Sockets on which nobody reads. Closed at the end of its block."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self._stack = ExitStack()

    def __enter__(self) -> Stalled:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def http(self, gateway: Served, request: bytes) -> None:
        """Send a request on a connection of its own."""
        url = httpx.URL(gateway.url)
        client = self._stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        client.settimeout(TIMEOUT_S)
        client.connect((url.host, url.port))
        client.sendall(request)
        self.sockets.append(client)

    def hs2(self, gateway: Served, sql: str, user: str) -> None:
        """Run a statement in a session and on a connection of its own, and ask for its rows."""
        host, _, port = gateway.drivers.rpartition(":")
        client = self._stack.enter_context(RawClient(host, int(port), user=user, password=""))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        session = client.open_session()
        asked = client.ask("ExecuteStatement", hs2.ExecuteRequest(session, sql), hs2.OperationReply)
        assert asked.operation is not None, asked.status.message
        client.send(call_bytes("FetchResults", hs2.FetchRequest(asked.operation, 0, 1_000_000)))
        self.sockets.append(client.socket)

    def flight(self, gateway: Served, ticket: bytes) -> Any:
        """Ask for rows on a channel of its own; returns the call."""
        import grpc

        channel = grpc.insecure_channel(gateway.flight, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stack.callback(channel.close)
        call = channel.unary_stream(f"{SERVICE}DoGet")(ticket, timeout=TIMEOUT_S)
        self._stack.callback(call.cancel)
        return call

    def dropped(self, *, within_s: float) -> int:
        """Return how many connections the gateway has ended by then."""
        poll = select.poll()
        waiting = {client.fileno() for client in self.sockets}
        for descriptor in waiting:
            poll.register(descriptor, 0)
        ended: set[int] = set()
        while len(ended) < len(waiting):
            told = poll.poll(within_s * 1_000)
            if not told:
                break
            for descriptor, events in told:
                assert events & DROPPED
                ended.add(descriptor)
                poll.unregister(descriptor)
        return len(ended)


def fetch_over_http(gateway: Served, sql: str) -> bytes:
    """Run a statement over HiveServer2 on HTTP; returns a request that asks for its first rows, again and again."""
    with gateway.http() as client:

        def ask(method: str, request: Any, kind: Any) -> Any:
            content, headers = call_bytes(method, request), {"content-type": "application/x-thrift"}
            return reply_of(client.post("/cliservice", content=content, headers=headers).content, kind)

        session = ask("OpenSession", hs2.OpenSessionRequest(), hs2.OpenSessionReply).session
        operation = ask("ExecuteStatement", hs2.ExecuteRequest(session, sql), hs2.OperationReply).operation
    body = call_bytes("FetchResults", hs2.FetchRequest(operation, 4, 1_000_000))
    return post("/cliservice", "application/x-thrift", body)


def ticket_of(gateway: Served, sql: str) -> bytes:
    """Run a statement over Flight SQL; returns the ticket of its rows."""
    import grpc

    from gateway.drivers.flight.messages import DescriptorType, pack, read
    from gateway.drivers.flight.protocol.flight_pb2 import FlightDescriptor, FlightInfo
    from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery

    command = FlightDescriptor(type=DescriptorType.COMMAND, cmd=pack(CommandStatementQuery(query=sql)))
    with grpc.insecure_channel(gateway.flight) as channel:
        info = channel.unary_unary(f"{SERVICE}GetFlightInfo")(command.SerializeToString(), timeout=TIMEOUT_S)
    ticket: bytes = read(FlightInfo, info).endpoint[0].ticket.SerializeToString()
    return ticket


def get(path: str) -> bytes:
    """Write a request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, content_type: str, body: bytes) -> bytes:
    """Write a request that sends something."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
    return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
