"""Divisions of dialects in which a quotient of whole numbers is whole: told apart by the types of both sides."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from engines.protocol import TableSource
from gateway.errors import NotAllowed
from gateway.sql.duckdb.expressions import TYPED_DIVISION
from gateway.sql.duckdb.queries import Queries
from gateway.sql.duckdb.values import NoEquivalent
from gateway.sql.nodes import find_all


def mark_typed_divisions(tree: exp.Expr) -> None:
    """Put a name of ours in place of the sign, which means something else in Spark."""
    for division in find_all(tree, exp.Div):
        if division.args.get("typed"):
            division.replace(exp.Anonymous(this=TYPED_DIVISION, expressions=[division.this, division.expression]))


def resolve_divisions(tree: exp.Expr, tables: Sequence[TableSource]) -> None:
    """Put what Spark calls them in place of marked divisions. Raises NotAllowed where the types cannot be told."""
    marked = [node for node in find_all(tree, exp.Anonymous) if node.name.lower() == TYPED_DIVISION]
    if not marked:
        return
    queries = Queries({table.name.lower(): table for table in tables})
    try:
        queries.write(tree)
    except NoEquivalent as error:
        hint = "write DIV, or CAST one side to DOUBLE"
        raise NotAllowed(
            f"Whether a division is one of whole numbers cannot be told: {error.message} ({hint})"
        ) from error
    for node in reversed(marked):  # inner ones first
        whole = all(queries.kinds[id(part)].is_whole for part in node.expressions)
        left, right = (exp.paren(part, copy=False) for part in node.expressions)
        kind = exp.IntDiv if whole else exp.Div
        node.replace(exp.paren(kind(this=left, expression=right), copy=False))
