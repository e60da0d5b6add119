"""Routes about statistics jobs and join keys."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request

from engines.compiled import CompiledStatement
from gateway.catalog.lake.partitions import with_partitions
from gateway.catalog.registration import LOOK_S
from gateway.commands.statistics.computing import AnalyzeTables
from gateway.errors import InvalidBody, NotFound
from gateway.http.errors import declared
from gateway.http.models.common import ErrorModel
from gateway.http.models.statistics import (
    RefusedStatement,
    StatisticsJobList,
    StatisticsJobReply,
    StatisticsJobRequest,
    WorkloadReply,
    WorkloadRequest,
)
from gateway.http.models.tables import KeyList, KeyModel
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing.permitted import require_permitted
from gateway.http.services import Services
from gateway.planning.fairness import Requester
from gateway.security.policy import Action
from gateway.security.principals import Principal
from gateway.statements.statement import Statement
from metastore.records import JobRequest, Mode
from selector.join_keys import KeyPair
from sql.errors import NotAllowed, SqlError, UnknownColumn, UnknownPartition
from sql.names import did_you_mean
from sql.tables import canonical

router = APIRouter(route_class=BoundedRoute, prefix="/v1/stats", tags=["statistics"])


@router.post("/jobs", status_code=202, responses=declared(409))
def start_job(body: StatisticsJobRequest, request: Request, gateway: Served, user: User) -> StatisticsJobReply:
    """Start computing statistics."""
    gateway.policy.require(user, Action.COMPUTE_STATISTICS)
    if (body.mode is Mode.SAMPLE) != (body.share is not None):
        raise InvalidBody("share: required with mode sample, and not allowed with other modes.")
    if (body.columns or body.partitions) and len(body.tables) != 1:
        raise InvalidBody("tables: columns and partitions are allowed with a single table only.")
    if body.partitions and body.mode is not Mode.INCREMENTAL:
        raise InvalidBody("partitions: allowed with mode incremental only.")
    gateway.catalog.shown_to(user).require_whole(user, body.tables)
    tables = tuple(dict.fromkeys(canonical(name) for name in body.tables))
    require_permitted(AnalyzeTables(tables), request, gateway, user)
    wanted = JobRequest(
        tables=tables,
        mode=body.mode,
        share=body.share or 1.0,
        columns=tuple(_columns(body.tables[0], body.columns, gateway)),
        partitions=tuple(_folders(body.tables[0], body.partitions, gateway, user)),
    )
    return StatisticsJobReply.of(gateway.jobs.start(wanted, owner=user.owner))


def _columns(table: str, wanted: Sequence[str], gateway: Services) -> Iterator[str]:
    columns = gateway.catalog.current().tables[canonical(table)].columns
    spelled = {column.name.lower(): column.name for column in columns}
    for name in wanted:
        if name.lower() not in spelled:
            raise UnknownColumn(f"There is no column {name} in {table}{did_you_mean(name, spelled)}")
        yield spelled[name.lower()]


def _folders(name: str, wanted: Sequence[str], gateway: Services, user: Principal) -> list[str]:
    """Return the partitions in some folders, such as all months of a year."""
    table = gateway.metastore.catalog.get(name) if wanted else None
    if table is not None:
        table = with_partitions(table, gateway.registration, Requester(user.account, time.monotonic() + LOOK_S))
    folders = [partition.path for partition in table.partitions] if table else []
    chosen: dict[str, None] = {}
    for folder in (folder.strip("/") for folder in wanted):
        inside = [path for path in folders if f"{path}/".startswith(f"{folder}/")]
        if not inside:
            raise UnknownPartition(f"There is no partition {folder} in {name}{did_you_mean(folder, folders)}")
        chosen |= dict.fromkeys(inside)
    return list(chosen)


@router.get("/jobs")
def list_jobs(
    gateway: Served, user: User, limit: Annotated[int, Query(ge=1, le=1_000)] = 50, table: str | None = None
) -> StatisticsJobList:
    """List jobs for tables that the user may see, newest first. table: only jobs for this table."""
    jobs, catalog = gateway.metastore.jobs.list(limit=limit, table=table), gateway.catalog.shown_to(user)
    return StatisticsJobList(jobs=[StatisticsJobReply.of(job) for job in jobs if catalog.shows_job(job)])


@router.get("/jobs/{job_id}", responses=declared(404))
def get_job(job_id: str, gateway: Served, user: User) -> StatisticsJobReply:
    """Return a job with its progress."""
    job = gateway.metastore.jobs.get(job_id)
    if job is None or not gateway.catalog.shown_to(user).shows_job(job):
        raise NotFound("There is no such job.")
    return StatisticsJobReply.of(job)


@router.delete("/jobs/{job_id}", responses=declared(404, 409))
def cancel_job(job_id: str, gateway: Served, user: User) -> StatisticsJobReply:
    """Cancel a job and return it; one that has ended stays as it is."""
    gateway.jobs.cancel(job_id, by=user)
    return get_job(job_id, gateway, user)


@router.get("/keys")
def list_keys(gateway: Served, user: User) -> KeyList:
    """List pairs of columns that are joined, with their sources, of tables that the user may see."""
    sources, catalog = gateway.metastore.keys.sources(), gateway.catalog.shown_to(user)
    shown = set(filter(catalog.shows_key, sources))
    return KeyList(keys=[KeyModel.of(pair, source) for pair, source in sources.items() if pair in shown])


@router.post("/keys")
def learn_keys(body: WorkloadRequest, gateway: Served, user: User) -> WorkloadReply:
    """Learn join keys from statements. The reply lists statements that cannot be read; the others count."""
    gateway.policy.require(user, Action.LEARN_KEYS)
    pairs: set[KeyPair] = set()
    refused = []
    for number, sql in enumerate(body.statements, start=1):
        try:
            meant = gateway.coordinator.classify(
                Statement(sql=sql, dialect=body.dialect, database=body.database, principal=user)
            )
            if not isinstance(meant, CompiledStatement):
                raise NotAllowed("Only queries have joins to learn from.")
            pairs.update(meant.joined)
        except SqlError as error:
            refused.append(RefusedStatement(number=number, error=ErrorModel.of(error.failure)))
    new = gateway.metastore.keys.learn(pairs, source="workload", at=dt.datetime.now(dt.UTC))
    sources = gateway.metastore.keys.sources()
    shown = filter(gateway.catalog.shown_to(user).shows_key, sorted(pairs))
    return WorkloadReply(new=new, keys=[KeyModel.of(pair, sources[pair]) for pair in shown], refused=refused)
