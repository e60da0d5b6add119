"""Lake tables for statements: a snapshot is resolved once per statement, and what is written becomes one commit.

Logs and manifests were written by strangers, and a library may crash, hang or take much memory over them, so that both
are done in processes of their own. These keep tables open: one that has not changed is resolved in a millisecond.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from engines.errors import DeadlineExceeded, StatementCancelled
from gateway.planning.fairness import Requester
from gateway.planning.pool import Planners
from gateway.planning.process import PlannerFault
from metastore.objects.access import NO_OBJECTS, CatalogAccess, ObjectAccess
from sql.errors import NotAllowed, StatementTooComplex, TableUnreadable
from sql.tables import TableSource

if TYPE_CHECKING:  # planners import this module, and no metastore
    from metastore.lake.resolution import PinnedState
    from metastore.lake.values import DeletedFile, HistoryEntry, LakeCommit, SnapshotName, TableDescription
    from metastore.objects.kinds.kind import ObjectStore
    from metastore.records import Database
    from sql.tables import Column, PartitionBy

log = logging.getLogger(__name__)

PROCESSES = 2
CPU_S = 60.0
"""Processor time for one table's metadata: a table of 10,000 files takes 1.5 s."""
READ_S = 120.0
"""Longest time for it, waiting included: two tables that do not answer would keep all others waiting."""
WRITING_CPU_S = 3_600.0
"""Processor time for one commit, which writes the rows into the table's files."""
WRITING_BYTES = 4 << 30
"""Memory for one commit: delta-rs holds rows of every partition that it writes to."""
REMOVING_S = 300.0
"""Time in which a dropped table's files are deleted, else the gateway tries again at its next start."""


MOST_STORES = 4_096
"""Tables in object stores of which it is kept how they are reached."""
_CATALOG = "The catalog {}"


