"""Iceberg catalogs: their tables appear in ours by name, and with columns once somebody uses them.

A thread of its own lists each catalog again when its list has reached its age. A statement that names something which
is not on a list has its catalog listed at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engines.errors import EngineError
from gateway.catalog.lake.known_catalogs import KnownCatalog, KnownCatalogs
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.snapshot import CatalogView
from gateway.planning.fairness import Requester
from metastore.errors import AlreadyExists
from metastore.objects.access import CatalogAccess
from metastore.records import AddedCatalog
from metastore.store import Metastore
from sql.errors import DatabaseExists, NotAllowed, SqlError, TableUnreadable, UnknownDatabase
from sql.names import did_you_mean
from sql.tables import catalog_of

log = logging.getLogger(__name__)

APART_S = 1.0
"""Least time between two lists of a catalog: statements that name unknown tables wait for the next one."""
LIST_S = 60.0
"""Longest time for a list."""
_LOOK_S = 0.5
_NOBODY = "catalogs"
_NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class CatalogState:
    """A catalog as this process knows it.

    uri: its address, without login and query.
    tables: number on its list.
    age_s: of the list; None: this process has not listed it yet.
    error: of the last try to list it; None: it succeeded.
    remedy: against the error; None: there is none.
    is_added: by a command; else it is of the settings.
    """

    name: str
    type: str
    uri: str
    warehouse: str
    tables: int
    age_s: float | None
    error: str | None
    remedy: str | None
    is_added: bool


class LakeCatalogs:
    """Lists of the catalogs' tables. Thread-safe. catalog: passes new tables to the engines."""

    def __init__(self, metastore: Metastore, lake: LakeTables, known: KnownCatalogs, catalog: CatalogView) -> None:
        self._metastore = metastore
        self._lake = lake
        self._known = known
        self._catalog = catalog
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._begun_s: dict[str, float] = {}
        self._tried_s: dict[str, float] = {}
        self._changed_s: dict[str, float] = {}
        self._listed_s: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to list the catalogs, now and again."""
        threading.Thread(target=self._watch, name="catalogs", daemon=True).start()

    def stop(self) -> None:
        """End that."""
        self._stopped.set()

    @property
    def names(self) -> Sequence[str]:
        """Names of all catalogs."""
        return sorted(self._known.all())

    def states(self) -> Sequence[CatalogState]:
        """Return the catalogs by name."""
        tables = [catalog_of(name) for name in self._catalog.current().tables]
        return [self._state(known, tables.count(name)) for name, known in sorted(self._known.all().items())]

    def state(self, name: str) -> CatalogState:
        """Return one catalog. Raises UnknownDatabase."""
        self.require(name)
        return next(state for state in self.states() if state.name == name)

    def require(self, name: str) -> KnownCatalog:
        """Return a catalog that there is. Raises UnknownDatabase."""
        known = self._known.all().get(name)
        if known is None:
            raise UnknownDatabase(f"There is no Iceberg catalog {name:.80}{did_you_mean(name, self.names)}")
        return known

    def test(self, name: str, requester: Requester) -> CatalogState:
        """List a catalog now and return it. Raises UnknownDatabase, and as ``look`` does but for TableUnreadable."""
        self.require(name)
        try:
            self.refresh(name, requester)
        except TableUnreadable as error:
            log.info("a test of the catalog %s: %s", name, error)
        return self.state(name)

    def add(self, added: AddedCatalog, requester: Requester) -> CatalogState:
        """Add a catalog that answers, with its tables. Raises NotAllowed, DatabaseExists, and as ``look`` does."""
        self._known.require_allowed(added)
        if added.name in self._known.all():
            raise DatabaseExists(f"There is a catalog {added.name} already.")
        if added.name in self._catalog.current().databases:
            raise DatabaseExists(
                f"There is a database {added.name}, and a table of it could not be told from a namespace of the "
                "catalog: give the catalog another name."
            )
        new = self._known.built(added)
        names = self._lake.listing(_usable(new), requester)
        try:
            self._metastore.added_catalogs.add(added)
        except AlreadyExists as error:
            raise DatabaseExists(f"There is a catalog {added.name} already.") from error
        self._metastore.catalog.replace_names(added.name, names, is_added=True)
        with self._lock:
            self._tried_s[added.name] = self._listed_s[added.name] = time.monotonic()
            self._errors.pop(added.name, None)
        self._catalog.current()
        return self.state(added.name)

    def remove(self, name: str) -> None:
        """Drop a catalog that was added; its tables stay in it. Raises UnknownDatabase, NotAllowed."""
        if self.require(name).added is None:
            raise NotAllowed(f"The catalog {name} is of the settings: remove catalogs.{name} from fusion.toml.")
        if not self._metastore.added_catalogs.remove(name):
            raise UnknownDatabase(f"The catalog {name} is gone.")
        self._catalog.current()

    def look(self, text: str, requester: Requester) -> bool:
        """List the catalogs whose names stand in a text, and return True if anything has changed.

        Raises TableUnreadable, EngineBusy, StatementCancelled, DeadlineExceeded.
        """
        words = text.lower().replace("`", "").replace('"', "")
        named = [name for name in self._known.all() if f"{name}." in words]
        return any([self.refresh(name, requester, apart_s=APART_S) for name in named])

    def refresh(self, name: str, requester: Requester, *, max_age_s: float = 0.0, apart_s: float = 0.0) -> bool:
        """List a catalog whose list is older, and return True if anything has changed. Raises as ``look`` does.

        apart_s: time since the last list for which it waits.
        """
        known = self._known.all().get(name)
        if known is None:  # dropped
            return False
        asked_s = time.monotonic()
        with self._turn(name, requester):
            if self._begun_s.get(name, _NEVER_S) > asked_s:  # another one has listed it meanwhile
                return self._changed_s.get(name, _NEVER_S) > asked_s
            tried_s = self._tried_s.get(name, _NEVER_S)
            if asked_s - tried_s < max_age_s:
                return False
            self._wait_until(tried_s + apart_s, requester)
            return self._list(known, requester)

    def _wait_until(self, time_s: float, requester: Requester) -> None:
        """Wait, without the turn of a statement. Raises StatementCancelled, DeadlineExceeded."""
        while (left_s := time_s - time.monotonic()) > 0:
            requester.before_waiting()
            requester.require()
            self._stopped.wait(min(left_s, _LOOK_S))

    @contextmanager
    def _turn(self, name: str, requester: Requester) -> Iterator[None]:
        """Have a catalog listed once at a time. Raises StatementCancelled, DeadlineExceeded."""
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        while not turn.acquire(timeout=_LOOK_S):
            requester.require()
        try:
            yield
        finally:
            turn.release()

    def _list(self, known: KnownCatalog, requester: Requester) -> bool:
        """List a catalog, and return True if anything has changed. Raises as ``look`` does."""
        name = known.access.name
        self._begun_s[name] = time.monotonic()
        try:
            names = self._lake.listing(_usable(known), requester)
            changed = self._metastore.catalog.replace_names(name, names, is_added=known.added is not None)
        except TableUnreadable as error:
            with self._lock:
                self._errors[name] = error.message
            raise
        finally:
            self._tried_s[name] = time.monotonic()
        with self._lock:
            self._listed_s[name] = time.monotonic()
            self._errors.pop(name, None)
        if changed:
            self._catalog.current()
            self._changed_s[name] = time.monotonic()
        return changed

    def _state(self, known: KnownCatalog, tables: int) -> CatalogState:
        access = known.access
        with self._lock:
            listed_s, error = self._listed_s.get(access.name), self._errors.get(access.name)
        age_s = None if listed_s is None else time.monotonic() - listed_s
        remedy = None if error is None else known.remedy
        is_added = known.added is not None
        return CatalogState(
            access.name, access.type, access.shown_uri, access.warehouse, tables, age_s, error, remedy, is_added
        )

    def _watch(self) -> None:
        while not self._stopped.is_set():
            for name, known in self._known.all().items():
                requester = Requester(_NOBODY, time.monotonic() + LIST_S, self._stopped.is_set)
                try:
                    self.refresh(name, requester, max_age_s=known.max_age_s)
                except (SqlError, EngineError) as error:
                    if self._stopped.is_set():
                        return
                    log.warning("the tables of the catalog %s stay as they were listed: %s", name, error)
            self._stopped.wait(_LOOK_S)


def _usable(known: KnownCatalog) -> CatalogAccess:
    """Return how a catalog is reached. Raises TableUnreadable where it cannot be."""
    if known.problem:
        raise TableUnreadable(f"The catalog {known.access.name} cannot be asked: {known.problem}.")
    return known.access
