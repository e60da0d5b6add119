"""What every engine can do.

An adapter implements ``Engine``; nothing else in the gateway knows which driver is behind it. Calls block,
are safe from several threads, and only ``EngineError`` escapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

import pyarrow as pa


class EngineKind(StrEnum):
    """The two kinds that the gateway fuses."""

    FAST = "fast"  # everything in memory; fails when memory is spent
    DEPENDABLE = "dependable"  # spills and retries; finishes at any size


@dataclass(frozen=True, slots=True)
class Column:
    """One column. data_type: Spark's short form, such as ``bigint`` or ``decimal(10,2)``."""

    name: str
    data_type: str


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as an engine sees it: files in one place, in one form.

    location: an absolute folder or file. format: ``parquet``, ``csv`` or ``json``.
    options: how to read text, such as ``{"delimiter": "|", "header": "false"}``.
    partition_columns: names of the columns that live in Hive-style folders, outermost first.
    """

    name: str
    location: str
    format: str
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """What an attempt may use. memory_bytes: the engine's limit for this one statement."""

    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a query's rows go. folder: absolute; it does not exist yet.

    columns: names and types that the query's columns get, in their order; none where they keep their own. constants:
    further columns, which hold one value (as text, None for NULL) in every row. partition_columns: of all these, those
    that become folders, outermost first.
    """

    folder: str
    format: str
    columns: tuple[Column, ...] = ()
    constants: tuple[tuple[Column, str | None], ...] = ()
    partition_columns: tuple[str, ...] = ()


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
    def formats(self) -> frozenset[str]:
        """Table formats that it can read."""

    @property
    def slots(self) -> int:
        """Statements that may run at once."""

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables that statements may name. Returns before every worker has seen them."""

    def explain(self, sql: str) -> str:
        """Return the engine's plan text for a statement."""

    def execute(self, sql: str, *, query_id: str, lease: Lease, deadline_s: float) -> ResultStream:
        """Start a statement. deadline_s: seconds from now after which it is ended."""

    def cancel(self, query_id: str) -> None:
        """End a running statement from another thread; an unknown id is not an error."""

    def status(self) -> EngineStatus:
        """Report quickly whether the engine can take work."""

    def close(self) -> None:
        """Stop everything that the adapter started."""


@runtime_checkable
class Writer(Protocol):
    """An engine that can also write. Calls block; only EngineError escapes; thread-safe."""

    def write(self, sql: str, target: WriteTarget, *, query_id: str, deadline_s: float) -> pa.Schema:
        """Write a query's rows and return what their columns are, partition columns too.

        Where it fails the folder may hold anything; the caller deletes it. ``cancel`` works as for ``execute``.
        """
