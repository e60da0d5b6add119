"""Uncertainty of an expected peak, by the operator that holds most of it and by the size of the plan.

Errors of rows multiply on their way up, so that plans of many operators are less certain; memory that a grouping key
without statistics holds is hardly known at all: each row may be a group of its own, or all of them one. Fitted by
``benchmarks.coverage`` to runs of several data sets, but for guesses: there are few, and one was 200 times too large.
Without statistics, every row is a group and no predicate keeps any away, so that a tenth of what is expected is usual.
The bounds in a lake table's log say nothing of strings, and little of how many values there are (ADR 55).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selector.estimate import OperatorEstimate, Uncertainty

LARGE_PLAN = 24  # operators
ROUGH = {"guesses": "groups", "rows kept whole": "rows", "scans": "rows"}  # that are as uncertain then
NO_STATISTICS, BOUNDS = "without statistics", "from bounds"
"""Descriptions of tables, worst first, beside that by statistics: none, and by the bounds in their logs."""
_GUESSES = ("without statistics", "a guess")  # in what rows are based on
_ENGINES_OWN = "engine"  # rows that only the engine tells

DUCKDB: Mapping[str, tuple[float, float, float]] = {
    "groups": (0.02, 0.11, 0.19),
    "groups of a large plan": (-0.02, 0.23, 0.3),
    "guesses": (-0.1, 0.3, 2.0),
    "guesses of a large plan": (-0.1, 0.3, 2.0),
    "joins": (-0.01, 0.15, 0.2),
    "joins of a large plan": (-0.01, 0.28, 0.47),
    "rows kept whole": (-0.01, 0.14, 0.21),
    "rows kept whole of a large plan": (-0.05, 0.17, 0.32),
    "scans": (-0.02, 0.16, 0.23),
    "scans of a large plan": (-0.15, 0.14, 0.27),
    "groups without statistics": (-2.5, 1.0, 0.7),
    "joins without statistics": (-1.3, 0.75, 1.4),
    "rows without statistics": (-1.3, 1.8, 1.1),
    "groups from bounds": (-1.1, 1.2, 2.1),
    "joins from bounds": (-0.05, 0.5, 0.7),
    "rows from bounds": (-0.15, 0.55, 0.55),
}
"""Median of log(measured / expected), and its deviations above and below, by kind."""


def uncertainty_of(
    operators: Sequence[OperatorEstimate],
    driver: int | None,
    spreads: Mapping[str, tuple[float, float, float]] = DUCKDB,
    *,
    description: str = "",
) -> Uncertainty:
    """Return how uncertain a peak is. driver: position of the operator that holds most. spreads: by kind.

    description: the worst of the tables; empty: all have statistics.
    """
    kind = _kind(operators[driver]) if driver is not None else "scans"
    if description:
        kind = f"{ROUGH.get(kind, kind)} {description}"
    elif len(operators) > LARGE_PLAN:
        kind = f"{kind} of a large plan"
    return Uncertainty(kind, *spreads[kind])


def _kind(part: OperatorEstimate) -> str:
    if part.basis == _ENGINES_OWN or any(text in part.basis for text in _GUESSES):
        return "guesses"
    if "join" in part.operator:
        return "joins"
    if part.operator.startswith("aggregate"):
        return "groups"
    return "scans" if part.table is not None else "rows kept whole"
