"""Pages for people. Each links to its data as JSON."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import mimetypes
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.dashboard import api_docs, listing
from gateway.dashboard.load import Load
from gateway.dashboard.statistics import (
    ColumnPage,
    ScheduleLine,
    column_lines,
    drift_words,
    mode_words,
    table_facts,
    version_words,
)
from gateway.dashboard.views import Moment, QueryRow, StateBadge, lease_boxes, query_parts
from gateway.http.catalog import get_cache, get_usage, list_engines, list_pools
from gateway.http.models.rules import RulesReply
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.services import Services
from gateway.presentation.disclosure import may_see, visible
from gateway.presentation.formatting import DASH, cardinality, counted, duration, memory, share
from gateway.security.policy import Action
from gateway.security.web import PAGE_POLICY, SECURITY_HEADERS
from metastore.records import QueryState
from selector.wording import percent, seconds_of

HERE = Path(__file__).parent
REFRESH_S = 2
REFRESH_IDLE_S = 15
SOON = dt.timedelta(minutes=1)
JOBS_SHOWN = 20
STATIC_MAX_AGE_S = 86_400
PAGE_HEADERS = {**SECURITY_HEADERS, "Content-Security-Policy": PAGE_POLICY}

router = APIRouter(route_class=BoundedRoute, include_in_schema=False)

_FILES = {file.name: file for file in (HERE / "static").iterdir() if file.is_file()}
_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals["version"] = version("fusion-sql-gateway")
_templates.globals["refresh_s"] = REFRESH_S
_templates.globals["absent"] = DASH
_templates.filters.update(
    badge=StateBadge.of,
    cardinality=cardinality,
    counted=counted,
    duration=duration,
    memory=memory,
    mode=mode_words,
    moment=Moment.of,
    percent=percent,
    seconds=seconds_of,
    share=share,
)
# A file's address changes with its content, so that browsers may keep it.
_templates.globals["fresh"] = {
    name: f"{name}?{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" for name, file in _FILES.items()
}


@router.get("/")
@router.get("/dashboard/")
def root(request: Request) -> RedirectResponse:
    """Send people to the dashboard."""
    return RedirectResponse(f"{_prefix(request)}/dashboard", status_code=307)


@router.get("/dashboard")
def query_list(
    request: Request,
    gateway: Served,
    user: User,
    state: str = "",
    engine: str = "",
    failed_over: str = "",
    before: str = "",
) -> HTMLResponse:
    """Show the engines and the query log, newest first."""
    wanted = listing.Filter(
        state, engine, failed_over=failed_over not in ("", "0"), before=listing.moment(before) if before else None
    )
    page = listing.read(gateway.metastore.queries, wanted, gateway.waits.seen)
    now = _now()
    return _page(
        request,
        "query_list.html",
        filter=wanted,
        first=wanted.query_string(),
        older=wanted.query_string(before=page.older) if page.older else None,
        read=page.read,
        states=[state.value for state in QueryState],
        names=list(gateway.engines),
        engines=list_engines(gateway).engines,
        leases=gateway.admission.leases(),
        lease_boxes=lease_boxes,
        queries=[
            QueryRow.of(visible(record, user, gateway.policy), now, gateway.waits.of(record.id))
            for record in page.records
        ],
        live=wanted.before is None and any(not record.state.ended for record in page.records),
        first_query=None if page.read else _first_query(request, gateway),
    )


@router.get("/dashboard/queries/{query_id}")
def query_page(request: Request, gateway: Served, user: User, query_id: str) -> HTMLResponse:
    """Show one query: its state, decision and attempts."""
    record = gateway.metastore.queries.get(query_id)
    if record is None:
        return _not_found(request, "There is no such query.", query_id)
    misestimates = gateway.metastore.misestimates.about(record.fingerprint or "")
    parts = query_parts(
        visible(gateway.waits.seen(record), user, gateway.policy),
        wait=gateway.waits.of(record.id),
        misestimates=misestimates,
        result_kept=gateway.spool.has(record.id) and may_see(record, user, gateway.policy),
        engines=gateway.engines,
        now=_now(),
    )
    return _page(request, "query.html", **parts)


@router.get("/dashboard/load")
def load_page(request: Request, gateway: Served) -> HTMLResponse:
    """Show pools, cached results, and leases and waits of the last hour."""
    return _page(
        request,
        "load.html",
        pools=list_pools(gateway).pools,
        cache=get_cache(gateway),
        loads=[Load.of(usage) for usage in get_usage(gateway).usage],
        live=True,
        refresh_s=REFRESH_IDLE_S,
    )


@router.get("/dashboard/rules")
def rules_page(request: Request, gateway: Served, user: User) -> HTMLResponse:
    """Show the active routing rules, and how often each decided, to users who may see them."""
    may = gateway.policy.allows(user, Action.ADMINISTER_RULES)
    rules = RulesReply.of(gateway.router.rules.state()) if may else None
    read = Moment.of(rules.read_at, _now()) if rules is not None and rules.read_at is not None else None
    return _page(request, "rules.html", rules=rules, read=read, live=may, refresh_s=REFRESH_IDLE_S)


@router.get("/dashboard/statistics")
def statistics_page(request: Request, gateway: Served) -> HTMLResponse:
    """Show schedules, jobs, and the state of each table's statistics."""
    now = _now()
    store = gateway.metastore
    builds = gateway.catalog.current().statistics
    jobs, schedules, tables = store.jobs.list(limit=JOBS_SHOWN), store.schedules.list(), store.catalog.list()
    soon = any(due - now < SOON for schedule in schedules if (due := schedule.next_run_at))
    newest = {schedule.name: store.jobs.get(schedule.last_job_id or "") for schedule in schedules}
    return _page(
        request,
        "statistics.html",
        jobs=jobs,
        schedules=[ScheduleLine.of(schedule, newest[schedule.name], now) for schedule in schedules],
        tables=[
            (table, build, gateway.freshness.recent(table.source, build))
            for table in tables
            for build in [builds.get(table.name)]
        ],
        version_of=version_words,
        drift_of=drift_words,
        now=now,
        live=True,
        refresh_s=REFRESH_S if soon or any(not job.state.ended for job in jobs) else REFRESH_IDLE_S,
    )


