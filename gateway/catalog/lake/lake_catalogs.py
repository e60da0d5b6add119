"""Iceberg catalogs: their tables appear in ours by name, and with columns once somebody uses them.

A thread of its own lists each catalog again when its list has reached its age. A statement that names something which
is not on a list has its catalog listed at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from engines.errors import EngineError
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.planning.fairness import Requester
from metastore.objects.access import CatalogAccess
from metastore.store import Metastore
from sql.errors import SqlError

log = logging.getLogger(__name__)

AT_ONCE_S = 1.0
"""Age below which a list is not asked for again, however many statements name unknown tables."""
LIST_S = 60.0
"""Longest time for a list."""
_LOOK_S = 0.5
_NOBODY = "catalogs"


class LakeCatalogs:
    """The catalogs of the settings. Thread-safe.

    max_age_s: of the list of each catalog's tables, by its name.
    announce: function that passes the new catalog to the engines.
    """

    def __init__(
        self,
        metastore: Metastore,
        lake: LakeTables,
        catalogs: tuple[CatalogAccess, ...],
        max_age_s: Mapping[str, float],
        announce: Callable[[], object],
    ) -> None:
        self._metastore = metastore
        self._lake = lake
        self._catalogs = {catalog.name: catalog for catalog in catalogs}
        self._max_age_s = max_age_s
        self._announce = announce
        self._lock = threading.Lock()
        self._listed_s = dict.fromkeys(self._catalogs, float("-inf"))
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to list the catalogs, now and again."""
        if self._catalogs:
            threading.Thread(target=self._watch, name="catalogs", daemon=True).start()

    def stop(self) -> None:
        """End that."""
        self._stopped.set()

    def look(self, text: str, requester: Requester) -> bool:
        """List the catalogs whose names stand in a text, and return True if anything has changed.

        Raises TableUnreadable, EngineBusy, StatementCancelled, DeadlineExceeded.
        """
        words = text.lower().replace("`", "").replace('"', "")
        named = [catalog for name, catalog in self._catalogs.items() if f"{name}." in words]
        return any([self.refresh(catalog, requester, max_age_s=AT_ONCE_S) for catalog in named])

    def refresh(self, catalog: CatalogAccess, requester: Requester, *, max_age_s: float = 0.0) -> bool:
        """List a catalog whose list is older, and return True if anything has changed. Raises as ``look`` does."""
        with self._lock:
            if time.monotonic() - self._listed_s[catalog.name] < max_age_s:
                return False
            self._listed_s[catalog.name] = time.monotonic()
        names = self._lake.listing(catalog, requester)
        changed = self._metastore.catalog.replace_names(catalog.name, names)
        if changed:
            self._announce()
        return changed

    def _watch(self) -> None:
        while not self._stopped.is_set():
            for name, catalog in self._catalogs.items():
                requester = Requester(_NOBODY, time.monotonic() + LIST_S, self._stopped.is_set)
                try:
                    self.refresh(catalog, requester, max_age_s=self._max_age_s[name])
                except (SqlError, EngineError) as error:
                    if self._stopped.is_set():
                        return
                    log.warning("the tables of the catalog %s stay as they were listed: %s", name, error)
            self._stopped.wait(_LOOK_S)
