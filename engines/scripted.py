"""An engine that plays back a test's scripts, and records its calls.

    engine = ScriptedEngine("fast", kind=EngineKind.FAST)
    engine.script("orders", Script(steps=(batch, MemoryExceeded("full"))), Script(steps=(batch,)))

The first statement whose text contains ``orders`` gets one batch and then the error, every later one the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self, TypeAlias

import pyarrow as pa

from engines.errors import DeadlineExceeded, EngineError, EngineUnavailable, StatementCancelled, StatementError
from engines.protocol import EXPLAIN_S, Actuals, EngineKind, EngineStatus, Lease, Snapshots, Watch, never, unwatched
from sql.tables import TableSource

_WAIT_STEP_S = 0.005


class Pause(Enum):
    """A step that waits."""

    UNTIL_ENDED = "until the statement is cancelled, closed or late"


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that a statement reports to its watch."""

    bytes: int


Step: TypeAlias = pa.RecordBatch | EngineError | threading.Event | Pause | Held
"""A batch to deliver, an error to raise, an event to wait for, an endless wait, or memory that the statement holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """Behaviour of one statement.

    steps: played in order while the result is read.
    before: played inside ``execute``, for a statement that fails or hangs before it has a schema.
    schema: None: that of the first batch.
    plan: text of EXPLAIN.
    """

    steps: tuple[Step, ...] = ()
    before: tuple[EngineError | threading.Event | Pause | Held, ...] = ()
    schema: pa.Schema | None = None
    actuals: Actuals = field(default_factory=Actuals)
    plan: str = "SCRIPTED SCAN"

    @property
    def result_schema(self) -> pa.Schema:
        """Names and types of the result."""
        batches = (step for step in self.steps if isinstance(step, pa.RecordBatch))
        return self.schema or next((batch.schema for batch in batches), pa.schema([]))


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of ``execute``."""

    sql: str
    query_id: str
    lease: Lease
    deadline_s: float


class ScriptedEngine:
    """An ``Engine`` and ``Elastic``. A statement without a script is a StatementError.

    asked, explained, cancelled, raised: the calls so far, in order.
    tables: that statements may name now.
    open_results: statements that were started and not yet closed or read to their end.
    reported_status: reply of ``status``; a test may replace it.
    """

    def __init__(
        self,
        name: str = "scripted",
        *,
        kind: EngineKind = EngineKind.FAST,
        writer: str | None = None,
        cost_model: str | None = "engines.duckdb.cost",
        formats: frozenset[str] = frozenset({"parquet", "csv", "json"}),
        slots: int = 2,
    ) -> None:
        self.name = name
        self.kind = kind
        self.backtracks = kind is EngineKind.DEPENDABLE
        self.writer = writer or ("engines.spark_sql.writer" if self.backtracks else "engines.duckdb.writer.statement")
        self.cost_model = cost_model if kind is EngineKind.FAST else None
        self.formats = formats
        self.slots = slots
        self.asked: list[Asked] = []
        self.explained: list[str] = []
        self.cancelled: list[str] = []
        self.raised: list[tuple[str, int]] = []
        self.tables: tuple[TableSource, ...] = ()
        self.open_results = 0
        self.closed = False
        self.reported_status = EngineStatus(alive=True, detail="scripted")
        self._lock = threading.Lock()
        self._scripts: list[tuple[str, list[Script]]] = []
        self._running: dict[str, ScriptedResult] = {}

    def script(self, text: str, *scripts: Script) -> None:
        """Play the scripts, one after the other, for statements that contain the text; the last one repeats.

        Of several texts that match, the one given last counts.
        """
        if not scripts:
            raise ValueError("a text needs at least one script")
        with self._lock:
            self._scripts.insert(0, (text.casefold(), list(scripts)))

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Remember the tables."""
        self.tables = tuple(tables)

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the plan of the script that the statement would get next."""
        with self._lock:
            self._raise_if_closed()
            self.explained.append(sql)
            return self._scripts_for(sql)[0].plan

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> ScriptedResult:
        """Play the statement's next script."""
        with self._lock:
            self._raise_if_closed()
            self.asked.append(Asked(sql, query_id, lease, deadline_s))
            scripts = self._scripts_for(sql)
            script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
            result = ScriptedResult(script, deadline_s, watch, on_end=lambda: self._forget(query_id))
            self._running[query_id] = result
            self.open_results += 1
        result.start()
        return result

    def cancel(self, query_id: str) -> None:
        """End a running statement."""
        with self._lock:
            self.cancelled.append(query_id)
            result = self._running.get(query_id)
        if result is not None:
            result.cancel()

    def raise_limit(self, query_id: str, memory_bytes: int) -> None:
        """Record the new limit of a statement."""
        with self._lock:
            self.raised.append((query_id, memory_bytes))

    def status(self) -> EngineStatus:
        """Return the status that the test set."""
        return EngineStatus(alive=False, detail="closed") if self.closed else self.reported_status

    def close(self) -> None:
        """End every statement."""
        with self._lock:
            self.closed = True
            running = list(self._running.values())
        for result in running:
            result.cancel()

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise EngineUnavailable(f"{self.name} was closed")

    def _scripts_for(self, sql: str) -> list[Script]:
        text = sql.casefold()
        for part, scripts in self._scripts:
            if part in text:
                return scripts
        raise StatementError(f"{self.name} has no script for this statement")

    def _forget(self, query_id: str) -> None:
        with self._lock:
            self._running.pop(query_id, None)
            self.open_results -= 1


class ScriptedResult:
    """The playback of one script."""

    def __init__(self, script: Script, deadline_s: float, watch: Watch, on_end: Callable[[], None]) -> None:
        self._script = script
        self._watch = watch
        self._deadline_s = deadline_s
        self._late_at_s = time.monotonic() + deadline_s
        self._on_end = on_end
        self._cancelled = threading.Event()
        self._closed = threading.Event()
        self._ended = False
        self._lock = threading.Lock()
        self._batches = self._play()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result."""
        return self._script.result_schema

    @property
    def actuals(self) -> Actuals:
        """Measurements of the script."""
        return self._script.actuals

    def start(self) -> None:
        """Play the steps before the schema."""
        try:
            for step in self._script.before:
                self._take(step)
        except EngineError:
            self._end()
            raise

    def cancel(self) -> None:
        """Let the next step, or the current wait, raise StatementCancelled."""
        self._cancelled.set()

    def close(self) -> None:
        """End the statement; may be called twice."""
        self._closed.set()
        self._end()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._closed.is_set():
            raise StopIteration
        try:
            return next(self._batches)
        except (EngineError, StopIteration):
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _play(self) -> Iterator[pa.RecordBatch]:
        for step in self._script.steps:
            if isinstance(step, pa.RecordBatch):
                self._raise_if_over()
                yield step
            else:
                self._take(step)
        self._raise_if_over()

    def _take(self, step: EngineError | threading.Event | Pause | Held) -> None:
        self._raise_if_over()
        if isinstance(step, Held):
            self._watch(step.bytes)
        if isinstance(step, EngineError):
            raise step
        while step is Pause.UNTIL_ENDED or (isinstance(step, threading.Event) and not step.is_set()):
            self._raise_if_over()
            self._cancelled.wait(_WAIT_STEP_S)

    def _raise_if_over(self) -> None:
        if self._cancelled.is_set() or self._closed.is_set():
            raise StatementCancelled("The statement was cancelled")
        if time.monotonic() >= self._late_at_s:
            raise DeadlineExceeded(f"The statement did not end within {self._deadline_s:.3g} s")

    def _end(self) -> None:
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._on_end()
