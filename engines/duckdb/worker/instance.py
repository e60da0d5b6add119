"""DuckDB instances of one worker, each locked down so that it reads the tables that it was opened for and nothing else.

What a locked instance may read can never be changed: a table that it does not know takes another instance. Opening one
takes 11 ms, which is done ahead; locking it takes 2. A worker keeps a few, so that statements of tables that stay as
they are keep theirs, with what it has read of their files. An instance goes as soon as one of its tables is dropped or
defined otherwise (ADR 33).
"""

from __future__ import annotations

import math
import resource
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import duckdb
from cachetools import LRUCache

from engines.duckdb.worker import lake, tables
from engines.duckdb.worker.footers import Footers
from engines.errors import UnsupportedFeature
from engines.files.listing import DataFile, InspectionFailed, data_files
from engines.files.manifest import read_manifest
from selector.quoting import duckdb_string
from sql.tables import TableSource

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

Known = TypeVar("Known")

MOST_INSTANCES = 4
MOST_TABLES = 64  # of an instance that takes the place of another one, with the tables of that one
MOST_KNOWN, LONGEST_KNOWN = 256, 4 << 10  # statements, and characters of one, of which something is remembered
SHORT_S = 0.05  # that a statement took; what it reads is in the kernel's cache when it comes again

_SETTINGS = (
    "SET temp_directory=''",
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET allow_community_extensions=false",
    "SET allow_persistent_secrets=false",
    "SET python_enable_replacements=false",
    "SET enable_external_file_cache=false",  # it would count another statement's bytes into this one's peak
    "SET read_ahead_depth=1",  # row groups; without a bound, scans take what is free, and peaks cannot be told before
    "SET parquet_metadata_cache=true",
    "SET TimeZone='UTC'",
    "SET default_null_order='nulls_last'",
    "SET order_by_non_integer_literal=true",  # a constant orders nothing, as in Spark
    # Only what is read of it: the rest takes a twentieth of a point query's time.
    "CALL enable_profiling(metrics=['operator.type', 'operator.intermediate_rows', 'system.peak_buffer_memory'], "
    "format='no_output')",
)
_RUNS_WHEN_READ = "QUERY_RELATION"  # others hold the rows of the time when they were made
_HELD = "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()"
_LOCKS = (
    "SET allowed_configs=['memory_limit', 'threads', 'disable_parquet_prefetching']",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


class KnownStatements(Generic[Known]):
    """Cache of values by statement text. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def get(self, sql: str) -> Known | None:
        """Return what is known of a statement."""
        return self._known.get(sql)

    def keep(self, sql: str, value: Known) -> None:
        """Keep something of a statement, unless its text is long; what was kept first goes."""
        if len(sql) <= LONGEST_KNOWN:
            self._known[sql] = value
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]


@dataclass(slots=True)
class _KnownQuery:
    """A query that is bound. took_s: when it ran last, if it ended well."""

    relation: duckdb.DuckDBPyRelation
    took_s: float = math.inf


class Blank:
    """An instance that is not locked yet and that no statement is to see; there is one ahead of the next table.

    held_bytes: of address space, that it takes.
    """

    def __init__(self, *, threads: int) -> None:
        before_bytes = address_space_bytes()
        self.threads = threads
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads={int(threads)}")
        for setting in _SETTINGS:
            self.connection.execute(setting)
        self.side = self.connection.cursor()  # asks and sets while a query runs on the other one
        self.side.execute("CALL disable_profiling()")
        self.side.execute(f"PREPARE held AS {_HELD}")
        self.held_bytes = max(0, address_space_bytes() - before_bytes)


class Instance:
    """One instance and its tables, by their names in small letters.

    Not thread-safe, except ``interrupt``, ``query_bytes`` and ``raise_limit``, which are for while a query runs.

    blank: what it is made of. footers: of files that this or another instance has looked into. A table's view is made
    when the first statement names it, so that one whose files cannot be read, or never answer, harms its readers alone.
    """

    def __init__(self, blank: Blank, sources: Mapping[str, TableSource], footers: Footers) -> None:
        self.sources = sources
        self._footers = footers
        self.held_bytes = blank.held_bytes
        self._connection = blank.connection
        self._side = blank.side
        self._ask_held = self._side.extract_statements("EXECUTE held")[0]
        self._side_lock = threading.Lock()
        self.threads = blank.threads
        self._queries = KnownStatements[_KnownQuery]()
        self._prefetches = True
        self._views: dict[str, object] = {}
        """Tables that views were made of, by their names."""
        self._alike: LRUCache[tuple[str, str], str | None] = LRUCache(MOST_KNOWN)
        """Statements of lake tables whose files are alike, by their names and manifests; None: they are not."""
        self._limit_bytes: int | None = None
        locations = ", ".join(duckdb_string(source.folder) for source in sources.values())
        self._connection.execute(f"SET allowed_paths=[{locations}]")
        self._connection.execute(f"SET allowed_directories=[{locations}]")  # what is no folder yet may become one
        for lock in _LOCKS:
            self._connection.execute(lock)

    def can_read(self, sources: Mapping[str, TableSource]) -> bool:
        """Return True if it can read these tables where they lie."""
        own = self.sources
        return all(name in own and own[name].folder == source.folder for name, source in sources.items())

    def make_views(self, sources: Mapping[str, TableSource], *, for_plan: bool = False) -> None:
        """Make the views of tables whose files are not those of the last time. Raises UnsupportedFeature.

        sources: the tables by their names in small letters.
        for_plan: nothing is read through them.
        """
        alike = self._views_of_alike(sources)
        for name, source in sorted(sources.items()):
            files: Sequence[DataFile] = ()
            made_of: object
            if source.snapshot is not None:
                made_of = source.snapshot.manifest, for_plan and source.is_lake, name in alike
            elif source.is_lake:
                raise UnsupportedFeature(f"it gets no snapshot of {source.name}.")
            else:
                made_of = files = _listed(source)
            if made_of != self._views.get(name):
                self._views.pop(name, None)
                self._make_view(alike.get(name) or self._view_of(source, files, for_plan))
                self._views[name] = made_of

    def limit(self, memory_bytes: int) -> None:
        """Set DuckDB's limit, which takes milliseconds, only where it is another one."""
        if memory_bytes != self._limit_bytes:
            self._connection.execute(f"SET memory_limit='{int(memory_bytes)}B'")
            self._limit_bytes = memory_bytes

    def raise_limit(self, memory_bytes: int) -> None:
        """Let the query that runs take more; a limit is never lowered under it."""
        with self._side_lock:
            if self._limit_bytes is None or memory_bytes > self._limit_bytes:
                self._side.execute(f"SET memory_limit='{int(memory_bytes)}B'")
                self._limit_bytes = memory_bytes

    def use_threads(self, threads: int) -> None:
        """Have as many threads for the next query, which takes half a millisecond where it is another number."""
        if threads != self.threads:
            self._connection.execute(f"SET threads={int(threads)}")
            self.threads = threads

    def query_bytes(self) -> int:
        """Return the memory that the running query holds; about 0.1 ms."""
        with self._side_lock:
            row = self._side.execute(self._ask_held).fetchone()
        return int(row[0]) if row else 0

    def explain(self, sql: str) -> str:
        """Return the plan of a query as JSON."""
        row = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
        return str(row[1]) if row else ""

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return a query that runs, on the tables as they are then, each time that its rows are read.

        It is kept for the next time: to bind a point query takes a tenth of what it takes to run it.
        """
        prepared = self._queries.get(sql)
        self._prefetch(prepared is None or prepared.took_s > SHORT_S)
        if prepared is not None:
            prepared.took_s = math.inf  # until it has ended well
            return prepared.relation
        relation = self._connection.sql(sql)
        if relation.type == _RUNS_WHEN_READ:
            self._queries.keep(sql, _KnownQuery(relation))
        return relation

    def ran(self, sql: str, took_s: float) -> None:
        """Note how long a query took that has just ended."""
        prepared = self._queries.get(sql)
        if prepared is not None:
            prepared.took_s = took_s

    def _prefetch(self, wanted: bool) -> None:
        """Have threads of their own read ahead in Parquet files, or not.

        A short query whose files are in the kernel's cache takes an eighth more with that. It is a setting, which takes
        0.1 ms to change.
        """
        if wanted is not self._prefetches:
            self._connection.execute(f"SET disable_parquet_prefetching={not wanted}")
            self._prefetches = wanted

    def types(self, sql: str) -> list[DuckDBPyType]:
        """Return the types of a query's columns, which Arrow's do not always tell."""
        return self._connection.sql(sql).types

    def profile(self) -> str:
        """Return what DuckDB measured of the last query, as JSON; empty where it failed."""
        return self._connection.get_profiling_information()

    def interrupt(self) -> None:
        """Stop what runs now."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give everything back."""
        self._side.close()
        self._connection.close()

    def _view_of(self, source: TableSource, files: Sequence[DataFile], for_plan: bool) -> str:
        """Return the statement that makes a table's view.

        files: of a table without a snapshot.
        for_plan: nothing is read through the view.
        """
        if source.snapshot is None:
            return self._view_of_files(source, files)
        manifest = read_manifest(source.snapshot.manifest)
        if not source.is_lake:
            return self._view_of_files(source, manifest.data_files())
        if for_plan:
            return lake.planned_view(source, manifest)
        return lake.view(source, manifest, self._connection.register, self._footers.columns_of)

    def _views_of_alike(self, sources: Mapping[str, TableSource]) -> Mapping[str, str]:
        """Return the statements of lake tables whose files are alike, by name; none if there is another lake table."""
        statements = {}
        for name, source in sources.items():
            if source.is_lake and source.snapshot is not None:
                key = name, source.snapshot.manifest
                if key not in self._alike:
                    try:
                        manifest = read_manifest(source.snapshot.manifest)
                        self._alike[key] = lake.view_of_alike(source, manifest, self._footers.columns_of)
                    except FileNotFoundError:  # whoever reads it tells
                        return {}
                statement = self._alike[key]
                if statement is None:
                    return {}
                statements[name] = statement
        return statements

    def _view_of_files(self, source: TableSource, files: Sequence[DataFile]) -> str:
        if source.format == "parquet":
            return tables.view(source, files, self._footers.columns_of(files))
        if source.format != "orc" or not files:
            return tables.view(source, files)
        from engines.duckdb.worker import orc  # the worker has loaded it by now

        dataset = f"{source.name}\nas Arrow"  # no table's name has two lines
        self._connection.register(dataset, orc.dataset_of(source, files))
        return tables.view_of_dataset(source, dataset)

    def _make_view(self, sql: str) -> None:
        """Run the one statement that makes a view, and nothing else that may be in it."""
        statements = self._connection.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.CREATE]:
            raise UnsupportedFeature("a table's definition is not one view in DuckDB's dialect.")
        self._connection.execute(statements[0])


