"""JSON in and out. Names are fixed; fields may be added.

It is long because it is one contract: every body and reply but those of schedules, to be read side by side.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gateway.explain import operator_notes
from gateway.staleness import Drift
from gateway.statements import AUTO
from metastore.records import (
    SMALLEST_SHARE,
    Attempt,
    CatalogTable,
    Failure,
    Misestimate,
    Mode,
    QueryRecord,
    StatisticsJob,
    TableProgress,
)
from selector.decide import Decision, Remedy
from selector.estimate import MemoryEstimate
from selector.keys import KeyPair
from selector.quoting import require_name
from selector.statistics import ColumnStatistics, Keys, TableStatistics
from selector.types import parse

NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"


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
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Settings of this statement alone, as SET takes them in a session.",
        examples=[{"spark.sql.sources.partitionOverwriteMode": "dynamic"}],
    )


class ExplainRequest(_Request):
    """A statement to decide about without running it."""

    sql: str = Field(description="One query.")
    dialect: str = Field("spark", description="Dialect of the text.")
    engine: str = Field(AUTO, description="auto, or the one engine that may run it.")


class KeyRequest(_Request):
    """A column that refers to another one."""

    column: str
    references: str = Field(pattern=r"^[^.]+\.[^.]+$", description="Table and column: books.id.")


def _spark_type(text: str) -> str:
    return str(parse(text))


class ColumnRequest(_Request):
    """A column that the caller knows."""

    name: Annotated[str, AfterValidator(require_name)]
    type: Annotated[str, AfterValidator(_spark_type)] = Field(description="As Spark writes it, such as decimal(10,2).")


class TableRequest(_Request):
    """A table to register."""

    name: str = Field(pattern=NAME)
    location: str = Field(description="Absolute path of a folder or file that every engine can read.")
    format: str | None = Field(None, description="parquet, csv, json, orc or avro; found out without it.")
    options: dict[str, str] = Field(
        default_factory=dict, description='Of text, and no other: {"delimiter": "|", "header": "true"}.'
    )
    columns: list[ColumnRequest] = Field(
        default_factory=list,
        description="Of text and JSON all or none; of partition folders any. The rest is found out.",
    )
    keys: list[KeyRequest] = Field(default_factory=list, description="Columns that are joined with other tables'.")


class StatisticsJobRequest(_Request):
    """Statistics to compute. columns and partitions belong to a single table, share to a sample."""

    tables: list[str] = Field(min_length=1)
    mode: Mode = Field(Mode.FULL, strict=False, description="full, incremental (what is new or changed) or sample.")
    share: float | None = Field(
        None, ge=SMALLEST_SHARE, le=1.0, description="Of a sample: how much of each table is read."
    )
    columns: list[str] = Field(default_factory=list, description="None for all.")
    partitions: list[str] = Field(default_factory=list, description="Folders, such as year=2024 or year=2024/month=1.")


class WorkloadRequest(_Request):
    """Statements that are usual here; only their joins are looked at, nothing runs."""

    statements: list[str] = Field(min_length=1, max_length=10_000)
    dialect: str = Field("spark", description="Dialect of the texts.")


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
    """One operator's part of an estimate; null is unknown.

    upper_rows: the most that there can be. parting: how many times our rows and the engine's differ, at least 1.
    notes: what is special about it, in words.
    """

    operator: str
    depth: int
    table: str | None
    rows: float | None
    upper_rows: float | None
    engine_rows: float | None
    parting: float | None
    held_bytes: int
    basis: str
    notes: list[str]


class EstimateModel(BaseModel):
    """Expected peak and its upper bound; null is unknown.

    operators: of the plan, parents first. driver: position of the one that holds most at the peak. partings: positions
    where the engine's rows leave ours by more than a factor of two, though they agree below.
    """

    peak_bytes: int | None
    upper_bytes: int | None
    confidence: float
    operators: list[OperatorModel]
    driver: int | None
    partings: list[int]

    @classmethod
    def of(cls, estimate: MemoryEstimate) -> EstimateModel:
        """Show an estimate."""
        operators = [
            OperatorModel(
                operator=part.operator,
                depth=part.depth,
                table=part.table,
                rows=part.rows,
                upper_rows=part.upper_rows,
                engine_rows=part.engine_rows,
                parting=part.parting,
                held_bytes=part.held_bytes,
                basis=part.basis,
                notes=list(notes),
            )
            for part, notes in zip(estimate.operators, operator_notes(estimate), strict=True)
        ]
        return cls(
            peak_bytes=estimate.peak_bytes,
            upper_bytes=estimate.upper_bytes,
            confidence=estimate.confidence,
            operators=operators,
            driver=estimate.driver,
            partings=list(estimate.partings()),
        )


class RemedyModel(BaseModel):
    """What would let a statement into the fast engine: all of it together; null is not in the way.

    blocked: codes of reasons that neither a limit nor confidence lifts.
    """

    engine: str
    limit_bytes: int | None
    confidence: float | None
    blocked: list[str]

    @classmethod
    def of(cls, remedy: Remedy) -> RemedyModel:
        """Show a remedy."""
        return cls(
            engine=remedy.engine,
            limit_bytes=remedy.limit_bytes,
            confidence=remedy.confidence,
            blocked=[code.value for code in remedy.blocked],
        )


class DecisionModel(BaseModel):
    """Where a statement goes, and why. limit_bytes: of the fast engine, for one statement.

    remedy: what would let it into the fast engine, null where it is let in or an engine was asked for by name.
    """

    engine: str
    ranking: list[str]
    reasons: list[ReasonModel]
    estimate: EstimateModel
    limit_bytes: int | None
    remedy: RemedyModel | None

    @classmethod
    def of(cls, decision: Decision) -> DecisionModel:
        """Show a decision."""
        return cls(
            engine=decision.engine,
            ranking=list(decision.ranking),
            reasons=[ReasonModel(code=reason.code.value, text=reason.text) for reason in decision.reasons],
            estimate=EstimateModel.of(decision.estimate),
            limit_bytes=decision.limit_bytes,
            remedy=RemedyModel.of(decision.remedy) if decision.remedy else None,
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
            user=record.user,
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

    outlook: what would change the decision, what drives the peak and where the estimates part, in words. statistics: of
    its tables, those first that meet where the peak is driven.
    """

    fingerprint: str
    decision: DecisionModel
    outlook: list[str]
    statistics: list[BasisModel]
    sql: dict[str, str]


