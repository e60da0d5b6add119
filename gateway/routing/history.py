"""Query log for replays: each statement as the router saw it, with its outcome."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from engines.errors import MemoryExceeded
from engines.running_statement import require_time
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.router import RUNS_READ
from metastore.records import Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decision import Candidate, Decision, NoEngine, ReasonCode
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.history import WorkloadKey
from selector.forecast.seconds import Work
from selector.replay.recorded import History, Missed, RecordedAttempt, RecordedStatement
from sql.errors import FusionError

Explain = Callable[[QueryRecord], tuple[Decision, str]]
"""Decides about a recorded text now, and tells the statistics version. Raises FusionError, NoEngine."""

MOST_EXPLAINED = 1_000
NEVER_THERE = "it was not configured then"


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """Recorded history with its extent.

    history: the statements.
    since, until: times of the first and the last statement; None: there is none.
    is_capped: older statements were left out.
    explained: texts that were estimated again by today's statistics.
    refused: texts that could not be estimated again.
    """

    history: History
    since: dt.datetime | None
    until: dt.datetime | None
    is_capped: bool = False
    explained: int = 0
    refused: int = 0

    @property
    def fixed(self) -> int:
        """Return the number of statements whose outcome is fixed."""
        return sum(statement.is_fixed for statement in self.history.statements)


def read_history(
    metastore: Metastore,
    engines: EngineRegistry,
    *,
    since: dt.datetime | None,
    limit: int,
    explain: Explain | None = None,
) -> RecordedHistory:
    """Read the newest statements, at most ``limit``. explain: estimates them by today's statistics."""
    reestimation = _Reestimation(explain) if explain else None
    statements: list[RecordedStatement] = []
    submitted: list[dt.datetime] = []
    is_capped = False
    for batch in metastore.queries.history(since=since, limit=limit + 1):
        for record in batch:
            require_time()
            submitted.append(record.submitted_at)
            statements.append(recorded(record, engines, reestimation.estimated(record) if reestimation else None))
    if len(statements) > limit:
        is_capped = True
        del statements[0], submitted[0]
    first = submitted[0] if submitted else None
    history = History(
        statements,
        speeds={entry.name: entry.first_speed for entry in engines.values()},
        slots={entry.name: entry.engine.slots for entry in engines.values()},
        warm=metastore.queries.runs(limit=RUNS_READ, before=first) if first else (),
        missed=_missed(metastore.misestimates.list(), {statement.id for statement in statements}, first),
    )
    explained, refused = (reestimation.explained, reestimation.refused) if reestimation else (0, 0)
    return RecordedHistory(history, first, submitted[-1] if submitted else None, is_capped, explained, refused)


def recorded(
    record: QueryRecord, engines: EngineRegistry, now: tuple[Decision, str] | None = None
) -> RecordedStatement:
    """Return a statement as the router saw it. now: decision with other estimates, and its statistics version."""
    decision = record.decision
    assert decision is not None
    estimating, version = now or (decision, record.statistics_version or "")
    candidates = tuple(_candidate(entry, decision) for entry in engines.values())
    named = _reason_text(decision, ReasonCode.PINNED) or _reason_text(
        decision, ReasonCode.RULE
    )  # rules are not replayed
    pinned = decision.engine if named else None
    attempts = tuple(_attempts(record))
    estimates = dict(_estimates(estimating))
    estimated = (estimates[name] for name in engines if name in estimates and estimates[name].known)
    return RecordedStatement(
        id=record.id,
        client=f"{record.user}{' with a password' if record.authenticated else ''}",
        subject=WorkloadKey(record.fingerprint or "", record.template or ""),
        statistics_version=version,
        submitted_s=record.submitted_at.timestamp(),
        ended_s=(record.finished_at or record.submitted_at).timestamp(),
        engine=decision.engine,
        candidates=candidates,
        estimates={name: replace(estimate, operators=(), driver=None) for name, estimate in estimates.items()},
        attempts=attempts,
        work=Work.of(next(estimated, UNKNOWN)),
        rule=decision.rule,
        pinned=pinned,
        is_fixed=_is_fixed(record, attempts) or (pinned is not None and pinned not in engines),
    )


