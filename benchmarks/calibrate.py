"""Fits the constants of DuckDB's memory model that its source does not tell, on half of the statements.

The half is that of ``benchmarks.statements``: an even CRC-32 of the statement's name. What is reported for the other
half was never used for fitting. Constants are fitted from the rows that were counted, so that no error of a cardinality
hides in them. Those that are found are printed, to be written into ``engines/duckdb/memory/layout.py`` by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.claim import Claim, RunFailed, conditions, run_command, show_table, step
from benchmarks.memory import MIB, figures, predicted
from benchmarks.peaks import Run, runs
from benchmarks.statements import read_all
from benchmarks.tables import Tables, described
from engines.duckdb.memory.layout import CALIBRATED, Constants
from engines.duckdb.memory.model import estimate
from engines.protocol import Lease
from selector.statistics import TableStatistics

FITTED = (
    "base_bytes",
    "scan_decoded",
    "scan_strings",
    "last_rows",
    "growing_overlap",
    "sort_scratch",
    "window_scratch",
)
STEPS = (0.8, 0.9, 0.95, 1.05, 1.1, 1.25)
ROUNDS = 6
SMALLEST_BYTES = 20 * MIB  # of peaks that are fitted to


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder of tables.", exists=True, file_okay=False)],
    queries: Annotated[list[Path], typer.Option(help="Statements: JSON or SQL. May be repeated.", exists=True)],
    threads: Annotated[int, typer.Option(help="Of DuckDB.", min=1)] = 2,
    limit_mib: Annotated[int, typer.Option(help="DuckDB's memory limit.", min=64)] = 4096,
    repeats: Annotated[int, typer.Option(help="Runs of each statement; their median counts.", min=1)] = 3,
) -> Claim:
    """Run every statement, fit the constants on one half, and report on both."""
    statements = read_all(queries)
    fitted_to = [statement.name for statement in statements if statement.is_fitted]
    print(conditions(data=data.name, statements=len(statements), threads=threads, repeats=repeats))
    print(f"Fitted to {len(fitted_to)}: {', '.join(fitted_to)}")
    print(f"Held out: {', '.join(statement.name for statement in statements if not statement.is_fitted)}")
    with tempfile.TemporaryDirectory(prefix="calibrate-") as work:
        tables = described(data, Path(work), [statement.sql for statement in statements])
        lease = Lease(limit_mib * MIB)
        measured = runs(tables, statements, threads=threads, lease=lease, repeats=repeats)
    return report(measured, tables, threads)


def report(measured: Sequence[Run], tables: Tables, threads: int) -> Claim:
    """Fit, print and return the figures of both halves, with the constants in force and with those found."""
    fitted_to = [run for run in measured if run.statement.is_fitted]
    held_out = [run for run in measured if not run.statement.is_fitted]
    if not fitted_to or not held_out:
        raise RunFailed("each half needs statements that ran")
    found = fit(fitted_to, tables.statistics, threads)
    show_table(
        "Constants",
        ["", "in force", "found"],
        [[name, f"{getattr(CALIBRATED, name):.4g}", f"{getattr(found, name):.4g}"] for name in FITTED],
    )
    result: dict[str, float] = {}
    for half, members in (("fitted", fitted_to), ("held_out", held_out)):
        for name, constants in (("in_force", CALIBRATED), ("found", found)):
            of = figures(predicted(members, tables, threads, constants))
            result |= {f"{half}.{name}.{key}": value for key, value in of.items() if key.endswith(("mape", "percent"))}
    rows = []
    for half in ("fitted", "held_out"):
        for name in ("in_force", "found"):
            for whose in ("true", "ours"):
                errors = [result.get(f"{half}.{name}.{whose}.{group}.mape") for group in ("joins", "large", "all")]
                cells = ["" if error is None else f"{error:.1f}" for error in errors]
                rows.append([f"{half}, {name}, {whose} rows", *cells])
    show_table("Mean error in percent", ["", "joins >= 50 MiB", "all >= 50 MiB", "all"], rows)
    return Claim("calibrate", result, {})


def fit(measured: Sequence[Run], statistics: Mapping[str, TableStatistics], threads: int) -> Constants:
    """Return the constants with the smallest mean error: one after the other is varied until none gets better."""
    fitted_to = [run for run in measured if run.peak_bytes >= SMALLEST_BYTES]
    best, least = CALIBRATED, mean_error(fitted_to, statistics, threads, CALIBRATED)
    for number in range(ROUNDS):
        before = least
        for name in FITTED:
            for factor in STEPS:
                tried = replace(best, **{name: getattr(best, name) * factor})
                error = mean_error(fitted_to, statistics, threads, tried)
                if error < least:
                    best, least = tried, error
        step(f"round {number + 1}: {100 * least:.2f} %")
        if least > before * 0.999:
            break
    return best


def mean_error(
    measured: Sequence[Run], statistics: Mapping[str, TableStatistics], threads: int, constants: Constants
) -> float:
    """Return the mean of |expected / measured - 1| from the rows that were counted."""
    errors = [
        abs((estimate(run.true, statistics, threads=threads, constants=constants).peak_bytes or 0) / run.peak_bytes - 1)
        for run in measured
    ]
    return float(np.mean(errors))


if __name__ == "__main__":
    run_command(calibrate)
