"""Claim: our statistics take a fourteenth of the time of Spark's own ANALYZE, and are near enough to the truth.

This file is long because the sections of one claim share their data, their processes and their table of figures.

Both describe the same files, in alternation, each time in a Spark process of its own that differs in nothing but who
asks: two cores, the same heap, one small table described before the clock starts. Ours is timed as a user's job is,
from reading to publishing, without Spark's start; ANALYZE makes histograms as well, though of numbers and dates only.
Beside them: a job per numeric column, as the paper has it, and the floor, which is reading the same columns and
doing nothing. The truth is what DuckDB counts in the same files.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import typer

from benchmarks.accuracy import mape
from benchmarks.bookstore import DEFAULT_DATA, SEED, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.bookstore import TABLES as BOOKSTORE_TABLES
from benchmarks.claim import Claim, Target, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.describing import (
    analyze,
    arrow_decode,
    declare,
    in_force,
    job_per_column,
    noop_scan,
    ours,
    ours_together,
    register,
)
from benchmarks.sides import Pair, alternate
from benchmarks.spark_process import DRIVER_MEMORY, MASTER, SparkProcess, spark_process
from benchmarks.thresholds import spread
from benchmarks.truth import ColumnErrors, Truth, parquet
from benchmarks.warehouse import PARTITION_COLUMN, converted, cut, link, sliver, tpch
from metastore.discovery.inspection import inspect
from metastore.records import Mode
from selector.cardinality.predicates.selectivity import filter_of
from selector.statistics import TableStatistics
from sql.tables import TableSource
from statsproc.data.bookstore import Bookstore, Distribution

SCALE = 1 / 32
PAIRS = 3
TPCH_TABLE = "lineitem"
LARGE_ROWS = 1_000_000
POINTS = 40
FORMATS = {"csv": 1, "orc": 1, "json": 4}  # every n-th of the books
PARTITIONS = 24
SMALL_TABLES = 12
WARM_UP_ROWS = 1000

TIMES_ANALYZE, LEAST_TIMES_ANALYZE, FORMAT_TIMES_ANALYZE = 14.0, 6.0, 2.0
MOST_TIMES_SCAN = 1.5
DOUBLED_TIME = 2.2
INCREMENTAL_SHARE = 1 / 8
ACCURACY = {
    "largest_rank_error_percent": at_most(0.05),
    "ndv_error_mean_percent": at_most(1.0),
    "ndv_error_max_percent": at_most(5.0),
    "inexact_fields": at_most(0),
}


class Section(StrEnum):
    """A part of the claim, which can run alone."""

    SPEED = "speed"
    SMALL = "small"
    GROWTH = "growth"
    ACCURACY = "accuracy"
    FORMATS = "formats"
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison with a constant: one of the paper's Q1 and Q2, and the MAPE that it may have."""

    table: str
    column: str
    operator: str
    most_percent: float


PREDICATES = (Predicate("books", "price", "<", 0.1), Predicate("transactions", "quantity", ">=", 0.4))


@dataclass(slots=True)
class Found:
    """Figures and targets of some sections."""

    figures: dict[str, float] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def add(self, name: str, figure: float, target: Target | None = None) -> None:
        """Put a figure in, with its target if it has one."""
        self.figures[name] = figure
        if target is not None:
            self.targets[name] = target


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
    pairs: Annotated[int, typer.Option(help="Repeats of each side, in alternation.", min=1)] = PAIRS,
    only: Annotated[
        list[Section] | None, typer.Option(help="A section to run; may be repeated; all by default.")
    ] = None,
) -> Claim:
    """Compare our statistics job with Spark's ANALYZE, and its statistics with the truth."""
    sections = only or list(Section)
    factor = scale / SCALE
    where = conditions(
        scale=f"{scale:g}",
        seed=seed,
        pairs=pairs,
        Spark=MASTER,
        heap=DRIVER_MEMORY,
        TPC_H_factor=f"{factor:g}",
        **{table: f"{rows:,} rows" for table, rows in Bookstore(scale).rows.items()},
    )
    skewed = _tables(prepare(data, Bookstore(scale, seed)))
    lineitem = tpch(data, TPCH_TABLE, factor)
    found, truth = Found(), Truth()
    by_analyze: Mapping[str, TableStatistics] = {}
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as scratch:
        warm_up = sliver(skewed["books"], WARM_UP_ROWS, Path(scratch) / "warm_up")
        if Section.SPEED in sections:
            by_analyze = _speed([*skewed.values(), lineitem], warm_up, pairs, found)
        if set(sections) - {Section.SPEED}:
            with spark_process() as process:  # of computed here alone, where no side needs a fresh one
                process.call(register, warm_up)
                process.call(ours, warm_up.name)
                if Section.SMALL in sections:
                    _small(process, skewed["books"], Path(scratch), pairs, found)
                if Section.GROWTH in sections:
                    doubled = replace(tpch(data, TPCH_TABLE, 2 * factor), name=f"{TPCH_TABLE}_doubled")
                    _growth(process, lineitem, doubled, pairs, found)
                if Section.ACCURACY in sections:
                    both = skewed | {TPCH_TABLE: lineitem}
                    uniform = _tables(prepare(data, Bookstore(scale, seed, Distribution.UNIFORM)))
                    _accuracy(process, Distribution.SKEWED, both, by_analyze, truth, seed, found)
                    _accuracy(process, Distribution.UNIFORM, uniform, {}, truth, seed, found)
                if Section.INCREMENTAL in sections:
                    rows = Bookstore(scale).rows["transactions"]
                    _incremental(process, skewed["transactions"], rows, pairs, truth, found)
                if Section.FORMATS in sections:
                    written = _written(process, skewed["books"], Path(skewed["books"].location).parent)
                    small = _written(process, warm_up, Path(scratch))
        if Section.FORMATS in sections:
            _formats(skewed["books"], written, small, pairs, truth, found)
    print(where)
    return Claim("statistics", found.figures, found.targets)


