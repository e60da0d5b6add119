"""Operations: what a driver started, with a cursor over its rows.

Rows come from the spool, a reply's worth at a time; between two replies nothing of a result is held, but for the next
replies of a few (``ReadAhead``).
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from gateway.commands.answers import has_rows
from gateway.drivers.hs2 import timeline
from gateway.drivers.hs2.protocol.messages import FetchReply, HandleIdentifier, OperationType
from gateway.drivers.operations import StatementOperation
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.downloads import WIDE_BYTES
from gateway.execution.spooling.results import ResultFile, Spool, in_memory, weigh
from gateway.presentation.waits import Wait, Waits
from gateway.statements.processes import mark
from gateway.statements.statement import ID_BYTES, MARK_AT, Run, number_of
from metastore.records import QueryRecord

REPLY_BYTES = 2 << 20  # of rows in one reply, as ``results.weigh`` has them; at least a row
REPLY_ROWS = 100_000
READY_REPLIES = 16  # that are ready at once, each of ``REPLY_BYTES`` of rows; the oldest go

Opener = Callable[[], AbstractContextManager[ResultFile]]


def _new_number() -> bytes:
    """Return a number that nobody guesses; of one of several processes, it says of which."""
    number, marked = secrets.token_bytes(ID_BYTES), mark()
    return number[:MARK_AT] + marked + number[MARK_AT + len(marked) :]


@dataclass(frozen=True, slots=True)
class Identifier:
    """What a handle is known by: a number for all to see, and a secret that proves it was given to the client."""

    guid: bytes = field(default_factory=_new_number)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(ID_BYTES))

    def fits(self, told: HandleIdentifier) -> bool:
        """Tell whether a client knows the secret."""
        return told.secret is not None and hmac.compare_digest(self.secret, told.secret)

    def message(self) -> HandleIdentifier:
        """Return it as it is sent."""
        return HandleIdentifier(self.guid, self.secret)


@dataclass(frozen=True, slots=True)
class Ready:
    """A reply with the next rows, made before it was asked for. asked: what it answers."""

    asked: Hashable
    reply: FetchReply


class Cursor:
    """Rows of one result, in order. Thread-safe; between two replies it holds no file and no rows.

    ready: the exception, which others may take away at any time (``ReadAhead``).
    """

    def __init__(self, open_result: Opener) -> None:
        self._open = open_result
        self._lock = threading.Lock()
        self._schema: pa.Schema | None = None
        self.has_ended = False  # no rows are left
        self._begin: int | None = None  # of the batch that holds the next row, in the file; None for the first one
        self._at = 0  # in the batch
        self._offset = 0  # in the result
        self._mark: tuple[int | None, int, int, bool] | None = None  # where it was before it went on by itself
        self.ready: Ready | None = None

    @property
    def offset(self) -> int:
        """How many rows were read."""
        return self._offset

    def mark(self) -> None:
        """Note where it is, to come back."""
        with self._lock:
            self._mark = self._begin, self._at, self._offset, self.has_ended

    def forget_mark(self) -> None:
        """Go on from where it is."""
        with self._lock:
            self._mark = None

    def return_to_mark(self) -> None:
        """Go back to where it was, if that was noted."""
        with self._lock:
            if self._mark is not None:
                self._begin, self._at, self._offset, self.has_ended = self._mark
                self._mark = None

    @property
    def position(self) -> int:
        """Where the batch that holds the next row begins in the file; 0 for the first one."""
        return self._begin or 0

    def schema(self) -> pa.Schema:
        """Return names and types. Raises ResultGone."""
        with self._lock:
            if self._schema is None:
                with self._open() as result:
                    self._schema = result.schema
            return self._schema

    def next(
        self, max_rows: int, *, rewind: bool = False, admit: Callable[[int], None] | None = None
    ) -> tuple[int, pa.RecordBatch]:
        """Return how many rows came before, and the next ones; none at the end, or while they are still to come.

        Raises ResultGone, QueryFailed.
        admit: is told the bytes of a row that is wide by itself before it is read, and may raise.
        """
        with self._lock:
            if rewind:
                self._begin, self._at, self._offset, self.has_ended = None, 0, 0, False
            offset, pieces = self._offset, list[pa.RecordBatch]()
            if max_rows > 0 and not self.has_ended:
                before = self._begin, self._at
                try:
                    with self._open() as result:
                        self._schema = result.schema
                        pieces = list(self._pieces(result, min(max_rows, REPLY_ROWS), admit))
                except BaseException:
                    self._begin, self._at = before  # nobody has seen the rows that were read
                    raise
            self._offset += sum(piece.num_rows for piece in pieces)
        if len(pieces) == 1:
            return offset, pieces[0]
        schema = self.schema()
        if not pieces:
            return offset, pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        return offset, pa.Table.from_batches(pieces, schema).combine_chunks().to_batches()[0]

    def _pieces(
        self, result: ResultFile, missing: int, admit: Callable[[int], None] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the next rows. A wide row is a reply of its own."""
        room = REPLY_BYTES
        if self._begin is not None:
            result.seek(self._begin)
        while missing > 0 and room > 0:
            self._begin = result.tell()
            if result.is_behind:
                return
            size = result.next_bytes()
            if size is None:
                self.has_ended = True
                return
            if size > WIDE_BYTES and admit is not None:
                if room < REPLY_BYTES:
                    return
                admit(size)
            batch = result.read_batch()
            if size <= WIDE_BYTES < (weight := weigh(batch)) and admit is not None:
                if room < REPLY_BYTES:
                    return
                admit(weight)
            while missing > 0 and room > 0 and self._at < batch.num_rows:
                piece = _within(batch.slice(self._at, missing), room)
                self._at += piece.num_rows
                missing -= piece.num_rows
                room -= weigh(piece)
                yield piece
            if self._at >= batch.num_rows:
                self._begin, self._at = result.tell(), 0


