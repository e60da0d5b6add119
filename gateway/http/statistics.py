"""Routes about statistics jobs and about the keys that they count."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from engines.table_names import canonical
from gateway.errors import InvalidBody, NotAllowed, NotFound, SqlError, UnknownColumn, UnknownPartition, UnknownTable
from gateway.http.errors import declared
from gateway.http.login import User
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
from gateway.http.services import Services
from gateway.security.policy import Action
from gateway.sql.compiled import CompiledStatement
from gateway.sql.names import did_you_mean
from gateway.statements.statement import Statement
from metastore.records import JobRequest, Mode
from selector.join_keys import KeyPair

router = APIRouter(prefix="/v1/stats", tags=["statistics"])


@router.post("/jobs", status_code=202, responses=declared(409))
def start_job(body: StatisticsJobRequest, gateway: Served, user: User) -> StatisticsJobReply:
    """Start computing statistics."""
    gateway.policy.require(user, Action.COMPUTE_STATISTICS)
    if (body.mode is Mode.SAMPLE) != (body.share is not None):
        raise InvalidBody("share: a sample has a share, and nothing else has one.")
    if (body.columns or body.partitions) and len(body.tables) != 1:
        raise InvalidBody("tables: columns and partitions belong to a single table.")
    if body.partitions and body.mode is not Mode.INCREMENTAL:
        raise InvalidBody("partitions: only incremental statistics are confined to partitions.")
    known = gateway.catalog.current().tables
    for name in body.tables:
        if canonical(name) not in known:
            raise UnknownTable(f"There is no table {name}{did_you_mean(name, known)}")
    request = JobRequest(
        tables=tuple(dict.fromkeys(canonical(name) for name in body.tables)),
        mode=body.mode,
        share=body.share or 1.0,
        columns=tuple(_columns(body.tables[0], body.columns, gateway)),
        partitions=tuple(_folders(body.tables[0], body.partitions, gateway)),
    )
    return StatisticsJobReply.of(gateway.jobs.start(request, owner=user.owner))


def _columns(table: str, wanted: Sequence[str], gateway: Services) -> Iterator[str]:
    spelled = {each.name.lower(): each.name for each in gateway.catalog.current().tables[canonical(table)].columns}
    for name in wanted:
        if name.lower() not in spelled:
            raise UnknownColumn(f"There is no column {name} in {table}{did_you_mean(name, spelled)}")
        yield spelled[name.lower()]


def _folders(name: str, wanted: Sequence[str], gateway: Services) -> list[str]:
    """Return the partitions whose folders lie in those that are wanted."""
    table = gateway.metastore.catalog.get(name)
    folders = [partition.path for partition in table.partitions] if table else []
    found: dict[str, None] = {}
    for folder in (folder.strip("/") for folder in wanted):
        inside = [path for path in folders if f"{path}/".startswith(f"{folder}/")]
        if not inside:
            raise UnknownPartition(f"There is no partition {folder} in {name}{did_you_mean(folder, folders)}")
        found |= dict.fromkeys(inside)
    return list(found)


@router.get("/jobs")
def list_jobs(
    gateway: Served, limit: Annotated[int, Query(ge=1, le=1_000)] = 50, table: str | None = None
) -> StatisticsJobList:
    """List jobs, newest first; table: only those over that one."""
    jobs = gateway.metastore.jobs.list(limit=limit, table=table)
    return StatisticsJobList(jobs=[StatisticsJobReply.of(job) for job in jobs])


@router.get("/jobs/{job_id}", responses=declared(404))
def get_job(job_id: str, gateway: Served) -> StatisticsJobReply:
    """Return how far a job is."""
    job = gateway.metastore.jobs.get(job_id)
    if job is None:
        raise NotFound("There is no such job.")
    return StatisticsJobReply.of(job)


@router.delete("/jobs/{job_id}", responses=declared(404, 409))
def cancel_job(job_id: str, gateway: Served, user: User) -> StatisticsJobReply:
    """Cancel a job and return how it ended; one that has ended already stays as it is."""
    gateway.jobs.cancel(job_id, by=user)
    return get_job(job_id, gateway)


@router.get("/keys")
def list_keys(gateway: Served) -> KeyList:
    """List pairs of columns that are joined, and where each was learned from."""
    known = gateway.metastore.keys.sources()
    return KeyList(keys=[KeyModel.of(pair, source) for pair, source in known.items()])


@router.post("/keys")
def learn_keys(body: WorkloadRequest, gateway: Served, user: User) -> WorkloadReply:
    """Learn from statements which columns are joined. Those that cannot be read are told, and stop nobody."""
    gateway.policy.require(user, Action.LEARN_KEYS)
    pairs: set[KeyPair] = set()
    refused = []
    for number, sql in enumerate(body.statements, start=1):
        try:
            meant = gateway.coordinator.understand(
                Statement(sql=sql, dialect=body.dialect, database=body.database, principal=user)
            )
            if not isinstance(meant, CompiledStatement):
                raise NotAllowed("Only queries tell which columns are joined.")
            pairs.update(meant.joined)
        except SqlError as error:
            failure = error.failure
            refused.append(RefusedStatement(number=number, error=ErrorModel.of(failure)))
    new = gateway.metastore.keys.learn(pairs, source="workload", at=dt.datetime.now(dt.UTC))
    known = gateway.metastore.keys.sources()
    return WorkloadReply(new=new, keys=[KeyModel.of(pair, known[pair]) for pair in sorted(pairs)], refused=refused)