def _tables(folder: Path) -> dict[str, TableSource]:
    return {table: inspect(table, folder / table).source for table in BOOKSTORE_TABLES}


def _speed(
    tables: Sequence[TableSource], warm_up: TableSource, pairs: int, found: Found
) -> Mapping[str, TableStatistics]:
    """Compare seconds; returns what ANALYZE found."""
    measured = alternate(tables, [warm_up], pairs)
    floors, per_column = _beside(tables, warm_up)
    rows = []
    for table in tables:
        name = table.name
        times = median(pair.times([name]) for pair in measured)
        seconds = {
            "ours_s": median(pair.ours.costs[name].wall_s for pair in measured),
            "analyze_s": median(pair.analyze.costs[name].wall_s for pair in measured),
            "job_per_column_s": per_column[name],
            "noop_scan_s": floors[noop_scan.__name__][name],
            "arrow_decode_s": floors[arrow_decode.__name__][name],
        }
        times_cpu = median(pair.times_cpu([name]) for pair in measured)
        found.add(f"speed.{name}.times_analyze", times)
        found.add(f"speed.{name}.times_analyze_cpu", times_cpu)
        for figure, value in seconds.items():
            found.add(f"speed.{name}.{figure}", value)
        rows.append(
            [
                name,
                f"{measured[0].ours.statistics[name].rows:,}",
                f"{times:.1f} x",
                f"{times_cpu:.1f} x",
                *_seconds(seconds),
            ]
        )
    names = [table.name for table in tables]
    summed = median(pair.times(names) for pair in measured)
    found.add("speed.times_analyze", summed, at_least(TIMES_ANALYZE))
    found.add("speed.times_analyze_cpu", median(pair.times_cpu(names) for pair in measured))
    large = [name for name in names if measured[0].ours.statistics[name].rows >= LARGE_ROWS]
    if large:
        least = min(found.figures[f"speed.{name}.times_analyze"] for name in large)
        found.add("speed.least_times_analyze", least, at_least(LEAST_TIMES_ANALYZE))
    scans = max(found.figures[f"speed.{name}.ours_s"] / found.figures[f"speed.{name}.noop_scan_s"] for name in names)
    found.add("speed.most_times_noop_scan", scans, at_most(MOST_TIMES_SCAN))
    found.add("speed.times_job_per_column", _sum(found, names, "job_per_column_s") / _sum(found, names, "ours_s"))
    head = [
        "table",
        "rows",
        "faster",
        "less CPU",
        "ours",
        "ANALYZE",
        "job per column",
        "Spark noop scan",
        "pyarrow decode",
    ]
    show_table("Median wall seconds to describe a table; the last two columns only read it", head, rows)
    wanted = f"at least {TIMES_ANALYZE:g} x, and no table of 1M rows or more under {LEAST_TIMES_ANALYZE:g} x"
    print(f"Summed over the tables: {summed:.1f} x faster than ANALYZE ({wanted}),")
    print(f"with {found.figures['speed.times_analyze_cpu']:.1f} x fewer CPU seconds, which other work disturbs less;")
    print(f"{found.figures['speed.times_job_per_column']:.1f} x faster than a job per numeric column,")
    print(f"and at most {scans:.2f} x Spark's noop scan of a table (to be at most {MOST_TIMES_SCAN:g} x).")
    _tell_memory(measured, found)
    return measured[0].analyze.statistics


