"""The only place that builds objects: settings in, a gateway out."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Collection
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engines.adapter import Adapter, EngineContext, EngineSettings
from engines.machine.private_files import private_folder
from engines.machine.sharing import part_of
from engines.spark.adapter import SparkSettings
from gateway.catalog.lake.known_catalogs import KnownCatalogs
from gateway.catalog.lake.lake_catalogs import LakeCatalogs
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.lake.object_files import ObjectFiles
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.commands import registry
from gateway.commands.services import CommandServices
from gateway.commands.statement_reader import StatementReader, engines_of
from gateway.drivers.handles import Handles
from gateway.drivers.hs2.service import Service
from gateway.drivers.shared_sessions import SharedSessions
from gateway.execution.authorized_reader import AuthorizedReader
from gateway.execution.caching.answers import CachedAnswers
from gateway.execution.coordinator import Coordinator
from gateway.execution.executor import Executor
from gateway.execution.parity.sampler import ParitySampler
from gateway.execution.records.ended import EndedQueries
from gateway.execution.records.query_log import QueryLog
from gateway.execution.spooling.downloads import WIDE_ROWS, Downloads
from gateway.execution.spooling.results import Spool
from gateway.execution.streaming.early_results import EarlyResults
from gateway.execution.writing import TableWriter
from gateway.http.forwarding.peers import Peers
from gateway.planning.pool import Planners
from gateway.presentation.waits import Waits
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.division import Budgets
from gateway.routing.admission.shares import Shares
from gateway.routing.admission.values import Pool, WhenFull
from gateway.routing.drains import Drains
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.joins import JoinLearner
from gateway.routing.replaying import Replaying
from gateway.routing.router import Router
from gateway.routing.rules.reading import RulesInvalid
from gateway.routing.rules.rules_file import RulesFile
from gateway.security import policy as access_policy
from gateway.security.access.control import AccessControl, RulesSource
from gateway.security.access.policy_file import AccessRulesInvalid, PolicyFile
from gateway.security.access.policy_service import PolicyService
from gateway.security.identity.authenticator import Authenticator
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.principals import Role
from gateway.server.authentication import authenticator_of, browser_login_of
from gateway.server.heartbeat import Heartbeat, gateway_id
from gateway.server.processes.gateway_process import GatewayProcess, gateway_of
from gateway.server.runtime import Gateway
from gateway.server.startup import MissingExtra, PolicyFileInvalid, RulesFileInvalid
from gateway.settings import PoolSettings, Settings, TlsSettings
from gateway.statements.session import Limits
from gateway.statistics.jobs import JobRunner
from gateway.statistics.scheduler import Scheduler
from gateway.statistics.staleness import Freshness
from metastore.store import Metastore
from sql.parsing import MESSAGE_OVERHEAD_BYTES, ParserLimits

if TYPE_CHECKING:
    from gateway.drivers.flight.server import FlightServer

log = logging.getLogger(__name__)

LEAST_PLANNERS = 2
CERTIFICATE_BEGIN, CERTIFICATE_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def build(settings: Settings, process: GatewayProcess | None = None) -> Gateway:
    """Build a gateway that is ready to be started. process: one of several. Raises MissingExtra, RulesFileInvalid."""
    rules = _rules(settings, [adapter.section for adapter, _ in settings.engines()])
    return assemble(settings, EngineRegistry(_entries(settings, process)), rules, process)


def assemble(
    settings: Settings, engines: EngineRegistry, rules: RulesFile | None = None, process: GatewayProcess | None = None
) -> Gateway:
    """Put a gateway together over engines that exist already. Raises RulesFileInvalid."""
    private_folder(settings.home)
    metastore = Metastore(settings.metastore_url)
    results = settings.results
    spool = Spool(settings.home / "results", limit_bytes=int(results.bytes), row_bytes=int(results.row))
    accounts = ServiceAccountSource(metastore.service_accounts)
    authenticator = authenticator_of(settings.authentication, metastore.logins, accounts)
    rights = _rights(settings, authenticator)
    access = access_policy.Policy(authenticator.holders, rights)
    catalog = CatalogView(metastore, engines, rights)
    snapshots = settings.home / "snapshots"
    known_catalogs = KnownCatalogs(settings, catalog)
    lake = LakeTables(
        snapshots,
        wait_s=settings.limits.queue_s,
        access=known_catalogs.access,
        before_commit=metastore.membership.require_alive,
    )
    has_objects = bool(settings.stores or settings.catalogs or settings.catalog.iceberg_uris)
    objects = ObjectFiles(settings.object_access, lake, is_used=has_objects)
    catalogs = LakeCatalogs(metastore, lake, known_catalogs, catalog)
    places = Locations(Rules.of(settings))
    registration = Registration(
        metastore, places, policy=access, announce=catalog.current, lists=snapshots, lake=lake, objects=objects
    )
    routing = settings.routing
    spark = settings.section(SparkSettings)
    jobs = JobRunner(
        metastore,
        metastore_url=settings.metastore_url,
        work=settings.home / "jobs",
        remote=spark.remote_address,
        driver_memory_bytes=int(spark.driver_memory),
        policy=access,
        environment=spark.environment,
        objects=known_catalogs.access,
    )
    freshness = Freshness(metastore, registration)
    scheduled = settings.schedules
    if process is not None and not process.is_first:
        scheduled = scheduled.model_copy(update={"enabled": False})
    schedules = Scheduler(metastore, jobs=jobs, catalog=catalog, freshness=freshness, settings=scheduled, policy=access)
    limits = settings.limits
    planners = Planners(size=_planners(settings, process), cpu_s=limits.planning_s, wait_s=limits.queue_s)
    parser_limits = ParserLimits(statement_bytes=int(limits.statement), nesting=limits.nesting)
    written_for = engines_of(entry.engine for entry in engines.values())
    reader = StatementReader(planners, written_for, registry.FAMILIES)
    pools = [_pool(name, pool) for name, pool in settings.pools.items()]
    wanted = threading.Event()
    admission = Admission(
        (entry.budget for entry in engines.values()),
        pools,
        wanting=wanted.set,
        may_grant=metastore.membership.may_grant,
    )
    router = Router(
        engines,
        metastore,
        routing.routing_policy,
        planners,
        admission,
        pools={name: pool.policy for name, pool in settings.pools.items() if pool.policy is not None},
        pool_threads={name: pool.threads for name, pool in settings.pools.items() if pool.threads is not None},
        rules=rules or _rules(settings, engines),
        has_users=settings.authentication.has_users,
        planning=registration.planning,
    )
    home = gateway_id(settings.home)
    local = frozenset(entry.name for entry in engines.values() if entry.is_local)
    budgets = Budgets({entry.name: entry.budget for entry in engines.values()}, admission.pools, local)
    ended = EndedQueries(engines, lambda pool: admission.pool(pool).name)
    query_log = QueryLog(metastore, ended)
    folders = OwnFolders(metastore, settings.warehouse, settings.catalog.delta_warehouse, lake.remove)
    writer = TableWriter(metastore, folders, registration, lake, policy=access)
    executor = Executor(
        engines=engines,
        admission=admission,
        router=router,
        services=partial(
            CommandServices,
            metastore=metastore,
            catalog=catalog,
            registration=registration,
            objects=objects,
            catalogs=catalogs,
            jobs=jobs,
            engines=engines,
            router=router,
            admission=admission,
            policy=access,
            writer=writer,
            queue_s=limits.queue_s,
        ),
        writer=writer,
        registration=registration,
        spool=spool,
        query_log=query_log,
        misestimated=schedules.misestimated,
        queue_s=limits.queue_s,
    )
    early_results = EarlyResults(spool, enabled=results.early, before_first_row=query_log.keep_from_others)
    cached = CachedAnswers(
        engines=engines,
        router=router,
        spool=spool,
        query_log=query_log,
        limit_bytes=_part(int(settings.cache.bytes), process),
        keep_s=settings.cache.keep_s,
        enabled=settings.cache.enabled,
        pools={name: pool.cache for name, pool in settings.pools.items() if pool.cache is not None},
    )
    parity = ParitySampler(
        engines=engines,
        admission=admission,
        registration=registration,
        spool=spool,
        parity=metastore.parity,
        cases=router.open_cases,
        share=settings.parity.share,
        pools={name: pool.parity for name, pool in settings.pools.items() if pool.parity is not None},
        seconds_a_day=settings.parity.seconds_a_day,
        versions=lambda: _versions(settings),
    )
    coordinator = Coordinator(
        engines=engines,
        admission=admission,
        router=router,
        reader=AuthorizedReader(reader, catalog, engines, registration, access, parser_limits, catalogs),
        executor=executor,
        query_log=query_log,
        writer=writer,
        spool=spool,
        joins=JoinLearner(metastore),
        cached=cached,
        early_results=early_results,
        parity=parity,
        present=authenticator.present,
        queries=limits.queries,
        queue_s=limits.queue_s,
    )
    downloads = Downloads(
        most=results.downloads,
        most_per_user=results.downloads_per_user,
        room_bytes=WIDE_ROWS * int(results.row),
        stall_s=results.stall_s,
    )
    waits = Waits(coordinator.find, admission)
    is_solo = process is None and settings.has_own_metastore

    def is_here(query_id: str) -> bool:
        return coordinator.find(query_id) is not None or spool.has(query_id)

    peers = None if is_solo else Peers(metastore.membership, is_here, member_tls(settings.tls))
    handles = Handles(metastore.membership, peers)
    hs2 = Service(
        coordinator=coordinator,
        waits=waits,
        catalog=catalog,
        spool=spool,
        downloads=downloads,
        authenticator=authenticator,
        limits=Limits(settings.hs2.sessions, settings.hs2.sessions_per_user, settings.hs2.idle_s),
        deadline_s=settings.limits.deadline_s,
        dialect=settings.hs2.dialect,
        handles=handles,
        shared=SharedSessions(metastore.driver_sessions, authenticator, settings.hs2.idle_s) if peers else None,
        qop=settings.authentication.kerberos.qop,
    )
    drains = Drains(metastore.drained, engines)
    leaving = threading.Event()
    return Gateway(
        settings=settings,
        metastore=metastore,
        engines=engines,
        admission=admission,
        planners=planners,
        lake=lake,
        objects=objects,
        catalogs=catalogs,
        catalog=catalog,
        registration=registration,
        coordinator=coordinator,
        ended=ended,
        waits=waits,
        spool=spool,
        downloads=downloads,
        jobs=jobs,
        freshness=freshness,
        schedules=schedules,
        authenticator=authenticator,
        accounts=accounts,
        browser_login=browser_login_of(settings.authentication.oidc, authenticator, metastore.driver_sessions),
        policy=access,
        router=router,
        replaying=Replaying(engines, metastore, routing),
        hs2=hs2,
        heartbeat=Heartbeat(
            home if process is None else gateway_of(home, process.siblings.number),
            metastore.membership,
            solo=is_solo,
            shares=Shares(admission, budgets, home),
            wanted=wanted,
            take_over=coordinator.take_over,
            refresh=drains.refresh,
            lost=coordinator.lost,
            leaving=leaving,
        ),
        drains=drains,
        siblings=process.siblings if process is not None else None,
        peers=peers,
        leaving=leaving,
        session_counts={"hiveserver2": hs2.registry.count},
    )


def member_tls(settings: TlsSettings) -> ssl.SSLContext | None:
    """Return the context for connections to other members, which have the same certificate: no other one is trusted."""
    if settings.certificate is None:
        return None
    first, end = settings.certificate.read_text(encoding="utf-8").split(CERTIFICATE_END, 1)[0], CERTIFICATE_END
    own = first[first.index(CERTIFICATE_BEGIN) :] + end
    context = ssl.create_default_context(cadata=own)
    context.check_hostname = False  # members are reached by their addresses
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _versions(settings: Settings) -> dict[str, str]:
    """Return the versions of the enabled engines, or of their drivers: the first thing that their checks tell."""
    checks = ((adapter.section, next(iter(adapter.findings(section)), None)) for adapter, section in settings.engines())
    return {name: check.detail for name, check in checks if check is not None and check.good}


def flight_server(gateway: Gateway) -> FlightServer | None:
    """Return the port of Flight SQL, to be started; None where its extra is not installed. Raises OSError."""
    try:
        from gateway.drivers.flight.forwarding import Forwarding
        from gateway.drivers.flight.server import Certificate, FlightServer
        from gateway.drivers.flight.service import FlightService
    except ImportError:
        log.warning("there is no port for Flight SQL: pip install 'fusion-sql-gateway[flight]'")
        return None
    flight, tls = gateway.settings.flight, gateway.settings.tls
    has_peers, authenticator = gateway.peers is not None, gateway.authenticator
    service = FlightService(
        coordinator=gateway.coordinator,
        catalog=gateway.catalog,
        spool=gateway.spool,
        authenticator=authenticator,
        downloads=gateway.downloads,
        headers_of=gateway.router.rules.headers_of,
        limits=Limits(flight.sessions, flight.sessions_per_user, flight.idle_s),
        held_bytes=int(gateway.settings.results.bytes),
        handles=gateway.hs2.handles,
        shared=SharedSessions(gateway.metastore.driver_sessions, authenticator, flight.idle_s) if has_peers else None,
        deadline_s=gateway.settings.limits.deadline_s,
    )
    gateway.session_counts["flight"] = service.sessions.count
    certificate = None
    if tls.certificate is not None:
        certificate = Certificate(tls.certificate.read_bytes(), (tls.key or tls.certificate).read_bytes())
    return FlightServer(
        service,
        host=gateway.settings.server.host,
        port=flight.port,
        calls=flight.calls,
        drain_s=flight.drain_s,
        certificate=certificate,
        is_shared=gateway.siblings is not None,
        forwarding=Forwarding(gateway.hs2.handles, service.statement_bytes + MESSAGE_OVERHEAD_BYTES)
        if has_peers
        else None,
    )


def _rights(settings: Settings, authenticator: Authenticator) -> AccessControl:
    access = settings.access
    policy: RulesSource | None = None
    if access.opa.url is not None:
        policy = PolicyService(access.opa)
    elif access.policy_file is not None:
        try:
            policy = PolicyFile(access.policy_file)
        except AccessRulesInvalid as error:
            raise PolicyFileInvalid(f"the access policy {access.policy_file} is wrong: {error}") from error
    return AccessControl(policy, partial(authenticator.holders, Role.ADMIN), access.closed)


def _rules(settings: Settings, engines: Collection[str]) -> RulesFile:
    try:
        return RulesFile(settings.rules_file, engines, required=settings.routing.rules is not None)
    except RulesInvalid as error:
        raise RulesFileInvalid(f"the routing rules in {settings.rules_file} are wrong: {error}") from error


def _pool(name: str, settings: PoolSettings) -> Pool:
    return Pool(
        name,
        weight=settings.weight,
        memory_bytes=None if settings.memory is None else int(settings.memory),
        slots=settings.slots,
        queue=settings.queue,
        queue_s=settings.queue_s,
        when_full=WhenFull(settings.when_full),
    )


def _part(of_all: int, process: GatewayProcess | None) -> int:
    """Return how many of the machine's are one process's."""
    return of_all if process is None else part_of(of_all, process.siblings.count)


def _planners(settings: Settings, process: GatewayProcess | None) -> int:
    """Return how many statements one process plans at once: of one planner, a user's half would be all."""
    return max(LEAST_PLANNERS, _part(settings.limits.planners, process))


def _entries(settings: Settings, process: GatewayProcess | None) -> list[EngineEntry]:
    return [_entry(adapter, section, settings, process) for adapter, section in settings.engines()]


def _entry(
    adapter: Adapter[Any], section: EngineSettings, settings: Settings, process: GatewayProcess | None
) -> EngineEntry:
    folder, processors = settings.home / adapter.section, os.cpu_count() or 1
    around = EngineContext(folder, _planners(settings, process), processors)
    if process is not None:
        number, count = process.siblings.number, process.siblings.count
        own = folder / f"process-{number}"
        around = replace(around, folder=own, processes=count, common=folder, shared=process.supervisor)
    try:
        built = adapter.build(section, around)
    except ImportError as error:
        hint = f"{adapter.product} is configured: pip install 'fusion-sql-gateway[{adapter.extra}]'"
        raise MissingExtra(hint) from error
    return EngineEntry(**{field.name: getattr(built, field.name) for field in fields(built)})
