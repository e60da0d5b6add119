"""Who calls, by a token that the gateway gave out: a session of settings, statements and prepared statements.

A client logs in once, with a handshake or with its first call, and is given a token in the reply's headers, as a bearer
token and as a cookie; ADBC's driver and Flight SQL's JDBC driver send it with every further call. A client that does
not is a new one in each call: its session is kept for a while, as one of a bounded number, and gives way to newer ones.
"""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.drivers.flight.parameters import Template
from gateway.drivers.operations import StatementOperation
from gateway.errors import AuthenticationFailed, GatewayError, NotFound, TooManyOperations, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session, require_room

LARGEST_UNCLAIMED = 256  # sessions whose token has not come back
LARGEST_PREPARED = 256  # of one session; the one that was used longest ago gives way
LARGEST_RESULTS = 256  # of one session

NO_HANDLE = "There is no such {what}; it was closed, its session has ended, or it is not yours."


@dataclass(slots=True, eq=False)
class Prepared:
    """A statement that was prepared. schema: of its rows, None where it has none. values: bound last.

    first: handle of its rows, where it ran to tell its columns; until then its first execution has them. last: handle
    of the rows of its last execution.
    """

    template: Template
    schema: pa.Schema | None
    first: bytes | None = None
    fresh_until_s: float = 0.0
    values: Sequence[str] = ()
    last: bytes | None = None


