"""The program of one of several processes: ``python -m gateway.server.processes.process DESCRIPTOR``.

The descriptor is a connection to the supervisor. What this process is comes that way, what became of its start goes
back. Once the supervisor is gone, it ends at once: nobody would count any more what it leases.
"""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing.connection import Connection

from sqlalchemy.exc import SQLAlchemyError

from gateway.security.authentication import UsersFileInvalid
from gateway.server.processes.member import Member, Told
from gateway.server.serve import serve_member
from gateway.server.startup import StartFailed, configure_logging
from gateway.statements import processes

READY = ""
"""Told to the supervisor once connections are taken; anything else says why there will be none."""


def run(supervisor: Connection) -> int:
    """Serve until a signal; returns the exit status."""
    told = supervisor.recv()
    assert isinstance(told, Told)
    configure_logging(told.settings.log_level, process=told.number)
    processes.become(told.number)
    threading.Thread(target=_end_with, args=(supervisor,), name="supervisor", daemon=True).start()
    try:
        serve_member(told.settings, Member.of(told, os.getpid()), ready=lambda: supervisor.send(READY))
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
