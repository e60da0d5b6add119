"""Number of this process among a gateway's processes. Ids that a process makes carry it, so that others find the owner.

Where a gateway is one process, nothing is said and nobody asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engines.machine.sharing import SocketFolder

SOCKETS = "sockets"
"""Name of the folder in which processes reach each other; nobody else may look into it."""

HTTP_DOOR, FLIGHT_DOOR = "http", "flight"
CALLS_DOOR = "calls"
"""Where processes call functions of each other."""

_MARKED_ID = re.compile(r"\b\d{8}_\d{6}_[0-9a-f]{10}([0-9a-f]{2})\b")
_mark = b""


def become(number: int) -> None:
    """Set the number of this process, until its end. number: from 0."""
    global _mark
    _mark = bytes((number + 1,))


def mark() -> bytes:
    """Return the byte that marks ids of this process; empty: it is the only one."""
    return _mark


def owner_of_mark(byte: int) -> int:
    """Return the number of the process whose mark a byte is."""
    return byte - 1


def owner_named_in(text: str) -> int | None:
    """Return the process that made the first query or job that a text names; None where it names none of several."""
    marked = _MARKED_ID.search(text)
    return None if marked is None else owner_of_mark(int(marked[1], 16))


@dataclass(frozen=True, slots=True)
class Processes:
    """All processes of a gateway, as one of them sees them.

    number: its own, from 0. count: of all.
    home: name of their home folder in the metastore, which is that of the first one, too.
    """

    number: int
    count: int
    sockets: SocketFolder
    home: str = ""

    def other(self, owner: int | None) -> int | None:
        """Return an owner that is another process; None where it is this one, or none that there is."""
        return owner if owner is not None and owner != self.number and 0 <= owner < self.count else None

    def number_in(self, name: str) -> int | None:
        """Return the number of the process of this home folder that has a name in the metastore; None: it has none."""
        home, _, number = name.rpartition(".")
        if name == self.home:
            return 0
        return int(number) if home == self.home and number.isdecimal() else None

    def has_made(self, query_id: str) -> bool:
        """Tell whether this process owns a query. The first one owns those that no process made."""
        owner = owner_named_in(query_id)
        return owner == self.number or (not self.number and (owner is None or not 0 <= owner < self.count))

    def path(self, door: str, number: int) -> str:
        """Return the path of one of a process's sockets."""
        return self.sockets.path(self.name_of(door, number))

    @staticmethod
    def name_of(door: str, number: int) -> str:
        """Return the name of a door's socket."""
        return f"{number}.{door}"
