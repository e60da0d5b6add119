"""Helpers that build and inspect small parts of trees, for the rules of dialects."""

from __future__ import annotations

from sqlglot import exp

from sql.errors import NotAllowed
from sql.nodes import position_of


def refused(node: exp.Expr, message: str) -> NotAllowed:
    """Return an error about a part of a statement, with its position."""
    return NotAllowed(message, position_of(node))


def wrong_count(call: exp.Anonymous) -> NotAllowed:
    """Return an error about the number of a call's arguments."""
    return refused(call, f"{call.name.upper()} does not take {len(call.expressions)} arguments.")


def call_of(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function of Spark."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def whole_number(node: exp.Expr) -> int | None:
    """Return the value of an integer literal; None: it is another expression."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        return None
    return -int(literal.name) if negative else int(literal.name)


def is_text(node: exp.Expr) -> bool:
    """Return True for a string literal."""
    return isinstance(node, exp.Literal) and bool(node.is_string)
