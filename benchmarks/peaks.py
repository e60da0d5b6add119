"""Statements run alone on DuckDB, as the gateway runs them: what they took, beside the plan that was costed."""

from __future__ import annotations

import statistics as averages
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.claim import RunFailed, step
from benchmarks.statements import Named
from benchmarks.tables import Tables
from engines.duckdb.engine import DuckDBEngine
from engines.errors import EngineError
from engines.protocol import Actuals, Lease, OperatorActual
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.memory.pipeline import walk
from selector.plan import Operator, PlanNode, UnreadablePlan

DEADLINE_S = 600.0
FEW_ROWS = 100_000
_KEEPING = (Operator.AGGREGATE, Operator.SORT, Operator.TOP_N, Operator.WINDOW, Operator.MATERIALIZE)


@dataclass(frozen=True, slots=True)
class Run:
    """One statement. peak_bytes: the median of its repeats; true, ours: its plan with measured and with our rows."""

    statement: Named
    peak_bytes: float
    true: EstimatedNode
    ours: EstimatedNode

    @property
    def is_join(self) -> bool:
        """Tell whether it joins and neither groups nor sorts many rows: its memory is that of its joins."""
        return has_only_joins(self.true)


def has_only_joins(tree: EstimatedNode) -> bool:
    """Tell whether a plan has joins, and no other operator that keeps more than a few rows."""
    parts = [part for _, part in walk(tree)]
    joins = [part for part in parts if part.node.operator in (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)]
    others = [part for part in parts if part.node.operator in _KEEPING and (part.rows or 0.0) > FEW_ROWS]
    return bool(joins) and not others


def runs(tables: Tables, statements: Sequence[Named], *, threads: int, lease: Lease, repeats: int) -> list[Run]:
    """Run every statement alone; one that fails, or whose plan cannot be read, is told and left out."""
    engine = DuckDBEngine(workers=1, threads=threads)
    try:
        engine.use_tables([table.source for table in tables.tables.values()])
        return [run for one in statements if (run := _run(engine, tables, one, lease, repeats)) is not None]
    finally:
        engine.close()


def _run(engine: DuckDBEngine, tables: Tables, statement: Named, lease: Lease, repeats: int) -> Run | None:
    try:
        text = engine.explain(statement.sql)
        measured = [_actuals(engine, statement.sql, lease) for _ in range(repeats)]
        plan = tables.plan(statement.sql, text)
        true = measured_tree(plan.root, measured[-1].operators)
    except (EngineError, UnreadablePlan, RunFailed) as failure:
        step(f"left out: {statement.name}: {str(failure).splitlines()[0]}")
        return None
    peaks = [actuals.peak_bytes for actuals in measured if actuals.peak_bytes is not None]
    step(f"{statement.name}: {averages.median(peaks) / (1 << 20):.1f} MiB")
    ours = estimate_rows(plan, tables.statistics, tables.shapes)
    return Run(statement, averages.median(peaks), true, ours)


def _actuals(engine: DuckDBEngine, sql: str, lease: Lease) -> Actuals:
    with engine.execute(sql, query_id=uuid.uuid4().hex, lease=lease, deadline_s=DEADLINE_S) as stream:
        for _ in stream:
            pass
        return stream.actuals


def measured_tree(root: PlanNode, operators: Sequence[OperatorActual]) -> EstimatedNode:
    """Return a plan with the rows of a run. operators: of its profile, parents first. Raises RunFailed."""
    remaining = iter(operators)
    tree = _measured(root, remaining)
    if next(remaining, None) is not None:
        raise RunFailed("its profile has more operators than its plan")
    return tree


def _measured(node: PlanNode, remaining: Iterator[OperatorActual]) -> EstimatedNode:
    actual = next(remaining, None)
    if actual is None:
        raise RunFailed("its profile has fewer operators than its plan")
    children = tuple(_measured(child, remaining) for child in node.children)
    rows = float(actual.rows)
    return EstimatedNode(node, rows, "measured", children, upper=rows)
