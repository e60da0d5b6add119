"""The only place that builds objects: settings in, a gateway out."""

from __future__ import annotations

import logging
import os
import threading

from engines.errors import EngineError
from gateway.admission import Ledger
from gateway.commands import CommandRunner
from gateway.coordinator import Coordinator
from gateway.fleet import Fleet, Member
from gateway.gateway import Gateway
from gateway.jobs import JobRunner
from gateway.results import Spool
from gateway.routing import CatalogView, Router
from gateway.schedules import Schedules
from gateway.settings import DuckDBSettings, Settings, SparkSettings
from gateway.sql.parsing import ParserLimits
from gateway.staleness import Freshness
from metastore.store import Metastore
from selector.decide import Policy

log = logging.getLogger(__name__)


class MissingExtra(Exception):
    """A configured engine's driver is not installed; the message says which extra brings it."""


def build(settings: Settings) -> Gateway:
    """Build a gateway that is ready to be started. Raises MissingExtra."""
    return assemble(settings, Fleet(_members(settings)))


def assemble(settings: Settings, fleet: Fleet) -> Gateway:
    """Put a gateway together over engines that exist already."""
    settings.home.mkdir(parents=True, exist_ok=True)
    metastore = Metastore(settings.metastore_url)
    catalog = CatalogView(metastore, fleet)
    spool = Spool(settings.home / "results", limit_bytes=int(settings.results.bytes))
    policy = Policy(minimum_confidence=settings.routing.minimum_confidence)
    jobs = JobRunner(
        metastore,
        metastore_url=settings.metastore_url,
        work=settings.home / "jobs",
        remote=settings.spark.remote,
        driver_memory_bytes=int(settings.spark.driver_memory),
    )
    freshness = Freshness(metastore)
    schedules = Schedules(metastore, jobs=jobs, catalog=catalog, freshness=freshness, settings=settings.schedules)
    coordinator = Coordinator(
        fleet=fleet,
        catalog=catalog,
        router=Router(fleet, metastore, policy),
        metastore=metastore,
        commands=CommandRunner(metastore, catalog, jobs),
        spool=spool,
        misestimated=schedules.misestimated,
        parser_limits=ParserLimits(statement_bytes=int(settings.limits.statement), nesting=settings.limits.nesting),
        queries=settings.limits.queries,
        queue_s=settings.limits.queue_s,
    )
    return Gateway(settings, metastore, fleet, catalog, coordinator, spool, jobs, freshness, schedules)


def _members(settings: Settings) -> list[Member]:
    members = []
    if settings.duckdb.enabled:
        members.append(_duckdb(settings.duckdb))
    if settings.spark.enabled:
        members.append(_spark(settings, settings.spark))
    return members


def _duckdb(settings: DuckDBSettings) -> Member:
    try:
        from engines.duckdb.pool import DuckDBEngine
    except ImportError as error:
        raise MissingExtra("DuckDB is configured: pip install 'fusion-sql-gateway[duckdb]'") from error
    threads = settings.threads or os.cpu_count() or 1
    engine = DuckDBEngine(workers=settings.workers, threads=threads)
    limit = int(settings.memory_limit)
    ledger = Ledger(engine.name, slots=settings.workers, capacity_bytes=limit * settings.workers)
    return Member(engine, ledger, limit_bytes=limit, threads=threads)


def _spark(settings: Settings, spark: SparkSettings) -> Member:
    try:
        from engines.spark.engine import SparkConnectEngine
        from engines.spark.server import ServerSettings, SparkConnectServer
    except ImportError as error:
        raise MissingExtra("Spark is configured: pip install 'fusion-sql-gateway[spark]'") from error
    server: SparkConnectServer | str
    if spark.remote is not None:
        server = spark.remote
    else:
        server = SparkConnectServer(
            ServerSettings(
                work_folder=settings.home / "spark",
                driver_memory_bytes=int(spark.driver_memory),
                cores=os.cpu_count() or 2,
            )
        )
    engine = SparkConnectEngine(server, slots=spark.slots)
    if spark.warm_up:

        def warm_up() -> None:
            try:
                engine.warm_up()
            except EngineError as error:
                log.warning("Spark did not warm up: %s", error.message)

        threading.Thread(target=warm_up, name="spark warm-up", daemon=True).start()
    return Member(engine, Ledger(engine.name, slots=spark.slots, capacity_bytes=None))
