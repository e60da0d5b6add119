"""Spooled results: Arrow IPC streams in files, one per query.

Rows go to the spool first and to the client from there, so a failed attempt leaves nothing that a client has seen,
and a client that reads slowly holds no engine. A file appears under its final name only when it is whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from engines.protocol import ResultStream

_SUFFIX = ".arrow"
_UNFINISHED = ".part"


class ResultTooLarge(Exception):
    """A result grew past what the gateway keeps of one query."""


class SpoolFull(Exception):
    """The disk under the spool cannot take the result."""


class ResultGone(LookupError):
    """The result is not there any more."""


@dataclass(frozen=True, slots=True)
class SpooledResult:
    """A whole result. bytes: of its file."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """The first rows of a result. truncated: there are more."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    truncated: bool


class Spool:
    """A folder of results."""

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, query_id: str, stream: ResultStream | pa.RecordBatchReader) -> SpooledResult:
        """Write a whole result. On any error nothing is left; engine errors pass through."""
        unfinished = self._folder / f"{query_id}{_UNFINISHED}"
        rows = 0
        try:
            with _disk_errors(), pa.OSFile(str(unfinished), "wb") as file:
                with pa.ipc.new_stream(file, stream.schema) as writer:
                    for batch in stream:
                        writer.write_batch(batch)
                        rows += batch.num_rows
                        if file.tell() > self._limit:
                            raise ResultTooLarge(f"The result is larger than {self._limit:,} bytes.")
                size = file.tell()
            unfinished.rename(self.path(query_id))
        finally:
            unfinished.unlink(missing_ok=True)
        return SpooledResult(rows, size)

    def path(self, query_id: str) -> Path:
        """Return where a result lies, whether it is there or not."""
        return self._folder / f"{query_id}{_SUFFIX}"

    def page(self, query_id: str, *, max_rows: int) -> Page:
        """Return the first rows of a result."""
        batches: list[pa.RecordBatch] = []
        missing = max_rows
        truncated = False
        with self.open(query_id) as reader:
            for batch in reader:
                if batch.num_rows > missing:
                    truncated = True
                if missing:
                    batches.append(batch.slice(0, missing))
                missing -= min(missing, batch.num_rows)
                if truncated:
                    break
            return Page(reader.schema, tuple(batches), truncated)

    @contextlib.contextmanager
    def open(self, query_id: str) -> Iterator[pa.RecordBatchStreamReader]:
        """Read a result batch by batch; not through a map, which would count as memory of ours. Raises ResultGone."""
        try:
            file = pa.OSFile(str(self.path(query_id)), "rb")
        except FileNotFoundError as error:
            raise ResultGone(query_id) from error
        with file, pa.ipc.open_stream(file) as reader:
            yield reader

    def delete(self, query_id: str) -> None:
        """Delete a result, if it is there."""
        self.path(query_id).unlink(missing_ok=True)

    def query_ids(self) -> frozenset[str]:
        """Return the queries that have a file here, whole or not."""
        return frozenset(file.stem for file in self._folder.iterdir())

    def keep_only(self, query_ids: Collection[str]) -> int:
        """Delete every file that is not the whole result of one of these queries; returns how many."""
        orphans = [file for file in self._folder.iterdir() if file.suffix == _UNFINISHED or file.stem not in query_ids]
        for file in orphans:
            file.unlink(missing_ok=True)
        return len(orphans)

    def expire(self, older_than_s: float) -> int:
        """Delete results that are older; returns how many."""
        horizon = time.time() - older_than_s
        expired = 0
        for file in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime < horizon:
                    file.unlink()
                    expired += 1
        return expired


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolFull(f"The result cannot be kept: {error.strerror or error}") from error
