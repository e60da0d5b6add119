"""Claim: the upper bound that says 95 % covers 93 to 97 of 100 peaks, and is not far above them.

What runs took stands in tapes (tape.py): peaks of TPC-H, TPC-DS, the paper's bookstore, statements over skewed
visits, and statements for each kind of operator. Each data set in turn is left out: the errors of the memory model are
fitted to the others, and its own runs are then told in random orders, as if they came one after the other to a new
gateway. Beside it stands the dumbest policy, one factor for all. A gateway's own runs can be replayed the same way
(``--metastore``); ``--fit`` prints what is fitted to all data sets but the last, to which the constants of the memory
model were fitted already.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table
from benchmarks.tape import AMPLE_MIB, DATA_SETS, FAST, MIB, OPERATORS, Entry, recorded
from metastore.store import Metastore
from selector.estimate import UPPER_LEVEL, MemoryEstimate, Uncertainty
from selector.forecast.distribution import SHAPE_LEVELS, Floats
from selector.forecast.experience import PeakForecast
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from selector.forecast.peaks import Peaks, blended, deviations

LEAST_PERCENT, MOST_PERCENT = 93.0, 97.0
MEDIAN_FACTOR, P90_FACTOR = 1.8, 3.0
SMALLEST = 20  # runs that have something to say
LONGEST = 100_000
SEED = 20260301
POOLED = 15.0  # runs of a kind that those of all kinds count as
ORDERS = 20


@dataclass(frozen=True, slots=True)
class Fitted:
    """Errors of a memory model: median and deviations by kind, and the shape that all have in common."""

    kinds: Mapping[str, tuple[float, float, float]]
    usual: tuple[float, float, float]
    shape: tuple[float, ...]
    factor: float

    def of(self, kind: str) -> Uncertainty:
        """Return the uncertainty of a kind."""
        return Uncertainty(kind, *self.kinds.get(kind, self.usual))


@dataclass(frozen=True, slots=True)
class Covered:
    """Bounds over measured peaks, and proper scores: pinball loss of the bound and CRPS, both of logarithms."""

    factors: Floats
    crps: float | None = None

    @property
    def percent(self) -> float:
        """Tell how many peaks lie below their bounds."""
        return 100.0 * float(np.mean(self.factors >= 1.0))

    @property
    def median(self) -> float:
        """Tell how far the bounds are above the peaks, as a factor."""
        return float(np.median(self.factors))

    @property
    def p90(self) -> float:
        """The same of nine tenths."""
        return float(np.quantile(self.factors, 0.9))

    @property
    def pinball(self) -> float:
        """Mean pinball loss at the level of the bound: smaller is better."""
        above = np.log(self.factors)
        return float(np.mean(np.where(above >= 0, (1 - UPPER_LEVEL) * above, -UPPER_LEVEL * above)))


def measure(
    data: DataOption = DEFAULT_DATA,
    metastore: Annotated[str, typer.Option(help="Address of a gateway's metastore, to replay its runs instead.")] = "",
    engine: Annotated[str, typer.Option(help="Whose runs, of a metastore.")] = FAST,
    orders: Annotated[int, typer.Option(help="Random orders.", min=1)] = ORDERS,
    seed: Annotated[int, typer.Option(help="Of the orders.")] = SEED,
    fit: Annotated[bool, typer.Option(help="Print what is fitted to all data sets together.")] = False,
) -> Claim:
    """Tell peaks to a forecast that has not seen them, and print how many its upper bounds cover, and how sharply."""
    if metastore:
        return _replayed(metastore, engine, orders, seed)
    runs = {
        name: measured_runs(recorded(data, data_set, (), dependable=False))
        for name, data_set in {**DATA_SETS, **OPERATORS}.items()
    }
    if fit:
        _print_fitted(fitted([run for name in DATA_SETS for run in runs[name]]))
    rows: list[list[str]] = []
    figures: dict[str, float] = {}
    every: dict[str, list[Covered]] = {}
    for name, own in runs.items():
        others = fitted([run for other, some in runs.items() if other != name for run in some])
        found = {
            "ours": replay(own, orders=orders, seed=seed, known=others),
            "ours, nothing learned": cold(own, others),
            "one factor for all": Covered(np.array([others.factor * ratio(run) for run in own])),
        }
        for way, covered in found.items():
            every.setdefault(way, []).append(covered)
            rows.append([f"{name} ({len(own)})", way, *_cells(covered)])
        figures |= _figures(name, found["ours"])
    for way, some in every.items():
        rows.append(["all", way, *_cells(_together(some))])
    figures |= _figures("all", _together(every["ours"]))
    head = ["left out (runs)", "bound", "covers", "median upper / measured", "90th percentile", "pinball", "CRPS"]
    show_table(f"Upper bounds of {UPPER_LEVEL:.0%}, on data that took no part in fitting", head, rows)
    print(conditions(sets=", ".join(runs), runs=sum(map(len, runs.values())), orders=orders, seed=seed))
    return Claim("coverage", figures, TARGETS)


TARGETS = {
    "all.covers_percent": at_least(LEAST_PERCENT),
    "all.over_percent": at_most(MOST_PERCENT),
    "all.median_factor": at_most(MEDIAN_FACTOR),
    "all.p90_factor": at_most(P90_FACTOR),
}


def measured_runs(tape: Sequence[Entry]) -> list[PastRun]:
    """Return the runs of a tape whose peaks were measured, with what was expected of them."""
    runs = []
    for entry in tape:
        took, estimate = entry.fast[AMPLE_MIB], entry.estimate
        if took.peak_bytes is None or estimate.peak_bytes is None:
            continue
        expected = Expectation(estimate.peak_bytes, estimate.uncertainty, AMPLE_MIB * MIB)
        subject = WorkloadKey(entry.fingerprint, entry.template)
        run = PastRun(FAST, subject, expected, ran_out=False, measured_bytes=took.peak_bytes, seconds=took.seconds)
        runs.append(run)
    return runs


def fitted(runs: Sequence[PastRun]) -> Fitted:
    """Fit the errors of a memory model to runs. Raises RunFailed where there are too few."""
    if len(runs) < SMALLEST:
        raise RunFailed(f"{len(runs)} runs are too few, {SMALLEST} are needed")
    errors = np.array([run.peak_error for run in runs])
    usual = _centre(errors)
    kinds = {}
    for kind in sorted({run.expected.uncertainty.kind for run in runs}):
        own = np.array([run.peak_error for run in runs if run.expected.uncertainty.kind == kind])
        bias, *both = _centre(own)
        above, below = (
            math.exp(blended(math.log(was), math.log(found), own.size, POOLED))
            for was, found in zip(usual[1:], both, strict=True)
        )
        kinds[kind] = blended(usual[0], bias, own.size, POOLED), above, below
    known = Fitted(kinds, usual, (), 1.0)
    scaled = [_scaled(run, known) for run in runs]
    shape = tuple(float(x) for x in np.quantile(scaled, SHAPE_LEVELS))
    return replace(known, shape=shape, factor=float(np.exp(np.quantile(errors, UPPER_LEVEL))))


def replay(runs: Sequence[PastRun], *, orders: int, seed: int, known: Fitted | None = None) -> Covered:
    """Tell runs in random orders to what learns. Those that ran out of memory teach, but have no peak to be covered.

    known: the errors of the memory model; without it, those that are shipped.
    """
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    factors, scores = [], []
    for _ in range(orders):
        learned = Peaks(shape=known.shape) if known else Peaks()
        for shuffled in chance.sample(runs, len(runs)):
            run = _as_known(shuffled, known)
            if not run.ran_out:
                bound_bytes, score = _forecast(run, learned)
                factors.append(bound_bytes / _measured(run))
                scores.append(score)
            learned.add(run)
    if not factors:
        raise RunFailed("no run was measured")
    return Covered(np.array(factors), float(np.mean(scores)))


def cold(runs: Sequence[PastRun], known: Fitted) -> Covered:
    """Estimate runs from what was fitted alone."""
    nothing = Peaks(shape=known.shape)
    found = [_forecast(_as_known(run, known), nothing) for run in runs]
    factors = [bound_bytes / _measured(run) for (bound_bytes, _), run in zip(found, runs, strict=True)]
    return Covered(np.array(factors), float(np.mean([score for _, score in found])))


def ratio(run: PastRun) -> float:
    """Return the expected peak over the measured one."""
    return math.exp(-run.peak_error)


def told(covered: Covered) -> str:
    """Say how many peaks are covered, in one line."""
    return (
        f"Of {covered.factors.size:,} peaks, the upper bound covers {covered.percent:.1f} % and lies "
        f"{covered.median:.2f} times above them in the median, {covered.p90:.2f} times in nine tenths"
    )


def _replayed(address: str, engine: str, orders: int, seed: int) -> Claim:
    with Metastore(address) as store:
        runs = [run for run in store.queries.runs(limit=LONGEST) if run.engine == engine and run.teaches_memory]
    if len(runs) < SMALLEST:
        raise RunFailed(f"{len(runs)} runs are too few, {SMALLEST} are needed")
    print(conditions(runs=len(runs), engine=engine, orders=orders, seed=seed))
    covered = replay(runs, orders=orders, seed=seed)
    print(told(covered))
    return Claim("coverage", _figures("all", covered), TARGETS)


def _forecast(run: PastRun, learned: Peaks) -> tuple[int, float]:
    """Return the upper bound of a run's peak, and the score of the distribution, for which smaller is better."""
    expected = run.expected.peak_bytes or 0
    estimate = MemoryEstimate(expected, expected, uncertainty=run.expected.uncertainty)
    found = learned.errors(estimate, run.subject)
    return PeakForecast(expected, found.errors).quantile(found.upper_level), found.errors.score(run.peak_error)