@dataclass(slots=True)
class _Reestimation:
    """Estimates of today, one for each fingerprint."""

    explain: Explain
    decisions: dict[str, tuple[Decision, str] | None] = field(default_factory=dict)
    refused: int = 0

    @property
    def explained(self) -> int:
        """Return the number of estimates."""
        return len(self.decisions) - self.refused

    def estimated(self, record: QueryRecord) -> tuple[Decision, str] | None:
        """Return a decision by today's statistics; None: unreadable now, or too many."""
        name = record.fingerprint or ""
        if not name or (name not in self.decisions and len(self.decisions) >= MOST_EXPLAINED):
            return None
        if name not in self.decisions:
            try:
                self.decisions[name] = self.explain(record)
            except (FusionError, NoEngine):
                self.decisions[name] = None
                self.refused += 1
        return self.decisions[name]


def _candidate(entry: EngineEntry, decision: Decision) -> Candidate:
    """Return an engine as it was when a decision was made."""
    price, considered = decision.price(entry.name), decision.on(entry.name)
    was_there = price is not None or not decision.prices or entry.name in decision.ranking
    limit_bytes = considered.limit_bytes if considered and not entry.dependable else entry.limit_bytes
    down = _reason_text(decision, ReasonCode.ENGINE_DOWN, entry.name)
    return Candidate(
        entry.name,
        entry.dependable,
        limit_bytes=None if entry.dependable else limit_bytes,
        down=down if was_there else NEVER_THERE,
        unsupported=_reason_text(decision, ReasonCode.UNSUPPORTED_FEATURE, entry.name),
        no_equivalent=_reason_text(decision, ReasonCode.DIALECT, entry.name),
        wait_s=price.wait_s if price else 0.0,
        held_s=price.held_s if price else 0.0,
    )


def _reason_text(decision: Decision, code: ReasonCode, engine: str = "") -> str | None:
    """Return the text of a reason, about one engine if given, without its prefix."""
    for reason in decision.reasons:
        if reason.code is code and (not engine or reason.text.startswith(f"{engine} ")):
            return reason.text.partition(": ")[2].removesuffix(".") or reason.text
    return None


def _estimates(decision: Decision) -> Iterator[tuple[str, MemoryEstimate]]:
    """Yield what the memory models alone expected on each fast engine."""
    names = [decision.estimated_for, *(other.engine for other in decision.others)]
    for considered in (decision.on(name) for name in names if name is not None):
        if considered is None:
            continue
        estimate, name = considered.estimate, considered.engine
        expected = decision.expectation(name).peak_bytes
        if estimate.known and expected is not None:
            upper_bytes = max(expected, (estimate.learned or estimate).upper_bytes or 0)
            estimate = replace(estimate, peak_bytes=expected, upper_bytes=upper_bytes, learned=None)
        yield name, estimate


def _attempts(record: QueryRecord) -> Iterator[RecordedAttempt]:
    """Yield what was tried. When the router learned of a try lies between its end and what was on record next."""
    for attempt, after in zip_longest(record.attempts, record.attempts[1:]):
        known_at = after.started_at if after else record.finished_at or attempt.started_at
        known_s, ended_s = known_at.timestamp(), attempt.started_at.timestamp() + (attempt.wall_s or 0.0)
        yield RecordedAttempt(
            attempt.engine,
            attempt.started_at.timestamp(),
            known_s if after is None or ended_s > known_s else (ended_s + known_s) / 2,
            attempt.run_s,
            finished=attempt.state is QueryState.FINISHED,
            ran_out=attempt.failure == MemoryExceeded.code,
            waited_s=attempt.waited_s or 0.0,
            peak_bytes=attempt.peak_bytes,
            expected=attempt.expected,
        )


def _is_fixed(record: QueryRecord, attempts: Sequence[RecordedAttempt]) -> bool:
    """Tell whether a statement would have ended as it did wherever it had gone."""
    if (
        not attempts
        or not record.fingerprint
        or record.decision is None
        or _reason_text(record.decision, ReasonCode.WRITE)
    ):
        return True
    return record.state is not QueryState.FINISHED and not attempts[-1].ran_out


def _missed(
    misestimates: Iterable[Misestimate], replayed: set[str], first: dt.datetime | None
) -> dict[str, list[Missed]]:
    """Return what was on record before the history began."""
    misses: dict[str, list[Missed]] = {}
    for misestimate in misestimates:
        if first is not None and misestimate.recorded_at < first and misestimate.query_id not in replayed:
            misses.setdefault(misestimate.fingerprint, []).append(Missed(misestimate.ground, misestimate.query_id))
    return misses