class ReadAhead:
    """Writes replies before they are asked for: while a client works on some rows, the next ones are made ready.

    Python's drivers take rows by the thousand, and work for milliseconds on what is written here in one or two. Without
    this, each waits for the other. Thread-safe; one cursor is one thread's at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cursors: OrderedDict[Cursor, None] = OrderedDict()  # with a reply, or closed meanwhile

    def take(self, cursor: Cursor, asked: Hashable) -> FetchReply | None:
        """Return the reply that is ready. Where it is another one, or none, the cursor goes back to where it was."""
        with self._lock:
            self._cursors.pop(cursor, None)
            ready, cursor.ready = cursor.ready, None
        if ready is not None and ready.asked == asked:
            cursor.forget_mark()
            return ready.reply
        cursor.return_to_mark()
        return None

    def make(self, cursor: Cursor, asked: Hashable, write: Callable[[], FetchReply]) -> None:
        """Write the next reply. What goes wrong meanwhile is met again, and told, by the call that asks for it."""
        cursor.mark()
        ready = None
        with suppress(Exception):
            ready = Ready(asked, write())
        if ready is None:
            cursor.return_to_mark()
            return
        with self._lock:
            cursor.ready = ready
            self._cursors[cursor] = None
            while len(self._cursors) > READY_REPLIES:
                self._cursors.popitem(last=False)[0].ready = None


def _within(batch: pa.RecordBatch, room: int) -> pa.RecordBatch:
    """Return as many of the first rows as have room, at least one."""
    while batch.num_rows > 1 and weigh(batch) > room:
        batch = batch.slice(0, batch.num_rows // 2)
    return batch


class Operation(Protocol):
    """What a driver holds a handle of. Thread-safe."""

    @property
    def identifier(self) -> Identifier:
        """What its handle is known by."""

    @property
    def kind(self) -> OperationType:
        """What it does."""

    @property
    def has_result_set(self) -> bool:
        """Whether there are rows to be fetched, even none."""

    @property
    def cursor(self) -> Cursor:
        """Its rows."""

    @property
    def done(self) -> Future[QueryRecord]:
        """Complete once the operation has ended, however."""

    @property
    def ready(self) -> Future[None]:
        """Complete once rows can be read, or it has ended, however."""

    @property
    def has_early_rows(self) -> bool:
        """Whether it runs, and rows of it can be read."""

    def rows_after(self, position: int) -> Future[None]:
        """Return what completes once rows behind a place in the result's file can be read, or it has ended."""

    @property
    def run(self) -> Run | None:
        """The query behind it, if it is one."""

    def require_finished(self) -> None:
        """Raise the error that it ended with, or that it has not ended."""

    def require_rows(self) -> None:
        """Raise the error that it ended with, or that no rows can be read yet."""

    def rows_written(self) -> int | None:
        """Return how many rows it wrote, None where it is not one that writes, or did not."""

    def log_lines(self, *, rewind: bool) -> list[str]:
        """Return what has happened since the last call, or so far."""

    def wait(self) -> Wait | None:
        """Return what it waits for, if it does."""

    def cancel(self) -> None:
        """End it early."""

    def close(self) -> None:
        """End it, and forget its result."""


class TableOperation:
    """Implements ``Operation`` over rows that are there from the beginning."""

    def __init__(self, kind: OperationType, table: pa.Table) -> None:
        self.identifier = Identifier()
        self.kind = kind
        self.has_result_set = True
        self.cursor = Cursor(lambda: contextlib.nullcontext(in_memory(table)))
        self.run: Run | None = None
        self.done: Future[QueryRecord] = Future()
        self.done.cancel()
        self.ready: Future[None] = Future()
        self.ready.cancel()
        self.has_early_rows = False

    def rows_after(self, position: int) -> Future[None]:
        """Return what is complete: all rows are there."""
        return self.ready

    def require_finished(self) -> None:
        """Do nothing: it has."""

    def require_rows(self) -> None:
        """Do nothing: they are there."""

    def rows_written(self) -> int | None:
        """Return None."""
        return None

    def log_lines(self, *, rewind: bool) -> list[str]:
        """Return no lines."""
        return []

    def wait(self) -> Wait | None:
        """Return None: it has ended."""
        return None

    def cancel(self) -> None:
        """Do nothing: it has ended."""

    def close(self) -> None:
        """Do nothing: the rows go with it."""


class QueryOperation(StatementOperation):
    """Implements ``Operation`` over a query."""

    def __init__(self, run: Run, coordinator: Coordinator, spool: Spool, waits: Waits) -> None:
        super().__init__(run, coordinator, spool)
        self._waits = waits
        self._log = timeline.OperationLog(run)
        self.identifier = Identifier(number_of(run.id))
        self.kind = OperationType.EXECUTE_STATEMENT
        self.cursor = Cursor(self.rows.open)

    @property
    def has_result_set(self) -> bool:
        """Whether there are rows to be fetched; of what is not read yet, as if it were a query."""
        return has_rows(self.run.command, self.run.statement.dialect)

    def wait(self) -> Wait | None:
        """Return what the query waits for."""
        return self._waits.of(self.run.id)

    def close(self) -> None:
        """Cancel the query, or delete its rows, which nobody can fetch any more."""
        self.cursor.ready = None
        super().close()

    def log_lines(self, *, rewind: bool) -> list[str]:
        """Return the decision, waits, attempts and the end, as far as they are known and were not told before."""
        return self._log.lines(self.wait(), rewind=rewind)
