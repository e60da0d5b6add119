"""Claim: a statement's peak memory on DuckDB is known before it runs, better than by the paper's formula.

DIR holds tables (CSV or Parquet files, or folders of them), FILE statements: a JSON list of {"sql"} or SQL text that
``;`` divides. Statistics are built by the real job, and each statement runs alone in a worker of the gateway's own. Its
measured peak stands beside the estimate from the rows that were counted, and from the rows that we expect; the errors
are divided by what holds most at the expected peak, and into the model's and the cardinalities' own. ``--threads`` and
``--limit-mib`` may be repeated: every statement runs with each of both together, and figures of all but the first have
both in front of their names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.accuracy import percentage_errors
from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table
from benchmarks.coverage import LEAST_PERCENT, MOST_PERCENT, ORDERS, SEED, SMALLEST, Covered, replay, told
from benchmarks.peaks import Run, runs
from benchmarks.statements import read_all
from benchmarks.tables import Tables, described
from engines.duckdb.memory import model as duckdb
from engines.duckdb.memory.layout import CALIBRATED, Constants
from engines.protocol import Lease
from selector.cardinality.tree import EstimatedNode
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from selector.memory import paper
from selector.row_sample import RowSample
from selector.statistics import TableStatistics
from selector.wording import mebibytes

MIB = 1 << 20
LARGE_BYTES = 50 * MIB  # below, a statement fits anywhere
THREADS, LIMIT_MIB = 2, 4_096
TARGETS = {
    "true.joins.mape": at_most(4.0),
    "true.large.mape": at_most(7.0),
    "ours.joins.mape": at_most(6.0),
    "ours.large.mape": at_most(10.0),
    "learned.all.covers_percent": at_least(LEAST_PERCENT),
    "learned.all.over_percent": at_most(MOST_PERCENT),
}


@dataclass(frozen=True, slots=True)
class Predicted:
    """One statement's bytes: measured, by the model and by the paper's formula, from true rows and from ours."""

    run: Run
    true: MemoryEstimate
    ours: MemoryEstimate
    paper_true: MemoryEstimate
    paper_ours: MemoryEstimate


def measure(
    data: Annotated[Path, typer.Option(help="Folder of tables.", exists=True, file_okay=False)],
    queries: Annotated[list[Path], typer.Option(help="Statements: JSON or SQL. May be repeated.", exists=True)],
    threads: Annotated[
        list[int] | None, typer.Option(help="Of DuckDB; 2 if not given. May be repeated.", min=1)
    ] = None,
    limit_mib: Annotated[
        list[int] | None, typer.Option(help="DuckDB's memory limit; 4096 if not given. May be repeated.", min=64)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each statement; their median counts.", min=1)] = 3,
) -> Claim:
    """Run every statement and compare its peak with the estimates."""
    statements = read_all(queries)
    names = ", ".join(file.name for file in queries)
    print(conditions(data=data.name, queries=f"{names} ({len(statements)})", repeats=repeats))
    all_figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="memory-") as work:
        tables = described(data, Path(work), [statement.sql for statement in statements])
        for used, limit in product(threads or [THREADS], limit_mib or [LIMIT_MIB]):
            print(f"\n{used} threads, {limit} MiB")
            measured = runs(tables, statements, threads=used, lease=Lease(limit * MIB), repeats=repeats)
            of = reported(predicted(measured, tables, used), Lease(limit * MIB))
            prefix = f"{used}_threads.{limit}_mib." if all_figures else ""
            all_figures |= {f"{prefix}{name}": figure for name, figure in of.items()}
    show_sizes(tables)
    return Claim("memory", all_figures, {name: bound for name, bound in TARGETS.items() if name in all_figures})


def reported(found: Sequence[Predicted], lease: Lease) -> dict[str, float]:
    """Print what statements took and were expected to take, and return all figures of it. Raises RunFailed."""
    if not found:
        raise RunFailed("no statement ran")
    show(found)
    show_arising(found)
    result = figures(found)
    if len(found) >= SMALLEST:
        covered = learned(found, lease)
        print(told(covered))
        result["learned.all.covers_percent"] = result["learned.all.over_percent"] = covered.percent
        result["learned.all.median_factor"] = covered.median
        result["learned.all.p90_factor"] = covered.p90
        result["learned.all.pinball"] = covered.pinball
    return result


def predicted(
    measured: Sequence[Run], tables: Tables, threads: int, constants: Constants = CALIBRATED
) -> list[Predicted]:
    """Estimate statements that were run."""
    statistics = tables.statistics

    def model(tree: EstimatedNode) -> MemoryEstimate:
        return duckdb.estimate(tree, statistics, threads=threads, constants=constants)

    def formula(tree: EstimatedNode) -> MemoryEstimate:
        peak_bytes = paper.peak_bytes(tree, statistics, threads=threads)
        return UNKNOWN if peak_bytes is None else MemoryEstimate(peak_bytes, peak_bytes)

    return [Predicted(run, model(run.true), model(run.ours), formula(run.true), formula(run.ours)) for run in measured]


def figures(found: Sequence[Predicted]) -> dict[str, float]:
    """Return mean, median and 90th percentile of the errors in percent, and how many peaks the upper bound covers.

    joins, large: of 50 MiB and more, statements that keep rows for joins only, and all; all: of any size.
    """
    result: dict[str, float] = {"statements": len(found)}
    large = [one for one in found if one.run.peak_bytes >= LARGE_BYTES]
    groups = {"joins": [one for one in large if one.run.is_join], "large": large, "all": list(found)}
    for group, members in groups.items():
        if not members:
            continue
        result[f"{group}.statements"] = len(members)
        for whose in ("true", "ours", "paper_true", "paper_ours"):
            errors = _errors(members, whose)
            result[f"{whose}.{group}.mape"] = float(errors.mean())
            result[f"{whose}.{group}.median"] = float(np.median(errors))
            result[f"{whose}.{group}.p90"] = float(np.percentile(errors, 90))
        for whose in ("true", "ours"):
            covered = [one.run.peak_bytes <= (getattr(one, whose).upper_bytes or 0) for one in members]
            result[f"{whose}.{group}.upper_covers_percent"] = 100.0 * float(np.mean(covered))
            factors = [(getattr(one, whose).upper_bytes or 0) / max(1.0, one.run.peak_bytes) for one in members]
            result[f"{whose}.{group}.upper_median_factor"] = float(np.median(factors))
            result[f"{whose}.{group}.upper_p90_factor"] = float(np.percentile(factors, 90))
    return result


@dataclass(frozen=True, slots=True)
class Arising:
    """Errors of the statements in which one kind of operator holds most at the peak, in percent.

    model: of the expected peak from true rows; bias: their median, with its sign. rows: of the expected peak from our
    rows against the one from true rows, which is what cardinalities add.
    """

    holder: str
    statements: int
    model: float
    bias: float
    rows: float


def arising(found: Sequence[Predicted]) -> list[Arising]:
    """Return where errors of large statements arise, the most frequent holder first."""
    by_holder: dict[str, list[Predicted]] = {}
    for one in found:
        if one.run.peak_bytes >= LARGE_BYTES:
            by_holder.setdefault(_holder(one.true), []).append(one)
    return [
        Arising(
            holder,
            len(members),
            float(_errors(members, "true").mean()),
            100.0 * float(np.median([(one.true.peak_bytes or 0) / one.run.peak_bytes - 1.0 for one in members])),
            float(percentage_errors(_peaks(members, "ours"), _peaks(members, "true")).mean()),
        )
        for holder, members in sorted(by_holder.items(), key=lambda entry: -len(entry[1]))
    ]


def _holder(estimate: MemoryEstimate) -> str:
    """Return what holds most at an expected peak, whatever table or kind of join it is."""
    if estimate.driver is None:
        return "nothing"
    name = estimate.operators[estimate.driver].operator.partition(" of ")[0]
    return "hash join" if name.endswith("hash join") else name


def show_arising(found: Sequence[Predicted]) -> None:
    """Print where errors arise."""
    show_table(
        "Errors at 50 MiB and more by what holds most at the expected peak, in percent",
        ["", "statements", "model, true rows", "its median", "cardinalities"],
        [
            [one.holder, str(one.statements), f"{one.model:.1f}", f"{one.bias:+.1f}", f"{one.rows:.1f}"]
            for one in arising(found)
        ],
    )


def learned(found: Sequence[Predicted], lease: Lease) -> Covered:
    """Tell the runs to what learns, in random orders: each statement is new, and has a template of its own."""
    runs = []
    for one in found:
        if one.ours.peak_bytes is not None:
            expected = Expectation(one.ours.peak_bytes, one.ours.uncertainty, lease.memory_bytes)
            key = WorkloadKey(one.run.statement.name, one.run.statement.name)
            runs.append(PastRun("duckdb", key, expected, False, round(one.run.peak_bytes), None))
    return replay(runs, orders=ORDERS, seed=SEED)


def show(found: Sequence[Predicted]) -> None:
    """Print each statement's peaks, and the errors of each group."""
    rows = []
    for one in sorted(found, key=lambda one: -one.run.peak_bytes):
        peak = one.run.peak_bytes
        cells = [mebibytes(round(peak))]
        for whose in ("true", "ours", "paper_true"):
            estimate = getattr(one, whose).peak_bytes
            cells += ["?", "?"] if estimate is None else [mebibytes(estimate), f"{100 * (estimate / peak - 1):+.1f}"]
        rows.append([one.run.statement.name, "join" if one.run.is_join else "", *cells])
    head = ["statement", "", "measured", "true rows", "%", "our rows", "%", "paper, true rows", "%"]
    show_table("Peak memory", head, rows)
    of = figures(found)
    show_table(
        "Errors in percent: mean / median / 90 % (statements)",
        ["", "joins >= 50 MiB", "all >= 50 MiB", "all"],
        [
            [name, *(_cell(of, whose, group) for group in ("joins", "large", "all"))]
            for name, whose in (
                ("true rows", "true"),
                ("our rows", "ours"),
                ("paper, true rows", "paper_true"),
                ("paper, our rows", "paper_ours"),
            )
        ],
    )
    covers = []
    for whose in ("true", "ours"):
        percent, median, p90 = (
            of[f"{whose}.all.upper_{name}"] for name in ("covers_percent", "median_factor", "p90_factor")
        )
        covers.append(f"{whose} rows {percent:.1f} % ({median:.2f} times the peak, {p90:.2f} times in nine tenths)")
    print(f"The upper bound covers, with {', with '.join(covers)}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that a table's statistics take in memory, by what they are."""

    columns: int
    sample: int
    keys: int
    by_key: int


def sizes(table: TableStatistics) -> Sizes:
    """Return what statistics take: histograms and common values, the sample, key bins, rows chosen by keys."""
    columns = 0
    for column in table.columns.values():
        if column.histogram is not None:
            held = (column.histogram.endpoints, column.histogram.below, column.histogram.up_to)
            columns += sum(part.nbytes for part in held if part is not None)
        if column.common is not None:
            columns += column.common.values.nbytes + column.common.rows.nbytes
    keys = sum(part.nbytes for key in table.keys.values() for part in (key.rows, key.ndv, key.largest, key.bins.starts))
    by_key = sum(_sample_bytes(key.sample.rows) for key in table.keys.values() if key.sample is not None)
    return Sizes(columns, _sample_bytes(table.sample), keys, by_key)


def _sample_bytes(sample: RowSample | None) -> int:
    return sum(column.nbytes for column in sample.columns.values()) if sample is not None else 0


def show_sizes(tables: Tables) -> None:
    """Print what the statistics of each table take in memory."""
    held = {name: sizes(table) for name, table in sorted(tables.statistics.items())}
    head = ["table", "histograms and common values", "sample", "key bins", "rows chosen by keys"]
    rows = [[name, *(f"{part / 1024:,.0f}" for part in astuple(one))] for name, one in held.items()]
    show_table("Statistics in memory, KiB", head, rows)


def _errors(members: Sequence[Predicted], whose: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return percentage_errors(_peaks(members, whose), [one.run.peak_bytes for one in members])


def _peaks(members: Sequence[Predicted], whose: str) -> list[float]:
    return [float(getattr(one, whose).peak_bytes or 0) for one in members]


def _cell(of: dict[str, float], whose: str, group: str) -> str:
    if f"{whose}.{group}.mape" not in of:
        return ""
    errors = " / ".join(f"{of[f'{whose}.{group}.{measure}']:.1f}" for measure in ("mape", "median", "p90"))
    return f"{errors} ({of[f'{group}.statements']:.0f})"


if __name__ == "__main__":
    run_command(measure)
