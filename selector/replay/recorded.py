"""History as a replay needs it: statements as the router saw them, and what became of them. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from selector.decision import Candidate, RoutingPolicy, Rule
from selector.estimate import MemoryEstimate
from selector.forecast.experience import NO_WORK
from selector.forecast.history import Expectation, Ground, PastRun, WorkloadKey
from selector.forecast.seconds import Speed, Work


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One try on one engine. ended_s: when the router had learned of it. finished: with all its rows.

    run_s: without waiting for a slot, None where nobody noted it; waited_s: for a slot. peak_bytes: measured.
    ran_out: of memory.
    """

    engine: str
    started_s: float
    ended_s: float
    run_s: float | None
    finished: bool
    ran_out: bool = False
    waited_s: float = 0.0
    peak_bytes: int | None = None
    expected: Expectation = field(default_factory=Expectation)

    @property
    def teaches(self) -> bool:
        """Tell whether the router learned from it."""
        return self.finished or self.ran_out

    def run(self, subject: WorkloadKey, expected: Expectation) -> PastRun:
        """Return it as it teaches."""
        peak_bytes = None if self.ran_out else self.peak_bytes
        return PastRun(self.engine, subject, expected, self.ran_out, peak_bytes, self.run_s)


@dataclass(frozen=True, slots=True)
class RecordedStatement:
    """A statement, what was decided about it, and its attempts.

    client: who sent it; whoever waits for an answer sends nothing else meanwhile. engine: that was to try first.
    candidates: the engines as they were then, without forecasts; estimates: by the memory models alone, by engine.
    work: in its plan on the first engine that tells of it.
    pinned: the engine that it asked for. is_fixed: it is kept as it was, such as a write, or what failed by itself.
    """

    id: str
    client: str
    subject: WorkloadKey
    statistics_version: str
    submitted_s: float
    ended_s: float
    engine: str
    candidates: tuple[Candidate, ...]
    estimates: Mapping[str, MemoryEstimate]
    attempts: tuple[RecordedAttempt, ...]
    work: Work = NO_WORK
    rule: Rule = Rule.EXPECTED
    pinned: str | None = None
    is_fixed: bool = False

    @property
    def decided_s(self) -> float:
        """When it was decided about."""
        return self.attempts[0].started_s if self.attempts else self.submitted_s

    @property
    def seconds(self) -> float:
        """Seconds that engines worked for it."""
        return sum(attempt.run_s or 0.0 for attempt in self.attempts)

    @property
    def client_s(self) -> float:
        """Seconds from its submission to its end."""
        return max(0.0, self.ended_s - self.submitted_s)

    @property
    def misses(self) -> int:
        """Tell how often it ran out of memory."""
        return sum(attempt.ran_out for attempt in self.attempts)

    def candidate(self, engine: str) -> Candidate | None:
        """Return an engine as it was then; None of one that was not there."""
        return next((candidate for candidate in self.candidates if candidate.engine == engine), None)


@dataclass(frozen=True, slots=True)
class Missed:
    """A statement that ran out of memory: on what ground, and as which query."""

    ground: Ground
    query_id: str


@dataclass(frozen=True, slots=True)
class History:
    """A history to replay. statements: in the order in which they were submitted.

    speeds, slots: of each engine, before it has run anything, and statements at once. warm: runs of before, the oldest
    first. missed: statements that had run out of memory before, by fingerprint.
    """

    statements: Sequence[RecordedStatement]
    speeds: Mapping[str, Speed]
    slots: Mapping[str, int]
    warm: Sequence[PastRun] = ()
    missed: Mapping[str, Sequence[Missed]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Under which history is decided again.

    rule: of every statement; None: as each had it. limits: that engines would give one statement, in bytes; those that
    are not named gave what they gave. slots: statements at once on an engine, where there would be others.
    """

    policy: RoutingPolicy
    rule: Rule | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
