"""Who calls, by a token that the gateway gave out: a session of settings, statements and prepared statements.

A client logs in once, with a handshake or with its first call, and is given a token in the reply's headers, as a bearer
token and as a cookie; ADBC's driver and Flight SQL's JDBC driver send it with every further call. A client that does
not is a new one in each call: its session is kept for a while, as one of a bounded number, and gives way to newer ones.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.drivers.flight.forwarding import HANDLE_BYTES
from gateway.drivers.flight.parameters import Template
from gateway.drivers.operations import StatementOperation
from gateway.drivers.sessions import DriverSession, SessionStore
from gateway.errors import AuthenticationFailed, NotFound, TooManyOperations, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.processes import mark
from gateway.statements.session import Limits, Session
from metastore.records import QueryRecord

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
    def done(self) -> Future[QueryRecord]:
        """Complete once the statement has ended, however."""
        return self.operation.done

    @property
    def held_bytes(self) -> int:
        """Bytes that its rows take, once it has ended."""
        return self.done.result().result_bytes or 0

    @property
    def ended_at(self) -> dt.datetime:
        """When it ended, once it has."""
        record = self.done.result()
        return record.finished_at or record.submitted_at

    def close(self) -> None:
        """End the statement, and delete its rows."""
        self.operation.close()


@dataclass(slots=True, eq=False, kw_only=True)
class FlightSession(DriverSession[Result]):
    """A client's session. It counts among its user's once its token, which is its key, has come back.

    prepared: by handle, the one used longest ago first.
    """

    prepared: OrderedDict[bytes, Prepared] = field(default_factory=OrderedDict)

    @property
    def token(self) -> str:
        """What its client sends with every call."""
        return str(self.key)

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody waits for it, and nothing that it started runs."""
        return self.session.idle_s > 0 and self.has_ended_all

    def drop_other_handles(self) -> Iterable[bytes]:
        """Forget what was prepared, and return its handles."""
        handles = tuple(self.prepared)
        self.prepared.clear()
        return handles


class Sessions(SessionStore[FlightSession, Result]):
    """All sessions and what they hold. Thread-safe.

    held_bytes: of results of one session at rest. current: returns a user as it is now, or raises AuthenticationFailed.
    """

    def __init__(self, limits: Limits, *, held_bytes: int, current: Callable[[Principal], Principal]) -> None:
        super().__init__(limits, current, ended=lambda: AuthenticationFailed("The session has ended; log in again."))
        self._held_bytes = held_bytes

    def open(self, session: Session) -> FlightSession:
        """Begin a session, for whose client a call waits. Raises TooManySessions."""
        opened = FlightSession(session=session, key=secrets.token_urlsafe(32) + mark().hex(), is_counted=False)
        session.begin_wait()
        self._add(opened, self._least_missed)
        return opened

    def claim(self, token: str) -> FlightSession | None:
        """Return the session of a token, for whose client a call waits now; None where there is none.

        Where it is one too many, another one of its user that is silent gives way: gRPC does not say whether a client
        is still there, and few close their sessions. Raises TooManySessions.
        """
        given_up: list[Result] = []
        with self._lock:
            found = self._sessions.get(token)
            if found is None:
                return None
            if not found.is_counted:
                spare = self._spare(found.session.principal, lambda _: True)
                if spare is not None:
                    given_up = self._forget(spare)
                found.is_counted = True
            found.session.begin_wait()
        for each in given_up:
            each.close()
        return found

    def prepare(self, session: FlightSession, prepared: Prepared) -> bytes:
        """Give a session a prepared statement, and return its handle. Raises AuthenticationFailed."""
        handle = secrets.token_bytes(HANDLE_BYTES) + mark()
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
        handle = secrets.token_bytes(HANDLE_BYTES) + mark()
        self._hold(session, handle, Result(operation), lambda: self._make_room(session))
        return handle

    def operation(self, handle: bytes, user: str) -> StatementOperation:
        """Return a user's statement by its handle. user: its account. Raises NotFound."""
        held = self._held(handle)
        if held is None or held[0].session.principal.account != user:
            raise NotFound(NO_HANDLE.format(what="result"))
        return held[1].operation

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
        held = self._held(handle) if handle is not None else None
        return (handle, held[1].operation) if handle is not None and held is not None else None

    def note_read(self, handle: bytes) -> None:
        """Note that a client has begun to read a result."""
        held = self._held(handle)
        if held is not None:
            held[1].was_read = True

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
                last = owner.operations.get(prepared.last) if prepared.last is not None else None
                if prepared.first is not None:
                    done_with.append(prepared.first)
                if prepared.last is not None and last is not None and last.was_read:
                    done_with.append(prepared.last)
        for each in done_with:
            self.release(each)

    def _owner(self, handle: bytes, user: str) -> FlightSession | None:
        owner = self._owners.get(handle)
        return owner if owner is not None and owner.session.principal.account == user else None

    def _least_missed(self) -> FlightSession | None:
        """Return None where there is room for another session whose token has not come back.

        Else one of those at rest, the oldest of the user who has most of them. Raises TooManySessions where there is
        none.
        """
        unclaimed = [each for each in self._sessions.values() if not each.is_counted]
        if len(unclaimed) < LARGEST_UNCLAIMED:
            return None
        resting = [each for each in unclaimed if each.is_at_rest]
        if not resting:
            raise TooManySessions("Too many sessions are open; try again later.")
        (user, _), *_ = Counter(each.session.principal.account for each in resting).most_common(1)
        return next(each for each in resting if each.session.principal.account == user)

    def _make_room(self, session: FlightSession) -> list[Result]:
        """Take results from a session, for one more: those that were read first, then those that ended long ago.

        Raises TooManyOperations where none has ended.
        """
        ended = [(handle, result) for handle, result in session.operations.items() if result.done.done()]
        ended.sort(key=lambda held: (not held[1].was_read, held[1].ended_at))
        held_bytes = sum(result.held_bytes for _, result in ended)
        given_up: list[Result] = []
        for handle, result in ended:
            if len(session.operations) < LARGEST_RESULTS and held_bytes <= self._held_bytes:
                break
            given_up += self._take(handle)
            held_bytes -= result.held_bytes
        if len(session.operations) >= LARGEST_RESULTS:
            raise TooManyOperations(f"A session runs {LARGEST_RESULTS} statements at most.")
        return given_up
