"""DuckDB instances of one worker, each locked down so that it reads the tables that it was opened for and nothing else.

What a locked instance may read can never be changed: a table that it does not know takes another instance. Opening one
takes 11 ms, which is done ahead; locking it takes 2. A worker keeps a few, so that statements of tables that stay as
they are keep theirs, with what it has read of their files. An instance goes as soon as one of its tables is dropped or
defined otherwise (ADR 33).
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from engines.duckdb import tables
from engines.duckdb.errors import readable
from engines.errors import UnsupportedFeature
from engines.protocol import TableSource
from selector.quoting import duckdb_string

if TYPE_CHECKING:
    from engines.duckdb.orc import OrcFile

log = logging.getLogger(__name__)

MOST_INSTANCES = 4
MOST_TABLES = 64  # of an instance that takes the place of another one, with the tables of that one

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
    "CALL enable_profiling(format='no_output')",
)
_LOCKS = (
    "SET allowed_configs=['memory_limit']",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


class Blank:
    """An instance that is not locked yet and that no statement is to see; there is one ahead of the next table.

    held_bytes: of address space, that it takes.
    """

    def __init__(self, *, threads: int) -> None:
        before_bytes = address_space_bytes()
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads={int(threads)}")
        for setting in _SETTINGS:
            self.connection.execute(setting)
        self.held_bytes = max(0, address_space_bytes() - before_bytes)


class Instance:
    """One instance and its tables, by their names in small letters. Not thread-safe, except ``interrupt``.

    blank: what it is made of. A table's view is made when the first statement names it, so that one whose files cannot
    be read, or never answer, harms its readers alone.
    """

    def __init__(self, blank: Blank, sources: Mapping[str, TableSource]) -> None:
        self.sources = sources
        self.held_bytes = blank.held_bytes
        self._connection = blank.connection
        self._views: set[str] = set()
        self._orc_files: dict[str, tuple[OrcFile, ...]] = {}
        self._limit_bytes: int | None = None
        locations = ", ".join(duckdb_string(source.location) for source in sources.values())
        self._connection.execute(f"SET allowed_paths=[{locations}]")
        self._connection.execute(f"SET allowed_directories=[{locations}]")  # what is no folder yet may become one
        for lock in _LOCKS:
            self._connection.execute(lock)

    def make_views(self, names: Set[str]) -> None:
        """Make the views of tables that have none. One without files may get some later."""
        for name in sorted(names):
            source = self.sources[name]
            if name in self._views:
                continue
            if source.format == "orc":
                self._make_orc_view(source)
                continue
            try:
                self._make_view(tables.view(source))
            except duckdb.Error as error:
                log.warning("table %s has no view: %s", source.name, readable(str(error)))
            else:
                self._views.add(name)

    def limit(self, memory_bytes: int) -> None:
        """Set DuckDB's limit, which takes milliseconds, only where it is another one."""
        if memory_bytes != self._limit_bytes:
            self._connection.execute(f"SET memory_limit='{int(memory_bytes)}B'")
            self._limit_bytes = memory_bytes

    def explain(self, sql: str) -> str:
        """Return the plan of a query as JSON."""
        found = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
        return str(found[1]) if found else ""

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return a query that runs when its rows are read."""
        return self._connection.sql(sql)

    def profile(self) -> str:
        """Return what DuckDB measured of the last query, as JSON; empty where it failed."""
        return self._connection.get_profiling_information()

    def interrupt(self) -> None:
        """Stop what runs now."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give everything back."""
        self._connection.close()

    def _make_orc_view(self, source: TableSource) -> None:
        """Make the view of a table that Arrow reads, if its files are not those of the last time."""
        from engines.duckdb import orc  # the worker has loaded it by now

        files = orc.files_of(source)
        if files == self._orc_files.get(source.name):
            return
        dataset = f"{source.name}\nas Arrow"  # no table's name has two lines
        self._connection.register(dataset, orc.dataset_of(source, files))
        self._make_view(tables.view_of_dataset(source, dataset))
        self._orc_files[source.name] = files

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

    @property
    def held_bytes(self) -> int:
        """Address space that all of them hold without a statement."""
        return sum(one.held_bytes for one in (*self._open, self._blank) if one is not None)

    def prepare(self) -> None:
        """Open what the next new table takes, ahead of it."""
        if self._blank is None:
            self._blank = Blank(threads=self._threads)

    def reading(self, names: Set[str], source_of: Callable[[str], TableSource]) -> Instance:
        """Return an instance that can read these tables, another one if none can."""
        found = next((one for one in reversed(self._open) if one.sources.keys() >= names), None)
        if found is None:
            sources = self._together({name: source_of(name) for name in names})
            blank, self._blank = self._blank, None
            found = Instance(blank or Blank(threads=self._threads), sources)
        else:
            self._open.remove(found)
        self._open.append(found)
        return found

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


def address_space_bytes() -> int:
    """Return the address space of this process; 0 where it cannot be told (not Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()
