"""Words of a query that say how others do their work: they are taken, and mean what can be kept on every engine.

SELECT STRAIGHT_JOIN            nothing: the order of joins is the engine's
DISTRIBUTE BY k                 nothing: which task gets a row is the engine's
SORT BY k                       ORDER BY k, which is one of the orders that it allows
CLUSTER BY k                    ORDER BY k, as DISTRIBUTE BY k SORT BY k
X'1F'                           bytes, two digits for each
"""

from __future__ import annotations

from string import hexdigits

from sqlglot import exp

from gateway.errors import SyntaxInvalid
from gateway.sql.dialects.names import IMPALA
from gateway.sql.nodes import find_all, position_of

_ORDERS = ("order", "sort", "cluster")
_SPREADS = ("distribute", "cluster")


def settle_clauses(tree: exp.Expr, dialect: str) -> None:
    """Write these clauses as what they mean. Raises SyntaxInvalid where two of them exclude one another."""
    for query in tree.find_all(exp.Select, exp.SetOperation, exp.Subquery):
        query.set("operation_modifiers", None)
        orders = [name for name in _ORDERS if query.args.get(name) is not None]
        spreads = [name for name in _SPREADS if query.args.get(name) is not None]
        if not spreads and orders in ([], ["order"]):
            continue
        if len(orders) > 1 or len(spreads) > 1 or (spreads and orders == ["order"]):
            raise SyntaxInvalid(
                "Syntax error: of ORDER BY, CLUSTER BY, and SORT BY with DISTRIBUTE BY a query has one.",
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
        else:  # of which the parser's writers make no number
            literal.replace(exp.cast(exp.Literal.string(""), exp.DType.BINARY))


def _ordered(key: exp.Expr, dialect: str) -> exp.Ordered:
    """Return a key of an order; where CLUSTER BY does not say it, NULL stands where the dialect has it."""
    return key if isinstance(key, exp.Ordered) else exp.Ordered(this=key, nulls_first=dialect != IMPALA)
