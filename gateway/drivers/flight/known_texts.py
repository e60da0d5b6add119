"""Cache of statements' parameters and columns, so that a statement that is prepared again is not parsed or run again.

ADBC and JDBC prepare every statement, also one that they have prepared a thousand times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from engines.compiled import CompiledStatement
from gateway.statements.command import ClassifiedStatement
from sql.parsing import ParserLimits

REMEMBERED = 256
LONGEST_REMEMBERED = 16 << 10  # characters of a text

V = TypeVar("V")
Reader = Callable[[str, str, ParserLimits], V]


class KnownTexts:
    """Results of functions of a text, and columns of queries. Thread-safe."""

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._read: LRUCache[tuple[object, str, str], Any] = LRUCache(REMEMBERED)
        self._columns: LRUCache[int, tuple[CompiledStatement, pa.Schema]] = LRUCache(REMEMBERED)

    def read(self, reader: Reader[V], sql: str, dialect: str, call: Callable[..., V]) -> V:
        """Return the value of a function of a text. call: runs the function. Raises its errors."""
        key = (reader, sql, dialect)
        with self._lock:
            answer: V | None = self._read.get(key)
        if answer is None:
            answer = call(reader, sql, dialect, self._limits)
            if len(sql) <= LONGEST_REMEMBERED:
                with self._lock:
                    self._read[key] = answer
        return answer

    def columns(self, query: ClassifiedStatement) -> pa.Schema | None:
        """Return the columns of a query; None: they are not known, or its tables or views have changed.

        Until then, a text is read as the same object (``StatementReader``), which is then given the files that it
        reads; its SQL stays.
        """
        if not isinstance(query, CompiledStatement):
            return None
        with self._lock:
            entry = self._columns.get(id(query.texts))
        return entry[1] if entry is not None else None

    def keep_columns(self, query: ClassifiedStatement, sql: str, columns: pa.Schema) -> None:
        """Keep the columns of a query. It is kept, too, so that no other one's SQL has the identity of its own."""
        if isinstance(query, CompiledStatement) and len(sql) <= LONGEST_REMEMBERED:
            with self._lock:
                self._columns[id(query.texts)] = query, columns
