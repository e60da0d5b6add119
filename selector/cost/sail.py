"""Sail's plans and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from selector.cardinality.tree import EstimatedNode
from selector.estimate import MemoryEstimate
from selector.explain import sail as explain
from selector.join_keys import KeyPair
from selector.memory import paper
from selector.memory import sail as memory
from selector.plan import Plan, TableShape
from selector.statistics import TableStatistics


class SailCost:
    """Implements ``CostModel``."""

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        named: Mapping[str, Sequence[str]],
    ) -> Plan:
        """Read the text of EXPLAIN COST. Raises UnreadablePlan."""
        return explain.read(text, tables)

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return the peak of its operators; it runs on one host."""
        found = memory.estimate(tree, statistics, notes=plan.notes)
        return replace(found, paper_bytes=paper.peak_bytes(tree, statistics, threads=threads))


MODEL = SailCost()
