"""What DESCRIBE, SHOW CREATE TABLE and SHOW TBLPROPERTIES tell of one thing, laid out as its dialect has it.

Spark's and Hive's clients find a table's partition columns among its columns and in a section behind them; Impala's
plain DESCRIBE has no section, and its long one has partition columns there alone. Where files lie stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from engines.protocol import Column
from gateway.catalog.snapshot import CatalogView
from gateway.commands.creation import statement_that_makes
from gateway.commands.relations import RelationInfo, Relations, RelationType
from gateway.errors import UnknownColumn, UnknownDatabase
from gateway.routing.engines import EngineRegistry
from gateway.sql.allowlist import function_names
from gateway.sql.commands.commands import (
    Describe,
    DescribeDatabase,
    DescribeFunction,
    Description,
    ShowCreate,
    ShowProperties,
)
from gateway.sql.dialects.hive_functions import usable_names
from gateway.sql.dialects.names import HIVE, HIVES, IMPALA
from gateway.sql.duckdb.expressions import knows_function
from gateway.sql.names import CATALOG
from gateway.sql.statement import DUCKDB
from gateway.statements.statement import Run
from gateway.statistics.tables import texts_of
from metastore.records import Database
from metastore.store import Metastore

NOBODY = "-"  # the owner of what everybody may change who may write
COLUMNS = ("col_name", "data_type", "comment")  # drivers of Hive's look columns up by these names
HEADINGS: Mapping[str, Sequence[str]] = {IMPALA: ("name", "type", "comment")}
FACTS = ("info_name", "info_value")
DATABASE: Mapping[str, Sequence[str]] = {
    HIVE: ("db_name", "comment", "location", "owner_name", "owner_type", "parameters"),
    IMPALA: ("name", "location", "comment"),
}
PROPERTIES: Mapping[str, Sequence[str]] = {HIVE: ("prpt_name", "prpt_value")}
FUNCTION: Mapping[str, str] = {HIVE: "tab_name"}
CREATION: Mapping[str, str] = {IMPALA: "result"}
IMPALAS_TYPES = {
    RelationType.MANAGED: "MANAGED_TABLE",
    RelationType.EXTERNAL: "EXTERNAL_TABLE",
    RelationType.VIEW: "VIRTUAL_VIEW",
}
NULL = "NULL"
_LABEL = 20  # characters, as Impala pads them

Row = Sequence[str | None]


class Describer:
    """Answers DESCRIBE. Thread-safe. engines: that functions may run on."""

    def __init__(
        self, metastore: Metastore, catalog: CatalogView, relations: Relations, engines: EngineRegistry
    ) -> None:
        self._metastore = metastore
        self._catalog = catalog
        self._relations = relations
        self._engines = engines

    def answer(self, command: Description, run: Run) -> pa.Table:
        """Return the rows. Raises SqlError for what is gone since its name was read."""
        dialect = run.statement.dialect
        match command:
            case Describe(column=str() as column):
                return self._column(command, column, run)
            case Describe():
                relation = self._relations.relation(command.table, run.statement.session).as_told_to(run.statement)
                return texts_of(HEADINGS.get(dialect, COLUMNS), list(_described(relation, dialect, command.details)))
            case DescribeDatabase():
                return self._database(command, dialect)
            case DescribeFunction():
                return self._function(command, dialect)
            case ShowCreate():
                relation = self._relations.relation(command.table, run.statement.session)
                text = statement_that_makes(relation, run.statement, lists_columns=command.lists_columns)
                return texts_of((CREATION.get(dialect, "createtab_stmt"),), [[text]])
            case ShowProperties():
                return self._properties(command, run)
            case _:
                assert_never(command)

    def _column(self, command: Describe, name: str, run: Run) -> pa.Table:
        dialect = run.statement.dialect
        relation = self._relations.relation(command.table, run.statement.session).as_told_to(run.statement)
        column = next((each for each in relation.columns if each.name == name), None)
        if column is None:  # since it was parsed
            raise UnknownColumn(f"The column {name} of {command.table} is gone.")
        if dialect in HIVES:
            return texts_of(HEADINGS.get(dialect, COLUMNS), [_row(relation, column)])
        told = list(zip(COLUMNS, _row(relation, column), strict=True))
        if command.details:
            told += self._figures(command.table, name)
        return texts_of(FACTS, [list(each) for each in told])

    def _figures(self, table: str, column: str) -> list[tuple[str, str | None]]:
        """Return what statistics tell of a column, in Spark's words."""
        build = self._catalog.current().statistics.get(table)
        known = build.columns.get(column) if build else None
        figures: tuple[float | None, ...] = (None,) * 4
        if known is not None:
            figures = (known.nulls, round(known.ndv), known.average_length, known.maximum_length)
        names = ("num_nulls", "distinct_count", "avg_col_len", "max_col_len")
        return [(name, NULL if each is None else f"{each:.15g}") for name, each in zip(names, figures, strict=True)]

    def _database(self, command: DescribeDatabase, dialect: str) -> pa.Table:
        database = self._catalog.current().databases.get(command.database)
        if database is None:  # since it was parsed
            raise UnknownDatabase(f"The database {command.database} is gone.")
        name, comment, owner = database.name, database.comment, database.owner or NOBODY
        if dialect == HIVE:
            properties = "{" + _pairs(database, "=") + "}" if command.details and database.properties else ""
            return texts_of(DATABASE[HIVE], [[name, comment, "", owner, "USER", properties]])
        if dialect == IMPALA:
            rows: list[Row] = [[name, "", comment]]
            if command.details:
                rows += [["Owner: ", "", ""], ["", owner, "USER"]]
            return texts_of(DATABASE[IMPALA], rows)
        told = [("Catalog Name", CATALOG), ("Namespace Name", name), ("Comment", comment), ("Owner", owner)]
        if command.details:
            told.append(("Properties", f"({_pairs(database, ',', '({})')})" if database.properties else ""))
        return texts_of(FACTS, [list(each) for each in told])

    def _function(self, command: DescribeFunction, dialect: str) -> pa.Table:
        name = command.function.lower()
        usable = usable_names(dialect) if dialect in HIVES else function_names()
        heading = FUNCTION.get(dialect, "function_desc")
        if name not in usable:
            return texts_of((heading,), [[f"Function: {command.function} is not known, or not allowed here."]])
        rewritten = name not in function_names()  # which its dialect says in other words
        on = [
            entry.name
            for entry in self._engines.values()
            if entry.engine.dialect != DUCKDB or rewritten or knows_function(name)
        ]
        told = [f"Function: {name}", f"Usage: built in; statements in the dialect {dialect} may use it."]
        told.append(f"Engines: {', '.join(on) or 'none that is here'}")
        if command.details:
            told.append("Extended Usage: it means the same on each of them; what one has no words for runs on another.")
        return texts_of((heading,), [[line] for line in told])

    def _properties(self, command: ShowProperties, run: Run) -> pa.Table:
        relation = self._relations.relation(command.table, run.statement.session)
        known = _said(relation)
        if command.key is not None:
            missing = f"Table {command.table} does not have property: {command.key}"
            known = {command.key: known.get(command.key, missing)}
        return texts_of(PROPERTIES.get(run.statement.dialect, ("key", "value")), [list(each) for each in known.items()])


