"""Parts of the gateway that routes and pages use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.catalog.lake.lake_catalogs import LakeCatalogs
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.lake.object_files import ObjectFiles
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.execution.coordinator import Coordinator
from gateway.execution.records.ended import EndedQueries
from gateway.execution.spooling.downloads import Downloads
from gateway.execution.spooling.results import Spool
from gateway.http.forwarding.peers import Peers
from gateway.http.forwarding.siblings import Siblings
from gateway.planning.pool import Planners
from gateway.presentation.waits import Waits
from gateway.routing.admission.admission import Admission
from gateway.routing.drains import Drains
from gateway.routing.engines import EngineRegistry
from gateway.routing.replaying import Replaying
from gateway.routing.router import Router
from gateway.security.identity.authenticator import Authenticator
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.policy import Policy
from gateway.security.principals import Principal
from gateway.settings import Settings
from gateway.statements.session import Session
from gateway.statistics.jobs import JobRunner
from gateway.statistics.scheduler import Scheduler
from gateway.statistics.staleness import Freshness
from metastore.store import Metastore
from sql.tables import DEFAULT_DATABASE

if TYPE_CHECKING:  # it needs an extra
    from gateway.security.identity.browser_login import BrowserLogin


@dataclass(slots=True)
class Services:
    """Parts of the gateway that routes and pages use. Built by the server, once."""

    settings: Settings
    metastore: Metastore
    engines: EngineRegistry
    admission: Admission
    planners: Planners
    lake: LakeTables
    objects: ObjectFiles
    catalogs: LakeCatalogs
    catalog: CatalogView
    registration: Registration
    coordinator: Coordinator
    ended: EndedQueries
    waits: Waits
    spool: Spool
    downloads: Downloads
    jobs: JobRunner
    freshness: Freshness
    schedules: Scheduler
    authenticator: Authenticator
    accounts: ServiceAccountSource
    browser_login: BrowserLogin | None
    """Login of browsers by an identity provider; None: they are asked for a password."""
    policy: Policy
    router: Router
    drains: Drains
    replaying: Replaying
    siblings: Siblings | None
    """Processes that serve the same home; None: this one alone."""
    peers: Peers | None
    """The other gateways of the metastore; None: nobody else uses it."""
    leaving: threading.Event
    """Set while it is about to stop, or drained: a load balancer should go elsewhere."""
    session_counts: dict[str, Callable[[], int]]
    """Functions that count drivers' open sessions, by protocol."""

    def session(self, user: Principal, database: str = DEFAULT_DATABASE) -> Session:
        """Return a session that lasts as long as a request."""
        session = Session(user, deadline_s=self.settings.limits.deadline_s, limits=self.coordinator.parser_limits)
        session.use(self.catalog.require_database(database, user))
        return session
