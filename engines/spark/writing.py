"""A query whose rows are to be written, with the names and types that the target wants."""

from __future__ import annotations

from collections.abc import Sequence

from engines.errors import StatementError
from engines.protocol import Column, WriteTarget
from selector.quoting import spark_string


def selected(sql: str, given: Sequence[str], target: WriteTarget) -> tuple[str, tuple[str, ...]]:
    """Return the query that gives the target's columns, and their names. given: names of the query's columns.

    Raises StatementError where their number is another one, or a name comes twice.
    """
    if not target.columns:
        names = tuple(given)
        twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
        if twice is not None:
            raise StatementError(f"The query has two columns {twice}; give one of them another name.")
        return sql, names
    if len(given) != len(target.columns):
        raise StatementError(f"The query has {len(given)} columns, the table takes {len(target.columns)} from it.")
    places = [f"c{at}" for at in range(len(given))]
    wanted = [_cast(place, column) for place, column in zip(places, target.columns, strict=True)]
    wanted += [_cast(_literal(value), column) for column, value in target.constants]
    names = (*(column.name for column in target.columns), *(column.name for column, _ in target.constants))
    return f"SELECT {', '.join(wanted)} FROM ({sql}) AS given({', '.join(places)})", names  # noqa: S608 - checked


def _cast(value: str, column: Column) -> str:
    return f"CAST({value} AS {column.type.spark()})"


def _literal(value: str | None) -> str:
    return "NULL" if value is None else spark_string(value)
