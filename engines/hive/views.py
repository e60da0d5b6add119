"""Our tables as temporary views of one session, in Spark's SQL; and which of them a statement means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engines.protocol import TableSource
from selector.quoting import spark_name, spark_string


def named_in(sql: str, tables: Iterable[TableSource]) -> Iterator[TableSource]:
    """Yield the tables that a statement's text can mean."""
    text = sql.casefold()
    for table in tables:
        name = re.escape(spark_name(table.name)[1:-1].casefold())
        if re.search(rf"(?<!\w){name}(?!\w)", text):
            yield table


def view_statements(table: TableSource) -> list[str]:
    """Return what makes a table a view of the session, over the files that are there at that moment."""
    columns = ", ".join(f"{spark_name(column.name)} {column.type.spark()}" for column in table.columns)
    options = {**table.options, "path": table.location}
    told = ", ".join(f"{spark_string(name)} {spark_string(value)}" for name, value in options.items())
    in_files = [column.name for column in table.columns if column.name not in table.partition_columns]
    order = [*in_files, *table.partition_columns]  # that Spark gives them
    if [column.name for column in table.columns] == order:
        return [_view(table.name, f"({columns}) USING {table.format} OPTIONS ({told})")]
    files = f"{table.name} files"
    wanted = ", ".join(spark_name(column.name) for column in table.columns)
    return [
        _view(files, f"({columns}) USING {table.format} OPTIONS ({told})"),
        _view(table.name, f"AS SELECT {wanted} FROM {spark_name(files)}"),  # noqa: S608  names of ours, quoted
    ]


def _view(name: str, body: str) -> str:
    return f"CREATE OR REPLACE TEMPORARY VIEW {spark_name(name)} {body}"
