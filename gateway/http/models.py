"""JSON in and out. Names are fixed; fields may be added."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gateway.statements import AUTO
from metastore.records import Attempt, CatalogTable, Failure, Misestimate, QueryRecord, StatisticsJob
from selector.decide import Decision
from selector.estimate import MemoryEstimate
from selector.statistics import TableStatistics


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class QueryRequest(_Request):
    """A statement to run."""

    sql: str = Field(description="One query.", examples=["SELECT count(*) FROM books WHERE price < 80"])
    dialect: str = Field("spark", description="Dialect of the text: spark, hive, impala, duckdb, trino or ansi.")
    engine: str = Field(AUTO, description="auto, or the one engine that may run it.")
    wait_s: float = Field(30.0, ge=0.0, le=600.0, description="How long to wait for the end; 0 returns at once.")
    max_rows: int | None = Field(None, ge=0, le=1_000_000, description="Rows in the reply; the rest stays fetchable.")
    timeout_s: float | None = Field(None, gt=0.0, description="Ends the query after this time.")


class ExplainRequest(_Request):
    """A statement to decide about without running it."""

    sql: str = Field(description="One query.")
    dialect: str = Field("spark", description="Dialect of the text.")
    engine: str = Field(AUTO, description="auto, or the one engine that may run it.")


class TableRequest(_Request):
    """A table to register."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
    location: str = Field(description="Absolute path of a folder or file that every engine can read.")
    format: str | None = Field(None, description="parquet, csv, json or orc; found out without it.")
    options: dict[str, str] = Field(default_factory=dict, description='For text: {"delimiter": "|", "header": "true"}.')


class StatisticsJobRequest(_Request):
    """Tables whose statistics to compute."""

    tables: list[str] = Field(min_length=1)


class PositionModel(BaseModel):
    """A place in a statement, counted from one."""

    line: int
    column: int


class ErrorModel(BaseModel):
    """Why something failed. code: stable, for programs."""

    code: str
    message: str
    position: PositionModel | None = None
    query_id: str | None = None

    @classmethod
    def of(cls, failure: Failure, query_id: str | None = None) -> ErrorModel:
        """Show a failure."""
        position = failure.position
        place = PositionModel(line=position.line, column=position.column) if position else None
        return cls(code=failure.code, message=failure.message, position=place, query_id=query_id)


class ErrorReply(BaseModel):
    """The one shape of every error."""

    error: ErrorModel


class ColumnModel(BaseModel):
    """A column. type: Spark's short form."""

    name: str
    type: str


class ReasonModel(BaseModel):
    """One reason for a decision."""

    code: str
    text: str


class OperatorModel(BaseModel):
    """One operator's part of an estimate; null is unknown."""

    operator: str
    depth: int
    rows: float | None
    engine_rows: float | None
    held_bytes: int
    basis: str


class EstimateModel(BaseModel):
    """Expected peak and its upper bound; null is unknown."""

    peak_bytes: int | None
    upper_bytes: int | None
    confidence: float
    operators: list[OperatorModel]

    @classmethod
    def of(cls, estimate: MemoryEstimate) -> EstimateModel:
        """Show an estimate."""
        operators = [OperatorModel.model_validate(part, from_attributes=True) for part in estimate.operators]
        return cls(
            peak_bytes=estimate.peak_bytes,
            upper_bytes=estimate.upper_bytes,
            confidence=estimate.confidence,
            operators=operators,
        )


class DecisionModel(BaseModel):
    """Where a statement goes, and why. limit_bytes: of the fast engine, for one statement."""

    engine: str
    ranking: list[str]
    reasons: list[ReasonModel]
    estimate: EstimateModel
    limit_bytes: int | None

    @classmethod
    def of(cls, decision: Decision) -> DecisionModel:
        """Show a decision."""
        return cls(
            engine=decision.engine,
            ranking=list(decision.ranking),
            reasons=[ReasonModel(code=reason.code.value, text=reason.text) for reason in decision.reasons],
            estimate=EstimateModel.of(decision.estimate),
            limit_bytes=decision.limit_bytes,
        )


class AttemptModel(BaseModel):
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

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptModel:
        """Show an attempt."""
        return cls.model_validate(attempt, from_attributes=True)


