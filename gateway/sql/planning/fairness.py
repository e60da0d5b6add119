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

    waiting: lasts as long as it waits for a place. stands_by: hears that other processes will work for it now.
    """

    user: str
    until_s: float
    cancelled: Callable[[], bool] = never
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    stands_by: Callable[[], None] = _nothing

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


class FairSlots:
    """Places that statements hold for a while. Thread-safe.

    size: how many there are; one user's statements hold half of them at most, so that another's finds one free.
    wait_s: longest wait.
    """

    def __init__(self, size: int, *, wait_s: float) -> None:
        self._size = size
        self._most_of_user = max(1, size // 2)
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # users to when they were last given a place
        self._turns = 0
        self._waiting: dict[int, str] = {}

    @contextmanager
    def hold(self, asker: Requester) -> Iterator[None]:
        """Hold a place. Raises EngineBusy where none becomes free in time, StatementCancelled, DeadlineExceeded."""
        asker.stands_by()
        self._acquire(asker)
        try:
            yield
        finally:
            with self._changed:
                self._held[asker.user] -= 1
                if not self._held[asker.user]:
                    del self._held[asker.user]
                self._changed.notify_all()

    def _acquire(self, asker: Requester) -> None:
        until_s = time.monotonic() + self._wait_s
        with self._changed:
            self._turns += 1
            ticket = self._turns
            self._waiting[ticket] = asker.user
            try:
                with nullcontext() if self._is_next(ticket) else asker.waiting():
                    self._wait(ticket, asker, until_s)
            finally:
                del self._waiting[ticket]
            self._turns += 1
            self._served[asker.user] = self._turns
            if len(self._served) > MOST_USERS:
                self._served = {user: turn for user, turn in self._served.items() if user in self._held}
            self._held[asker.user] += 1
            self._changed.notify_all()

    def _wait(self, ticket: int, asker: Requester, until_s: float) -> None:
        while not self._is_next(ticket):
            asker.require()
            if time.monotonic() >= until_s:
                raise EngineBusy(f"Nothing became free to plan it within {self._wait_s:.0f} s; try again soon.")
            self._changed.wait(POLL_S)

    def _is_next(self, ticket: int) -> bool:
        """Tell whether a statement's turn has come: of those that may, the one whose user waits for the longest."""
        if sum(self._held.values()) >= self._size:
            return False
        free = (t for t, user in self._waiting.items() if self._held[user] < self._most_of_user)
        return ticket == min(free, key=lambda t: (self._served.get(self._waiting[t], t), t), default=None)
