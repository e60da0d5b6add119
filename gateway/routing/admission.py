"""Admission: places among all statements of the gateway, and each engine's ledger of memory and slots.

What a statement holds, it holds until its result is closed. Both are shared between users: nobody takes everything, and
who waits for a slot waits behind the others' turns, not behind all that somebody else has sent.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from engines.errors import EngineBusy, StatementCancelled
from engines.protocol import Lease
from gateway.errors import TooManyQueries
from gateway.security.principals import IN_PROCESS, Principal

POLL_S = 0.25
TIMES_FREE = 3  # as many places as are free, that one user may hold: 3/4 of all alone, 3/7 beside another such user
KEPT = 1 / 8  # of all places, that stay free for others than those who come from one address without a login
GUEST_SHARE = 1 / 8  # of an engine's limit, that a statement on the guests' slot may need
GUEST_BYTES = 64 << 20  # the same, where the engine has no limit


class Places:
    """How many statements may be alive at once. Thread-safe.

    A user's share follows what is free: ``TIMES_FREE`` times that, so that one who is alone may have most places, and
    never all. Names that nobody proved share what an address may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._of_account: Counter[str] = Counter()
        self._of_source: Counter[str] = Counter()

    @contextmanager
    def hold(self, who: Principal) -> Iterator[None]:
        """Hold a place. Raises TooManyQueries."""
        self.take(who)
        try:
            yield
        finally:
            self.give_back(who)

    def take(self, who: Principal) -> None:
        """Take a place. Raises TooManyQueries."""
        with self._lock:
            free = self._most - self._of_account.total()
            held = self._of_account[who.account]
            if free <= 0:
                raise TooManyQueries("Too many queries are running; try again soon.")
            proved_or_first = who.authenticated or not self._of_source[who.quota_key]
            others = free if proved_or_first else free - int(KEPT * self._most)
            if held and (held >= TIMES_FREE * free or free <= min(1, self._most - 1)):
                raise TooManyQueries(f"You have {held} queries running or waiting, which is your share; end some.")
            if others <= 0:
                raise TooManyQueries("Too many queries of your address are running; end some, or log in.")
            self._of_account[who.account] += 1
            self._of_source[who.quota_key] += 1

    def give_back(self, who: Principal) -> None:
        """Give a place back."""
        with self._lock:
            _subtract(self._of_account, who.account)
            _subtract(self._of_source, who.quota_key)


@dataclass(slots=True, eq=False)
class _Waiter:
    """A statement that waits. number: in the order of arrival; is_small: may take the guests' slot."""

    who: Principal
    memory_bytes: int
    number: int
    is_small: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """What an attempt holds. raise_to: takes more, to a total of bytes; False where there is no room. Never waits."""

    lease: Lease
    raise_to: Callable[[int], bool]


