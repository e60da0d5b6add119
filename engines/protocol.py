"""What every engine can do.

An adapter implements ``Engine``; nothing else in the gateway knows which driver is behind it. Calls block,
are safe from several threads, and only ``EngineError`` escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from selector.quoting import InvalidName, require_name, require_printable
from selector.types import DataType, InvalidType, parse

EXPLAIN_S = 60.0  # longest that an engine may take to plan


def never() -> bool:
    """Nobody cancels."""
    return False


class EngineKind(StrEnum):
    """The two kinds that the gateway fuses."""

    FAST = "fast"  # everything in memory; fails when memory is spent
    DEPENDABLE = "dependable"  # spills and retries; finishes at any size


FORMATS = ("parquet", "csv", "json", "orc", "avro")
MIXED_COLUMNS = "mixed_columns"
"""Option: ``true`` where some files lack columns of the table, which are NULL in them."""
OPTIONS = {  # by format: how to read it, understood alike by every engine
    "csv": ("delimiter", "sep", "header"),
    "parquet": (MIXED_COLUMNS,),
    "orc": (MIXED_COLUMNS,),
}
_TRUE_OR_FALSE = ("header", MIXED_COLUMNS)
_GLOB = frozenset("*?[]{}\\")


class InvalidTable(ValueError):
    """What is said of a table or column cannot be; the message says what and why, as a whole sentence's middle."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. data_type: Spark's short form, such as ``bigint`` or ``decimal(10,2)``, whatever form was given.

    Raises InvalidTable for a name or type that is none, so that there is no column that cannot be written safely.
    """

    name: str
    data_type: str

    def __post_init__(self) -> None:
        try:
            require_name(self.name)
            object.__setattr__(self, "data_type", str(parse(self.data_type)))
        except InvalidName as error:
            raise InvalidTable(f"the name of the column {self.name!r:.80} {error}") from error
        except InvalidType as error:
            message = f"the type of the column {self.name}, {self.data_type!r:.80}, is none: {error.message}"
            raise InvalidTable(message) from error

    @property
    def type(self) -> DataType:
        """The type as a value, from which engines' statements are written."""
        return parse(self.data_type)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as an engine sees it: files in one place, in one form.

    location: an absolute folder or file. format: one of FORMATS.
    options: how to read text, such as ``{"delimiter": "|", "header": "false"}``.
    partition_columns: names of the columns that live in Hive-style folders, outermost first.
    defect: why what is stored of the table cannot be used; no engine is told of it, and it has no columns.

    Raises InvalidTable for what no engine could be told safely.
    """

    name: str
    location: str
    format: str
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    defect: str = ""

    def __post_init__(self) -> None:
        if self.defect:
            return
        try:
            require_name(self.name)
            require_printable(self.location)
        except InvalidName as error:
            raise InvalidTable(f"the name or place of the table {self.name!r:.80} {error}") from error
        if self.format not in FORMATS:
            raise InvalidTable(f"{self.format!r:.80} is not a known format: give one of {', '.join(FORMATS)}")
        if not _GLOB.isdisjoint(self.location):
            raise InvalidTable(
                "the place of a table must not hold any of * ? [ \\ ] { }, which engines read as patterns"
            )
        names: set[str] = set()
        for column in self.columns:
            if column.name.lower() in names:
                raise InvalidTable(f"there are two columns {column.name}, which engines do not tell apart by case")
            names.add(column.name.lower())
        if not {column.name for column in self.columns}.issuperset(self.partition_columns):
            raise InvalidTable("a partition column is not among the columns")
        require_options(self.format, self.options)


def require_options(format: str, options: Mapping[str, str]) -> None:
    """Raise InvalidTable for options of a format that there are not, or values that they cannot have."""
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
class Lease:
    """What an attempt may use. memory_bytes: the engine's limit for this one statement, until it is raised.

    threads: that work for it; None: as many as the engine has for one statement. careful: the statement ran out of
    memory on this engine; a dependable one runs it by itself, and so that it spills.
    """

    memory_bytes: int
    threads: int | None = None
    careful: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running statement is; None where the engine cannot tell.

    held_bytes: memory that it holds now, as its limit counts it. share: of its work that is done, 0..1.
    """

    held_bytes: int | None = None
    share: float | None = None


