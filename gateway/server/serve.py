"""Serve a gateway over HTTP and to drivers, one per home folder."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import math
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from filelock import FileLock, Timeout

from engines.machine.private_files import FILE_MODE, UMASK, private_file
from engines.machine.sharing import Host
from gateway.drivers.hs2.binary import BinaryLimits, BinaryServer
from gateway.http.forwarding.announcing import TAKE, Announcer
from gateway.http.forwarding.forwarding import PassedOn
from gateway.http.forwarding.usage import USAGE, own_usage
from gateway.server import memory, telemetry, wiring
from gateway.server.app import create_app
from gateway.server.connections.ports import address_of, listen
from gateway.server.connections.protocol import patient
from gateway.server.own_files import close_home, exposed, roots_at_fault
from gateway.server.processes.gateway_process import GatewayProcess
from gateway.server.runtime import Gateway
from gateway.server.startup import (
    ADDRESS_FILE,
    LOCK_FILE,
    AddressInUse,
    AlreadyServed,
    CertificateInvalid,
    StartFailed,
)
from gateway.settings import Settings, TlsSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gateway.drivers.flight.server import FlightServer

log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
COLLECT_AFTER = 10_000  # objects more than were given back; a statement makes some hundred, and few of them in circles
DESCRIPTORS = 65_536


class _Server(uvicorn.Server):
    """HTTP server. When it stops, it accepts no statement on any port and lets running ones end for a while.

    members: server and socket for requests that other gateways forward; None: there are none.
    ready: function to call once connections are accepted.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        *,
        members: tuple[uvicorn.Config, socket.socket] | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._members = members
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve the other gateways first: what is theirs to ask for may be asked of us as soon as we are asked."""
        for_members = [] if self._members is None else [await self._served(*self._members)]
        await super().startup(sockets)
        self.servers += for_members
        _collect_rarely()
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse first: open requests may last for the whole time that they are given.

        Before that, a load balancer has time to see that this gateway is about to end.
        """
        self._gateway.leaving.set()
        await asyncio.sleep(self._gateway.settings.server.drain_s)
        self._gateway.coordinator.stop_accepting()
        await super().shutdown(sockets)
        await asyncio.to_thread(telemetry.stop)

    async def _served(self, config: uvicorn.Config, listening: socket.socket) -> asyncio.Server:
        config.load()

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state={}
            )
            return made

        loop = asyncio.get_running_loop()
        return await loop.create_server(protocol, sock=listening, backlog=config.backlog, ssl=config.ssl)


def _collect_rarely() -> None:
    """Exclude all current objects from garbage collection: a full collection takes 0.15 s, in which all wait."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises AlreadyServed, AddressInUse, CertificateInvalid."""
    os.umask(UMASK)  # of all that is made from here on, by whatever library
    telemetry.start()
    allow_connections()
    with _prepared(settings, drivers=settings.hs2.enabled, flight=settings.flight.enabled) as (server, listening, url):
        log.info("serving %s, dashboard at %s/dashboard", settings.home, url)
        server.run(sockets=[listening])


def serve_one_of_several(settings: Settings, process: GatewayProcess, *, ready: Callable[[], None]) -> None:
    """Serve as one of several processes until SIGINT or SIGTERM. ready: is called once connections are taken.

    Raises StartFailed.
    """
    os.umask(UMASK)
    telemetry.start()
    allow_connections()
    with ExitStack() as sockets:
        doors = settings.hs2.enabled, settings.flight.enabled
        server, listening, _ = _assembled(settings, sockets, *doors, process=process, ready=ready)
        server.run(sockets=[listening])


