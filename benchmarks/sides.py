"""Our job and ANALYZE over the same tables, in alternation, each time in a fresh Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.claim import step
from benchmarks.describing import analyze, analyzed, declare, in_force, ours, register
from benchmarks.spark_process import Cost, Peak, spark_process
from selector.statistics import TableStatistics
from sql.tables import TableSource


@dataclass(frozen=True, slots=True)
class Side:
    """One side's run over some tables. costs, statistics: by table."""

    costs: Mapping[str, Cost]
    statistics: Mapping[str, TableStatistics]
    peak: Peak


@dataclass(frozen=True, slots=True)
class Pair:
    """One repeat: computed here's run and ANALYZE's."""

    ours: Side
    analyze: Side

    def times(self, tables: Sequence[str]) -> float:
        """Return how many times longer ANALYZE took over some tables."""
        return sum(self.analyze.costs[name].wall_s for name in tables) / sum(
            self.ours.costs[name].wall_s for name in tables
        )

    def times_cpu(self, tables: Sequence[str]) -> float:
        """Return how many times the CPU seconds ANALYZE took over some tables."""
        return sum(self.analyze.costs[name].cpu_s for name in tables) / sum(
            self.ours.costs[name].cpu_s for name in tables
        )


def alternate(tables: Sequence[TableSource], warm_ups: Sequence[TableSource], pairs: int) -> list[Pair]:
    """Measure both sides some times; each second time ANALYZE comes first.

    warm_ups: described before the clock starts, by either side, so that neither pays for a cold start.
    """
    measured = []
    sides: list[Callable[[Sequence[TableSource], Sequence[TableSource]], Side]] = [_our_side, _side_of_analyze]
    for number in range(pairs):
        turned = bool(number % 2)
        step(f"pair {number + 1} of {pairs}: {'ANALYZE, then ours' if turned else 'ours, then ANALYZE'}")
        run = {side: side(tables, warm_ups) for side in (reversed(sides) if turned else sides)}
        measured.append(Pair(ours=run[_our_side], analyze=run[_side_of_analyze]))
    return measured


def _our_side(tables: Sequence[TableSource], warm_ups: Sequence[TableSource]) -> Side:
    with spark_process() as process:
        for table in (*warm_ups, *tables):
            process.call(register, table)
        for table in warm_ups:
            process.call(ours, table.name)
        costs = {table.name: process.timed(ours, table.name) for table in tables}
        peak = process.peak
        return Side(costs, {name: process.call(in_force, name) for name in costs}, peak)


def _side_of_analyze(tables: Sequence[TableSource], warm_ups: Sequence[TableSource]) -> Side:
    with spark_process() as process:
        for table in (*warm_ups, *tables):
            process.call(declare, table)
        for table in warm_ups:
            process.call(analyze, table.name)
        costs = {table.name: process.timed(analyze, table.name) for table in tables}
        peak = process.peak
        return Side(costs, {table.name: process.call(analyzed, table) for table in tables}, peak)
