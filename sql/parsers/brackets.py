"""Brackets where the text of a tree would otherwise be parsed as another tree.

The parser keeps the brackets that a client wrote. Other operands, and expressions that rules of dialects build, get
them here. Where dialects disagree about an expression without brackets, the client has to write them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from sql.nodes import find_all

_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TESTS = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
_RANKED_DIFFERENTLY = frozenset((*_BITS, exp.DPipe))
_ARITHMETIC = (*_BITS, exp.DPipe, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_TRUTHS, _UNARY = 3, 10
_RANKS: dict[type[exp.Expr], int] = {  # as Spark has them, the loosest first
    exp.Or: 0,
    exp.And: 1,
    exp.Not: 2,
    **dict.fromkeys((*_COMPARISONS, *_TESTS), _TRUTHS),
    exp.BitwiseOr: 4,
    exp.BitwiseXor: 5,
    exp.BitwiseAnd: 6,
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), 7),
    **dict.fromkeys((exp.Add, exp.Sub, exp.DPipe), 8),
    **dict.fromkeys((exp.Mul, exp.Div, exp.IntDiv, exp.Mod), 9),
    **dict.fromkeys((exp.Neg, exp.BitwiseNot), _UNARY),
    **dict.fromkeys((exp.Bracket, exp.Dot), 11),
}
_OPERANDS = ("this", "expression", "low", "high")
_MODIFIERS = ("with_", "order", "limit", "offset", "sort", "cluster", "distribute")


def put_brackets(tree: exp.Expr) -> exp.Expr | None:
    """Put brackets around operands and queries that need them. Returns the first comparison of a comparison.

    Examples are ``a = b < c`` and ``x RLIKE y IN ('z')``: every product reads them in its own way, or not at all.
    """
    doubtful = None
    for node in find_all(tree, *_RANKS):
        for name, operand in _operands(node):
            if _is_doubtful(node, name, operand):
                doubtful = doubtful or node
            if _needs_brackets(node, name, operand):
                node.set(name, exp.paren(operand, copy=False))
    for query in find_all(tree, exp.SetOperation):
        for name in ("this", "expression"):
            side = query.args[name]
            if isinstance(side, exp.Select | exp.SetOperation) and any(map(side.args.get, _MODIFIERS)):
                query.set(name, exp.Subquery(this=side))
    return doubtful


def put_brackets_around_bits(tree: exp.Expr) -> exp.Expr | None:
    """Put brackets around operands of operators that dialects rank differently: ``||`` and bitwise ones.

    Returns the first bitwise operator without brackets; None: all had them.
    """
    first = None
    for node in find_all(tree, *_BITS, exp.DPipe, exp.Add, exp.Sub):
        for side in ("this", "expression"):
            operand = node.args[side]
            kinds = {type(node), type(operand)}
            if isinstance(operand, _ARITHMETIC) and len(kinds) == 2 and kinds.intersection(_RANKED_DIFFERENTLY):
                node.set(side, exp.paren(operand, copy=False))
                first = first or next((one for one in (node, operand) if isinstance(one, _BITS)), None)
    return first


def _operands(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for name in _OPERANDS:
        operand = node.args.get(name)
        if isinstance(operand, exp.Expr) and type(operand) in _RANKS:
            yield name, operand


def _needs_brackets(node: exp.Expr, name: str, operand: exp.Expr) -> bool:
    rank, inner = _RANKS[type(node)], _RANKS[type(operand)]
    if inner != rank:
        return inner < rank
    if isinstance(node, exp.Not | exp.And | exp.Or) or (isinstance(node, exp.Escape) and name == "this"):
        return False
    return rank in (_TRUTHS, _UNARY) or name != "this"


def _is_doubtful(node: exp.Expr, name: str, operand: exp.Expr) -> bool:
    if _RANKS[type(node)] != _TRUTHS or not _needs_brackets(node, name, operand):
        return False
    from_the_left = name == "this" and isinstance(node, _COMPARISONS) and isinstance(operand, _COMPARISONS)
    return _RANKS[type(operand)] == _TRUTHS and not from_the_left
