"""Who calls, by a token that the gateway gave out: a session of settings, statements and prepared statements.

A client logs in once, with a handshake or with its first call, and is given a token in the reply's headers, as a bearer
token and as a cookie; ADBC's driver and Flight SQL's JDBC driver send it with every further call. A client that does
not is a new one in each call: its session is kept for a while, as one of a bounded number, and gives way to newer ones.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.flight.errors import FlightError
from gateway.flight.parameters import Template
from gateway.hs2.operations import StatementOperation
from gateway.hs2.registry import Limits
from gateway.sessions import Session, TooManySessions

LARGEST_UNCLAIMED = 256  # sessions whose token has not come back
LARGEST_HOLDINGS = 256  # results and prepared statements of one session; the oldest give way

NO_HANDLE = "There is no such {what}; it was closed, its session has ended, or it is not yours."


@dataclass(slots=True, eq=False)
class Prepared:
    """A statement that was prepared. schema: of its rows, None where it has none. values: bound last.

    first: of its rows, where it ran to tell its columns; until then its first execution has them.
    """

    template: Template
    schema: pa.Schema | None
    first: tuple[bytes, StatementOperation] | None = None
    fresh_until_s: float = 0.0
    values: Sequence[str] = ()

    def close(self) -> None:
        """Do nothing: it holds nothing."""


Holding = StatementOperation | Prepared


@dataclass(slots=True, eq=False)
class FlightSession:
    """A client's session. claimed: its token has come back. holdings: by handle, oldest first."""

    session: Session
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    claimed: bool = False
    holdings: OrderedDict[bytes, Holding] = field(default_factory=OrderedDict)


class Sessions:
    """All sessions and what they hold. Thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._claimed: dict[str, FlightSession] = {}
        self._unclaimed: OrderedDict[str, FlightSession] = OrderedDict()
        self._owners: dict[bytes, FlightSession] = {}

    def open(self, session: Session) -> FlightSession:
        """Begin a session."""
        opened = FlightSession(session)
        with self._lock:
            self._unclaimed[opened.token] = opened
            full = len(self._unclaimed) > LARGEST_UNCLAIMED
            oldest = next(iter(self._unclaimed.values())) if full else None
        if oldest is not None:
            self.close(oldest)
        return opened

    def claim(self, token: str) -> FlightSession | None:
        """Return the session of a token, None where there is none. Raises TooManySessions."""
        with self._lock:
            found = self._claimed.get(token) or self._unclaimed.get(token)
            if found is None or found.claimed:
                return found
            user = found.session.user
            if len(self._claimed) >= self._limits.sessions:
                raise TooManySessions("Too many sessions are open; try again later.")
            of_user = Counter(each.session.user for each in self._claimed.values())[user]
            if of_user >= self._limits.sessions_per_user:
                raise TooManySessions(f"{user} has {of_user} sessions open already; close one.")
            del self._unclaimed[token]
            found.claimed = True
            self._claimed[token] = found
            return found

    def hold(self, session: FlightSession, holding: Holding) -> bytes:
        """Give a session something to hold, and return its handle. Raises FlightError where the session has ended."""
        handle = secrets.token_bytes(16)
        oldest: Holding | None = None
        with self._lock:
            is_open = session.token in self._claimed or session.token in self._unclaimed
            if is_open:
                session.holdings[handle] = holding
                self._owners[handle] = session
                if len(session.holdings) > LARGEST_HOLDINGS:
                    given_up, oldest = session.holdings.popitem(last=False)
                    self._owners.pop(given_up, None)
        if not is_open:
            holding.close()
            raise FlightError("AUTHENTICATION_FAILED", "The session has ended; log in again.")
        if oldest is not None:
            oldest.close()
        return handle

    def operation(self, handle: bytes, user: str) -> StatementOperation:
        """Return a user's statement by its handle. Raises FlightError."""
        found = self._find(handle, user)
        if not isinstance(found, StatementOperation):
            raise FlightError("NOT_FOUND", NO_HANDLE.format(what="result"))
        return found

    def prepared(self, handle: bytes, user: str) -> Prepared:
        """Return a user's prepared statement by its handle. Raises FlightError."""
        found = self._find(handle, user)
        if not isinstance(found, Prepared):
            raise FlightError("NOT_FOUND", NO_HANDLE.format(what="prepared statement"))
        return found

    def let_go(self, handle: bytes) -> None:
        """Forget what a handle stands for, and end it."""
        with self._lock:
            owner = self._owners.pop(handle, None)
            holding = owner.holdings.pop(handle, None) if owner is not None else None
        if holding is not None:
            holding.close()

    def close(self, session: FlightSession) -> None:
        """End a session with all that it holds."""
        with self._lock:
            self._claimed.pop(session.token, None)
            self._unclaimed.pop(session.token, None)
            holdings = list(session.holdings.values())
            for handle in session.holdings:
                self._owners.pop(handle, None)
            session.holdings.clear()
        for holding in holdings:
            holding.close()

    def close_idle(self) -> None:
        """End sessions that nobody has asked anything of for too long."""
        for session in self._all():
            if session.session.idle_s > self._limits.idle_s:
                self.close(session)

    def close_all(self) -> None:
        """End every session."""
        for session in self._all():
            self.close(session)

    def count(self) -> int:
        """Return how many sessions are open."""
        return len(self._all())

    def _all(self) -> list[FlightSession]:
        with self._lock:
            return [*self._claimed.values(), *self._unclaimed.values()]

    def _find(self, handle: bytes, user: str) -> Holding | None:
        with self._lock:
            owner = self._owners.get(handle)
            return owner.holdings.get(handle) if owner is not None and owner.session.user == user else None
