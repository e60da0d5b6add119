"""Names of tables, views and columns, under the headings that clients of each dialect look for.

SHOW TABLES | VIEWS [IN | FROM d] [[LIKE] 'x*|y']      SHOW TABLE EXTENDED [IN | FROM d] LIKE 'x*|y'
SHOW COLUMNS IN | FROM t [IN | FROM d]

https://impala.apache.org/docs/build/html/topics/impala_show.html,
https://spark.apache.org/docs/latest/sql-ref-syntax-aux-show.html, and of Hive its own server's. For Spark's clients one
thing differs: SHOW TABLES and SHOW VIEWS have Hive's one column, which drivers of HiveServer2 read.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from gateway.catalog.snapshot import RelationKind
from gateway.commands.command import RunnableCommand, ShowCommand, TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import matching, relation_of, relations_in
from gateway.commands.services import CommandServices
from gateway.commands.show.describe import information
from gateway.statistics.tables import rows_of, texts_of
from sql.dialects.names import HIVE, IMPALA
from sql.tables import DEFAULT_DATABASE

TABLES = {IMPALA: ("name",)}
COLUMNS = {HIVE: ("field",)}
TABLES_IN_FULL = pa.schema(
    [("namespace", pa.string()), ("tableName", pa.string()), ("isTemporary", pa.bool_()), ("information", pa.string())]
)


@dataclass(frozen=True, slots=True)
class ShowTables(ShowCommand):
    """List a database's tables and views. pattern: of their names; None for all. views_only: no tables."""

    database: str = DEFAULT_DATABASE
    pattern: str | None = None
    views_only: bool = False

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per name."""
        names = {
            relation.name
            for relation in services.shown_catalog.relations_for(services.session)
            if relation.database == self.database and (relation.kind is RelationKind.VIEW or not self.views_only)
        }
        headings = TABLES.get(services.dialect, ("tab_name",))
        return texts_of(headings, [[name] for name in matching(sorted(names), self.pattern)])


@dataclass(frozen=True, slots=True)
class ShowTableExtended(ShowCommand):
    """List a database's tables and views with all that is known of each. pattern: of their names; None for all."""

    database: str = DEFAULT_DATABASE
    pattern: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per table or view."""
        relations = relations_in(services, self.database, self.pattern)
        texts = [information(relation.as_told_to(services.run.statement)) for relation in relations]
        rows = [[one.database, one.name, not one.database, text] for one, text in zip(relations, texts, strict=True)]
        return rows_of(TABLES_IN_FULL, rows)


@dataclass(frozen=True, slots=True)
class ShowColumns(ShowCommand, TableCommand):
    """List the columns of a table or view."""

    table: str

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per name."""
        columns = relation_of(services, self.table).columns
        return texts_of(COLUMNS.get(services.dialect, ("col_name",)), [[column.name] for column in columns])


def parse(reader: Reader) -> RunnableCommand | None:
    """Read a statement that lists tables, views or columns."""
    reader.expect("SHOW")
    views_only = reader.accept("VIEWS")
    if views_only or reader.accept("TABLES"):
        return ShowTables(reader.database_or_current(), reader.pattern(), views_only)
    if reader.accept("TABLE", "EXTENDED"):
        return ShowTableExtended(reader.database_or_current(), reader.pattern())
    return _columns(reader) if reader.accept("COLUMNS") else None


def _columns(reader: Reader) -> ShowColumns:
    if not reader.accept("IN"):
        reader.expect("FROM")
    token = reader.peek()
    name, parts = reader.visible_name()
    if reader.accept_one("IN", "FROM"):
        name = reader.naming.full([reader.database(), parts[-1]])
    return ShowColumns(name if name in reader.views else reader.resolve_table(name, parts, token, in_part=True).name)
