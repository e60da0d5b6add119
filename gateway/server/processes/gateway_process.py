"""Identity of one of several gateway processes, and the arguments it starts with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.machine.sharing import Caller, SocketFolder
from gateway.http.forwarding.siblings import SOCKETS, Siblings
from gateway.settings import Settings

SUPERVISOR = "supervisor"
"""Name of the socket at which the supervisor is called."""


@dataclass(frozen=True, slots=True)
class ProcessArguments:
    """Arguments of a process at its start.

    settings: settings, with the ports that all processes share.
    number: number of the process, from 0.
    count: number of all processes.
    """

    settings: Settings
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """One of several processes of a gateway.

    siblings: its number, and all of them.
    supervisor: caller of the functions that all processes share.
    """

    siblings: Siblings
    supervisor: Caller

    @classmethod
    def of(cls, arguments: ProcessArguments) -> GatewayProcess:
        """Return the process that these arguments start."""
        sockets = SocketFolder.opened(socket_folder(arguments.settings))
        return cls(Siblings(arguments.number, arguments.count, sockets), Caller(sockets.path(SUPERVISOR)))

    @property
    def is_first(self) -> bool:
        """Tell whether it does the work that only one process does."""
        return not self.siblings.number


def socket_folder(settings: Settings) -> Path:
    """Return the folder of the sockets by which the processes reach each other."""
    return settings.home / SOCKETS


def gateway_of(home_id: str, number: int) -> str:
    """Return a process's id in the metastore, the same after each start; the first has the id of a single process."""
    return f"{home_id}.{number}" if number else home_id
