"""Statements that write, as values: resolved against the catalog and checked, with the query whose rows they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.protocol import Column, TableSource
from gateway.sql.commands.definitions import Condition
from gateway.sql.compiled import CompiledStatement
from gateway.sql.dialects.names import HIVES
from gateway.sql.statement import CheckedStatement
from metastore.records import NOT_ANNOTATED, Annotations, Partition

TABLE_FORMATS = ("parquet", "orc")  # that tables are made in; both keep all types


class Overwrite(StrEnum):
    """Which partitions the rows of an INSERT OVERWRITE take the place of."""

    STATIC = "static"
    """All that have the values which the statement names; all there are, where it names none."""

    DYNAMIC = "dynamic"
    """Of these, only those that rows are written to."""


OVERWRITES = dict.fromkeys(HIVES, Overwrite.DYNAMIC)  # by dialect; static in all others, as in Spark


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What a session says about partitions that are written.

    overwrite: None leaves it to the statement's dialect. dynamic: a query may say which partitions its rows go to.
    strict: at least one partition column has a value in the statement.
    """

    overwrite: Overwrite | None = None
    dynamic: bool = True
    strict: bool = False


AS_THE_DIALECT_HAS_IT = PartitionSettings()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table of the gateway's own warehouse.

    query: whose rows it begins with; its columns become the table's. columns: of an empty table; one of the two is
    given. partition_columns: of the columns, those that become folders, outermost first. replace: it takes the place of
    a table of its name, if there is one.
    """

    table: str
    query: CheckedStatement | CompiledStatement | None
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    format: str = TABLE_FORMATS[0]
    if_not_exists: bool = False
    replace: bool = False
    annotations: Annotations = NOT_ANNOTATED


@dataclass(frozen=True, slots=True)
class InsertInto:
    """Rows for a table that exists.

    columns: of the table, in the order of the query's; the others get NULL. constants: partition columns that the
    statement gives a value, as text. overwrite: which partitions the rows take the place of; all rows of a table
    without partitions. None: they are added.
    """

    target: TableSource
    query: CheckedStatement | CompiledStatement
    columns: tuple[str, ...]
    constants: Mapping[str, str | None] = field(default_factory=dict)
    overwrite: Overwrite | None = None

    @property
    def table(self) -> str:
        """The table that is written."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class InsertIntoSeveral:
    """Rows for several tables, or several times for one: all are written before any of them is committed."""

    inserts: tuple[InsertInto, ...]

    @property
    def table(self) -> str:
        """The first table that is written."""
        return self.inserts[0].table


@dataclass(frozen=True, slots=True)
class Truncate:
    """Rows that are to go, of a table that stays.

    target: None where it is not there. partitions: whose rows, which are those that fulfil all conditions of one of
    the groups; None for all. if_exists: what is not there is no mistake.
    """

    table: str
    target: TableSource | None
    partitions: tuple[tuple[Condition, ...], ...] | None = None
    if_exists: bool = False

    def means(self, partition: Partition) -> bool:
        """Tell whether a partition's rows are to go."""
        groups = self.partitions or ()
        return any(all(condition.holds(partition) for condition in group) for group in groups)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Columns behind those that a table's files have; rows that are there have NULL in them."""

    target: TableSource
    columns: tuple[Column, ...]
    comments: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The table that gets them."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table that is to be forgotten; files of the gateway's own warehouse go with it. existing: it is there."""

    table: str
    existing: bool


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """A database that is to be forgotten. cascade: with all that it holds; without, it has to hold nothing."""

    database: str
    existing: bool
    cascade: bool = False


class ChangeKind(StrEnum):
    """Statements that change rows of a table."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of a row: it gets values, or goes.

    values: by column of the table, which of the query's values it gets; a row that is there keeps the others, a new one
    has NULL there. None: the row goes.
    """

    values: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """An UPDATE, DELETE or MERGE. The queries are made by ``change_queries.py``, which knows their columns.

    rows: the table's rows as they are, each with its clause and with the values of all clauses; None where every row
    goes, or none can. clauses: by the number that the query has for them. added: new rows in the same way, with
    ``added_clauses``. source: rows that are written first, and read from there by the others.

    repeatable: run twice over the same rows, ``rows`` chooses the same clauses. single_match: a row that meets several
    of the source's is an error. by_source: some clause is for rows that meet none.
    """

    target: TableSource
    kind: ChangeKind
    rows: CheckedStatement | CompiledStatement | None
    clauses: tuple[Clause, ...]
    added: CheckedStatement | CompiledStatement | None = None
    added_clauses: tuple[Clause, ...] = ()
    source: CheckedStatement | CompiledStatement | None = None
    repeatable: bool = True
    single_match: bool = False
    by_source: bool = False

    @property
    def table(self) -> str:
        """The table that is written."""
        return self.target.name


Write = CreateTable | InsertInto | InsertIntoSeveral | ChangeRows | Truncate | AddColumns | DropTable | DropDatabase
WRITES = (CreateTable, InsertInto, InsertIntoSeveral, ChangeRows, Truncate, AddColumns, DropTable, DropDatabase)

OWN_NAMES = ".."
"""What names begin with that only queries of ours have: no table, view or column of a client is called so there."""


def queries_of(write: Write) -> tuple[CheckedStatement | CompiledStatement, ...]:
    """Return the queries whose rows are written."""
    match write:
        case InsertInto(query=query):
            return (query,)
        case InsertIntoSeveral(inserts=inserts):
            return tuple(each.query for each in inserts)
        case ChangeRows(rows=rows, added=added, source=source):
            return tuple(query for query in (source, rows, added) if query is not None)
        case CreateTable(query=query) if query is not None:
            return (query,)
        case _:
            return ()


def reads(write: Write) -> tuple[TableSource, ...]:
    """Return the tables whose rows a write reads."""
    tables = {table.name: table for query in queries_of(write) for table in query.tables}
    if isinstance(write, ChangeRows):
        tables[write.target.name] = write.target
    return tuple(table for name, table in tables.items() if not name.startswith(OWN_NAMES))