class Instances:
    """The instances of a worker, least recently used first. Not thread-safe."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._open: list[Instance] = []
        self._blank: Blank | None = None
        self._footers = Footers()

    @property
    def held_bytes(self) -> int:
        """Address space that all of them hold without a statement."""
        return sum(one.held_bytes for one in (*self._open, self._blank) if one is not None)

    def prepare(self) -> None:
        """Open what the next new table takes, ahead of it."""
        if self._blank is None:
            self._blank = Blank(threads=self._threads)

    def reading(self, sources: Mapping[str, TableSource]) -> Instance:
        """Return an instance that can read these tables, another one if none can."""
        instance = next((one for one in reversed(self._open) if one.can_read(sources)), None)
        if instance is None:
            sources = self._together(sources)
            blank, self._blank = self._blank, None
            instance = Instance(blank or Blank(threads=self._threads), sources, self._footers)
        else:
            self._open.remove(instance)
        self._open.append(instance)
        return instance

    def forget(self, names: Set[str]) -> None:
        """Close every instance that can read one of these tables."""
        for one in [one for one in self._open if not one.sources.keys().isdisjoint(names)]:
            self._open.remove(one)
            one.close()

    def _together(self, sources: Mapping[str, TableSource]) -> Mapping[str, TableSource]:
        """Make room for an instance of these tables, which takes on those of the one that goes."""
        if len(self._open) < MOST_INSTANCES:
            return sources
        oldest = self._open.pop(0)
        oldest.close()
        both = {**oldest.sources, **sources}
        return both if len(both) <= MOST_TABLES else sources


def _listed(source: TableSource) -> tuple[DataFile, ...]:
    """Return the files of a plain table as they are now. Raises UnsupportedFeature, FileNotFoundError."""
    try:
        return tuple(file for file in data_files(Path(source.location)) if file.bytes)
    except InspectionFailed as failure:
        if isinstance(failure.__cause__, FileNotFoundError):  # as while a folder takes the place of another
            raise failure.__cause__ from None
        reason = str(failure).replace(source.location, source.name)
        raise UnsupportedFeature(f"it cannot read the table {source.name}: {reason}.") from failure


def address_space_bytes() -> int:
    """Return the address space of this process; 0 where it cannot be told (not Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()
