"""START HERE: the walk through recorded history, in order of time, as the router went through it.

Each statement is decided about when it was, by the same code, with what had been learned by then; each run teaches
when it ended. Under the settings that were in force, every decision is so repeated. Under others, what was measured
tells how a statement would have gone (``hindsight.py``), and what nobody measured is expected, in shares of misses.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from selector.decide import decide
from selector.decision import Candidate, Decision, NoEngine
from selector.estimate import UNKNOWN
from selector.forecast.experience import Experience
from selector.forecast.history import Ground, PastRun
from selector.replay.hindsight import Expected, Hindsight
from selector.replay.recorded import History, Missed, RecordedStatement, ReplaySettings
from selector.replay.slots import Arrival, Slots, client_seconds

HOUR_S = 3600.0
LIKELIER = 0.5  # probability of ending, from which a run that never was teaches as one that ended


@dataclass(frozen=True, slots=True)
class ReplayedStatement:
    """Outcome of a statement in the replay.

    engine: that would have tried first; None where nobody could have taken it. decision: None of one that is kept as
    it was. misses: how often it would have run out of memory, expected. visits: engines, each with the seconds that it
    would have worked, expected. is_measured: runs of it tell all that, and no forecast.
    """

    statement: RecordedStatement
    engine: str | None
    decision: Decision | None
    misses: float
    visits: tuple[tuple[str, float], ...]
    is_measured: bool = True

    @property
    def seconds(self) -> float:
        """Seconds that engines would have worked for it."""
        return sum(seconds for _, seconds in self.visits)

    @property
    def is_elsewhere(self) -> bool:
        """Tell whether another engine would have tried first."""
        return self.engine != self.statement.engine


@dataclass(frozen=True, slots=True)
class Load:
    """Work of all engines over a history.

    statements: that each tried first. busy_s: seconds that each worked, all statements together. misses: expected.
    """

    statements: Mapping[str, int]
    busy_s: Mapping[str, float]
    misses: float

    @property
    def seconds(self) -> float:
        """Seconds that all engines worked."""
        return sum(self.busy_s.values())

    def money(self, prices: Mapping[str, float]) -> float:
        """Return what that costs. prices: of an hour in which an engine works for one statement; others are free."""
        return sum(seconds / HOUR_S * prices.get(engine, 0.0) for engine, seconds in self.busy_s.items())


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history as it would have been, in the order in which its statements were submitted."""

    statements: tuple[ReplayedStatement, ...]

    @property
    def repeated(self) -> int:
        """Tell how many statements would have gone where they went."""
        return sum(not statement.is_elsewhere for statement in self.statements)

    @property
    def load(self) -> Load:
        """Work of all engines in the replay."""
        misses = sum(statement.misses for statement in self.statements)
        return _load(((statement.engine, statement.visits) for statement in self.statements), misses)

    def client_s(self, history: History, slots: Mapping[str, int]) -> list[float]:
        """Return what each statement would have taken for its client. slots: statements at once on each engine.

        That is what it took, and the difference that other engines and other waiting make.
        """
        before = client_seconds(
            [_arrival(statement, recorded_visits(statement)) for statement in history.statements], history.slots
        )
        after = client_seconds(
            [_arrival(statement.statement, statement.visits) for statement in self.statements], slots
        )
        return [
            max(statement.seconds, statement.statement.client_s + now_s - then_s)
            for statement, now_s, then_s in zip(self.statements, after, before, strict=True)
        ]


def recorded_load(statements: Sequence[RecordedStatement]) -> Load:
    """Return what a history took."""
    misses = sum(statement.misses for statement in statements)
    return _load(((statement.engine, recorded_visits(statement)) for statement in statements), misses)


def recorded_visits(statement: RecordedStatement) -> tuple[tuple[str, float], ...]:
    """Return the engines that worked for a statement, each with the seconds."""
    return tuple((attempt.engine, attempt.run_s or 0.0) for attempt in statement.attempts)


