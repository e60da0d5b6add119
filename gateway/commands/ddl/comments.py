"""Comments on tables, views, columns and databases.

COMMENT ON TABLE | VIEW | COLUMN | DATABASE x IS '...' | NULL
ALTER TABLE t CHANGE [COLUMN] c c type COMMENT '...'   ALTER TABLE t ALTER COLUMN c COMMENT '...'
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from gateway.commands.command import DONE, OwnedCommand
from gateway.commands.grammar.columns import column_definition
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.statements.command import OwnedKind
from sql.errors import NotAllowed, UnknownColumn, UnknownDatabase
from sql.names import did_you_mean
from sql.tables import Annotations, TableSource


@dataclass(frozen=True, slots=True)
class SetComment(OwnedCommand):
    """Comment on something. column: of it, whose comment it is. comment: "" takes it away."""

    kind: OwnedKind
    name: str
    comment: str
    column: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Change the comment."""
        if self.kind is not OwnedKind.DATABASE:
            self.annotate(services, self._changed)
            return DONE
        check = self.owner_check(services)
        if not services.metastore.databases.set_comment(self.name, self.comment, check=check):
            raise UnknownDatabase(f"The database {self.name} is gone.")
        return DONE

    def _changed(self, annotations: Annotations) -> Annotations:
        if self.column is None:
            return replace(annotations, comment=self.comment)
        columns = {**annotations.columns, self.column: self.comment}
        return replace(annotations, columns={name: text for name, text in columns.items() if text})


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> SetComment | None:
    """Read a statement that comments on something."""
    if reader.accept("COMMENT", "ON"):
        return _comment_on(reader)
    subject = reader.altered()
    if subject is None or subject.table is None:
        return None
    if reader.accept("CHANGE"):
        reader.accept("COLUMN")
        return _change(reader, subject.table)
    if reader.accept("ALTER"):
        reader.accept("COLUMN")
        return _alter_column(reader, subject.table)
    return None


def _comment_on(reader: Reader) -> SetComment:
    token = reader.peek()
    column = None
    if reader.accept_one("DATABASE", "SCHEMA"):
        kind, name = OwnedKind.DATABASE, reader.database()
    elif reader.accept("COLUMN"):
        kind, name, column = _column(reader)
    elif reader.accept_one("TABLE", "VIEW"):
        name = reader.relation()
        kind = OwnedKind.VIEW if name in reader.views else OwnedKind.TABLE
        if name in reader.views and reader.views[name].temporary:
            raise NotAllowed("A temporary view has no comment.", reader.position(token))
    else:
        reader.unexpected("TABLE, VIEW, COLUMN or DATABASE")
    reader.expect("IS")
    return SetComment(kind, name, "" if reader.accept("NULL") else reader.text("a text, or NULL,"), column)


def _column(reader: Reader) -> tuple[OwnedKind, str, str]:
    """Read a column behind the name of its table or view."""
    token = reader.peek()
    *parts, wanted = reader.name_parts()
    if not parts:
        raise NotAllowed("Name the column's table, too: COMMENT ON COLUMN t.c IS ...", reader.position(token))
    name = reader.naming.full(parts)
    view = reader.views.get(name)
    columns = view.columns if view is not None else reader.resolve_table(name, parts, token).columns
    spelled = {column.name.lower(): column.name for column in columns}
    if wanted.lower() not in spelled:
        message = f"There is no column {wanted} in {name}{did_you_mean(wanted, spelled)}"
        raise UnknownColumn(message, reader.position(token))
    kind = OwnedKind.VIEW if view is not None else OwnedKind.TABLE
    return kind, name, spelled[wanted.lower()]


def _change(reader: Reader, table: TableSource) -> SetComment:
    """Read Hive's CHANGE: a column's name, then its definition, in which only the comment may be another one."""
    column = reader.column(table)
    token = reader.peek()
    new = column_definition(reader, type_needed=True)
    old = next(one for one in table.columns if one.name == column)
    if new.name.lower() != column.lower() or new.type is None or str(new.type) != str(old.type):
        message = (
            f"{column} is {old.data_type} in the table's files, and stays that; only its comment can be changed. "
            "For other names or types make a table of a query: CREATE OR REPLACE TABLE ... AS SELECT."
        )
        raise NotAllowed(message, reader.position(token))
    _refuse_place(reader, column)
    return SetComment(OwnedKind.TABLE, table.name, new.comment, column)


def _alter_column(reader: Reader, table: TableSource) -> SetComment:
    column = reader.column(table)
    _refuse_place(reader, column)
    token = reader.peek()
    if not reader.accept("COMMENT") and not reader.accept("SET", "COMMENT"):
        message = f"Of {column}, only the comment can be changed: its name and type are those of the table's files."
        raise NotAllowed(message, reader.position(token))
    return SetComment(OwnedKind.TABLE, table.name, reader.text("a text"), column)


def _refuse_place(reader: Reader, column: str) -> None:
    token = reader.peek()
    if reader.accept_one("FIRST", "AFTER"):
        raise NotAllowed(f"{column} stays where it is among the columns.", reader.position(token))
