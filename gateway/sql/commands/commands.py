"""Statements that are no queries, as values: what is asked about statistics, the catalog and the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.table_names import DEFAULT_DATABASE
from gateway.sql.commands.definitions import DEFINITIONS, AnalyzeTables, Condition, Definition, OwnedKind
from gateway.sql.commands.writes import Write
from gateway.sql.compiled import CompiledStatement
from gateway.sql.statement import CheckedStatement
from metastore.records import NOT_ANNOTATED, Annotations


@dataclass(frozen=True, slots=True)
class ComputeStats:
    """columns: empty for all. share: of a sample, 0..1, None for everything."""

    table: str
    columns: tuple[str, ...] = ()
    share: float | None = None


@dataclass(frozen=True, slots=True)
class ComputeIncrementalStats:
    """Only what is new or changed. conditions: all of them hold for the partitions that are meant."""

    table: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DropStats:
    """Nothing is in force any more."""

    table: str


@dataclass(frozen=True, slots=True)
class DropIncrementalStats:
    """The summaries of some partitions go; what is in force stays until the next computation."""

    table: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ShowTableStats:
    """A row per partition."""

    table: str


@dataclass(frozen=True, slots=True)
class ShowColumnStats:
    """A row per column."""

    table: str


@dataclass(frozen=True, slots=True)
class SetRows:
    """How many rows a table has, by hand."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class SetColumnStats:
    """Figures of one column by hand, under the statistics' own names."""

    table: str
    column: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ShowTables:
    """Names of a database's tables and views. views_only: of its views alone.

    pattern: with ``*`` for any text and ``|`` between alternatives; None for all.
    """

    database: str = DEFAULT_DATABASE
    pattern: str | None = None
    views_only: bool = False


@dataclass(frozen=True, slots=True)
class ShowTableExtended:
    """A database's tables and views, with all that is known of each. pattern: as of ShowTables."""

    database: str = DEFAULT_DATABASE
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """Names of databases. pattern: as of ShowTables."""

    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowCatalogs:
    """Names of catalogs. pattern: as of ShowTables."""

    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowNamespace:
    """The database that bare names are of."""


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """Names of a table's columns."""

    table: str


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """A row per partition for which all conditions hold."""

    table: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowFiles:
    """A row per file, of the partitions for which all conditions hold."""

    table: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """What people said of a table or view. key: of one property; None for all."""

    table: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """The statement that makes such a table or view. lists_columns: of a view whose query does not select ``*``."""

    table: str
    lists_columns: bool = True


class FunctionKind(StrEnum):
    """Which functions are meant; there are built-in ones alone. The value is the word for it."""

    ALL = "ALL"
    SYSTEM = "SYSTEM"
    USER = "USER"
    AGGREGATE = "AGGREGATE"
    ANALYTIC = "ANALYTIC"


@dataclass(frozen=True, slots=True)
class ShowFunctions:
    """Names of functions. kind: None where the statement says none. pattern: as of ShowTables.

    of_builtins: Impala's database of built-in functions is asked, which has no tables.
    """

    kind: FunctionKind | None = None
    pattern: str | None = None
    of_builtins: bool = False


class RightsKind(StrEnum):
    """What is asked about roles and grants, which statements do not give here. The value is its first words."""

    ROLES = "ROLES"
    CURRENT_ROLES = "CURRENT ROLES"
    ROLE_GRANT = "ROLE GRANT"
    PRINCIPALS = "PRINCIPALS"
    GRANT = "GRANT"


@dataclass(frozen=True, slots=True)
class ShowRights:
    """Roles and grants that statements gave: none."""

    kind: RightsKind


@dataclass(frozen=True, slots=True)
class Describe:
    """A row per column. details: with what is known of the table or view behind them. column: of this one alone."""

    table: str
    details: bool = False
    column: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeFunction:
    """What is known of a function, whether there is such a one or not. details: with more."""

    function: str
    details: bool = False


@dataclass(frozen=True, slots=True)
class SetOwner:
    """Give something to somebody."""

    name: str
    owner: str
    kind: OwnedKind = OwnedKind.TABLE


@dataclass(frozen=True, slots=True)
class UseDatabase:
    """Have bare names of the session mean what is in a database."""

    database: str


@dataclass(frozen=True, slots=True)
class DescribeDatabase:
    """What is known of a database. details: with its properties."""

    database: str
    details: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A new space of names. if_not_exists: one that is there is no mistake."""

    database: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetOption:
    """Change a setting of the session."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """Settings of the session. name: of one of them; None for all. meanings: with what they do.

    everything: with those of the dialect that nobody set and that mean nothing here.
    """

    name: str | None = None
    meanings: bool = False
    everything: bool = False


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Give settings of the session their defaults back. name: of one of them; None for all."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """Give a query a name. sql: the query as it was written, in its dialect; query: the same, checked.

    view: its full name; a bare one where it is temporary, the session's alone. database: of bare names in the query.
    columns: names that its columns get; none where they keep their own. annotations: None for those that it has.
    """

    view: str
    sql: str
    dialect: str
    database: str
    query: CheckedStatement | CompiledStatement
    columns: tuple[str, ...] = ()
    temporary: bool = False
    replace: bool = False
    if_not_exists: bool = False
    annotations: Annotations | None = NOT_ANNOTATED


@dataclass(frozen=True, slots=True)
class DropView:
    """Forget a view. view: as of CreateView. if_exists: one that is not there is no mistake."""

    view: str
    temporary: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Explain:
    """Where a statement would run, and why; nothing of it runs. details: with the engine's own plan."""

    statement: CompiledStatement | CreateView | Write
    details: bool = False


@dataclass(frozen=True, slots=True)
class Refresh:
    """Look at files again. table: None for all tables."""

    table: str | None = None


Listing = (
    ShowDatabases
    | ShowCatalogs
    | ShowNamespace
    | ShowTables
    | ShowTableExtended
    | ShowColumns
    | ShowPartitions
    | ShowFiles
    | ShowFunctions
    | ShowRights
    | ShowTableStats
    | ShowColumnStats
)
LISTINGS = (
    ShowDatabases,
    ShowCatalogs,
    ShowNamespace,
    ShowTables,
    ShowTableExtended,
    ShowColumns,
    ShowPartitions,
    ShowFiles,
    ShowFunctions,
    ShowRights,
    ShowTableStats,
    ShowColumnStats,
)
"""What is told as a list."""

Description = Describe | DescribeDatabase | DescribeFunction | ShowCreate | ShowProperties
DESCRIPTIONS = (Describe, DescribeDatabase, DescribeFunction, ShowCreate, ShowProperties)
"""What is told of one thing."""

Command = (
    Listing
    | Description
    | Explain
    | ComputeStats
    | ComputeIncrementalStats
    | DropStats
    | DropIncrementalStats
    | SetRows
    | SetColumnStats
    | SetOwner
    | UseDatabase
    | CreateDatabase
    | SetOption
    | ShowOptions
    | ResetOptions
    | CreateView
    | DropView
    | Refresh
    | AnalyzeTables
    | Definition
)
WITHOUT_ROWS = (
    UseDatabase,
    CreateDatabase,
    SetOption,
    ResetOptions,
    CreateView,
    DropView,
    SetOwner,
    *DEFINITIONS,
)  # they answer that they were done, with no table
