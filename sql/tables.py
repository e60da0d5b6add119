"""Tables and views as statements name them, with their columns; definitions that are unsafe for an engine are refused.

A table or view has one full name, which maps, engines and records use: ``orders`` in the database ``default``,
``sales.orders`` in another one. The last dot separates. An engine with databases
of its own gets names of two parts. A table of an Iceberg catalog has the catalog's name in front, and its database is
that name with the namespace: ``lake.sales.orders`` in ``lake.sales``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from selector.quoting import InvalidName, require_name, require_printable, spark_name
from selector.types import DataType, InvalidType, Kind, parse
from sql.bounds import LONGEST_PATH, LONGEST_SCHEMA, LONGEST_TYPE, MOST_COLUMNS

DEFAULT_DATABASE = "default"
SNAPSHOT_MARK = "@"
"""Between a table's name and its snapshot; no registered table has it in its name."""

_LITERAL_OR_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
FORMATS = ("parquet", "csv", "json", "orc", "avro")
"""Formats of files that make up a table by themselves."""
LAKE_FORMATS = ("delta", "iceberg")
"""Formats with a log that tells which files, and which of their rows, a table has."""
METADATA_TABLES = (
    *("history", "snapshots", "refs", "files", "data_files", "delete_files", "manifests", "partitions"),
    "metadata_log_entries",
)
"""Tables that tell of an Iceberg table's metadata; each is named behind the table, as in ``t.snapshots``."""
TABLE_FORMATS = ("parquet", "orc")
"""Formats of tables that the gateway makes and writes to; both keep all types."""
MIXED_COLUMNS = "mixed_columns"
"""Option: ``true`` if some files lack columns of the table, which are NULL in them."""
OPTIONS = {  # by format: how to read it, understood alike by every engine
    "csv": ("delimiter", "sep", "header"),
    "parquet": (MIXED_COLUMNS,),
    "orc": (MIXED_COLUMNS,),
}
_TRUE_OR_FALSE = ("header", MIXED_COLUMNS)
_GLOB = frozenset("*?[]{}\\")


IDENTITY = "identity"
"""Transform of a partition whose values are the column's."""


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """One partition column of a new table. transform: Iceberg's, such as day or bucket[16]."""

    column: str
    transform: str = IDENTITY


class InvalidTable(ValueError):
    """Invalid definition of a table or column; the message is a clause, to stand within a sentence."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    data_type: Spark's short form, such as ``bigint`` or ``decimal(10,2)``; ``string`` for any text, as files store it.
    length: most characters of a ``varchar(n)``; None: no limit.
    collation: by which Spark alone compares it; "": by bytes.

    Raises InvalidTable for an invalid name or type, so that every column can be written safely.
    """

    name: str
    data_type: str
    length: int | None = None
    collation: str = ""

    def __post_init__(self) -> None:
        try:
            require_name(self.name)
            if len(self.data_type) > LONGEST_TYPE:
                raise InvalidTable(f"the type of the column {self.name} has more than {LONGEST_TYPE:,} characters")
            declared = parse(self.data_type)
            object.__setattr__(self, "data_type", str(declared.with_plain_texts()))
            if declared.collation:
                object.__setattr__(self, "collation", declared.collation)
            if declared.kind is Kind.VARCHAR:
                object.__setattr__(self, "length", declared.precision)
        except InvalidName as error:
            raise InvalidTable(f"the name of the column {self.name!r:.80} {error}") from error
        except InvalidType as error:
            message = f"the type of the column {self.name}, {self.data_type!r:.80}, is invalid: {error.message}"
            raise InvalidTable(message) from error

    @property
    def type(self) -> DataType:
        """The type as a value."""
        return parse(self.data_type)

    @property
    def declared_type(self) -> str:
        """The type with its length or collation: with it, the same column can be made."""
        if self.collation:
            return f"{self.data_type} collate {self.collation}"
        return self.data_type if self.length is None else f"varchar({self.length})"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a table that one statement reads.

    id: Delta's version, Iceberg's snapshot id; of a plain table the fingerprint of the list of its files.
    manifest: absolute path of the list of its files (engines/files/manifest.py).
    rows: of these files; None: unknown.
    folder: of this machine in which all its files lie.
    files, bytes: of the list.
    is_settled: False: its files changed so recently that nobody would notice another change.
    """

    id: str
    manifest: str
    rows: int | None
    folder: str
    files: int
    bytes: int
    is_settled: bool = True

    @property
    def list_name(self) -> str:
        """Name of the list of its files, among all lists."""
        return PurePath(self.manifest).stem


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as an engine sees it: files in one place, in one form.

    location: an absolute folder or file; of a lake table also ``s3://bucket/folder``.
    format: one of FORMATS or LAKE_FORMATS.
    partition_columns: names of the columns of Hive-style folders, outermost first.
    options: how to read text, such as ``{"delimiter": "|", "header": "false"}``.
    defect: reason why the stored definition cannot be used; such a table has no columns, and no engine gets it.
    snapshot: as one statement reads it; None: no statement reads it yet.
    identifiers: exact names in its Iceberg catalog where capitals make them differ from ``name``, without the catalog's
        name; of several that differ by case alone, none is read or written.

    Raises InvalidTable for a definition that is unsafe for an engine.
    """

    name: str
    location: str
    format: str
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    defect: str = ""
    snapshot: Snapshot | None = None
    identifiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.defect:
            return
        try:
            require_name(self.name)
            require_printable(self.location)
            if len(self.location) > LONGEST_PATH:
                raise InvalidName(f"is longer than {LONGEST_PATH:,} characters")
        except InvalidName as error:
            raise InvalidTable(f"the name or location of the table {self.name!r:.80} {error}") from error
        if self.format not in (*FORMATS, *LAKE_FORMATS):
            formats = ", ".join((*FORMATS, *LAKE_FORMATS))
            raise InvalidTable(f"{self.format!r:.80} is not a known format: give one of {formats}")
        if not _GLOB.isdisjoint(self.location):
            raise InvalidTable(
                "the location of a table must not contain any of * ? [ \\ ] { }, which engines read as patterns"
            )
        require_column_count(len(self.columns))
        if sum(len(column.name) + len(column.data_type) for column in self.columns) > LONGEST_SCHEMA:
            raise InvalidTable(f"its columns' names and types have more than {LONGEST_SCHEMA:,} characters together")
        names: set[str] = set()
        for column in self.columns:
            if column.name.lower() in names:
                raise InvalidTable(f"there are two columns {column.name}, which engines do not tell apart by case")
            names.add(column.name.lower())
        if not {column.name for column in self.columns}.issuperset(self.partition_columns):
            raise InvalidTable("a partition column is not among the columns")
        require_options(self.format, self.options)

    @property
    def is_lake(self) -> bool:
        """True for a table of a lake format, which engines read by a snapshot alone."""
        return self.format in LAKE_FORMATS

    @property
    def catalog(self) -> str:
        """Iceberg catalog that it is a table of; "": it is the gateway's own."""
        return catalog_of(self.name) if self.format == "iceberg" else ""

    @property
    def folder(self) -> str:
        """Folder or file of this machine from which engines read its rows."""
        return self.location if self.snapshot is None else self.snapshot.folder


