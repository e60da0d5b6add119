"""Impala's EXPLAIN text -> Plan, at every level from MINIMAL to VERBOSE, of one node or distributed.

The text draws a tree: a node's first input stands below it, the others hang on ``|--``; VERBOSE draws one for each
fragment. Plans of the classic front end and of Calcite's are told apart. What is not known becomes Operator.OTHER or a
note. Columns are printed without their tables unless the statement wrote them; they are told apart
by the catalog, and without one by the columns that each scan itself names.

START HERE: outline.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.impala.plan_reader.nodes import Builder
from engines.impala.plan_reader.outline import Outline
from selector.plan import Plan, TableShape, UnreadablePlan

DIALECT = "hive"  # nearest to Impala's own, which sqlglot does not have

__all__ = ["DIALECT", "UnreadablePlan", "read"]


def read(text: str, tables: Sequence[TableShape] = ()) -> Plan:
    """Read a plan; tables: those that the statement names, where they are known. Raises UnreadablePlan."""
    outline = Outline.of(text)
    root = Builder(outline, tables).root()
    return Plan(
        root,
        DIALECT,
        tuple(outline.notes),
        reservation_bytes=outline.reservation_bytes,
        estimate_bytes=outline.estimate_bytes,
    )
