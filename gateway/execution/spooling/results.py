"""Spooled results: Arrow IPC streams, one per query: in a file of its own, or with other small ones in a database.

Rows go to the spool first and to the client from there, so a failed attempt leaves nothing that a client has seen,
and a client that reads slowly holds no engine. A file appears under its final name only when its query has no other
answer to come; what a kill leaves there is deleted at the start. Rows that no other engine's can replace are also read
while the file grows (``streaming/early_result.py``).

Batches are cut where they are written: what anybody holds who reads is one of at most ``BATCH_BYTES``, or a row that
is larger by itself (docs/adr/0023-bounded-downloads.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from engines.arrow_leaves import is_list, map_parts, with_valid_text
from engines.machine.private_files import private_file, private_folder, write_private
from engines.protocol import ResultStream
from gateway.errors import ResultGone, ResultStoreFull, ResultTooLarge
from gateway.execution.spooling import flatbuffer
from gateway.execution.spooling.small_results import SMALL_BYTES, SmallResults
from gateway.statements.statement import HeldRows, submitted_s

BATCH_BYTES = 512 << 10  # of rows, with what their values take beside their bytes
HELD_BYTES = 64 << 10  # of a result that its statement keeps in memory for the reply
CELL_BYTES = 8  # of a value beside its own bytes: NULLs and booleans are next to nothing in Arrow, and texts elsewhere
_SUFFIX = ".arrow"
_UNFINISHED = ".part"
_KEPT = f".kept{_UNFINISHED}"  # of what only this process knows of: it goes at the next start
_BODY_LENGTH = 3  # number of a field in Arrow's format of messages
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of Arrow IPC
_PREFIX = struct.Struct("<iI")  # of a message: a mark, and the length of its head
_MARK = -1


@dataclass(frozen=True, slots=True)
class SpooledResult:
    """A whole result. bytes: size in the spool. held: its rows in memory; None: they are only in the spool."""

    rows: int
    bytes: int
    held: HeldRows | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """The first rows of a result. truncated: there are more."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    truncated: bool


class ResultFile:
    """The file of a result, read message by message, from the first batch or from any other. Not thread-safe."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.head = pa.ipc.read_message(file)
        self.schema = pa.ipc.read_schema(self.head)

    @property
    def is_behind(self) -> bool:
        """Tell whether the next batch is still to come: never, the file is complete. Raises the query's error."""
        return False

    def tell(self) -> int:
        """Return where the next batch begins."""
        return int(self._file.tell())

    def seek(self, position: int) -> None:
        """Go to where a batch begins."""
        self._file.seek(position)

    def next_bytes(self) -> int | None:
        """Return the bytes of the next batch, which stays the next one; None at the end."""
        begin = self._file.tell()
        prefix = self._file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            return None
        mark, length = _PREFIX.unpack(prefix)
        if mark != _MARK or not length:
            return None
        head = self._file.read(length)
        self._file.seek(begin)
        at = flatbuffer.field(head, flatbuffer.root(head), _BODY_LENGTH)
        return int(struct.unpack_from("<q", head, at)[0]) if at is not None else 0

    def read_message(self) -> pa.Message:
        """Return the next batch as it stands."""
        return pa.ipc.read_message(self._file)

    def decode(self, message: pa.Message) -> pa.RecordBatch:
        """Return the rows of a message."""
        return pa.ipc.read_record_batch(message, self.schema)

    def read_batch(self) -> pa.RecordBatch:
        """Return the next batch."""
        return self.decode(self.read_message())

    def messages(self) -> Iterator[pa.Message]:
        """Yield the batches that are left, as they stand."""
        while self.next_bytes() is not None:
            yield self.read_message()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are left."""
        return map(self.decode, self.messages())


def in_memory(table: pa.Table) -> ResultFile:
    """Return rows in memory as a result file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return ResultFile(pa.BufferReader(sink.getvalue()))


def at_once(make_it_so: Callable[[], None]) -> None:
    """Publish a result unconditionally."""
    make_it_so()


def every_query(_: str) -> bool:
    """Match every query."""
    return True


