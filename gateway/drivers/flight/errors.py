"""gRPC statuses of errors, by kind.

A client shows the message; the code, the SQLSTATE and the query's id stand beside it, in the trailing metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import grpc

from gateway import errors, failures
from gateway.drivers.flight.messages import Malformed
from gateway.errors import BadRequest, NotOffered
from sql.errors import ErrorKind, Failure, FusionError, NotAllowed, RootsRequired

LARGEST_MESSAGE = 4 << 10  # as gRPC writes it; all metadata of a reply has 8 KiB
_SHORTENED = " ..."

_OF_KIND: Mapping[ErrorKind, grpc.StatusCode] = {
    ErrorKind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorKind.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorKind.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorKind.EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorKind.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.CONFLICT: grpc.StatusCode.ABORTED,
    ErrorKind.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorKind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorKind.CANCELLED: grpc.StatusCode.CANCELLED,
    ErrorKind.TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorKind.INTERNAL: grpc.StatusCode.INTERNAL,
}
_SPECIAL: Mapping[type[FusionError], grpc.StatusCode] = {
    NotAllowed: grpc.StatusCode.INVALID_ARGUMENT,  # denied to everybody: the statement has to change, not the user
    RootsRequired: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ResultInterrupted: grpc.StatusCode.ABORTED,  # the client may run the query again
}


def failure_of(error: Exception) -> Failure:
    """Return the part of an error that clients see; of a defect, nothing."""
    return BadRequest(str(error)).failure if isinstance(error, Malformed) else failures.failure_of(error)


def status(error: Exception, failure: Failure) -> grpc.StatusCode:
    """Return the status of an error and its failure."""
    if isinstance(error, NotOffered):
        return grpc.StatusCode.UNIMPLEMENTED
    return status_of(failure.code)


def status_of(code: str) -> grpc.StatusCode:
    """Return the status of an error's code."""
    error = errors.error_class(code)
    return _SPECIAL.get(error, _OF_KIND[error.kind])


def message(failure: Failure) -> str:
    """Return the message for a client, cut to the room that a reply has."""
    text = errors.message(failure)
    if len(quote(text, safe=" ")) <= LARGEST_MESSAGE:
        return text
    length = LARGEST_MESSAGE - len(_SHORTENED)
    while len(quote(text[:length], safe=" ")) > LARGEST_MESSAGE:
        length //= 2
    return text[:length] + _SHORTENED


def metadata(failure: Failure, query_id: str | None) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of an error."""
    pairs = (("fusion-code", failure.code), ("fusion-sqlstate", errors.sqlstate(failure)))
    return pairs if query_id is None else (*pairs, ("fusion-query-id", query_id))
