"""The program of one of several processes: ``python -m gateway.server.processes.process DESCRIPTOR``.

The descriptor is a connection to the supervisor. What this process is comes that way, what became of its start goes
back. Once the supervisor is gone, it ends at once: a second one may start.
"""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing.connection import Connection

from sqlalchemy.exc import SQLAlchemyError

from gateway.security.authentication import UsersFileInvalid
from gateway.server.processes.gateway_process import GatewayProcess, ProcessArguments
from gateway.server.serve import serve_one_of_several
from gateway.server.startup import StartFailed, configure_logging

READY = ""
"""Sent to the supervisor once connections are taken; anything else says why there will be none."""


def run(supervisor: Connection) -> int:
    """Serve until a signal; returns the exit status."""
    arguments = supervisor.recv()
    assert isinstance(arguments, ProcessArguments)
    settings = arguments.settings
    configure_logging(settings.log_level, process=arguments.number, as_json=settings.logging.format == "json")
    threading.Thread(target=_end_with, args=(supervisor,), name="supervisor", daemon=True).start()
    try:
        serve_one_of_several(settings, GatewayProcess.of(arguments), ready=lambda: supervisor.send(READY))
    except (StartFailed, UsersFileInvalid, SQLAlchemyError) as error:
        supervisor.send(str(error).strip().partition("\n")[0] or type(error).__name__)
        return 1
    return 0


def _end_with(supervisor: Connection) -> None:
    try:
        supervisor.poll(None)
        supervisor.recv()
    except (EOFError, OSError):
        os._exit(1)


if __name__ == "__main__":
    sys.exit(run(Connection(int(sys.argv[1]))))
