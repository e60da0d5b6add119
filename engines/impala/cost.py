"""Impala's plans and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from engines.impala import memory_model as memory
from engines.impala import plan_reader as explain
from selector.cardinality.tree import EstimatedNode
from selector.estimate import MemoryEstimate
from selector.join_keys import KeyPair
from selector.memory import paper
from selector.plan import Plan, TableShape
from selector.query_text import Wording
from selector.statistics import TableStatistics


class ImpalaCost:
    """Implements ``CostModel``."""

    dialect = "hive"  # the nearest that the parser has

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        wording: Wording,
    ) -> Plan:
        """Read the text of EXPLAIN, at any level. Raises UnreadablePlan."""
        return explain.read(text, tables)

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return the peak of the host that takes most."""
        tree_estimate = memory.estimate(tree, plan, statistics, hosts=hosts)
        return replace(tree_estimate, paper_bytes=paper.peak_bytes(tree, statistics, threads=threads))


MODEL = ImpalaCost()
