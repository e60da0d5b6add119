"""Ports: taken by one process, or reserved for several that share them."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from gateway.server.startup import AddressInUse
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Reserved:
    """Ports that several processes share.

    settings: settings with these ports.
    http: address of the HTTP port.
    others: addresses of the other ports, by name.
    """

    settings: Settings
    http: str
    others: dict[str, str]


def listen(host: str, port: int, option: str, *, is_shared: bool = False) -> socket.socket:
    """Take a port; nobody listens on it yet. is_shared: with other processes. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off; it costs 40 ms a request otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise AddressInUse(f"cannot listen on {host}:{port}: {error.strerror}; choose another {option}") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Return host:port of a socket."""
    host, port = listening.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def reserved(settings: Settings) -> Iterator[Reserved]:
    """Reserve all ports for several processes, also those that are to be free ones, for as long as this lasts.

    A socket that is bound and never listens takes no connection, and keeps everybody out but those who share the port.
    Raises AddressInUse.
    """
    host, sections, addresses = settings.server.host, {}, {}
    doors = [("server", "--port", "http")]
    doors += [("hs2", "--drivers-port", "drivers")] if settings.hs2.enabled else []
    if settings.flight.enabled and importlib.util.find_spec("grpc") is not None:
        doors.append(("flight", "--flight-port", "flight"))
    with ExitStack() as held:
        for name, option, key in doors:
            section = getattr(settings, name)
            if section.port:  # another gateway of this user would share it, too
                listen(host, section.port, option).close()
            bound = held.enter_context(listen(host, section.port, option, is_shared=True))
            sections[name] = section.model_copy(update={"port": bound.getsockname()[1]})
            addresses[key] = address_of(bound)
        http = addresses.pop("http")
        yield Reserved(settings.model_copy(update=sections), http, addresses)
