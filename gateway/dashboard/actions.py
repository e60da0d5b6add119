"""Buttons of the pages: each sends a form, does what the interface for programs does, and leads back to a page.

Pages of other sites cannot send them: a request that changes something must come from a page of the gateway
(``security/web.py``). Rights are those of the interface, and each request is a line of the audit file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, ValidationError

from gateway.dashboard.pages import refused
from gateway.errors import InvalidBody, NotFound
from gateway.failures import MAPPED, failure_of
from gateway.http.catalog import forget_misestimate
from gateway.http.models.schedules import ScheduleChange, ScheduleRequest
from gateway.http.models.statistics import StatisticsJobRequest
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute, Handler
from gateway.http.routing.drains import drain_engine, resume_engine
from gateway.http.routing.parity import release
from gateway.http.schedules import add_schedule, change_schedule, remove_schedule, run_schedule
from gateway.http.services import Services
from gateway.http.statistics import start_job
from gateway.presentation.disclosure import may_see
from gateway.security.policy import Action, Owned
from gateway.statements import AUTO
from metastore.records import ALL_TABLES, QueryRecord

Model = TypeVar("Model", bound=BaseModel)


class ActionRoute(BoundedRoute):
    """A route of a button: a refusal is a page."""

    def get_route_handler(self) -> Handler:
        """Return the function that answers a request."""
        answer = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await answer(request)
            except MAPPED as error:
                return refused(request, failure_of(error))

        return shown


router = APIRouter(route_class=ActionRoute, prefix="/dashboard", include_in_schema=False)


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises InvalidBody."""
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, errors="strict"))
    except ValueError as error:
        raise InvalidBody("The form is not in UTF-8.") from error


Form = Annotated[dict[str, str], Depends(form_of)]


@router.post("/queries/{query_id}/cancel")
def cancel(query_id: str, request: Request, gateway: Served, user: User) -> RedirectResponse:
    """Cancel a query."""
    record = _record(gateway, query_id)
    gateway.policy.require(user, Action.USE_QUERY, Owned("query", query_id, record.owner))
    gateway.coordinator.cancel(query_id)
    return to_page(request, f"queries/{quote(query_id, safe='')}")


@router.post("/queries/{query_id}/again")
def run_again(query_id: str, request: Request, gateway: Served, user: User, form: Form) -> RedirectResponse:
    """Run a query's statement again, as the user who asks, and show the new query. engine: of the form; or auto."""
    record = _record(gateway, query_id)
    if not may_see(record, user, gateway.policy):
        gateway.policy.require(user, Action.SEE_STATEMENT, Owned("query", query_id, record.owner))
    statement = gateway.session(user, record.database).statement(
        record.sql,
        dialect=record.dialect,
        engine=form.get("engine") or AUTO,
        headers=gateway.router.rules.headers_of(request.headers),
    )
    run = gateway.coordinator.start(replace(statement, session=None))
    gateway.coordinator.require_on_record(run)
    return to_page(request, f"queries/{quote(run.id, safe='')}")


@router.post("/queries/{query_id}/forget")
def forget(query_id: str, request: Request, gateway: Served, user: User) -> RedirectResponse:
    """Forget the misestimates of a query's statement."""
    record = _record(gateway, query_id)
    forget_misestimate(record.fingerprint or "", gateway, user)
    return to_page(request, f"queries/{quote(query_id, safe='')}")


@router.post("/parity/{query_id}/release")
def release_case(query_id: str, request: Request, gateway: Served, user: User) -> RedirectResponse:
    """Let the template of a case run on its engine again."""
    release(gateway, user, query_id)
    return to_page(request, "parity")


@router.post("/engines/{name}/{change}")
def change_engine(name: str, change: str, request: Request, gateway: Served, user: User) -> RedirectResponse:
    """Drain or resume an engine."""
    if change == "drain":
        drain_engine(name, gateway, user)
    elif change == "resume":
        resume_engine(name, gateway, user)
    else:
        raise NotFound("There is no such action.")
    return to_page(request, "")


@router.post("/compute")
def compute(request: Request, gateway: Served, user: User, form: Form) -> RedirectResponse:
    """Compute the statistics of a table of the form, and show how far that is."""
    table = form.get("table", "")
    start_job(_model(StatisticsJobRequest, {"tables": [table]}), request, gateway, user)
    return to_page(request, f"statistics/{quote(table, safe='')}")


@router.post("/schedules")
def add(request: Request, gateway: Served, user: User, form: Form) -> RedirectResponse:
    """Add a schedule."""
    wanted = {"name": form.get("name", ""), "tables": list(ALL_TABLES), **_schedule_fields(form)}
    add_schedule(_model(ScheduleRequest, wanted), request, gateway, user)
    return to_page(request, "statistics")


@router.post("/schedules/{name}/{change}")
def change(name: str, change: str, request: Request, gateway: Served, user: User, form: Form) -> RedirectResponse:
    """Pause, resume, run, change or remove a schedule."""
    if change == "run":
        run_schedule(name, request, gateway, user)
    elif change == "change":
        change_schedule(name, _model(ScheduleChange, _schedule_fields(form)), request, gateway, user)
    elif change == "remove":
        remove_schedule(name, gateway, user)
    elif change in ("pause", "resume"):
        change_schedule(name, ScheduleChange(paused=change == "pause"), request, gateway, user)
    else:
        raise NotFound("There is no such action.")
    return to_page(request, "statistics")


def _schedule_fields(form: Form) -> dict[str, object]:
    """Return the fields of a schedule in a form. tables: with commas between them; empty: all."""
    fields: dict[str, object] = {name: form[name] for name in ("cron", "time_zone") if form.get(name)}
    if "tables" in form:
        fields["tables"] = [name.strip() for name in form["tables"].split(",") if name.strip()] or list(ALL_TABLES)
    for name in ("stale_files", "stale_days"):
        if form.get(name):
            fields[name] = _number(form[name])
    if form.get("after_misestimate"):
        fields["after_misestimate"] = True
    return fields


def _number(text: str) -> float | str:
    """Return a field as a number; a text that is none is left for the model to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def _record(gateway: Services, query_id: str) -> QueryRecord:
    record = gateway.metastore.queries.get(query_id)
    if record is None:
        raise NotFound("There is no such query.")
    return record


def _model(kind: type[Model], fields: Mapping[str, object]) -> Model:
    """Return a request as the interface takes it. Raises InvalidBody."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidBody(f"{first['loc'][0] if first['loc'] else 'form'}: {first['msg']}") from error


def to_page(request: Request, page: str) -> RedirectResponse:
    """Lead to a page. page: its address behind that of the dashboard."""
    prefix = str(request.scope.get("root_path", "")).rstrip("/")
    return RedirectResponse(f"{prefix}/dashboard/{page}".rstrip("/"), status_code=303)
