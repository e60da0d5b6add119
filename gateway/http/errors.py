"""HTTP statuses of errors, by kind, and the one shape of their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from engines.errors import EngineBusy
from gateway import errors, failures
from gateway.http.models.common import ErrorModel, ErrorReply
from gateway.http.replies import ExactJSONResponse
from gateway.security.web import SECURITY_HEADERS
from sql.errors import ErrorKind, Failure, FusionError, SqlError, StatementTooLong

RETRY_AFTER_S = 5
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_OF_REQUEST: Mapping[ErrorKind, int] = {
    ErrorKind.INVALID: 400,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.DENIED: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.EXISTS: 409,
    ErrorKind.FAILED_PRECONDITION: 409,
    ErrorKind.CONFLICT: 409,
    ErrorKind.EXHAUSTED: 503,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.CANCELLED: 400,
    ErrorKind.TIMED_OUT: 503,
    ErrorKind.INTERNAL: 500,
}
# Statuses that HTTP has for exactly one of our errors.
_OF_REQUEST_SPECIAL: Mapping[type[FusionError], int] = {
    errors.MethodNotAllowed: 405,
    errors.ResultGone: 410,
    StatementTooLong: 413,
    errors.WrongContentType: 415,
    errors.UnknownHost: 421,
    errors.InvalidBody: 422,
}
# A table that a statement names is not the address of the request: the statement is wrong.
_OF_STATEMENT: Mapping[ErrorKind, int] = {
    ErrorKind.INVALID: 400,
    ErrorKind.DENIED: 403,
    ErrorKind.NOT_FOUND: 400,
    ErrorKind.EXISTS: 400,
    ErrorKind.FAILED_PRECONDITION: 409,
    ErrorKind.CONFLICT: 409,
}
# These queries never ran, and may be sent again.
_OF_FAILED_QUERY_SPECIAL: Mapping[type[FusionError], int] = {
    errors.NoEngineAvailable: 503,
    errors.PoolFull: 503,
    EngineBusy: 503,
}
STATUSES_OF_FAILED_QUERIES = frozenset({*_OF_STATEMENT.values(), *_OF_FAILED_QUERY_SPECIAL.values()})
_MEANINGS: Mapping[int, str] = {
    400: "The request or its statement is wrong; the code and the position say how.",
    401: "The login is missing or wrong.",
    403: "This user, or everybody, may not do this.",
    404: "Nothing has this name or id.",
    409: "Not in this state: it is running, has not finished, exists already, or others are changing it.",
    410: "The result is no longer kept.",
    413: "The statement is too long.",
    421: "The request names a host that is not the gateway.",
    422: "A field or a parameter is missing or has an invalid value.",
    500: "A defect of the gateway; its log says more.",
    503: "Not now; the same may work soon, as Retry-After says.",
}
_OF_EVERY_ROUTE = (400, 401, 403, 413, 421, 422, 500, 503)


def status_of(code: str) -> int:
    """Return the status of a request that fails with an error."""
    error = errors.error_class(code)
    of_kind = _OF_STATEMENT if issubclass(error, SqlError) else _OF_REQUEST
    return _OF_REQUEST_SPECIAL.get(error, of_kind[error.kind])


def status_of_failed_query(code: str) -> int:
    """Return the status of an accepted query that failed: 200, unless the statement or the moment was the reason."""
    error = errors.error_class(code)
    return _OF_FAILED_QUERY_SPECIAL.get(error, _OF_STATEMENT.get(error.kind, 200))


def declared(*statuses: int, model: Any = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """Return replies for the OpenAPI description. statuses: of errors; none: those of every route."""
    return {status: {"model": model, "description": _MEANINGS[status]} for status in statuses or _OF_EVERY_ROUTE}


def reply(failure: Failure, query_id: str | None = None) -> ExactJSONResponse:
    """Return the reply for an error."""
    status = status_of(failure.code)
    return ExactJSONResponse(
        ErrorReply(error=ErrorModel.of(failure, query_id)).model_dump(mode="json", exclude_none=True),
        status_code=status,
        headers={**SECURITY_HEADERS, **(retry_headers(status) or {})},
    )


def retry_headers(status: int) -> dict[str, str] | None:
    """Return headers that say when to try again, or with which login; None where trying again does not help."""
    if status == 401:
        return {"WWW-Authenticate": 'Basic realm="Fusion SQL Gateway", charset="UTF-8"'}
    return {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None


def first_error(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the first error of a model's validation, with its place."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    message = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
    return f"{place}: {message.removeprefix('Value error, ')}"


def allowed(scope: Scope) -> str:
    """Return the methods of a request's address as an Allow header has them; empty where there is no such address."""
    routes = scope["app"].routes
    methods = [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    head = ["HEAD"] if "GET" in methods else []
    return ", ".join([*methods, *head, "OPTIONS"]) if methods else ""


def install(app: FastAPI) -> None:
    """Answer every error. No stack trace and no path of the server leaves the gateway."""

    @app.exception_handler(Exception)
    async def _any(request: Request, error: Exception) -> ExactJSONResponse:
        query_id = getattr(error, "query_id", None) or getattr(request.state, "query_id", None)
        return reply(failures.failure_of(error), query_id)

    for exception in failures.MAPPED:
        app.add_exception_handler(exception, _any)

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> ExactJSONResponse:
        return reply(errors.InvalidBody(first_error(error.errors())).failure)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> ExactJSONResponse:
        if error.status_code == 405:
            methods = allowed(request.scope)
            response = reply(errors.MethodNotAllowed(f"This address takes {methods}.").failure)
            response.headers["Allow"] = methods
            return response
        wrong = errors.NotFound if error.status_code == 404 else errors.BadRequest
        response = reply(wrong(str(error.detail)).failure)
        response.status_code = error.status_code
        return response
