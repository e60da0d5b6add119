"""Descriptions of a table or a view, laid out as in each dialect.

DESCRIBE | DESC [TABLE] [EXTENDED | FORMATTED] t [c]

Spark's and Hive's clients find a table's partition columns among its columns and in a section behind them; Impala's
plain DESCRIBE has no section, and its long one has partition columns there alone. Where files lie stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import ShowCommand, TableCommand
from gateway.commands.ddl.databases import INFORMATION, NOBODY
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import RelationInfo, RelationType, described, relation_of
from gateway.commands.services import CommandServices
from gateway.statistics.tables import texts_of
from sql.access.rights import shown_columns
from sql.dialects.names import HIVES, IMPALA
from sql.errors import TableUnreadable, UnknownColumn
from sql.names import CATALOG
from sql.tables import Column

COLUMNS = ("col_name", "data_type", "comment")  # drivers of Hive's look columns up by these names
HEADINGS: Mapping[str, Sequence[str]] = {IMPALA: ("name", "type", "comment")}
IMPALAS_TYPES = {
    RelationType.MANAGED: "MANAGED_TABLE",
    RelationType.EXTERNAL: "EXTERNAL_TABLE",
    RelationType.VIEW: "VIRTUAL_VIEW",
}
NULL = "NULL"
_LABEL = 20  # characters, as Impala pads them

Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Describe(ShowCommand, TableCommand):
    """Describe a table or view. details: with what is known of it behind its columns. column: only this one."""

    table: str
    details: bool = False
    column: str | None = None

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per column."""
        dialect = services.dialect
        headings = HEADINGS.get(dialect, COLUMNS)
        relation = self._relation(services).as_told_to(services.run.statement)
        if self.column is None:
            return texts_of(headings, list(_described(relation, dialect, self.details)))
        column = next((column for column in relation.columns if column.name == self.column), None)
        if column is None:  # since it was parsed
            raise UnknownColumn(f"The column {self.column} of {self.table} is gone.")
        row = _row(relation, column)
        if dialect in HIVES:
            return texts_of(headings, [row])
        rows: list[Row] = [list(pair) for pair in zip(COLUMNS, row, strict=True)]
        return texts_of(INFORMATION, rows + (self._statistics(services, column.name) if self.details else []))

    def _relation(self, services: CommandServices) -> RelationInfo:
        if self.details:
            with suppress(TableUnreadable):  # what the gateway knows of it is told all the same
                return described(services, self.table)
        return relation_of(services, self.table)

    def _statistics(self, services: CommandServices, column: str) -> list[Row]:
        """Return the statistics of a column, in Spark's words."""
        build = services.shown_catalog.statistics.get(self.table)
        statistics = build.columns.get(column) if build else None
        values: tuple[float | None, ...] = (None,) * 4
        if statistics is not None:
            values = (
                statistics.nulls,
                round(statistics.ndv),
                statistics.average_length,
                statistics.maximum_length,
            )
        names = ("num_nulls", "distinct_count", "avg_col_len", "max_col_len")
        return [[name, NULL if value is None else f"{value:.15g}"] for name, value in zip(names, values, strict=True)]


def information(relation: RelationInfo) -> str:
    """Return the text of SHOW TABLE EXTENDED about a table or view: a line per property, then one per column.

    Nothing that people wrote begins a line, so that none of it is taken for a property.
    """
    lines = [f"{name}: {' '.join(value.split())}" for name, value in _details(relation) if name != "View Text"]
    if relation.partition_columns:
        lines.append(f"Partition Columns: [{', '.join(f'`{name}`' for name in relation.partition_columns)}]")
    lines.append("Schema: root")
    lines += [f" |-- {column.name}: {column.declared_type} (nullable = true)" for column in relation.columns]
    return "\n".join([*lines, ""])


def _described(relation: RelationInfo, dialect: str, details: bool) -> Iterator[Row]:
    """Yield the rows of DESCRIBE, which has three columns."""
    in_folders = [column for column in relation.columns if column.name in relation.partition_columns]
    impalas = dialect == IMPALA
    if impalas and details:
        yield from (["# col_name", "data_type", "comment"], ["", None, None])
    for column in relation.columns:
        if not (impalas and details and column in in_folders):
            yield _row(relation, column)
    if in_folders and (details or not impalas):
        yield from (["", None, None], ["# Partition Information", None, None], ["# col_name", "data_type", "comment"])
        yield from (_row(relation, column) for column in in_folders)
    if details:
        yield from (["", None, None], ["# Detailed Table Information", None, None])
        yield from _impalas_details(relation) if impalas else ([name, text, ""] for name, text in _details(relation))


def _row(relation: RelationInfo, column: Column) -> Row:
    return [column.name, column.declared_type, relation.comment_on(column)]


def _details(relation: RelationInfo) -> Iterator[tuple[str, str]]:
    """Yield what is known of a table or view, under Spark's names and in its order."""
    yield "Catalog", CATALOG
    yield "Database", relation.database
    yield "Table", relation.name
    yield "Owner", relation.owner or NOBODY
    if relation.registered_at is not None:
        yield "Created Time", f"{relation.registered_at:%a %b %d %H:%M:%S UTC %Y}"
    yield "Type", relation.type
    if relation.format is not None:
        yield "Provider", relation.format
    if relation.annotations.comment:
        yield "Comment", relation.annotations.comment
    if relation.annotations.properties:
        properties = sorted(relation.annotations.properties.items())
        yield "Table Properties", "[" + ", ".join(f"{key}={value}" for key, value in properties) + "]"
    if relation.bytes is not None:
        yield "Statistics", f"{relation.bytes} bytes" + (f", {relation.rows} rows" if relation.rows is not None else "")
    if relation.view is not None and relation.view.sql:
        yield "View Text", relation.view.sql


def _impalas_details(relation: RelationInfo) -> Iterator[Row]:
    """Yield the same as Impala does: names with colons, of one width."""

    def row(name: str, text: str | None) -> Row:
        return [f"{name:<{_LABEL}}", text, None]

    yield row("Database:", relation.database)
    yield row("OwnerType:", "USER")
    yield row("Owner:", relation.owner or NOBODY)
    if relation.registered_at is not None:
        yield row("CreateTime:", f"{relation.registered_at:%a %b %d %H:%M:%S UTC %Y}")
    yield row("Table Type:", IMPALAS_TYPES[relation.type])
    yield row("Table Parameters:", None)
    sizes = {"numRows": relation.rows, "totalSize": relation.bytes}
    parameters = {**relation.properties, **{name: str(size) for name, size in sizes.items() if size is not None}}
    yield from (["", key, value] for key, value in parameters.items())
    if relation.format is not None:
        yield from (["", None, None], ["# Storage Information", None, None], row("Format:", relation.format.upper()))
    if relation.view is not None:
        yield from (["", None, None], ["# View Information", None, None])
        yield row("View Original Text:", relation.view.sql or None)


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> Describe:
    """Read a statement that begins with DESCRIBE, and that no other family has taken."""
    if not reader.accept("DESCRIBE"):
        reader.expect("DESC")
    reader.accept("TABLE")
    details = reader.has_ahead(2) and reader.accept_one("EXTENDED", "FORMATTED")
    name = reader.relation(in_part=True)
    if not reader.more():
        return Describe(name, details)
    relation = reader.views.get(name) or reader.catalog[name]
    columns = shown_columns(name, relation.columns, reader.context.access)
    return Describe(name, details, reader.column_of(name, columns))
