"""Reader of statements: it has planners classify them, and remembers short ones while their tables and views stay."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachetools import LRUCache

from engines.compiled import SPARK_WRITER, CompiledStatement
from engines.protocol import Engine
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.commands.classification import Engines, Text, classify
from gateway.commands.command import Family, RunnableStatement
from gateway.planning.fairness import Requester
from gateway.planning.pool import Planners
from gateway.planning.process import Shared
from gateway.security.access.rules import NO_RULES
from sql.tables import View

REMEMBERED = 256
LONGEST_REMEMBERED = 16 << 10  # characters of a statement
WRITTEN_TIMES = 8  # as long may be what is written for all engines together


class StatementReader:
    """Reads statements. Thread-safe. engines: that statements are written for. families: of all commands."""

    def __init__(self, planners: Planners, engines: Engines, families: Sequence[Family]) -> None:
        self._planners = planners
        self._engines = engines
        self._families = tuple(families)
        self._lock = threading.Lock()
        self._views: Mapping[str, View] = {}  # with which all that is remembered was read
        self._remembered: LRUCache[tuple[object, ...], CompiledStatement] = LRUCache(REMEMBERED)

    def classify(self, text: Text, catalog: CatalogSnapshot, requester: Requester) -> RunnableStatement:
        """Return what a text asks for. Raises SqlError, EngineError."""
        remembered = None if text.views or text.snapshots else self._find(text, catalog)
        if remembered is not None:
            return remembered
        access, sent = text.access, text
        rights: tuple[Shared, ...] = ()
        databases: Iterable[str] = catalog.databases
        if access is not None:
            sent = replace(text, access=replace(access, rules=NO_RULES, owners={}))
            rights = (Shared(access.rules), Shared(access.owners, series="owners"))
            databases = filter(access.sees_database, databases)
        with self._planners.place(requester) as place:
            statement: RunnableStatement = place.call(
                classify,
                sent,
                Shared(catalog.tables, series="tables"),
                Shared(catalog.views, series="views"),
                tuple(databases),
                self._engines,
                Shared(self._families),
                *rights,
            )
        if isinstance(statement, CompiledStatement):
            statement = replace(
                statement, tables=tuple(catalog.tables.get(table.name, table) for table in statement.tables)
            )
            written = sum(len(sql) for sql in statement.texts.values() if isinstance(sql, str))
            tells_more = statement.tells_of_session and access is None  # the key has the names of a user with rights
            is_keyed = not tells_more and not text.views and not text.snapshots
            if is_keyed and max(len(text.sql), written // WRITTEN_TIMES) <= LONGEST_REMEMBERED:
                self._remember(text, catalog, statement)
        return statement

    def call(self, requester: Requester, function: Any, *arguments: object) -> Any:
        """Have a function run in a planner: anything that parses what a client sent."""
        with self._planners.place(requester) as place:
            return place.call(function, *arguments)

    def _find(self, text: Text, catalog: CatalogSnapshot) -> CompiledStatement | None:
        with self._lock:
            query = self._remembered.get(_key(text)) if self._views is catalog.views else None
            if query is None or any(catalog.tables.get(table.name) is not table for table in query.tables):
                return None
            return query

    def _remember(self, text: Text, catalog: CatalogSnapshot, statement: CompiledStatement) -> None:
        with self._lock:
            if self._views is not catalog.views:
                self._remembered.clear()
                self._views = catalog.views
            self._remembered[_key(text)] = statement


def _key(text: Text) -> tuple[object, ...]:
    """Return what a query's meaning follows from, beside the catalog."""
    return text.sql, text.dialect, text.database, text.access.key if text.access is not None else None


def engines_of(engines: Iterable[Engine]) -> Engines:
    """Return what statements are written for."""
    engines = tuple(engines)
    writers = tuple(dict.fromkeys([SPARK_WRITER, *(engine.writer for engine in engines)]))
    models = {engine.writer: engine.cost_model for engine in engines if engine.cost_model is not None}
    return Engines(writers, models)
