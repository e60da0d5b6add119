"""Keeps Impala's catalog in line with the gateway's: declares tables, lists their files again, drops what went away.

A table of the same name that the gateway did not declare is used as it is, and is never altered or dropped. All is done
when a statement first names a table, so that a large catalog costs nothing at the start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from engines.errors import StatementError, UnsupportedFeature
from engines.impala import tables
from selector.quoting import spark_name
from sql.tables import DEFAULT_DATABASE, TableSource, database_of, with_names

log = logging.getLogger(__name__)

Run = Callable[[str], pa.Table]
"""Runs one statement and returns its rows."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A statement whose tables are as they should be. sql: in Impala's names; options: that its tables need."""

    sql: str
    options: Mapping[str, str]


class ImpalaCatalog:
    """Tables of the gateway's default database, in the one of this name, and of its others, in theirs.

    refresh_s: how old the list of a table's files may be when a statement starts.

    With several gateways over one database, all must have the same tables.
    """

    def __init__(self, database: str, *, refresh_s: float) -> None:
        self.database = database
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._of_table: dict[str, threading.Lock] = {}  # a long listing of one table holds up no other
        self._wanted: dict[str, TableSource] = {}
        self._declared: dict[str, TableSource] = {}  # and seen to be there
        self._own: set[str] = set()  # those that the gateway made, by name
        self._listed_at_s: dict[str, float] = {}

    def want(self, sources: Sequence[TableSource]) -> None:
        """Set the tables that statements may name. What changed is found out when it is needed."""
        with self._lock:
            self._wanted = {source.name: source for source in sources if source.format in tables.FORMATS}
            self._listed_at_s.clear()  # whatever changed the catalog may have changed files too

    def settle(self, sql: str, run: Run) -> Settled:
        """Bring the tables that a statement can mean in line."""
        with self._lock:
            wanted = self._wanted
            gone = [name for name, source in self._declared.items() if wanted.get(name) != source]
        for name in gone:
            with self._lock_of(name):
                self._drop(name, run)
        named = [source for source in wanted.values() if _is_named(sql, source.name)]
        for source in named:
            with self._lock_of(source.name):
                self._declare(source, run)
                if time.monotonic() - self._listed_at_s.get(source.name, float("-inf")) >= self._refresh_s:
                    self._list_again(source, run)
        options = {"EXPAND_COMPLEX_TYPES": "1"} if any(map(tables.has_nested, named)) else {}
        return Settled(with_names(sql, tables.renamed(named)), options)

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._of_table.setdefault(name, threading.Lock())

    def _drop(self, name: str, run: Run) -> None:
        """Drop a table that nobody wants any more. Where Impala refuses, it stays: no other statement is at fault."""
        if name in self._own:
            try:
                run(f"DROP TABLE IF EXISTS {tables.qualified(name, self.database)}")
            except StatementError as error:
                log.warning("Impala keeps the table %s: %s", name, error.message)
        self._own.discard(name)
        self._declared.pop(name, None)
        self._listed_at_s.pop(name, None)

    def _declare(self, source: TableSource, run: Run) -> None:
        if source.name in self._declared:
            return
        statement = tables.create(source, self.database)
        try:
            digest = self._definition_of(source, run)
            if digest is not None and digest not in ("", tables.definition(source)):
                run(f"DROP TABLE IF EXISTS {tables.qualified(source.name, self.database)}")
                digest = None
            if digest is None:
                own = database_of(source.name)
                database = self.database if own == DEFAULT_DATABASE else own
                if database != DEFAULT_DATABASE:
                    run(f"CREATE DATABASE IF NOT EXISTS {spark_name(database)}")
                run(statement)
                digest = self._definition_of(source, run)
            if digest is None:  # made by somebody else, and not seen by Impala so far
                run(f"INVALIDATE METADATA {tables.qualified(source.name, self.database)}")
                digest = self._definition_of(source, run)
        except StatementError as error:
            raise UnsupportedFeature(f"Impala did not take the table {source.name}: {error.message}") from error
        if digest:
            self._own.add(source.name)
        else:
            log.info("table %s of Impala's database %s is used as it is", source.name, self.database)
        self._declared[source.name] = source

    def _list_again(self, source: TableSource, run: Run) -> None:
        try:
            files = self._list_files(source, run)
        except StatementError:  # somebody dropped it
            self._declared.pop(source.name, None)
            self._own.discard(source.name)
            self._declare(source, run)
            try:
                files = self._list_files(source, run)
            except StatementError as error:
                message = f"Impala does not list the files of the table {source.name}: {error.message}"
                raise UnsupportedFeature(message) from error
        if source.name in self._own and not files:
            # Impala would answer with no rows, whether the folder is empty or not there at all.
            raise UnsupportedFeature(f"Impala finds no files of the table {source.name}.")
        self._listed_at_s[source.name] = time.monotonic()

    def _list_files(self, source: TableSource, run: Run) -> int:
        """Let Impala look at a table's folder; return how many files it has found."""
        name = tables.qualified(source.name, self.database)
        if source.partition_columns and source.name in self._own:
            run(f"ALTER TABLE {name} RECOVER PARTITIONS")
        run(f"REFRESH {name}")
        counts = run(f"SHOW TABLE STATS {name}")["#Files"].to_pylist()
        return int(counts[-1] or 0) if counts else 0  # the last row is the sum over all partitions

    def _definition_of(self, source: TableSource, run: Run) -> str | None:
        """Return the digest that the gateway left at a table, "" where it did not make it, None without a table."""
        try:
            rows = run(f"DESCRIBE FORMATTED {tables.qualified(source.name, self.database)}")
        except StatementError as error:
            if "Could not resolve path" in error.message or "does not exist" in error.message:
                return None
            raise
        keys, values = (rows.column(place).to_pylist() for place in (1, 2))
        return next((value.strip() for key, value in zip(keys, values, strict=True) if _is_definition(key)), "")


def _is_named(sql: str, name: str) -> bool:
    """Tell whether a statement can mean a table: its name is somewhere in the text."""
    return name.replace("`", "``").casefold() in sql.casefold()


def _is_definition(key: str | None) -> bool:
    return key is not None and key.strip() == tables.DEFINITION
