"""A cost model of an engine whose plans say what they take with each thread: ``takes 5 MiB``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from selector.cardinality.tree import EstimatedNode
from selector.estimate import MemoryEstimate
from selector.join_keys import KeyPair
from selector.plan import Operator, Plan, PlanNode, TableShape, UnreadablePlan
from selector.statistics import TableStatistics
from selector.wording import MIB


class ToyCost:
    """Implements ``CostModel``."""

    dialect = "duckdb"

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        named: Mapping[str, Sequence[str]],
    ) -> Plan:
        """Take the text as it is. Raises UnreadablePlan."""
        if not text.startswith("takes "):
            raise UnreadablePlan(text)
        return Plan(PlanNode(Operator.EMPTY, "TOY"), "duckdb", (text,))

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return what the plan says."""
        peak_bytes = int(plan.notes[0].split()[1]) * MIB * threads
        return MemoryEstimate(peak_bytes, peak_bytes)


MODEL = ToyCost()
