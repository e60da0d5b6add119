"""What a cost model is, and how the one of an engine is found.

An engine names the module of its model (``Engine.cost_model``), which holds it as ``MODEL``; nothing else knows which
engines there are. An engine without one is never chosen by an estimate.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from selector.cardinality.tree import EstimatedNode
from selector.estimate import MemoryEstimate
from selector.join_keys import KeyPair
from selector.plan import Plan, TableShape
from selector.statistics import TableStatistics


class CostModel(Protocol):
    """Reads one engine's plans, and prices what they hold at once."""

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        named: Mapping[str, Sequence[str]],
    ) -> Plan:
        """Return the plan that a text describes. Raises UnreadablePlan.

        tables: of the statement. joined, references, named: which columns it joins, how often it names each table, and
        which columns of it.
        """

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return what a statement takes at its peak, in bytes per host. threads, hosts: that it runs on."""


def model_of(module: str) -> CostModel:
    """Return the cost model of a module. Raises ImportError, AttributeError."""
    model: CostModel = importlib.import_module(module).MODEL
    return model
