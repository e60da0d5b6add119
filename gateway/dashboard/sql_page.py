"""A page to write statements on, and one with the rows of a result. Both work without scripts.

``server.sql_page = false`` takes them away; rights are those of the interface. With scripts, the text area becomes an
editor (``editor/editor.js``) where ``hatch_build.py`` could make its bundle.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from gateway.dashboard import pages
from gateway.dashboard.actions import ActionRoute, Form, to_page
from gateway.dashboard.views import MarkedSql, QueryRow
from gateway.errors import NotFound, ResultGone
from gateway.http import render
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.services import Services
from gateway.presentation.disclosure import may_see
from gateway.presentation.timeline import decision_sentence, headline
from gateway.presentation.what_if import what_if
from gateway.security.policy import Action, Owned
from gateway.security.principals import Principal
from gateway.statements import AUTO
from gateway.statements.statement import Statement
from metastore.query_log.search import QueryFilter
from metastore.records import QueryState
from sql.dialects.names import DIALECTS
from sql.errors import FusionError
from sql.tables import DEFAULT_DATABASE

HISTORY = 15  # earlier statements of the user
PAGE_ROWS = 100
LAST_ROW = 10_000  # that is shown; whoever wants more downloads the result
LONGEST_CELL = 500  # characters

router = APIRouter(route_class=ActionRoute, prefix="/dashboard", include_in_schema=False)


@router.get("/sql")
def sql_page(request: Request, gateway: Served, user: User, query: str = "") -> Response:
    """Show an editor, with the statement of an earlier query of the user in it. query: its id."""
    _require_on(gateway)
    record = gateway.metastore.queries.get(query) if query else None
    if record is None or not may_see(record, user, gateway.policy):
        return _editor(request, gateway, user, {})
    asked = {"sql": record.sql, "dialect": record.dialect, "database": record.database}
    return _editor(request, gateway, user, asked | {"engine": record.requested_engine})


@router.post("/sql")
def send(request: Request, gateway: Served, user: User, form: Form) -> Response:
    """Run the statement of a form and lead to its rows, or tell where it would run."""
    _require_on(gateway)
    statement = _statement(request, gateway, user, form)
    if form.get("do") == "explain":
        try:
            _, decision = gateway.coordinator.explain(statement)
        except FusionError as error:
            return _editor(request, gateway, user, form, error=error)
        return _editor(request, gateway, user, form, told=[decision_sentence(decision), *what_if(decision)])
    run = gateway.coordinator.start(statement)
    gateway.coordinator.require_on_record(run)
    return to_page(request, f"queries/{run.id}/rows")


@router.get("/queries/{query_id}/rows")
def rows_page(request: Request, gateway: Served, user: User, query_id: str, first: int = 0) -> Response:
    """Show rows of a result, a page at a time; while the query runs, how far it is. first: number of the first row."""
    _require_on(gateway)
    record = gateway.metastore.queries.get(query_id)
    if record is None:
        raise NotFound("There is no such query.")
    gateway.policy.require(user, Action.USE_QUERY, Owned("query", record.id, record.owner))
    record = gateway.waits.seen(record)
    first = max(0, min(first, LAST_ROW - PAGE_ROWS)) // PAGE_ROWS * PAGE_ROWS
    shown: Rows | None = None
    if record.state is QueryState.FINISHED:
        try:
            shown = Rows.of(gateway, query_id, first)
        except ResultGone:
            shown = None
    return pages.rendered(
        request,
        "rows.html",
        query=record,
        headline=headline(record),
        sql=MarkedSql.of(record.sql, record.error.position if record.error else None),
        rows=shown,
        first=first,
        step=PAGE_ROWS,
        last=LAST_ROW,
        live=not record.state.ended,
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one page, as texts. more: others follow."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    more: bool

    @classmethod
    def of(cls, gateway: Services, query_id: str, first: int) -> Rows:
        """Read rows of a result. first: number of rows before them. Raises ResultGone."""
        rows: list[Sequence[str]] = []
        with gateway.spool.open(query_id) as result:
            columns = [(column.name, column.type) for column in render.columns(result.schema)]
            for batch in _behind(result, first):
                wanted = batch.slice(0, PAGE_ROWS + 1 - len(rows))
                rows += [[_text(value) for value in row] for row in render.batch_rows(wanted)]
                if len(rows) > PAGE_ROWS:
                    break
        return cls(columns, rows[:PAGE_ROWS], len(rows) > PAGE_ROWS)


def _behind(batches: Iterator[pa.RecordBatch] | Any, first: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without the first rows."""
    for batch in batches:
        if first < batch.num_rows:
            yield batch.slice(first)
        first = max(0, first - batch.num_rows)


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_CELL else text[:LONGEST_CELL] + "…"


def _statement(request: Request, gateway: Services, user: Principal, form: Form) -> Statement:
    made = gateway.session(user, form.get("database") or DEFAULT_DATABASE).statement(
        form.get("sql", ""),
        dialect=form.get("dialect") or "spark",
        engine=form.get("engine") or AUTO,
        headers=gateway.router.rules.headers_of(request.headers),
    )
    return replace(made, session=None)


def _editor(
    request: Request,
    gateway: Services,
    user: Principal,
    asked: dict[str, str],
    *,
    told: Sequence[str] = (),
    error: FusionError | None = None,
) -> HTMLResponse:
    now = dt.datetime.now(dt.UTC)
    own = gateway.metastore.queries.search(QueryFilter(user=user.name), limit=HISTORY)
    failure = error.failure if error is not None else None
    return pages.rendered(
        request,
        "sql.html",
        style_nonce=secrets.token_urlsafe(),
        asked=asked,
        told=told,
        failure=failure,
        marked=MarkedSql.of(asked.get("sql", ""), failure.position if failure else None),
        dialects=list(DIALECTS),
        names=list(gateway.engines),
        databases=sorted(gateway.catalog.shown_to(user).databases),
        history=[QueryRow.of(record, now, None) for record in own if may_see(record, user, gateway.policy)],
        live=False,
    )


def _require_on(gateway: Services) -> None:
    if not gateway.settings.server.sql_page:
        raise NotFound("There is no such page.")