def _beside(
    tables: Sequence[TableSource], warm_up: TableSource
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the seconds of the floors, by their names, and of a job per column; by table."""
    step("the floors, and a job per column")
    with spark_process() as process:
        for table in (warm_up, *tables):
            process.call(register, table)
            process.call(declare, table)
        floors = {}
        for floor in (noop_scan, arrow_decode):
            process.call(floor, warm_up)
            floors[floor.__name__] = {table.name: process.timed(floor, table).wall_s for table in tables}
        process.call(job_per_column, warm_up)
        return floors, {table.name: process.timed(job_per_column, table).wall_s for table in tables}


def _seconds(seconds: Mapping[str, float]) -> list[str]:
    return [f"{value:.2f}" for value in seconds.values()]


def _sum(found: Found, tables: Sequence[str], figure: str) -> float:
    return sum(found.figures[f"speed.{name}.{figure}"] for name in tables)


def _tell_memory(measured: Sequence[Pair], found: Found) -> None:
    peaks = {"ours": [pair.ours.peak for pair in measured], "analyze": [pair.analyze.peak for pair in measured]}
    for side, seen in peaks.items():
        found.add(f"speed.{side}_spark_mib", max(peak.spark_bytes for peak in seen) / 2**20)
        found.add(f"speed.{side}_driver_mib", max(peak.driver_bytes for peak in seen) / 2**20)
    show_table(
        "Peak memory in MiB: resident, as sampled; pages that processes share count in each",
        ["side", "JVM and Python workers", "Python driver"],
        [
            [side, *(f"{found.figures[f'speed.{side}_{part}_mib']:,.0f}" for part in ("spark", "driver"))]
            for side in peaks
        ],
    )


def _small(process: SparkProcess, books: TableSource, folder: Path, repeats: int, found: Found) -> None:
    """Describe small tables: all of them in one job, each in one of its own, and each by ANALYZE."""
    step(f"{SMALL_TABLES} tables of {WARM_UP_ROWS:,} rows")
    tables = [sliver(books, WARM_UP_ROWS, folder / f"small_{number}") for number in range(SMALL_TABLES)]
    for table in tables:
        process.call(register, table)
        process.call(declare, table)
    names = [table.name for table in tables]
    process.call(analyze, names[0])
    ways: dict[str, list[float]] = {"together_s": [], "alone_s": [], "analyze_s": []}
    for _ in range(repeats):
        ways["together_s"].append(process.timed(ours_together, names).wall_s)
        ways["alone_s"].append(sum(process.timed(ours, name).wall_s for name in names))
        ways["analyze_s"].append(sum(process.timed(analyze, name).wall_s for name in names))
    seconds = {way: median(took) for way, took in ways.items()}
    for way, took in seconds.items():
        found.add(f"small.{way}", took)
    times = median(theirs / own for own, theirs in zip(ways["together_s"], ways["analyze_s"], strict=True))
    found.add("small.times_analyze", times, at_least(LEAST_TIMES_ANALYZE))
    print(
        f"{SMALL_TABLES} small tables: {seconds['together_s']:.2f} s in one job, {seconds['alone_s']:.2f} s alone, "
        f"{seconds['analyze_s']:.2f} s by ANALYZE: {times:.1f} x (at least {LEAST_TIMES_ANALYZE:g} x)"
    )


def _growth(process: SparkProcess, table: TableSource, doubled: TableSource, repeats: int, found: Found) -> None:
    """Compare the seconds for twice the rows with those for the rows."""
    step(f"{table.name}, and twice of it")
    once, twice = [], []
    process.call(register, table)
    process.call(register, doubled)
    for _ in range(repeats):
        once.append(process.timed(ours, table.name))
        twice.append(process.timed(ours, doubled.name))
    once_s, twice_s = median(cost.wall_s for cost in once), median(cost.wall_s for cost in twice)
    found.add("growth.once_s", once_s)
    found.add("growth.twice_s", twice_s)
    found.add("growth.time", twice_s / once_s, at_most(DOUBLED_TIME))
    found.add("growth.cpu_time", median(cost.cpu_s for cost in twice) / median(cost.cpu_s for cost in once))
    print(
        f"Twice the rows of {table.name}: {twice_s:.2f} s instead of {once_s:.2f} s, "
        f"{found.figures['growth.time']:.2f} x (at most {DOUBLED_TIME:g} x); "
        f"{found.figures['growth.cpu_time']:.2f} x the CPU seconds"
    )


def _accuracy(
    process: SparkProcess,
    distribution: Distribution,
    tables: Mapping[str, TableSource],
    by_analyze: Mapping[str, TableStatistics],
    truth: Truth,
    seed: int,
    found: Found,
) -> None:
    """Hold our statistics of some tables against the truth, and ANALYZE's where they are at hand."""
    step(f"accuracy, {distribution.value}: describing {', '.join(tables)}")
    for table in tables.values():
        process.call(register, table)
        process.call(ours, table.name)
    described = {name: process.call(in_force, name) for name in tables}
    step("counting what is true")
    errors = {name: truth.errors(parquet(tables[name]), tables[name].columns, described[name]) for name in tables}
    by_table = dict(errors)
    for name, statistics in by_analyze.items():
        by_table[f"{name}, by ANALYZE"] = truth.errors_of_analyze(
            parquet(tables[name]), tables[name].columns, statistics
        )
    _show_errors(f"Errors on {distribution.value} data", by_table)
    prefix = f"accuracy.{distribution.value}"
    _add_errors(prefix, [one for of_table in errors.values() for one in of_table], found)
    for predicate in PREDICATES:
        percent = _predicate_percent(predicate, tables[predicate.table], described[predicate.table], truth, seed)
        found.add(f"{prefix}.{predicate.column}_mape_percent", percent, at_most(predicate.most_percent))
        text = f"{predicate.table}, {predicate.column} {predicate.operator} X, {POINTS} values of X"
        print(f"{text}: MAPE {percent:.4f} % (at most {predicate.most_percent:g} %)")


def _predicate_percent(
    predicate: Predicate, table: TableSource, statistics: TableStatistics, truth: Truth, seed: int
) -> float:
    """Return the MAPE of the real estimator; the smallest X, which leaves no rows or all of them, is left out."""
    values, below = truth.cumulative(parquet(table), predicate.column)
    estimates, truths = [], []
    for x in spread(values[1:], POINTS, seed=seed):
        rows_below = int(below[bisect_left(values, x)])
        truths.append(rows_below if predicate.operator == "<" else int(below[-1]) - rows_below)
        kept = filter_of([f"{predicate.column} {predicate.operator} {x}"], statistics, dialect="duckdb")
        estimates.append(kept.share * statistics.rows)
    return mape(estimates, truths)


def _show_errors(title: str, by_table: Mapping[str, Sequence[ColumnErrors]]) -> None:
    rows = []
    for name, errors in by_table.items():
        ranked = max((one for one in errors if one.rank_percent is not None), key=_rank_percent, default=None)
        distinct = max(errors, key=_ndv_percent)
        common = [one.common_percent for one in errors if one.common_percent is not None]
        inexact = [f"{one.column}.{name}" for one in errors for name in one.inexact]
        rows.append(
            [
                name,
                str(sum(one.rank_percent is not None for one in errors)),
                f"{_rank_percent(ranked):.4f} ({ranked.column})" if ranked else "-",
                f"{mean(_ndv_percent(one) for one in errors):.3f}",
                f"{_ndv_percent(distinct):.3f} ({distinct.column})",
                f"{max(common):.4f}" if common else "-",
                ", ".join(inexact) or ("none" if "ANALYZE" not in name else "-"),
            ]
        )
    head = [
        "table",
        "histograms",
        "rank error %",
        "NDV error %: mean",
        "largest",
        "common values: % of rows",
        "inexact",
    ]
    show_table(title, head, rows)


def _rank_percent(errors: ColumnErrors) -> float:
    return errors.rank_percent or 0.0


def _ndv_percent(errors: ColumnErrors) -> float:
    return errors.ndv_percent or 0.0


def _add_errors(prefix: str, errors: Sequence[ColumnErrors], found: Found) -> None:
    figures = {
        "largest_rank_error_percent": max(_rank_percent(one) for one in errors),
        "ndv_error_mean_percent": mean(_ndv_percent(one) for one in errors),
        "ndv_error_max_percent": max(_ndv_percent(one) for one in errors),
        "common_count_error_percent": max(one.common_percent or 0.0 for one in errors),
        "inexact_fields": sum(len(one.inexact) for one in errors),
    }
    for name, figure in figures.items():
        found.add(f"{prefix}.{name}", figure, ACCURACY.get(name))


def _written(process: SparkProcess, table: TableSource, folder: Path) -> dict[str, TableSource]:
    """Write a table in the other formats, where that was not done before."""
    step(f"writing {table.name} as {', '.join(FORMATS)}")
    return {
        format: process.call(converted, table, format, every, folder / f"{table.name}_{format}")
        for format, every in FORMATS.items()
    }


def _formats(
    books: TableSource,
    tables: Mapping[str, TableSource],
    warm_ups: Mapping[str, TableSource],
    pairs: int,
    truth: Truth,
    found: Found,
) -> None:
    """Compare with ANALYZE over the books in other formats."""
    measured = alternate(list(tables.values()), list(warm_ups.values()), pairs)
    rows, errors = [], dict[str, list[ColumnErrors]]()
    for format, table in tables.items():
        name, statistics = table.name, measured[0].ours.statistics[table.name]
        times = median(pair.times([name]) for pair in measured)
        seconds = {
            "ours_s": median(pair.ours.costs[name].wall_s for pair in measured),
            "analyze_s": median(pair.analyze.costs[name].wall_s for pair in measured),
        }
        times_cpu = median(pair.times_cpu([name]) for pair in measured)
        found.add(f"formats.{format}.times_analyze", times, at_least(FORMAT_TIMES_ANALYZE))
        found.add(f"formats.{format}.times_analyze_cpu", times_cpu)
        for figure, value in seconds.items():
            found.add(f"formats.{format}.{figure}", value)
        rows.append([format, f"{statistics.rows:,}", f"{times:.1f} x", f"{times_cpu:.1f} x", *_seconds(seconds)])
        relation = f"(FROM {parquet(books)} WHERE id % {FORMATS[format]} = 0)"
        errors[format] = truth.errors(relation, books.columns, statistics)
        _add_errors(f"formats.{format}", errors[format], found)
    title = f"Books in other formats: median wall seconds, to be at least {FORMAT_TIMES_ANALYZE:g} x faster"
    show_table(title, ["format", "rows", "faster", "less CPU", "ours", "ANALYZE"], rows)
    _show_errors("Errors on books in other formats", errors)


def _incremental(
    process: SparkProcess, transactions: TableSource, rows: int, repeats: int, truth: Truth, found: Found
) -> None:
    """Add a partition, and compare an incremental job with a full one."""
    step(f"transactions in {PARTITIONS} partitions, to which one is added")
    whole = Path(transactions.location).with_name(f"transactions_in_{PARTITIONS}")
    process.call(cut, transactions, f"CAST((id - 1) * {PARTITIONS} DIV {rows} AS INT)", whole)
    *known, newest = [f"{PARTITION_COLUMN}={number}" for number in range(PARTITIONS)]
    incremental, full = [], []
    with tempfile.TemporaryDirectory(dir=whole.parent) as growing:
        for repeat in range(repeats):
            name = f"transactions_{repeat}"
            for partition in known:
                link(whole / partition, Path(growing) / name / partition)
            process.call(register, inspect(name, Path(growing) / name).source)
            process.call(ours, name)
            link(whole / newest, Path(growing) / name / newest)
            incremental.append(process.timed(ours, name, Mode.INCREMENTAL))
            merged = process.call(in_force, name)
            full.append(process.timed(ours, name))
    pairs = list(zip(incremental, full, strict=True))
    share = median(added.wall_s / anew.wall_s for added, anew in pairs)
    share_cpu = median(added.cpu_s / anew.cpu_s for added, anew in pairs)
    incremental_s, full_s = median(cost.wall_s for cost in incremental), median(cost.wall_s for cost in full)
    found.add("incremental.incremental_s", incremental_s)
    found.add("incremental.full_s", full_s)
    found.add("incremental.share", share, at_most(INCREMENTAL_SHARE))
    found.add("incremental.share_cpu", share_cpu)
    print(
        f"One partition of {PARTITIONS} added: {incremental_s:.2f} s instead of {full_s:.2f} s, {share:.3f} of the "
        f"full job (at most {INCREMENTAL_SHARE:g}); {share_cpu:.3f} of its CPU seconds"
    )
    source = inspect("merged", whole).source
    errors = truth.errors(parquet(source), source.columns, merged)
    _show_errors("Errors of the merged statistics", {"transactions": errors})
    _add_errors("incremental", errors, found)


if __name__ == "__main__":
    run_command(run)
