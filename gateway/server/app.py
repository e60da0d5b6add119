"""The web application over one gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Response

from engines.machine.sharing import part_of
from gateway.dashboard import actions, catalog_pages, overview, pages, sql_page
from gateway.drivers.hs2 import impala
from gateway.drivers.hs2.dispatch import Dispatcher
from gateway.drivers.hs2.http import driver_routes
from gateway.http import catalog, catalogs, errors, queries, schedules, statistics, streaming, workload
from gateway.http.forwarding.forwarding import Forwarding
from gateway.http.identity import service_accounts
from gateway.http.models.common import ErrorReply
from gateway.http.models.engines import LivingReply, ReadyReply
from gateway.http.queries import Served
from gateway.http.replies import ExactJSONResponse
from gateway.http.requests import browsers, login
from gateway.http.requests.bodies import LEAST_BODIES, Bodies, BodyBudget, largest_body
from gateway.http.requests.fast_path import FastPath
from gateway.http.requests.guard import EveryAddress, Guard
from gateway.http.requests.login import LoginFirst, user_of
from gateway.http.requests.turns import Turns
from gateway.http.routing import drains, gateways, parity, replay, rules
from gateway.security.web import BrowserRules, machine_names
from gateway.server.runtime import Gateway

OPEN_PATHS = ("/livez", "/readyz", impala.PAGE)  # which need no login; what the last one leads to does


def create_app(gateway: Gateway) -> FastAPI:
    """Return the application; it starts the gateway with itself and stops it at its end."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # A statement holds a thread while it waits to be planned; whoever asks for anything else finds one, too.
        to_thread.current_default_thread_limiter().total_tokens += gateway.settings.limits.queries
        gateway.start()
        yield
        gateway.close()

    app = FastAPI(
        title="Fusion SQL Gateway",
        summary="One SQL endpoint over a fast in-memory engine and a fault-tolerant one.",
        version=version("fusion-sql-gateway"),
        lifespan=lifespan,
        default_response_class=ExactJSONResponse,
        docs_url=None,  # FastAPI's pages load scripts of others
        redoc_url=None,
        openapi_url=None,
        telemetry={"auto_configure": False, "logs": False},  # where spans go is said once (telemetry.py)
        generate_unique_id_function=lambda route: route.name,  # the names of a generated client's functions
    )
    app.state.gateway = gateway
    errors.install(app)
    login.install(app)
    overview.install(app, gateway.metastore.workload)
    limits = gateway.settings.limits
    processes = 1 if gateway.siblings is None else gateway.siblings.count
    app.state.turns = Turns(part_of(limits.requests, processes), wait_s=limits.queue_s)
    app.state.download_threads = CapacityLimiter(streaming.THREADS)
    server = gateway.settings.server
    browser_rules = BrowserRules({*machine_names(), *server.own_hosts}, server.origins)
    has_browser_login = gateway.browser_login is not None
    app.add_middleware(EveryAddress)
    app.add_middleware(FastPath, method="POST", path="/v1/queries", function=queries.run_query)
    if gateway.peers is not None:
        app.add_middleware(Forwarding, peers=gateway.peers)
    bodies = BodyBudget(max(part_of(int(limits.bodies), processes), LEAST_BODIES * largest_body(int(limits.statement))))
    app.add_middleware(Bodies, statement_bytes=int(limits.statement), budget=bodies)
    app.add_middleware(LoginFirst, open_paths=(*OPEN_PATHS, *(browsers.OPEN_PATHS if has_browser_login else ())))
    app.add_middleware(Guard, rules=browser_rules)
    of_routing = (rules.router, replay.router, parity.router, drains.router, gateways.router)
    if has_browser_login:
        from gateway.dashboard import login as browser_login  # it needs an extra

        app.include_router(browser_login.open_router)
        app.include_router(browser_login.router, dependencies=[Depends(user_of)])
    for router in (
        queries.router,
        catalog.router,
        catalogs.router,
        statistics.router,
        schedules.router,
        workload.router,
        service_accounts.router,
        *of_routing,
        actions.router,
        sql_page.router,
        catalog_pages.router,
        pages.router,
    ):
        app.include_router(router, dependencies=[Depends(user_of)], responses=errors.declared())
    app.include_router(
        driver_routes(
            Dispatcher(gateway.hs2),
            gateway.downloads,
            gateway.router.rules.headers_of,
            has_peers=gateway.peers is not None,
        )
    )

    @app.get("/livez", tags=["health"], responses=errors.declared(400, 413))
    async def livez() -> LivingReply:
        """Answer while the process lives."""
        return LivingReply(status="alive")

    not_ready = errors.declared(503, model=ReadyReply | ErrorReply)

    @app.get("/readyz", tags=["health"], responses=errors.declared(400, 413, 421, 500) | not_ready)
    def readyz(gateway: Served, response: Response) -> ReadyReply:
        """Answer 200 when statements can run: the metastore answers and at least one engine is available.

        A gateway that is about to stop is not ready, though it still takes requests.
        """
        gateway.metastore.catalog.version()
        engines = {entry.name: entry.why_down() for entry in gateway.engines.values()}
        ready = any(why is None for why in engines.values()) and not gateway.leaving.is_set()
        response.status_code = 200 if ready else 503
        return ReadyReply(status="ready" if ready else "not ready", engines={n: w or "ok" for n, w in engines.items()})

    return app
