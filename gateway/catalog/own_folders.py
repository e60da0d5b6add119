"""Folders of tables that statements create: recorded before they are made, deleted only by that record."""

from __future__ import annotations

import datetime as dt
import logging
import os
import stat
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from engines.machine.private_files import private_folder
from gateway.catalog.folders import remove_folder, set_rights
from metastore.database.retry import retry, retry_insert
from metastore.records import CatalogTable, ManagedFolder
from metastore.store import Metastore

log = logging.getLogger(__name__)

RETIRED_S = 600.0  # that statements may read a table on which was replaced under them

_RIGHTS_OF_FOLDERS = 0o2777
_RIGHTS_OF_FILES = 0o666


class OwnFolders:
    """Makes and deletes folders of the warehouse. Thread-safe."""

    def __init__(self, metastore: Metastore, warehouse: Path) -> None:
        self._metastore = metastore
        self._warehouse = warehouse
        self._lock = threading.Lock()
        self._retired: list[tuple[float, str]] = []  # with the time from which on each may go

    def reserve(self, table: str, query_id: str) -> Path:
        """Record the folder of a table that is to be made, and return its path; an engine will make it."""
        if not self._warehouse.is_dir():
            private_folder(self._warehouse)
        folder = self._place_of(table, query_id)
        record = ManagedFolder(str(folder), query_id)
        retry_insert(partial(self._metastore.folders.add, record, at=dt.datetime.now(dt.UTC)))
        return folder

    def share(self, folder: Path) -> None:
        """Give the rights of the warehouse to all that an engine has put into a new folder."""
        mode = stat.S_IMODE(folder.parent.stat().st_mode) & _RIGHTS_OF_FOLDERS
        set_rights(folder, folder_mode=mode, file_mode=mode & _RIGHTS_OF_FILES)

    def delete(self, location: str) -> None:
        """Delete a folder that the gateway made, if no table lies in it or around it; what it did not make stays.

        What lies in another warehouse stays, too: this home may be a copy of the one that it belongs to.
        """
        if self._metastore.folders.get(location) is None:
            return
        if not Path(location).is_relative_to(os.path.realpath(self._warehouse)):
            log.warning("%s stays, as it is not in the warehouse %s", location, self._warehouse)
            return
        if _is_used(Path(location), retry(self._metastore.catalog.list)):
            return
        try:
            gone = remove_folder(Path(location))
        except OSError as error:
            log.warning("%s could not be deleted, the next start tries again: %s", location, error)
            return
        if gone:
            retry(partial(self._metastore.folders.remove, location))

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
