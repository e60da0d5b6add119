"""What routes and pages work with."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.downloads import Downloads
from gateway.execution.spooling.results import Spool
from gateway.presentation.waits import Waits
from gateway.routing.admission.admission import Admission
from gateway.routing.engines import EngineRegistry
from gateway.routing.replaying import Replaying
from gateway.routing.router import Router
from gateway.security.authentication import Authenticator
from gateway.security.policy import Policy
from gateway.settings import Settings
from gateway.sql.planning.pool import Planners
from gateway.statements.processes import Processes
from gateway.statistics.jobs import JobRunner
from gateway.statistics.scheduler import Scheduler
from gateway.statistics.staleness import Freshness
from metastore.store import Metastore


@dataclass(slots=True)
class Services:
    """The parts of a gateway that requests reach. Built by the server, once.

    processes: all that serve its home, where there are several.
    """

    settings: Settings
    metastore: Metastore
    engines: EngineRegistry
    admission: Admission
    planners: Planners
    catalog: CatalogView
    registration: Registration
    coordinator: Coordinator
    waits: Waits
    spool: Spool
    downloads: Downloads
    jobs: JobRunner
    freshness: Freshness
    schedules: Scheduler
    authenticator: Authenticator
    policy: Policy
    router: Router
    replaying: Replaying
    processes: Processes | None
