"""Parts of a tree that the writer reads, by kind of node. A part or a kind that is not named here has no equivalent."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from engines.errors import NoEquivalent
from sql.nodes import nodes
from sql.parsers.words import describe

_SIDES = ("this", "expression")
_QUERY_TAIL = ("with_", "order", "limit", "offset")

_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    # queries
    exp.Select: (
        *("expressions", "from_", "joins", "where", "group", "having", "distinct", "windows", "hint"),
        *_QUERY_TAIL,
    ),
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), (*_SIDES, "distinct", *_QUERY_TAIL)),
    exp.Subquery: ("this", "alias", *_QUERY_TAIL),
    exp.Values: ("expressions", "alias"),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias"),
    exp.From: ("this",),
    exp.Table: ("this", "alias", "joins", "db", "catalog"),
    exp.TableAlias: ("this", "columns"),
    exp.Join: ("this", "side", "kind", "on", "using", "hint"),
    **dict.fromkeys((exp.Where, exp.Having), ("this",)),
    exp.Group: ("expressions", "rollup", "cube", "grouping_sets"),
    **dict.fromkeys((exp.Rollup, exp.Cube, exp.GroupingSets), ("expressions",)),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    **dict.fromkeys((exp.Limit, exp.Offset), ("expression",)),
    exp.Distinct: ("expressions",),
    exp.Alias: ("this", "alias"),
    exp.Star: (),
    exp.Tuple: ("expressions",),
    exp.Identifier: ("this", "quoted"),
    # expressions
    exp.Literal: ("this", "is_string"),
    **dict.fromkeys((exp.RawString, exp.HexString, exp.Boolean, exp.Var), ("this",)),
    exp.Null: (),
    exp.Column: ("this", "table"),
    **dict.fromkeys((exp.Paren, exp.Not, exp.Neg, exp.BitwiseNot), ("this",)),
    **dict.fromkeys(
        (
            *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
            *(exp.Is, exp.Escape, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Extract, exp.Filter),
            *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
        ),
        _SIDES,
    ),
    exp.Div: (*_SIDES, "typed", "safe"),  # the parser's own notes on the dialect's division
    exp.DPipe: (*_SIDES, "safe"),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions", "query"),
    exp.Exists: ("this",),
    **dict.fromkeys((exp.Like, exp.ILike), (*_SIDES, "negate")),
    **dict.fromkeys((exp.Any, exp.All, exp.IgnoreNulls, exp.RespectNulls), ("this",)),
    exp.RegexpLike: _SIDES,
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Cast: ("this", "to"),
    exp.TryCast: ("this", "to", "safe"),
    exp.Trim: ("this", "expression", "position"),
    exp.Substring: ("this", "start", "length"),
    exp.StrPosition: ("this", "substr"),
    exp.Interval: ("this", "unit"),
    exp.Anonymous: ("this", "expressions"),
    exp.Window: ("this", "partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
}
READ: Mapping[type[exp.Expr], frozenset[str]] = {kind: frozenset(parts) for kind, parts in _PARTS.items()}
"""Each name here is read by a method of ``Expressions`` or ``Queries``, or says nothing about the meaning."""

_OTHERWISE_READ = (exp.DataType, exp.DataTypeParam, exp.Hint)
"""Kinds that are read as a text (a type), or that say nothing about the meaning (a hint)."""


def check_parts(tree: exp.Expr) -> None:
    """Raise NoEquivalent for the first node, or part of one, that the writer does not read."""
    for node in nodes(tree, but_below=_OTHERWISE_READ):
        if isinstance(node, _OTHERWISE_READ):
            continue
        parts = READ.get(type(node))
        if parts is None:
            raise NoEquivalent(f"{describe(node)}.")
        unread = [name for name, value in node.args.items() if value and name not in parts]
        if unread:
            raise NoEquivalent(f"{', '.join(name.strip('_').upper() for name in unread)} of {describe(node)}.")
