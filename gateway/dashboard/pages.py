"""Pages for people. Each links to its data as JSON."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import mimetypes
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.dashboard import api_docs, listing, overview
from gateway.dashboard.drawings.scatter import Scatter
from gateway.dashboard.load import Load
from gateway.dashboard.overview import OpenQuery
from gateway.dashboard.statistics import mode_words
from gateway.dashboard.views import Moment, QueryRow, StateBadge, allowed_on, lease_boxes, query_parts, shortened
from gateway.http.catalog import get_cache, get_usage, list_engines, list_pools
from gateway.http.errors import status_of
from gateway.http.models.rules import RulesReply
from gateway.http.queries import Served
from gateway.http.requests.browsers import LOGIN
from gateway.http.requests.login import BY_COOKIE, USER, User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing.parity import get_parity
from gateway.http.searching import shows_expectations
from gateway.http.services import Services
from gateway.presentation.disclosure import may_see, visible
from gateway.presentation.formatting import DASH, cardinality, counted, duration, engine_time, memory, share
from gateway.presentation.savings import Savings
from gateway.security.policy import Action
from gateway.security.principals import Principal
from gateway.security.web import PAGE_POLICY, SECURITY_HEADERS, page_policy
from metastore.query_log.search import QueryFilter
from metastore.query_log.workload import SavingsBy
from metastore.records import QueryState
from selector.wording import percent, seconds_of
from sql.errors import Failure

HERE = Path(__file__).parent
REFRESH_S = 2
REFRESH_IDLE_S = 15
TEMPLATES_WINDOW = "week"
POINTS = 1_000  # of the newest queries, in the plot of estimates
LEDGER_LINES = 200
STATIC_MAX_AGE_S = 86_400
PAGE_HEADERS = {
    **SECURITY_HEADERS,
    "Content-Security-Policy": PAGE_POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would be sent without the origin that is asked for
}

router = APIRouter(route_class=BoundedRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Login:
    """Login of a page, where an identity provider can give one.

    name: of the user; None: the client has not logged in.
    may_end: it is a session of the browser, which a button ends.
    address: path at which a login begins that leads back to the page.
    """

    name: str | None
    may_end: bool
    address: str

    @classmethod
    def of(cls, request: Request) -> Login:
        """Return the login of a request."""
        user: Principal | None = request.scope.get(USER)
        name = user.name if user is not None and user.authenticated else None
        page = request.url.path.removeprefix(_prefix(request))
        again = urlencode({"next": f"{page}?{request.url.query}" if request.url.query else page})
        return cls(name, bool(request.scope.get(BY_COOKIE)), f"{_prefix(request)}{LOGIN}?{again}")


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
    engine_time=engine_time,
    memory=memory,
    mode=mode_words,
    moment=Moment.of,
    percent=percent,
    seconds=seconds_of,
    share=share,
)
# A file's address changes with its content, so that browsers may keep it.
_fresh = {name: f"{name}?{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" for name, file in _FILES.items()}
_templates.globals["fresh"] = _fresh


@router.get("/")
@router.get("/dashboard/")
def root(request: Request) -> RedirectResponse:
    """Send people to the dashboard."""
    return RedirectResponse(f"{_prefix(request)}/dashboard", status_code=307)


@router.get("/dashboard")
def overviewpage(request: Request, gateway: Served, user: User, last: str = "") -> HTMLResponse:
    """Show what runs and waits now, the engines, and the sums of the last hour, day or week."""
    window = last if last in listing.WINDOWS else overview.DEFAULT_WINDOW
    now, waits = _now(), gateway.waits
    is_open = QueryFilter(state=QueryState.RUNNING)
    found = gateway.metastore.queries.search(is_open, descending=False, limit=listing.OPEN_ROWS)
    records = [visible(waits.seen(record), user, gateway.policy) for record in found]
    opened = [OpenQuery.of(record, now, waits.of(record.id)) for record in records if not record.state.ended]
    sums = overview.sums_of(request, window)
    return rendered(
        request,
        "overview.html",
        engines=list_engines(gateway).engines,
        may_drain=gateway.policy.allows(user, Action.DRAIN_ENGINE),
        leases=gateway.admission.leases(),
        lease_boxes=lease_boxes,
        open=opened,
        window=window,
        windows=list(listing.WINDOWS),
        first_query=None if sums.engines or opened else _first_query(request, gateway, user),
        parity=gateway.metastore.parity.counts(now - listing.WINDOWS[window]),
        live=True,
        **overview.parts(sums, gateway.settings.pricing.per_hour),
    )


@router.get("/dashboard/queries")
def query_list(request: Request, gateway: Served, user: User) -> HTMLResponse:
    """Show the queries that a search finds, newest first or by another order."""
    now = _now()
    search = listing.Search.of(request.query_params, user, gateway.policy, now)
    page = listing.read(gateway.metastore.queries, search, gateway.waits.seen)
    return rendered(
        request,
        "query_list.html",
        search=search,
        first=search.address() if search.after is not None else None,
        next=search.address(after=page.next) if page.next else None,
        states=[state.value for state in QueryState],
        names=list(gateway.engines),
        orders=listing.ORDERS.items(),
        pools=[state.pool.name for state in gateway.admission.describe().pools],
        windows=list(listing.WINDOWS),
        searches_own=search.filter.text_of is not None,
        queries=[
            QueryRow.of(visible(record, user, gateway.policy), now, gateway.waits.of(record.id))
            for record in page.records
        ],
        live=search.after is None and any(not record.state.ended for record in page.records),
    )


@router.get("/dashboard/templates")
def templatespage(request: Request, gateway: Served, user: User, last: str = "") -> HTMLResponse:
    """Show templates with their counts, seconds, failures and errors of estimates, those that took most first."""
    window = last if last in listing.WINDOWS else TEMPLATES_WINDOW
    totals = gateway.metastore.workload.templates(_now() - listing.WINDOWS[window], limit=listing.PAGE_ROWS)
    newest = {total.newest: gateway.metastore.queries.get(total.newest) for total in totals}
    texts = {
        name: shortened(visible(record, user, gateway.policy).sql)
        for name, record in newest.items()
        if record is not None
    }
    return rendered(
        request,
        "templates.html",
        templates=totals,
        texts=texts,
        window=window,
        windows=list(listing.WINDOWS),
        live=False,
    )


@router.get("/dashboard/estimates")
def estimatespage(request: Request, gateway: Served, user: User, last: str = "") -> HTMLResponse:
    """Show measured against expected peaks, and how many stay below their upper bounds."""
    if not shows_expectations(user, gateway.policy):
        return not_found(request, "Estimates are shown to operators while there is an access policy.", "")
    window = last if last in listing.WINDOWS else TEMPLATES_WINDOW
    since, work = _now() - listing.WINDOWS[window], gateway.metastore.workload
    return rendered(
        request,
        "estimates.html",
        scatter=Scatter.of(work.peaks(since, limit=POINTS)),
        bounds=work.bounds(since),
        window=window,
        windows=list(listing.WINDOWS),
        live=False,
    )


@router.get("/dashboard/savings")
def savingspage(request: Request, gateway: Served, last: str = "", by: str = "") -> HTMLResponse:
    """Show the savings ledger by day, user, pool or template."""
    window = last if last in listing.WINDOWS else TEMPLATES_WINDOW
    kind = next((one for one in SavingsBy if one.value == by), SavingsBy.DAY)
    prices, since = gateway.settings.pricing.per_hour, _now() - listing.WINDOWS[window]
    lines, sums = gateway.metastore.workload.savings(since, by=kind), overview.sums_of(request, window).savings
    return rendered(
        request,
        "savings.html",
        lines=[Savings.of(line, prices) for line in lines[:LEDGER_LINES]],
        all=Savings.of(sums[0], prices) if sums else None,
        by=kind.value,
        kinds=[one.value for one in SavingsBy if one is not SavingsBy.ALL],
        window=window,
        windows=list(listing.WINDOWS),
        live=False,
    )


@router.get("/dashboard/queries/{query_id}")
def querypage(request: Request, gateway: Served, user: User, query_id: str) -> HTMLResponse:
    """Show one query: its state, decision and attempts."""
    record = gateway.metastore.queries.get(query_id)
    if record is None:
        return not_found(request, "There is no such query.", query_id)
    misestimates = gateway.metastore.misestimates.about(record.fingerprint or "")
    parts = query_parts(
        visible(gateway.waits.seen(record), user, gateway.policy),
        wait=gateway.waits.of(record.id),
        misestimates=misestimates,
        result_kept=gateway.spool.has(record.id) and may_see(record, user, gateway.policy),
        engines=gateway.engines,
        now=_now(),
    )
    return rendered(
        request,
        "query.html",
        **parts,
        may=allowed_on(record, user, gateway),
        misestimated=bool(misestimates),
        names=list(gateway.engines),
        curl=_curl(request, {"sql": parts["query"].sql, "dialect": record.dialect, "database": record.database}),
    )


@router.get("/dashboard/load")
def loadpage(request: Request, gateway: Served) -> HTMLResponse:
    """Show pools, cached results, and leases and waits of the last hour."""
    return rendered(
        request,
        "load.html",
        pools=list_pools(gateway).pools,
        cache=get_cache(gateway),
        loads=[Load.of(usage) for usage in get_usage(gateway).usage],
        live=True,
        refresh_s=REFRESH_IDLE_S,
    )


@router.get("/dashboard/parity")
def paritypage(request: Request, gateway: Served, user: User) -> HTMLResponse:
    """Show how many answers were compared with the dependable engine's, and the cases in which they differ."""
    return rendered(
        request,
        "parity.html",
        parity=get_parity(gateway, user),
        may_release=gateway.policy.allows(user, Action.RELEASE_CASE),
        now=_now(),
        live=False,
    )


