"""START HERE: rows of one query that are read while its last possible attempt writes them.

An attempt is *settled* where no other engine may take its place: none is left in its plan (``FailoverPlan.ends_with``).
Its rows are *readable* once some are in the file. Readers follow the file as fast as they like; what they have not read
yet lies on disk. Nothing else changes: the file becomes the query's result under its own name when the attempt has
ended well, and the end of the rows is sent once the query's end is on record.

A try that is lost when rows of it were *given* may still be made again, as ever: what it writes then has to begin with
the very rows that were given, in their order, and goes on behind them in the same file. Where it does not, or no try is
left, readers hear that the result was interrupted, and how many rows there were (docs/adr/0047-early-rows.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import IO

import pyarrow as pa

from engines.errors import StatementCancelled
from engines.machine.private_files import private_file
from engines.protocol import ResultStream
from gateway.errors import NotFinished, QueryFailed, ResultError, ResultInterrupted
from gateway.execution.spooling.results import END_OF_STREAM, HELD_BYTES, ResultFile, Spool, SpooledResult, disk_errors
from gateway.failures import failure_of
from gateway.statements.futures import ReleasingFuture
from gateway.statements.statement import Run
from metastore.records import QueryState
from sql.errors import FusionError

OTHER_ROWS = "a second try, after its engine was lost, did not begin with the same rows"
_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}

Soon = Callable[[Callable[[], None]], None]


class EarlyFile(ResultFile):
    """The file of a result that may still grow. Not thread-safe."""

    def __init__(self, file: pa.NativeFile, take: Callable[[int], bool]) -> None:
        super().__init__(file)
        self._take = take

    @property
    def is_behind(self) -> bool:
        """Tell whether the next batch is still to come; else it counts as given. Raises QueryFailed."""
        return not self._take(self.tell())


class EarlyResult:
    """Result that is read while it is written. Thread-safe; one attempt writes at a time.

    soon: delayed callback.
    before_first_row: function that is called before a client reads rows.
    """

    def __init__(
        self, run: Run, spool: Spool, soon: Soon, before_first_row: Callable[[Run], None] = lambda _: None
    ) -> None:
        self._before_first_row = before_first_row
        self._run = run
        self._spool = spool
        self._soon = soon
        self._lock = threading.Lock()
        self._path = spool.unfinished(run.id)
        self._schema: pa.Schema | None = None  # of the rows in the file; None while there is no file
        self._file: IO[bytes] | None = None  # while it is written
        self._head_bytes = 0
        self._ends = array("q")  # of each batch in the file: where it ends
        self._rows = array("q")  # and the rows up to there
        self._held: list[pa.RecordBatch] = []  # the first rows, while they are too few for a file
        self._is_whole = False
        self._is_published = False
        self._was_opened = False
        self._sent_batches = 0  # batches
        self._waiting: list[tuple[int, Future[None]]] = []
        run.done.add_done_callback(lambda _: self._end())

    # ------------------------------------------------------------------ for those who read

    @property
    def is_readable(self) -> bool:
        """Tell whether there are rows that can be read now, or were read before."""
        with self._lock:
            return bool(self._ends) and not self._run.done.done()

    @property
    def sent_rows(self) -> int:
        """Upper bound of the rows that clients have read: those of all batches sent."""
        with self._lock:
            return self._rows[self._sent_batches - 1] if self._sent_batches else 0

    @property
    def readable_rows(self) -> int:
        """Rows that can be read now."""
        with self._lock:
            return self._rows[-1] if self._rows else 0

    @contextlib.contextmanager
    def open(self) -> Iterator[ResultFile]:
        """Read the rows from the first one. Raises NotFinished where none can be read yet."""
        with self._lock:
            if not self._ends:
                raise NotFinished("The query still runs, and no rows of it can be read yet.", self._run.id)
            is_first = not self._was_opened
        if is_first:
            self._before_first_row(self._run)
        with self._lock:
            self._was_opened = True
            file = pa.OSFile(str(self._path), "rb")
        with file:
            yield EarlyFile(file, self._take)

    def rows_after(self, position: int) -> Future[None]:
        """Return a future that completes once there are rows after a position in the file, or the query has ended."""
        future: Future[None] = ReleasingFuture()
        with self._lock:
            if not self._has_after(position) and not self._run.done.done():
                self._waiting.append((position, future))
                return future
        future.set_result(None)
        return future

    def final_error(self, error: FusionError) -> FusionError:
        """Return the error for the client of a failed query: with the number of rows sent, if there were any."""
        if isinstance(error, StatementCancelled | ResultInterrupted) or not self.sent_rows:
            return error
        return self._interrupted(failure_of(error).message)

    # ------------------------------------------------------------------ for the attempt that writes

    def write(self, stream: ResultStream, *, publish: Callable[[Callable[[], None]], None]) -> SpooledResult:
        """Write a whole result, as ``Spool.write`` does; on any error only the rows that were sent remain.

        Raises ResultInterrupted if a second attempt does not begin with the rows that were sent.
        """
        try:
            schema, pieces = self._spool.pieces(stream)
            given_schema = self._schema
            if given_schema is not None:
                pieces = self._after_sent(given_schema, schema, pieces)
            for piece in pieces:
                if piece.num_rows:
                    self._add(schema, piece)
            with self._lock:
                self._is_whole = True
                if self._schema is not None:
                    self._write(END_OF_STREAM)
                    self._close()
            if self._schema is None:
                return self._spool.write_held(self._run.id, schema, self._held, publish)
            publish(self._publish)
        except BaseException:
            self._fail()
            raise
        return SpooledResult(self._rows[-1] if self._rows else 0, self._shown_bytes() + len(END_OF_STREAM))

    def _add(self, schema: pa.Schema, piece: pa.RecordBatch) -> None:
        with self._lock:
            if self._schema is None:
                self._held.append(piece)
                if sum(batch.nbytes for batch in self._held) > HELD_BYTES:
                    self._begin(schema)
                elif len(self._held) == 1:
                    self._soon(lambda: self._begin_early(schema))
            else:
                self._append(piece)
        if self._schema is not None:
            self._tell()

    def _begin_early(self, schema: pa.Schema) -> None:
        """Write the first rows though they are few: others may come late."""
        with self._lock, contextlib.suppress(ResultError):  # the attempt meets that by itself
            if self._schema is not None or not self._held or self._is_whole:
                return
            self._begin(schema)
        self._tell()

    def _begin(self, schema: pa.Schema) -> None:
        """Put what is held into a file."""
        try:
            with disk_errors():
                self._file = private_file(self._path).open("wb")
            head = schema.serialize()
            self._write(head)
            self._head_bytes, self._schema = head.size, schema
            for piece in self._held:
                self._append(piece)
        except ResultError:
            self._drop()
            raise
        self._held = []

    def _append(self, piece: pa.RecordBatch) -> None:
        message = piece.serialize()
        self._write(message)
        self._ends.append(self._shown_bytes() + message.size)
        self._rows.append((self._rows[-1] if self._rows else 0) + piece.num_rows)
        self._spool.require_small(self._ends[-1])

    def _write(self, message: pa.Buffer | bytes) -> None:
        with disk_errors():
            if self._file is None:  # of a try that was lost
                self._file = self._path.open("r+b")
                self._file.seek(self._shown_bytes())
            self._file.write(message)
            self._file.flush()

    def _after_sent(
        self, first_schema: pa.Schema, schema: pa.Schema, pieces: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows after those that were sent. Raises ResultInterrupted if the first rows differ."""
        if not schema.equals(first_schema):
            raise self._interrupted(OTHER_ROWS)
        with contextlib.ExitStack() as opened:
            with disk_errors():
                file = opened.enter_context(pa.OSFile(str(self._path), "rb"))
            piece: pa.RecordBatch | None = None
            for sent in ResultFile(file):
                while sent.num_rows:
                    while piece is None or not piece.num_rows:
                        piece = next(pieces, None)
                        if piece is None:
                            raise self._interrupted(OTHER_ROWS)
                    both = min(piece.num_rows, sent.num_rows)
                    if not _same(piece.slice(0, both), sent.slice(0, both)):
                        raise self._interrupted(OTHER_ROWS)
                    sent, piece = sent.slice(both), piece.slice(both)
        if piece is not None:
            yield piece
        yield from pieces

    def _publish(self) -> None:
        with self._lock:
            self._spool.publish(self._path, self._run.id)
            self._path = self._spool.path(self._run.id)
            self._is_published = True

    def _fail(self) -> None:
        """Keep only the rows that were sent, if a client has opened them."""
        with self._lock:
            self._is_whole = False
            self._held = []
            if not self._was_opened:
                self._drop()
            elif self._schema is not None:
                with contextlib.suppress(ResultError):
                    self._close()
                del self._ends[self._sent_batches :], self._rows[self._sent_batches :]
                with disk_errors():
                    os.truncate(self._path, self._shown_bytes())

    def _drop(self) -> None:
        with contextlib.suppress(ResultError):
            self._close()
        self._path.unlink(missing_ok=True)
        self._schema = None
        del self._ends[:], self._rows[:]

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with disk_errors():
                file.close()

    # ------------------------------------------------------------------ what is there; the lock is held

    def _shown_bytes(self) -> int:
        return self._ends[-1] if self._ends else self._head_bytes

    def _has_after(self, position: int) -> bool:
        return bisect_right(self._ends, position) < len(self._ends)

    # ------------------------------------------------------------------ news

    def _take(self, position: int) -> bool:
        """Give the batch at a place in the file; False while it is still to come. Raises QueryFailed."""
        if self._run.done.done():
            record = self._run.done.result()
            if record.error is not None:
                raise QueryFailed(record.error)
            if record.state is not QueryState.FINISHED:
                raise NotFinished(f"The query is {record.state}; it has no result.", record.id)
            return True
        with self._lock:
            if not self._has_after(position):
                return False
            self._sent_batches = max(self._sent_batches, bisect_right(self._ends, position) + 1)
            return True

    def _tell(self) -> None:
        """Complete the futures whose rows have come."""
        with self._lock:
            is_readable, is_over = bool(self._ends), self._run.done.done()
            due = [future for position, future in self._waiting if is_over or self._has_after(position)]
            self._waiting = [waiter for waiter in self._waiting if waiter[1] not in due]
        if is_readable:
            self._run.is_ready()
        for future in due:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _end(self) -> None:
        """Delete the rows of a failed query."""
        with self._lock:
            if self._schema is not None and not self._is_published:
                self._path.unlink(missing_ok=True)
        self._tell()

    def _interrupted(self, why: str) -> ResultInterrupted:
        return ResultInterrupted(self.sent_rows, why)


def _same(some: pa.RecordBatch, others: pa.RecordBatch) -> bool:
    """Tell whether rows are the same, bit for bit: NaN is itself."""
    return all(_comparable(one).equals(_comparable(other)) for one, other in zip(some, others, strict=True))


def _comparable(column: pa.Array) -> pa.Array:
    bits = _BITS.get(column.type)
    return column if bits is None else column.view(bits)
