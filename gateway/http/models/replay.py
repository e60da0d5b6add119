"""Replays of recorded history, and advice from them, as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, Field

from gateway.http.models.common import Moment, RequestModel
from gateway.http.models.queries import ReasonModel
from gateway.routing.replaying import AdviceReport, Change, EngineAdvice, ReplayReport
from selector.decision import Rule
from selector.replay.advice import Option
from selector.replay.replay import Load

STATEMENTS, MOST_STATEMENTS = 10_000, 100_000
ADVISED, MOST_ADVISED = 2_000, 20_000


class HistoryRequest(RequestModel):
    """Which part of history, under which settings."""

    since: Moment | None = Field(None, strict=False, description="Statements submitted then or later.")
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Other settings: ENGINE.memory_limit, ENGINE.workers (or slots), routing.*.",
        examples=[{"duckdb.memory_limit": "2GiB", "routing.miss_price_s": "34"}],
    )
    policy: Rule | None = Field(
        None, strict=False, description="expected, safe or paper, for all statements; without it, as each had it."
    )
    prices: dict[str, float] = Field(
        default_factory=dict,
        description="Price of an hour in which an engine works for one statement, by engine; others are free.",
        examples=[{"duckdb": 0.5, "spark": 2.0}],
    )


class ReplayRequest(HistoryRequest):
    """History, decided again. sample: statements to draw, with ``seed``, of those that would go elsewhere."""

    limit: int = Field(STATEMENTS, ge=1, le=MOST_STATEMENTS, description="Statements at most; the newest count.")
    statistics: Literal["recorded", "current"] = Field(
        "recorded", description="Whether memory is estimated as it was then, or anew by today's statistics."
    )
    sample: int = Field(0, ge=0, le=1_000, description="Statements to draw of those that would go elsewhere.")
    seed: int = Field(0, description="Of the draw.")


class AdviceRequest(HistoryRequest):
    """Which limit and how many workers would have cost the least."""

    limit: int = Field(ADVISED, ge=1, le=MOST_ADVISED, description="Statements at most; the newest count.")
    memory_bytes: int | None = Field(
        None, ge=1 << 24, description="Memory that a fast engine may take; without it, its limit times its workers."
    )


class EngineLoadModel(BaseModel):
    """One engine's part. statements: that it tried first; share: of all, 0..1. busy_s: that it worked, all together."""

    engine: str
    statements: int
    share: float
    busy_s: float
    money: float | None


class LoadModel(BaseModel):
    """What a history takes. misses: times that statements ran out of memory, expected where nobody measured it.

    busy_s: seconds that all engines worked. client_s: from statements' coming to their end, all together. money: null
    without prices.
    """

    engines: list[EngineLoadModel]
    misses: float
    busy_s: float
    client_s: float
    money: float | None

    @classmethod
    def of(cls, load: Load, client_s: float, prices: Mapping[str, float]) -> LoadModel:
        """Show what a history takes."""
        return cls(
            engines=list(_engine_loads(load, prices)),
            misses=load.misses,
            busy_s=load.seconds,
            client_s=client_s,
            money=load.money(prices) if prices else None,
        )


class ChangeModel(BaseModel):
    """A statement that would go elsewhere. engine_after: null where no engine could have taken it.

    seconds: that engines work for it, before as measured. first_s: on the engine that tries first. is_measured: runs
    of it tell how it goes there, and no forecast.
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


class ReplayReply(BaseModel):
    """What would change.

    statements: that were replayed; fixed: of them, writes and those that failed by themselves, which are kept as they
    were. is_capped: history goes back further. estimated_anew, not_estimated: texts, by today's statistics.
    own_repeated, own_busy_s: how many statements go where they went, and the seconds of all, if history is decided
    again under its own settings: how far a replay can be trusted.
    changed: statements that would go elsewhere; measured: of them, those of which runs tell how they would go there;
    what the others take is forecast. changes: those that change most seconds.
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
        return cls(
            since=recorded.since,
            until=recorded.until,
            statements=len(recorded.history.statements),
            fixed=recorded.fixed,
            is_capped=recorded.is_capped,
            estimated_anew=recorded.explained,
            not_estimated=recorded.refused,
            own_repeated=report.own.repeated,
            own_busy_s=report.own.load.seconds,
            before=LoadModel.of(report.before, report.client_before_s, prices),
            after=LoadModel.of(report.after, report.client_after_s, prices),
            changed=len(report.replayed.statements) - report.replayed.repeated,
            measured=sum(each.is_elsewhere and each.is_measured for each in report.replayed.statements),
            changes=[ChangeModel.of(each) for each in report.changes],
            sample=[ChangeModel.of(each) for each in report.sample],
        )


class OptionModel(BaseModel):
    """One limit and number of workers. is_recorded: as configured; is_best: the least cost of all that were tried."""

    limit_bytes: int
    workers: int
    memory_bytes: int
    load: LoadModel
    is_recorded: bool
    is_best: bool

    @classmethod
    def of(cls, option: Option, prices: Mapping[str, float]) -> OptionModel:
        """Show an option."""
        return cls(
            limit_bytes=option.limit_bytes,
            workers=option.slots,
            memory_bytes=option.memory_bytes,
            load=LoadModel.of(option.load, option.client_s, prices),
            is_recorded=option.is_recorded,
            is_best=option.is_best,
        )


class EngineAdviceModel(BaseModel):
    """Options of one fast engine, the least memory first. memory_bytes: that it may take."""

    engine: str
    memory_bytes: int
    options: list[OptionModel]

    @classmethod
    def of(cls, advice: EngineAdvice, prices: Mapping[str, float]) -> EngineAdviceModel:
        """Show the options of an engine."""
        options = [OptionModel.of(each, prices) for each in advice.options]
        return cls(engine=advice.engine, memory_bytes=advice.memory_bytes, options=options)


class AdviceReply(BaseModel):
    """What each fast engine had better been given, by the history."""

    since: dt.datetime | None
    until: dt.datetime | None
    statements: int
    is_capped: bool
    engines: list[EngineAdviceModel]

    @classmethod
    def of(cls, report: AdviceReport, prices: Mapping[str, float]) -> AdviceReply:
        """Show a report."""
        recorded = report.recorded
        return cls(
            since=recorded.since,
            until=recorded.until,
            statements=len(recorded.history.statements),
            is_capped=recorded.is_capped,
            engines=[EngineAdviceModel.of(each, prices) for each in report.engines],
        )


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
