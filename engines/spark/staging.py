"""Results that may not fit Spark's heap are read from files.

Spark Connect streams to the client, but it collects each task's rows as one piece and holds every piece until the
client has read it: 200 MB of rows end a server with a heap of 1 GiB, and all its statements. So an embedded server
writes such a result as Parquet into a folder that both sides can read, which is also several times faster. It costs
0.2 - 0.3 s, so a statement whose text shows that the answer is small is read directly.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

if TYPE_CHECKING:
    from engines.spark_sql.connect import ConnectSession, Plan


SMALL_ROWS = 10_000
"""A LIMIT up to this shows that an answer is small."""

WRITE_OPTIONS: Mapping[str, str] = {
    "compression": "snappy",
    "parquet.block.size": str(16 * 1024 * 1024),  # a row group, which is read as a whole
}

_BATCH_ROWS = 10_000  # as many as Spark Connect sends
_PIPE = "|>"
_QUERY = re.compile(r"\s*(\(|(SELECT|WITH|FROM|VALUES|TABLE)\b)", re.IGNORECASE)


def may_be_large(sql: str) -> bool:
    """Return True for a query whose text does not bound the rows of its answer. Commands are never large."""
    if not _QUERY.match(sql):
        return False
    if _PIPE in sql:
        return True  # the library parses pipe operators as clauses of one query
    try:
        query = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError:
        return False  # Spark raises the error
    if not isinstance(query, exp.Query):
        return False
    if _limit(query) <= SMALL_ROWS:
        return False
    return not (isinstance(query, exp.Select) and _gives_one_row(query))


def can_be_staged(schema: pa.Schema) -> bool:
    """Return True if Parquet keeps every column's type."""
    return all(_has_parquet_form(column.type) for column in schema)


def staged_rows(
    session: ConnectSession, plan: Plan, schema: pa.Schema, *, folder: Path, tag: str
) -> Generator[pa.Table, None, None]:
    """Yield rows that Spark writes at the first request, in Spark's order; the files are deleted in the end."""
    try:
        places = [f"c{position}" for position in range(len(schema))]
        session.write(plan, places, str(folder), tag, options=WRITE_OPTIONS)
        for file in sorted(folder.glob("part-*.parquet")):
            with pq.ParquetFile(file) as part:
                for batch in part.iter_batches(batch_size=_BATCH_ROWS):
                    yield pa.Table.from_batches([batch]).rename_columns(schema.names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _limit(query: exp.Query) -> float:
    limit = query.args.get("limit")
    rows = limit.expression if isinstance(limit, exp.Limit) else None
    return int(rows.name) if isinstance(rows, exp.Literal) and rows.is_int else float("inf")


def _gives_one_row(query: exp.Select) -> bool:
    """Return True if a query reads no table, or aggregates all rows that it reads."""
    if query.args.get("group") or query.find(exp.UDTF, exp.Anonymous):  # functions that may return more rows
        return False
    return query.args.get("from_") is None or all(_aggregates(column, query) for column in query.expressions)


def _aggregates(column: exp.Expression, query: exp.Select) -> bool:
    own = any(function.parent_select is query for function in column.find_all(exp.AggFunc))
    return own and column.find(exp.Window) is None


def _has_parquet_form(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_nested(kind) or types.is_null(kind) or types.is_duration(kind) or types.is_interval(kind))
