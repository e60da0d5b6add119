"""Routes that run, find, fetch and cancel queries. It is long because all ways to a query's rows are here."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from engines.compiled import CompiledStatement
from engines.errors import UnsupportedFeature
from gateway.errors import BadRequest, NotFinished, NotFound, NotYourQuery, ResultGone
from gateway.execution.spooling.downloads import WIDE_BYTES
from gateway.execution.spooling.results import ResultFile
from gateway.execution.streaming.early_result import EarlyResult
from gateway.http import render
from gateway.http.errors import STATUSES_OF_FAILED_QUERIES, declared, retry_headers, status_of_failed_query
from gateway.http.models.common import ErrorReply
from gateway.http.models.queries import (
    BasisModel,
    DecisionModel,
    ExplainReply,
    ExplainRequest,
    FileModel,
    FilesReply,
    ListedFiles,
    QueryList,
    QueryReply,
    QueryRequest,
    ResultReply,
)
from gateway.http.render import Chunks
from gateway.http.replies import ModelResponse
from gateway.http.requests.login import User
from gateway.http.requests.routes import CLIENT_CLOSED_REQUEST, BoundedRoute
from gateway.http.searching import QuerySearch, place_of, searchable_of, shows_expectations, written_place
from gateway.http.services import Services
from gateway.http.streaming import RowStream
from gateway.presentation.disclosure import may_see, visible
from gateway.presentation.values.json_values import json_value
from gateway.presentation.what_if import by_weight, statistics_sentence, what_if
from gateway.security.policy import Action, Owned
from gateway.security.principals import Principal
from gateway.statements.stages import Stage
from gateway.statements.statement import HeldRows, Run, Statement
from metastore.query_log.search import QueryOrder
from metastore.records import QueryRecord, QueryState
from selector.decision import Decision
from sql.errors import AccessDenied

router = APIRouter(route_class=BoundedRoute, prefix="/v1", tags=["queries"])

WATCH_S = 0.5  # between two looks whether a client that waits is still there
CACHE_HEADER = "X-Fusion-Cache"  # of a reply to a query: hit, miss or bypass

ARROW = "application/vnd.apache.arrow.stream"
Opener = Callable[[], AbstractContextManager[ResultFile]]
Format = Literal["json", "csv", "arrow"]
_STREAMS: dict[Format, tuple[str, Callable[[ResultFile, render.Messages], Chunks]]] = {
    "json": ("application/json", render.json_stream),
    "csv": ("text/csv; charset=utf-8", render.csv_stream),
    "arrow": (ARROW, render.arrow_stream),
}


async def gateway_of(request: Request) -> Services:  # asynchronous, so that FastAPI needs no thread for it
    """Return the gateway that this application serves."""
    gateway = request.app.state.gateway
    assert isinstance(gateway, Services)
    return gateway


Served = Annotated[Services, Depends(gateway_of)]


# A query that failed because of its statement, or of the moment, is shown with the status of its error.
_NOT_RUN: Mapping[int | str, dict[str, Any]] = {
    202: {"model": QueryReply, "description": "It still runs."},
    **declared(*sorted(STATUSES_OF_FAILED_QUERIES), model=QueryReply | ErrorReply),
}


@router.post("/queries", response_model=QueryReply, responses=dict(_NOT_RUN))
async def run_query(body: QueryRequest, request: Request, gateway: Served, user: User) -> Response:
    """Run a query. 200 once it has ended, 202 while it still runs after wait_s."""
    if not gateway.catalog.knows_database(body.database):
        await run_in_threadpool(gateway.catalog.current)
    run = _started(body, request, gateway, user)
    if not await _settled(run, request, body.wait_s):
        gateway.coordinator.cancel(run.id)
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if run.accepted.done():
        run.require_accepted()
    max_rows = gateway.settings.limits.rows if body.max_rows is None else body.max_rows
    record = run.done.result() if run.done.done() and not run.done.cancelled() and not run.is_lost else None
    if record is None or not run.opened.done():
        await run_in_threadpool(gateway.coordinator.require_on_record, run)
    else:
        run.opened.result()  # raises where it ended because it could not be recorded
        run.clock.hand_over(Stage.WAKE)
    if record is not None and (run.held is not None or record.state is not QueryState.FINISHED):
        reply = _reply(request, gateway, user, run.id, max_rows, record, run.held)  # all of it is in memory
    else:
        reply = await run_in_threadpool(_reply, request, gateway, user, run.id, max_rows, record)
    reply.headers[CACHE_HEADER] = run.cache
    if record is not None:
        run.clock.end(Stage.REPLY)
        gateway.coordinator.measured(run)
    return reply


@router.get("/queries")
def list_queries(
    gateway: Served,
    user: User,
    search: Annotated[QuerySearch, Depends()],
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> QueryList:
    """Find queries, newest first or in another order, without their rows; others' without the values in them.

    A text is looked for in statements whose values the user may see.
    """
    if search.order is QueryOrder.EXPECTED and not shows_expectations(user, gateway.policy):
        raise BadRequest(
            "Queries are sorted by what was expected for operators alone, while there is an access policy."
        )
    found = gateway.metastore.queries.search(
        replace(search.filter, **searchable_of(user, gateway.policy)),
        order=search.order,
        descending=search.descending,
        after=search.after,
        limit=limit + 1,
    )
    page = found[:limit]
    shown = [visible(gateway.waits.seen(record), user, gateway.policy) for record in page]
    place = place_of(search.order, page[-1]) if len(found) > limit else None
    return QueryList(
        queries=[QueryReply.of(record, gateway.waits.of(record.id)) for record in shown],
        next=written_place(place) if place else None,
    )


@router.get("/queries/{query_id}", response_model=QueryReply, responses=declared(404))
def get_query(
    query_id: str,
    request: Request,
    gateway: Served,
    user: User,
    max_rows: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
) -> Response:
    """Return one query, with its first rows once it has finished, for users who may fetch them.

    A running query has them where ``max_rows`` asks for fewer than there are, and no other engine can replace them any
    more.
    """
    record = _record(gateway, query_id)
    if not may_see(record, user, gateway.policy):
        hidden = QueryReply.of(visible(record, user, gateway.policy), gateway.waits.of(query_id))
        return ModelResponse(hidden)
    early = gateway.coordinator.early_results.find(query_id) if max_rows and not record.state.ended else None
    reply: Response
    if early is not None and max_rows and early.readable_rows > max_rows:
        reply = _early_page(request, gateway, user, max_rows, record, early)
    else:
        limit = gateway.settings.limits.rows if max_rows is None else max_rows
        reply = _reply(request, gateway, user, query_id, limit, record)
    reply.status_code = 200
    return reply


@router.get(
    "/queries/{query_id}/result",
    response_model=None,
    responses={
        200: {
            "model": ResultReply,
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        **declared(404, 409, 410),
    },
)
async def get_result(
    query_id: str,
    request: Request,
    gateway: Served,
    user: User,
    format: Format = "json",
    guard: Annotated[bool, Query(description="CSV for spreadsheets: no text is a formula.")] = False,
    wait_s: Annotated[float, Query(ge=0.0, le=600.0, description="How long to wait until there are rows.")] = 0.0,
) -> StreamingResponse:
    """Return the whole result of a query as JSON, CSV or an Arrow IPC stream.

    Rows of a running query are sent as they come, once no other engine can replace them any more. If it fails after
    that, the connection is closed before the end of the reply.
    """
    media_type, stream = _STREAMS[format]
    if guard and format == "csv":
        stream = partial(render.csv_stream, guarded=True)
    run = gateway.coordinator.find(query_id)
    if run is not None:
        _check_owner(gateway, run.record, user)
        early = await _early_rows(gateway, run, wait_s)
        if early is not None:
            return _streamed(request, gateway, query_id, user, stream, early.open, media_type=media_type)
    opened = await run_in_threadpool(_whole, gateway, query_id, user)
    return _streamed(request, gateway, query_id, user, stream, opened, media_type=media_type)


@router.get("/queries/{query_id}/files", responses=declared(404))
def list_files(
    query_id: str, gateway: Served, user: User, limit: Annotated[int, Query(ge=0, le=100_000)] = 10_000
) -> FilesReply:
    """List the files that a query read of each table, for users who may fetch its rows. limit: files of a table."""
    decision = visible(_own_record(gateway, query_id, user), user, gateway.policy).decision
    tables = []
    for name, read in decision.reads.items() if decision is not None else ():
        manifest, listed = gateway.registration.files.manifest_of(read), None
        if manifest is not None:
            first = islice(manifest.files, limit)
            listed = [FileModel(path=manifest.relative(file), bytes=file.bytes) for file in first]
        tables.append(ListedFiles.showing(read, table=name, listed=listed))
    return FilesReply(tables=tables)


@router.delete("/queries/{query_id}", responses=declared(404))
async def cancel_query(query_id: str, gateway: Served, user: User) -> QueryReply:
    """Cancel a query and return it; one that has ended stays as it is."""
    run = gateway.coordinator.find(query_id)
    if run is None:
        await run_in_threadpool(_own_record, gateway, query_id, user)
    else:
        _check_owner(gateway, run.record, user)
        gateway.coordinator.cancel(query_id)
        await _wait(run, gateway.settings.server.cancel_wait_s)
    record = await run_in_threadpool(_record, gateway, query_id)
    return QueryReply.of(visible(record, user, gateway.policy), gateway.waits.of(query_id))


@router.post("/explain")
def explain(body: ExplainRequest, request: Request, gateway: Served, user: User) -> ExplainReply:
    """Decide about a query without running it."""
    gateway.catalog.current()
    statement = _statement(body, request, gateway, user)
    checked, decision = gateway.coordinator.explain(statement)
    sql: dict[str, str] = {}
    for entry in () if checked.restricted else gateway.engines.values():
        with contextlib.suppress(UnsupportedFeature):
            sql[entry.name] = checked.sql(entry.engine.writer)
    return ExplainReply(
        fingerprint=checked.fingerprint,
        decision=DecisionModel.of(decision),
        what_if=list(what_if(decision)),
        statistics=[] if checked.restricted else _bases(gateway, checked, decision),
        sql=sql,
    )


def _started(body: QueryRequest, request: Request, gateway: Services, user: Principal) -> Run:
    """Start a query, on the event loop: nothing of it blocks."""
    statement = _statement(body, request, gateway, user, timeout_s=body.timeout_s or 0.0)
    request.state.query_id = statement.id
    return gateway.coordinator.start(statement)


def _statement(
    body: ExplainRequest, request: Request, gateway: Services, user: Principal, *, timeout_s: float = 0.0
) -> Statement:
    """Return the statement of a request, without the session that ends with it."""
    named = body.model_fields_set  # what it does not name, its settings may say
    statement = gateway.session(user, body.database).statement(
        body.sql,
        overlay=body.settings,
        timeout_s=timeout_s,
        dialect=body.dialect if "dialect" in named else None,
        engine=body.engine if "engine" in named else None,
        headers=gateway.router.rules.headers_of(request.headers),
    )
    return replace(statement, session=None)


def _bases(gateway: Services, checked: CompiledStatement, decision: Decision) -> list[BasisModel]:
    builds, now = gateway.catalog.current().statistics, dt.datetime.now(dt.UTC)
    sources = {table.name: table for table in checked.tables}
    bases = []
    for name in by_weight(tuple(sources), decision.estimate):
        build = builds.get(name)
        drift = gateway.freshness.recent(sources[name], build)
        sentence = statistics_sentence(name, build, drift, at=now)
        changed = drift.share if drift is not None else None
        bases.append(BasisModel.showing(build, table=name, changed_files=changed, text=sentence))
    return bases


async def _settled(run: Run, request: Request, wait_s: float) -> bool:
    """Wait until a statement is read, and then for its end, at most wait_s; False where the client left before.

    Nobody knows its id then.
    """
    if wait_s >= WATCH_S:  # most statements have ended by then
        await _wait(run, WATCH_S)
        wait_s -= WATCH_S
        if run.done.done():
            return True
    accepted = asyncio.wrap_future(run.accepted)
    while not accepted.done():
        await asyncio.wait([accepted], timeout=WATCH_S)
        if not accepted.done() and await request.is_disconnected():
            return False
    await _wait(run, wait_s)
    return True


async def _early_rows(gateway: Services, run: Run, wait_s: float) -> EarlyResult | None:
    """Wait for a query's rows or its end; return the rows if they can be read before its end."""
    early = gateway.coordinator.early_results.find(run.id)
    ready = run.ready if early is None else early.rows_after(0)
    if wait_s and not ready.done():
        await asyncio.wait([asyncio.wrap_future(ready)], timeout=wait_s)
    early = gateway.coordinator.early_results.find(run.id)
    return early if early is not None and early.is_readable else None