@dataclass(slots=True, eq=False)
class Result:
    """A statement that was started, with the rows that it leaves. was_read: a client has begun to read them."""

    operation: StatementOperation
    was_read: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the statement has ended."""
        return self.operation.done.done()

    @property
    def held_bytes(self) -> int:
        """Bytes that its rows take, once it has ended."""
        return self.operation.done.result().result_bytes or 0

    @property
    def ended_at(self) -> dt.datetime:
        """When it ended, once it has."""
        record = self.operation.done.result()
        return record.finished_at or record.submitted_at


@dataclass(slots=True, eq=False)
class FlightSession:
    """A client's session. claimed: its token has come back. prepared: by handle, the one used longest ago first."""

    session: Session
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    claimed: bool = False
    prepared: OrderedDict[bytes, Prepared] = field(default_factory=OrderedDict)
    results: dict[bytes, Result] = field(default_factory=dict)

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody waits for it, and nothing that it started runs."""
        return self.session.idle_s > 0 and all(result.is_there for result in self.results.values())


class Sessions:
    """All sessions and what they hold. Thread-safe.

    held_bytes: of results of one session at rest. current: returns a user as it is now, or raises AuthenticationFailed.
    """

    def __init__(self, limits: Limits, *, held_bytes: int, current: Callable[[Principal], Principal]) -> None:
        self._current = current
        self._limits = limits
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self._claimed: dict[str, FlightSession] = {}
        self._unclaimed: OrderedDict[str, FlightSession] = OrderedDict()
        self._owners: dict[bytes, FlightSession] = {}

    def open(self, session: Session) -> FlightSession:
        """Begin a session, for whose client a call waits. Raises TooManySessions."""
        opened = FlightSession(session)
        given_up: list[Result] = []
        with self._lock:
            if len(self._unclaimed) >= LARGEST_UNCLAIMED:
                given_up = self._end(self._least_missed())
            session.begin_wait()
            self._unclaimed[opened.token] = opened
        for result in given_up:
            result.operation.close()
        return opened

    def claim(self, token: str) -> FlightSession | None:
        """Return the session of a token, for whose client a call waits now; None where there is none.

        Raises TooManySessions.
        """
        with self._lock:
            found = self._claimed.get(token) or self._unclaimed.get(token)
            if found is None:
                return None
            if not found.claimed:
                user = found.session.principal
                require_room((each.session for each in self._claimed.values()), user, self._limits)
                del self._unclaimed[token]
                found.claimed = True
                self._claimed[token] = found
            found.session.begin_wait()
            return found

    def prepare(self, session: FlightSession, prepared: Prepared) -> bytes:
        """Give a session a prepared statement, and return its handle. Raises AuthenticationFailed."""
        handle = secrets.token_bytes(16)
        with self._lock:
            self._require_open(session)
            session.prepared[handle] = prepared
            self._owners[handle] = session
            if len(session.prepared) > LARGEST_PREPARED:
                self._owners.pop(session.prepared.popitem(last=False)[0], None)
        return handle

    def hold(self, session: FlightSession, operation: StatementOperation) -> bytes:
        """Give a session a statement that was started, and return its handle. Others give way where there are too many.

        Raises AuthenticationFailed where it has ended, TooManyOperations.
        """
        handle = secrets.token_bytes(16)
        given_up: list[Result] = []
        try:
            with self._lock:
                self._require_open(session)
                given_up = self._make_room(session)
                session.results[handle] = Result(operation)
                self._owners[handle] = session
        except GatewayError:
            operation.close()
            raise
        for result in given_up:
            result.operation.close()
        return handle

    def operation(self, handle: bytes, user: str) -> StatementOperation:
        """Return a user's statement by its handle. user: its account. Raises NotFound."""
        with self._lock:
            owner = self._owner(handle, user)
            found = owner.results.get(handle) if owner is not None else None
        if found is None:
            raise NotFound(NO_HANDLE.format(what="result"))
        return found.operation

    def prepared(self, handle: bytes, user: str) -> Prepared:
        """Return a user's prepared statement by its handle. user: its account. Raises NotFound."""
        with self._lock:
            owner = self._owner(handle, user)
            found = owner.prepared.get(handle) if owner is not None else None
            if owner is not None and found is not None:
                owner.prepared.move_to_end(handle)
        if found is None:
            raise NotFound(NO_HANDLE.format(what="prepared statement"))
        return found

    def take_first(self, prepared: Prepared) -> tuple[bytes, StatementOperation] | None:
        """Return the rows that a statement's preparation brought, once; None where there are none any more."""
        with self._lock:
            handle, prepared.first = prepared.first, None
            owner = self._owners.get(handle) if handle is not None else None
            found = owner.results.get(handle) if owner is not None and handle is not None else None
            return (handle, found.operation) if handle is not None and found is not None else None

    def note_read(self, handle: bytes) -> None:
        """Note that a client has begun to read a result."""
        with self._lock:
            owner = self._owners.get(handle)
            if owner is not None and handle in owner.results:
                owner.results[handle].was_read = True

    def let_go(self, handle: bytes) -> None:
        """Forget a statement that was started, and end it."""
        with self._lock:
            owner = self._owners.pop(handle, None)
            result = owner.results.pop(handle, None) if owner is not None else None
        if result is not None:
            result.operation.close()

    def unprepare(self, handle: bytes, user: str) -> None:
        """Forget a user's prepared statement, if it is still there, with rows of it that nobody will ask for.

        Rows of its last execution that nobody has read stay: its client may have told another one of them.
        """
        done_with: list[bytes] = []
        with self._lock:
            owner = self._owner(handle, user)
            prepared = owner.prepared.pop(handle, None) if owner is not None else None
            if owner is not None and prepared is not None:
                del self._owners[handle]
                last = owner.results.get(prepared.last) if prepared.last is not None else None
                if prepared.first is not None:
                    done_with.append(prepared.first)
                if prepared.last is not None and last is not None and last.was_read:
                    done_with.append(prepared.last)
        for each in done_with:
            self.let_go(each)

    def close(self, session: FlightSession) -> None:
        """End a session with all that it holds."""
        with self._lock:
            results = self._end(session)
        for result in results:
            result.operation.close()

    def close_idle(self) -> None:
        """End sessions that nobody has asked anything of for too long, or whose user is gone."""
        for session in self._all():
            if session.session.idle_s > self._limits.idle_s or not self._is_current(session):
                self.close(session)

    def require_current(self, session: FlightSession) -> None:
        """Take note of what a session's user may do now. Raises AuthenticationFailed, where it ends the session."""
        try:
            session.session.principal = self._current(session.session.principal)
        except AuthenticationFailed:
            self.close(session)
            raise

    def _is_current(self, session: FlightSession) -> bool:
        try:
            self._current(session.session.principal)
        except AuthenticationFailed:
            return False
        return True

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

    def _owner(self, handle: bytes, user: str) -> FlightSession | None:
        owner = self._owners.get(handle)
        return owner if owner is not None and owner.session.principal.account == user else None

    def _require_open(self, session: FlightSession) -> None:
        if session.token not in self._claimed and session.token not in self._unclaimed:
            raise AuthenticationFailed("The session has ended; log in again.")

    def _least_missed(self) -> FlightSession:
        """Return an unclaimed session at rest, the oldest of the user who has most of them. Raises TooManySessions."""
        resting = [each for each in self._unclaimed.values() if each.is_at_rest]
        if not resting:
            raise TooManySessions("Too many sessions are open; try again later.")
        (user, _), *_ = Counter(each.session.principal.account for each in resting).most_common(1)
        return next(each for each in resting if each.session.principal.account == user)

    def _make_room(self, session: FlightSession) -> list[Result]:
        """Take results from a session, for one more: those that were read first, then those that ended long ago.

        Raises TooManyOperations where none has ended.
        """
        ended = [(handle, result) for handle, result in session.results.items() if result.is_there]
        ended.sort(key=lambda held: (not held[1].was_read, held[1].ended_at))
        held_bytes = sum(result.held_bytes for _, result in ended)
        given_up = []
        for handle, result in ended:
            if len(session.results) < LARGEST_RESULTS and held_bytes <= self._held_bytes:
                break
            self._owners.pop(handle, None)
            given_up.append(session.results.pop(handle))
            held_bytes -= result.held_bytes
        if len(session.results) >= LARGEST_RESULTS:
            raise TooManyOperations(f"A session runs {LARGEST_RESULTS} statements at most.")
        return given_up

    def _end(self, session: FlightSession) -> list[Result]:
        """Forget a session; returns its statements, which are to be closed."""
        self._claimed.pop(session.token, None)
        self._unclaimed.pop(session.token, None)
        for handle in (*session.prepared, *session.results):
            self._owners.pop(handle, None)
        results = list(session.results.values())
        session.prepared.clear()
        session.results.clear()
        return results
