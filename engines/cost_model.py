"""The protocol of a cost model.

An engine names the module of its model (``Engine.cost_model``), which defines it as ``MODEL``; nothing else names
engines. An engine without a model is never chosen by an estimate.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from selector.estimate import MemoryEstimate
from selector.join_keys import KeyPair
from selector.plan import Plan, TableShape
from selector.query_text import Wording
from selector.statistics import TableStatistics

if TYPE_CHECKING:
    from selector.cardinality.tree import EstimatedNode


class CostModel(Protocol):
    """Reads one engine's plans and estimates their memory. dialect: the parser's name for the dialect of its plans."""

    dialect: str

    def read(
        self,
        text: str,
        tables: Sequence[TableShape],
        joined: Iterable[KeyPair],
        references: Mapping[str, int],
        wording: Wording,
    ) -> Plan:
        """Return the plan of a text of EXPLAIN. Raises UnreadablePlan.

        tables: of the statement.
        joined: columns that the statement compares for equality.
        references: uses of each table.
        wording: the statement's own words.
        """

    def price(
        self, tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, threads: int, hosts: int
    ) -> MemoryEstimate:
        """Return a statement's peak memory in bytes per host. threads, hosts: used by the statement."""


def model_of(module: str) -> CostModel:
    """Return the cost model of a module. Raises ImportError, AttributeError."""
    model: CostModel = importlib.import_module(module).MODEL
    return model
