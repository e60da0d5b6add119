"""Names of syntax in messages: ``describe`` translates the parser's names of nodes, which no message shows.

Syntax that is not in the table is shown as its own SQL text.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError

from sql.parsers.dialects import LIBRARY_DEFECTS, SparkAsWritten

SHOWN = 40  # characters of a text in a message
UNNAMED = "A part of the statement"

_WORDS: Mapping[type[exp.Expr], str] = {
    exp.Alias: "A name given with AS",
    exp.Aliases: "A list of names after AS",
    exp.All: "ALL",
    exp.And: "AND",
    exp.Any: "ANY",
    exp.Array: "An array",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Between: "BETWEEN",
    exp.BitwiseAnd: "The operator &",
    exp.BitwiseLeftShift: "The operator <<",
    exp.BitwiseNot: "The operator ~",
    exp.BitwiseOr: "The operator |",
    exp.BitwiseRightShift: "The operator >>",
    exp.BitwiseXor: "The operator ^",
    exp.Boolean: "A truth value",
    exp.Bracket: "An element of an array or map",
    exp.Case: "CASE",
    exp.Cast: "CAST",
    exp.Collate: "COLLATE",
    exp.Column: "A column",
    exp.ColumnDef: "A column's definition",
    exp.CTE: "A common table expression",
    exp.Cube: "CUBE",
    exp.DPipe: "The operator ||",
    exp.DataType: "A type",
    exp.Distinct: "DISTINCT",
    exp.Dot: "A field of a struct",
    exp.Escape: "ESCAPE",
    exp.Except: "EXCEPT",
    exp.Exists: "EXISTS",
    exp.Fetch: "FETCH",
    exp.Filter: "FILTER",
    exp.From: "FROM",
    exp.Group: "GROUP BY",
    exp.GroupingSets: "GROUPING SETS",
    exp.Having: "HAVING",
    exp.Hint: "A hint",
    exp.Identifier: "A name",
    exp.If: "IF",
    exp.In: "IN",
    exp.Intersect: "INTERSECT",
    exp.Interval: "INTERVAL",
    exp.Into: "SELECT INTO",
    exp.Is: "IS",
    exp.Join: "JOIN",
    exp.JSONExtract: "A path into JSON",
    exp.Kwarg: "An argument given by its name",
    exp.Lambda: "A lambda function",
    exp.Lateral: "LATERAL",
    exp.Like: "LIKE",
    exp.Limit: "LIMIT",
    exp.LimitOptions: "An option of LIMIT or FETCH",
    exp.Literal: "A literal",
    exp.Lock: "FOR UPDATE",
    exp.MatchRecognize: "MATCH_RECOGNIZE",
    exp.Not: "NOT",
    exp.Null: "NULL",
    exp.Offset: "OFFSET",
    exp.Or: "OR",
    exp.Order: "ORDER BY",
    exp.Ordered: "A key of ORDER BY",
    exp.Parameter: "A parameter",
    exp.Paren: "An expression in brackets",
    exp.Pivot: "PIVOT or UNPIVOT",
    exp.Placeholder: "A parameter without a value",
    exp.Qualify: "QUALIFY",
    exp.Rollup: "ROLLUP",
    exp.Select: "SELECT",
    exp.SessionParameter: "A session variable",
    exp.Star: "*",
    exp.Struct: "A struct",
    exp.Subquery: "A sub-query",
    exp.Table: "A table",
    exp.TableAlias: "A table's alias",
    exp.TableSample: "TABLESAMPLE",
    exp.Trim: "TRIM",
    exp.Tuple: "A list in brackets",
    exp.Union: "UNION",
    exp.Unnest: "UNNEST",
    exp.Values: "VALUES",
    exp.Var: "A word",
    exp.Version: "AS OF",
    exp.Where: "WHERE",
    exp.Window: "OVER",
    exp.WindowSpec: "The frame of a window",
    exp.With: "WITH",
}

_EXPECTED: Mapping[str, str] = {
    "Where": "a condition after WHERE",
    "Having": "a condition after HAVING",
    "Qualify": "a condition after QUALIFY",
    "From": "a table after FROM",
    "Join": "a table after JOIN",
    "Group": "a key after GROUP BY",
    "Order": "a key after ORDER BY",
    "Ordered": "a key after ORDER BY",
    "Limit": "a number after LIMIT",
    "Offset": "a number after OFFSET",
    "Cast": "a value and a type in CAST",
    "TryCast": "a value and a type in TRY_CAST",
    "Between": "two values after BETWEEN",
    "Case": "WHEN after CASE",
    "If": "a condition and a value",
    "In": "a list or a query after IN",
    "Like": "a pattern after LIKE",
    "Alias": "a value before its name",
    "With": "a query in WITH",
    "CTE": "a query in WITH",
    "Window": "a function before OVER",
    "Interval": "a value and a unit after INTERVAL",
    "Extract": "a part and a value in EXTRACT",
    "Tuple": "a value in the brackets",
    "Paren": "a value in the brackets",
}
"""Words for the missing part of a node, by the name of its class."""

_REASONS: Mapping[str, str] = {
    "CALL": "there are no procedures",
    **dict.fromkeys(
        ("DECLARE", "SET VAR"), "there are no session variables; put the value into the statement, or bind a parameter"
    ),
    "EXECUTE": "the statement that it runs could not be checked before; send that statement itself",
}
"""Reasons to refuse a statement, by its first words."""

_MISSING = "Required keyword: "
_GOT = " but got "


def describe(node: exp.Expr) -> str:
    """Return the name of a kind of syntax, as the beginning of a sentence."""
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    return next((_WORDS[kind] for kind in type(node).__mro__ if kind in _WORDS), None) or _own_text(node)


def first_word(node: exp.Expr) -> str:
    """Return the first word of a statement."""
    text = _sql(node)
    return text.split()[0].upper() if text else UNNAMED


def why_refused(verb: str) -> str:
    """Return the end of "... is not allowed". verb: first word of the statement, in capitals."""
    return f": {_REASONS[verb]}." if verb in _REASONS else "; only queries are."


def expected(description: str) -> str:
    """Return the text of a syntax error in a reader's words. description: in the library's words."""
    text = description.splitlines()[0] if description else ""
    if text.startswith(_MISSING):
        kind = text.rpartition(".")[2].rstrip("'>. ")
        return f"Expected {_EXPECTED.get(kind, 'another value or name here')}"
    for word in ("table", "database"):
        if text.startswith(f"Expected {word} name"):
            return f"Expected a {word}'s name"
    if text.startswith("Expected at most"):
        return "Expected fewer arguments"
    if text.startswith("Expected DISTINCT or ALL"):
        return "Expected DISTINCT or ALL"
    if "does not support CTE" in text:
        return "Expected a query after WITH"
    if text.startswith("Invalid expression"):
        return "This is not expected here"
    if _GOT in text or "<" in text.replace("Expecting <", ""):
        return "It cannot be read from here on"
    text = text.replace("Expecting ", "Expected ").replace("Failed to parse", "Cannot read")
    return text.rstrip(" :.") or "It cannot be read"


def _own_text(node: exp.Expr) -> str:
    text = _sql(node)
    if len(text) > SHOWN:
        text = f"{text[:SHOWN].rstrip()} ..."
    return f"'{text}'" if text else UNNAMED


def _sql(node: exp.Expr) -> str:
    try:
        return SparkAsWritten().generate(node, comments=False, copy=True).strip()
    except (*LIBRARY_DEFECTS, NameError, SqlglotError, RecursionError):
        return ""
