"""Claim: on data and statements that nobody tuned for, rows are estimated better than by PostgreSQL and by DuckDB.

A data set is a folder with ``tables/*.parquet`` and ``schema.json`` (``benchmarks.real_data`` makes those of packages,
``benchmarks.generated_data`` those with knobs; anyone's own may stand beside them). Its statements are generated once,
with the truth and PostgreSQL's estimates, into ``queries.json``; another ``--seed`` asks others, which nobody has seen.
Statistics are built by the real job, and kept where ``--cache`` says, so that a change of the estimator is measured in
a minute. Nothing is fitted here, on any data set, so that each takes no part in what it measures.

A percentile is marked where PostgreSQL's is lower. Ratios are ours by PostgreSQL's: of each percentile, whose median
over all cells is to be below a target, and of each statement, whose median is 1 where both are exact on half of them.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks import generated_data, real_data
from benchmarks.accuracy import q_errors
from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.cardinality import estimates
from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table, step
from benchmarks.data_sets import TABLES
from benchmarks.generated_truth import SEED, queries
from benchmarks.tables import Tables, database, described
from metastore.store import Metastore

PERCENTILES = (50, 90, 95, 99)
SHOWN = 5  # of the worst, of each data set
RATIO = 0.7  # our percentile by PostgreSQL's, the median of all cells
ROUNDING = 1.005  # of a printed figure: a difference that nobody sees is no loss
JOINS = dict(zip(PERCENTILES, (1.10, 1.9, 3.0, 12.0), strict=True))
JOIN_KINDS = re.compile(r"join|many-to-many|key")  # in a kind's name
LOST = "*"
KEPT = "complete"  # a file beside the statistics of a job that came to its end


@dataclass(frozen=True, slots=True)
class Compared:
    """One statement. ours, upper, postgres, duckdb: rows; seconds: of our estimate."""

    data: str
    kind: str
    sql: str
    true: float
    ours: float
    upper: float
    postgres: float
    duckdb: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Statements of one kind. ours, postgres, duckdb: percentiles of q-errors; ratio, mean_ratio: ours by PostgreSQL's.

    ratio is the median of the statements' ratios, mean_ratio their geometric mean.
    """

    number: int
    ours: tuple[float, ...]
    postgres: tuple[float, ...]
    duckdb: tuple[float, ...]
    ratio: float
    mean_ratio: float

    @property
    def lost(self) -> tuple[bool, ...]:
        """Tell at which percentiles PostgreSQL is nearer."""
        return tuple(ratio > ROUNDING for ratio in self.ratios)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return our percentiles by PostgreSQL's."""
        return tuple(own / theirs for own, theirs in zip(self.ours, self.postgres, strict=True))


def cell(compared: Sequence[Compared]) -> Cell:
    """Compare the estimators over some statements."""
    truths = [one.true for one in compared]
    ours = q_errors([one.ours for one in compared], truths)
    postgres = q_errors([one.postgres for one in compared], truths)
    duckdb = q_errors([one.duckdb for one in compared], truths)
    ratios = ours / postgres
    return Cell(
        number=len(compared),
        ours=_percentiles(ours),
        postgres=_percentiles(postgres),
        duckdb=_percentiles(duckdb),
        ratio=float(np.median(ratios)),
        mean_ratio=float(np.exp(np.log(ratios).mean())),
    )


def _percentiles(errors: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(np.percentile(errors, p)) for p in PERCENTILES)


def measure(
    data: DataOption = DEFAULT_DATA / "generalisation",
    only: Annotated[list[str] | None, typer.Option(help="Data sets to measure; all without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of the statements.")] = SEED,
    cache: Annotated[Path | None, typer.Option(help="Folder that keeps statistics between runs.")] = None,
    worst: Annotated[int, typer.Option(help="How many of the worst estimates to show of each data set.")] = SHOWN,
    rows: Annotated[Path | None, typer.Option("--json", help="File for every statement's rows.")] = None,
) -> Claim:
    """Estimate every statement of every data set and compare."""
    folders = data_sets(data, only or ())
    print(conditions(data=", ".join(folder.name for folder in folders), seed=seed))
    compared = [one for folder in folders for one in compare(folder, seed, cache)]
    if rows is not None:
        rows.write_text(json.dumps([asdict(one) for one in compared], indent=0), encoding="utf-8")
    show(compared, worst)
    return claim(compared)


def data_sets(data: Path, only: Sequence[str]) -> list[Path]:
    """Return the folders of data sets; those that are named, or all if there is none yet, are made."""
    named = only if only or any(data.glob(f"*/{TABLES}")) else (*real_data.DATA, *generated_data.NAMES)
    real_data.make(data, named)
    generated_data.make(data, named)
    folders = [folder for folder in sorted(data.iterdir()) if (folder / TABLES).is_dir()]
    missing = set(only) - {folder.name for folder in folders}
    if missing:
        raise RunFailed(f"{data} holds no {', '.join(sorted(missing))}: a folder with {TABLES}/ and schema.json")
    return [folder for folder in folders if not only or folder.name in only]


def compare(folder: Path, seed: int, cache: Path | None) -> list[Compared]:
    """Estimate a data set's statements; one that PostgreSQL or DuckDB does not plan is left out."""
    asked = {one.sql: one for one in queries(folder, seed) if one.postgres is not None}
    step(f"{folder.name}: {len(asked)} statements")
    work = None if cache is None else cache / f"{folder.name}-{seed}"
    with statistics(folder, list(asked), work) as tables, database(tables.tables.values()) as connection:
        found = estimates(connection, tables, [(one.sql, one.true) for one in asked.values()])
    return [
        Compared(
            data=folder.name,
            kind=asked[one.sql].kind,
            sql=one.sql,
            true=one.true,
            ours=one.ours,
            upper=one.upper,
            postgres=asked[one.sql].postgres or 0.0,
            duckdb=one.engines,
            seconds=one.seconds,
        )
        for one in found
    ]


