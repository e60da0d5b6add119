"""Operations of drivers, with a cursor over their rows.

Rows come from the spool, one reply at a time; between two replies no rows are in memory, except the prepared replies of
a few cursors (``ReadAhead``).
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
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from gateway.drivers.handles import Handles
from gateway.drivers.hs2 import timeline
from gateway.drivers.hs2.protocol.messages import FetchReply, HandleIdentifier, OperationType
from gateway.drivers.operations import StatementOperation
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.downloads import WIDE_BYTES
from gateway.execution.spooling.results import ResultFile, Spool, in_memory, weigh
from gateway.presentation.waits import Wait, Waits
from gateway.statements.statement import ID_BYTES, Run
from metastore.records import QueryRecord

REPLY_BYTES = 2 << 20  # of rows in one reply, by ``results.weigh``; at least a row
REPLY_ROWS = 100_000
READY_REPLIES = 16  # prepared replies, each of ``REPLY_BYTES``; the oldest are dropped

Opener = Callable[[], AbstractContextManager[ResultFile]]


@dataclass(frozen=True, slots=True)
class Identifier:
    """Identity of a handle: a public number, and a secret that proves that the client got the handle, and whose it is.

    secret: the number's mark (``handles.py``).
    """

    guid: bytes
    secret: bytes

    @classmethod
    def of(cls, handles: Handles, guid: bytes | None = None) -> Identifier:
        """Return the identity of a new handle. guid: None: a random one."""
        guid = guid or secrets.token_bytes(ID_BYTES)
        return cls(guid, handles.mark(guid))

    def matches(self, sent: Identifier | None) -> bool:
        """Tell whether a client knows number and secret."""
        return sent is not None and sent.guid == self.guid and hmac.compare_digest(self.secret, sent.secret)

    def message(self) -> HandleIdentifier:
        """Return the identity as a message."""
        return HandleIdentifier(self.guid, self.secret)


@dataclass(frozen=True, slots=True)
class Ready:
    """A reply that was prepared before the client asked. fetch: parameters of the call that it answers."""

    fetch: Hashable
    reply: FetchReply


class Cursor:
    """Rows of one result, in order. Thread-safe; between two replies it holds no file and no rows.

    ready: a prepared reply, which ``ReadAhead`` may drop at any time.
    """

    def __init__(self, open_result: Opener) -> None:
        self._open = open_result
        self._lock = threading.Lock()
        self._schema: pa.Schema | None = None
        self.has_ended = False  # no rows are left
        self._begin: int | None = None  # place of the next row's batch in the file; None: the first one
        self._at = 0  # place of the next row in the batch
        self._offset = 0  # number of rows that were read
        self._mark: tuple[int | None, int, int, bool] | None = None  # its state before it prepared a reply
        self.ready: Ready | None = None

    @property
    def offset(self) -> int:
        """Number of rows that were read."""
        return self._offset

    def mark(self) -> None:
        """Remember the position."""
        with self._lock:
            self._mark = self._begin, self._at, self._offset, self.has_ended

    def forget_mark(self) -> None:
        """Keep the position of now."""
        with self._lock:
            self._mark = None

    def return_to_mark(self) -> None:
        """Go back to the remembered position, if there is one."""
        with self._lock:
            if self._mark is not None:
                self._begin, self._at, self._offset, self.has_ended = self._mark
                self._mark = None

    @property
    def position(self) -> int:
        """Place of the next row's batch in the file; 0: the first one."""
        return self._begin or 0

    def schema(self) -> pa.Schema:
        """Return names and types of columns. Raises ResultGone."""
        with self._lock:
            if self._schema is None:
                with self._open() as result:
                    self._schema = result.schema
            return self._schema

    def next(
        self, max_rows: int, *, rewind: bool = False, admit: Callable[[int], None] | None = None
    ) -> tuple[int, pa.RecordBatch]:
        """Return the number of rows before, and the next rows: none at the end, or while they are still to come.

        admit: called with the size of a wide row before it is read; may raise. Raises ResultGone, QueryFailed.
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
                    self._begin, self._at = before  # the rows were not returned
                    raise
            self._offset += sum(piece.num_rows for piece in pieces)
        if len(pieces) == 1:
            return offset, pieces[0]
        schema = self.schema()
        if not pieces:
            return offset, pa.RecordBatch.from_pylist([], schema)
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
    """Prepares replies: while a client works on some rows, it encodes the next ones.

    Python's drivers fetch a thousand rows at a time and work for milliseconds on rows that take one or two to encode.
    Without this, each side waits for the other. Thread-safe; one thread uses a cursor at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cursors: OrderedDict[Cursor, None] = OrderedDict()  # with a prepared reply, or closed meanwhile

    def take(self, cursor: Cursor, fetch: Hashable) -> FetchReply | None:
        """Return the prepared reply. Where it is for another call, or missing, the cursor goes back."""
        with self._lock:
            self._cursors.pop(cursor, None)
            ready, cursor.ready = cursor.ready, None
        if ready is not None and ready.fetch == fetch:
            cursor.forget_mark()
            return ready.reply
        cursor.return_to_mark()
        return None

    def prepare(self, cursor: Cursor, fetch: Hashable, write: Callable[[], FetchReply]) -> None:
        """Prepare the next reply. After an error, the call itself meets it again and reports it."""
        cursor.mark()
        ready = None
        with suppress(Exception):
            ready = Ready(fetch, write())
        if ready is None:
            cursor.return_to_mark()
            return
        with self._lock:
            cursor.ready = ready
            self._cursors[cursor] = None
            while len(self._cursors) > READY_REPLIES:
                self._cursors.popitem(last=False)[0].ready = None