class QueryReply(BaseModel):
    """A query: what was asked, decided, tried and found."""

    id: str
    state: str
    engine: str | None
    sql: str
    dialect: str
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
    error: ErrorModel | None = None

    @classmethod
    def of(cls, record: QueryRecord) -> QueryReply:
        """Show a query without its rows."""
        return cls(
            id=record.id,
            state=record.state.value,
            engine=record.engine,
            sql=record.sql,
            dialect=record.dialect,
            requested_engine=record.requested_engine,
            submitted_at=record.submitted_at,
            finished_at=record.finished_at,
            fingerprint=record.fingerprint,
            statistics_version=record.statistics_version,
            row_count=record.rows,
            decision=DecisionModel.of(record.decision) if record.decision else None,
            attempts=[AttemptModel.of(attempt) for attempt in record.attempts],
            error=ErrorModel.of(record.error, record.id) if record.error else None,
        )


class QueryList(BaseModel):
    """Queries, newest first."""

    queries: list[QueryReply]


class ExplainReply(BaseModel):
    """A decision about a statement that was not run. sql: as each engine would get it."""

    fingerprint: str
    decision: DecisionModel
    sql: dict[str, str]


class ColumnStatisticsModel(BaseModel):
    """What is known about a column; histograms as endpoints with the shares of rows at most there."""

    name: str
    type: str
    nulls: int
    ndv: float
    minimum: float | str | None
    maximum: float | str | None
    average_length: float | None
    maximum_length: int | None
    endpoints: list[float] | None
    up_to: list[float] | None


class StatisticsModel(BaseModel):
    """One build of a table's statistics."""

    version: int
    rows: int
    bytes: int
    built_at: dt.datetime | None
    source: str
    columns: list[ColumnStatisticsModel]

    @classmethod
    def of(cls, build: TableStatistics) -> StatisticsModel:
        """Show a build."""
        columns = []
        for column in build.columns.values():
            histogram = column.histogram
            columns.append(
                ColumnStatisticsModel(
                    name=column.name,
                    type=column.data_type,
                    nulls=column.nulls,
                    ndv=column.ndv,
                    minimum=column.minimum,
                    maximum=column.maximum,
                    average_length=column.average_length,
                    maximum_length=column.maximum_length,
                    endpoints=histogram.endpoints.tolist() if histogram else None,
                    up_to=histogram.up_to.tolist() if histogram and histogram.up_to is not None else None,
                )
            )
        return cls(
            version=build.version,
            rows=build.rows,
            bytes=build.bytes,
            built_at=build.built_at,
            source=build.source,
            columns=columns,
        )


class TableReply(BaseModel):
    """A registered table."""

    name: str
    format: str
    columns: list[ColumnModel]
    partition_columns: list[str]
    files: int
    bytes: int
    rows: int | None
    registered_at: dt.datetime
    statistics_version: int | None
    statistics: StatisticsModel | None = None

    @classmethod
    def of(cls, table: CatalogTable, build: TableStatistics | None = None) -> TableReply:
        """Show a table; its place on the server stays inside."""
        return cls(
            name=table.name,
            format=table.source.format,
            columns=[ColumnModel(name=column.name, type=column.data_type) for column in table.source.columns],
            partition_columns=list(table.source.partition_columns),
            files=table.files,
            bytes=table.bytes,
            rows=table.rows,
            registered_at=table.registered_at,
            statistics_version=table.statistics_version,
            statistics=StatisticsModel.of(build) if build else None,
        )


class TableList(BaseModel):
    """All registered tables."""

    tables: list[TableReply]


class StatisticsJobReply(BaseModel):
    """A statistics job."""

    id: str
    tables: list[str]
    state: str
    tables_done: int
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    error: str | None

    @classmethod
    def of(cls, job: StatisticsJob) -> StatisticsJobReply:
        """Show a job."""
        return cls.model_validate(job, from_attributes=True)


class MisestimateModel(BaseModel):
    """One lesson."""

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
    def of(cls, lesson: Misestimate) -> MisestimateModel:
        """Show a lesson."""
        return cls.model_validate(lesson, from_attributes=True)


class MisestimateList(BaseModel):
    """All lessons, newest first."""

    misestimates: list[MisestimateModel]


class EngineModel(BaseModel):
    """An engine as it is now."""

    name: str
    kind: str
    alive: bool
    detail: str
    limit_bytes: int | None
    ledger: dict[str, int | None]


class EngineList(BaseModel):
    """All engines, in the order in which they were configured."""

    engines: list[EngineModel]
