"""Statements, decisions, estimates and misestimates as JSON."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

from pydantic import BaseModel, Field

from engines.table_names import DEFAULT_DATABASE
from gateway.http.models.common import DATABASE_NAME, ColumnModel, ErrorModel, RecordModel, RequestModel
from gateway.presentation.waits import Wait, waits_for
from gateway.presentation.what_if import operator_notes
from gateway.statements import AUTO
from gateway.statistics.staleness import Drift
from metastore.records import (
    Misestimate,
    QueryRecord,
)
from selector.decision import Decision
from selector.estimate import MemoryEstimate
from selector.statistics import TableStatistics


class QueryRequest(RequestModel):
    """A statement to run."""

    sql: str = Field(description="One query.", examples=["SELECT count(*) FROM books WHERE price < 80"])
    dialect: str = Field("spark", description="Dialect of the text: spark, hive, impala, duckdb, trino or ansi.")
    database: str = Field(DEFAULT_DATABASE, pattern=DATABASE_NAME, description="Of names without one before them.")
    engine: str = Field(AUTO, description="auto, or the one engine that may run it.")
    wait_s: float = Field(30.0, ge=0.0, le=600.0, description="How long to wait for the end; 0 returns at once.")
    max_rows: int | None = Field(None, ge=0, le=1_000_000, description="Rows in the reply; the rest stays fetchable.")
    timeout_s: float | None = Field(None, gt=0.0, description="Ends the query after this time.")
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Settings of this statement alone, as SET takes them in a session.",
        examples=[{"spark.sql.sources.partitionOverwriteMode": "dynamic"}],
    )


class ExplainRequest(RequestModel):
    """A statement to decide about without running it."""

    sql: str = Field(description="One query.")
    dialect: str = Field("spark", description="Dialect of the text.")
    database: str = Field(DEFAULT_DATABASE, pattern=DATABASE_NAME, description="Of names without one before them.")
    engine: str = Field(AUTO, description="auto, or the one engine that may run it.")
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Settings of this statement alone, as SET takes them in a session.",
        examples=[{"fusion.policy": "safe"}],
    )


class ReasonModel(RecordModel):
    """One reason for a decision."""

    code: str
    text: str


class OperatorModel(RecordModel):
    """One operator's part of an estimate; null is unknown.

    upper_rows: the most that there can be. divergence: how many times our rows and the engine's differ, at least 1.
    notes: what is special about it, in words.
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
    """Expected peak and its upper bound; null is unknown.

    operators: of the plan, parents first. driver: position of the one that holds most at the peak. divergences:
    positions where the engine's rows leave ours by more than a factor of two, though they agree below.
    """

    peak_bytes: int | None
    upper_bytes: int | None
    confidence: float
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
    """What would let a statement into the fast engine: all of it together; null is not in the way.

    blocked: codes of reasons that no limit lifts.
    """

    engine: str
    limit_bytes: int | None
    blocked: list[str]


class PriceModel(RecordModel):
    """What a statement was expected to cost on one engine, in seconds.

    fits: probability that it fits, null where nothing is known. seconds: if it does; model_s: by its plan alone.
    miss_s: until it runs out of memory, if it does. wait_s: until a slot is free. held_s: that others wait longer.
    first_s: expected in all if this engine is tried first, and the others after it; null where it may not be tried.
    """

    engine: str
    fits: float | None
    seconds: float
    model_s: float
    miss_s: float
    wait_s: float
    held_s: float
    first_s: float | None


class DecisionModel(RecordModel):
    """Where a statement goes, and why. limit_bytes: of the fast engine, for one statement.

    threads: that work for it there, which the estimate is for. remedy: what would let it into the fast engine, null
    where it is let in or an engine was asked for by name. policy: expected, safe or paper, which decided. prices: of
    every engine that was considered.
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

    @classmethod
    def of(cls, decision: Decision) -> DecisionModel:
        """Show a decision; one that several statements go by is made once."""
        return _SHOWN.of(decision)

    @classmethod
    def made_of(cls, decision: Decision) -> DecisionModel:
        """Show a decision anew."""
        return cls.showing(decision, estimate=EstimateModel.of(decision.estimate), policy=decision.rule.value)


class _Shown:
    """The models of the last decisions, by which object they are. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._models: dict[int, tuple[Decision, DecisionModel]] = {}

    def of(self, decision: Decision) -> DecisionModel:
        """Return the model of a decision."""
        with self._lock:
            kept = self._models.get(id(decision))
        if kept is not None and kept[0] is decision:
            return kept[1]
        model = DecisionModel.made_of(decision)
        with self._lock:
            self._models[id(decision)] = decision, model
            if len(self._models) > self._most:
                del self._models[next(iter(self._models))]
        return model


_SHOWN = _Shown(64)


class AttemptModel(RecordModel):
    """One try on one engine."""

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
    """What a query waits for.

    needs: slot, memory, processors, pool slot, pool memory, turn, first try (another run's), engine, or planner.
    engine: null for any. pool, memory_bytes, place (1 is next), expected_s (from now until it probably starts): of
    a lease alone; memory_bytes is null where the engine spills.
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


class QueryReply(RecordModel):
    """A query: what was asked, decided, tried and found."""

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
    statistics_version: str | None
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
        """Show a query without its rows. wait: what it waits for."""
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
    """Queries, newest first."""

    queries: list[QueryReply]


class BasisModel(BaseModel):
    """A table's statistics as an estimate rests on them; null where it has none, or where its files cannot be seen.

    changed_files: share of its files that are not as they were then, 0..1. text: all of it in words.
    """

    table: str
    version: int | None
    built_at: dt.datetime | None
    source: str | None
    share: float | None
    changed_files: float | None
    text: str

    @classmethod
    def of(cls, table: str, build: TableStatistics | None, drift: Drift | None, text: str) -> BasisModel:
        """Show what is known of a table."""
        return cls(
            table=table,
            version=build.version if build else None,
            built_at=build.built_at if build else None,
            source=build.source if build else None,
            share=build.share if build else None,
            changed_files=drift.share if drift else None,
            text=text,
        )


class ExplainReply(BaseModel):
    """A decision about a statement that was not run. sql: as each engine would get it.

    what_if: what would change the decision, what drives the peak and where the estimates differ, in words.
    statistics: of its tables, those first that meet where the peak is driven.
    """

    fingerprint: str
    decision: DecisionModel
    what_if: list[str]
    statistics: list[BasisModel]
    sql: dict[str, str]


class MisestimateModel(RecordModel):
    """One misestimate."""

    fingerprint: str
    engine: str
    statistics_version: str
    limit_bytes: int
    query_id: str
    sql: str
    estimated_bytes: int | None
    peak_bytes: int | None
    recorded_at: dt.datetime

    @classmethod
    def of(cls, misestimate: Misestimate) -> MisestimateModel:
        """Show a misestimate."""
        return cls.showing(misestimate)


class MisestimateList(BaseModel):
    """All misestimates, newest first."""

    misestimates: list[MisestimateModel]
