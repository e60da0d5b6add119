"""A plug-in for the pytest of a client's environment; it needs the standard library and pytest only.

CLIENTS_OUTCOMES: file that gets a line of JSON per test. CLIENTS_PORT: where connections to localhost:10000 go, the
address that suites have written into them.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

WRITTEN_IN = 10_000
LOCAL = ("localhost", "127.0.0.1", "::1")
MOST_DETAIL = 2_000


class RedirectedSocket(socket.socket):
    """A socket for which port 10000 of this machine is the gateway's."""

    def connect(self, address: Any) -> None:
        """Connect to an address, or to where it leads."""
        super().connect(redirected(self, address))

    def connect_ex(self, address: Any) -> int:
        """Connect to an address, or to where it leads; return the error number."""
        return super().connect_ex(redirected(self, address))


def redirected(asked: socket.socket, address: Any) -> Any:
    """Return where an address leads; IPv6 is refused there, so that clients go on to IPv4."""
    if asked.family not in (socket.AF_INET, socket.AF_INET6) or address[0] not in LOCAL or address[1] != WRITTEN_IN:
        return address
    return (address[0], int(os.environ["CLIENTS_PORT"]), *address[2:])


def pytest_configure() -> None:
    """Lead connections to the gateway."""
    if "CLIENTS_PORT" in os.environ:
        socket.socket = RedirectedSocket  # type: ignore[misc]


@pytest.hookimpl
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell how a test ended: its call, or what stopped it before or after."""
    if report.when != "call" and report.passed:
        return
    detail = "" if report.passed else _why(report)
    test = "::".join([report.nodeid.split("::")[0].rpartition("/")[2], *report.nodeid.split("::")[1:]])
    with open(os.environ["CLIENTS_OUTCOMES"], "a", encoding="utf-8") as outcomes:
        json.dump({"test": test, "state": report.outcome, "detail": detail, "seconds": report.duration}, outcomes)
        outcomes.write("\n")


def _why(report: pytest.TestReport) -> str:
    """Return what a failed test said, or why one was skipped."""
    if isinstance(report.longrepr, tuple):  # a skipped one's file, line and reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)[:MOST_DETAIL]
