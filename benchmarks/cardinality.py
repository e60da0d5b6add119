"""Claim: rows are estimated from statistics alone better than by any engine's own optimizer.

DIR holds tables (CSV or Parquet files, or folders of them), FILE a JSON list of {"sql", "true"}. Statistics are built
by the real job; each statement is planned by DuckDB, and its plan costed with our cardinalities and with DuckDB's.
Of a statement that counts, the rows that it counts are compared, of all others the rows that come out.
"""

from __future__ import annotations

import json
import statistics as averages
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import typer

from benchmarks.accuracy import mape, q_errors
from benchmarks.claim import Claim, RunFailed, conditions, run_command, show_table, step
from benchmarks.tables import Tables, database, described, explained
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import Operator

PERCENTILES = (50, 90, 95, 99)
SHOWN = 10  # of the worst
CONSTANT = "COLUMN_DATA_SCAN"  # the root of a plan whose only row is known when it is made


@dataclass(frozen=True, slots=True)
class Estimated:
    """One statement. ours, engines: rows; seconds: of reading the plan and estimating it."""

    sql: str
    true: float
    ours: float
    upper: float
    engines: float
    seconds: float


def measure(
    data: Annotated[Path, typer.Option(help="Folder of tables.", exists=True, file_okay=False)],
    queries: Annotated[Path, typer.Option(help='JSON list of {"sql", "true"}.', exists=True)],
    worst: Annotated[int, typer.Option(help="How many of the worst estimates to show.")] = SHOWN,
) -> Claim:
    """Estimate every statement and compare with the truth."""
    asked = _asked(queries)
    print(conditions(data=data.name, queries=f"{queries.name} ({len(asked)})"))
    with tempfile.TemporaryDirectory(prefix="cardinality-") as work:
        tables = described(data, Path(work), [sql for sql, _ in asked])
        with database(tables.tables.values()) as connection:
            found = estimates(connection, tables, asked)
    if not found:
        raise RunFailed("no statement could be planned")
    _show(found, len(asked), worst)
    return Claim("cardinality", figures(found), {})


def estimates(
    connection: duckdb.DuckDBPyConnection, tables: Tables, asked: Sequence[tuple[str, float]]
) -> list[Estimated]:
    """Estimate statements; one that DuckDB cannot plan is told and left out."""
    found = []
    for sql, true in asked:
        try:
            text = _explained(connection, sql)
        except duckdb.Error as failure:
            step(f"not planned: {sql}: {str(failure).splitlines()[0]}")
            continue
        question = tables.question(sql)
        begun = time.perf_counter()
        tree = estimate_rows(question.plan(text), tables.statistics, question.shapes)
        seconds = time.perf_counter() - begun
        counted = _counted(tree)
        found.append(
            Estimated(
                sql=sql,
                true=true,
                ours=counted.rows or 0.0,
                upper=counted.upper or 0.0,
                engines=counted.node.cardinality or 0.0,
                seconds=seconds,
            )
        )
    return found


def _explained(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return a plan; of a count that DuckDB takes from its own statistics, the plan that would count rows."""
    text = explained(connection, sql)
    if [node["name"] for node in json.loads(text)] == [CONSTANT] and "count(" in sql.lower():
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        try:
            return explained(connection, sql)
        finally:
            connection.execute("RESET disabled_optimizers")
    return text


def figures(found: Sequence[Estimated]) -> dict[str, float]:
    """Return q-errors, the mean error and the time of an estimate, ours and, of the errors, the engine's."""
    result: dict[str, float] = {}
    truths = [one.true for one in found]
    for whose, rows in (("", [one.ours for one in found]), ("engine_", [one.engines for one in found])):
        errors = q_errors(rows, truths)
        result |= {f"{whose}q{p}": float(np.percentile(errors, p)) for p in PERCENTILES}
        filled = [(row, true) for row, true in zip(rows, truths, strict=True) if true]
        result[f"{whose}mape"] = mape([row for row, _ in filled], [true for _, true in filled])
    result["ms_per_estimate"] = 1e3 * averages.median(one.seconds for one in found)
    result["upper_covers_percent"] = 100.0 * float(np.mean([one.upper * 1.0001 >= one.true for one in found]))
    return result


def _asked(queries: Path) -> list[tuple[str, float]]:
    try:
        content: list[dict[str, Any]] = json.loads(queries.read_text(encoding="utf-8"))
        return [(str(one["sql"]).rstrip().rstrip(";"), float(one["true"])) for one in content]
    except (ValueError, TypeError, KeyError) as failure:
        raise RunFailed(f'{queries} is no JSON list of {{"sql", "true"}}') from failure


def _counted(tree: EstimatedNode) -> EstimatedNode:
    """Return the node whose rows a statement's outermost COUNT(*) counts, else the root."""
    node = tree
    while node.children and (
        node.node.operator is Operator.MATERIALIZE
        or (node.node.operator in (Operator.PROJECT, Operator.OTHER) and len(node.children) == 1)
    ):
        node = node.children[-1]
    if node.node.operator is Operator.AGGREGATE and not node.node.group_keys and node.children:
        below = node.children[0]
        while below.node.operator is Operator.PROJECT:
            below = below.children[0]
        return below
    return tree


def _show(found: Sequence[Estimated], asked: int, worst: int) -> None:
    of = figures(found)
    show_table(
        f"q-errors of {len(found)} of {asked} statements",
        ["", *(f"{p} %" for p in PERCENTILES), "MAPE %"],
        [
            [name, *(f"{of[f'{whose}q{p}']:.3g}" for p in PERCENTILES), f"{of[f'{whose}mape']:.4g}"]
            for name, whose in (("ours", ""), ("DuckDB", "engine_"))
        ],
    )
    errors = q_errors([one.ours for one in found], [one.true for one in found])
    show_table(
        "farthest from the truth",
        ["q-error", "true", "ours", "upper", "DuckDB", "statement"],
        [
            [f"{errors[at]:.3g}", *(f"{rows:,.0f}" for rows in _rows(found[at])), found[at].sql]
            for at in np.argsort(-errors)[:worst]
        ],
    )
    print(f"{of['ms_per_estimate']:.2f} ms per estimate; upper bound covers {of['upper_covers_percent']:.1f} %")


def _rows(one: Estimated) -> tuple[float, ...]:
    return one.true, one.ours, one.upper, one.engines


if __name__ == "__main__":
    run_command(measure)
