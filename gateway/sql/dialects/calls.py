"""Small parts of trees that rules of dialects make and look at."""

from __future__ import annotations

from sqlglot import exp

from gateway.errors import NotAllowed
from gateway.sql.nodes import position_of


def refused(node: exp.Expr, message: str) -> NotAllowed:
    """Return the refusal of a part of a statement, with its place."""
    return NotAllowed(message, position_of(node))


def call_of(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function of Spark's."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def whole_number(node: exp.Expr) -> int | None:
    """Return the whole number that an expression writes out, if it does."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        return None
    return -int(literal.name) if negative else int(literal.name)


def is_text(node: exp.Expr) -> bool:
    """Tell whether an expression is a text that is written out."""
    return isinstance(node, exp.Literal) and bool(node.is_string)
