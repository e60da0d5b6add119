"""Replays of recorded history, and advice from them, as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, Field

from gateway.http.models.common import Moment, NumberMap, RecordModel, RequestModel, TextMap
from gateway.http.models.queries import ReasonModel
from gateway.routing.replaying import AdviceReport, Change, EngineAdvice, ReplayReport
from selector.decision import Rule
from selector.replay.advice import Option
from selector.replay.replay import Load

STATEMENTS, MOST_STATEMENTS = 10_000, 100_000
ADVISED, MOST_ADVISED = 2_000, 20_000


class HistoryRequest(RequestModel):
    """A part of history, and other settings."""

    since: Moment | None = Field(None, strict=False, description="Statements from then on.")
    settings: TextMap = Field(
        default_factory=dict,
        description="Other settings: ENGINE.memory_limit, ENGINE.workers (or slots), routing.*.",
        examples=[{"duckdb.memory_limit": "2GiB", "routing.miss_price_s": "34"}],
    )
    policy: Rule | None = Field(
        None, strict=False, description="expected, safe or paper, for all statements; null: the policy of each."
    )
    prices: NumberMap = Field(
        default_factory=dict,
        description="Price of an hour in which an engine works for one statement, by engine; other engines are free.",
        examples=[{"duckdb": 0.5, "spark": 2.0}],
    )


class ReplayRequest(HistoryRequest):
    """A replay of history."""

    limit: int = Field(STATEMENTS, ge=1, le=MOST_STATEMENTS, description="Most statements; the newest count.")
    statistics: Literal["recorded", "current"] = Field(
        "recorded", description="Estimates of memory: as recorded, or anew by today's statistics."
    )
    sample: int = Field(0, ge=0, le=1_000, description="Statements to draw from those that would go to another engine.")
    seed: int = Field(0, description="Seed of the draw.")


class AdviceRequest(HistoryRequest):
    """A search for the limit and number of workers with the least cost."""

    limit: int = Field(ADVISED, ge=1, le=MOST_ADVISED, description="Most statements; the newest count.")
    memory_bytes: int | None = Field(
        None, ge=1 << 24, description="Memory that a fast engine may take; null: its limit times its workers."
    )


class EngineLoadModel(BaseModel):
    """One engine's part. statements: those it tried first; share: of all, 0..1. busy_s: its working time."""

    engine: str
    statements: int
    share: float
    busy_s: float
    money: float | None


class LoadModel(BaseModel):
    """Load of a history. misses: statements that ran out of memory, expected values where they were not measured.

    busy_s: working time of all engines. client_s: sum of all statements' times from submission to end. money: null:
    no prices.
    """

    engines: list[EngineLoadModel]
    misses: float
    busy_s: float
    client_s: float
    money: float | None

    @classmethod
    def of(cls, load: Load, client_s: float, prices: Mapping[str, float]) -> LoadModel:
        """Show a load."""
        return cls(
            engines=list(_engine_loads(load, prices)),
            misses=load.misses,
            busy_s=load.seconds,
            client_s=client_s,
            money=load.money(prices) if prices else None,
        )


class ChangeModel(BaseModel):
    """A statement that would go to another engine. engine_after: null: no engine could have run it.

    seconds_before, seconds_after: working time of engines, before as measured. first_s: time on the engine that is
    tried first. is_measured: measured runs give the time after the change, not a forecast.
    """

    query_id: str
    sql: str
    dialect: str
    engine_before: str
    engine_after: str | None
    seconds_before: float
    seconds_after: float
    first_s: float
    misses_before: float
    misses_after: float
    is_measured: bool
    reasons: list[ReasonModel]

    @classmethod
    def of(cls, change: Change) -> ChangeModel:
        """Show a change."""
        replayed, statement = change.replayed, change.replayed.statement
        reasons = replayed.decision.reasons if replayed.decision else ()
        return cls(
            query_id=statement.id,
            sql=change.sql,
            dialect=change.dialect,
            engine_before=statement.engine,
            engine_after=replayed.engine,
            seconds_before=statement.seconds,
            seconds_after=replayed.seconds,
            first_s=replayed.visits[0][1] if replayed.visits else 0.0,
            misses_before=statement.misses,
            misses_after=replayed.misses,
            is_measured=replayed.is_measured,
            reasons=[ReasonModel.model_validate(reason) for reason in reasons],
        )


