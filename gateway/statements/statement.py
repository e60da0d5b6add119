"""Statements and their state: the values that the coordinator passes around."""

from __future__ import annotations

import calendar
import datetime as dt
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from engines.errors import DeadlineExceeded, StatementCancelled
from gateway.planning.fairness import Requester
from gateway.security.principals import IN_PROCESS, Principal
from gateway.statements import AUTO
from gateway.statements.caching import CacheUse
from gateway.statements.command import Command
from gateway.statements.futures import ReleasingFuture
from gateway.statements.partitions import AS_THE_DIALECT_HAS_IT, PartitionSettings
from gateway.statements.spans import StatementSpan
from gateway.statements.stages import StageClock
from metastore.records import QueryRecord, QueryState
from selector.decision import Rule
from sql.dialects.names import HIVES
from sql.tables import DEFAULT_DATABASE

ID_BYTES = 16
_ID_TIME, _ID_RANDOM = 8, 5  # bytes of an id's two parts
ID_BYTES_USED = _ID_TIME + _ID_RANDOM

if TYPE_CHECKING:
    import pyarrow as pa

    from gateway.statements.session import Session


@dataclass(frozen=True, slots=True)
class Presumed:
    """Requester and time that routing rules assume for a statement that is only explained. moment: None: now."""

    principal: Principal
    moment: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was submitted.

    engine: ``auto``, or the name of the one engine that may run it.
    principal: user who submitted it; every interface passes its own.
    deadline_s: seconds from submission until it is cancelled.
    session: session that it belongs to; None: the interface keeps none.
    partitions: settings for writing partitions.
    database: database of bare names.
    rule: routing policy; None: that of its pool, or the gateway's own.
    tags, headers: labels from its client, for routing rules; headers by lower-case name, those that rules name.
    presumed: requester and time that routing rules assume; None: the real ones.
    threads: threads that work for it on an engine; None: as its pool or the engine has it.
    cache: it may be answered from the cache; None: as its pool or the gateway has it.
    early_rows: rows may be read before its end, where no other engine's can replace them; None: as the gateway has it.
    of_hive: its client is a driver of Hive, Impala or Spark, which expects Hive's type names.
    """

    sql: str
    dialect: str = "spark"
    engine: str = AUTO
    principal: Principal = IN_PROCESS
    deadline_s: float = 3_600.0
    session: Session | None = None
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT
    database: str = DEFAULT_DATABASE
    rule: Rule | None = None
    pool: str = ""
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    presumed: Presumed | None = None
    threads: int | None = None
    cache: bool | None = None
    early_rows: bool | None = None
    of_hive: bool = False
    id: str = field(default_factory=lambda: new_query_id())
    submitted_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def user(self) -> str:
        """Name of its user."""
        return self.principal.name

    @property
    def has_hives_types(self) -> bool:
        """Tell whether its client knows types by Hive's names: TIMESTAMP without a zone is ``timestamp`` there."""
        return self.dialect in HIVES or self.of_hive

    @property
    def pinned(self) -> str | None:
        """The engine that was asked for by name."""
        return None if self.engine == AUTO else self.engine


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of a small result, in memory for the reply. content: the rows as an Arrow IPC stream."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    content: bytes


class WaitsFor(StrEnum):
    """Reasons for which a statement waits before it runs; for a lease, admission has details."""

    OBJECTS = "objects"
    """Columns that it reads come from an object store."""
    LEASE = "lease"
    FIRST_TRY = "first try"
    """Another run of the same text, which may not fit, is tried first."""
    ENGINE = "engine"
    """No engine can take it now, but one soon will."""
    PLANNER = "planner"
    """As many statements are read or planned as can be at once."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Current wait of a statement. engine: None: it waits for any engine."""

    reason: WaitsFor
    engine: str | None
    since: dt.datetime


@dataclass(frozen=True, slots=True)
class Admitted:
    """Lease of a statement. memory_bytes: None: its engine spills. threads: None: unknown."""

    engine: str
    at: dt.datetime
    waited_s: float
    memory_bytes: int | None
    threads: int | None


