"""Sums over many queries: engines of a time, templates, and the savings ledger."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Engine, Float, case, cast, func, literal, select

from metastore.database.models import AttemptRow, QueryRow
from metastore.query_log.changes import OPEN_STATES
from metastore.records import QueryState

DAY_CHARACTERS = 8  # of a query's id: the day on which it was submitted, in UTC


@dataclass(frozen=True, slots=True)
class EngineShare:
    """Ended queries whose last attempt, or cached answer, was on one engine.

    engine: None: no engine was tried.
    p50_s, p95_s: of the seconds of those that finished; None: none did.
    """

    engine: str | None
    queries: int
    finished: int
    failed_over: int
    ran_out: int
    p50_s: float | None
    p95_s: float | None


@dataclass(frozen=True, slots=True)
class TemplateTotal:
    """Ended queries of one template: the same text but for its literals.

    ratio, lowest_ratio, highest_ratio: measured through expected peaks: mean and extremes; None: none was measured.
    newest: id of the newest query.
    """

    template: str
    queries: int
    failed: int
    failed_over: int
    ran_out: int
    seconds: float
    ratio: float | None
    lowest_ratio: float | None
    highest_ratio: float | None
    newest: str

    @property
    def q_error(self) -> float | None:
        """Largest factor between an expected and a measured peak, in either direction."""
        if not self.lowest_ratio or self.highest_ratio is None:
            return self.highest_ratio
        return max(self.highest_ratio, 1.0 / self.lowest_ratio)


class SavingsBy(StrEnum):
    """Subject of a line of the ledger."""

    ALL = "all"
    DAY = "day"
    USER = "user"
    POOL = "pool"
    TEMPLATE = "template"


@dataclass(slots=True)
class SavingsLine:
    """Engine-seconds of some ended queries, and of the same queries on the dependable engine alone.

    spent_s: by engine, failed attempts included; of queries whose time alone is known.
    measured_s, forecast_s: on the dependable engine alone, by that engine: of queries that ran there, and of others.
    unknown: queries whose time alone is not known; they are in no sum. other_s: engine-seconds of these.
    """

    key: str
    queries: int = 0
    unknown: int = 0
    failed_over: int = 0
    ran_out: int = 0
    spent_s: dict[str, float] = field(default_factory=dict)
    measured_s: dict[str, float] = field(default_factory=dict)
    forecast_s: dict[str, float] = field(default_factory=dict)
    other_s: float = 0.0

    @property
    def saved_s(self) -> float:
        """Engine-seconds that were not spent; negative: misses and failovers cost more than was won."""
        return sum(self.measured_s.values()) + sum(self.forecast_s.values()) - sum(self.spent_s.values())


_KEYS: Mapping[SavingsBy, ColumnElement[Any]] = {
    SavingsBy.ALL: literal(""),
    SavingsBy.DAY: func.substr(QueryRow.id, 1, DAY_CHARACTERS),
    SavingsBy.USER: QueryRow.user,  # type: ignore[dict-item]
    SavingsBy.POOL: QueryRow.pool,  # type: ignore[dict-item]
    SavingsBy.TEMPLATE: func.coalesce(QueryRow.template, ""),
}


class Workload:
    """Sums over the query log. Queries that earlier releases recorded are in none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def engines(self, since: dt.datetime) -> tuple[EngineShare, ...]:
        """Return the shares of engines in the queries since a time, the largest first."""
        columns = QueryRow.engine, QueryRow.state, QueryRow.seconds, QueryRow.attempt_count, QueryRow.ran_out
        with self._engine.connect() as connection:
            rows = connection.execute(select(*columns).where(*_ended(since))).all()
        by_engine: dict[str | None, list[Any]] = defaultdict(list)
        for row in rows:
            by_engine[row.engine].append(row)
        shares = [_share(engine, own) for engine, own in by_engine.items()]
        return tuple(sorted(shares, key=lambda share: -share.queries))

    def bounds(self, since: dt.datetime) -> tuple[int, int]:
        """Return the numbers of measured peaks within their upper bound, and above it."""
        within = select(QueryRow.within_bound, func.count()).where(*_ended(since), QueryRow.within_bound.is_not(None))
        with self._engine.connect() as connection:
            counts = {bool(is_within): n for is_within, n in connection.execute(within.group_by(QueryRow.within_bound))}
        return counts.get(True, 0), counts.get(False, 0)

    def peaks(self, since: dt.datetime, *, limit: int) -> Sequence[tuple[str, int, int]]:
        """Return the newest queries with expected and measured peak: id, expected bytes, measured bytes."""
        known = QueryRow.expected_bytes.is_not(None), QueryRow.peak_bytes.is_not(None)
        columns = QueryRow.id, QueryRow.expected_bytes, QueryRow.peak_bytes
        newest = select(*columns).where(*_ended(since), *known).order_by(QueryRow.submitted_at.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [(row.id, row.expected_bytes, row.peak_bytes) for row in connection.execute(newest)]

    def templates(self, since: dt.datetime, *, limit: int) -> tuple[TemplateTotal, ...]:
        """Return the templates of queries since a time, those that took most seconds first."""
        ratio = case((QueryRow.expected_bytes > 0, cast(QueryRow.peak_bytes, Float) / QueryRow.expected_bytes))
        seconds = func.sum(QueryRow.seconds)
        totals = (
            select(
                QueryRow.template,
                func.count().label("queries"),
                _count(QueryRow.state == QueryState.FAILED).label("failed"),
                _count(QueryRow.attempt_count > 1).label("failed_over"),
                _count(QueryRow.ran_out.is_(True)).label("ran_out"),
                seconds.label("seconds"),
                func.avg(ratio).label("ratio"),
                func.min(ratio).label("lowest_ratio"),
                func.max(ratio).label("highest_ratio"),
                func.max(QueryRow.id).label("newest"),
            )
            .where(*_ended(since), QueryRow.template.is_not(None))
            .group_by(QueryRow.template)
            .order_by(seconds.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return tuple(TemplateTotal(**row._mapping) for row in connection.execute(totals))

    def savings(
        self, since: dt.datetime, until: dt.datetime | None = None, by: SavingsBy = SavingsBy.ALL
    ) -> tuple[SavingsLine, ...]:
        """Return the ledger of the queries submitted since a time, and before another: a line per key."""
        key, chosen = _KEYS[by], list(_ended(since))
        if until is not None:
            chosen.append(QueryRow.submitted_at < until)
        alone_columns = QueryRow.alone_engine, QueryRow.alone_measured
        alone = select(
            key.label("key"),
            *alone_columns,
            func.count().label("queries"),
            _count(QueryRow.attempt_count > 1).label("failed_over"),
            _count(QueryRow.ran_out.is_(True)).label("ran_out"),
            func.sum(QueryRow.alone_s).label("seconds"),
        )
        is_known = QueryRow.alone_s.is_not(None)
        run_s = AttemptRow.wall_s - func.coalesce(AttemptRow.waited_s, 0.0)
        spent = (
            select(key.label("key"), is_known.label("is_known"), AttemptRow.engine, func.sum(run_s).label("seconds"))
            .join(AttemptRow, AttemptRow.query_id == QueryRow.id)
            .where(*chosen, AttemptRow.wall_s.is_not(None))
        )
        with self._engine.connect() as connection:
            sums = connection.execute(alone.where(*chosen).group_by("key", *alone_columns)).all()
            costs = connection.execute(spent.group_by("key", "is_known", AttemptRow.engine)).all()
        lines: dict[str, SavingsLine] = {}
        for row in sums:
            line = lines.setdefault(row.key, SavingsLine(row.key))
            line.failed_over += row.failed_over
            line.ran_out += row.ran_out
            if row.alone_engine is None:
                line.unknown += row.queries
                continue
            line.queries += row.queries
            by_engine = line.measured_s if row.alone_measured else line.forecast_s
            by_engine[row.alone_engine] = by_engine.get(row.alone_engine, 0.0) + row.seconds
        for row in costs:
            line = lines.setdefault(row.key, SavingsLine(row.key))
            if row.is_known:
                line.spent_s[row.engine] = max(0.0, row.seconds)
            else:
                line.other_s += max(0.0, row.seconds)
        order = (lambda line: line.key) if by is SavingsBy.DAY else (lambda line: -abs(line.saved_s))
        return tuple(sorted(lines.values(), key=order))


def _ended(since: dt.datetime) -> tuple[ColumnElement[bool], ...]:
    return QueryRow.submitted_at >= since, QueryRow.state.not_in(OPEN_STATES), QueryRow.pool.is_not(None)


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def _share(engine: str | None, rows: Sequence[Any]) -> EngineShare:
    finished = [row.seconds for row in rows if row.state == QueryState.FINISHED]
    p50_s, p95_s = np.quantile(finished, (0.5, 0.95)).tolist() if finished else (None, None)
    return EngineShare(
        engine=engine,
        queries=len(rows),
        finished=len(finished),
        failed_over=sum((row.attempt_count or 0) > 1 for row in rows),
        ran_out=sum(bool(row.ran_out) for row in rows),
        p50_s=p50_s,
        p95_s=p95_s,
    )
