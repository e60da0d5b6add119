"""From a message's bytes to the bytes of its reply: finds the call, runs it, and turns every error into a status.

JDBC's driver asks for the state of a finished operation once per row that it reads. These calls, which all look alike,
are answered from their bytes alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from gateway.hs2 import impala, messages, thrift
from gateway.hs2.errors import MAPPED, status_of
from gateway.hs2.impala import ImpalaCalls
from gateway.hs2.operations import ID_BYTES
from gateway.hs2.registry import Peer
from gateway.hs2.service import Service, Wait
from gateway.hs2.thrift import STOP, Call, Decoder, Frame, MessageKind, Source, Struct, Wire

UNKNOWN_METHOD = 1
_SEQUENCE = struct.Struct(">i")
MESSAGE_OVERHEAD_BYTES = 256 << 10  # what a call may hold beside its statement, such as a session's configuration


# A call of GetOperationStatus: its head, the sequence number, the opening of three structs in one another with the head
# of the operation's number, the number, the head of its secret, the secret.
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


@dataclass(frozen=True, slots=True)
class Later:
    """A reply that waits; see ``service.Wait``. finish: returns the reply's bytes; called once, unless abandoned."""

    done: Future[Any]
    finish: Callable[[], bytes]
    abandon: Callable[[], None]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class _Method:
    """One call. reply: which of its shapes carries an error."""

    request: type[Struct]
    reply: Callable[..., Struct]
    run: Callable[[Any, Peer], Struct | Wait]


class Dispatcher:
    """Answers messages. Thread-safe."""

    def __init__(self, service: Service) -> None:
        extra = ImpalaCalls(service)
        m = messages
        self._service = service
        self.largest_message = service.statement_bytes + MESSAGE_OVERHEAD_BYTES
        self._methods = {
            "OpenSession": _Method(m.OpenSessionRequest, m.OpenSessionReply, service.open_session),
            "CloseSession": _Method(m.SessionRequest, m.Reply, service.close_session),
            "GetInfo": _Method(m.InfoRequest, m.InfoReply, service.get_info),
            "ExecuteStatement": _Method(m.ExecuteRequest, m.OperationReply, service.execute),
            "GetTypeInfo": _Method(m.SessionRequest, m.OperationReply, service.get_type_info),
            "GetCatalogs": _Method(m.SessionRequest, m.OperationReply, service.get_catalogs),
            "GetSchemas": _Method(m.SchemasRequest, m.OperationReply, service.get_schemas),
            "GetTables": _Method(m.TablesRequest, m.OperationReply, service.get_tables),
            "GetTableTypes": _Method(m.SessionRequest, m.OperationReply, service.get_table_types),
            "GetColumns": _Method(m.ColumnsRequest, m.OperationReply, service.get_columns),
            "GetFunctions": _Method(m.FunctionsRequest, m.OperationReply, service.get_functions),
            "GetPrimaryKeys": _Method(m.SessionRequest, m.OperationReply, service.get_primary_keys),
            "GetCrossReference": _Method(m.SessionRequest, m.OperationReply, service.get_cross_reference),
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
            "CloseImpalaOperation": _Method(m.OperationRequest, m.Reply, extra.close),
            "GetExecSummary": _Method(impala.SummaryRequest, impala.SummaryReply, extra.get_summary),
            "GetRuntimeProfile": _Method(impala.ProfileRequest, impala.ProfileReply, extra.get_profile),
        }

    def frame(self, data: bytes, peer: Peer) -> bytes | Later:
        """Answer a message that is there as a whole. Raises Malformed."""
        return self._known_status(data, peer) or self.message(Frame(data), peer)

    def message(self, source: Source, peer: Peer) -> bytes | Later:
        """Read one message, and no byte more, and answer it. Raises Malformed, after which the source is worthless."""
        decoder = Decoder(source)
        call = decoder.call()
        method = self._methods.get(call.method)
        if method is None:
            decoder.pass_over()
            return refusal(call, UNKNOWN_METHOD, f"Invalid method name: '{call.method}'")
        request = decoder.arguments(method.request)
        try:
            outcome = method.run(request, peer)
        except MAPPED as error:
            return thrift.reply(call, method.reply(status=status_of(error)))
        if not isinstance(outcome, Wait):
            return thrift.reply(call, outcome)
        wait = outcome
        wait.session.begin_wait()

        def finish() -> bytes:
            try:
                return thrift.reply(call, wait.finish())
            except MAPPED as error:
                return thrift.reply(call, method.reply(status=status_of(error)))
            finally:
                wait.session.end_wait()

        def abandon() -> None:
            wait.session.end_wait()
            wait.abandon()

        return Later(wait.done, finish, abandon, wait.timeout_s)

    def _known_status(self, data: bytes, peer: Peer) -> bytes | None:
        """Answer a question about an operation that has finished; None where it is another one."""
        if not data.startswith(_STATUS_HEAD) or data[_OPENING_AT:_NUMBER_AT] != _OPENING:
            return None
        number, secret = data[_NUMBER_AT:_BETWEEN_AT], data[_SECRET_AT:_SECRET_END]
        if data[_BETWEEN_AT:_SECRET_AT] != _BETWEEN:
            return None
        answer = self._service.registry.kept_answer(number, secret, peer)
        if answer is None:
            return None
        (sequence,) = _SEQUENCE.unpack_from(data, _SEQUENCE_AT)
        return b"".join((thrift.reply_head(_STATUS, sequence), answer, STOP))


def refusal(call: Call, kind: int, message: str) -> bytes:
    """Return Thrift's own answer to a call that is none."""
    head = thrift.head(MessageKind.EXCEPTION, call.method, call.sequence)
    return head + thrift.encode(messages.Refusal(message, kind))
