"""One session on a HiveServer2, through PyHive's connection and stubs. Exceptions of the driver pass through."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pyhive.hive import Connection, OperationalError  # type: ignore[import-untyped]
from TCLIService import TCLIService  # type: ignore[import-untyped]
from TCLIService.ttypes import (  # type: ignore[import-untyped]
    TCancelOperationReq,
    TCloseOperationReq,
    TExecuteStatementReq,
    TFetchOrientation,
    TFetchResultsReq,
    TGetInfoReq,
    TGetInfoType,
    TGetOperationStatusReq,
    TGetOperationStatusResp,
    TGetResultSetMetadataReq,
    TOperationState,
    TStatusCode,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
from thrift.Thrift import TApplicationException, TException, TMessageType  # type: ignore[import-untyped]

from engines.hive.columns import Sent, read_answer
from engines.hive.transport import Access, Address, Transport

RUNNING = frozenset({TOperationState.INITIALIZED_STATE, TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE})
FINISHED = TOperationState.FINISHED_STATE
CANCELLED = frozenset({TOperationState.CANCELED_STATE, TOperationState.CLOSED_STATE})
ACTING_FOR = "hive.server2.proxy.user"
TIMED_OUT = TOperationState.TIMEDOUT_STATE

ANSWER_TIMEOUT_S = 10.0
"""Timeout of calls that are never slow."""

_SUCCESS = (TStatusCode.SUCCESS_STATUS, TStatusCode.SUCCESS_WITH_INFO_STATUS)

logging.getLogger("pyhive.hive").setLevel(logging.WARNING)  # it logs statements

Operation: TypeAlias = Any
"""The handle of a statement on the server."""


class Session:
    """A session for one statement at a time. Other threads may ``cancel``, ``forget_from_outside`` and ``break_off``.

    settings: of the session, by the server's names.
    tables_version: of the tables of its views.
    user: user as whom its statements run; None: the gateway's own.
    proven: it does not substitute variables.
    """

    def __init__(
        self,
        address: Address,
        access: Access,
        settings: Mapping[str, str],
        tables_version: int,
        user: str | None = None,
    ) -> None:
        self.address = address
        self.user = user
        self.tables_version = tables_version
        self.idle_since_s = time.monotonic()
        self.broken = False
        self.proven = False
        self._access = access
        self._transport = Transport(address, access)
        self._connection = Connection(
            thrift_transport=self._transport.thrift,
            username=access.user,
            database=access.database,
            configuration={
                **{f"set:hiveconf:{name}": value for name, value in settings.items()},
                **({ACTING_FOR: user} if user is not None else {}),
            },
        )
        self._client = self._connection.client
        self._transport.wait_up_to(None)

    def start(self, sql: str) -> Operation:
        """Send a statement, to run in the background."""
        request = TExecuteStatementReq(self._connection.sessionHandle, sql, runAsync=True)
        return _checked(self._client.ExecuteStatement(request)).operationHandle

    def state(self, operation: Operation) -> TGetOperationStatusResp:
        """Return a statement's status. Servers answer when it changes, or after seconds."""
        return _checked(self._client.GetOperationStatus(TGetOperationStatusReq(operation)))

    def columns(self, operation: Operation) -> list[Any]:
        """Return the TColumnDesc of a statement's result; empty: it has no result."""
        if not operation.hasResultSet:
            return []
        answer = _checked(self._client.GetResultSetMetadata(TGetResultSetMetadataReq(operation)))
        return list(answer.schema.columns) if answer.schema else []

    def fetch(self, operation: Operation, rows: int) -> list[Sent]:
        """Return the next rows, column by column; no rows, or no column, mark the end."""
        protocol = self._client._iprot
        self._client.send_FetchResults(TFetchResultsReq(operation, TFetchOrientation.FETCH_NEXT, rows))
        _, kind, _ = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(protocol)
            raise failure
        status, columns = read_answer(protocol)
        if status.statusCode not in _SUCCESS:
            raise OperationalError(_Answer(status))
        return columns

    def forget(self, operation: Operation) -> None:
        """Close a statement, which ends it if it still runs."""
        self._transport.wait_up_to(ANSWER_TIMEOUT_S)
        _checked(self._client.CloseOperation(TCloseOperationReq(operation)))
        self._transport.wait_up_to(None)

    def answers(self) -> bool:
        """Return True if the server still knows the session."""
        try:
            self._transport.wait_up_to(ANSWER_TIMEOUT_S)
            request = TGetInfoReq(self._connection.sessionHandle, TGetInfoType.CLI_SERVER_NAME)
            _checked(self._client.GetInfo(request))
            self._transport.wait_up_to(None)
        except (OperationalError, TException, OSError, EOFError):
            return False
        return True

    def cancel(self, operation: Operation) -> None:
        """Cancel a statement over a separate connection: the session's connection waits for it."""
        with self._beside() as client:
            _checked(client.CancelOperation(TCancelOperationReq(operation)))

    def forget_from_outside(self, operation: Operation) -> None:
        """Close a statement over a separate connection."""
        with self._beside() as client:
            _checked(client.CloseOperation(TCloseOperationReq(operation)))

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Any]:
        transport = Transport(self.address, self._access)
        try:
            transport.thrift.open()
            yield TCLIService.Client(TBinaryProtocol(transport.thrift))
        finally:
            transport.thrift.close()

    def close(self) -> None:
        """Close the session. A server that is gone does not matter."""
        with contextlib.suppress(OperationalError, TException, OSError, EOFError):
            self._transport.wait_up_to(ANSWER_TIMEOUT_S)
            self._connection.close()
        self._transport.thrift.close()

    def break_off(self) -> None:
        """Close the connection, also during a call."""
        self.broken = True
        self._transport.break_off()


class _Answer:
    """An answer with a status only, in the form that PyHive's errors carry."""

    def __init__(self, status: Any) -> None:
        self.status = status


def _checked(answer: Any) -> Any:
    if answer.status.statusCode not in _SUCCESS:
        raise OperationalError(answer)
    return answer
