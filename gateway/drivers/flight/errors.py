"""The one place that knows which status of gRPC an error has.

A client shows the message; the code, the SQLSTATE and the query's id stand beside it, as metadata behind the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import grpc

from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
)
from gateway import errors
from gateway.drivers.flight.messages import Malformed
from gateway.errors import BadRequest, GatewayError, NotOffered
from metastore.records import Failure

LARGEST_MESSAGE = 4 << 10  # as gRPC writes it; all metadata of a reply has 8 KiB
_SHORTENED = " ..."

_STATUS: Mapping[type[GatewayError] | type[EngineError], grpc.StatusCode] = {
    errors.AuthenticationFailed: grpc.StatusCode.UNAUTHENTICATED,
    errors.AccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.RuleDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.RuleForbidsEngine: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnknownTable: grpc.StatusCode.NOT_FOUND,
    errors.UnknownDatabase: grpc.StatusCode.NOT_FOUND,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.ResultGone: grpc.StatusCode.NOT_FOUND,
    errors.TableExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.DatabaseExists: grpc.StatusCode.ALREADY_EXISTS,
    StatementCancelled: grpc.StatusCode.CANCELLED,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.TableBusy: grpc.StatusCode.ABORTED,
    errors.WriteConflict: grpc.StatusCode.ABORTED,
    errors.ResultInterrupted: grpc.StatusCode.ABORTED,
    errors.SeveralMatches: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TableInMotion: grpc.StatusCode.ABORTED,
    errors.JobRunning: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotFinished: grpc.StatusCode.FAILED_PRECONDITION,
    errors.DatabaseNotEmpty: grpc.StatusCode.FAILED_PRECONDITION,
    MemoryExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ResultTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ResultStoreFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManySessions: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.SessionFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyCalls: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyDownloads: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyOperations: grpc.StatusCode.RESOURCE_EXHAUSTED,
    EngineBusy: grpc.StatusCode.UNAVAILABLE,
    EngineUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.MetastoreUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.GatewayStopped: grpc.StatusCode.UNAVAILABLE,
    errors.NoEngineAvailable: grpc.StatusCode.UNAVAILABLE,
    errors.TooManyQueries: grpc.StatusCode.UNAVAILABLE,
    EngineFault: grpc.StatusCode.INTERNAL,
    errors.StatisticsFailed: grpc.StatusCode.INTERNAL,
    errors.WriteFailed: grpc.StatusCode.INTERNAL,
    errors.WritePending: grpc.StatusCode.INTERNAL,  # not to be sent again
    errors.InternalError: grpc.StatusCode.INTERNAL,
}
STATUS: Mapping[str, grpc.StatusCode] = {kind.code: status for kind, status in _STATUS.items()}
DEFAULT_STATUS = grpc.StatusCode.INVALID_ARGUMENT


def failure_of(error: Exception) -> Failure:
    """Return what an error says; of a defect, no more than that there is one."""
    return BadRequest(str(error)).failure if isinstance(error, Malformed) else errors.failure_of(error)


def status(error: Exception, failure: Failure) -> grpc.StatusCode:
    """Return the status of an error, with what it says."""
    if isinstance(error, NotOffered):
        return grpc.StatusCode.UNIMPLEMENTED
    return STATUS.get(failure.code, DEFAULT_STATUS)


def message(failure: Failure) -> str:
    """Return what a client shows, cut to what a reply has room for."""
    text = errors.message(failure)
    if len(quote(text, safe=" ")) <= LARGEST_MESSAGE:
        return text
    kept = LARGEST_MESSAGE - len(_SHORTENED)
    while len(quote(text[:kept], safe=" ")) > LARGEST_MESSAGE:
        kept //= 2
    return text[:kept] + _SHORTENED


def metadata(failure: Failure, query_id: str | None) -> tuple[tuple[str, str], ...]:
    """Return what stands beside the message."""
    told = (("fusion-code", failure.code), ("fusion-sqlstate", errors.sqlstate(failure)))
    return told if query_id is None else (*told, ("fusion-query-id", query_id))
