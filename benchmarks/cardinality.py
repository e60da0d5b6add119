"""Rows of statements over anyone's tables: our estimate from statistics beside DuckDB's, in DuckDB's own plan.

Of a statement that counts, the rows that it counts are estimated, of all others the rows that come out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from benchmarks.claim import step
from benchmarks.tables import Tables, explained
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import Operator

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