class Ledger:
    """One engine's slots and memory. capacity_bytes: None where memory is not counted.

    guests: slots more, which only users take who hold none, and only for statements that need next to no memory: long
    statements of one user keep nobody else's short ones waiting.
    """

    def __init__(self, engine: str, *, slots: int, capacity_bytes: int | None, guests: int = 0) -> None:
        self._engine = engine
        self._slots = slots
        self._capacity = capacity_bytes
        self._guests = guests
        self._held_slots = 0
        self._held_guests = 0
        self._held_bytes = 0
        self._of_account: Counter[str] = Counter()
        self._of_source: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # number of the last lease of an account that waits or holds some
        self._waiting: list[_Waiter] = []
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()

    @contextmanager
    def lease(
        self,
        memory_bytes: int,
        *,
        wait_s: float,
        cancelled: Callable[[], bool],
        who: Principal = IN_PROCESS,
        needed_bytes: int | None = None,
    ) -> Iterator[Grant]:
        """Hold a slot and memory. Raises EngineBusy when none is free in time, StatementCancelled.

        who: takes turns with others who wait. needed_bytes: what the statement takes at most, None where not known.
        """
        most_bytes = GUEST_SHARE * memory_bytes or GUEST_BYTES
        is_small = needed_bytes is not None and needed_bytes <= most_bytes
        waiter = _Waiter(who, memory_bytes, next(self._numbers), is_small)
        is_guest = self._acquire(waiter, wait_s, cancelled)
        try:
            yield Grant(Lease(memory_bytes), partial(self._raise, waiter, is_guest))
        finally:
            with self._changed:
                if is_guest:
                    self._held_guests -= 1
                else:
                    self._held_slots -= 1
                    self._held_bytes -= waiter.memory_bytes
                _subtract(self._of_account, who.account)
                _subtract(self._of_source, who.quota_key)
                self._forget(who)
                self._changed.notify_all()

    def _raise(self, waiter: _Waiter, is_guest: bool, total_bytes: int) -> bool:
        with self._changed:
            more_bytes = total_bytes - waiter.memory_bytes
            if not is_guest and self._capacity is not None and self._held_bytes + more_bytes > self._capacity:
                return False
            waiter.memory_bytes = total_bytes
            self._held_bytes += 0 if is_guest else more_bytes
            return True

    def _acquire(self, waiter: _Waiter, wait_s: float, cancelled: Callable[[], bool]) -> bool:
        """Wait for a slot; returns whether it is the guests'."""
        until = time.monotonic() + wait_s
        who = waiter.who
        with self._changed:
            self._waiting.append(waiter)
            try:
                while (is_guest := self._turn(waiter)) is None:
                    if cancelled():
                        raise StatementCancelled("The statement was cancelled while it waited.")
                    remaining = until - time.monotonic()
                    if remaining <= 0:
                        raise EngineBusy(f"No slot of {self._engine} became free within {wait_s:.0f} s.")
                    self._changed.wait(min(remaining, POLL_S))
            finally:
                self._waiting.remove(waiter)
                self._forget(who)
                self._changed.notify_all()
            if is_guest:
                self._held_guests += 1
            else:
                self._held_slots += 1
                self._held_bytes += waiter.memory_bytes
            self._of_account[who.account] += 1
            self._of_source[who.quota_key] += 1
            self._served[who.account] = next(self._numbers)
        return is_guest

    def _turn(self, waiter: _Waiter) -> bool | None:
        """Tell whether a waiter gets a slot now, and whether it is the guests'; None where it has to wait."""
        if self._fits(waiter.memory_bytes):
            return False if min(self._waiting, key=self._order) is waiter else None
        if waiter.is_small and self._held_guests < self._guests and not self._of_account[waiter.who.account]:
            small = [each for each in self._waiting if each.is_small and not self._of_account[each.who.account]]
            return True if min(small, key=self._order) is waiter else None
        return None

    def _order(self, waiter: _Waiter) -> tuple[int, int, int, int]:
        """Sort first who holds least, then whose last turn is longest ago, then who came first."""
        who = waiter.who
        held = self._of_source[who.quota_key], self._of_account[who.account]
        return *held, self._served.get(who.account, 0), waiter.number

    def _fits(self, memory_bytes: int) -> bool:
        enough_memory = self._capacity is None or self._held_bytes + memory_bytes <= self._capacity
        return self._held_slots < self._slots and enough_memory

    def _forget(self, who: Principal) -> None:
        """Forget the last turn of who neither holds nor waits for anything."""
        waits = any(each.who.account == who.account for each in self._waiting)
        if not waits and not self._of_account[who.account]:
            self._served.pop(who.account, None)

    def queue(self, mean_s: float) -> tuple[float, float]:
        """Return the seconds until a slot is free, and how many statements each slot keeps waiting.

        mean_s: that a statement holds a slot, on average.
        """
        with self._changed:
            waiting = len(self._waiting)
            if self._held_slots < self._slots and not waiting:
                return 0.0, 0.0
            return (waiting + 1) / self._slots * mean_s, waiting / self._slots

    def describe(self) -> dict[str, int | None]:
        """Return what is held now and what there is."""
        with self._changed:
            return {
                "slots": self._slots,
                "slots_held": self._held_slots + self._held_guests,
                "capacity_bytes": self._capacity,
                "bytes_held": self._held_bytes,
            }


def _subtract(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