def allow_connections() -> None:
    """Take as many descriptors as the system allows: 1,024, as is usual, silent clients would take up in a moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def own_server(settings: Settings) -> Iterator[str]:
    """Serve in a thread, over HTTP alone, and yield the address.

    Raises AlreadyServed, AddressInUse, CertificateInvalid.
    """
    with _prepared(settings, drivers=False, flight=False) as (server, listening, url):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http", daemon=True)
        thread.start()
        until = time.monotonic() + START_TIMEOUT_S
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.02)
        if not server.started:
            raise StartFailed("the gateway did not start; its log says why")
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _prepared(
    settings: Settings, *, drivers: bool, flight: bool
) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    close_home(settings)
    for warning in (*exposed(settings), *roots_at_fault(settings)):
        log.warning("%s", warning)
    lock = FileLock(settings.home / LOCK_FILE, mode=FILE_MODE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise AlreadyServed(f"another gateway serves {settings.home}; stop it or choose another --home") from error
    address_file = settings.home / ADDRESS_FILE
    try:
        with ExitStack() as sockets:
            server, listening, published = _assembled(settings, sockets, drivers, flight)
            private_file(address_file).write_text(json.dumps(published), encoding="utf-8")
            yield server, listening, published["url"]
    finally:
        address_file.unlink(missing_ok=True)
        lock.release()


def _assembled(
    settings: Settings,
    sockets: ExitStack,
    drivers: bool,
    flight: bool,
    *,
    process: GatewayProcess | None = None,
    ready: Callable[[], None] = lambda: None,
) -> tuple[uvicorn.Server, socket.socket, dict[str, Any]]:
    """Build a gateway and all its ports, which are closed with ``sockets``; return the content of its address file."""
    is_shared = process is not None
    tls = tls_context(settings.tls)
    host = settings.server.host
    listening = sockets.enter_context(listen(host, settings.server.port, "--port", is_shared=is_shared))
    memory.use_system_allocator()
    gateway = wiring.build(settings, process)
    published = addresses(settings, address_of(listening))
    gateway.hs2.page_url = reachable(published["url"])
    if drivers:
        port = sockets.enter_context(listen(host, settings.hs2.port, "--drivers-port", is_shared=is_shared))
        gateway.listeners.append(driver_server(port, gateway, tls))
        published["drivers"] = address_of(port)
        log.info("drivers of Hive, Spark and Impala connect to %s", published["drivers"])
    flight_server = _flight_server(gateway) if flight else None
    if flight_server is not None:
        sockets.callback(flight_server.stop)
        gateway.listeners.append(flight_server)
        published["flight"] = flight_server.address
        log.info("clients of Arrow Flight SQL connect to %s", flight_server.address)
    app = create_app(gateway)
    config = uvicorn.Config(
        app,
        http=patient(settings.results.stall_s),
        log_config=None,
        access_log=False,
        server_header=False,
        loop="gateway.server.connections.loop:PatientLoop",
        ssl_context_factory=None if tls is None else lambda *_: tls,
        timeout_graceful_shutdown=math.ceil(settings.hs2.drain_s),
    )
    members = None
    if gateway.peers is not None:
        number = 0 if process is None else process.siblings.number
        own_port = settings.members.port and settings.members.port + number
        door = sockets.enter_context(listen(settings.members.host or host, own_port, "members.port"))
        members = (
            uvicorn.Config(
                _members_door(app, gateway, flight_server),
                http=config.http,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ssl_context_factory=config.ssl_context_factory,
            ),
            door,
        )
        gateway.heartbeat.address = _advertised(settings, door)
    if process is not None:
        cached = gateway.coordinator.cached
        Host(process.siblings.own_socket, {USAGE: partial(own_usage, gateway), TAKE: cached.take}, {}).start()
        cached.announce = Announcer(process.siblings).tell
    return _Server(config, gateway, members=members, ready=ready), listening, published


def _members_door(app: ASGIApp, gateway: Gateway, flight_server: FlightServer | None) -> ASGIApp:
    """Return what answers other gateways: the application, and calls of Flight."""
    if flight_server is not None:
        from gateway.drivers.flight.forwarding import Relay  # with its extra

        app = Relay(app, flight_server, gateway.settings.flight.calls)
    return PassedOn(app, lambda: gateway.metastore.membership.secret)


def _advertised(settings: Settings, door: socket.socket) -> str:
    """Return the address at which the other members reach this one."""
    place = settings.members.address or settings.members.host or settings.server.host
    place = socket.gethostname() if _is_any(place) else place
    return f"{f'[{place}]' if ':' in place else place}:{door.getsockname()[1]}"


def _is_any(host: str) -> bool:
    """Tell whether an address stands for all of a machine's."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def addresses(settings: Settings, http: str) -> dict[str, Any]:
    """Return the content of the address file for the HTTP port."""
    scheme = "http" if settings.tls.certificate is None else "https"
    published: dict[str, Any] = {"url": f"{scheme}://{http}", "pid": os.getpid()}
    if settings.tls.certificate is not None:
        published["certificate"] = str(settings.tls.certificate.absolute())
    return published


def driver_server(listening: socket.socket, gateway: Gateway, tls: ssl.SSLContext | None = None) -> BinaryServer:
    """Return a server of a gateway for drivers, to be started."""
    hs2 = gateway.settings.hs2
    limits = BinaryLimits(hs2.connections, handshake_s=hs2.handshake_s, idle_s=hs2.idle_s)
    return BinaryServer(listening, gateway.hs2, limits=limits, tls=tls)


def _flight_server(gateway: Gateway) -> FlightServer | None:
    try:
        return wiring.flight_server(gateway)
    except OSError as error:
        where = f"{gateway.settings.server.host}:{gateway.settings.flight.port}"
        raise AddressInUse(f"cannot listen on {where}: {error.strerror}; choose another --flight-port") from error


def tls_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """Return the TLS context of all ports; None: no certificate. Raises CertificateInvalid."""
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise CertificateInvalid(f"the certificate {settings.certificate} cannot be used: {error}") from error
    return context


def _no_password() -> str:
    raise ValueError("its key needs a password, which a server cannot be asked for")


def reachable(url: str) -> str:
    """Return an address of our pages that also others can follow: every interface is the machine, by its name."""
    parts = urlsplit(url)
    if not ipaddress.ip_address(parts.hostname or "").is_unspecified:
        return url
    return f"{parts.scheme}://{socket.gethostname().lower()}:{parts.port}"
