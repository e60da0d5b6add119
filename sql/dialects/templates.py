"""Templates of Spark's SQL with places for arguments, to rewrite functions of other dialects."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from sql.parsers.dialects import SparkAsWritten

_BARE = (exp.Column, exp.Distinct, exp.Literal, exp.Anonymous, exp.Paren, exp.Cast, exp.TryCast, exp.Null, exp.Boolean)


def filled(template: str, **arguments: exp.Expr) -> exp.Expr:
    """Return a template's tree with copies of the arguments instead of the columns of their names."""
    tree = _parsed(template).copy()
    for column in list(tree.find_all(exp.Column)):
        argument = arguments.get(column.name)
        if argument is None:
            continue
        inserted = argument.copy() if isinstance(argument, _BARE) else exp.paren(argument)
        if column is tree:
            tree = inserted
        else:
            column.replace(inserted)
    return tree


@lru_cache(maxsize=512)
def _parsed(template: str) -> exp.Expr:
    select = SparkAsWritten().parse(f"SELECT {template}")[0]
    assert isinstance(select, exp.Select)
    tree: exp.Expr = select.expressions[0].pop()
    return tree if isinstance(tree, _BARE) else exp.paren(tree, copy=False)
