"""What was found out about texts before, so that a statement that is prepared again is not read, nor run, for that.

ADBC and JDBC prepare every statement, also one that they have prepared a thousand times.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import pyarrow as pa

from gateway.routing.rules.kinds import Understood
from gateway.sql.compiled import CompiledStatement
from gateway.sql.parsing import ParserLimits

REMEMBERED = 256
LONGEST_REMEMBERED = 16 << 10  # characters of a text

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Reader = Callable[[str, str, ParserLimits], V]


class _Recent(Generic[K, V]):
    """Values by key; those that nobody asked for longest go. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._known[key] = value
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


class KnownTexts:
    """Thread-safe. limits: of every text."""

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        self._read: _Recent[tuple[object, str, str], Any] = _Recent()
        self._columns: _Recent[int, tuple[CompiledStatement, pa.Schema]] = _Recent()

    def read(self, reader: Reader[V], sql: str, dialect: str, call: Callable[..., V]) -> V:
        """Return what a function says of a text alone. call: has it run. Raises as it does."""
        key = (reader, sql, dialect)
        found: V | None = self._read.get(key)
        if found is None:
            found = call(reader, sql, dialect, self._limits)
            if len(sql) <= LONGEST_REMEMBERED:
                self._read.put(key, found)
        return found

    def columns(self, query: Understood) -> pa.Schema | None:
        """Return the columns of a query; None where it was not kept, or its tables or views are others meanwhile.

        As long as they are not, a text means the same object (``StatementReader``).
        """
        found = self._columns.get(id(query))
        return found[1] if found is not None else None

    def keep_columns(self, query: Understood, sql: str, columns: pa.Schema) -> None:
        """Keep the columns of a query with that text. As it is held here, no other object has its identity."""
        if isinstance(query, CompiledStatement) and len(sql) <= LONGEST_REMEMBERED:
            self._columns.put(id(query), (query, columns))
