"""Pipe operators (``FROM t |> WHERE x > 1 |> SELECT y``) as nodes of a tree, and as Spark's text.

A piped query is a SELECT over the query before it, so that names and rights are checked as in any other. It is written
with its pipes: an operator also sees names of tables that a sub-query in brackets would hide.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.generator import Generator


class Piped(exp.Select):
    """One pipe operator; ``from_`` is the query before it.

    operator: its first word. keys: how many of the expressions AGGREGATE groups by.
    """

    arg_types: ClassVar = {**exp.Select.arg_types, "operator": True, "keys": False}


def piped_sql(writer: Generator, node: Piped) -> str:
    """Write a piped query in Spark's words."""
    source = node.args["from_"].this
    before = writer.sql(source.this if _is_bare(source) else source)
    text = f"{before} |> {_operator(writer, node, source)}"
    return writer.prepend_ctes(node, text)


def _is_bare(source: exp.Subquery) -> bool:
    """Return True if the parser added the sub-query: the statement had no brackets there."""
    return isinstance(source.this, exp.Select) and not any(
        source.this.args.get(part)
        for part in ("order", "limit", "offset", "sort", "cluster", "distribute", "with_")
        if not isinstance(source.this, Piped)
    )


def _operator(writer: Generator, node: Piped, source: exp.Subquery) -> str:
    word, outputs = node.args["operator"], node.expressions
    match word:
        case "SELECT":
            distinct = "DISTINCT " if node.args.get("distinct") else ""
            hint = writer.sql(node, "hint")
            listed = writer.expressions(sqls=outputs, flat=True)
            windows = writer.expressions(node, key="windows", flat=True)
            return f"SELECT{hint} {distinct}{listed}" + (f" WINDOW {windows}" if windows else "")
        case "EXTEND":
            return f"EXTEND {writer.expressions(sqls=outputs[1:], flat=True)}"
        case "AGGREGATE":
            keys = writer.expressions(sqls=outputs[: node.args["keys"]], flat=True)
            aggregates = writer.expressions(sqls=outputs[node.args["keys"] :], flat=True)
            return " ".join(part for part in ("AGGREGATE", aggregates, keys and f"GROUP BY {keys}") if part)
        case "SET":
            changed = outputs[0].args["replace"]
            return "SET " + ", ".join(f"{writer.sql(one, 'alias')} = {writer.sql(one, 'this')}" for one in changed)
        case "DROP":
            return "DROP " + ", ".join(writer.sql(name) for name in outputs[0].args["except_"])
        case "AS":
            return f"AS {writer.sql(source, 'alias')}"
        case "PIVOT" | "UNPIVOT":
            return writer.expressions(source, key="pivots", sep=" ", flat=True).strip()
        case "TABLESAMPLE":
            return writer.sql(source, "sample").strip()
        case _:
            return writer.query_modifiers(node, "").strip()
