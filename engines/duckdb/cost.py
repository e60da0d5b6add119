"""DuckDB's plans and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from engines.duckdb import plan_reader as explain
from engines.duckdb.memory import model as memory
from selector.cardinality.tree import EstimatedNode
from selector.estimate import MemoryEstimate
from selector.join_keys import KeyPair
from selector.memory import paper
from selector.plan import Plan, TableShape
from selector.query_text import Wording
from selector.statistics import TableStatistics


class DuckDBCost:
    """Implements ``CostModel``."""

    dialect = "duckdb"

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        wording: Wording,
    ) -> Plan:
        """Read the JSON of EXPLAIN. Raises UnreadablePlan."""
        return explain.read(text, tables, joined, references, wording)

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return the peak of its operators; it runs on one host."""
        estimate = memory.estimate(tree, statistics, threads=threads, notes=plan.notes)
        return replace(estimate, paper_bytes=paper.peak_bytes(tree, statistics, threads=threads))


MODEL = DuckDBCost()
