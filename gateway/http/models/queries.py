"""Statements, decisions, estimates and misestimates as JSON."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

from cachetools import LRUCache
from pydantic import BaseModel, Field

from gateway.http.models.common import (
    ColumnModel,
    Database,
    ErrorModel,
    RecordModel,
    RequestModel,
    SqlText,
    TextMap,
    Word,
)
from gateway.presentation.waits import Wait, waits_for
from gateway.presentation.what_if import operator_notes
from gateway.statements import AUTO
from metastore.records import QueryRecord
from selector.decision import Decision
from selector.estimate import MemoryEstimate
from sql.tables import DEFAULT_DATABASE


class ExplainRequest(RequestModel):
    """A statement to decide about without running it."""

    sql: SqlText = Field(description="One statement.", examples=["SELECT count(*) FROM books WHERE price < 80"])
    dialect: Word = Field("spark", description="Dialect of the text: spark, hive or impala.")
    database: Database = Field(DEFAULT_DATABASE, description="Database of names without one.")
    engine: Word = Field(AUTO, description="auto, or the one engine that may run it.")
    settings: TextMap = Field(
        default_factory=dict,
        description="Settings of this statement alone, as SET takes them in a session.",
        examples=[{"fusion.policy": "safe"}],
    )


class QueryRequest(ExplainRequest):
    """A statement to run."""

    wait_s: float = Field(30.0, ge=0.0, le=600.0, description="Longest wait for the end; 0 returns immediately.")
    max_rows: int | None = Field(
        None, ge=0, le=1_000_000, description="Most rows in the reply; fetch the others later."
    )
    timeout_s: float | None = Field(None, gt=0.0, description="Ends the query after this time.")


class ReasonModel(RecordModel):
    """One reason for a decision."""

    code: str
    text: str


class OperatorModel(RecordModel):
    """One operator's part of an estimate; null: not known.

    upper_rows: upper bound. divergence: factor between our rows and the engine's, at least 1. notes: remarks in words.
    """

    operator: str
    depth: int
    table: str | None
    rows: float | None
    upper_rows: float | None
    engine_rows: float | None
    divergence: float | None
    held_bytes: int
    basis: str
    notes: list[str]


class EstimateModel(RecordModel):
    """Expected peak and its upper bound; null: not known.

    operators: parents first. driver: position of the operator that holds most memory at the peak. divergences:
    positions where the engine's rows differ from ours by more than a factor of two, while they agree below.
    """

    peak_bytes: int | None
    upper_bytes: int | None
    operators: list[OperatorModel]
    driver: int | None
    divergences: list[int]

    @classmethod
    def of(cls, estimate: MemoryEstimate) -> EstimateModel:
        """Show an estimate."""
        operators = [
            OperatorModel.showing(part, notes=notes)
            for part, notes in zip(estimate.operators, operator_notes(estimate), strict=True)
        ]
        return cls.showing(estimate, operators=operators, divergences=estimate.divergences())


class RemedyModel(RecordModel):
    """Changes that together would send a statement to the fast engine.

    limit_bytes: limit that it would need; null: the limit is no obstacle. blocked: codes of reasons that no limit
    removes.
    """

    engine: str
    limit_bytes: int | None
    blocked: list[str]


class PriceModel(RecordModel):
    """Expected cost of a statement on one engine, in seconds.

    fits: probability that it fits; null: not known. seconds: run time if it fits; model_s: run time by its plan alone.
    miss_s: time until it runs out of memory. wait_s: wait for a slot. held_s: longer waits of other statements.
    first_s: total if this engine is tried first, and the others after it; null: it may not be tried.
    """

    engine: str
    fits: float | None
    seconds: float
    model_s: float
    miss_s: float
    wait_s: float
    held_s: float
    first_s: float | None


class TableReadModel(RecordModel):
    """Files of one table that a statement reads."""

    snapshot: str
    files: int
    bytes: int


class FileModel(RecordModel):
    """One file. path: below the table's folder."""

    path: str
    bytes: int


class ListedFiles(RecordModel):
    """Files of one table that a query read.

    listed: the first files; null: the list is no longer kept.
    """

    table: str
    snapshot: str
    files: int
    bytes: int
    listed: list[FileModel] | None


class FilesReply(RecordModel):
    """Files that a query read, the same for all its attempts."""

    tables: list[ListedFiles]


class DecisionModel(RecordModel):
    """The engine for a statement, and the reasons.

    limit_bytes: memory of the fast engine for one statement. threads: number that the estimate is for, on the fast
    engine. remedy: null where the fast engine is tried, or an engine was chosen by name. policy: expected, safe or
    paper. prices: one for each considered engine.
    snapshots: ids of the snapshots that are read, by names of tables; of a plain table, the fingerprint of the list of
    its files. reads: how many files and bytes are read, by names of tables.
    """

    engine: str
    ranking: list[str]
    reasons: list[ReasonModel]
    estimate: EstimateModel
    limit_bytes: int | None
    threads: int | None
    remedy: RemedyModel | None
    policy: str
    prices: list[PriceModel]
    snapshots: dict[str, str]
    reads: dict[str, TableReadModel]

    @classmethod
    def of(cls, decision: Decision) -> DecisionModel:
        """Show a decision; the model of one that several statements share is made once."""
        return _SHOWN.of(decision)

    @classmethod
    def made_of(cls, decision: Decision) -> DecisionModel:
        """Show a decision, without a look at earlier ones."""
        return cls.showing(decision, estimate=EstimateModel.of(decision.estimate), policy=decision.rule.value)


