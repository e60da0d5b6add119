"""Routes about tables, misestimates and engines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastapi import APIRouter

from engines.protocol import Column, TableSource
from gateway.gateway import Gateway
from gateway.http.errors import ApiError
from gateway.http.login import User
from gateway.http.models import (
    EngineList,
    EngineModel,
    KeyRequest,
    MisestimateList,
    MisestimateModel,
    TableList,
    TableReply,
    TableRequest,
)
from gateway.http.queries import Served
from gateway.security.disclosure import visible_lesson
from gateway.security.policy import Action, Need, Owned
from gateway.sql.errors import UnknownColumn, UnknownTable, did_you_mean
from metastore.inspection import path_of
from metastore.inspector import inspect
from selector.keys import ColumnRef, KeyPair

router = APIRouter(prefix="/v1")


@router.get("/tables", tags=["catalog"])
def list_tables(gateway: Served) -> TableList:
    """List registered tables."""
    return TableList(tables=[TableReply.of(table) for table in gateway.metastore.catalog.list()])


@router.get("/tables/{name}", tags=["catalog"])
def get_table(name: str, gateway: Served) -> TableReply:
    """Return one table with the statistics in force."""
    table = gateway.metastore.catalog.get(name)
    if table is None:
        raise ApiError("NOT_FOUND", f"There is no table {name}.")
    return TableReply.of(
        table,
        gateway.metastore.statistics.current(table.name),
        part_rows={part.folder: part.rows for part in gateway.metastore.statistics.part_marks(table.name)},
        keys=_keys_of(table.name, gateway),
    )


def _keys_of(table: str, gateway: Gateway) -> dict[KeyPair, str]:
    known = gateway.metastore.keys.sources()
    return {pair: source for pair, source in known.items() if table in (pair.left.table, pair.right.table)}


@router.post("/tables", status_code=201, tags=["catalog"])
def add_table(body: TableRequest, gateway: Served, user: User) -> TableReply:
    """Register a table, or look again at one that is registered."""
    gateway.policy.require_all(user, _needs(body, gateway))
    _require_root(path_of(body.location), gateway.settings.catalog.roots)
    columns = [Column(column.name, column.type) for column in body.columns]
    found = inspect(body.name, body.location, format=body.format, options=body.options or None, columns=columns)
    known = {**gateway.catalog.current().tables, body.name.lower(): found.source}
    pairs = [_declared(found.source, key, known) for key in body.keys]
    now = dt.datetime.now(dt.UTC)
    check = gateway.policy.owner_check(user, Action.REPLACE, "table", body.name)
    table = gateway.metastore.catalog.put(found, at=now, owner=user.owner, check=check)
    gateway.metastore.keys.learn(pairs, source="declared", at=now)
    gateway.catalog.current()
    return TableReply.of(table, keys=_keys_of(table.name, gateway))


def _needs(body: TableRequest, gateway: Gateway) -> Iterator[Need]:
    """Yield what a registration takes: who may write through a new table may do so to all that lie at its place."""
    yield Need(Action.REGISTER)
    place = resolved(path_of(body.location))
    for table in gateway.metastore.catalog.list():
        there = resolved(Path(table.source.location))
        if table.name == body.name.lower():
            yield Need(Action.REPLACE, Owned("table", table.name, table.owner))
        elif there.is_relative_to(place) or place.is_relative_to(there):
            yield Need(Action.WRITE_ROWS, Owned("table", table.name, table.owner))


def _declared(table: TableSource, key: KeyRequest, known: Mapping[str, TableSource]) -> KeyPair:
    """Return the pair that a key declares. Raises SqlError for tables and columns that are not there."""
    name, _, column = key.references.partition(".")
    if name.lower() not in known:
        raise UnknownTable(f"There is no table {name}{did_you_mean(name, known)}")
    return KeyPair.of(_column(table, key.column), _column(known[name.lower()], column))


def _column(table: TableSource, name: str) -> ColumnRef:
    columns = {column.name.lower() for column in table.columns}
    if name.lower() not in columns:
        raise UnknownColumn(f"There is no column {name} in {table.name}{did_you_mean(name, columns)}")
    return ColumnRef(table.name.lower(), name.lower())


def _require_root(location: Path, roots: Sequence[Path]) -> None:
    """Refuse what lies elsewhere, links followed. It holds for every file: no table has one outside its own folder."""
    if not roots:
        return
    place = resolved(location)
    if not any(place.is_relative_to(root.resolve()) for root in roots):
        raise ApiError("NOT_ALLOWED", "Tables may be registered only under the folders that catalog.roots names.")


def resolved(location: Path) -> Path:
    """Return a place with links followed, as far as that can be done."""
    try:
        return location.resolve()
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return location


@router.get("/misestimates", tags=["routing"])
def list_misestimates(gateway: Served, user: User) -> MisestimateList:
    """List what was learned from estimates that were wrong."""
    lessons = gateway.metastore.misestimates.list()
    return MisestimateList(
        misestimates=[MisestimateModel.of(visible_lesson(each, user, gateway.policy)) for each in lessons]
    )


@router.delete("/misestimates/{fingerprint}", tags=["routing"])
def forget_misestimate(fingerprint: str, gateway: Served, user: User) -> dict[str, int]:
    """Forget all lessons about one statement; the next run tries the fast engine again."""
    gateway.policy.require(user, Action.FORGET_MISESTIMATE)
    forgotten = gateway.metastore.misestimates.forget(fingerprint)
    if not forgotten:
        raise ApiError("NOT_FOUND", "Nothing is on record under this fingerprint.")
    return {"forgotten": forgotten}


@router.get("/engines", tags=["engines"])
def list_engines(gateway: Served) -> EngineList:
    """List engines as they are now."""
    engines = []
    for member in gateway.fleet.values():
        status = member.engine.status()
        engines.append(
            EngineModel(
                name=member.name,
                kind=member.engine.kind.value,
                alive=status.alive and member.breaker.why_open() is None,
                detail=member.breaker.why_open() or status.detail,
                limit_bytes=member.limit_bytes,
                ledger=member.ledger.describe(),
            )
        )
    return EngineList(engines=engines)