def _whole(gateway: Services, query_id: str, user: Principal) -> Opener:
    """Return the function that opens the result of a query. Raises NotFinished, ResultGone."""
    record = _own_record(gateway, query_id, user)
    if record.state is not QueryState.FINISHED:
        raise NotFinished(f"The query is {record.state}; it has no result.", query_id)
    if not gateway.spool.has(query_id):
        raise ResultGone(query_id)
    return partial(gateway.spool.open, query_id)


async def _wait(run: Run, seconds: float) -> None:
    """Wait for a statement's end. ``asyncio.wait``, which is for several futures, takes twice as long."""
    if run.done.done():
        return
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def end_soon(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end)

    run.done.add_done_callback(end_soon)
    timer = loop.call_later(seconds, end)
    try:
        await ended
    finally:
        timer.cancel()


def _record(gateway: Services, query_id: str) -> QueryRecord:
    record = gateway.metastore.queries.get(query_id)
    if record is None:
        raise NotFound("There is no such query.")
    return gateway.waits.seen(record)


def _own_record(gateway: Services, query_id: str, user: Principal) -> QueryRecord:
    record = _record(gateway, query_id)
    _check_owner(gateway, record, user)
    return record


def _check_owner(gateway: Services, record: QueryRecord, user: Principal) -> None:
    try:
        gateway.policy.require(user, Action.USE_QUERY, Owned("query", record.id, record.owner))
    except AccessDenied as error:
        raise NotYourQuery(error.message, record.id) from error


