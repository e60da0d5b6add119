"""Routes about tables, misestimates and engines."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse

from gateway.catalog.new_table import NewTable
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.commands.ddl.tables import RegisterTable
from gateway.errors import NotFound
from gateway.http.errors import declared
from gateway.http.forwarding.usage import cached_in_all, usages
from gateway.http.models.engines import (
    CacheReply,
    EngineList,
    EngineModel,
    LeaseList,
    LeaseModel,
    PoolList,
    PoolModel,
    UsageModel,
    UsageReply,
)
from gateway.http.models.queries import MisestimateList, MisestimateModel
from gateway.http.models.tables import TableList, TableReply, TableRequest
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing.permitted import require_permitted
from gateway.http.services import Services
from gateway.presentation.disclosure import visible_misestimate
from gateway.presentation.metrics import METRICS_TYPE, metrics_text
from gateway.routing.admission.usage import INTERVAL_S, INTERVALS, Of
from gateway.routing.admission.values import EngineState
from gateway.security.policy import Action
from gateway.security.principals import Principal
from metastore.records import Misestimate
from selector.join_keys import KeyPair
from sql.errors import UnknownTable
from sql.names import did_you_mean
from sql.tables import Column, canonical

router = APIRouter(route_class=BoundedRoute, prefix="/v1")


@router.get("/tables", tags=["catalog"])
def list_tables(gateway: Served, user: User) -> TableList:
    """List registered tables that the user may know of."""
    catalog = gateway.catalog.shown_to(user)
    shown = map(catalog.shown, gateway.metastore.catalog.list())
    return TableList(tables=[TableReply.of(table) for table in shown if table is not None])


@router.get("/tables/{name}", tags=["catalog"], responses=declared(404))
def get_table(name: str, gateway: Served, user: User) -> TableReply:
    """Return one table with its current statistics, as far as the user may see it."""
    stored, catalog = gateway.metastore.catalog.get(canonical(name)), gateway.catalog.shown_to(user)
    table = catalog.shown(stored) if stored is not None else None
    if table is None:
        raise NotFound(f"There is no table {name}.")
    if not catalog.shows_whole((table.name,)):
        return TableReply.of(table)
    return TableReply.of(
        table,
        gateway.metastore.statistics.current(table.name),
        part_rows={part.folder: part.rows for part in gateway.metastore.statistics.part_marks(table.name)},
        copied_bytes=gateway.objects.bytes_here(table.source),
        keys=_keys_of(table.name, gateway, user),
    )


def _keys_of(table: str, gateway: Services, user: Principal) -> dict[KeyPair, str]:
    sources, catalog = gateway.metastore.keys.sources(), gateway.catalog.shown_to(user)
    own = (pair for pair in sources if table in (pair.left.table, pair.right.table))
    return {pair: sources[pair] for pair in own if catalog.shows_key(pair)}


@router.post("/tables", status_code=201, tags=["catalog"], responses=declared(409))
def add_table(body: TableRequest, request: Request, gateway: Served, user: User) -> TableReply:
    """Register a table, or inspect the files of a registered one again."""
    gateway.policy.require_creating(user, canonical(body.name))
    _require_shown(body, gateway.catalog.shown_to(user))
    require_permitted(RegisterTable(body.name, body.location), request, gateway, user)
    wanted = NewTable(
        name=body.name,
        location=body.location,
        format=body.format,
        options=body.options,
        columns=tuple(Column(column.name, column.type) for column in body.columns),
        keys=tuple((key.column, key.references) for key in body.keys),
    )
    table = gateway.registration.add(wanted, user=user)
    return TableReply.of(table, keys=_keys_of(table.name, gateway, user))


def _require_shown(body: TableRequest, catalog: CatalogSnapshot) -> None:
    """Raise UnknownTable where a key references a table that the user may not see whole."""
    for key in body.keys:
        table, _, _ = key.references.rpartition(".")
        if table and not catalog.shows_whole((canonical(table),)):
            raise UnknownTable(f"There is no table {table}{did_you_mean(table, catalog.tables)}")


@router.get("/misestimates", tags=["routing"])
def list_misestimates(gateway: Served, user: User) -> MisestimateList:
    """List misestimates."""
    misestimates = gateway.metastore.misestimates.list()
    shown = [visible_misestimate(misestimate, user, gateway.policy) for misestimate in misestimates]
    limits = {entry.name: entry.limit_bytes for entry in gateway.engines.values()}

    def in_force(misestimate: Misestimate) -> bool:
        limit_bytes = limits.get(misestimate.engine)
        return limit_bytes is not None and limit_bytes <= misestimate.limit_bytes

    return MisestimateList(misestimates=[MisestimateModel.showing(one, in_force=in_force(one)) for one in shown])


@router.delete("/misestimates/{fingerprint}", tags=["routing"], responses=declared(404))
def forget_misestimate(fingerprint: str, gateway: Served, user: User) -> dict[str, int]:
    """Forget all misestimates of one statement; its next run tries the fast engine again."""
    gateway.policy.require(user, Action.FORGET_MISESTIMATE)
    forgotten = gateway.metastore.misestimates.forget(fingerprint)
    gateway.router.forget_misses(fingerprint)
    if not forgotten:
        raise NotFound("No misestimate has this fingerprint.")
    return {"forgotten": forgotten}


@router.get("/engines", tags=["engines"])
def list_engines(gateway: Served) -> EngineList:
    """List engines as they are now."""
    engines = []
    held = {state.budget.name: state for state in gateway.admission.describe().engines}
    for entry in gateway.engines.values():
        status, why_open = entry.engine.status(), entry.breaker.why_open()
        engines.append(
            EngineModel.showing(
                entry,
                kind=entry.engine.kind.value,
                alive=status.alive and why_open is None,
                drained=entry.breaker.drained is not None,
                detail=why_open or status.detail,
                ledger=_ledger(held[entry.name]),
            )
        )
    return EngineList(engines=engines)


def _ledger(state: EngineState) -> dict[str, int | None]:
    return {
        "slots": state.budget.slots,
        "slots_held": state.slots_held,
        "capacity_bytes": state.budget.capacity_bytes,
        "bytes_held": state.bytes_held,
        "waiting": state.waiting,
    }


@router.get("/pools", tags=["engines"])
def list_pools(gateway: Served) -> PoolList:
    """List pools with their limits, leases and waiting statements."""
    return PoolList(
        pools=[
            PoolModel.showing(state.pool, state, when_full=state.pool.when_full.value)
            for state in gateway.admission.describe().pools
        ]
    )


@router.get("/cache", tags=["engines"])
def get_cache(gateway: Served) -> CacheReply:
    """Return size and use of the cache of results since the start."""
    usage = cached_in_all(gateway)
    return CacheReply.showing(usage, hit_rate=usage.hit_rate)


@router.get("/leases", tags=["engines"])
def list_leases(gateway: Served) -> LeaseList:
    """List the leases of queries."""
    return LeaseList(leases=[LeaseModel.showing(lease) for lease in gateway.admission.leases()])


@router.get("/usage", tags=["engines"], responses=declared(404))
def get_usage(
    gateway: Served,
    engine: str | None = None,
    pool: str | None = None,
    step_s: Annotated[float, Query(ge=INTERVAL_S, le=INTERVAL_S * INTERVALS)] = 60.0,
) -> UsageReply:
    """Return leased bytes and slots, and waiting statements, of the last hour; of all engines and pools, or one."""
    state = gateway.admission.describe()
    limits: dict[tuple[Of, str], tuple[int | None, int | None]]
    budgets, pools = [entry.budget for entry in state.engines], [entry.pool for entry in state.pools]
    limits = {(Of.ENGINE, budget.name): (budget.slots, budget.capacity_bytes) for budget in budgets}
    limits |= {(Of.POOL, one.name): (one.slots, one.memory_bytes) for one in pools}
    wanted = {key for key in ((Of.ENGINE, engine), (Of.POOL, pool)) if key[1] is not None} or set(limits)
    if not wanted <= limits.keys():
        raise NotFound("There is no such engine or pool.")
    histories = {key: gateway.admission.usage(*key) for key in limits if key in wanted}
    return UsageReply(
        usage=[UsageModel.showing_history(*key, *limits[key], histories[key], step_s) for key in histories]
    )


@router.get(
    "/metrics",
    tags=["engines"],
    response_model=None,
    responses={200: {"content": {METRICS_TYPE: {"schema": {"type": "string"}}}}},
)
def get_metrics(gateway: Served, user: User) -> PlainTextResponse:
    """Return counters of queries, leases, caches, stages and statistics in the text format of Prometheus."""
    now, builds = dt.datetime.now(dt.UTC), gateway.catalog.shown_to(user).statistics
    ages = {name: (now - at).total_seconds() for name, build in builds.items() if (at := build.built_at)}
    return PlainTextResponse(metrics_text(gateway.admission, usages(gateway), ages), media_type=METRICS_TYPE)
