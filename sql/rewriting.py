"""Small rewrites that make a statement mean the same on every engine."""

from __future__ import annotations

from sqlglot import exp

from sql.allowlist.syntax import is_generator
from sql.default_names import default_name
from sql.dialects.names import HIVES
from sql.nodes import find_all
from sql.parsers.dialects import SparkAsWritten, SparkWriter
from sql.parsers.spark import COLUMN_NAME

DEFAULT_NAME = "default name"
"""Key of the ``meta`` of an alias that the statement did not have: Spark would give the column this name."""


def resolve_casts(tree: exp.Expr, dialect: str) -> None:
    """Decide for each CAST if it fails or returns NULL; the parser leaves that to the dialect in which it is written.

    In Spark 4 a value that does not fit is an error, in Hive and Impala it is NULL.
    """
    for cast in find_all(tree, exp.TryCast):
        if cast.args.get("safe"):
            continue
        if dialect in HIVES:
            cast.set("safe", True)
        else:
            cast.replace(exp.Cast(**{name: value for name, value in cast.args.items() if name in ("this", "to")}))


def name_columns_in_brackets(tree: exp.Expr) -> None:
    """Name columns in brackets as every engine does: ``SELECT DISTINCT (a)`` has a column a."""
    for select in find_all(tree, exp.Select):
        for expression in select.expressions:
            column = expression.unnest()
            if isinstance(expression, exp.Paren) and isinstance(column, exp.Column) and not column.is_star:
                name = exp.to_identifier(column.name, quoted=column.this.quoted)
                expression.replace(exp.Alias(this=expression.copy(), alias=name))


def name_outputs(tree: exp.Expr) -> None:
    """Name expressions without an alias as Spark does, so that every engine returns the same names.

    A column in brackets keeps its own name.
    """
    for select in find_all(tree, exp.Select):
        for expression in select.expressions:
            if isinstance(expression, exp.Paren) and isinstance(expression.unnest(), exp.Column):
                expression.replace(expression.unnest())
            elif isinstance(expression, exp.Alias) and expression.meta.get(DEFAULT_NAME):
                expression.args["alias"].set("this", default_name(expression.this))  # may have been resolved since
        if any(_is_nameless(expression) for expression in select.expressions):
            select.set("expressions", [named(expression) for expression in select.expressions])


def _is_nameless(expression: exp.Expr) -> bool:
    has_name = isinstance(expression, exp.Alias | exp.Aliases | exp.Column | exp.Star)
    return not has_name and not is_generator(expression)  # a generator names its own columns


def named(expression: exp.Expr) -> exp.Expr:
    """Return an output with Spark's name for it, if it has none."""
    if not _is_nameless(expression):
        return expression
    name = expression.meta.get(COLUMN_NAME)
    name_node = exp.to_identifier(name or default_name(expression), quoted=True)
    alias = exp.Alias(this=expression, alias=name_node)
    alias.meta[DEFAULT_NAME] = name is None
    return alias


class _NamelessWriter(SparkWriter):
    """Spark's writer that leaves out names that Spark would give itself."""

    def alias_sql(self, expression: exp.Alias) -> str:
        """Write an alias of the statement, or of an expression that was rewritten."""
        is_ours = expression.meta.get(DEFAULT_NAME) and default_name(expression.this) == expression.alias
        return self.sql(expression, "this") if is_ours else super().alias_sql(expression)


class SparkNamesColumns(SparkAsWritten):
    """Spark's SQL for Spark itself, which names columns without an alias."""

    Generator = _NamelessWriter