@contextmanager
def statistics(folder: Path, statements: Sequence[str], work: Path | None) -> Iterator[Tables]:
    """Give a data set's tables with their statistics, those of an earlier run where a folder keeps them."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="generalisation-") as name:
            yield described(folder / TABLES, Path(name), statements)
    elif (work / KEPT).exists():
        with Metastore(f"sqlite:///{work / 'metastore.db'}") as metastore:
            found = {table.name: table for table in metastore.catalog.list()}
            yield Tables(found, metastore.statistics.current_of(found))
    else:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        tables = described(folder / TABLES, work, statements)
        (work / KEPT).touch()
        yield tables


def figures(compared: Sequence[Compared]) -> dict[str, float]:
    """Return the percentiles of joins, the median of ratios, and how many cells are lost."""
    result: dict[str, float] = {}
    joins = [one for one in compared if JOIN_KINDS.search(one.kind)]
    if joins:
        over = cell(joins)
        for whose, values in (("", over.ours), ("postgres_", over.postgres), ("duckdb_", over.duckdb)):
            result |= {f"{whose}joins_q{p}": value for p, value in zip(PERCENTILES, values, strict=True)}
    cells = [found for *_, found in cells_of(compared)]
    return result | {
        "median_ratio": float(np.median([ratio for found in cells for ratio in found.ratios])),
        "statements_median_ratio": cell(compared).ratio,
        "statements_mean_ratio": cell(compared).mean_ratio,
        "cells": float(len(cells) * len(PERCENTILES)),
        "cells_lost": float(sum(sum(found.lost) for found in cells)),
        "upper_covers_percent": 100.0 * float(np.mean([one.upper * 1.0001 >= one.true for one in compared])),
        "ms_per_estimate": 1e3 * float(np.median([one.seconds for one in compared])),
    }


def claim(compared: Sequence[Compared]) -> Claim:
    """Return the figures and what they are to be."""
    if not compared:
        raise RunFailed("no statement could be planned")
    found = figures(compared)
    targets = {"median_ratio": at_most(RATIO), "cells_lost": at_most(0.0)}
    targets |= {f"joins_q{p}": at_most(bound) for p, bound in JOINS.items()}
    return Claim("generalisation", found, {name: target for name, target in targets.items() if name in found})


def cells_of(compared: Sequence[Compared]) -> list[tuple[str, str, Cell]]:
    """Return the cell of every data set and kind."""
    order = list(dict.fromkeys(one.kind for one in compared))
    found = []
    for data in dict.fromkeys(one.data for one in compared):
        for kind in order:
            of = [one for one in compared if one.data == data and one.kind == kind]
            if of:
                found.append((data, kind, cell(of)))
    return found


def show(compared: Sequence[Compared], worst: int) -> None:
    """Print the tables: by data set and kind, by kind, and the farthest from the truth."""
    cells = cells_of(compared)
    for data in dict.fromkeys(data for data, *_ in cells):
        of = [one for one in compared if one.data == data]
        lines = [_line(kind, found) for name, kind, found in cells if name == data]
        show_table(*_titled(f"q-errors on {data}"), [*lines, *_summed(of)])
        errors = q_errors([one.ours for one in of], [one.true for one in of])
        show_table(
            f"farthest from the truth on {data}",
            ["kind", "q-error", "true", "ours", "upper", "PostgreSQL", "DuckDB", "statement"],
            [[of[at].kind, short(errors[at]), *_rows(of[at]), of[at].sql] for at in np.argsort(-errors)[:worst]],
        )
    order = dict.fromkeys(kind for _, kind, _ in cells)
    lines = [_line(kind, cell([one for one in compared if one.kind == kind])) for kind in order]
    show_table(*_titled("q-errors on all data sets"), [*lines, *_summed(compared)])


def short(value: float) -> str:
    """Write a q-error in at most five characters."""
    if value < 9.995:
        return f"{value:.2f}"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def _titled(title: str) -> tuple[str, list[str]]:
    percentiles = " / ".join(str(p) for p in PERCENTILES)
    return f"{title}: {percentiles} %", ["", "n", "ours", "PostgreSQL's", "DuckDB's", "median ratio", "mean ratio"]


def _summed(compared: Sequence[Compared]) -> list[list[str]]:
    joins = [one for one in compared if JOIN_KINDS.search(one.kind)]
    lines = [_line("joins overall", cell(joins))] if joins else []
    return [*lines, _line("all", cell(compared))]


def _line(name: str, found: Cell) -> list[str]:
    ours = " / ".join(
        f"{short(value)}{LOST if lost else ''}" for value, lost in zip(found.ours, found.lost, strict=True)
    )
    others = [" / ".join(short(value) for value in values) for values in (found.postgres, found.duckdb)]
    return [name, str(found.number), ours, *others, f"{found.ratio:.2f}", f"{found.mean_ratio:.2f}"]


def _rows(one: Compared) -> list[str]:
    return [f"{rows:,.0f}" for rows in (one.true, one.ours, one.upper, one.postgres, one.duckdb)]


if __name__ == "__main__":
    run_command(measure)
