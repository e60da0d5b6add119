"""Processes of one home folder, as one of them sees them. They share ports, and tell each other their counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engines.machine.sharing import SocketFolder

SOCKETS = "sockets"
"""Name of the folder in which processes reach each other; nobody else may look into it."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """All processes of a home folder.

    number: of this one, from 0. count: of all.
    """

    number: int
    count: int
    sockets: SocketFolder

    @property
    def own_socket(self) -> str:
        """Path of the socket at which this process answers the others."""
        return self._socket(self.number)

    def other_sockets(self) -> Iterator[str]:
        """Yield the paths of the other ones' sockets."""
        for number in range(self.count):
            if number != self.number:
                yield self._socket(number)

    def _socket(self, number: int) -> str:
        return self.sockets.path(f"{number}.calls")
