"""A router in small: it decides about statements one after the other, learns, and writes down what a gateway would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from selector.decide import decide
from selector.decision import Candidate, RoutingPolicy, Rule
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate, Uncertainty
from selector.forecast.experience import Experience
from selector.forecast.history import Ground, WorkloadKey
from selector.forecast.seconds import Speed, Work
from selector.replay.recorded import History, Missed, RecordedAttempt, RecordedStatement
from selector.wording import MIB

FAST, DEPENDABLE = "fast", "dependable"
SPEEDS = {FAST: Speed(start_s=0.05, operator_s=0.02), DEPENDABLE: Speed(start_s=2.0, operator_s=0.5)}
SLOTS = {FAST: 2, DEPENDABLE: 2}
LIMIT = 100 * MIB
MISS_S = 1.5
THINKS_S = 0.1
VERSION = "books@1"


@dataclass(frozen=True, slots=True)
class Truth:
    """A statement as it is: what it takes on each engine, and what the memory model expects of it."""

    fingerprint: str
    template: str
    peak_bytes: int
    expected_bytes: int
    fast_s: float = 0.3
    dependable_s: float = 5.0
    pinned: str | None = None


def truths(count: int, *, seed: int = 7) -> list[Truth]:
    """Return statements of a few templates, many of them around the limit; some come again."""
    chance = random.Random(seed)  # noqa: S311 - examples, no secrets
    found: list[Truth] = []
    for number in range(count):
        if found and chance.random() < 0.3:
            found.append(chance.choice(found))
            continue
        expected = round(LIMIT * chance.uniform(0.2, 1.6))
        peak = round(expected * chance.lognormvariate(0.0, 0.4))
        name = f"template {chance.randrange(6)}"
        fast_s, dependable_s = chance.uniform(0.05, 1.0), chance.uniform(2.0, 9.0)
        found.append(Truth(f"statement {number}", name, peak, expected, fast_s, dependable_s))
    return found


def estimate_of(truth: Truth) -> MemoryEstimate:
    operators = (OperatorEstimate("hash join", 0, 1e6, 1e6, truth.expected_bytes, "bins"),)
    uncertainty = Uncertainty("joins", 0.0, 0.3)
    return MemoryEstimate(
        truth.expected_bytes, 2 * truth.expected_bytes, operators, uncertainty=uncertainty, paper_bytes=MIB
    )


def lived(statements: Sequence[Truth], policy: RoutingPolicy, *, limit_bytes: int = LIMIT) -> History:
    """Decide about statements and run them, one client after the other."""
    experience = Experience(SPEEDS)
    missed: list[tuple[str, Missed]] = []
    now_s, recorded = 1_000.0, []
    for number, truth in enumerate(statements):
        subject, estimate = WorkloadKey(truth.fingerprint, truth.template), estimate_of(truth)
        ground = Ground(FAST, limit_bytes, VERSION, truth.expected_bytes)
        standing = [one for name, one in missed if name == truth.fingerprint and one.ground.misses_on(ground)]
        seen = (Candidate(FAST, dependable=False, limit_bytes=limit_bytes), Candidate(DEPENDABLE, dependable=True))
        estimates = {FAST: estimate}
        candidates = [
            replace(
                each,
                forecast=experience.forecast(
                    each.engine, subject, Work.of(estimate), estimates.get(each.engine, UNKNOWN), each.limit_bytes
                ),
                misestimates=tuple(one.query_id for one in standing if each.engine == FAST),
            )
            for each in seen
        ]
        decision = decide(candidates, policy=policy, pinned=truth.pinned, template=truth.template)
        submitted_s, attempts = now_s, []
        for engine in decision.ranking:
            ran_out = engine == FAST and truth.peak_bytes > limit_bytes
            run_s = MISS_S if ran_out else truth.fast_s if engine == FAST else truth.dependable_s
            peak_bytes = truth.peak_bytes if engine == FAST and not ran_out else None
            expected = decision.expectation(engine)
            attempts.append(
                RecordedAttempt(
                    engine,
                    now_s,
                    now_s + run_s,
                    run_s,
                    finished=not ran_out,
                    ran_out=ran_out,
                    peak_bytes=peak_bytes,
                    expected=expected,
                )
            )
            now_s += run_s
            experience.learn(attempts[-1].run(subject, expected))
            if not ran_out:
                break
            missed.append((truth.fingerprint, Missed(ground, f"query {number}")))
        recorded.append(
            RecordedStatement(
                id=f"query {number}",
                client="somebody",
                subject=subject,
                statistics_version=VERSION,
                submitted_s=submitted_s,
                ended_s=now_s,
                engine=decision.engine,
                candidates=seen,
                estimates=estimates,
                attempts=tuple(attempts),
                work=Work.of(estimate),
                rule=policy.rule,
                pinned=truth.pinned,
            )
        )
        now_s += THINKS_S
    return History(recorded, SPEEDS, SLOTS)


DEAR_MISSES = RoutingPolicy(rule=Rule.EXPECTED, miss_price_s=10.0)
