"""Statements that write, as values: resolved against the catalog and checked, with the query whose rows they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.protocol import Column, TableSource
from gateway.sql.statement import CheckedStatement

TABLE_FORMATS = ("parquet", "orc")  # that tables are made in; both keep all types


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table of the gateway's own warehouse.

    query: whose rows it begins with; its columns become the table's. columns: of an empty table; one of the two is
    given. partition_columns: of the columns, those that become folders, outermost first.
    """

    table: str
    query: CheckedStatement | None
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    format: str = TABLE_FORMATS[0]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertInto:
    """Rows for a table that exists.

    columns: of the table, in the order of the query's; the others get NULL. constants: partition columns that the
    statement gives a value, as text. overwrite: the rows take the place of all that the table holds.
    """

    target: TableSource
    query: CheckedStatement
    columns: tuple[str, ...]
    constants: Mapping[str, str | None] = field(default_factory=dict)
    overwrite: bool = False

    @property
    def table(self) -> str:
        """The table that is written."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table that is to be forgotten; files of the gateway's own warehouse go with it. existing: it is there."""

    table: str
    existing: bool


Write = CreateTable | InsertInto | DropTable
WRITES = (CreateTable, InsertInto, DropTable)


def reads(write: Write) -> tuple[TableSource, ...]:
    """Return the tables whose rows a write reads."""
    return () if isinstance(write, DropTable) or write.query is None else write.query.tables