def _as_known(run: PastRun, known: Fitted | None) -> PastRun:
    if known is None:
        return run
    return replace(run, expected=replace(run.expected, uncertainty=known.of(run.expected.uncertainty.kind)))


def _measured(run: PastRun) -> float:
    return max(1.0, float(run.measured_bytes or 0), (run.expected.peak_bytes or 0) * math.exp(run.peak_error))


def _centre(errors: Floats) -> tuple[float, float, float]:
    return float(np.median(errors)), *deviations(errors)


def _scaled(run: PastRun, known: Fitted) -> float:
    return known.of(run.expected.uncertainty.kind).in_deviations(run.peak_error)


def _together(some: Sequence[Covered]) -> Covered:
    """Return data sets as one, each run as often as it was told."""
    factors = np.concatenate([each.factors for each in some])
    scores = [(each.crps, each.factors.size) for each in some if each.crps is not None]
    crps = sum(score * count for score, count in scores) / sum(count for _, count in scores) if scores else None
    return Covered(factors, crps)


def _cells(covered: Covered) -> list[str]:
    crps = "-" if covered.crps is None else f"{covered.crps:.3f}"
    return [
        f"{covered.percent:.1f} %",
        f"{covered.median:,.2f}",
        f"{covered.p90:,.2f}",
        f"{covered.pinball:.3f}",
        crps,
    ]


def _figures(name: str, covered: Covered) -> dict[str, float]:
    found = {
        f"{name}.covers_percent": covered.percent,
        f"{name}.median_factor": covered.median,
        f"{name}.p90_factor": covered.p90,
        f"{name}.pinball": covered.pinball,
    }
    if covered.crps is not None:
        found[f"{name}.crps"] = covered.crps
    return found | ({"all.over_percent": covered.percent} if name == "all" else {})


def _print_fitted(known: Fitted) -> None:
    """Print what engines/duckdb/memory/uncertainty.py and selector/forecast/distribution.py hold."""
    for kind, (bias, above, below) in known.kinds.items():
        print(f'    "{kind}": ({bias:.2f}, {above:.2f}, {below:.2f}),')
    print(f"SHAPE = {tuple(round(quantile, 2) for quantile in known.shape)}")


if __name__ == "__main__":
    run_command(measure)