class CommonValueModel(BaseModel):
    """A value that many rows hold."""

    value: float | str
    rows: int


class ColumnStatisticsModel(BaseModel):
    """What is known about a column; histograms as endpoints with the shares of rows at most there.

    Numbers, dates and times are on their type's line: days and microseconds since 1970; strings are their first bytes.
    manual: names of the fields that a person set. key_bins: how many bins a joined column is counted in.
    """

    name: str
    type: str
    nulls: int
    ndv: float
    minimum: float | str | None
    maximum: float | str | None
    average_length: float | None
    maximum_length: int | None
    endpoints: list[float | str] | None
    up_to: list[float] | None
    common: list[CommonValueModel]
    manual: list[str]
    key_bins: int | None

    @classmethod
    def of(cls, column: ColumnStatistics, build: TableStatistics) -> ColumnStatisticsModel:
        """Show a column of a build."""
        histogram, common, key = column.histogram, column.common, build.keys.get(column.name)
        return cls(
            name=column.name,
            type=column.data_type,
            nulls=column.nulls,
            ndv=column.ndv,
            minimum=column.minimum,
            maximum=column.maximum,
            average_length=column.average_length,
            maximum_length=column.maximum_length,
            endpoints=_on_the_line(histogram.endpoints) if histogram else None,
            up_to=histogram.up_to.tolist() if histogram and histogram.up_to is not None else None,
            common=[
                CommonValueModel(value=value, rows=rows)
                for value, rows in zip(_on_the_line(common.values), common.rows.tolist(), strict=True)
            ]
            if common
            else [],
            manual=sorted(column.manual),
            key_bins=key.bins.count if key else None,
        )


def _on_the_line(keys: Keys) -> list[float | str]:
    """Return places on a column's line as JSON can carry them."""
    return [key.decode(errors="replace") if isinstance(key, bytes) else key for key in keys.tolist()]


class StatisticsModel(BaseModel):
    """One build of a table's statistics. share: of the table that was read, 0..1; notes: what was left out."""

    version: int
    rows: int
    bytes: int
    files: int
    built_at: dt.datetime | None
    source: str
    share: float
    notes: list[str]
    manual: list[str]
    sample_rows: int | None
    columns: list[ColumnStatisticsModel]

    @classmethod
    def of(cls, build: TableStatistics) -> StatisticsModel:
        """Show a build."""
        return cls(
            version=build.version,
            rows=build.rows,
            bytes=build.bytes,
            files=build.files,
            built_at=build.built_at,
            source=build.source,
            share=build.share,
            notes=list(build.notes),
            manual=sorted(build.manual),
            sample_rows=build.sample.rows if build.sample else None,
            columns=[ColumnStatisticsModel.of(column, build) for column in build.columns.values()],
        )


