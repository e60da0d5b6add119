"""The one place that knows which status an error has, and the one shape of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from engines.errors import EngineBusy, EngineError, StatementError
from gateway import errors
from gateway.errors import GatewayError
from gateway.http.models.common import ErrorModel, ErrorReply
from gateway.http.replies import ExactJSONResponse
from gateway.security.web import SECURITY_HEADERS
from metastore.discovery.inspection import InspectionFailed
from metastore.records import Failure
from selector.decision import NoEngine

RETRY_AFTER_S = 5
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DEFAULT_STATUS = 400
_STATUS: Mapping[type[GatewayError] | type[EngineError], int] = {
    errors.AuthenticationFailed: 401,
    errors.NotAllowed: 403,
    errors.RootsRequired: 403,
    errors.AccessDenied: 403,
    errors.RuleDenied: 403,
    errors.RuleForbidsEngine: 403,
    errors.NotYourQuery: 403,
    errors.CrossSiteRequest: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.NotFinished: 409,
    errors.JobRunning: 409,
    errors.JobElsewhere: 409,
    errors.TableInMotion: 409,
    errors.DatabaseNotEmpty: 409,
    errors.ScheduleTaken: 409,
    errors.SchedulePaused: 409,
    errors.ResultGone: 410,
    errors.StatementTooLong: 413,
    errors.WrongContentType: 415,
    errors.UnknownHost: 421,
    errors.InvalidBody: 422,
    errors.InternalError: 500,
    errors.NoEngineAvailable: 503,
    errors.TooManyQueries: 503,
    errors.PoolFull: 503,
    errors.TooManyDownloads: 503,
    errors.GatewayStopped: 503,
    errors.MetastoreUnavailable: 503,
    EngineBusy: 503,
}
# A query that was accepted and failed is a 200 that says so, unless the statement or the moment was to blame.
_STATUS_OF_FAILED_QUERY: Mapping[type[GatewayError] | type[EngineError], int] = {
    StatementError: 400,
    errors.UnknownPartition: 400,
    errors.NoSession: 400,
    errors.UnknownDatabase: 400,
    errors.DatabaseExists: 400,
    errors.NotAllowed: 403,
    errors.RuleDenied: 403,
    errors.RuleForbidsEngine: 403,
    errors.JobRunning: 409,
    errors.TableInMotion: 409,
    errors.TableBusy: 409,
    errors.WriteConflict: 409,
    errors.SeveralMatches: 400,
    errors.DatabaseNotEmpty: 409,
    errors.NoEngineAvailable: 503,
    errors.PoolFull: 503,
    EngineBusy: 503,
}
STATUS: Mapping[str, int] = {kind.code: status for kind, status in _STATUS.items()}
STATUS_OF_FAILED_QUERY: Mapping[str, int] = {kind.code: status for kind, status in _STATUS_OF_FAILED_QUERY.items()}
_MEANINGS: Mapping[int, str] = {
    400: "The request or its statement is wrong; the code and the position say how.",
    401: "The login is missing or wrong.",
    403: "It is understood, and not allowed to this user or to anybody.",
    404: "There is nothing of this name or id.",
    409: "Not as things are now: it is running, or not finished, or there already.",
    410: "The result is no longer kept.",
    413: "The statement is too long.",
    421: "The gateway is not known by the name that it was called by.",
    422: "A field or a parameter is missing, or has a value that it cannot have.",
    500: "A defect of the gateway; its log says more.",
    503: "Not now; the same may work soon, as Retry-After says.",
}
_OF_EVERY_ROUTE = (400, 401, 403, 413, 421, 422, 500, 503)


def declared(*statuses: int, model: Any = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """Return replies for the interface's description. statuses: of errors; without any, those of every route."""
    return {status: {"model": model, "description": _MEANINGS[status]} for status in statuses or _OF_EVERY_ROUTE}


def reply(failure: Failure, query_id: str | None = None) -> ExactJSONResponse:
    """Return an error in its shape and with its status."""
    status = STATUS.get(failure.code, DEFAULT_STATUS)
    return ExactJSONResponse(
        ErrorReply(error=ErrorModel.of(failure, query_id)).model_dump(mode="json", exclude_none=True),
        status_code=status,
        headers={**SECURITY_HEADERS, **(retry_headers(status) or {})},
    )


def retry_headers(status: int) -> dict[str, str] | None:
    """Tell when to come back, or with what, where coming back helps."""
    if status == 401:
        return {"WWW-Authenticate": 'Basic realm="Fusion SQL Gateway", charset="UTF-8"'}
    return {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None


def allowed(scope: Scope) -> str:
    """Return the methods of a request's address as an Allow header has them; empty where there is no such address."""
    routes = scope["app"].routes
    taken = [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    of_reading = ["HEAD"] if "GET" in taken else []
    return ", ".join([*taken, *of_reading, "OPTIONS"]) if taken else ""


def install(app: FastAPI) -> None:
    """Map every error of the house. No stack trace and no path of the server leaves it."""

    @app.exception_handler(Exception)
    async def _any(request: Request, error: Exception) -> ExactJSONResponse:
        query_id = getattr(error, "query_id", None) or getattr(request.state, "query_id", None)
        return reply(errors.failure_of(error), query_id)

    for kind in errors.MAPPED:
        app.add_exception_handler(kind, _any)

    @app.exception_handler(NoEngine)
    async def _no_engine(_: Request, error: NoEngine) -> ExactJSONResponse:
        return reply(errors.NoEngineAvailable(f"No engine can take it: {error}").failure)

    @app.exception_handler(InspectionFailed)
    async def _inspection(_: Request, error: InspectionFailed) -> ExactJSONResponse:
        return reply(errors.TableUnreadable(str(error)).failure)

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> ExactJSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        told = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
        return reply(errors.InvalidBody(f"{place}: {told.removeprefix('Value error, ')}").failure)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> ExactJSONResponse:
        if error.status_code == 405:
            methods = allowed(request.scope)
            response = reply(errors.MethodNotAllowed(f"This address takes {methods}.").failure)
            response.headers["Allow"] = methods
            return response
        kind = errors.NotFound if error.status_code == 404 else errors.BadRequest
        response = reply(kind(str(error.detail)).failure)
        response.status_code = error.status_code
        return response
