"""A query whose rows are written, with the target's names and types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from engines.errors import StatementError, UnsupportedFeature
from engines.protocol import WriteTarget
from engines.spark_sql.casts import fitted
from engines.spark_sql.connect import ConnectSession, Plan
from engines.spark_sql.results import TextsInResult
from selector.quoting import spark_string
from sql.tables import Column


def storable(session: ConnectSession, plan: Plan) -> pa.Schema:
    """Return the columns of rows to write. Raises UnsupportedFeature for types that no table can have."""
    try:
        schema = session.schema(plan)
    except TextsInResult as columns:
        name, kind = columns.names[min(columns.texts)], "a variant or a calendar interval"
    else:
        types = pa.types
        intervals = [field for field in schema if types.is_interval(field.type) or types.is_duration(field.type)]
        if not intervals:
            return schema
        name, kind = intervals[0].name, "an interval"
    raise UnsupportedFeature(f"A table cannot hold the column {name}, which is {kind}; cast it to STRING.")


def selected(sql: str, query_names: Sequence[str], target: WriteTarget) -> tuple[str, tuple[str, ...]]:
    """Return the query for the target's columns, and their names. query_names: of the query's own columns.

    Raises StatementError for another number of columns, or a name that occurs twice.
    """
    if not target.columns:
        names = tuple(query_names)
        twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
        if twice is not None:
            raise StatementError(f"The query has two columns {twice}; give one of them another name.")
        return sql, names
    places = [f"c{at}" for at in range(len(query_names))]
    if target.by_name:
        by_name = _by_name(query_names, places, target.columns)
        wanted = [_cut(fitted(by_name.get(column.name.lower(), "NULL"), column), column) for column in target.columns]
    elif len(query_names) == len(target.columns):
        wanted = [_cut(_cast(place, column), column) for place, column in zip(places, target.columns, strict=True)]
    else:
        raise StatementError(
            f"The query has {len(query_names)} columns, the table takes {len(target.columns)} from it."
        )
    wanted += [_cut(_cast(_literal(value), column), column) for column, value in target.constants]
    names = (*(column.name for column in target.columns), *(column.name for column, _ in target.constants))
    return f"SELECT {', '.join(wanted)} FROM ({sql}) AS given({', '.join(places)})", names  # noqa: S608 - checked


def _by_name(query_names: Sequence[str], places: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """Return the places of a query's columns by their names in small letters. Raises StatementError."""
    spelled = {column.name.lower() for column in columns}
    by_name: dict[str, str] = {}
    for name, place in zip(query_names, places, strict=True):
        if name.lower() not in spelled:
            raise StatementError(f"The query has a column {name}, and the table has none of this name to be written.")
        if by_name.setdefault(name.lower(), place) != place:
            raise StatementError(f"The query has two columns {name}.")
    return by_name


def _cast(value: str, column: Column) -> str:
    return f"CAST({value} AS {column.type.spark()})"


def _cut(text: str, column: Column) -> str:
    """Return a text of the column's length at most, by Spark's rule: only blanks may be cut, else it is an error."""
    most = column.length
    if most is None:
        return text
    message = (
        f"[EXCEED_LIMIT_LENGTH] A text is longer than the {most} characters that the column {column.name} takes; cut "
        f"it with left(text, {most})."
    )
    return (
        f"CASE WHEN length({text}) <= {most} THEN {text} "
        f"WHEN length(rtrim({text})) <= {most} THEN left({text}, {most}) "
        f"WHEN {text} IS NOT NULL THEN raise_error({spark_string(message)}) END"
    )


def _literal(value: str | None) -> str:
    return "NULL" if value is None else spark_string(value)
