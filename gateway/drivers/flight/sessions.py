"""Sessions of clients by token: their settings, statements and prepared statements.

A client logs in with a handshake or its first call, and gets a token in the reply's headers, as a bearer token and as a
cookie. ADBC's driver and Flight SQL's JDBC driver send it with every further call. A client that does not send it gets
a new session with each call; a limited number of these is kept for a while, and newer ones replace older ones.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.drivers.flight.forwarding import handle_in, new_handle, new_token
from gateway.drivers.flight.parameters import Template
from gateway.drivers.handles import Handles
from gateway.drivers.operations import StatementOperation
from gateway.drivers.sessions import DriverSession, SessionStore
from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import AuthenticationFailed, NotFound, TooManyOperations, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session
from gateway.statements.statement import ID_BYTES, number_of, query_of
from metastore.records import QueryRecord

LARGEST_UNCLAIMED = 256  # sessions whose client has not sent the token yet
LARGEST_PREPARED = 256  # of one session; the least recently used one is dropped
LARGEST_RESULTS = 256  # of one session

NO_HANDLE = "There is no such {what}: it was closed, its session has ended, or it belongs to another user."


@dataclass(slots=True, eq=False)
class Prepared:
    """A prepared statement."""

    template: Template
    schema: pa.Schema | None
    """Columns of its rows; None: it has none, or they are not known."""
    first: bytes | None = None
    """Handle of rows from its preparation, which its first execution returns until ``fresh_until_s``."""
    fresh_until_s: float = 0.0
    values: Sequence[str] = ()
    """Literals that were bound last."""
    last: bytes | None = None
    """Handle of the rows of its last execution."""


@dataclass(slots=True, eq=False)
class Result:
    """A started statement with its rows. was_read: a client has begun to read them."""

    operation: StatementOperation
    was_read: bool = False

    @property
    def done(self) -> Future[QueryRecord]:
        """Completes when the statement ends."""
        return self.operation.done

    @property
    def held_bytes(self) -> int:
        """Size of its rows, once it has ended."""
        return self.done.result().result_bytes or 0

    @property
    def ended_at(self) -> dt.datetime:
        """Time of its end, once it has ended."""
        record = self.done.result()
        return record.finished_at or record.submitted_at

    def close(self) -> None:
        """End the statement, and delete its rows."""
        self.operation.close()


@dataclass(slots=True, eq=False, kw_only=True)
class FlightSession(DriverSession[Result]):
    """A client's session. It counts among its user's once the client has sent its token, which is its key."""

    prepared: OrderedDict[bytes, Prepared] = field(default_factory=OrderedDict)
    """By handle, the least recently used one first."""

    @property
    def token(self) -> str:
        """Token that its client sends with every call."""
        return str(self.key)

    @property
    def is_at_rest(self) -> bool:
        """Tell whether no call waits, and none of its statements runs."""
        return self.session.idle_s > 0 and self.has_ended_all

    def drop_other_handles(self) -> Iterable[bytes]:
        """Drop all prepared statements, and return their handles."""
        handles = tuple(self.prepared)
        self.prepared.clear()
        return handles


class Sessions(SessionStore[FlightSession, Result]):
    """All sessions with their statements. Thread-safe.

    current, shared: see ``SessionStore``.
    held_bytes: largest size of one session's finished results.
    continued: returns a session of a gateway that is gone, with its settings still to be restored.
    statement: returns a statement of a gateway that is gone, by its id and its user's account.
    """

    def __init__(
        self,
        limits: Limits,
        current: Callable[[Principal], Principal],
        handles: Handles,
        *,
        held_bytes: int,
        shared: SharedSessions | None = None,
        continued: Callable[[Principal], Session],
        statement: Callable[[str, str], StatementOperation | None],
    ) -> None:
        super().__init__(
            limits,
            current,
            ended=lambda: AuthenticationFailed("The session has ended; log in again."),
            shared=shared,
        )
        self._handles = handles
        self._held_bytes = held_bytes
        self._continued = continued
        self._statement = statement

    def open(self, session: Session) -> FlightSession:
        """Begin a session, which is not idle until ``end_wait``. Raises TooManySessions."""
        token = new_token(self._handles, secrets.token_bytes(ID_BYTES))
        opened = FlightSession(session=session, key=token, is_counted=False)
        session.may_go_on_elsewhere = self._shared is not None
        session.begin_wait()
        self._add(opened, self._least_missed)
        return opened

    def claim(self, token: str) -> FlightSession | None:
        """Return the session of a token, which is not idle until ``end_wait``; None: there is none.

        Where it is one too many, an idle one of the same user is closed: gRPC does not report whether a client is still
        there, and few clients close their sessions. Raises TooManySessions, SQLAlchemyError.
        """
        if self._is_orphan(handle_in(token)):
            self._invite(token)
        given_up: list[Result] = []
        spare: FlightSession | None = None
        with self._lock:
            session = self._sessions.get(token)
            if session is None:
                return None
            is_new = not session.is_counted
            if is_new:
                spare = self._spare(session.session.principal, lambda _: True)
                if spare is not None:
                    given_up = self._forget(spare)
                session.is_counted = True
            session.session.begin_wait()
        self._evicted(spare, given_up)
        if is_new:
            try:
                self.share(session)
            except BaseException:
                session.is_counted = False
                session.session.end_wait()
                raise
        return session

    def _is_orphan(self, handle: bytes) -> bool:
        """Tell whether a handle is of a gateway that is gone, and may be continued here."""
        return self._shared is not None and self._handles.is_orphan(handle[:ID_BYTES], handle[ID_BYTES:])

    def _invite(self, token: str) -> None:
        """Hold a session whose gateway is gone, as it is now, or drop it where it has ended."""
        assert self._shared is not None
        saved, session = self._shared.find(token.encode()), self._session(token)
        if saved is None:
            if session is not None:
                self._drop(session)
            return
        user, more = saved
        if session is None:
            guest = FlightSession(session=self._continued(user), key=token, is_counted=True, is_guest=True)
            self._have_shared(guest)
            session = self._add(guest, lambda: self._spare(user, lambda _: True))
        session.session.restore(more["session"])

    def _is_guest(self, session: FlightSession) -> bool:
        return session.is_guest or (
            session.is_shared and not self._handles.is_ours(handle_in(session.token)[ID_BYTES:])
        )

    def prepare(self, session: FlightSession, prepared: Prepared) -> bytes:
        """Add a prepared statement to a session, and return its handle. Raises AuthenticationFailed."""
        handle = new_handle(self._handles, secrets.token_bytes(ID_BYTES))
        with self._lock:
            self._require_open(session)
            session.prepared[handle] = prepared
            self._owners[handle] = session
            if len(session.prepared) > LARGEST_PREPARED:
                self._owners.pop(session.prepared.popitem(last=False)[0], None)
        return handle

    def hold(self, session: FlightSession, operation: StatementOperation) -> bytes:
        """Add a started statement to a session, and return its handle. Finished ones are dropped if there are too many.

        Raises AuthenticationFailed where the session has ended, TooManyOperations.
        """
        handle = new_handle(self._handles, number_of(operation.run.id))
        self._hold(session, handle, Result(operation), lambda: self._make_room(session))
        return handle

    def operation(self, handle: bytes, user: str) -> StatementOperation:
        """Return a user's statement by its handle. user: its account. Raises NotFound."""
        held = self._held(handle)
        operation = held[1].operation if held is not None and held[0].session.principal.account == user else None
        if (operation is None or operation.run.is_lost) and self._is_orphan(handle):
            operation = self._statement(query_of(handle[:ID_BYTES]), user) or operation
        if operation is None:
            raise NotFound(NO_HANDLE.format(what="result"))
        return operation

    def prepared(self, handle: bytes, user: str) -> Prepared:
        """Return a user's prepared statement by its handle. user: its account. Raises NotFound."""
        with self._lock:
            owner = self._owner(handle, user)
            statement = owner.prepared.get(handle) if owner is not None else None
            if owner is not None and statement is not None:
                owner.prepared.move_to_end(handle)
        if statement is None:
            raise NotFound(NO_HANDLE.format(what="prepared statement"))
        return statement

    def take_first(self, prepared: Prepared) -> tuple[bytes, StatementOperation] | None:
        """Return the rows from a statement's preparation, once; None: there are none any more."""
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
        """Drop a user's prepared statement, if it still exists, with rows that nobody will fetch.

        Unread rows of its last execution stay: another client may fetch them.
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
        for done in done_with:
            self.release(done)

    def _owner(self, handle: bytes, user: str) -> FlightSession | None:
        owner = self._owners.get(handle)
        return owner if owner is not None and owner.session.principal.account == user else None

    def _least_missed(self) -> FlightSession | None:
        """Return the session to close for a new one, None where there is room.

        It is at rest, its token was not sent yet, and it is the oldest of the user with most of these. Raises
        TooManySessions where there is none.
        """
        unclaimed = [session for session in self._sessions.values() if not session.is_counted]
        if len(unclaimed) < LARGEST_UNCLAIMED:
            return None
        resting = [session for session in unclaimed if session.is_at_rest]
        if not resting:
            raise TooManySessions("Too many sessions are open; try again later.")
        (user, _), *_ = Counter(session.session.principal.account for session in resting).most_common(1)
        return next(session for session in resting if session.session.principal.account == user)

    def _make_room(self, session: FlightSession) -> list[Result]:
        """Take finished results from a session, to make room for another: read ones first, then the oldest.

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
            raise TooManyOperations(
                f"The session runs {LARGEST_RESULTS} statements already, the most it may; wait for some."
            )
        return given_up
