"""Dispatch of messages: from bytes to a call, and from its reply or error to bytes.

JDBC's driver asks for the state of a finished operation once per row that it reads. These calls, which differ in a few
bytes only, are answered without decoding (ADR 35).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from gateway.drivers.hs2 import impala, metadata
from gateway.drivers.hs2.errors import status_of
from gateway.drivers.hs2.impala import ImpalaCalls
from gateway.drivers.hs2.protocol import messages, thrift
from gateway.drivers.hs2.protocol.thrift import STOP, Call, Decoder, Frame, MessageKind, Source, Struct, Wire
from gateway.drivers.hs2.registry import Peer, identifier_in
from gateway.drivers.hs2.service import PendingReply, Service
from gateway.http.forwarding.peers import OtherGateway
from gateway.security.principals import Principal
from gateway.statements.statement import ID_BYTES, query_of

UNKNOWN_METHOD = 1
_SEQUENCE = struct.Struct(">i")


# A call of GetOperationStatus: head, sequence number, openings of three nested structs with the head of the operation's
# number, the number, the head of its secret, the secret, the rest of the operation, and the flag for progress.
_FETCH, _EXECUTE, _NAME_WITHIN = b"FetchResults", b"ExecuteStatement", 24
_STATUS = "GetOperationStatus"
_STATUS_HEAD = thrift.head(MessageKind.CALL, _STATUS, 0)[:-4]
_OPENING = thrift.field_head(Wire.STRUCT, 1) * 3 + thrift.field_head(Wire.STRING, 1) + thrift.string_head(ID_BYTES)
_BETWEEN = thrift.field_head(Wire.STRING, 2) + thrift.string_head(ID_BYTES)
_SEQUENCE_AT = len(_STATUS_HEAD)
_OPENING_AT = _SEQUENCE_AT + 4
_NUMBER_AT = _OPENING_AT + len(_OPENING)
_BETWEEN_AT = _NUMBER_AT + ID_BYTES
_SECRET_AT = _BETWEEN_AT + len(_BETWEEN)
_SECRET_END = _SECRET_AT + ID_BYTES
_PROGRESS = thrift.field_head(Wire.BOOL, 2) + b"\1" + 2 * STOP  # at the end, where progress is requested


@dataclass(frozen=True, slots=True)
class _Method:
    """One call. reply: struct for errors."""

    request: type[Struct]
    reply: Callable[..., Struct]
    run: Callable[[Any, Peer], Struct | PendingReply[Any]]


class _Edge:
    """Turns every error of a call into its reply. A defect shows no details."""

    def __init__(self, call: Call, method: _Method) -> None:
        self._call = call
        self._method = method
        self.refusal = b""

    def __enter__(self) -> _Edge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.refusal = thrift.reply(self._call, self._method.reply(status=status_of(error)))
        return True


class Dispatcher:
    """Answers messages. Thread-safe."""

    def __init__(self, service: Service) -> None:
        extra = ImpalaCalls(service)
        m = messages
        self._service = service
        self.largest_message = service.largest_message
        self._methods = {
            "OpenSession": _Method(m.OpenSessionRequest, m.OpenSessionReply, service.open_session),
            "CloseSession": _Method(m.SessionRequest, m.Reply, service.close_session),
            "GetInfo": _Method(m.InfoRequest, m.InfoReply, service.get_info),
            "ExecuteStatement": _Method(m.ExecuteRequest, m.OperationReply, service.execute),
            **{
                name: _Method(question.request, m.OperationReply, partial(service.answer, question))
                for name, question in metadata.QUESTIONS.items()
            },
            "GetOperationStatus": _Method(m.StatusRequest, m.StatusReply, service.get_status),
            "CancelOperation": _Method(m.OperationRequest, m.Reply, service.cancel),
            "CloseOperation": _Method(m.OperationRequest, m.Reply, service.close_operation),
            "GetResultSetMetadata": _Method(m.OperationRequest, m.MetadataReply, service.get_result_metadata),
            "FetchResults": _Method(m.FetchRequest, m.FetchReply, service.fetch),
            "GetDelegationToken": _Method(m.SessionRequest, m.TokenReply, service.refuse_token),
            "CancelDelegationToken": _Method(m.SessionRequest, m.Reply, service.refuse_token),
            "RenewDelegationToken": _Method(m.SessionRequest, m.Reply, service.refuse_token),
            "GetLog": _Method(m.OperationRequest, m.LogReply, extra.get_log),
            "PingImpalaHS2Service": _Method(m.SessionRequest, impala.PingReply, extra.ping),
            "CloseImpalaOperation": _Method(m.OperationRequest, impala.CloseReply, extra.close),
            "GetExecSummary": _Method(impala.SummaryRequest, impala.SummaryReply, extra.get_summary),
            "GetRuntimeProfile": _Method(impala.ProfileRequest, impala.ProfileReply, extra.get_profile),
        }

    def frame(self, data: bytes, peer: Peer) -> bytes | PendingReply[bytes]:
        """Answer a message that is in memory. Raises Malformed."""
        return self.known_status(data, peer) or self.message(Frame(data), peer)

    def owner_of(self, data: bytes) -> OtherGateway | None:
        """Return the gateway that answers for the handle in a message; None: this one. Raises Malformed."""
        decoder = Decoder(Frame(data))
        method = self._methods.get(decoder.call().method)
        if method is None:
            return None
        request = decoder.arguments(method.request)
        operation = getattr(request, "operation", None)
        identifier = identifier_in(operation or getattr(request, "session", None))
        if identifier is None or len(identifier.guid) != ID_BYTES:
            return None
        query_id = query_of(identifier.guid) if operation is not None else None
        return self._service.handles.owner(identifier.guid, identifier.secret, query_id)

    def refusal(self, data: bytes, error: Exception) -> bytes:
        """Return the reply to a call that met an error before it was answered. Raises Malformed."""
        call = Decoder(Frame(data)).call()
        with _Edge(call, self._methods[call.method]) as edge:
            raise error
        return edge.refusal

    def is_execute(self, data: bytes) -> bool:
        """Tell whether a message is an ExecuteStatement, by its first bytes: nobody may run it twice."""
        return _EXECUTE in data[:_NAME_WITHIN]

    def is_fetch(self, data: bytes) -> bool:
        """Tell whether a message is a FetchResults, by its first bytes."""
        return _FETCH in data[:_NAME_WITHIN]

    def is_status(self, data: bytes) -> bool:
        """Tell whether a message is a GetOperationStatus, by its first bytes."""
        return data.startswith(_STATUS_HEAD)

    def message(self, source: Source, peer: Peer) -> bytes | PendingReply[bytes]:
        """Read one message, and no byte more, and answer it. After Malformed the source cannot be used any more."""
        decoder = Decoder(source)
        call = decoder.call()
        method = self._methods.get(call.method)
        if method is None:
            decoder.pass_over()
            return refusal(call, UNKNOWN_METHOD, f"Invalid method name: '{call.method}'")
        request = decoder.arguments(method.request)
        with _Edge(call, method) as edge:
            outcome = method.run(request, peer)
            if not isinstance(outcome, PendingReply):
                return thrift.reply(call, outcome)
            pending = outcome

            def finish() -> bytes:
                with _Edge(call, method) as edge:
                    return thrift.reply(call, pending.finish())
                return edge.refusal

            return PendingReply(pending.done, finish, pending.abandon, pending.timeout_s)
        return edge.refusal

    def known_status(self, data: bytes, peer: Peer, user: Principal | None = None) -> bytes | None:
        """Answer a GetOperationStatus of a finished operation from its bytes; None: it takes the usual way.

        user: user who logged in earlier on this connection; only their own sessions count.
        """
        if not data.startswith(_STATUS_HEAD) or data[_OPENING_AT:_NUMBER_AT] != _OPENING:
            return None
        number, secret = data[_NUMBER_AT:_BETWEEN_AT], data[_SECRET_AT:_SECRET_END]
        if data[_BETWEEN_AT:_SECRET_AT] != _BETWEEN:
            return None
        answer = self._service.registry.kept_answer(number, secret, peer, user, with_progress=data.endswith(_PROGRESS))
        if answer is None:
            return None
        (sequence,) = _SEQUENCE.unpack_from(data, _SEQUENCE_AT)
        return b"".join((thrift.reply_head(_STATUS, sequence), answer, STOP))


def refusal(call: Call, kind: int, message: str) -> bytes:
    """Return Thrift's own reply to an invalid call."""
    head = thrift.head(MessageKind.EXCEPTION, call.method, call.sequence)
    return head + thrift.encode(messages.Refusal(message, kind))