class _Shown:
    """Models of the last decisions, by the identity of the decision. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._models: LRUCache[int, tuple[Decision, DecisionModel]] = LRUCache(most)

    def of(self, decision: Decision) -> DecisionModel:
        """Return the model of a decision."""
        with self._lock:
            shown = self._models.get(id(decision))
        if shown is not None and shown[0] is decision:
            return shown[1]
        model = DecisionModel.made_of(decision)
        with self._lock:
            self._models[id(decision)] = decision, model
        return model


_SHOWN = _Shown(64)


class AttemptModel(RecordModel):
    """One attempt on one engine."""

    ordinal: int
    engine: str
    state: str
    started_at: dt.datetime
    wall_s: float | None
    failure: str | None
    message: str | None
    rows: int | None
    peak_bytes: int | None
    waited_s: float | None


class WaitingModel(RecordModel):
    """A wait of a query.

    needs: slot, memory, processors, pool slot, pool memory, turn, first try (of another run), engine, objects (of a
    store), or planner.
    engine: null: any. Of leases alone: pool; memory_bytes, null where the engine spills; place, 1 is next; expected_s,
    from now until it probably starts.
    """

    engine: str | None
    pool: str | None
    needs: str
    memory_bytes: int | None
    since: dt.datetime
    place: int | None
    expected_s: float | None
    text: str = Field(description="All of it in words.")

    @classmethod
    def of(cls, wait: Wait) -> WaitingModel:
        """Show a wait."""
        return cls.showing(wait, needs=wait.needs.value, text=waits_for(wait))


class AloneModel(RecordModel):
    """A query's time if the dependable engine had run it alone. measured: it ran there; else a forecast."""

    engine: str
    seconds: float
    measured: bool


class SummaryModel(RecordModel):
    """An ended query in numbers.

    reason: code of the decision's first reason, or of the error.
    seconds: from submission to the end.
    attempts: on all engines together. ran_out: one of them ran out of memory.
    expected_bytes, peak_bytes: of the first attempt of which both are known.
    within_bound: that peak is not above the estimate's upper bound.
    """

    pool: str
    reason: str | None
    seconds: float
    attempts: int
    ran_out: bool
    expected_bytes: int | None
    peak_bytes: int | None
    within_bound: bool | None
    alone: AloneModel | None


class QueryReply(RecordModel):
    """A query with its statement, decision, attempts and first rows."""

    id: str
    state: str
    engine: str | None
    sql: str
    dialect: str
    user: str
    requested_engine: str
    submitted_at: dt.datetime
    finished_at: dt.datetime | None
    fingerprint: str | None
    template: str | None
    statistics_version: str | None
    summary: SummaryModel | None
    columns: list[ColumnModel] | None = None
    rows: list[list[Any]] | None = None
    row_count: int | None = None
    truncated: bool = False
    decision: DecisionModel | None = None
    attempts: list[AttemptModel]
    waiting: WaitingModel | None = None
    error: ErrorModel | None = None

    @classmethod
    def of(cls, record: QueryRecord, wait: Wait | None = None) -> QueryReply:
        """Show a query without its rows."""
        return cls.showing(
            record,
            rows=None,
            row_count=record.rows,
            decision=DecisionModel.of(record.decision) if record.decision else None,
            waiting=WaitingModel.of(wait) if wait is not None and not record.state.ended else None,
            error=ErrorModel.of(record.error, record.id) if record.error else None,
        )


class ResultReply(BaseModel):
    """A whole result."""

    columns: list[ColumnModel]
    rows: list[list[Any]]


class QueryList(BaseModel):
    """One page of queries."""

    queries: list[QueryReply]
    next: str | None = Field(None, description="Send it as `after` for the next page; null: this is the last one.")


class BasisModel(RecordModel):
    """Statistics of a table on which an estimate rests; null: it has none, or its files cannot be read.

    changed_files: share of its files that have changed since, 0..1. text: the same in words.
    """

    table: str
    version: int | None = None
    built_at: dt.datetime | None = None
    source: str | None = None
    share: float | None = None
    changed_files: float | None
    text: str


class ExplainReply(BaseModel):
    """A decision about a statement that was not run.

    what_if: changes that would lead to another decision, driver of the peak and largest divergences, in words.
    statistics: of its tables, those below the driver of the peak first. sql: text for each engine.
    """

    fingerprint: str
    decision: DecisionModel
    what_if: list[str]
    statistics: list[BasisModel]
    sql: dict[str, str]


class MisestimateModel(RecordModel):
    """One misestimate. in_force: the engine has no larger limit now, and the statement is not tried there again."""

    fingerprint: str
    engine: str
    statistics_version: str
    limit_bytes: int
    query_id: str
    sql: str
    estimated_bytes: int | None
    peak_bytes: int | None
    recorded_at: dt.datetime
    in_force: bool


class MisestimateList(BaseModel):
    """All misestimates, newest first."""

    misestimates: list[MisestimateModel]
