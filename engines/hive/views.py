"""Tables of the catalog as temporary views of one session, in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engines.spark_sql.reading import read_column, read_options
from selector.quoting import spark_name, spark_string
from sql.tables import TableSource


def named_in(sql: str, tables: Iterable[TableSource]) -> Iterator[TableSource]:
    """Yield the tables that a statement's text may name."""
    text = sql.casefold()
    for table in tables:
        name = re.escape(spark_name(table.name)[1:-1].casefold())
        if re.search(rf"(?<!\w){name}(?!\w)", text):
            yield table


def view_statements(table: TableSource) -> list[str]:
    """Return the statements that create a view of a table, over its files at that moment."""
    columns = ", ".join(f"{spark_name(column.name)} {column.type.spark()}" for column in table.columns)
    options = {**read_options(table), "path": table.location}
    listed = ", ".join(f"{spark_string(name)} {spark_string(value)}" for name, value in options.items())
    over_files = f"({columns}) USING {table.format} OPTIONS ({listed})"
    in_files = [column.name for column in table.columns if column.name not in table.partition_columns]
    order = [*in_files, *table.partition_columns]  # Spark's order
    wanted = [read_column(table, column) for column in table.columns]
    if wanted == [spark_name(name) for name in order]:
        return [_view(table.name, over_files)]
    files = f"{table.name} files"
    return [
        _view(files, over_files),
        _view(table.name, f"AS SELECT {', '.join(wanted)} FROM {spark_name(files)}"),  # noqa: S608  quoted names
    ]


def _view(name: str, body: str) -> str:
    return f"CREATE OR REPLACE TEMPORARY VIEW {spark_name(name)} {body}"
