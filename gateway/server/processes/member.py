"""What a process knows of itself that is one of several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.machine.sharing import Caller, SocketFolder
from gateway.settings import Settings
from gateway.statements.processes import SOCKETS, Processes

SUPERVISOR = "supervisor"
"""Name of the socket at which the supervisor is called."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a process is told at its start. settings: with the ports that all take. number: from 0. count: of all."""

    settings: Settings
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Member:
    """One of several processes. name: that no other one has, nor had. supervisor: by which it calls what they share."""

    processes: Processes
    name: str
    supervisor: Caller

    @classmethod
    def of(cls, told: Told, pid: int) -> Member:
        """Return the process that was told so."""
        sockets = SocketFolder.opened(socket_folder(told.settings))
        processes = Processes(told.number, told.count, sockets)
        return cls(processes, process_name(told.number, pid), Caller(sockets.path(SUPERVISOR)))

    @property
    def is_first(self) -> bool:
        """Tell whether it does what is done once, for all."""
        return not self.processes.number


def socket_folder(settings: Settings) -> Path:
    """Return the folder of the sockets by which the processes reach each other."""
    return settings.home / SOCKETS


def process_name(number: int, pid: int) -> str:
    """Return by which name a process holds what all share."""
    return f"{number}-{pid}"


def gateway_of(home_id: str, number: int) -> str:
    """Return what a process is called in the metastore, the same after each start; the first as if it were alone."""
    return f"{home_id}.{number}" if number else home_id
