"""Columns that are added to a table.

ALTER TABLE t ADD [COLUMNS] [IF NOT EXISTS] (c type, ...)      ALTER TABLE t ADD [COLUMN] c type

Columns that files have stay: REPLACE COLUMNS and DROP COLUMN are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.commands.command import TargetCommand, Write
from gateway.commands.grammar.columns import column_definition, column_definitions, columns_of, comments_of
from gateway.commands.grammar.reader import Reader
from gateway.security.policy import Action
from gateway.statements.command import Kind
from sql.errors import NotAllowed
from sql.tables import TABLE_FORMATS, Column, TableSource

COLUMNS_STAY = "Columns that files have stay; make a table of a query: CREATE OR REPLACE TABLE ... AS SELECT."


@dataclass(frozen=True, slots=True)
class AddColumns(Write, TargetCommand):
    """Add columns behind those that a table's files have; existing rows have NULL in them."""

    target: TableSource
    columns: tuple[Column, ...]
    comments: Mapping[str, str] = field(default_factory=dict)

    rule_kind = Kind.DDL
    table_action = Action.ALTER
    impala_words = "New column(s) have been added to the table."


def parse(reader: Reader) -> AddColumns | None:
    """Read an ALTER statement that adds columns; refuse those that replace or drop some."""
    subject = reader.altered()
    if subject is None or subject.table is None:
        return None
    verb = reader.peek()
    if reader.accept("ADD"):
        return _add(reader, subject.table)
    if reader.accept("REPLACE", "COLUMNS") or reader.accept("DROP"):
        raise NotAllowed(COLUMNS_STAY, reader.position(verb))
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
    if table.format not in TABLE_FORMATS:
        message = f"Columns are added to tables in Parquet or ORC, whose files have names; this is {table.format}."
        raise NotAllowed(message, reader.position(token))
    return AddColumns(table, columns_of(new), comments_of(new))
