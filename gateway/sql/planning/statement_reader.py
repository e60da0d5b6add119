"""Reads statements in planners, and remembers what short ones mean as long as their tables and all views stay."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from engines.protocol import Engine, TableSource
from gateway.sql.commands.commands import Command
from gateway.sql.commands.writes import Write
from gateway.sql.compiled import CompiledStatement
from gateway.sql.dialects.names import SPARK
from gateway.sql.planning import work
from gateway.sql.planning.fairness import Requester
from gateway.sql.planning.pool import Planners
from gateway.sql.planning.process import Shared
from metastore.records import Database, View

REMEMBERED = 256
LONGEST_REMEMBERED = 16 << 10  # characters of a statement
WRITTEN_TIMES = 8  # as long may be what is written for all engines together


class Catalog(Protocol):
    """What statements may name. What does not change is the same object in each: a table, all tables, all views."""

    @property
    def tables(self) -> Mapping[str, TableSource]:
        """All tables by name."""

    @property
    def views(self) -> Mapping[str, View]:
        """Everybody's views by name."""

    @property
    def databases(self) -> Mapping[str, Database]:
        """All databases by name."""


class StatementReader:
    """Thread-safe. engines: that statements are written for."""

    def __init__(self, planners: Planners, engines: work.Engines) -> None:
        self._planners = planners
        self._engines = engines
        self._lock = threading.Lock()
        self._views: Mapping[str, View] = {}  # that all of what is known was read with
        self._known: OrderedDict[tuple[str, str, str], CompiledStatement] = OrderedDict()

    def understand(self, text: work.Text, catalog: Catalog, asker: Requester) -> CompiledStatement | Command | Write:
        """Return what a text asks for. Raises SqlError, EngineError."""
        known = None if text.views else self._find(text, catalog)
        if known is not None:
            return known
        with self._planners.place(asker) as place:
            found: CompiledStatement | Command | Write = place.call(
                work.understand,
                text,
                Shared(catalog.tables, series="tables"),
                Shared(catalog.views, series="views"),
                tuple(catalog.databases),
                self._engines,
            )
        if isinstance(found, CompiledStatement):
            found = replace(found, tables=tuple(catalog.tables.get(table.name, table) for table in found.tables))
            written = sum(len(each) for each in found.texts.values() if isinstance(each, str))
            is_everybodys = not text.views and not found.tells_of_session
            if is_everybodys and max(len(text.sql), written // WRITTEN_TIMES) <= LONGEST_REMEMBERED:
                self._remember(text, catalog, found)
        return found

    def call(self, asker: Requester, function: Any, *arguments: object) -> Any:
        """Have a function run in a planner: anything that parses what a client sent."""
        with self._planners.place(asker) as place:
            return place.call(function, *arguments)

    def _find(self, text: work.Text, catalog: Catalog) -> CompiledStatement | None:
        with self._lock:
            known = self._known.get(_key(text)) if self._views is catalog.views else None
            if known is None or any(catalog.tables.get(table.name) is not table for table in known.tables):
                return None
            self._known.move_to_end(_key(text))
            return known

    def _remember(self, text: work.Text, catalog: Catalog, found: CompiledStatement) -> None:
        with self._lock:
            if self._views is not catalog.views:
                self._known.clear()
                self._views = catalog.views
            self._known[_key(text)] = found
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


def _key(text: work.Text) -> tuple[str, str, str]:
    """Return what a query's meaning follows from, beside the catalog."""
    return text.sql, text.dialect, text.database


def engines_of(engines: Iterable[Engine]) -> work.Engines:
    """Return what statements are written for."""
    engines = tuple(engines)
    dialects = tuple(dict.fromkeys([SPARK, *(engine.dialect for engine in engines)]))
    return work.Engines(dialects, tuple(engine.dialect for engine in engines if engine.cost_model is not None))
