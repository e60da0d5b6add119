"""Fair sharing of a few places: users take turns, and no user has all of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from engines.errors import DeadlineExceeded, EngineBusy, StatementCancelled
from engines.protocol import never

POLL_S = 0.25  # between two looks at whether a statement that waits was cancelled
MOST_USERS = 1_000  # of which it is kept when they had their last turn

Waiter = TypeVar("Waiter")


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Requester of planning work.

    user: name that counts for fairness.
    until_s: monotonic time of the deadline.
    cancelled: predicate: the statement was cancelled.
    waiting: context that is entered while it waits for a place.
    before_waiting: function to call before it waits for a place or for a planner process.
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
        """Raise StatementCancelled or DeadlineExceeded if the statement was cancelled or its time is up."""
        if self.cancelled():
            raise StatementCancelled("The statement was cancelled while it was planned.")
        if self.remaining_s <= 0:
            raise DeadlineExceeded("The statement's time was spent while it was planned.")


class Shares(Generic[Waiter]):
    """Fair distribution of places: users take turns, and no user has more than half of them. Not thread-safe.

    size: number of places. A place is held until ``release``.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.most_of_user = max(1, size // 2)
        self.held: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # users to when they last got a place
        self._turns = 0
        self.waiting: dict[Waiter, tuple[str, int]] = {}  # with their user and when they came, the first first

    def add(self, waiter: Waiter, user: str) -> None:
        """Add a waiter."""
        self._turns += 1
        self.waiting[waiter] = user, self._turns

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        del self.waiting[waiter]

    def waiting_of(self, user: str) -> int:
        """Return the number of a user's waiters."""
        return sum(waiting_user == user for waiting_user, _ in self.waiting.values())

    def release(self, user: str) -> None:
        """Free a place that one of a user held."""
        self.held[user] -= 1
        if not self.held[user]:
            del self.held[user]

    def grant_places(self) -> Iterator[Waiter]:
        """Grant free places, and yield the waiters that get one.

        Next is the user, of those below their limit, who got a place longest ago.
        """
        while sum(self.held.values()) < self._size:
            able = (waiter for waiter, (user, _) in self.waiting.items() if self.held[user] < self.most_of_user)
            waiter = min(able, key=self._since, default=None)
            if waiter is None:
                return
            user, _ = self.waiting.pop(waiter)
            self._turns += 1
            self._served[user] = self._turns
            if len(self._served) > MOST_USERS:
                self._served = {name: turn for name, turn in self._served.items() if name in self.held}
            self.held[user] += 1
            yield waiter

    def _since(self, waiter: Waiter) -> int:
        user, came = self.waiting[waiter]
        return self._served.get(user, came)


@dataclass(slots=True, eq=False)
class _Waiter:
    """Statement that waits for a place. changed: condition that is notified once it has one."""

    changed: threading.Condition
    has_place: bool = False


class FairSlots:
    """Places that statements hold for a while. Thread-safe.

    size: number of places; one user's statements hold half of them at most, so that another user's finds one free.
    wait_s: longest wait.

    A free place wakes up only the waiter that gets it: if two hundred woke up, each would check all others.
    """

    def __init__(self, size: int, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._shares = Shares[_Waiter](size)

    @contextmanager
    def hold(self, requester: Requester) -> Iterator[None]:
        """Hold a place. Raises EngineBusy where none becomes free in time, StatementCancelled, DeadlineExceeded."""
        requester.before_waiting()
        self._acquire(requester)
        try:
            yield
        finally:
            with self._lock:
                self._release(requester.user)

    def _acquire(self, requester: Requester) -> None:
        until_s = time.monotonic() + self._wait_s
        with self._lock:
            waiter = _Waiter(threading.Condition(self._lock))
            self._shares.add(waiter, requester.user)
            self._give_places()
            try:
                with nullcontext() if waiter.has_place else requester.waiting():
                    self._wait(waiter, requester, until_s)
            except BaseException:
                if waiter.has_place:
                    self._release(requester.user)
                else:
                    self._shares.remove(waiter)
                raise

    def _wait(self, waiter: _Waiter, requester: Requester, until_s: float) -> None:
        while not waiter.has_place:
            requester.require()
            if time.monotonic() >= until_s:
                raise EngineBusy(f"Nothing became free to plan it within {self._wait_s:.0f} s; try again soon.")
            waiter.changed.wait(POLL_S)

    def _release(self, user: str) -> None:
        self._shares.release(user)
        self._give_places()

    def _give_places(self) -> None:
        for waiter in self._shares.grant_places():
            waiter.has_place = True
            waiter.changed.notify()
