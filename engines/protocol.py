"""The protocol of an engine.

A class in each engine's folder implements ``Engine``; nothing else knows its driver. Calls block and are thread-safe,
and only ``EngineError`` escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from selector.decision import TableRead
from sql.tables import Column, TableSource

EXPLAIN_S = 60.0  # limit of the time to plan a statement


def never() -> bool:
    """Return False: nobody cancels."""
    return False


class EngineKind(StrEnum):
    """The two kinds of engines that the gateway combines."""

    FAST = "fast"  # keeps everything in memory; fails when memory is exhausted
    DEPENDABLE = "dependable"  # spills and retries; finishes at any size


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of memory and threads for one attempt."""

    memory_bytes: int
    """The engine's limit for this statement, until it is raised."""
    threads: int | None = None
    """None: as many as the engine uses for one statement."""
    careful: bool = False
    """The statement ran out of memory on this engine: a dependable one runs it alone, with settings that spill."""


Watch: TypeAlias = Callable[[int], None]
"""Called from time to time with the memory that a statement holds, in bytes of its limit, if the engine can tell.

It is called on the thread that reads the statement's rows, or on a thread of the engine."""


def unwatched(held_bytes: int) -> None:
    """Ignore the memory: an engine that gets this function need not measure it."""


Snapshots: TypeAlias = Sequence[TableSource]
"""Tables that a statement reads, each with its snapshot; it reads others of ``use_tables`` as they are then."""


def snapshots_of(tables: Iterable[TableSource]) -> Snapshots:
    """Return the tables that have a snapshot."""
    return tuple(table for table in tables if table.snapshot is not None)


def reads_of(tables: Iterable[TableSource]) -> Mapping[str, TableRead]:
    """Return the files of the tables that have a snapshot, by names of tables."""
    return {
        table.name: TableRead(table.snapshot.id, table.snapshot.files, table.snapshot.bytes, table.snapshot.list_name)
        for table in tables
        if table.snapshot is not None
    }


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Some files of a table that one statement reads by the name of ``source``, before other tables of that name.

    files: absolute paths, with the table's partition folders; if the source has a snapshot, some of its data files,
    without their deleted rows. Empty: no rows.
    file_column: name of an extra column with the URI of the row's file; snapshots alone have it.
    row_column: name of an extra column with the number of the row in its file; snapshots alone have it.
    """

    source: TableSource
    files: tuple[str, ...]
    file_column: str | None = None
    row_column: str | None = None


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Destination of a query's rows.

    folder: absolute; it does not exist yet.
    columns: names and types of the written columns, in the query's order; empty: the query's own.
    constants: extra columns with one value (as text; None: NULL) in every row.
    partition_columns: the columns that become folders, outermost first.
    read: tables of the query of which it reads only some files.
    snapshots: tables of the query, as it reads them.
    by_name: the query's columns are found by their names, and those that it lacks are NULL. Structs whose fields are
        a column's in another order are an error.
    """

    folder: str
    format: str
    columns: tuple[Column, ...] = ()
    constants: tuple[tuple[Column, str | None], ...] = ()
    partition_columns: tuple[str, ...] = ()
    read: tuple[TableFiles, ...] = ()
    snapshots: Snapshots = ()
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class OperatorActual:
    """One operator of a finished run, with the rows that it returned."""

    name: str
    rows: int
    depth: int


@dataclass(frozen=True, slots=True)
class Actuals:
    """Measurements of a run. peak_bytes: None: the engine cannot tell."""

    peak_bytes: int | None = None
    operators: tuple[OperatorActual, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """State of an engine.

    detail: one line for the administrator.
    starts: processes that were started so far; None: it has none of its own, or does not count them.
    """

    alive: bool
    detail: str
    starts: int | None = None


class ResultStream(AbstractContextManager["ResultStream"], Iterator[pa.RecordBatch], Protocol):
    """Arrow batches of one statement. Closing it cancels unfinished work and releases its resources."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result, known before the first batch."""

    @property
    def actuals(self) -> Actuals:
        """Measurements of the run; complete once the last batch was read."""

    def close(self) -> None:
        """End the statement; may be called twice."""


@runtime_checkable
class Engine(Protocol):
    """One SQL engine. Calls block; only EngineError escapes; thread-safe."""

    @property
    def name(self) -> str:
        """The name by which users pin a statement to it."""

    @property
    def kind(self) -> EngineKind:
        """Fast or dependable."""

    @property
    def writer(self) -> str:
        """The module that writes statements for it (see ``engines/writing.py``)."""

    @property
    def backtracks(self) -> bool:
        """True if it uses Java's matcher for regular expressions, which may take for ever and cannot be cancelled."""

    @property
    def cost_model(self) -> str | None:
        """The module of its cost model (see ``engines/cost_model.py``); None: it has none."""

    @property
    def formats(self) -> frozenset[str]:
        """Table formats that it can read."""

    @property
    def slots(self) -> int:
        """Statements that may run at once."""

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables that statements may name. Returns before every worker has seen them."""

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the engine's plan text for a statement. cancelled: called repeatedly; True ends the call."""

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> ResultStream:
        """Start a statement, to be ended after ``deadline_s`` seconds. watch: called with its memory while it runs."""

    def cancel(self, query_id: str) -> None:
        """End a running statement from another thread; an unknown id is not an error."""

    def status(self) -> EngineStatus:
        """Return quickly if the engine can accept work."""

    def close(self) -> None:
        """Stop everything that the adapter started."""


@runtime_checkable
class Elastic(Protocol):
    """An engine that gives a statement more memory while it runs. Thread-safe."""

    def raise_limit(self, query_id: str, memory_bytes: int) -> None:
        """Raise the memory limit of a running statement; one that has ended is not an error."""


@runtime_checkable
class Impersonator(Protocol):
    """An engine whose statements may run as the user who sent them, by the engine's own rights. Thread-safe."""

    @property
    def acts_for_users(self) -> bool:
        """Statements of users run as they; the gateway's own, as its own user."""

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
        user: str | None = None,
    ) -> ResultStream:
        """Start a statement as a user, None: as the gateway's own. Raises UserRefused where the engine refuses that."""


@runtime_checkable
class Writer(Protocol):
    """An engine that can also write. Calls block; only EngineError escapes; thread-safe."""

    def write(self, sql: str, target: WriteTarget, *, query_id: str, deadline_s: float) -> pa.Schema:
        """Write a query's rows. Returns their columns, with partition columns.

        After a failure, the caller deletes the folder. ``cancel`` works as for ``execute``.
        """
