"""Estimates and runs to learn from."""

from __future__ import annotations

from selector.estimate import MemoryEstimate, Uncertainty
from selector.forecast.experience import Experience
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from selector.forecast.seconds import Speed

MIB = 1 << 20
LIMIT = 1 << 30
ENDLESS = 1 << 60  # a limit that nothing reaches
JOINS = Uncertainty("joins", 0.0, 0.3)
SORTS = Uncertainty("sorts", 0.0, 0.3)
FAST = Speed(start_s=0.1, operator_s=0.0)
SLOW = Speed(start_s=1.0, operator_s=0.0)


def estimate(expected_bytes: float = 100 * MIB, uncertainty: Uncertainty = JOINS) -> MemoryEstimate:
    """Return what a memory model says of a statement."""
    peak_bytes = round(expected_bytes)
    return MemoryEstimate(peak_bytes, round(uncertainty.upper_bytes(peak_bytes)), uncertainty=uncertainty)


def subject(statement: str = "f", template: str = "t") -> WorkloadKey:
    """Return a statement and its template."""
    return WorkloadKey(statement, template)


def run(
    about: WorkloadKey,
    measured_bytes: float | None,
    expected: MemoryEstimate | None = None,
    *,
    engine: str = "duckdb",
    limit_bytes: int = LIMIT,
    seconds: float | None = None,
    model_s: float | None = 0.1,
) -> PastRun:
    """Return a run that took so much, or, where that is None, one that ran out of memory."""
    model = expected or estimate()
    known = Expectation(model.peak_bytes, model.uncertainty, limit_bytes, model_s)
    ran_out = measured_bytes is None
    return PastRun(engine, about, known, ran_out, None if measured_bytes is None else round(measured_bytes), seconds)


def elsewhere(about: WorkloadKey, seconds: float | None = 5.0) -> PastRun:
    """Return a run on an engine that tells nothing of its memory."""
    return PastRun("spark", about, Expectation(seconds=1.0), False, None, seconds)


def experience(*runs: PastRun) -> Experience:
    """Return what runs on a fast engine and a dependable one teach."""
    return Experience({"duckdb": FAST, "spark": SLOW}, runs)