def information(relation: RelationInfo) -> str:
    """Return what SHOW TABLE EXTENDED tells of a table or view: a line per fact, then one per column.

    Nothing that people wrote begins a line, so that none of it is taken for a fact.
    """
    lines = [f"{name}: {' '.join(value.split())}" for name, value in _facts(relation) if name != "View Text"]
    if relation.partition_columns:
        lines.append(f"Partition Columns: [{', '.join(f'`{name}`' for name in relation.partition_columns)}]")
    lines.append("Schema: root")
    lines += [f" |-- {column.name}: {column.data_type} (nullable = true)" for column in relation.columns]
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
        yield from _impalas_facts(relation) if impalas else ([name, told, ""] for name, told in _facts(relation))


def _row(relation: RelationInfo, column: Column) -> Row:
    return [column.name, column.data_type, relation.comment_on(column)]


def _facts(relation: RelationInfo) -> Iterator[tuple[str, str]]:
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
    if relation.view is not None:
        yield "View Text", relation.view.sql


def _said(relation: RelationInfo) -> dict[str, str]:
    """Return what people say of a table or view by key; the comment is Hive's property of that name."""
    comment = {"comment": relation.annotations.comment} if relation.annotations.comment else {}
    return dict(sorted({**relation.annotations.properties, **comment}.items()))


def _impalas_facts(relation: RelationInfo) -> Iterator[Row]:
    """Yield the same as Impala does: names with colons, of one width."""

    def row(name: str, told: str | None) -> Row:
        return [f"{name:<{_LABEL}}", told, None]

    yield row("Database:", relation.database)
    yield row("OwnerType:", "USER")
    yield row("Owner:", relation.owner or NOBODY)
    if relation.registered_at is not None:
        yield row("CreateTime:", f"{relation.registered_at:%a %b %d %H:%M:%S UTC %Y}")
    yield row("Table Type:", IMPALAS_TYPES[relation.type])
    yield row("Table Parameters:", None)
    known = _said(relation)
    if relation.rows is not None:
        known["numRows"] = str(relation.rows)
    if relation.bytes is not None:
        known["totalSize"] = str(relation.bytes)
    yield from (["", key, value] for key, value in known.items())
    if relation.format is not None:
        yield from (["", None, None], ["# Storage Information", None, None], row("Format:", relation.format.upper()))
    if relation.view is not None:
        yield from (["", None, None], ["# View Information", None, None])
        yield row("View Original Text:", relation.view.sql)


def _pairs(database: Database, between: str, form: str = "{}") -> str:
    return ", ".join(form.format(f"{key}{between}{value}") for key, value in sorted(database.properties.items()))