def replay(history: History, settings: ReplaySettings, hindsight: Hindsight | None = None) -> Replayed:
    """Decide a history again. hindsight: of this history, where there is one already."""
    walk = _Walk(history, settings, hindsight or Hindsight(history))
    order = sorted(range(len(history.statements)), key=lambda number: history.statements[number].decided_s)
    replayed = {number: walk.take(history.statements[number]) for number in order}
    return Replayed(tuple(replayed[number] for number in range(len(history.statements))))


class _Walk:
    """State of the router at a moment of the history, with the runs that have not ended yet."""

    def __init__(self, history: History, settings: ReplaySettings, hindsight: Hindsight) -> None:
        self._settings = settings
        self._hindsight = hindsight
        self._experience = Experience(history.speeds, history.warm)
        self._missed: dict[str, list[Missed]] = defaultdict(list)
        for fingerprint, missed in history.missed.items():
            self._missed[fingerprint] += missed
        self._tried: set[tuple[str, str, int | None]] = set()
        self._slots = Slots(settings.slots)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def take(self, statement: RecordedStatement) -> ReplayedStatement:
        """Decide about the next statement."""
        while self._due and self._due[0][0] <= statement.decided_s:
            heapq.heappop(self._due)[2]()
        if statement.is_fixed:
            for attempt in statement.attempts:
                if attempt.teaches:
                    self._learn_at(attempt.ended_s, statement, attempt.run(statement.subject, attempt.expected))
            visits = recorded_visits(statement)
            return ReplayedStatement(statement, statement.engine, None, statement.misses, self._held(statement, visits))
        candidates = [self._candidate(statement, candidate) for candidate in statement.candidates]
        policy = self._settings.policy
        rule = self._settings.rule or statement.rule
        try:
            decision = decide(
                candidates,
                policy=replace(policy, rule=rule),
                pinned=statement.pinned,
                template=statement.subject.template,
            )
        except NoEngine:
            return ReplayedStatement(statement, None, None, 0.0, ())
        is_measured = True
        if _goes_as_recorded(statement, decision, candidates):
            misses, visits = float(statement.misses), recorded_visits(statement)
            for attempt in statement.attempts:
                if attempt.teaches:
                    run = attempt.run(statement.subject, decision.expectation(attempt.engine))
                    self._learn_at(attempt.ended_s, statement, run)
        else:
            seen = {candidate.engine: candidate for candidate in candidates}
            misses, visits, is_measured = self._otherwise(statement, decision, seen)
        visits = self._held(statement, visits)
        return ReplayedStatement(statement, decision.engine, decision, misses, visits, is_measured)

    def _candidate(self, statement: RecordedStatement, then: Candidate) -> Candidate:
        """Return an engine as the router would have seen it."""
        settings, engine = self._settings, then.engine
        estimate = statement.estimates.get(engine, UNKNOWN)
        limit_bytes = then.limit_bytes if then.limit_bytes is None else settings.limits.get(engine, then.limit_bytes)
        ground = Ground(engine, limit_bytes, statement.statistics_version, estimate.peak_bytes)
        standing = [one for one in self._missed[statement.subject.fingerprint] if one.ground.misses_on(ground)]
        waiting = (then.wait_s, then.held_s)
        if engine in settings.slots:
            waiting = (self._slots.wait_s(engine, statement.decided_s), 0.0)
        return replace(
            then,
            limit_bytes=limit_bytes,
            forecast=self._experience.forecast(engine, statement.subject, statement.work, estimate, limit_bytes),
            wait_s=waiting[0],
            held_s=waiting[1],
            misestimates=tuple(one.query_id for one in standing),
            missed_bytes=max((one.ground.limit_bytes or 0 for one in standing), default=None),
        )

    def _otherwise(
        self, statement: RecordedStatement, decision: Decision, candidates: Mapping[str, Candidate]
    ) -> tuple[float, tuple[tuple[str, float], ...], bool]:
        """Return the misses and the visits to expect of a ranking, and whether they were measured.

        What is likelier on each engine is learned from.
        """
        now_s, misses, unfinished, visits = statement.decided_s, 0.0, 1.0, []
        is_over, is_measured = False, True
        for engine in decision.ranking:
            expected = self._expected(statement, candidates[engine])
            visits.append((engine, unfinished * expected.busy_s))
            is_measured = is_measured and expected.is_measured
            misses += unfinished * expected.misses
            unfinished *= 1.0 - expected.ends
            if not is_over:
                is_over = expected.ends >= LIKELIER
                ran_out = not is_over and expected.misses > 0.0
                seconds = expected.seconds if is_over else expected.lost_s
                now_s += seconds
                expectation = decision.expectation(engine)
                peak_bytes = expected.peak_bytes if is_over and not candidates[engine].dependable else None
                if is_over or ran_out:
                    run = PastRun(engine, statement.subject, expectation, ran_out, peak_bytes, seconds)
                    self._learn_at(now_s, statement, run)
            if unfinished <= 0.0:
                break
        return misses, tuple(visits), is_measured

    def _expected(self, statement: RecordedStatement, candidate: Candidate) -> Expected:
        """Return how a statement would go on an engine.

        Where that is not known, it is known from its first run on: when it comes again, it either fits as it did, or
        ran out of memory then and is sent elsewhere at once.
        """
        expected = self._hindsight.expected(statement, candidate)
        if statement.pinned is not None or expected.ends in (0.0, 1.0):
            return expected
        once = (statement.subject.fingerprint, candidate.engine, candidate.limit_bytes)
        if once in self._tried:
            return replace(expected, misses=0.0, lost_s=0.0)
        self._tried.add(once)
        return expected

    def _held(
        self, statement: RecordedStatement, visits: tuple[tuple[str, float], ...]
    ) -> tuple[tuple[str, float], ...]:
        now_s = statement.decided_s
        for engine, seconds in visits:
            now_s = self._slots.take(engine, now_s, seconds)
        return visits

    def _learn_at(self, ended_s: float, statement: RecordedStatement, run: PastRun) -> None:
        """Learn from a run once it has ended."""

        def learn() -> None:
            self._experience.learn(run)
            if run.ran_out and run.expected.limit_bytes is not None:
                expected = run.expected
                ground = Ground(run.engine, expected.limit_bytes, statement.statistics_version, expected.peak_bytes)
                self._missed[run.subject.fingerprint].append(Missed(ground, statement.id))

        self._number += 1
        heapq.heappush(self._due, (ended_s, self._number, learn))