Watch: TypeAlias = Callable[[Progress], None]
"""Hears now and then how far a statement is, on the thread that reads its rows or on one of the engine's."""


def unwatched(progress: Progress) -> None:
    """Nobody looks: an engine to which this is given need not tell anything."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Some files of a table, which one statement reads by the name of ``source``, whatever else has that name.

    files: absolute paths, with the same partition folders below the table's as ever; none: no rows. file_column: the
    name of a further column, the URI of the file that a row is in. row_column: of one that holds another number in
    every row, though not the same ones each time.
    """

    source: TableSource
    files: tuple[str, ...]
    file_column: str | None = None
    row_column: str | None = None


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a query's rows go. folder: absolute; it does not exist yet.

    columns: names and types that the query's columns get, in their order; none where they keep their own. constants:
    further columns, which hold one value (as text, None for NULL) in every row. partition_columns: of all these, those
    that become folders, outermost first. read: what some names in the query mean in it alone.
    """

    folder: str
    format: str
    columns: tuple[Column, ...] = ()
    constants: tuple[tuple[Column, str | None], ...] = ()
    partition_columns: tuple[str, ...] = ()
    read: tuple[TableFiles, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorActual:
    """One operator after a run: what it was and the rows that came out of it."""

    name: str
    rows: int
    depth: int


@dataclass(frozen=True, slots=True)
class Actuals:
    """What a run really took. None where the engine cannot tell."""

    peak_bytes: int | None = None
    operators: tuple[OperatorActual, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine as it is now. detail: one line for an operator to read."""

    alive: bool
    detail: str


class ResultStream(AbstractContextManager["ResultStream"], Iterator[pa.RecordBatch], Protocol):
    """Arrow batches of one statement. Closing it cancels unfinished work and gives its resources back."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result, known before the first batch."""

    @property
    def actuals(self) -> Actuals:
        """What the run took; complete once the last batch was read."""

    def close(self) -> None:
        """End the statement; may be called twice."""


@runtime_checkable
class Engine(Protocol):
    """One SQL engine. Calls block; only EngineError escapes; thread-safe."""

    @property
    def name(self) -> str:
        """The name that users pin a statement to."""

    @property
    def kind(self) -> EngineKind:
        """Fast or dependable."""

    @property
    def dialect(self) -> str:
        """The sqlglot dialect in which statements must be written for it."""

    @property
    def cost_model(self) -> str | None:
        """The module of its cost model (see ``selector/cost/model.py``), None where it has none."""

    @property
    def formats(self) -> frozenset[str]:
        """Table formats that it can read."""

    @property
    def slots(self) -> int:
        """Statements that may run at once."""

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables that statements may name. Returns before every worker has seen them."""

    def explain(self, sql: str, *, deadline_s: float = EXPLAIN_S, cancelled: Callable[[], bool] = never) -> str:
        """Return the engine's plan text for a statement. cancelled: asked now and then whether anybody still waits."""

    def execute(
        self, sql: str, *, query_id: str, lease: Lease, deadline_s: float, watch: Watch = unwatched
    ) -> ResultStream:
        """Start a statement. deadline_s: seconds from now after which it is ended.

        watch: hears how far it is, where the engine can tell that while it runs.
        """

    def cancel(self, query_id: str) -> None:
        """End a running statement from another thread; an unknown id is not an error."""

    def status(self) -> EngineStatus:
        """Report quickly whether the engine can take work."""

    def close(self) -> None:
        """Stop everything that the adapter started."""


@runtime_checkable
class Elastic(Protocol):
    """An engine that gives a statement more memory while it runs. Thread-safe."""

    def raise_limit(self, query_id: str, memory_bytes: int) -> None:
        """Let a running statement take more than its lease says; one that has ended is not an error."""


@runtime_checkable
class Writer(Protocol):
    """An engine that can also write. Calls block; only EngineError escapes; thread-safe."""

    def write(self, sql: str, target: WriteTarget, *, query_id: str, deadline_s: float) -> pa.Schema:
        """Write a query's rows and return what their columns are, partition columns too.

        Where it fails the folder may hold anything; the caller deletes it. ``cancel`` works as for ``execute``.
        """