def _reply(
    request: Request,
    gateway: Services,
    user: Principal,
    query_id: str,
    max_rows: int,
    record: QueryRecord | None = None,
    held: HeldRows | None = None,
) -> Response:
    """Show a query with its first rows. record, held: the query and its rows, if they are in memory."""
    record = visible(record or _record(gateway, query_id), user, gateway.policy)
    reply = QueryReply.of(record, gateway.waits.of(query_id))
    status = 200 if record.state.ended else 202
    if record.error is not None:
        status = status_of_failed_query(record.error.code)
    if held is not None:
        reply.columns, reply.truncated = render.columns(held.schema), (record.rows or 0) > max_rows
        reply.rows = list(islice(chain.from_iterable(map(render.batch_rows, held.batches)), max_rows))
    elif record.state is QueryState.FINISHED:
        with contextlib.suppress(ResultGone), gateway.spool.open(query_id) as result:
            reply.columns, reply.truncated = render.columns(result.schema), (record.rows or 0) > max_rows
            reply.rows = []
            size = result.next_bytes() if max_rows else None
            first = result.read_batch() if size is not None and size <= WIDE_BYTES else None
            if size is not None and (first is None or first.num_rows < min(max_rows, record.rows or 0)):
                shown = reply.model_dump(mode="json")
                opened = partial(gateway.spool.open, query_id)
                return _streamed(request, gateway, query_id, user, partial(_rows_within, shown, max_rows), opened)
            if first is not None:
                reply.rows = list(render.batch_rows(first.slice(0, max_rows)))
    return ModelResponse(reply, status_code=status, headers=retry_headers(status))


