"""Forwarding of calls between processes of the gateway: a token, or the handle in a message, names the owner.

A call is forwarded as bytes, over a socket in the home folder. If the owner is gone, the receiver answers: it knows of
no such session or handle.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from collections.abc import Iterator
from typing import Any

import grpc
from grpc import ServicerContext as Context

from gateway.drivers.flight.messages import Malformed, read, unpack
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    CancelFlightInfoRequest,
    FlightData,
    FlightDescriptor,
    FlightInfo,
    Ticket,
)
from gateway.security.principals import Principal
from gateway.statements.processes import FLIGHT_DOOR, Processes, owner_of_mark

HANDLE_BYTES = 16
ADDRESS, PRINCIPAL, AGENT = "x-fusion-address", "x-fusion-principal-bin", "x-fusion-agent"
_OURS = (ADDRESS, PRINCIPAL, AGENT)


class Elsewhere(Exception):
    """The first message of a call names another process as its owner. principal: its user, who logged in here."""

    def __init__(self, owner: int, first: bytes, principal: Principal) -> None:
        super().__init__(f"process {owner} owns it")
        self.owner = owner
        self.first = first
        self.principal = principal


class Forwarding:
    """Forwards calls to the other processes of a gateway. service: full name of Flight's service. Thread-safe."""

    def __init__(self, processes: Processes, service: str, options: list[tuple[str, int]]) -> None:
        self.processes = processes
        self._service = service
        self._options = options
        self._lock = threading.Lock()
        self._channels: dict[int, grpc.Channel] = {}

    def owner_of_token(self, token: str) -> int | None:
        """Return the process that owns a token's session, if it is another one and alive."""
        owner = None
        with contextlib.suppress(ValueError):
            owner = self.processes.other(owner_of_mark(int(token[-2:], 16)))
        return owner if owner is not None and self._answers(owner) else None

    def owner_of_message(self, method: str, message: bytes) -> int | None:
        """Return the process that owns the handle in a call's first message, if it is another one and alive."""
        try:
            handle = _handle(method, message)
        except Malformed:  # the service refuses it
            return None
        if handle is None or len(handle) != HANDLE_BYTES + 1:
            return None
        owner = self.processes.other(owner_of_mark(handle[-1]))
        return owner if owner is not None and self._answers(owner) else None

    def pass_on(
        self,
        owner: int,
        method: str,
        requests: Iterator[bytes],
        context: Context,
        sender_metadata: list[tuple[str, Any]],
        *,
        is_begun: bool = False,
    ) -> Iterator[bytes]:
        """Have another process answer a call. is_begun: the headers of the reply were sent."""
        metadata = [(key, value) for key, value in context.invocation_metadata() if key not in (*_OURS, "user-agent")]
        call = self._channel(owner).stream_stream(f"/{self._service}/{method}")(
            requests, metadata=[*metadata, *sender_metadata], timeout=context.time_remaining()
        )
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            if not is_begun:
                context.send_initial_metadata(call.initial_metadata())
            yield from call
        except grpc.RpcError:
            context.set_trailing_metadata(call.trailing_metadata() or ())
            context.abort(call.code(), call.details())
        finally:
            call.cancel()

    def _channel(self, owner: int) -> grpc.Channel:
        with self._lock:
            if owner not in self._channels:
                path = self.processes.path(FLIGHT_DOOR, owner)
                self._channels[owner] = grpc.insecure_channel(f"unix:{path}", self._options)
            return self._channels[owner]

    def _answers(self, owner: int) -> bool:
        """Tell whether a process is alive, before a call's messages are sent, which is possible only once."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return not probe.connect_ex(self.processes.path(FLIGHT_DOOR, owner))


def is_passed_on(context: Context) -> bool:
    """Tell whether a call comes from another process of the gateway, which knows its sender."""
    return str(context.peer()).startswith("unix:")


def sender_of(context: Context) -> dict[str, Any]:
    """Return the sender of a forwarded call."""
    return {key: value for key, value in context.invocation_metadata() if key in _OURS}


def sender_metadata(address: str, agent: str, principal: Principal | None = None) -> list[tuple[str, Any]]:
    """Return the sender of a call as metadata for another process. principal: user who has logged in already."""
    user = [] if principal is None else [(PRINCIPAL, pickle.dumps(principal))]
    return [(ADDRESS, address), (AGENT, agent), *user]


def principal_in(sender: dict[str, Any]) -> Principal | None:
    """Return the user who has logged in at another process."""
    data = sender.get(PRINCIPAL)
    if data is None:
        return None
    principal = pickle.loads(data)  # noqa: S301 - from a process of this gateway, over a private socket
    assert isinstance(principal, Principal)
    return principal


def _handle(method: str, message: bytes) -> bytes | None:
    """Return the handle in a call's first message, if it has one. Raises Malformed."""
    match method:
        case "GetFlightInfo" | "PollFlightInfo" | "GetSchema":
            return _handle_in(read(FlightDescriptor, message).cmd)
        case "DoGet":
            return _handle_in(read(Ticket, message).ticket)
        case "DoPut":
            return _handle_in(read(FlightData, message).flight_descriptor.cmd)
        case "DoAction":
            action = read(Action, message)
            match action.type:
                case "ClosePreparedStatement":
                    return _handle_in(action.body)
                case "CancelFlightInfo":
                    return _handle_of(read(CancelFlightInfoRequest, action.body).info)
                case "CancelQuery":
                    _, request = unpack(action.body)
                    return _handle_of(read(FlightInfo, getattr(request, "info", b"")))
    return None


def _handle_in(packed: bytes) -> bytes | None:
    _, command = unpack(packed)
    handle: bytes | None = getattr(command, "statement_handle", None)
    return handle or getattr(command, "prepared_statement_handle", None)


def _handle_of(info: Any) -> bytes | None:
    if info.app_metadata:
        handle: bytes = info.app_metadata
        return handle
    return _handle_in(info.endpoint[0].ticket.ticket) if info.endpoint else None