@router.get("/dashboard/rules")
def rulespage(request: Request, gateway: Served, user: User) -> HTMLResponse:
    """Show the active routing rules, and how often each decided, to users who may see them."""
    may = gateway.policy.allows(user, Action.ADMINISTER_RULES)
    rules = RulesReply.of(gateway.router.rules.state()) if may else None
    read = Moment.of(rules.read_at, _now()) if rules is not None and rules.read_at is not None else None
    return rendered(request, "rules.html", rules=rules, read=read, live=may, refresh_s=REFRESH_IDLE_S)


@router.get("/docs")
def interfacepage(request: Request) -> HTMLResponse:
    """Show the routes of the HTTP interface with their fields."""
    return rendered(request, "api.html", api=api_docs, document=request.app.openapi(), live=False)


@router.get("/openapi.json")
def interface_document(request: Request) -> JSONResponse:
    """Return the description of the HTTP interface for programs."""
    return JSONResponse(request.app.openapi())


@router.get("/dashboard/static/{name}")
def static(request: Request, name: str) -> Response:
    """Return a style sheet, script or image."""
    file = _FILES.get(name)
    if file is None:
        return not_found(request, "There is no such file.", name)
    headers = {**PAGE_HEADERS, "Cache-Control": f"max-age={STATIC_MAX_AGE_S}"}
    return FileResponse(file, media_type=mimetypes.guess_type(name)[0], headers=headers)


