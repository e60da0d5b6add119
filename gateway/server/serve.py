"""Serve a gateway over HTTP and to drivers, one per home folder."""

from __future__ import annotations

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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from filelock import FileLock, Timeout

from engines.machine.private_files import FILE_MODE, UMASK, private_file
from gateway.drivers.hs2.binary import BinaryLimits, BinaryServer
from gateway.server import memory, wiring
from gateway.server.app import create_app
from gateway.server.own_files import close_home, exposed
from gateway.server.protocol import patient
from gateway.server.runtime import Gateway
from gateway.server.startup import ADDRESS_FILE, AddressInUse, AlreadyServed, CertificateInvalid, StartFailed
from gateway.settings import Settings, TlsSettings

if TYPE_CHECKING:
    from gateway.drivers.flight.server import FlightServer

log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
DESCRIPTORS = 65_536
_LOCK_FILE = "gateway.lock"


class _Server(uvicorn.Server):
    """Serves HTTP; told to stop, it takes no statement on any port and lets those that run end for a while."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse first: open requests may last for the whole time that they are given."""
        self._gateway.coordinator.refuse()
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises AlreadyServed, AddressInUse, CertificateInvalid."""
    os.umask(UMASK)  # of all that is made from here on, by whatever library
    _allow_connections()
    with _prepared(settings, drivers=settings.hs2.enabled, flight=settings.flight.enabled) as (server, listening, url):
        log.info("serving %s, dashboard at %s/dashboard", settings.home, url)
        server.run(sockets=[listening])


def _allow_connections() -> None:
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
    for warning in exposed(settings):
        log.warning("%s", warning)
    lock = FileLock(settings.home / _LOCK_FILE, mode=FILE_MODE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise AlreadyServed(f"another gateway serves {settings.home}; stop it or choose another --home") from error
    address_file = settings.home / ADDRESS_FILE
    try:
        tls = tls_context(settings.tls)
        with ExitStack() as sockets:
            listening = sockets.enter_context(_listen(settings.server.host, settings.server.port, "--port"))
            url = f"{'http' if tls is None else 'https'}://{_address(listening)}"
            memory.use_system_allocator()
            gateway = wiring.build(settings)
            gateway.hs2.page_url = reachable(url)
            told = {"url": url, "pid": os.getpid()}
            if settings.tls.certificate is not None:
                told["certificate"] = str(settings.tls.certificate.absolute())
            if drivers:
                port = sockets.enter_context(_listen(settings.server.host, settings.hs2.port, "--drivers-port"))
                gateway.listeners.append(driver_server(port, gateway, tls))
                told["drivers"] = _address(port)
                log.info("drivers of Hive, Spark and Impala connect to %s", told["drivers"])
            flight_server = _flight_server(gateway) if flight else None
            if flight_server is not None:
                sockets.callback(flight_server.stop)
                gateway.listeners.append(flight_server)
                told["flight"] = flight_server.address
                log.info("clients of Arrow Flight SQL connect to %s", flight_server.address)
            config = uvicorn.Config(
                create_app(gateway),
                http=patient(settings.results.stall_s),
                log_config=None,
                access_log=False,
                server_header=False,
                loop="gateway.server.loop:PatientLoop",
                ssl_context_factory=None if tls is None else lambda *_: tls,
                timeout_graceful_shutdown=math.ceil(settings.hs2.drain_s),
            )
            private_file(address_file).write_text(json.dumps(told), encoding="utf-8")
            yield _Server(config, gateway), listening, url
    finally:
        address_file.unlink(missing_ok=True)
        lock.release()


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
    """Return what every port encrypts with, None without a certificate. Raises CertificateInvalid."""
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


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def _listen(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off; it costs 40 ms a request otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise AddressInUse(f"cannot listen on {host}:{port}: {error.strerror}; choose another {option}") from error
    return listening
