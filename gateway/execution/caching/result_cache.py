"""Cache of results within a number of bytes; the least recently used one is evicted first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gateway.execution.spooling.results import SpooledResult
from gateway.statements.caching import CacheUsage
from metastore.records import Alone
from selector.decision import Decision
from sql.tables import TableSource

LARGEST_SHARE = 1 / 16  # of all bytes, that one result may take
ENTRY_BYTES = 4 << 10  # of an entry beside its rows and its key: decision, result file's name and tables

Key = tuple[str, str]
"""An engine, and a query as it gets it: all that its answer follows from, beside its tables."""


@dataclass(frozen=True, slots=True, eq=False)
class CachedResult:
    """A cached result with its dependencies.

    query_id: query that computed it.
    engine: engine that ran the query.
    sql: text that the engine ran.
    result: the rows, or their size.
    file: file of the rows; None: they are in memory.
    tables: that were read, each with the snapshot that lists its files.
    day: day on which it ran, since 1970 in UTC.
    decision: routing decision of the queries that it answers.
    cached_s: monotonic time at which it was cached.
    alone: the time that each answer saves on the dependable engine; None: unknown.
    is_ours: this process cached it, and deletes its file; else another process of this home folder does.
    """

    query_id: str
    engine: str
    sql: str
    result: SpooledResult
    file: Path | None
    tables: tuple[TableSource, ...]
    day: int
    decision: Decision
    cached_s: float
    alone: Alone | None = None
    is_ours: bool = True

    @property
    def key(self) -> Key:
        """Key of the lookup."""
        return self.engine, self.sql

    @property
    def bytes(self) -> int:
        """Approximate bytes that it takes, in memory and on disk."""
        return ENTRY_BYTES + len(self.sql) + self.result.bytes


class ResultCache:
    """Least recently used cache of results. Thread-safe.

    limit_bytes: largest size of all entries.
    keep_s: longest age of an entry that still answers.
    forget: function to call with each result that was removed.
    """

    def __init__(
        self, *, limit_bytes: int, keep_s: float, forget: Callable[[CachedResult], None] = lambda _: None
    ) -> None:
        self._limit = limit_bytes
        self._keep_s = keep_s
        self._forget = forget
        self._lock = threading.Lock()
        self._results: OrderedDict[Key, CachedResult] = OrderedDict()
        self._bytes = 0
        self._hits = self._misses = self._evicted = self._outdated = 0

    @property
    def largest_bytes(self) -> int:
        """Largest bytes of one result."""
        return int(self._limit * LARGEST_SHARE)

    def find(self, keys: Iterable[Key]) -> list[CachedResult]:
        """Return the cached results of some keys, in their order."""
        with self._lock:
            return [cached for key in keys if (cached := self._results.get(key)) is not None]

    def put(self, result: CachedResult) -> None:
        """Cache a result in place of an older one; a too large one is dropped."""
        removed = [result]
        with self._lock:
            if result.bytes <= self.largest_bytes:
                removed = [self._take(result.key)] if result.key in self._results else []
                self._results[result.key] = result
                self._bytes += result.bytes
                while self._bytes > self._limit:
                    removed.append(self._take(next(iter(self._results))))
                    self._evicted += 1
        for old in removed:
            self._forget(old)

    def has_answered(self, result: CachedResult) -> None:
        """Count a hit."""
        with self._lock:
            self._hits += 1
            if result.key in self._results:
                self._results.move_to_end(result.key)

    def has_missed(self) -> None:
        """Count a miss."""
        with self._lock:
            self._misses += 1

    def is_too_old(self, result: CachedResult) -> bool:
        """Tell whether a result is older than ``keep_s``."""
        return time.monotonic() - result.cached_s > self._keep_s

    def drop(self, result: CachedResult) -> None:
        """Drop an outdated result."""
        with self._lock:
            if self._results.get(result.key) is not result:
                return
            self._take(result.key)
            self._outdated += 1
        self._forget(result)

    def usage(self) -> CacheUsage:
        """Return size and usage of the cache."""
        with self._lock:
            return CacheUsage(
                entries=len(self._results),
                bytes=self._bytes,
                limit_bytes=self._limit,
                hits=self._hits,
                misses=self._misses,
                evicted=self._evicted,
                outdated=self._outdated,
            )

    def _take(self, key: Key) -> CachedResult:
        result = self._results.pop(key)
        self._bytes -= result.bytes
        return result