class Spool:
    """Folder of results. limit_bytes: largest result. row_bytes: largest row."""

    def __init__(self, folder: Path, *, limit_bytes: int, row_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._row_bytes = row_bytes
        self._token = secrets.token_hex(4)  # another process may write a result of the same query, and not this file
        private_folder(folder)
        self._small = SmallResults(folder.with_name(f"{folder.name}.db"))

    def write(
        self,
        query_id: str,
        stream: ResultStream | pa.RecordBatchReader,
        *,
        publish: Callable[[Callable[[], None]], None] = at_once,
    ) -> SpooledResult:
        """Write a whole result. On any error it is deleted; engine errors pass through.

        publish: called with the function that publishes the rows; it calls the function, or raises.
        """
        unfinished = self.unfinished(query_id)
        schema, pieces = self.pieces(stream)
        first, held_bytes = list[pa.RecordBatch](), 0
        for piece in pieces:
            first.append(piece)
            held_bytes += piece.nbytes
            if held_bytes > HELD_BYTES:
                break
        if held_bytes <= HELD_BYTES:
            return self.write_held(query_id, schema, first, publish)
        try:
            result = self._write_on(unfinished, schema, chain(first, pieces))
            publish(lambda: self.publish(unfinished, query_id))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return result

    def unfinished(self, query_id: str) -> Path:
        """Return the path of rows that are not yet published."""
        return self._folder / f"{query_id}.{self._token}{_UNFINISHED}"

    def pieces(self, stream: ResultStream | pa.RecordBatchReader) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the columns of a result, and its rows as they are written. Raises ResultTooLarge for a row."""
        own_schema = stream.schema
        schema = _plain_schema(own_schema)
        batches = stream if schema is own_schema else (batch.cast(schema) for batch in stream)
        return schema, (piece for batch in batches for piece in self._pieces(with_valid_text(batch)))

    def write_held(
        self,
        query_id: str,
        schema: pa.Schema,
        batches: Sequence[pa.RecordBatch],
        publish: Callable[[Callable[[], None]], None],
    ) -> SpooledResult:
        """Write a small result, all of which is in memory."""
        content = b"".join([schema.serialize(), *(batch.serialize() for batch in batches), END_OF_STREAM])
        self.require_small(len(content))
        publish(lambda: self._publish_held(content, query_id))
        if sum(batch.get_total_buffer_size() for batch in batches) > 2 * HELD_BYTES:  # they are a part of others
            batches = list(ResultFile(pa.BufferReader(content)))
        held = HeldRows(schema, tuple(batches), content)
        return SpooledResult(sum(batch.num_rows for batch in batches), len(content), held)

    def _write_on(self, path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> SpooledResult:
        """Write batch by batch, as they come."""
        rows = 0
        with disk_errors(), pa.OSFile(str(private_file(path)), "wb") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    self.require_small(file.tell())
                    rows += batch.num_rows
            return SpooledResult(rows, file.tell())

    def require_small(self, size: int) -> None:
        """Raise ResultTooLarge for more bytes than one result may have."""
        if size > self._limit:
            raise ResultTooLarge(f"The result is larger than {self._limit:,} bytes.")

    def _publish_held(self, content: bytes, query_id: str) -> None:
        """Write a small result where it belongs: one that is cut short by a kill is of a query that did not finish."""
        if len(content) <= SMALL_BYTES:
            self._small.put(query_id, content)
            return
        path = self.path(query_id)
        try:
            with disk_errors():
                write_private(path, content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def publish(self, unfinished: Path, query_id: str) -> None:
        """Publish rows as the query's result. Raises ResultStoreFull."""
        with disk_errors():
            unfinished.rename(self.path(query_id))

    def path(self, query_id: str) -> Path:
        """Return the path of a result that has a file; it may not exist."""
        return self._folder / f"{query_id}{_SUFFIX}"

    def has(self, query_id: str) -> bool:
        """Tell whether a result is there."""
        return self._small.get(query_id) is not None or self.path(query_id).exists()

    def page(self, query_id: str, *, max_rows: int) -> Page:
        """Return the first rows of a result."""
        batches: list[pa.RecordBatch] = []
        missing = max_rows
        truncated = False
        with self.open(query_id) as result:
            for batch in result:
                if batch.num_rows > missing:
                    truncated = True
                if missing:
                    batches.append(batch.slice(0, missing))
                missing -= min(missing, batch.num_rows)
                if truncated:
                    break
            return Page(result.schema, tuple(batches), truncated)

    @contextlib.contextmanager
    def open(self, query_id: str) -> Iterator[ResultFile]:
        """Read a result batch by batch; not through a map, which would count as memory of ours. Raises ResultGone."""
        content = self._small.get(query_id)
        try:
            file = pa.OSFile(str(self.path(query_id)), "rb") if content is None else pa.BufferReader(content)
        except FileNotFoundError as error:
            raise ResultGone(query_id) from error
        with file:
            yield ResultFile(file)

    def keep(self, query_id: str, result: SpooledResult) -> Path | None:
        """Link a result to a second name that outlives its query's; None: the result is in memory. Raises OSError."""
        if result.held is not None:
            return None
        kept_path = self._folder / f"{query_id}{_KEPT}"
        os.link(self.path(query_id), kept_path)
        return kept_path

    def share(self, result: SpooledResult, kept_path: Path | None, query_id: str) -> None:
        """Publish cached rows as the result of another query. Raises FileNotFoundError, ResultStoreFull."""
        if result.held is not None:
            self._publish_held(result.held.content, query_id)
            return
        assert kept_path is not None
        try:
            try:
                os.link(kept_path, self.path(query_id))
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                self._renew(kept_path)
                os.link(kept_path, self.path(query_id))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ResultStoreFull(f"The result cannot be kept: {error.strerror or error}") from error

    def _renew(self, kept_path: Path) -> None:
        """Replace rows by a copy, as they have as many links as the disk allows."""
        copied = kept_path.with_name(f"{kept_path.name.partition('.')[0]}.{secrets.token_hex(4)}{_UNFINISHED}")
        try:
            shutil.copyfile(kept_path, private_file(copied))
            copied.replace(kept_path)
        except BaseException:
            copied.unlink(missing_ok=True)
            raise

    def delete(self, query_id: str) -> None:
        """Delete a result, if it exists; one that a full disk cannot delete expires later."""
        with contextlib.suppress(ResultStoreFull):
            if self._small.delete([query_id]):
                return
        self.path(query_id).unlink(missing_ok=True)

    def query_ids(self) -> frozenset[str]:
        """Return the queries with files here, complete or not."""
        small = (query_id for _, query_id, _ in self._small.sizes())
        return frozenset(chain(small, (file.name.partition(".")[0] for file in self._folder.iterdir())))

    def delete_unfinished(self) -> None:
        """Delete all results that a process has left unfinished; no other one may write here."""
        for file in self._folder.glob(f"*{_UNFINISHED}"):
            file.unlink(missing_ok=True)

    def keep_only(self, query_ids: Collection[str], *, of: Callable[[str], bool] = every_query) -> int:
        """Delete everything but the complete results of these queries; return the number. of: queries to consider."""
        small = [query_id for _, query_id, _ in self._small.sizes() if of(query_id) and query_id not in query_ids]
        files = [file for file in self._folder.iterdir() if of(file.name.partition(".")[0])]
        orphans = [file for file in files if file.suffix == _UNFINISHED or file.stem not in query_ids]
        for file in orphans:
            file.unlink(missing_ok=True)
        return len(orphans) + self._small.delete(small)

    def sizes(self) -> list[tuple[str, int]]:
        """Return each whole result's query and bytes, the newest first; what several share counts for each in part."""
        sized_results = list(self._small.sizes())
        for file in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                status = file.stat()
                sized_results.append((_came_s(file, status), file.stem, status.st_size // status.st_nlink))
        return [(query_id, size) for _, query_id, size in sorted(sized_results, reverse=True)]

    def checkpoint(self) -> None:
        """Checkpoint the database of small results, outside of any statement."""
        self._small.checkpoint()

    def expire(self, older_than_s: float) -> int:
        """Delete results that are older; returns how many."""
        horizon = time.time() - older_than_s
        expired = self._small.expire(horizon)
        for file in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                if _came_s(file, file.stat()) < horizon:
                    file.unlink()
                    expired += 1
        return expired

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Halve a batch until its pieces are small. Raises ResultTooLarge for a row that is too wide."""
        weight = weigh(batch)
        if weight <= BATCH_BYTES:
            yield batch
        elif batch.num_rows > 1:
            middle = batch.num_rows // 2
            yield from self._pieces(batch.slice(0, middle))
            yield from self._pieces(batch.slice(middle))
        elif weight > self._row_bytes:
            raise ResultTooLarge(f"A row of the result takes {weight:,} bytes; {self._row_bytes:,} is the limit.")
        else:
            yield batch


def _came_s(file: Path, status: os.stat_result) -> float:
    """Return when a result was published, in seconds; a shared one when it got its name."""
    named_s = submitted_s(file.stem) if status.st_nlink > 1 else None
    return max(status.st_mtime, named_s or 0.0)


def weigh(batch: pa.RecordBatch) -> int:
    """Return the bytes that rows take, with a little for each value, also those within others."""
    return int(batch.nbytes) + CELL_BYTES * sum(map(_cells, batch.columns))


def _cells(array: pa.Array) -> int:
    """Return how many values there are, also within others."""
    kind = array.type
    if pa.types.is_struct(kind):
        return len(array) + sum(_cells(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return len(array) + sum(map(_cells, map_parts(array)))
    return len(array) + (_cells(array.flatten()) if is_list(kind) else 0)


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without dictionaries, whose values a small batch could name again and again."""
    if not any(pa.types.is_dictionary(field.type) for field in schema):
        return schema
    return pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema], schema.metadata
    )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raise errors of the disk as ResultStoreFull."""
    try:
        yield
    except OSError as error:
        raise ResultStoreFull(f"The result cannot be kept: {error.strerror or error}") from error
