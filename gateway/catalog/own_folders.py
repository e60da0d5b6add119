"""Folders of tables that statements create: recorded before they are made, deleted only by that record.

They lie in the warehouse, a folder of this machine; those of Delta tables in an object store, if the settings say so.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from engines.machine.private_files import private_folder
from gateway.catalog.folders import remove_folder, set_rights
from metastore.database.retry import retry, retry_insert
from metastore.objects.store import is_remote
from metastore.records import CatalogTable, ManagedFolder
from metastore.store import Metastore
from sql.errors import FusionError

log = logging.getLogger(__name__)

DELTA = "delta"
RETIRED_S = 600.0  # that statements may read a table on which was replaced under them

_RIGHTS_OF_FOLDERS = 0o2777
_RIGHTS_OF_FILES = 0o666


class OwnFolders:
    """Makes and deletes folders of the warehouse. Thread-safe.

    delta_warehouse: location in an object store of the folders of Delta tables; "": they lie in the warehouse.
    remove_remote: deletes the folder of a Delta table there. Raises FusionError.
    """

    def __init__(
        self,
        metastore: Metastore,
        warehouse: Path,
        delta_warehouse: str,
        remove_remote: Callable[[str], None],
    ) -> None:
        self._metastore = metastore
        self._warehouse = warehouse
        self._delta_warehouse = delta_warehouse
        self._remove_remote = remove_remote
        self._lock = threading.Lock()
        self._retired: list[tuple[float, str]] = []  # with the time from which on each may go

    def reserve(self, table: str, query_id: str) -> Path:
        """Record the folder of a table that is to be made, and return its path; an engine will make it."""
        if not self._warehouse.is_dir():
            private_folder(self._warehouse)
        folder = self._place_of(table, query_id)
        self._record(str(folder), query_id)
        return folder

    def reserve_for(self, table: str, format: str, query_id: str) -> str:
        """Record the folder of a table of some format that is to be made, and return its location."""
        if format != DELTA or not self._delta_warehouse:
            return str(self.reserve(table, query_id))
        location = f"{self._delta_warehouse}/{table}-{query_id}"
        self._record(location, query_id)
        return location

    def _record(self, location: str, query_id: str) -> None:
        record = ManagedFolder(location, query_id)
        retry_insert(partial(self._metastore.folders.add, record, at=dt.datetime.now(dt.UTC)))

    def share(self, location: str) -> None:
        """Give the rights of the warehouse to all that an engine has put into a new folder of this machine."""
        if is_remote(location):
            return
        folder = Path(location)
        mode = stat.S_IMODE(folder.parent.stat().st_mode) & _RIGHTS_OF_FOLDERS
        set_rights(folder, folder_mode=mode, file_mode=mode & _RIGHTS_OF_FILES)

    def delete(self, location: str) -> None:
        """Delete a folder that the gateway made, if no table lies in it or around it; what it did not make stays.

        What lies in another warehouse stays, too: this home may be a copy of the one that it belongs to.
        """
        if self._metastore.folders.get(location) is None:
            return
        warehouse = self._delta_warehouse if is_remote(location) else os.path.realpath(self._warehouse)
        if not warehouse or not Path(location).is_relative_to(warehouse):
            log.warning("%s stays, as it is not in the warehouse %s", location, warehouse)
            return
        if _is_used(Path(location), retry(self._metastore.catalog.list)):
            return
        try:
            gone = self._remove(location)
        except (OSError, FusionError) as error:
            log.warning("%s could not be deleted, the next start tries again: %s", location, error)
            return
        if gone:
            retry(partial(self._metastore.folders.remove, location))

    def _remove(self, location: str) -> bool:
        """Delete a folder, and return True if it is gone. Raises OSError, FusionError."""
        if not is_remote(location):
            return remove_folder(Path(location))
        self._remove_remote(location)
        return True

    def made(self, location: str) -> bool:
        """Tell whether the gateway made a folder."""
        return self._metastore.folders.get(location) is not None

    def retire(self, location: str) -> None:
        """Schedule the deletion of a dropped table's folder, once the queries that still read it have ended."""
        with self._lock:
            self._retired.append((time.monotonic() + RETIRED_S, location))

    def delete_retired(self) -> None:
        """Delete the folders that were retired long enough ago; the others go later, or at the next start."""
        now_s = time.monotonic()
        with self._lock:
            due = [location for at_s, location in self._retired if at_s <= now_s]
            self._retired = [(at_s, location) for at_s, location in self._retired if at_s > now_s]
        for location in due:
            self.delete(location)

    def sweep(self) -> None:
        """Delete folders whose table was never made, or was dropped while they could not be deleted."""
        tables = self._metastore.catalog.list()
        for folder in self._metastore.folders.list():
            query = self._metastore.queries.get(folder.query_id)
            if (query is None or query.state.ended) and not _is_used(Path(folder.location), tables):
                log.warning("%s has no table", folder.location)
                self.delete(folder.location)

    def adopt(self) -> None:
        """Record the folders of an earlier release, which kept no records: named for the query that made the table."""
        for table in self._metastore.catalog.list():
            place = Path(table.source.location)
            query_id = place.name.removeprefix(f"{table.name}-")
            if place != self._place_of(table.name, query_id) or self._metastore.folders.get(str(place)) is not None:
                continue
            if self._metastore.queries.get(query_id) is not None:
                self._metastore.folders.add(ManagedFolder(str(place), query_id), at=dt.datetime.now(dt.UTC))

    def _place_of(self, table: str, query_id: str) -> Path:
        return Path(os.path.realpath(self._warehouse)) / f"{table}-{query_id}"


def _is_used(folder: Path, tables: Iterable[CatalogTable]) -> bool:
    """Tell whether a table lies in a folder, or around it."""
    places = [Path(table.source.location) for table in tables]
    return any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in places)
