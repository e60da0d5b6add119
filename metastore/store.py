"""The metastore as the rest of the house uses it: one object, a repository per subject."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from metastore.access.grants import AccessGrants
from metastore.database.connection import checkpoint, make_engine, migrate
from metastore.members.logins import Logins
from metastore.members.membership import Membership
from metastore.members.service_accounts import ServiceAccounts
from metastore.members.sessions import DriverSessions
from metastore.query_log.parity import Parity
from metastore.query_log.workload import Workload
from metastore.repositories.catalog import Catalog
from metastore.repositories.databases import AddedCatalogs, Databases
from metastore.repositories.drained_engines import DrainedEngines
from metastore.repositories.history import History
from metastore.repositories.jobs import StatisticsJobs
from metastore.repositories.join_keys import Keys
from metastore.repositories.managed_folders import ManagedFolders, TableCommits
from metastore.repositories.misestimates import Misestimates
from metastore.repositories.queries import Queries
from metastore.repositories.schedules import Schedules
from metastore.repositories.statistics import StatisticsStore
from metastore.repositories.views import Views


class Metastore:
    """Opens a database, brings it to the newest schema and hands out repositories. Thread-safe.

    Raises NewerSchema.
    """

    def __init__(self, url: str) -> None:
        self._engine = make_engine(url)
        try:
            migrate(self._engine)
        except SQLAlchemyError:
            self._engine.dispose()
            raise
        self.membership = Membership(self._engine)
        self.driver_sessions = DriverSessions(self._engine)
        self.logins = Logins(self._engine)
        self.access = AccessGrants(self._engine)
        self.service_accounts = ServiceAccounts(self._engine)
        self.catalog = Catalog(self._engine)
        self.databases = Databases(self._engine)
        self.added_catalogs = AddedCatalogs(self._engine)
        self.views = Views(self._engine)
        self.folders = ManagedFolders(self._engine)
        self.commits = TableCommits(self._engine)
        self.statistics = StatisticsStore(self._engine)
        self.queries = Queries(self._engine, self.membership)
        self.workload = Workload(self._engine)
        self.parity = Parity(self._engine)
        self.drained = DrainedEngines(self._engine)
        self.history = History(self._engine)
        self.misestimates = Misestimates(self._engine)
        self.jobs = StatisticsJobs(self._engine)
        self.schedules = Schedules(self._engine)
        self.keys = Keys(self._engine)

    def checkpoint(self) -> None:
        """Move the database's write-ahead log into it, so that no statement waits for that. Raises SQLAlchemyError."""
        checkpoint(self._engine)

    def close(self) -> None:
        """Write the remaining changes of queries, leave the other gateways, and close all connections."""
        self.queries.writer.stop()
        self.membership.leave()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
