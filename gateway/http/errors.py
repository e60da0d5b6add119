"""The one place that knows which status an error has, and the one shape of all of them."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gateway import failures
from gateway.coordinator import GATEWAY_STOPPED, NO_ENGINE, TOO_MANY
from gateway.failures import CallFailed
from gateway.http.models import ErrorModel, ErrorReply
from gateway.http.replies import ExactJSONResponse
from gateway.jobs import JobElsewhere, JobsBusy
from gateway.results import ResultGone
from gateway.schedule_errors import ScheduleError
from gateway.security.web import SECURITY_HEADERS
from gateway.sql.errors import SqlError
from metastore.inspection import InspectionFailed
from metastore.records import Failure
from selector.decide import NoEngine

RETRY_AFTER_S = 5
DEFAULT_STATUS = 400
STATUS: Mapping[str, int] = {
    "AUTHENTICATION_FAILED": 401,
    "NOT_ALLOWED": 403,
    "ACCESS_DENIED": 403,
    "ROOTS_REQUIRED": 403,
    "NOT_YOUR_QUERY": 403,
    "CROSS_SITE_REQUEST": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_FINISHED": 409,
    "JOB_RUNNING": 409,
    "TABLE_CHANGED": 409,
    "JOB_ELSEWHERE": 409,
    "SCHEDULE_EXISTS": 409,
    "SCHEDULE_PAUSED": 409,
    "RESULT_GONE": 410,
    "STATEMENT_TOO_LONG": 413,
    "UNKNOWN_HOST": 421,
    "INVALID_BODY": 422,
    "INTERNAL": 500,
    NO_ENGINE: 503,
    TOO_MANY: 503,
    "TOO_MANY_DOWNLOADS": 503,
    GATEWAY_STOPPED.code: 503,
    "ENGINE_BUSY": 503,
    "METASTORE_UNAVAILABLE": 503,
}
# A query that was accepted and failed is a 200 that says so, unless the statement or the moment was to blame.
STATUS_OF_FAILED_QUERY: Mapping[str, int] = {
    "STATEMENT_ERROR": 400,
    "NOT_ALLOWED": 403,
    "UNKNOWN_PARTITION": 400,
    "NO_SESSION": 400,
    "JOB_RUNNING": 409,
    "TABLE_CHANGED": 409,
    "TABLE_BUSY": 409,
    "ENGINE_BUSY": 503,
    NO_ENGINE: 503,
}


class ApiError(CallFailed):
    """An error that a route raises by itself."""

    def __init__(self, code: str, message: str, query_id: str | None = None) -> None:
        super().__init__(code, message)
        self.query_id = query_id


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


def install(app: FastAPI) -> None:
    """Map every error of the house. No stack trace and no path of the server leaves it."""

    @app.exception_handler(ApiError)
    async def _api(_: Request, error: ApiError) -> ExactJSONResponse:
        return reply(error.failure, error.query_id)

    @app.exception_handler(Exception)
    async def _any(_: Request, error: Exception) -> ExactJSONResponse:
        return reply(failures.failure_of(error))

    for kind in failures.MAPPED:
        app.add_exception_handler(kind, _any)

    @app.exception_handler(SqlError)
    async def _sql(request: Request, error: SqlError) -> ExactJSONResponse:
        return reply(failures.failure_of(error), getattr(request.state, "query_id", None))

    @app.exception_handler(NoEngine)
    async def _no_engine(_: Request, error: NoEngine) -> ExactJSONResponse:
        return reply(Failure(NO_ENGINE, f"No engine can take it: {error}"))

    @app.exception_handler(ResultGone)
    async def _gone(_: Request, error: ResultGone) -> ExactJSONResponse:
        return reply(failures.failure_of(error), str(error.args[0]))

    @app.exception_handler(JobsBusy)
    async def _busy(_: Request, error: JobsBusy) -> ExactJSONResponse:
        return reply(Failure("JOB_RUNNING", str(error)))

    @app.exception_handler(JobElsewhere)
    async def _elsewhere(_: Request, error: JobElsewhere) -> ExactJSONResponse:
        return reply(Failure("JOB_ELSEWHERE", str(error)))

    @app.exception_handler(ScheduleError)
    async def _schedule(_: Request, error: ScheduleError) -> ExactJSONResponse:
        return reply(Failure(error.code, str(error)))

    @app.exception_handler(InspectionFailed)
    async def _inspection(_: Request, error: InspectionFailed) -> ExactJSONResponse:
        return reply(Failure("TABLE_UNREADABLE", str(error)))

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> ExactJSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return reply(Failure("INVALID_BODY", f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> ExactJSONResponse:
        codes = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
        response = reply(Failure(codes.get(error.status_code, "BAD_REQUEST"), str(error.detail)))
        response.status_code = error.status_code
        return response