@router.get("/dashboard/{rest:path}")
def elsewhere(request: Request, rest: str) -> HTMLResponse:
    """Answer for addresses without a page."""
    return not_found(request, "There is no such page.", rest)


def refused(request: Request, failure: Failure) -> HTMLResponse:
    """Answer for an action of a page that was refused."""
    back = f"{_prefix(request)}/dashboard"
    return rendered(request, "refused.html", status=status_of(failure.code), failure=failure, back=back, live=False)


def rendered(
    request: Request, template: str, *, status: int = 200, style_nonce: str = "", **shown: Any
) -> HTMLResponse:
    """Return a page of a template. style_nonce: of style elements that its scripts add; shown: its other values."""
    gateway = request.app.state.gateway
    shown["has_sql_page"] = gateway.settings.server.sql_page
    shown["login"] = None if gateway.browser_login is None else Login.of(request)
    text = _templates.get_template(template).render(prefix=_prefix(request), style_nonce=style_nonce, **shown)
    headers = {**PAGE_HEADERS, "Content-Security-Policy": page_policy(style_nonce)}
    return HTMLResponse(text, status_code=status, headers=headers)


def not_found(request: Request, message: str, name: str) -> HTMLResponse:
    """Return the page for an address without a page. name: the part of it that names nothing."""
    return rendered(request, "not_found.html", status=404, message=message, name=name, live=False)


def _prefix(request: Request) -> str:
    """Return the path under which a proxy serves the gateway; empty without one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _first_query(request: Request, gateway: Services, user: Principal) -> str:
    """Return a command line that sends the first query to this very gateway."""
    table = next(iter(gateway.catalog.shown_to(user).tables), None)
    sql = f"SELECT count(*) FROM {table}" if table else "SELECT 1 AS one"  # noqa: S608 - shown, not run
    return _curl(request, {"sql": sql})


def _curl(request: Request, body: Mapping[str, str]) -> str:
    """Return a command line that sends a query to this very gateway."""
    address = str(request.base_url).rstrip("/") + "/v1/queries"
    words = (
        f"curl {shlex.quote(address)}",
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(json.dumps(body))}",
    )
    return " \\\n  ".join(words)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