def require_column_count(count: int) -> None:
    """Raise InvalidTable for more columns than a table may have."""
    if count > MOST_COLUMNS:
        raise InvalidTable(f"it has {count:,} columns, and a table has {MOST_COLUMNS:,} at most: split it into several")


def require_options(format: str, options: Mapping[str, str]) -> None:
    """Raise InvalidTable for unknown options of a format, or invalid values of options."""
    allowed = OPTIONS.get(format, ())
    for name, value in options.items():
        if name not in allowed:
            can = ", ".join(allowed) or "none"
            raise InvalidTable(f"{name} is not an option of a {format} table: leave it out; allowed are {can}")
        if name in _TRUE_OR_FALSE and value.lower() not in ("true", "false"):
            raise InvalidTable(f"the {name} is true or false, not {value!r}")
        if name not in _TRUE_OR_FALSE and (len(value) != 1 or not value.isascii() or value in '"\r\n\0'):
            raise InvalidTable(f"the delimiter is one ASCII character, no quote and no line end, not {value!r}")


@dataclass(frozen=True, slots=True)
class Annotations:
    """Comments and properties of a table or a view.

    properties: of TBLPROPERTIES, with no meaning here.
    columns: comments by the columns' names.
    """

    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


NOT_ANNOTATED = Annotations()


@dataclass(frozen=True, slots=True)
class View:
    """A query with a name.

    name: the full one; a bare one for a temporary view, which belongs to a session and is in no database.
    columns: names and types as they were when it was created.
    owner: its creator; None: no owner.
    defect: reason why the stored definition cannot be used; "": it can.
    database: of bare names in its query.
    """

    name: str
    sql: str
    dialect: str
    columns: tuple[Column, ...]
    temporary: bool = False
    owner: str | None = None
    defect: str = ""
    database: str = DEFAULT_DATABASE
    annotations: Annotations = NOT_ANNOTATED


def full_name(database: str, name: str) -> str:
    """Return the full name of a table or view of a database, in lower case."""
    return name.lower() if database.lower() == DEFAULT_DATABASE else f"{database}.{name}".lower()


def canonical(written: str) -> str:
    """Return the full name for a written one: ``Default.Orders`` is ``orders``."""
    return full_name(database_of(written), name_in_database(written))


def database_of(full: str) -> str:
    """Return the database of a full name; that of a catalog's table has the catalog in front: ``lake.sales``."""
    database, dot, _ = full.partition(SNAPSHOT_MARK)[0].rpartition(".")
    return database if dot else DEFAULT_DATABASE


def catalog_of(full: str) -> str:
    """Return the catalog of a full name; "": the gateway's own."""
    catalog, dot, _ = database_of(full).partition(".")
    return catalog if dot else ""


def name_in_database(full: str) -> str:
    """Return the name of a table or view within its database."""
    database, dot, _ = full.partition(SNAPSHOT_MARK)[0].rpartition(".")
    return full[len(database) + 1 :] if dot else full


def in_two_parts(full_name: str) -> str:
    """Return a table's quoted name, with its database unless that is the default one."""
    database, name = database_of(full_name), name_in_database(full_name)
    return spark_name(name) if database == DEFAULT_DATABASE else f"{spark_name(database)}.{spark_name(name)}"


def with_names(sql: str, renamed: Mapping[str, str]) -> str:
    """Replace names in a statement of the gateway; strings stay. renamed: quoted names by quoted names."""
    if not any(name in sql for name in renamed):
        return sql
    return _LITERAL_OR_NAME.sub(lambda match: renamed.get(match.group(), match.group()), sql)