class PartitionModel(BaseModel):
    """One partition. rows: of its summary, null where none is kept."""

    folder: str
    values: dict[str, str]
    files: int
    bytes: int
    rows: int | None


class KeyModel(BaseModel):
    """Two columns that are joined. source: declared, history or workload."""

    left: str
    right: str
    source: str

    @classmethod
    def of(cls, pair: KeyPair, source: str) -> KeyModel:
        """Show a pair."""
        return cls(left=str(pair.left), right=str(pair.right), source=source)


class KeyList(BaseModel):
    """All pairs of joined columns."""

    keys: list[KeyModel]


class RefusedStatement(BaseModel):
    """A statement of a workload that could not be read. number: its place in the workload, counted from one."""

    number: int
    error: ErrorModel


class WorkloadReply(BaseModel):
    """What a workload taught. new: pairs that were not known before."""

    new: int
    keys: list[KeyModel]
    refused: list[RefusedStatement]


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
    owner: str | None
    statistics_version: int | None
    statistics: StatisticsModel | None = None
    partitions: list[PartitionModel] = []
    keys: list[KeyModel] = []

    @classmethod
    def of(
        cls,
        table: CatalogTable,
        build: TableStatistics | None = None,
        *,
        part_rows: Mapping[str, int] | None = None,
        keys: Mapping[KeyPair, str] | None = None,
    ) -> TableReply:
        """Show a table; its place on the server stays inside. part_rows: by folder, which are shown if it is given."""
        return cls(
            name=table.name,
            format=table.source.format,
            columns=[ColumnModel(name=column.name, type=column.data_type) for column in table.source.columns],
            partition_columns=list(table.source.partition_columns),
            files=table.files,
            bytes=table.bytes,
            rows=table.rows,
            registered_at=table.registered_at,
            owner=table.owner,
            statistics_version=table.statistics_version,
            statistics=StatisticsModel.of(build) if build else None,
            partitions=[
                PartitionModel(
                    folder=each.path,
                    values=dict(each.values),
                    files=each.files,
                    bytes=each.bytes,
                    rows=part_rows.get(each.path),
                )
                for each in table.partitions
            ]
            if part_rows is not None
            else [],
            keys=[KeyModel.of(pair, source) for pair, source in (keys or {}).items()],
        )


class TableList(BaseModel):
    """All registered tables."""

    tables: list[TableReply]


class TableProgressModel(BaseModel):
    """How one table of a job goes. version: of the statistics that it published."""

    table: str
    state: str
    files_done: int
    files_all: int
    rows: int | None
    columns: int | None
    seconds: float | None
    version: int | None
    error: str | None

    @classmethod
    def of(cls, progress: TableProgress) -> TableProgressModel:
        """Show a table's progress."""
        return cls.model_validate(progress, from_attributes=True)


class StatisticsJobReply(BaseModel):
    """A statistics job. schedule: the one that started it."""

    id: str
    tables: list[str]
    mode: str
    share: float
    columns: list[str]
    partitions: list[str]
    state: str
    tables_done: int
    progress: list[TableProgressModel]
    created_at: dt.datetime
    started_at: dt.datetime | None
    heartbeat_at: dt.datetime | None
    finished_at: dt.datetime | None
    schedule: str | None
    owner: str | None
    error: str | None

    @classmethod
    def of(cls, job: StatisticsJob) -> StatisticsJobReply:
        """Show a job."""
        request = job.request
        return cls(
            id=job.id,
            tables=list(request.tables),
            mode=request.mode.value,
            share=request.share,
            columns=list(request.columns),
            partitions=list(request.partitions),
            state=job.state.value,
            tables_done=job.tables_done,
            progress=[TableProgressModel.of(table) for table in job.tables],
            created_at=job.created_at,
            started_at=job.started_at,
            heartbeat_at=job.heartbeat_at,
            finished_at=job.finished_at,
            schedule=job.schedule,
            owner=job.owner,
            error=job.error,
        )


class StatisticsJobList(BaseModel):
    """Jobs, newest first."""

    jobs: list[StatisticsJobReply]


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
