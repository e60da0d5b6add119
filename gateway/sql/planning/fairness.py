"""Few places and many who want one: users take turns, and none has all of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from engines.errors import DeadlineExceeded, EngineBusy, StatementCancelled
from engines.protocol import never

POLL_S = 0.25  # between two looks at whether a statement that waits was cancelled
MOST_USERS = 1_000  # of which it is kept when they had their last turn


def _nothing() -> None:
    """Nobody has to hear of it."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Whose statement it is. until_s: of the monotonic clock, when its time is spent. cancelled: whether it was.

    waiting: lasts as long as it waits for a place. before_waiting: is called before
    it waits for a place, or for the process that works there.
    """

    user: str
    until_s: float
    cancelled: Callable[[], bool] = never
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    before_waiting: Callable[[], None] = _nothing

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; zero or less once there are none."""
        return self.until_s - time.monotonic()

    def require(self) -> None:
        """Raise StatementCancelled or DeadlineExceeded where nobody waits any more."""
        if self.cancelled():
            raise StatementCancelled("The statement was cancelled while it was planned.")
        if self.remaining_s <= 0:
            raise DeadlineExceeded("The statement's time was spent while it was planned.")


@dataclass(slots=True, eq=False)
class _Waiter:
    """A statement that wants a place. ticket: when it came. changed: is told once it has one."""

    user: str
    ticket: int
    changed: threading.Condition
    has_place: bool = False


class FairSlots:
    """Places that statements hold for a while. Thread-safe.

    size: how many there are; one user's statements hold half of them at most, so that another's finds one free.
    wait_s: longest wait.

    A place that becomes free wakes up who gets it and nobody else: of two hundred that wait, each would look at all.
    """

    def __init__(self, size: int, *, wait_s: float) -> None:
        self._size = size
        self._most_of_user = max(1, size // 2)
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # users to when they were last given a place
        self._turns = 0
        self._waiting: list[_Waiter] = []  # the first that came first

    @contextmanager
    def hold(self, asker: Requester) -> Iterator[None]:
        """Hold a place. Raises EngineBusy where none becomes free in time, StatementCancelled, DeadlineExceeded."""
        asker.before_waiting()
        self._acquire(asker)
        try:
            yield
        finally:
            with self._lock:
                self._release(asker.user)

    def _acquire(self, asker: Requester) -> None:
        until_s = time.monotonic() + self._wait_s
        with self._lock:
            self._turns += 1
            waiter = _Waiter(asker.user, self._turns, threading.Condition(self._lock))
            self._waiting.append(waiter)
            self._give_places()
            try:
                with nullcontext() if waiter.has_place else asker.waiting():
                    self._wait(waiter, asker, until_s)
            except BaseException:
                if waiter.has_place:
                    self._release(waiter.user)
                else:
                    self._waiting.remove(waiter)
                raise

    def _wait(self, waiter: _Waiter, asker: Requester, until_s: float) -> None:
        while not waiter.has_place:
            asker.require()
            if time.monotonic() >= until_s:
                raise EngineBusy(f"Nothing became free to plan it within {self._wait_s:.0f} s; try again soon.")
            waiter.changed.wait(POLL_S)

    def _release(self, user: str) -> None:
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        self._give_places()

    def _give_places(self) -> None:
        """Give free places to those who are next: of those that may, whose user has waited for the longest."""
        while sum(self._held.values()) < self._size:
            able = (each for each in self._waiting if self._held[each.user] < self._most_of_user)
            first = min(able, key=lambda each: self._served.get(each.user, each.ticket), default=None)
            if first is None:
                return
            self._waiting.remove(first)
            self._turns += 1
            self._served[first.user] = self._turns
            if len(self._served) > MOST_USERS:
                self._served = {user: turn for user, turn in self._served.items() if user in self._held}
            self._held[first.user] += 1
            first.has_place = True
            first.changed.notify()