def _goes_as_recorded(statement: RecordedStatement, decision: Decision, candidates: Sequence[Candidate]) -> bool:
    """Tell whether all that happened to a statement would have happened to it again."""
    tried = tuple(dict.fromkeys(attempt.engine for attempt in statement.attempts))
    if not tried or decision.ranking[: len(tried)] != tried:
        return False
    limits = {candidate.engine: candidate.limit_bytes for candidate in candidates}
    for attempt, after in zip(statement.attempts, (*statement.attempts[1:], None), strict=True):
        then, now = attempt.expected.limit_bytes, limits[attempt.engine]
        if then == now or now is None or not attempt.teaches:
            continue
        if attempt.ran_out and after is not None and after.engine == attempt.engine:
            continue  # its lease was too small, and it was tried again with the whole limit
        if attempt.ran_out:
            same = then is not None and now <= then
        elif attempt.peak_bytes is not None:
            same = attempt.peak_bytes <= now
        else:
            same = then is not None and now >= then
        if not same:
            return False
    return True


def _arrival(statement: RecordedStatement, visits: tuple[tuple[str, float], ...]) -> Arrival:
    return Arrival(statement.client, statement.submitted_s, statement.ended_s, visits)


def _load(parts: Iterable[tuple[str | None, tuple[tuple[str, float], ...]]], misses: float) -> Load:
    statements: Counter[str] = Counter()
    busy_s: dict[str, float] = defaultdict(float)
    for engine, visits in parts:
        if engine is not None:
            statements[engine] += 1
        for name, seconds in visits:
            busy_s[name] += seconds
    return Load(dict(statements), dict(busy_s), misses)
