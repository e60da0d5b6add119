"""Tables that are made or dropped, in the words of Spark's, Hive's and Impala's users.

CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t [(c type [COMMENT '...'], ...)]
[USING | STORED AS parquet | orc | delta | iceberg] [PARTITIONED BY (c [type] | days(c) | bucket(16, c) | ..., ...)]
[COMMENT '...'] [TBLPROPERTIES | OPTIONS ('k' = 'v', ...)] [AS query]
CREATE TABLE [IF NOT EXISTS] t LIKE s [STORED AS ...] [TBLPROPERTIES (...)]
CREATE [EXTERNAL] TABLE [IF NOT EXISTS] t [(c type, ...)] [PARTITIONED BY (c [type], ...)] [USING | STORED AS ...]
[ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' | SERDE '...'] LOCATION '/folder'
CREATE TABLE [IF NOT EXISTS] t [(c type, ...)] USING delta | iceberg [PARTITIONED BY (...)]
LOCATION '/folder' | 's3://bucket/folder' [AS query]
DROP TABLE [IF EXISTS] t [PURGE]

The clauses of CREATE TABLE are read by ``table_clauses.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot.tokenizer_core import Token

from engines.compiled import CompiledStatement
from engines.files.listing import InspectionFailed
from gateway.catalog.new_table import NewTable
from gateway.commands.command import DONE, Definition, RunnableCommand, TableCommand, Write, summary
from gateway.commands.ddl.table_clauses import TableClauses, read_clauses
from gateway.commands.grammar.columns import ColumnDefinition, column_definitions, columns_of, comments_of
from gateway.commands.grammar.queries import opens_query, read_query, starts_query
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action, Need
from gateway.statements.command import Kind, OwnedCatalog, owned_relation
from sql.dialects.names import IMPALA
from sql.errors import NotAllowed, TableUnreadable, UnknownColumn, UnknownTable
from sql.names import did_you_mean
from sql.tables import (
    LAKE_FORMATS,
    NOT_ANNOTATED,
    TABLE_FORMATS,
    Annotations,
    Column,
    InvalidTable,
    PartitionBy,
    catalog_of,
    require_options,
)

HEADER_LINES = "skip.header.line.count"
ICEBERG = "iceberg"
MADE_FORMATS = (*TABLE_FORMATS, *LAKE_FORMATS)


@dataclass(frozen=True, slots=True)
class CreateTable(Write, TableCommand):
    """Make a table, in the gateway's own warehouse or, of a lake format, somewhere else."""

    table: str
    query: CompiledStatement | None
    """Query whose rows it begins with, and whose columns become the table's; None of an empty table."""
    columns: tuple[Column, ...]
    """Columns of an empty table; none where there is a query."""
    partition_columns: tuple[str, ...] = ()
    """Columns that become folders, outermost first."""
    partition_by: tuple[PartitionBy, ...] = ()
    """Partitions of a lake table."""
    format: str = TABLE_FORMATS[0]
    if_not_exists: bool = False
    replace: bool = False
    """It takes the place of a table of its name, if there is one."""
    annotations: Annotations = NOT_ANNOTATED
    like: str | None = None
    """Table or view whose columns it gets; None for none."""
    location: str = ""
    """Folder of a lake table, in which there is nothing yet; "": one in the gateway's warehouse."""

    rule_kind = Kind.DDL
    impala_words = "Table has been created."

    @property
    def kinds(self) -> frozenset[Kind]:
        """Two kinds where it makes a table and fills it."""
        return frozenset({Kind.DDL} if self.query is None else {Kind.DDL, Kind.WRITE})

    @property
    def kept_annotations(self) -> Annotations:
        """Annotations for the metastore: properties of a lake table are in the table itself."""
        return replace(self.annotations, properties={}) if self.format in LAKE_FORMATS else self.annotations

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The query whose rows it begins with."""
        return () if self.query is None else (self.query,)

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to make tables, and to replace the one of its name."""
        yield Need(Action.CREATE)
        if self.location:
            yield Need(Action.REGISTER)
        if self.replace:
            yield Need(Action.REPLACE, owned_relation(self.table, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield its name, and those of the tables that it is made from."""
        yield from TableCommand.table_names(self, catalog)
        if self.like is not None:
            yield self.like

    def reply(self, dialect: str, rows: pa.Table) -> pa.Table:
        """Return how many rows were written; in Impala's dialect in words."""
        if dialect != IMPALA or self.query is None:
            return RunnableCommand.reply(self, dialect, rows)
        count = rows.column(0)[0].as_py()
        return summary("Inserted rows" if count is None else f"Inserted {count} row(s)")


@dataclass(frozen=True, slots=True)
class RegisterTable(Definition, TableCommand):
    """Make a table of files that lie somewhere."""

    table: str
    location: str
    format: str | None = None
    """None to find out."""
    columns: tuple[Column, ...] = ()
    """None to find out; those of partition_columns are among them, where the statement gives their types."""
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of text files: delimiter and header."""
    annotations: Annotations = NOT_ANNOTATED
    if_not_exists: bool = False

    actions = (Action.REGISTER,)
    impala_words = "Table has been created."

    def run(self, services: CommandServices) -> pa.Table:
        """Register the files."""
        if self.if_not_exists and services.metastore.catalog.get(self.table) is not None:
            return DONE
        new_table = NewTable(
            self.table,
            self.location,
            self.format,
            self.options,
            self.columns,
            partition_columns=self.partition_columns,
            annotations=self.annotations,
        )
        try:
            services.registration.create(new_table, user=services.principal)
        except InspectionFailed as error:
            raise TableUnreadable(f"{self.table} cannot be made of these files: {error}.") from error
        except OSError as error:
            raise TableUnreadable(f"The folder of {self.table} cannot be made: {error.strerror}.") from error
        return DONE


@dataclass(frozen=True, slots=True)
class DropTable(Write, TableCommand):
    """Drop a table; files of the gateway's own warehouse go with it. existing: it exists."""

    table: str
    existing: bool

    rule_kind = Kind.DDL

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to drop it, where the user knows of it."""
        if self.existing:
            yield Need(Action.DROP, owned_relation(self.table, catalog))

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that this one is done."""
        return "Table has been dropped." if self.existing else "Table does not exist."


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> CreateTable | RegisterTable | DropTable | None:
    """Read a statement that makes or drops a table."""
    if reader.accept("DROP", "TABLE"):
        return _drop(reader)
    if not reader.accept("CREATE"):
        return None
    start = reader.peek()
    replace = reader.accept("OR", "REPLACE")
    external = reader.accept("EXTERNAL")
    token = reader.peek()
    temporary = reader.accept_one("TEMPORARY", "TEMP")
    if not reader.accept("TABLE"):
        return None
    if temporary:
        message = "There are no temporary tables; make a TEMPORARY VIEW, or a table that is dropped later."
        raise NotAllowed(message, reader.position(token))
    return _create(reader, start, replace=replace, external=external)


def _create(reader: Reader, start: Token, *, replace: bool, external: bool) -> CreateTable | RegisterTable:
    """Read CREATE TABLE from the table's name on. start: the word behind CREATE."""
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    if replace and (if_not_exists or external):
        clause = "IF NOT EXISTS" if if_not_exists else "EXTERNAL"
        raise NotAllowed(f"OR REPLACE does not go with {clause}.", reader.position(start))
    token = reader.peek()
    table = reader.new_relation()
    if table in reader.views or (table in reader.catalog and not if_not_exists and not replace):
        reader.refuse_existing(table, token)
    like = _like(reader, table) if reader.accept("LIKE") else None
    definitions = column_definitions(reader, types_needed=True) if reader.accept_open() else ()
    clauses = read_clauses(reader)
    is_made_there = clauses.format in LAKE_FORMATS and (definitions or reader.more())
    if external or (clauses.location is not None and not is_made_there):
        return _registered(reader, table, definitions, clauses, token, if_not_exists=if_not_exists, replace=replace)
    if clauses.location is not None and replace:
        message = "A table with a LOCATION is not replaced: DROP it first, which leaves its files."
        raise NotAllowed(message, reader.position(token))
    format = _made_format(reader, clauses, like, catalog_of(table))
    if clauses.location is not None and catalog_of(table):
        message = f"The catalog {catalog_of(table)} chooses where its tables lie: remove LOCATION."
        raise NotAllowed(message, reader.position(token))
    if replace and catalog_of(table):
        message = f"Tables of the catalog {catalog_of(table)} are not replaced: DROP the table first."
        raise NotAllowed(message, reader.position(token))
    query = None
    if like is None and (reader.accept("AS") or starts_query(reader) or opens_query(reader)):
        token = reader.peek()
        query = read_query(reader)
        if definitions:
            raise NotAllowed("A table made from a query has the query's columns.", reader.position(token))
    else:
        reader.end()
    definitions = (*definitions, *clauses.folders)
    columns = like.columns if like is not None else columns_of(definitions)
    folders = like.partition_columns if like is not None else tuple(folder.name for folder in clauses.folders)
    if query is None:
        if not columns:
            reader.unexpected("a list of columns or a query")
        _require_folders(folders, columns)
    if format not in LAKE_FORMATS and clauses.transform_token is not None:
        message = "Partitions by a transform of a column need an Iceberg table: USING iceberg."
        raise NotAllowed(message, reader.position(clauses.transform_token))
    annotations = Annotations(clauses.comment, clauses.properties, comments_of(definitions))
    source = like.like if like is not None else None
    partition_by = clauses.partition_by or tuple(map(PartitionBy, folders))
    return CreateTable(
        table,
        query,
        columns,
        folders,
        partition_by,
        format,
        if_not_exists,
        replace,
        annotations,
        source,
        clauses.location or "",
    )


def _like(reader: Reader, table: str) -> CreateTable:
    """Read the name of a table or a view, and return an empty table like it, under another name."""
    name = reader.relation()
    view = reader.views.get(name)
    if view is not None:
        return CreateTable(table, None, view.columns, like=name)
    source = reader.catalog[name]
    format = source.format if source.format in MADE_FORMATS else TABLE_FORMATS[0]
    return CreateTable(table, None, source.columns, source.partition_columns, format=format, like=name)


def _made_format(reader: Reader, clauses: TableClauses, like: CreateTable | None, catalog: str) -> str:
    """Return the format of a table of the gateway's own, or of an Iceberg catalog."""
    if catalog:
        if clauses.format not in (None, ICEBERG):
            assert clauses.format_token is not None
            message = f"Tables of the catalog {catalog} are Iceberg tables: USING iceberg, or no format."
            raise NotAllowed(message, reader.position(clauses.format_token))
        return ICEBERG
    if clauses.options_token is not None and clauses.options:
        message = f"{', '.join(clauses.options)} say how text is read, and tables are not made as text."
        raise NotAllowed(message, reader.position(clauses.options_token))
    if clauses.format is None:
        return like.format if like is not None else TABLE_FORMATS[0]
    if clauses.format not in MADE_FORMATS:
        assert clauses.format_token is not None
        raise NotAllowed(
            f"Tables are made in {', '.join(MADE_FORMATS)}, not in {clauses.format_token.text.lower()}; files that "
            "lie elsewhere can be that: add LOCATION.",
            reader.position(clauses.format_token),
        )
    return clauses.format


def _registered(
    reader: Reader,
    table: str,
    definitions: Sequence[ColumnDefinition],
    clauses: TableClauses,
    token: Token,
    *,
    if_not_exists: bool,
    replace: bool,
) -> RegisterTable:
    """Return a table over files that lie somewhere. token: its name."""
    position = reader.position(token)
    if clauses.location is None:
        message = "An EXTERNAL table needs a LOCATION; without EXTERNAL it is made in the gateway's warehouse."
        raise NotAllowed(message, position)
    if replace:
        message = "A table over files of others is not replaced; DROP it first, which leaves the files."
        raise NotAllowed(message, position)
    if reader.more():
        message = (
            "A table with a LOCATION has that folder's rows: remove the query or the LOCATION, or make a lake table "
            "there (USING iceberg | delta)."
        )
        raise NotAllowed(message, reader.position(reader.peek()))
    reader.end()
    format = clauses.format or ("csv" if clauses.options else None)
    options = dict(clauses.options)
    header_lines = clauses.properties.get(HEADER_LINES)
    if format == "csv" and header_lines is not None:
        if header_lines not in ("0", "1"):
            raise NotAllowed(f"{HEADER_LINES} is 0 or 1 here.", position)
        options["header"] = "true" if header_lines == "1" else "false"
    if options:
        try:
            require_options(format or "parquet", options)
        except InvalidTable as error:
            message = f"{str(error)[:1].upper()}{str(error)[1:]}."
            raise NotAllowed(message, reader.position(clauses.options_token or token)) from error
    definitions = (*definitions, *clauses.folders)
    columns, folders = columns_of(definitions), tuple(folder.name for folder in clauses.folders)
    if columns:
        _require_folders(folders, columns)
    annotations = Annotations(clauses.comment, clauses.properties, comments_of(definitions))
    return RegisterTable(table, clauses.location, format, columns, folders, options, annotations, if_not_exists)


def _require_folders(folders: Sequence[str], columns: Sequence[Column]) -> None:
    """Refuse partition columns that a table of these columns cannot have."""
    names = [column.name.lower() for column in columns]
    for name in folders:
        if name.lower() not in names:
            raise UnknownColumn(f"There is no column {name}{did_you_mean(name, names)}")
        if columns[names.index(name.lower())].collation:
            raise NotAllowed(f"The column {name} has a collation, which names of folders do not go by.")
    if len(folders) == len(columns):
        raise NotAllowed("A table needs a column that is not a folder.")


def _drop(reader: Reader) -> DropTable:
    if_exists = reader.accept("IF", "EXISTS")
    token = reader.peek()
    table = reader.full_name()
    reader.accept("PURGE")
    reader.end()
    if table in reader.views and not (if_exists and reader.dialect == IMPALA):
        raise NotAllowed(f"{table} is a view: DROP VIEW {table}.", reader.position(token))
    if table not in reader.catalog and not if_exists:
        raise UnknownTable(f"There is no table {table}{did_you_mean(table, reader.catalog)}", reader.position(token))
    return DropTable(table, existing=table in reader.catalog)
