"""Ports for servers that bind them later."""

from __future__ import annotations

import contextlib
import secrets
import socket

_LOOPBACK = "127.0.0.1"
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free port. It stays free until a server binds it, as systems assign none of these to clients."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_LOOPBACK, port))
            return port
