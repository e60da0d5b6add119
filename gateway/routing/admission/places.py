"""Places: how many statements of all users may be alive at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import TooManyQueries
from gateway.security.principals import Principal

TIMES_FREE = 3  # as many places as are free, that one user may hold: 3/4 of all alone, 3/7 beside another such user
KEPT = 1 / 8  # of all places, that stay free for others than those who come from one address without a login


class Places:
    """Limit on statements that are alive at once. Thread-safe.

    A user's share follows what is free: ``TIMES_FREE`` times that, so that one who is alone may have most places, and
    never all. Names that nobody proved share what an address may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._of_account: Counter[str] = Counter()
        self._of_source: Counter[str] = Counter()

    @contextmanager
    def hold(self, principal: Principal) -> Iterator[None]:
        """Hold a place. Raises TooManyQueries."""
        self.take(principal)
        try:
            yield
        finally:
            self.give_back(principal)

    def take(self, principal: Principal) -> None:
        """Take a place. Raises TooManyQueries."""
        with self._lock:
            free = self._most - self._of_account.total()
            held = self._of_account[principal.account]
            if free <= 0:
                raise TooManyQueries("Too many queries are running; try again soon.")
            proved_or_first = principal.authenticated or not self._of_source[principal.quota_key]
            others = free if proved_or_first else free - int(KEPT * self._most)
            if held and (held >= TIMES_FREE * free or free <= min(1, self._most - 1)):
                raise TooManyQueries(f"You have {held} queries running or waiting, which is your share; end some.")
            if others <= 0:
                raise TooManyQueries("Too many queries of your address are running; end some, or log in.")
            self._of_account[principal.account] += 1
            self._of_source[principal.quota_key] += 1

    def give_back(self, principal: Principal) -> None:
        """Give a place back."""
        with self._lock:
            _subtract(self._of_account, principal.account)
            _subtract(self._of_source, principal.quota_key)


def _subtract(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