class ReplayReply(RecordModel):
    """Result of a replay.

    statements: replayed ones; fixed: of them, writes and failed ones, which stay as they were. is_capped: history goes
    back further. estimated_anew, not_estimated: texts, by today's statistics.
    own_repeated, own_busy_s: statements with an unchanged engine, and working time, if history is decided again under
    its own settings. They show how reliable a replay is.
    changed: statements with another engine; measured: of them, those with measured runs there; the others are
    forecast. changes: those that change most seconds.
    """

    since: dt.datetime | None
    until: dt.datetime | None
    statements: int
    fixed: int
    is_capped: bool
    estimated_anew: int
    not_estimated: int
    own_repeated: int
    own_busy_s: float
    before: LoadModel
    after: LoadModel
    changed: int
    measured: int
    changes: list[ChangeModel]
    sample: list[ChangeModel]

    @classmethod
    def of(cls, report: ReplayReport, prices: Mapping[str, float]) -> ReplayReply:
        """Show a report."""
        recorded = report.recorded
        return cls.showing(
            recorded,
            statements=len(recorded.history.statements),
            estimated_anew=recorded.explained,
            not_estimated=recorded.refused,
            own_repeated=report.own.repeated,
            own_busy_s=report.own.load.seconds,
            before=LoadModel.of(report.before, report.client_before_s, prices),
            after=LoadModel.of(report.after, report.client_after_s, prices),
            changed=len(report.replayed.statements) - report.replayed.repeated,
            measured=sum(statement.is_elsewhere and statement.is_measured for statement in report.replayed.statements),
            changes=[ChangeModel.of(change) for change in report.changes],
            sample=[ChangeModel.of(change) for change in report.sample],
        )


class OptionModel(RecordModel):
    """A limit and number of workers. is_recorded: as configured; is_best: the least cost of all options."""

    limit_bytes: int
    workers: int
    memory_bytes: int
    load: LoadModel
    is_recorded: bool
    is_best: bool

    @classmethod
    def of(cls, option: Option, prices: Mapping[str, float]) -> OptionModel:
        """Show an option."""
        load = LoadModel.of(option.load, option.client_s, prices)
        return cls.showing(option, workers=option.slots, load=load)


class EngineAdviceModel(RecordModel):
    """Options of one fast engine, the least memory first. memory_bytes: memory that it may take."""

    engine: str
    memory_bytes: int
    options: list[OptionModel]

    @classmethod
    def of(cls, advice: EngineAdvice, prices: Mapping[str, float]) -> EngineAdviceModel:
        """Show the options of an engine."""
        options = [OptionModel.of(option, prices) for option in advice.options]
        return cls.showing(advice, options=options)


class AdviceReply(RecordModel):
    """Advice for each fast engine, by its history."""

    since: dt.datetime | None
    until: dt.datetime | None
    statements: int
    is_capped: bool
    engines: list[EngineAdviceModel]

    @classmethod
    def of(cls, report: AdviceReport, prices: Mapping[str, float]) -> AdviceReply:
        """Show a report."""
        recorded = report.recorded
        engines = [EngineAdviceModel.of(advice, prices) for advice in report.engines]
        return cls.showing(recorded, statements=len(recorded.history.statements), engines=engines)


def _engine_loads(load: Load, prices: Mapping[str, float]) -> Iterator[EngineLoadModel]:
    everything = sum(load.statements.values())
    for engine in sorted({*load.statements, *load.busy_s}):
        statements, busy_s = load.statements.get(engine, 0), load.busy_s.get(engine, 0.0)
        yield EngineLoadModel(
            engine=engine,
            statements=statements,
            share=statements / everything if everything else 0.0,
            busy_s=busy_s,
            money=Load({}, {engine: busy_s}, 0.0).money(prices) if engine in prices else None,
        )