class Run:
    """Recorded statement with its state.

    record: its record in the metastore, perhaps not yet written; that of another gateway's run, which it takes over.
    opened: future that completes once the record is written.
    accepted: future that completes once it is classified, with the error that refuses it, or None.
    held: rows of a small result; None: a large result, or none yet.
    done: future of the record, complete once it is closed, however the query ended.
    ready: future that completes with ``done``, or earlier once rows can be read.
    command: the command; None: it is a query, or not yet classified.
    only: engines that may run a command; None: all.
    end_turn: function to call before it waits for anything, so that another one computes meanwhile (``OneAtATime``).
    give_back: function that releases its place; None: it holds none.
    cache: usage of the result cache.
    rows_seen: its client may have seen rows, so that no other run may take its place.
    is_lost: other gateways own it; the metastore tells how it goes on.
    is_taken_over: its client had asked another gateway, which is gone.
    """

    def __init__(self, statement: Statement, record: QueryRecord | None = None) -> None:
        self.statement = statement
        self.command: Command | None = None
        self.give_back: Callable[[], None] | None = None
        self.end_turn: Callable[[], None] = lambda: None
        self.record = record or QueryRecord(
            id=statement.id,
            sql=statement.sql,
            dialect=statement.dialect,
            database=statement.database,
            user=statement.user,
            authenticated=statement.principal.authenticated,
            requested_engine=statement.engine,
            state=QueryState.QUEUED,
            submitted_at=statement.submitted_at,
        )
        self.opened: Future[bool] = Future()
        if record is not None:
            self.opened.set_result(False)
        self.accepted: Future[Exception | None] = ReleasingFuture()
        self.done: Future[QueryRecord] = ReleasingFuture()
        self.ready: Future[None] = ReleasingFuture()
        self.done.add_done_callback(lambda _: self.is_ready())
        self.only: tuple[str, ...] | None = None
        self.held: HeldRows | None = None
        self.clock = StageClock()
        self.span = StatementSpan()
        self.cache = CacheUse.BYPASS
        self.rows_seen = False
        self.is_lost = False
        self.is_taken_over = record is not None
        self._engine: str | None = None
        self._pending: list[Pending] = []
        self._admitted: tuple[Admitted, ...] = ()
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._expires = time.monotonic() + statement.deadline_s

    @property
    def id(self) -> str:
        """The query's id."""
        return self.statement.id

    @contextmanager
    def on(self, engine: str) -> Iterator[None]:
        """Register an engine that is told of a cancel, within this context."""
        self._engine = engine
        try:
            yield
        finally:
            self._engine = None

    @property
    def engine(self) -> str | None:
        """The engine that it runs on now."""
        return self._engine

    @contextmanager
    def waits(self, reason: WaitsFor, engine: str | None = None) -> Iterator[None]:
        """Register a wait, within this context."""
        self.end_turn()
        pending = Pending(reason, engine, dt.datetime.now(dt.UTC))
        with self._lock:
            self._pending.append(pending)
        try:
            yield
        finally:
            with self._lock:
                self._pending.remove(pending)

    def admit(self, admitted: Admitted) -> None:
        """Record a granted lease."""
        with self._lock:
            self._admitted = (*self._admitted, admitted)

    @property
    def pending(self) -> tuple[Pending, ...]:
        """Reason for which it waits now; None: it does not wait."""
        with self._lock:
            return tuple(self._pending)

    @property
    def admitted(self) -> tuple[Admitted, ...]:
        """The leases that it was given so far, in order."""
        with self._lock:
            return self._admitted

    @property
    def state(self) -> QueryState:
        """Current state: QUEUED until it has a lease, and again while it waits for another one and runs nowhere."""
        if self.record.state.ended:
            return self.record.state
        with self._lock:
            waits = bool(self._pending) or not (self._admitted or self.command)
            return QueryState.QUEUED if waits and self._engine is None else QueryState.RUNNING

    @property
    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self._cancelled.is_set()

    @property
    def requester(self) -> Requester:
        """Requester of planning work: the user and the remaining time."""
        waiting = partial(self.waits, WaitsFor.PLANNER)
        account = self.statement.principal.account
        return Requester(account, self._expires, self._cancelled.is_set, waiting, self.end_turn)

    def is_ready(self) -> None:
        """Complete ``ready``."""
        with self._lock:
            first = not self.ready.running() and not self.ready.done() and self.ready.set_running_or_notify_cancel()
        if first:
            self.ready.set_result(None)

    def require_accepted(self) -> None:
        """Wait until it is classified, and raise the error that refuses it. A cancelled one is not refused."""
        error = self.accepted.result()
        if error is not None:
            raise error

    def cancel(self) -> bool:
        """Cancel it; return whether it was not cancelled before."""
        with self._lock:
            first = not self._cancelled.is_set()
            self._cancelled.set()
        return first

    def wait(self, wait_s: float) -> bool:
        """Wait; return whether it was not cancelled meanwhile."""
        return not self._cancelled.wait(wait_s)

    @property
    def remaining_s(self) -> float:
        """Seconds until its deadline; zero or less once it has passed."""
        return self._expires - time.monotonic()

    def require(self) -> None:
        """Raise StatementCancelled or DeadlineExceeded if it was cancelled or its time is up."""
        if self.cancelled:
            raise StatementCancelled("The statement was cancelled.")
        if self.remaining_s <= 0:
            raise DeadlineExceeded("The statement's time is spent.")


def new_query_id() -> str:
    """Return an id that sorts by time and reads well: 20260131_235959_1a2b3c4d5e."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(_ID_RANDOM)}"


def submitted_s(query_id: str) -> float | None:
    """Return when a query was submitted, in seconds since 1970; None of an id that is none."""
    day, _, rest = query_id.partition("_")
    clock = rest.partition("_")[0]
    if not (len(day) == len("YYYYmmdd") and len(clock) == len("HHMMSS") and (day + clock).isdecimal()):
        return None
    year, month, date = int(day[:4]), int(day[4:6]), int(day[6:])
    return float(calendar.timegm((year, month, date, int(clock[:2]), int(clock[2:4]), int(clock[4:]))))


def number_of(query_id: str) -> bytes:
    """Return a query's id as 16 bytes, the last ones free, for protocols in which it is such a number."""
    day, time_of_day, random = query_id.split("_")
    whole = int(day + time_of_day).to_bytes(_ID_TIME, "big") + bytes.fromhex(random)
    return whole.ljust(ID_BYTES, b"\0")


def query_of(number: bytes) -> str:
    """Return the id of a query from its 16 bytes; of others, an id that no query has."""
    digits = f"{int.from_bytes(number[:_ID_TIME], 'big'):014}"
    return f"{digits[:8]}_{digits[8:]}_{number[_ID_TIME:ID_BYTES_USED].hex()}"
