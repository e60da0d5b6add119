"""Plans as engines print them, kept as golden files, and what tests look at in them."""

from __future__ import annotations

from pathlib import Path

from engines.impala import plan_reader as impala
from selector.plan import Plan, PlanNode, TableShape

GOLDEN = Path(__file__).parent / "golden"


def text_of(name: str) -> str:
    """Return the text of one of Impala's plans."""
    return (GOLDEN / f"impala_{name}.txt").read_text(encoding="utf-8")


def plan_of(name: str, *tables: TableShape) -> Plan:
    """Read one of Impala's plans."""
    return impala.read(text_of(name), tables)


def node_of(plan: Plan, identifier: str) -> PlanNode:
    """Return the first node of an identifier."""
    return next(node for _, node in plan.root.walk() if node.identifier == identifier)


def drawn(plan: Plan) -> str:
    """Draw a plan: one line per node, with what most consumers look at."""
    lines = []
    for depth, node in plan.root.walk():
        words = [node.identifier or "-", str(node.operator), node.label, node.table or "", node.reference or ""]
        words += [f"rows={node.cardinality:.0f}"] if node.cardinality is not None else []
        words += [f"limit={node.limit}"] if node.limit is not None else []
        words += [str(node.join_type)] if node.join_type else []
        words += [str(node.distribution)] if node.distribution else []
        words += [f"{node.placement.fragment}/{node.placement.instances}"] if node.placement else []
        lines.append("  " * depth + " ".join(word for word in words if word))
    return "\n".join(lines) + "\n"
