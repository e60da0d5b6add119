"""Claim: the upper bound that says 95 % covers 93 to 97 of 100 peaks, once it has learned from runs.

Runs that a gateway measured are read from its metastore and told in random orders, as if they came one after the other:
each is estimated from what the ones before it taught. Beside it stands the memory model's own bound.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command
from metastore.store import Metastore
from selector.estimate import MemoryEstimate, OperatorEstimate
from selector.learning import COVERAGE, ENOUGH, Observation, Residuals

OFF_PERCENT = 2.0  # that measured and stated coverage may differ
SMALLEST = 2 * ENOUGH  # runs that have something to say
LONGEST = 100_000
SEED = 20260301


@dataclass(frozen=True, slots=True)
class Covered:
    """How many peaks lie below their bounds, in percent, and how far above them the bounds are, as a median factor.

    runs: that were estimated, over all orders.
    """

    runs: int
    learned_percent: float
    model_percent: float
    learned_factor: float
    model_factor: float


def measure(
    metastore: Annotated[str, typer.Option(help="Address of a gateway's metastore, such as sqlite:///metastore.db.")],
    engine: Annotated[str, typer.Option(help="Whose runs.")] = "duckdb",
    orders: Annotated[int, typer.Option(help="Random orders.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Of the orders.")] = SEED,
) -> Claim:
    """Replay a gateway's runs and print how many of their peaks the upper bounds cover."""
    with Metastore(metastore) as store:
        runs = store.queries.observations(engine, limit=LONGEST)
    print(conditions(runs=len(runs), engine=engine, orders=orders, seed=seed))
    covered = replay(runs, orders=orders, seed=seed)
    print(told(covered))
    return Claim("coverage", figures(covered), {"learned.off_percent": at_most(OFF_PERCENT)})


def replay(runs: Sequence[Observation], *, orders: int, seed: int = SEED) -> Covered:
    """Tell runs in random orders to what learns. Those that ran out of memory teach, but have no peak to be covered.

    The first ENOUGH of an order only teach. Raises RunFailed where there are too few.
    """
    if len(runs) < SMALLEST:
        raise RunFailed(f"{len(runs)} runs are too few, {SMALLEST} are needed")
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    learned: list[float] = []
    modelled: list[float] = []
    for _ in range(orders):
        residuals = Residuals()
        for run in chance.sample(runs, len(runs)):
            if len(residuals) >= ENOUGH and not run.is_censored:
                bound = residuals.correct(_estimate(run), run.subject).upper_bytes or 0
                learned.append(bound / run.least_bytes)
                modelled.append(run.upper_bytes / run.least_bytes)
            residuals.add(run)
    if not learned:
        raise RunFailed("no run was measured")
    return Covered(
        runs=len(learned),
        learned_percent=_covered_percent(learned),
        model_percent=_covered_percent(modelled),
        learned_factor=float(np.median(learned)),
        model_factor=float(np.median(modelled)),
    )


def figures(covered: Covered) -> dict[str, float]:
    """Return the figures of a replay."""
    return {
        "runs": covered.runs,
        "learned.covers_percent": covered.learned_percent,
        "learned.off_percent": abs(covered.learned_percent - 100 * COVERAGE),
        "learned.median_factor": covered.learned_factor,
        "model.covers_percent": covered.model_percent,
        "model.median_factor": covered.model_factor,
    }


def told(covered: Covered) -> str:
    """Say how many peaks are covered, in one line."""
    return (
        f"Of {covered.runs:,} peaks, the upper bound that was learned covers {covered.learned_percent:.1f} % and lies "
        f"{covered.learned_factor:.2f} times above them in the median; the model's own covers "
        f"{covered.model_percent:.1f} %, {covered.model_factor:.2f} times"
    )


def _estimate(run: Observation) -> MemoryEstimate:
    """Return what the memory model had said of a run, as far as what learns looks at it."""
    holder = OperatorEstimate(run.holder, 0, None, None, run.expected_bytes, "recorded")
    return MemoryEstimate(run.expected_bytes, run.upper_bytes, 1.0, (holder,), driver=0)


def _covered_percent(factors: Sequence[float]) -> float:
    return 100.0 * float(np.mean(np.array(factors) >= 1.0))


if __name__ == "__main__":
    run_command(measure)