def _early_page(
    request: Request, gateway: Services, user: Principal, max_rows: int, record: QueryRecord, early: EarlyResult
) -> RowStream:
    """Show a running query with its first rows, when there are more than that."""
    reply = QueryReply.of(visible(record, user, gateway.policy), gateway.waits.of(record.id))
    with early.open() as result:
        reply.columns, reply.truncated, reply.rows = render.columns(result.schema), True, []
    shown = reply.model_dump(mode="json")
    return _streamed(request, gateway, record.id, user, partial(_rows_within, shown, max_rows), early.open)


def _rows_within(shown: dict[str, Any], max_rows: int, result: ResultFile, messages: render.Messages) -> Chunks:
    """Yield a reply whose rows do not fit into memory together."""
    del shown["rows"]
    yield json.dumps(json_value(shown), ensure_ascii=False, allow_nan=False)[:-1].encode() + b',"rows":['
    yield from render.json_rows(result, messages, max_rows=max_rows)
    yield b"]}"


def _streamed(
    request: Request,
    gateway: Services,
    query_id: str,
    user: Principal,
    write: Callable[[ResultFile, render.Messages], Chunks],
    opened: Opener,
    *,
    media_type: str = "application/json",
) -> RowStream:
    def chunks() -> Chunks:
        with opened() as result:
            yield from write(result, gateway.downloads.messages(result, user.quota_key))

    return RowStream(
        chunks(),
        media_type=media_type,
        downloads=gateway.downloads,
        user=user.quota_key,
        query_id=query_id,
        threads=request.app.state.download_threads,
    )