class LakeTables:
    """Resolves snapshots and commits. Thread-safe; no process runs before the first lake table is used.

    folder: for manifests.
    wait_s: longest wait for a process.
    access: returns the access to object stores in which tables may lie, and to catalogs.
    before_commit: function that is called before a commit; raises where other gateways own its statement by now.
    """

    def __init__(
        self,
        folder: Path,
        *,
        wait_s: float,
        access: Callable[[], ObjectAccess] = lambda: NO_OBJECTS,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._before_commit = before_commit
        self._access = access
        self._lock = threading.Lock()
        self._stores: LRUCache[str, ObjectStore] = LRUCache(MOST_STORES)
        self._readers = Planners(size=PROCESSES, cpu_s=CPU_S, wait_s=wait_s)
        self._writers = Planners(size=PROCESSES, cpu_s=WRITING_CPU_S, wait_s=wait_s, memory_bytes=WRITING_BYTES)

    @property
    def _objects(self) -> ObjectAccess:
        return self._access()

    def state(self, table: TableSource, requester: Requester, name: SnapshotName | None = None) -> PinnedState:
        """Return a state of a table. name: of an older snapshot; None: the newest.

        Raises TableUnreadable, EngineBusy, StatementCancelled, DeadlineExceeded.
        """
        from metastore.lake.resolution import pin

        state: PinnedState = self._call(table, requester, pin, table, name, self._folder, self._objects)
        if state.store is not None:
            with self._lock:
                self._stores[state.location] = state.store
        return state

    def store_of(self, table: TableSource) -> ObjectStore:
        """Return how the files of a table's snapshot are reached; a catalog may give keys for this table alone."""
        with self._lock:
            store = self._stores.get(table.location) or self._objects.store_of(table.location)
        assert store is not None  # else its snapshot could not be resolved
        return store

    def listing(self, catalog: CatalogAccess, requester: Requester) -> Mapping[str, Sequence[str]]:
        """Return the names of a catalog's tables by namespace. Raises as ``state`` does."""
        from metastore.lake.resolution import listing

        names: Mapping[str, Sequence[str]] = self._call(_CATALOG.format(catalog.name), requester, listing, catalog)
        return names

    def require_database(self, database: Database, requester: Requester, *, there: bool) -> None:
        """Make a namespace of a catalog, or drop an empty one. Raises NotAllowed, and as ``state`` does."""
        from metastore.lake.writing import require_namespace

        name = database.name.partition(".")[0]
        catalog = self._objects.catalog_named(name)
        if catalog is None:
            raise NotAllowed(f"The settings have no catalog {name} (catalogs.NAME).")
        self._call(_CATALOG.format(name), requester, require_namespace, catalog, database, there)

    def drop(self, table: TableSource, requester: Requester) -> None:
        """Drop a catalog's table; its files stay. Raises NotAllowed, and as ``state`` does."""
        from metastore.lake.writing import drop

        self._call(table, requester, drop, table, self._objects)

    def remove(self, location: str) -> None:
        """Delete all files in the folder of a Delta table in an object store. Raises as ``commit`` does."""
        from metastore.lake.writing import remove

        name = location.rpartition("/")[2]
        table = TableSource(name, location, "delta", ())
        requester = Requester(name, time.monotonic() + REMOVING_S)
        with _faults_told(name, "deleted"), self._writers.place(requester) as place:
            place.call(remove, table, self._objects)

    def format_at(self, table: TableSource, requester: Requester) -> str | None:
        """Return the lake format of the table in a folder of an object store; None: none. Raises as ``state`` does."""
        from metastore.lake.resolution import format_at

        format: str | None = self._call(table, requester, format_at, table, self._objects)
        return format

    def history(self, table: TableSource, requester: Requester) -> Sequence[HistoryEntry]:
        """Return the snapshots of a table, the newest first. Raises as ``state`` does."""
        from metastore.lake.resolution import history

        entries: Sequence[HistoryEntry] = self._call(table, requester, history, table, self._objects)
        return entries

    def commit(self, table: TableSource, change: LakeCommit, requester: Requester) -> str:
        """Commit to a table and return the id of its new snapshot; made once, however often it is called.

        Raises TableChangedConcurrently, NotAllowed, and as ``state`` and ``before_commit`` do.
        """
        from metastore.lake.writing import commit, committed

        self._before_commit()

        snapshot_id: str | None
        try:
            with _faults_told(table.name, "written"), self._writers.place(requester) as place:
                snapshot_id = place.call(commit, table, change, self._objects)
        except (StatementCancelled, DeadlineExceeded):  # the process was ended, perhaps behind the commit
            patient = Requester(requester.user, time.monotonic() + CPU_S)
            snapshot_id = self._call(table, patient, committed, table, change.query_id, self._objects)
            if snapshot_id is None:
                raise
        assert snapshot_id is not None
        return snapshot_id

    def create(
        self,
        table: TableSource,
        partition_by: Sequence[PartitionBy],
        properties: Mapping[str, str],
        requester: Requester,
    ) -> None:
        """Make an empty table in a folder that is not there yet. Raises NotAllowed, and as ``state`` does."""
        from metastore.lake.writing import create

        with _faults_told(table.name, "made"), self._writers.place(requester) as place:
            place.call(create, table, partition_by, properties, self._objects)

    def add_columns(self, table: TableSource, columns: Sequence[Column], requester: Requester) -> None:
        """Add columns to a table. Raises as ``commit`` does."""
        from metastore.lake.writing import add_columns

        with _faults_told(table.name, "altered"), self._writers.place(requester) as place:
            place.call(add_columns, table, columns, self._objects)

    def alter_columns(
        self,
        table: TableSource,
        new_names: Mapping[str, str],
        dropped: Sequence[str],
        widened: Sequence[Column],
        requester: Requester,
    ) -> None:
        """Rename, drop or widen columns of a table. Raises as ``commit`` does."""
        from metastore.lake.writing import alter_columns

        with _faults_told(table.name, "altered"), self._writers.place(requester) as place:
            place.call(alter_columns, table, new_names, dropped, widened, self._objects)

    def description(self, table: TableSource, requester: Requester) -> TableDescription:
        """Return what a table's metadata say of it. Raises as ``state`` does."""
        from metastore.lake.resolution import description

        own: TableDescription = self._call(table, requester, description, table, self._objects)
        return own

    def set_properties(self, table: TableSource, properties: Mapping[str, str | None], requester: Requester) -> None:
        """Set properties of a table. None: it goes. Raises as ``commit`` does."""
        from metastore.lake.writing import set_properties

        with _faults_told(table.name, "altered"), self._writers.place(requester) as place:
            place.call(set_properties, table, properties, self._objects)

    def vacuum(
        self, table: TableSource, retain: dt.timedelta, dry_run: bool, requester: Requester
    ) -> Sequence[DeletedFile]:
        """Delete files that no snapshot of the last time needs, and return them. Raises as ``commit`` does."""
        from metastore.lake.maintenance import vacuum

        with _faults_told(table.name, "cleaned"), self._writers.place(requester) as place:
            files: Sequence[DeletedFile] = place.call(vacuum, table, retain, dry_run, self._objects)
        return files

    def compact(self, table: TableSource, query_id: str, requester: Requester) -> int:
        """Write small files of a table anew as few, and return how many went. Raises as ``commit`` does."""
        from metastore.lake.maintenance import compact

        with _faults_told(table.name, "optimized"), self._writers.place(requester) as place:
            return int(place.call(compact, table, query_id, self._objects))

    def _call(
        self, table: TableSource | str, requester: Requester, function: Callable[..., object], *arguments: object
    ) -> Any:
        name = table if isinstance(table, str) else table.name
        limited = replace(requester, until_s=min(requester.until_s, time.monotonic() + READ_S))
        try:
            with _faults_told(name, "read"), self._readers.place(limited) as place:
                return place.call(function, *arguments)
        except DeadlineExceeded as error:
            if requester.remaining_s <= 0:
                raise
            raise TableUnreadable(
                f"{name} cannot be read: its metadata take more than {READ_S:.0f} seconds."
            ) from error

    def close(self) -> None:
        """End the processes."""
        self._readers.close()
        self._writers.close()


@contextmanager
def _faults_told(name: str, done: str) -> Iterator[None]:
    """Raise TableUnreadable where a process failed or ended over a table. done: what was to be done with it."""
    try:
        yield
    except StatementTooComplex as error:
        raise TableUnreadable(
            f"{name} cannot be {done}: that took too much time or memory, or ended the process."
        ) from error
    except PlannerFault as fault:  # damage that a library of the formats did not foresee
        log.warning("%s cannot be %s: %s", name, done, fault)
        raise TableUnreadable(
            f"{name} cannot be {done}: its metadata may be damaged; the gateway's log says more."
        ) from fault
