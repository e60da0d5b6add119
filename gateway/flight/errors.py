"""The one place that knows which status of gRPC an error has.

A client shows the message; the code, the SQLSTATE and the query's id stand beside it, as metadata behind the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import grpc

from gateway import failures
from gateway.coordinator import NO_ENGINE, TOO_MANY
from gateway.failures import CallFailed
from gateway.flight.messages import Malformed
from metastore.records import Failure

LARGEST_MESSAGE = 4 << 10  # as gRPC writes it; all metadata of a reply has 8 KiB
_SHORTENED = " ..."

STATUS: Mapping[str, grpc.StatusCode] = {
    "AUTHENTICATION_FAILED": grpc.StatusCode.UNAUTHENTICATED,
    "ACCESS_DENIED": grpc.StatusCode.PERMISSION_DENIED,
    "UNKNOWN_TABLE": grpc.StatusCode.NOT_FOUND,
    "UNKNOWN_DATABASE": grpc.StatusCode.NOT_FOUND,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RESULT_GONE": grpc.StatusCode.NOT_FOUND,
    "TABLE_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "CANCELLED": grpc.StatusCode.CANCELLED,
    "DEADLINE_EXCEEDED": grpc.StatusCode.DEADLINE_EXCEEDED,
    "TABLE_BUSY": grpc.StatusCode.ABORTED,
    "TABLE_CHANGED": grpc.StatusCode.ABORTED,
    "JOB_RUNNING": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_FINISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "MEMORY_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RESULT_TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RESULT_STORE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_SESSIONS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SESSION_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_CALLS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_DOWNLOADS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_OPERATIONS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "ENGINE_BUSY": grpc.StatusCode.UNAVAILABLE,
    "ENGINE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "METASTORE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "GATEWAY_STOPPED": grpc.StatusCode.UNAVAILABLE,
    NO_ENGINE: grpc.StatusCode.UNAVAILABLE,
    TOO_MANY: grpc.StatusCode.UNAVAILABLE,
    "ENGINE_FAULT": grpc.StatusCode.INTERNAL,
    "STATISTICS_FAILED": grpc.StatusCode.INTERNAL,
    "WRITE_FAILED": grpc.StatusCode.INTERNAL,
    "WRITE_PENDING": grpc.StatusCode.INTERNAL,  # not to be sent again
    "INTERNAL": grpc.StatusCode.INTERNAL,
}
DEFAULT_STATUS = grpc.StatusCode.INVALID_ARGUMENT


class NotOffered(CallFailed):
    """A part of Flight SQL that is not here; clients take another way, where there is one."""

    def __init__(self, message: str) -> None:
        super().__init__("NOT_ALLOWED", message)


def failure_of(error: Exception) -> Failure:
    """Return what an error says; of a defect, no more than that there is one."""
    return Failure("BAD_REQUEST", str(error)) if isinstance(error, Malformed) else failures.failure_of(error)


def status(error: Exception, failure: Failure) -> grpc.StatusCode:
    """Return the status of an error, with what it says."""
    if isinstance(error, NotOffered):
        return grpc.StatusCode.UNIMPLEMENTED
    return STATUS.get(failure.code, DEFAULT_STATUS)


def message(failure: Failure) -> str:
    """Return what a client shows, cut to what a reply has room for."""
    text = failures.message(failure)
    if len(quote(text, safe=" ")) <= LARGEST_MESSAGE:
        return text
    kept = LARGEST_MESSAGE - len(_SHORTENED)
    while len(quote(text[:kept], safe=" ")) > LARGEST_MESSAGE:
        kept //= 2
    return text[:kept] + _SHORTENED


def metadata(failure: Failure, query_id: str | None) -> tuple[tuple[str, str], ...]:
    """Return what stands beside the message."""
    told = (("fusion-code", failure.code), ("fusion-sqlstate", failures.sqlstate(failure)))
    return told if query_id is None else (*told, ("fusion-query-id", query_id))
