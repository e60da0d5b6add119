"""Protection against guessing passwords: waits that grow, and turns in which passwords are hashed.

Wrong passwords count for the pair of a name and the address that they came from, so that guessing does not lock out the
owner, who is elsewhere. All records are bounded, and forgotten in time.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FREE_FAILURES = 5  # of one name from one address, before it has to wait
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
FORGOTTEN_S = 1_800.0  # after the last wrong password
REMEMBERED = 10_000  # pairs
NETWORK_BITS = 64  # of an IPv6 address; clients choose the rest themselves
HASHES_WAITING = 32  # of all addresses; beyond that, the address with most of them gives one up
ASKING_AT_ONCE, ASKING_WAITING = 8, 24  # logins that ask a directory, and that wait for their turn; each holds a thread
TOO_MANY = "Too many logins at once; try again."


class LockedOut(Exception):
    """Too many wrong passwords. wait_s: until the next one is checked."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class NoTurn(Exception):
    """Too many passwords wait to be checked, most of them from this address."""


@dataclass(slots=True)
class _Record:
    failures: int = 0
    under_way: int = 0
    until_s: float = 0.0
    last_s: float = 0.0


class Lockout:
    """Counts wrong passwords. clock: seconds that never go back. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()

    @contextmanager
    def attempt(self, name: str, address: str) -> Iterator[Callable[[], int]]:
        """Check one password of a name. Yields a function that notes a wrong one and returns their number.

        While a password is checked, it counts as wrong. Raises LockedOut.
        """
        key = (name, network(address))
        with self._lock:
            now = self._clock()
            record = self._record(key, now)
            if now < record.until_s:
                raise LockedOut(record.until_s - now)
            if record.under_way and record.failures + record.under_way >= FREE_FAILURES:
                raise LockedOut(FIRST_WAIT_S)
            record.under_way += 1
        wrong = False

        def was_wrong() -> int:
            nonlocal wrong
            wrong = True
            with self._lock:
                record.failures += 1
                record.last_s = self._clock()
                beyond = record.failures - FREE_FAILURES
                if beyond >= 0:
                    record.until_s = record.last_s + min(FIRST_WAIT_S * 2.0 ** min(beyond, 32), LONGEST_WAIT_S)
                return record.failures

        ended_well = False
        try:
            yield was_wrong
            ended_well = not wrong
        finally:
            with self._lock:
                record.under_way -= 1
                if ended_well:
                    record.failures, record.until_s = 0, 0.0
                if not record.failures and not record.under_way and self._records.get(key) is record:
                    del self._records[key]

    def __len__(self) -> int:
        """Return the number of remembered pairs."""
        with self._lock:
            return len(self._records)

    def _record(self, key: tuple[str, str], now: float) -> _Record:
        while self._records:
            oldest, oldest_record = next(iter(self._records.items()))
            if oldest_record.under_way or (
                now - oldest_record.last_s < FORGOTTEN_S and len(self._records) < REMEMBERED
            ):
                break
            del self._records[oldest]
        record = self._records.setdefault(key, _Record(last_s=now))
        record.last_s = now
        self._records.move_to_end(key)
        return record


class Turns:
    """Lets few passwords be checked at a time: addresses take turns, and the names of one address do. Thread-safe.

    waiting: most that wait.
    at_once: most that are checked.
    """

    def __init__(self, waiting: int = HASHES_WAITING, at_once: int = 1) -> None:
        self._most = waiting
        self._at_once = at_once
        self._changed = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._running = 0
        self._served: OrderedDict[str, int] = OrderedDict()
        self._count = 0

    @contextmanager
    def taken(self, name: str, address: str) -> Iterator[None]:
        """Wait for a turn and hold it. Raises NoTurn."""
        ticket = _Ticket(network(address), name)
        with self._changed:
            if self._running >= self._at_once and len(self._waiting) >= self._most:
                self._give_way(ticket)
            self._waiting.append(ticket)
            while self._running >= self._at_once or self._next() is not ticket:
                if ticket.refused:
                    raise NoTurn
                self._changed.wait()
            self._waiting.remove(ticket)
            self._running += 1
            self._note(ticket)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _give_way(self, newcomer: _Ticket) -> None:
        """Refuse a ticket of the address with most of them. Raises NoTurn where that is the newcomer's own."""
        of_address = Counter(ticket.address for ticket in self._waiting)
        address, most = of_address.most_common(1)[0]
        crowd = [ticket for ticket in self._waiting if ticket.address == address]
        if of_address[newcomer.address] + 1 >= most:
            crowd = [ticket for ticket in self._waiting if ticket.address == newcomer.address]
            of_name = Counter(ticket.name for ticket in crowd)
            name, most = of_name.most_common(1)[0] if of_name else (newcomer.name, 0)
            if of_name[newcomer.name] + 1 >= most:
                raise NoTurn
            crowd = [ticket for ticket in crowd if ticket.name == name]
        victim = crowd[-1]
        victim.refused = True
        self._waiting.remove(victim)
        self._changed.notify_all()

    def _next(self) -> _Ticket | None:
        """Return the next ticket: of the address, and then the name, that was served longest ago."""
        waiting = [ticket for ticket in self._waiting if not ticket.refused]
        return min(waiting, key=self._rank, default=None)

    def _rank(self, ticket: _Ticket) -> tuple[int, int]:
        return self._served.get(ticket.address, -1), self._served.get(f"{ticket.address}\n{ticket.name}", -1)

    def _note(self, ticket: _Ticket) -> None:
        self._count += 1
        for key in (ticket.address, f"{ticket.address}\n{ticket.name}"):
            self._served[key] = self._count
            self._served.move_to_end(key)
        while len(self._served) > REMEMBERED:
            self._served.popitem(last=False)


@dataclass(slots=True, eq=False)
class _Ticket:
    address: str
    name: str
    refused: bool = False


def network(address: str) -> str:
    """Return the network of an IPv6 address, or an IPv4 address: the part that a client cannot choose."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    if mapped is not None:
        return str(mapped)
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


def directory_turns() -> Turns:
    """Return the turns that all logins of one directory share, by a password or for the groups of a ticket's user."""
    return Turns(ASKING_WAITING, ASKING_AT_ONCE)
