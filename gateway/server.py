"""Serve a gateway over HTTP, one per home folder."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from filelock import FileLock, Timeout

from gateway import wiring
from gateway.http.app import create_app
from gateway.settings import Settings

START_TIMEOUT_S = 30.0
_ADDRESS_FILE = "gateway.json"
_LOCK_FILE = "gateway.lock"


class AlreadyServed(Exception):
    """Another process serves this home folder."""


class AddressInUse(Exception):
    """The address to listen on is taken."""


def configure_logging(level: str) -> None:
    """Log to standard error, one line per event."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises AlreadyServed, AddressInUse."""
    with _prepared(settings) as (server, listening, url):
        logging.getLogger(__name__).info("serving %s, dashboard at %s/dashboard", settings.home, url)
        server.run(sockets=[listening])


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Yield the address of the gateway of a home: the one that runs, or one of our own for as long as this lasts."""
    running = running_address(settings.home)
    if running is not None:
        yield running
        return
    with own_server(settings) as url:
        yield url


@contextmanager
def own_server(settings: Settings) -> Iterator[str]:
    """Serve in a thread and yield the address. Raises AlreadyServed, AddressInUse."""
    with _prepared(settings) as (server, listening, url):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http", daemon=True)
        thread.start()
        until = time.monotonic() + START_TIMEOUT_S
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.02)
        if not server.started:
            raise RuntimeError("the gateway did not start; its log says why")
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def running_address(home: Path) -> str | None:
    """Return the address of the gateway that serves a home, None where none does."""
    try:
        told = json.loads((home / _ADDRESS_FILE).read_text(encoding="utf-8"))
        url = str(told["url"])
        httpx.get(f"{url}/livez", timeout=2.0).raise_for_status()
    except (OSError, ValueError, LookupError, httpx.HTTPError):
        return None
    return url


@contextmanager
def _prepared(settings: Settings) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    settings.home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.home / _LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise AlreadyServed(f"another gateway serves {settings.home}; stop it or choose another --home") from error
    address_file = settings.home / _ADDRESS_FILE
    try:
        with _listen(settings.server.host, settings.server.port) as listening:
            host, port = listening.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            app = create_app(wiring.build(settings))
            address_file.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
            yield uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)), listening, url
    finally:
        address_file.unlink(missing_ok=True)
        lock.release()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off; it costs 40 ms a request otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise AddressInUse(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listening
