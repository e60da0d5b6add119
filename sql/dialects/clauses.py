"""Clauses that control how one product runs a query, rewritten to what every engine can keep.

SELECT STRAIGHT_JOIN            removed: the engine orders joins
DISTRIBUTE BY k                 removed: the engine assigns rows to tasks
SORT BY k                       ORDER BY k, one of the orders that it allows
CLUSTER BY k                    ORDER BY k, as DISTRIBUTE BY k SORT BY k
X'1F'                           bytes, two digits for each
"""

from __future__ import annotations

from string import hexdigits

from sqlglot import exp

from sql.dialects.names import IMPALA
from sql.errors import SyntaxInvalid
from sql.nodes import find_all, position_of
from sql.parsers.spark import SPELLED

_ORDERS = ("order", "sort", "cluster")
_SPREADS = ("distribute", "cluster")


def resolve_clauses(tree: exp.Expr, dialect: str) -> None:
    """Rewrite these clauses. Raises SyntaxInvalid where two of them exclude one another."""
    for query in tree.find_all(exp.Select, exp.SetOperation, exp.Subquery):
        query.set("operation_modifiers", None)
        orders = [name for name in _ORDERS if query.args.get(name) is not None]
        spreads = [name for name in _SPREADS if query.args.get(name) is not None]
        if not spreads and orders in ([], ["order"]):
            continue
        if len(orders) > 1 or len(spreads) > 1 or (spreads and orders == ["order"]):
            raise SyntaxInvalid(
                "Syntax error: of ORDER BY, CLUSTER BY, and SORT BY with DISTRIBUTE BY, a query has one.",
                position_of(query.args[(spreads or orders)[0]]),
            )
        for name in orders:
            keys = [_ordered(key, dialect) for key in query.args[name].expressions]
            query.set("order", exp.Order(expressions=keys))
        for name in {*orders, *spreads}:
            query.set(name, None)
    for literal in find_all(tree, exp.HexString):
        digits = literal.name
        if any(digit not in hexdigits for digit in digits):
            raise SyntaxInvalid("Syntax error: X'...' takes digits from 0 to F.", position_of(literal))
        if digits:
            literal.set("this", digits.zfill(len(digits) + len(digits) % 2).upper())
        else:  # the parser's writers fail on a number without digits
            cast = exp.cast(exp.Literal.string(""), exp.DType.BINARY)
            cast.meta[SPELLED] = "X''"
            literal.replace(cast)


def _ordered(key: exp.Expr, dialect: str) -> exp.Ordered:
    """Return a key of ORDER BY; without NULLS FIRST or LAST, the dialect's default applies."""
    return key if isinstance(key, exp.Ordered) else exp.Ordered(this=key, nulls_first=dialect != IMPALA)
