"""Routes about tables, misestimates and engines."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from engines.protocol import Column
from engines.table_names import canonical
from gateway.catalog.registration import NewTable
from gateway.errors import NotFound
from gateway.http.errors import declared
from gateway.http.forwarding.usage import cached_in_all, usages
from gateway.http.login import User
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
from gateway.http.services import Services
from gateway.presentation.disclosure import visible_misestimate
from gateway.presentation.metrics import METRICS_TYPE, metrics_text
from gateway.routing.admission.usage import INTERVAL_S, INTERVALS, Of
from gateway.routing.admission.values import EngineState
from gateway.security.policy import Action
from selector.join_keys import KeyPair

router = APIRouter(prefix="/v1")


@router.get("/tables", tags=["catalog"])
def list_tables(gateway: Served) -> TableList:
    """List registered tables."""
    return TableList(tables=[TableReply.of(table) for table in gateway.metastore.catalog.list()])


@router.get("/tables/{name}", tags=["catalog"], responses=declared(404))
def get_table(name: str, gateway: Served) -> TableReply:
    """Return one table with the statistics in force."""
    table = gateway.metastore.catalog.get(canonical(name))
    if table is None:
        raise NotFound(f"There is no table {name}.")
    return TableReply.of(
        table,
        gateway.metastore.statistics.current(table.name),
        part_rows={part.folder: part.rows for part in gateway.metastore.statistics.part_marks(table.name)},
        keys=_keys_of(table.name, gateway),
    )


def _keys_of(table: str, gateway: Services) -> dict[KeyPair, str]:
    known = gateway.metastore.keys.sources()
    return {pair: source for pair, source in known.items() if table in (pair.left.table, pair.right.table)}


@router.post("/tables", status_code=201, tags=["catalog"], responses=declared(409))
def add_table(body: TableRequest, gateway: Served, user: User) -> TableReply:
    """Register a table, or look again at one that is registered."""
    wanted = NewTable(
        name=body.name,
        location=body.location,
        format=body.format,
        options=body.options,
        columns=tuple(Column(column.name, column.type) for column in body.columns),
        keys=tuple((key.column, key.references) for key in body.keys),
    )
    table = gateway.registration.add(wanted, user=user)
    return TableReply.of(table, keys=_keys_of(table.name, gateway))


@router.get("/misestimates", tags=["routing"])
def list_misestimates(gateway: Served, user: User) -> MisestimateList:
    """List what was learned from estimates that were wrong."""
    misestimates = gateway.metastore.misestimates.list()
    return MisestimateList(
        misestimates=[MisestimateModel.of(visible_misestimate(each, user, gateway.policy)) for each in misestimates]
    )


@router.delete("/misestimates/{fingerprint}", tags=["routing"], responses=declared(404))
def forget_misestimate(fingerprint: str, gateway: Served, user: User) -> dict[str, int]:
    """Forget all misestimates about one statement; the next run tries the fast engine again."""
    gateway.policy.require(user, Action.FORGET_MISESTIMATE)
    forgotten = gateway.metastore.misestimates.forget(fingerprint)
    gateway.router.forget_misses(fingerprint)
    if not forgotten:
        raise NotFound("Nothing is on record under this fingerprint.")
    return {"forgotten": forgotten}


@router.get("/engines", tags=["engines"])
def list_engines(gateway: Served) -> EngineList:
    """List engines as they are now."""
    engines = []
    held = {state.budget.name: state for state in gateway.admission.describe().engines}
    for entry in gateway.engines.values():
        status = entry.engine.status()
        engines.append(
            EngineModel(
                name=entry.name,
                kind=entry.engine.kind.value,
                alive=status.alive and entry.breaker.why_open() is None,
                detail=entry.breaker.why_open() or status.detail,
                limit_bytes=entry.limit_bytes,
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
    """List pools as they are now: their limits, what is held of them, and how many statements wait."""
    return PoolList(
        pools=[
            PoolModel(
                name=state.pool.name,
                weight=state.pool.weight,
                slots=state.pool.slots,
                slots_held=state.slots_held,
                memory_bytes=state.pool.memory_bytes,
                bytes_held=state.bytes_held,
                queue=state.pool.queue,
                queue_s=state.pool.queue_s,
                waiting=state.waiting,
                when_full=state.pool.when_full.value,
            )
            for state in gateway.admission.describe().pools
        ]
    )


@router.get("/cache", tags=["engines"])
def get_cache(gateway: Served) -> CacheReply:
    """Return how full the cache of results is, and how it was used since the start."""
    usage = cached_in_all(gateway)
    return CacheReply.showing(usage, hit_rate=usage.hit_rate)


@router.get("/leases", tags=["engines"])
def list_leases(gateway: Served) -> LeaseList:
    """List what queries hold of engines now."""
    return LeaseList(leases=[LeaseModel.showing(lease) for lease in gateway.admission.leases()])


@router.get("/usage", tags=["engines"], responses=declared(404))
def get_usage(
    gateway: Served,
    engine: str | None = None,
    pool: str | None = None,
    step_s: Annotated[float, Query(ge=INTERVAL_S, le=INTERVAL_S * INTERVALS)] = 60.0,
) -> UsageReply:
    """Return bytes and slots that were leased, and who waited, over the last hour; of all engines and pools, or one."""
    state = gateway.admission.describe()
    limits: dict[tuple[Of, str], tuple[int | None, int | None]]
    limits = {(Of.ENGINE, each.budget.name): (each.budget.slots, each.budget.capacity_bytes) for each in state.engines}
    limits |= {(Of.POOL, each.pool.name): (each.pool.slots, each.pool.memory_bytes) for each in state.pools}
    asked = {(Of.ENGINE, engine), (Of.POOL, pool)} if engine is not None or pool is not None else set(limits)
    found = [
        UsageModel.of_one(*key, *limits[key], gateway.admission.usage(*key), step_s) for key in limits if key in asked
    ]
    if len(found) < len([each for each in (engine, pool) if each is not None]):
        raise NotFound("There is no such engine or pool.")
    return UsageReply(usage=found)


@router.get(
    "/metrics",
    tags=["engines"],
    response_model=None,
    responses={200: {"content": {METRICS_TYPE: {"schema": {"type": "string"}}}}},
)
def get_metrics(gateway: Served) -> PlainTextResponse:
    """Return leases, waits, refusals, what the cache did and where time goes in the text format of Prometheus."""
    return PlainTextResponse(metrics_text(gateway.admission, usages(gateway)), media_type=METRICS_TYPE)
