"""Predicates of a plan that were written anew for its engine, as the statement has them.

What means on an engine what it means in Spark is often long: a quotient of decimals is one of whole numbers, behind a
test for zero. No statistic answers that, and nobody wants to read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_WRITTEN_ANEW = re.compile(r"\bCASE\b|//|\bHUGEINT\b|\bINT128\b")


def in_own_words(text: str, predicates: Sequence[str], dialect: str) -> str:
    """Return a plan's predicate (SQL text) with the statement's own conjuncts in the places of those written anew.

    predicates: the statement's conjuncts that compute something, without tables.
    """
    if not predicates or not _WRITTEN_ANEW.search(text):
        return text
    try:
        condition = sqlglot.parse_one(text, read=dialect).unnest()
    except SqlglotError:
        return text
    conjuncts = condition.flatten() if isinstance(condition, exp.And) else [condition]
    return " AND ".join(f"({_own(conjunct, predicates, dialect)})" for conjunct in conjuncts)


def _own(conjunct: exp.Expr, predicates: Sequence[str], dialect: str) -> str:
    """Return the statement's conjunct of the same columns; of several, the one whose constants are all there."""
    text = conjunct.sql(dialect)
    if not _WRITTEN_ANEW.search(text):
        return text
    columns, constants = _names(text, dialect)
    alike = [own for own in predicates if _names(own, dialect)[0] == columns]
    exact = [own for own in alike if _names(own, dialect)[1] <= constants]
    if isinstance(conjunct.unnest(), exp.Between):  # an engine makes it of two comparisons
        return " AND ".join(exact) or text
    return next((some[0] for some in (exact, alike) if len(some) == 1), text)


@lru_cache(maxsize=4_096)
def _names(text: str, dialect: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the columns that a predicate names, in lower case, and its constants; numbers without trailing zeros."""
    try:
        nodes = list(sqlglot.parse_one(text, read=dialect).find_all(exp.Column, exp.Literal))
        constants = [
            node.name if node.is_string else f"{Decimal(node.name).normalize():f}"
            for node in nodes
            if isinstance(node, exp.Literal)
        ]
    except (SqlglotError, InvalidOperation):
        return frozenset(), frozenset()
    return frozenset(node.name.lower() for node in nodes if isinstance(node, exp.Column)), frozenset(constants)
