"""Columns that are added to a table, and columns of Iceberg tables that are renamed, dropped or widened.

ALTER TABLE t ADD [COLUMNS] [IF NOT EXISTS] (c type, ...)      ALTER TABLE t ADD [COLUMN] c type
ALTER TABLE t RENAME COLUMN a TO b      ALTER TABLE t DROP COLUMN[S] a | (a, b)
ALTER TABLE t ALTER COLUMN a TYPE type

Columns of other tables stay, as their files have them: REPLACE COLUMNS and DROP COLUMN are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.commands.command import TargetCommand, Write
from gateway.commands.grammar.columns import (
    column_definition,
    column_definitions,
    column_name,
    column_type,
    columns_of,
    comments_of,
)
from gateway.commands.grammar.reader import Reader
from gateway.security.policy import Action
from gateway.statements.command import Kind
from sql.errors import NotAllowed
from sql.tables import LAKE_FORMATS, TABLE_FORMATS, Column, TableSource

ICEBERG = "iceberg"
COLUMNS_STAY = (
    "Columns are renamed, dropped and widened in Iceberg tables; make another one of a query: "
    "CREATE OR REPLACE TABLE ... USING iceberg AS SELECT."
)


@dataclass(frozen=True, slots=True)
class AddColumns(Write, TargetCommand):
    """Add columns behind those that a table's files have; existing rows have NULL in them."""

    target: TableSource
    columns: tuple[Column, ...]
    comments: Mapping[str, str] = field(default_factory=dict)

    rule_kind = Kind.DDL
    table_action = Action.ALTER
    impala_words = "New column(s) have been added to the table."


@dataclass(frozen=True, slots=True)
class AlterColumns(Write, TargetCommand):
    """Rename, drop or widen columns of an Iceberg table."""

    target: TableSource
    new_names: Mapping[str, str] = field(default_factory=dict)
    """By the old ones."""
    dropped: tuple[str, ...] = ()
    widened: tuple[Column, ...] = ()
    """With their new types."""

    rule_kind = Kind.DDL
    table_action = Action.ALTER
    impala_words = "Column has been altered."


def parse(reader: Reader) -> AddColumns | AlterColumns | None:
    """Read an ALTER statement about columns; refuse those that replace or drop what files have."""
    subject = reader.altered()
    if subject is None or subject.table is None:
        return None
    verb = reader.peek()
    if reader.accept("ADD"):
        return _add(reader, subject.table)
    change = _alter(reader, subject.table)
    if change is not None and subject.table.format != ICEBERG:
        raise NotAllowed(COLUMNS_STAY, reader.position(verb))
    if reader.accept("REPLACE", "COLUMNS"):
        raise NotAllowed(COLUMNS_STAY, reader.position(verb))
    return change


def _alter(reader: Reader, table: TableSource) -> AlterColumns | None:
    """Read what follows the table's name; None: it is about something else."""
    if reader.accept("RENAME", "COLUMN"):
        old = reader.column(table)
        reader.expect("TO")
        token = reader.peek()
        new = column_name(reader)
        if new.lower() in {column.name.lower() for column in table.columns}:
            raise NotAllowed(f"There is a column {new} already.", reader.position(token))
        return AlterColumns(table, new_names={old: new})
    if reader.accept("DROP"):
        reader.accept_one("COLUMNS", "COLUMN")
        names = reader.rest_of_list(lambda: reader.column(table)) if reader.accept_open() else [reader.column(table)]
        return AlterColumns(table, dropped=tuple(names))
    if reader.accept_one("ALTER", "CHANGE"):
        reader.accept("COLUMN")
        name = reader.column(table)
        if not reader.accept("TYPE"):
            return None
        data_type = column_type(reader, needed=True)
        return AlterColumns(table, widened=(Column(name, str(data_type)),))
    return None


def _add(reader: Reader, table: TableSource) -> AddColumns:
    token = reader.peek()
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    reader.accept_one("COLUMNS", "COLUMN")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS") or if_not_exists
    if reader.accept_open():
        definitions = column_definitions(reader, types_needed=True)
        reader.accept_one("CASCADE", "RESTRICT")
    else:
        definitions = (column_definition(reader, type_needed=True),)
    existing = {column.name.lower() for column in table.columns}
    new = [definition for definition in definitions if definition.name.lower() not in existing]
    if len(new) < len(definitions) and not if_not_exists:
        twice = next(definition for definition in definitions if definition.name.lower() in existing)
        raise NotAllowed(f"There is a column {twice.name} already.", reader.position(twice.token))
    if table.format not in (*TABLE_FORMATS, *LAKE_FORMATS):
        message = f"Columns are added to tables whose files name them, not to {table.format}."
        raise NotAllowed(message, reader.position(token))
    return AddColumns(table, columns_of(new), comments_of(new))
