"""Small rewrites that make a statement mean the same on every engine."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.generator import Generator

from gateway.errors import SyntaxInvalid
from gateway.sql import names
from gateway.sql.dialects.names import HIVES
from gateway.sql.nodes import find_all, position_of
from gateway.sql.parser_dialects import LIBRARY_DEFECTS, SparkAsWritten

LONGEST_NAME = 120
_WRITE_TIMES = ("date_format", "from_unixtime")  # by a pattern


def settle_casts(tree: exp.Expr, dialect: str) -> None:
    """Say of each CAST whether it fails or gives NULL; the parser leaves that to the dialect it is written in.

    In Spark 4 a value that does not fit is an error, in Hive and Impala it is NULL.
    """
    for cast in find_all(tree, exp.TryCast):
        if cast.args.get("safe"):
            continue
        if dialect in HIVES:
            cast.set("safe", True)
        else:
            cast.replace(exp.Cast(**{name: value for name, value in cast.args.items() if name in ("this", "to")}))


def count_weekdays(tree: exp.Expr) -> None:
    """Write the pattern ``u`` as what it was until Spark 3 gave it up: the day of the week, 1 for Monday, as text.

    Tools for Hive cut times to weeks by it.
    """
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() not in _WRITE_TIMES or len(call.expressions) != len(("time", "pattern")):
            continue
        time, pattern = call.expressions
        if pattern.is_string and pattern.name == "u":
            if call.name.lower() == "from_unixtime":
                time = exp.Anonymous(this="from_unixtime", expressions=[time])
            day = exp.Anonymous(this="weekday", expressions=[exp.Anonymous(this="to_date", expressions=[time])])
            call.replace(exp.cast(exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(1))), "string"))


def name_columns_in_brackets(tree: exp.Expr) -> None:
    """Give columns in brackets their own names, as every engine does: ``SELECT DISTINCT (a)`` has a column a."""
    for select in find_all(tree, exp.Select):
        for expression in select.expressions:
            column = expression.unnest()
            if isinstance(expression, exp.Paren) and isinstance(column, exp.Column) and not column.is_star:
                name = exp.to_identifier(column.name, quoted=column.this.quoted)
                expression.replace(exp.Alias(this=expression.copy(), alias=name))


def name_outputs(tree: exp.Expr) -> None:
    """Give expressions without an alias their own text as a name; engines would each invent another one.

    A column in brackets is the column, by its own name.
    """
    writer = SparkAsWritten().generator(normalize_functions="lower", comments=False)
    for select in find_all(tree, exp.Select):
        for expression in select.expressions:
            if isinstance(expression, exp.Paren) and isinstance(expression.unnest(), exp.Column):
                expression.replace(expression.unnest())
        if any(_is_nameless(expression) for expression in select.expressions):
            select.set("expressions", [_named(expression, writer) for expression in select.expressions])


def _is_nameless(expression: exp.Expr) -> bool:
    named = isinstance(expression, exp.Alias | exp.Aliases | exp.Column | exp.Star) or expression.is_star
    return not named and not names.is_generator(expression)  # which names its columns itself


def _named(expression: exp.Expr, writer: Generator) -> exp.Expr:
    if not _is_nameless(expression):
        return expression
    try:
        text = writer.generate(expression)
    except LIBRARY_DEFECTS as error:
        message = "Syntax error: a function or type has arguments that its dialect does not know."
        raise SyntaxInvalid(message, position_of(expression)) from error
    return exp.alias_(expression, text[:LONGEST_NAME], quoted=True, copy=False)