@router.get("/dashboard/statistics/{name}")
def table_page(request: Request, gateway: Served, name: str) -> HTMLResponse:
    """Show one table's statistics, a line per column."""
    table = gateway.metastore.catalog.get(name)
    if table is None:
        return _not_found(request, "There is no such table.", name)
    build = gateway.metastore.statistics.current(name)
    drift = gateway.freshness.recent(table.source, build)
    return _page(
        request,
        "table.html",
        name=table.name,
        facts=table_facts(table, build, drift, _now(), gateway.objects.bytes_here(table.source.location)),
        notes=build.notes if build else (),
        columns=column_lines(build),
        unknown=[column for column in table.source.columns if build is None or column.name not in build.columns],
        live=False,
    )


@router.get("/dashboard/statistics/{name}/{column:path}")
def column_page(request: Request, gateway: Served, name: str, column: str) -> HTMLResponse:
    """Show one column: its histogram, its most common values, and its bins where it is a key."""
    build = gateway.metastore.statistics.current(name)
    statistics = build.columns.get(column) if build else None
    if build is None or statistics is None:
        return _not_found(request, "There are no statistics of such a column.", f"{name}.{column}")
    return _page(request, "column.html", column=ColumnPage.of(build, statistics), live=False)


@router.get("/docs")
def interface_page(request: Request) -> HTMLResponse:
    """Show the routes of the HTTP interface with their fields."""
    return _page(request, "api.html", api=api_docs, document=request.app.openapi(), live=False)


@router.get("/openapi.json")
def interface_document(request: Request) -> JSONResponse:
    """Return the description of the HTTP interface for programs."""
    return JSONResponse(request.app.openapi())


@router.get("/dashboard/static/{name}")
def static(request: Request, name: str) -> Response:
    """Return a style sheet, script or image."""
    file = _FILES.get(name)
    if file is None:
        return _not_found(request, "There is no such file.", name)
    headers = {**PAGE_HEADERS, "Cache-Control": f"max-age={STATIC_MAX_AGE_S}"}
    return FileResponse(file, media_type=mimetypes.guess_type(name)[0], headers=headers)


@router.get("/dashboard/{rest:path}")
def elsewhere(request: Request, rest: str) -> HTMLResponse:
    """Answer for addresses without a page."""
    return _not_found(request, "There is no such page.", rest)


def _page(request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
    text = _templates.get_template(template).render(prefix=_prefix(request), **shown)
    return HTMLResponse(text, status_code=status, headers=PAGE_HEADERS)


def _not_found(request: Request, message: str, name: str) -> HTMLResponse:
    return _page(request, "not_found.html", status=404, message=message, name=name, live=False)


def _prefix(request: Request) -> str:
    """Return the path under which a proxy serves the gateway; empty without one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _first_query(request: Request, gateway: Services) -> str:
    """Return a command line that sends the first query to this very gateway."""
    table = next((table.name for table in gateway.metastore.catalog.list()), None)
    sql = f"SELECT count(*) FROM {table}" if table else "SELECT 1 AS one"  # noqa: S608 - shown, not run
    address = str(request.base_url).rstrip("/") + "/v1/queries"
    words = (
        f"curl {shlex.quote(address)}",
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(json.dumps({'sql': sql}))}",
    )
    return " \\\n  ".join(words)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
