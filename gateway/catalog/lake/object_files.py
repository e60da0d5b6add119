"""Files of tables in object stores, as statements need them: copies on this machine, while an engine reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engines.files.manifest import read_manifest
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.errors import ObjectCacheFull, ObjectStoreUnavailable
from metastore.objects.access import ObjectAccess
from metastore.objects.cache import ObjectCache
from metastore.objects.errors import CacheFull, ObjectUnreadable, StoreUnavailable
from metastore.objects.store import copy_of, is_remote
from selector.wording import mebibytes
from sql.errors import TableUnreadable
from sql.tables import TableSource


@dataclass(frozen=True, slots=True)
class ObjectUsage:
    """Bytes that this process has fetched, and those of the copies on this machine.

    requests, fetched_bytes: since the process began.
    bytes: of all copies, those of other gateways too.
    """

    requests: int = 0
    fetched_bytes: int = 0
    bytes: int = 0
    limit_bytes: int = 0


class ObjectFiles:
    """Copies of what statements read. Thread-safe.

    access: to the object stores and catalogs of the settings.
    is_used: there are some, or may be.
    lake: knows how the files of a snapshot are reached.
    """

    def __init__(self, access: ObjectAccess, lake: LakeTables, *, is_used: bool) -> None:
        self._lake = lake
        self.cache = ObjectCache(access.folder, access.limit_bytes) if is_used else None

    @contextmanager
    def reading(
        self, tables: Iterable[TableSource], columns: frozenset[str] | None, require: Callable[[], None]
    ) -> Iterator[None]:
        """Have the columns that a statement reads on this machine, as long as the block runs.

        columns: of all tables, in small letters; None: all.
        require: raises once nobody waits any more.

        Raises TableUnreadable, ObjectStoreUnavailable, ObjectCacheFull.
        """
        with ExitStack() as stack:
            for table, cache in self.remote(tables):
                assert table.snapshot is not None
                manifest = read_manifest(table.snapshot.manifest)
                with _as_client_errors(table):
                    stack.enter_context(
                        cache.reading(table.snapshot.manifest, manifest, self._lake.store_of(table), columns, require)
                    )
            yield

    @contextmanager
    def planning(self, tables: Iterable[TableSource], require: Callable[[], None]) -> Iterator[None]:
        """Have what an engine's planner opens, as long as the block runs. Raises as ``reading`` does."""
        with ExitStack() as stack:
            for table, cache in self.remote(tables):
                assert table.snapshot is not None
                manifest = read_manifest(table.snapshot.manifest)
                with _as_client_errors(table):
                    stack.enter_context(cache.planning(manifest, self._lake.store_of(table), require))
            yield

    def remote(self, tables: Iterable[TableSource]) -> Iterator[tuple[TableSource, ObjectCache]]:
        """Yield the tables that engines read copies of, with the cache of these."""
        for table in tables:
            snapshot, cache = table.snapshot, self.cache
            if snapshot is not None and cache is not None and Path(snapshot.folder).is_relative_to(cache.folder):
                yield table, cache

    def bytes_here(self, table: TableSource) -> int:
        """Return the bytes of the copies of a table's files. 0 for one on this machine, too."""
        if self.cache is None or not is_remote(table.location):
            return 0
        folder = copy_of(table.location, self.cache.folder, table.catalog)
        usage = self.cache.usage().items()
        return sum(copies.bytes for path, copies in usage if Path(path).is_relative_to(folder))

    def usage(self) -> ObjectUsage:
        """Return the counters as they are now."""
        if self.cache is None:
            return ObjectUsage()
        traffic = self.cache.traffic
        here = sum(table.bytes for table in self.cache.usage().values())
        return ObjectUsage(traffic.requests, traffic.bytes, here, self.cache.limit_bytes)

    def close(self) -> None:
        """End all transfers; copies stay."""
        if self.cache is not None:
            self.cache.close()


@contextmanager
def _as_client_errors(table: TableSource) -> Iterator[None]:
    try:
        yield
    except ObjectUnreadable as failure:
        raise TableUnreadable(f"{table.name} cannot be read: {failure}.") from failure
    except StoreUnavailable as failure:
        raise ObjectStoreUnavailable(
            f"{table.name} cannot be read: its object store does not answer as it should; try again soon."
        ) from failure
    except CacheFull as failure:
        raise ObjectCacheFull(
            f"The columns that the statement reads of {table.name} take {mebibytes(failure.need_bytes)}. All copies of "
            f"objects on this machine, others' included, may take {mebibytes(failure.limit_bytes)} (objects.bytes). "
            "Read fewer columns or partitions, or ask the administrator for more."
        ) from failure
