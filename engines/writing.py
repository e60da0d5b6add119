"""A checked statement -> an engine's own SQL: the common part of all engines' writers.

A writer is a module with ``write(statement) -> str``, which an engine names (``Engine.writer``). It may also have
``knows_function(name)``; without that, it knows every function that statements may call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError, UnsupportedError

from engines.errors import NoEquivalent, UnsupportedFeature
from selector.types import NoSuchType
from sql.allowlist import syntax
from sql.allowlist.functions import IN_EVERY_DIALECT
from sql.errors import NotAllowed
from sql.guards import FENCE, MASKED, RAISE
from sql.limits.growth import guarded
from sql.nodes import find_all
from sql.parsers.dialects import LIBRARY_DEFECTS, SparkAsWritten
from sql.parsers.hints import without_hints
from sql.statement import CheckedStatement

READ_BACK = 2_048  # texts that were parsed again, kept
_CHOICES = frozenset({"coalesce", "decode", "ifnull", "nullif", "nvl", "nvl2"})
_CANNOT = "the statement cannot be written in its dialect"


def written(
    statement: CheckedStatement,
    write: Callable[[CheckedStatement], str],
    *,
    reader: type[Dialect],
    functions: frozenset[str] | None,
    takes_collations: bool = False,
) -> str:
    """Return a writer's text after it was parsed again, to make sure that it is one query over the same tables.

    Raises UnsupportedFeature if the engine's SQL cannot express the statement, NoEquivalent if it has no verified
    equivalent.

    reader: dialect of the engine's SQL.
    functions: allowed in the text; None: all.
    takes_collations: the engine compares texts by the collations of their columns.
    """
    collated = [column.name for table in statement.tables for column in table.columns if column.collation]
    if collated and not takes_collations:
        raise NoEquivalent(f"a collation, which the column {collated[0]} has.")
    try:
        text = write(statement)
        _read_back(text, reader, functions, frozenset(table.name for table in statement.tables))
        return text
    except (UnsupportedError, ParseError, TokenError) as error:
        raise UnsupportedFeature(f"{_CANNOT}: {str(error).splitlines()[0]}") from error
    except NoSuchType as error:
        raise NoEquivalent(f"a value of type {error}.") from error
    except RecursionError as error:
        raise UnsupportedFeature("the statement is nested too deeply to be written in its dialect.") from error


def knows_function(writer: str, name: str) -> bool:
    """Return True if a writer can write a function of Spark, at least for some of its uses."""
    knows: Callable[[str], bool] | None = getattr(importlib.import_module(writer), "knows_function", None)
    return knows is None or knows(name)


def in_spark_sql(statement: CheckedStatement, dialect: type[Dialect]) -> str:
    """Write a statement in Spark's SQL, with guards where data decides the size of a value."""
    return _printed(_for_optimizers(statement), dialect)


def in_library_dialect(statement: CheckedStatement, dialect: type[Dialect]) -> str:
    """Write a statement with a writer of the parser's library, which has its own nodes for functions.

    Raises UnsupportedFeature for syntax or a function that is allowed in Spark's dialect only.
    """
    tree = _for_optimizers(statement)
    try:
        syntax.check(tree, functions=IN_EVERY_DIALECT | {RAISE})
        syntax.check(tree, functions=None)
    except NotAllowed as error:
        raise UnsupportedFeature(f"it runs only on Spark: {error.message}") from error
    try:
        text = without_hints(tree).sql(dialect=SparkAsWritten, identify=True, comments=False)
        tree = sqlglot.parse_one(text, read="spark")
    except LIBRARY_DEFECTS as error:
        raise UnsupportedFeature(f"{_CANNOT}.") from error
    return _printed(tree, dialect)


def _for_optimizers(statement: CheckedStatement) -> exp.Expr:
    """Return the tree with guards and fences, and without constant masks where something is masked."""
    tree = _fenced(guarded(statement.tree, _expression))
    return _unfolded(tree) if statement.restricted else tree


def _fenced(tree: exp.Expr) -> exp.Expr:
    """Return a tree with fences as Spark knows them: optimizers move nothing past what is another value each time."""
    if not any(map(is_fence, find_all(tree, exp.Anonymous))):
        return tree
    tree = tree.copy()
    for node in filter(is_fence, find_all(tree, exp.Anonymous)):
        node.replace(_expression("rand() + 1 > 0"))  # Spark knows that rand() >= 0, and would leave it away
    return tree


def _unfolded(tree: exp.Expr) -> exp.Expr:
    """Return a tree in whose masks Spark sees no constant.

    It evaluates what stands over a constant while it plans, and fails for a value that a statement looks at in no row.
    """
    if not any(map(_may_be_constant, find_all(tree, exp.Alias))):
        return tree
    tree = tree.copy()
    for node in filter(_may_be_constant, find_all(tree, exp.Alias)):
        choice = _expression("coalesce(CASE WHEN masked IS NULL THEN NULL ELSE mask END, mask)")
        by_name = {"masked": exp.column(node.args["alias"]), "mask": node.this}
        for place in find_all(choice, exp.Column):
            place.replace(by_name[place.name].copy())
        node.set("this", choice)
    return tree


def _may_be_constant(node: exp.Expr) -> bool:
    """Tell whether an output is a mask without columns, or one that makes a choice: its condition may be a constant."""
    if MASKED not in node.meta:
        return False
    parts = find_all(node.this, exp.Column, exp.Case, exp.If, exp.Anonymous)
    return not any(isinstance(part, exp.Column) for part in parts) or any(
        isinstance(part, exp.Case | exp.If) or part.name.lower() in _CHOICES for part in parts
    )


def is_fence(node: exp.Expr) -> bool:
    """Tell whether a condition is the fence above a row filter (``sql/access/fencing.py``)."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == FENCE


def _printed(tree: exp.Expr, dialect: type[Dialect]) -> str:
    try:
        return tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    except LIBRARY_DEFECTS as error:
        raise UnsupportedFeature(f"{_CANNOT}.") from error


def _expression(text: str) -> exp.Expr:
    """Parse an expression of the gateway."""
    query = SparkAsWritten().parse(f"SELECT {text}")[0]
    expression = query.expressions[0] if isinstance(query, exp.Select) else None
    assert isinstance(expression, exp.Expr)
    return expression


@lru_cache(maxsize=READ_BACK)
def _read_back(text: str, reader: type[Dialect], functions: frozenset[str] | None, tables: frozenset[str]) -> None:
    trees = reader().parse(text)
    if len(trees) != 1 or trees[0] is None:
        raise UnsupportedFeature(f"{_CANNOT}.")
    tree = trees[0]
    try:
        syntax.check(tree, functions=functions)
    except NotAllowed as error:
        raise UnsupportedFeature(f"{_CANNOT}: {error.message}") from error
    sources = find_all(tree, exp.CTE, exp.Table)
    readable = tables | {node.alias for node in sources if isinstance(node, exp.CTE)}
    named = [node for node in sources if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)]
    if any(node.name not in readable or node.db for node in named):
        raise UnsupportedFeature(f"{_CANNOT}.")
