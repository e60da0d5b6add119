"""Expressions of Spark's with places for others: how functions of other dialects are said in Spark's words."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from gateway.sql.parser_dialects import SparkAsWritten

_BARE = (exp.Column, exp.Distinct, exp.Literal, exp.Anonymous, exp.Paren, exp.Cast, exp.TryCast, exp.Null, exp.Boolean)


def filled(template: str, **arguments: exp.Expr) -> exp.Expr:
    """Return a template's tree with copies of the arguments in the place of columns of their names."""
    tree = _parsed(template).copy()
    for column in list(tree.find_all(exp.Column)):
        argument = arguments.get(column.name)
        if argument is None:
            continue
        meant = argument.copy() if isinstance(argument, _BARE) else exp.paren(argument)
        if column is tree:
            tree = meant
        else:
            column.replace(meant)
    return tree


@lru_cache(maxsize=512)
def _parsed(template: str) -> exp.Expr:
    select = SparkAsWritten().parse(f"SELECT {template}")[0]
    assert isinstance(select, exp.Select)
    tree: exp.Expr = select.expressions[0].pop()
    return tree if isinstance(tree, _BARE) else exp.paren(tree, copy=False)
