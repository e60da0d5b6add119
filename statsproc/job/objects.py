"""Tables in object stores: all that a job reads of one lies on this machine until the job ends."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Self

from engines.files.manifest import read_manifest
from metastore.objects.access import NO_OBJECTS, VARIABLE, ObjectAccess
from metastore.objects.cache import ObjectCache
from metastore.objects.errors import CacheFull, ObjectUnreadable, StoreUnavailable
from metastore.objects.kinds.kind import ObjectStore
from sql.tables import TableSource
from statsproc.job.reading import BuildFailed


class ObjectTables:
    """Fetches tables; a context, at the end of which copies may go. access: as the gateway has put it into VARIABLE."""

    def __init__(self) -> None:
        text = os.environ.pop(VARIABLE, None)  # Spark's processes get the environment
        self.access = ObjectAccess.from_text(text) if text else NO_OBJECTS
        self._open = ExitStack()
        self._cache: ObjectCache | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def fetch(self, table: TableSource, store: ObjectStore | None) -> None:
        """Have all files of a table's snapshot here. store: that they lie in; None: none. Raises BuildFailed."""
        if store is None:
            return
        assert table.snapshot is not None
        if self._cache is None:
            self._cache = ObjectCache(self.access.folder, self.access.limit_bytes)
            self._open.enter_context(closing(self._cache))
        manifest = table.snapshot.manifest
        try:
            self._open.enter_context(self._cache.reading(manifest, read_manifest(manifest), store, None))
        except ObjectUnreadable as failure:
            raise BuildFailed(f"{table.name} cannot be read: {failure}") from failure
        except StoreUnavailable as failure:
            raise BuildFailed(f"the object store of {table.name} does not answer: compute again") from failure
        except CacheFull as failure:
            raise BuildFailed(
                f"{table.name} takes {failure.need_bytes:,} bytes, and copies of objects may take "
                f"{failure.limit_bytes:,} on the gateway's machine (objects.bytes)"
            ) from failure