def _within(batch: pa.RecordBatch, room: int) -> pa.RecordBatch:
    """Return as many of the first rows as fit, at least one."""
    while batch.num_rows > 1 and weigh(batch) > room:
        batch = batch.slice(0, batch.num_rows // 2)
    return batch


class TableOperation:
    """An operation over rows that exist from the beginning."""

    def __init__(self, identifier: Identifier, kind: OperationType, table: pa.Table) -> None:
        self.identifier = identifier
        self.kind = kind
        self.has_result_set = True
        self.cursor = Cursor(lambda: contextlib.nullcontext(in_memory(table)))
        self.done: Future[QueryRecord] = Future()
        self.done.cancel()
        self.ready: Future[None] = Future()
        self.ready.cancel()

    def rows_after(self, position: int) -> Future[None]:
        """Return a completed future."""
        return self.ready

    def require_here(self) -> None:
        """Do nothing: its rows are here."""

    def require_rows(self) -> None:
        """Do nothing: its rows exist."""

    def log_lines(self, *, rewind: bool) -> list[str]:
        """Return no lines: it has no log."""
        return []

    def cancel(self) -> None:
        """Do nothing: it has ended."""

    def close(self) -> None:
        """Do nothing: its rows are in memory."""


class QueryOperation(StatementOperation):
    """An operation over a query."""

    def __init__(
        self,
        identifier: Identifier,
        run: Run,
        coordinator: Coordinator,
        spool: Spool,
        waits: Waits,
        *,
        rows_gone: bool = False,
    ) -> None:
        super().__init__(run, coordinator, spool, rows_gone=rows_gone)
        self._waits = waits
        self._log = timeline.OperationLog(run)
        self.identifier = identifier
        self.kind = OperationType.EXECUTE_STATEMENT
        self.cursor = Cursor(self.rows.open)

    @property
    def has_result_set(self) -> bool:
        """Tell whether rows can be fetched, also none; a statement that is not read yet counts as a query."""
        command = self.run.command
        return command is None or command.has_rows(self.run.statement.dialect)

    def wait(self) -> Wait | None:
        """Return the wait of the query."""
        return self._waits.of(self.run.id)

    def close(self) -> None:
        """Cancel the query, or delete its rows."""
        self.cursor.ready = None
        super().close()

    def log_lines(self, *, rewind: bool) -> list[str]:
        """Return new lines about the decision, waits, attempts and the end."""
        return self._log.lines(self.wait(), rewind=rewind)


Operation: TypeAlias = TableOperation | QueryOperation
