"""Sessions of drivers: their limits, their operations and their end.

Each door has a store of its own, as handles are defined by its protocol. The doors share the rest: a session is opened
where there is room, counts among its user's sessions, ends when it is idle for too long or its user is removed, and
then closes its operations.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import AuthenticationFailed, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session, require_room

log = logging.getLogger(__name__)

USED_EVERY_S = 60.0  # the metastore is told which sessions are used
SPARE_S = 10.0  # idle time after which a session may be closed for another one of its user


class Held(Protocol):
    """An operation that a client started and has a handle of."""

    @property
    def done(self) -> Future[Any]:
        """Completes when it ends."""

    def close(self) -> None:
        """End it, and delete its result."""


H = TypeVar("H", bound=Held)


@dataclass(slots=True, eq=False, kw_only=True)
class DriverSession(Generic[H]):
    """A client's session."""

    session: Session
    key: bytes | str
    """Key in its store."""
    is_counted: bool = True
    """It counts for the limits of its user."""
    is_shared: bool = False
    """The metastore has it, too: other gateways may continue it."""
    is_guest: bool = False
    """Its own gateway is gone; what it is now, the metastore tells."""
    operations: dict[bytes, H] = field(default_factory=dict)
    """By handle; changed by its store alone."""

    @property
    def has_ended_all(self) -> bool:
        """Tell whether none of its operations runs."""
        return all(operation.done.done() for operation in self.operations.values())

    @property
    def key_bytes(self) -> bytes:
        """Its key, as bytes."""
        return self.key if isinstance(self.key, bytes) else self.key.encode()

    def more(self) -> Mapping[str, Any]:
        """Return as JSON what it has beside its settings, for another gateway."""
        return {}

    def released(self, handle: bytes, operation: H) -> None:
        """Handle the end of an operation; the store is locked meanwhile."""

    def drop_other_handles(self) -> Iterable[bytes]:
        """Drop all other handles at its end, and return them; the store is locked meanwhile."""
        return ()


S = TypeVar("S", bound=DriverSession[Any])


class SessionStore(Generic[S, H]):
    """All sessions of a door, and their operations. Thread-safe.

    current: returns a user with the rights of now, or raises AuthenticationFailed.
    ended: returns the error for a session that was closed meanwhile.
    shared: sessions that other gateways may continue; None: there are no others.
    """

    def __init__(
        self,
        limits: Limits,
        current: Callable[[Principal], Principal],
        *,
        ended: Callable[[], Exception],
        shared: SharedSessions | None = None,
    ) -> None:
        self._shared = shared
        self._used_s = time.monotonic()  # last note in the metastore that sessions are used
        self._limits = limits
        self._current = current
        self._ended = ended
        self._lock = threading.Lock()
        self._sessions: dict[bytes | str, S] = {}  # in the order in which they were opened
        self._owners: dict[bytes, S] = {}

    # ------------------------------------------------------------------ sessions

    def _add(self, opened: S, make_room: Callable[[], S | None]) -> S:
        """Add a session, and return it, or the one that has its key already.

        make_room: returns a session to close for it, or None, or raises; the store is locked.
        """
        with self._lock:
            if opened.key in self._sessions:
                return self._sessions[opened.key]
            spare = make_room()
            given_up = self._forget(spare) if spare is not None else []
            self._sessions[opened.key] = opened
        self._evicted(spare, given_up)
        return opened

    def _evicted(self, spare: S | None, given_up: Iterable[H]) -> None:
        """Close what belonged to a session that made room for another one."""
        _close(given_up)
        if spare is not None and not self._is_guest(spare):
            self._forget_shared(spare)

    def _is_guest(self, session: S) -> bool:
        """Tell whether the metastore tells what a session is now: its gateway is gone, or was taken for dead."""
        return session.is_guest

    def _require_room(self, user: Principal) -> None:
        """Raise TooManySessions where a user may not have another session; the store is locked meanwhile."""
        counted = (session.session for session in self._sessions.values() if session.is_counted)
        require_room(counted, user, self._limits)

    def _spare(self, user: Principal, has_no_end: Callable[[S], bool]) -> S | None:
        """Return the session to close for a new one of a user, None where there is room; the store is locked.

        It is the one that has been idle longest, with no running operation, and nothing else ends it once its client is
        gone. Raises TooManySessions where there is none.
        """
        try:
            self._require_room(user)
        except TooManySessions:
            spare = [
                session
                for session in self._sessions.values()
                if session.is_counted
                and session.session.principal.account == user.account
                and has_no_end(session)
                and session.session.idle_s > SPARE_S
                and session.has_ended_all
            ]
            if not spare:
                raise
            return max(spare, key=lambda session: session.session.idle_s)
        return None

    def _session(self, key: bytes | str) -> S | None:
        with self._lock:
            return self._sessions.get(key)

    def require_current(self, session: S) -> None:
        """Update the rights of a session's user. Raises AuthenticationFailed, and closes the session then."""
        try:
            session.session.principal = self._current(session.session.principal)
        except AuthenticationFailed:
            self.close(session)
            raise

    def renew(self, session: S, user: Principal | None) -> None:
        """Have a session last as long as the newer login with which its user calls."""
        before = session.session.principal
        if user is None or user.account != before.account or user.source != before.source:
            return
        if user.expires_at is None or before.expires_at is None or user.expires_at <= before.expires_at:
            return
        session.session.principal = user
        try:
            session.session.on_change()
        except SQLAlchemyError as error:
            log.warning("the metastore was not told that a session has a newer login: %s", error)

    def is_current(self, session: S) -> bool:
        """Tell whether a session's user may still log in."""
        try:
            self._current(session.session.principal)
        except AuthenticationFailed:
            return False
        return True

    def share(self, session: S) -> None:
        """Have other gateways continue a session once this one is gone. Raises SQLAlchemyError."""
        if self._shared is not None:
            self._shared.add(session.key_bytes, session.session, session.more)
            self._have_shared(session)

    def _have_shared(self, session: S) -> None:
        """Have each change of a session written to the metastore."""
        assert self._shared is not None
        session.is_shared = session.session.may_go_on_elsewhere = True
        session.session.on_change = partial(self._shared.change, session.key_bytes, session.session, session.more)

    def close(self, session: S) -> None:
        """Close a session with all its operations; of a guest, only what is here."""
        self._drop(session)
        if not self._is_guest(session):
            self._forget_shared(session)

    def close_everywhere(self, session: S) -> None:
        """Close a session for its client, whichever gateways know of it."""
        self._drop(session)
        self._forget_shared(session)

    def _forget_shared(self, session: S) -> None:
        if self._shared is None or not session.is_shared:
            return
        try:
            self._shared.forget(session.key_bytes)
        except SQLAlchemyError as error:
            log.warning("a session that was closed stays in the metastore until it expires: %s", error)

    def close_idle(self) -> None:
        """Close sessions that have been idle for too long, or whose user was removed; of guests, only what is here."""
        for session in self._all():
            is_empty_guest = session.is_guest and not session.is_shared and not session.operations
            if (
                session.session.is_idle_too_long(self._limits.idle_s)
                or (is_empty_guest and session.session.idle_s > SPARE_S)
                or not self.is_current(session)
            ):
                self.close(session)
        if self._shared is not None and time.monotonic() - self._used_s > USED_EVERY_S:
            self._used_s = time.monotonic()
            try:
                self._note_use(self._shared)
            except SQLAlchemyError as error:
                log.warning("the metastore was not told which sessions are used: %s", error)

    def _note_use(self, shared: SharedSessions) -> None:
        """Keep sessions from expiring, and drop guests that were closed at another gateway."""
        sessions = [session for session in self._all() if session.is_shared]
        in_use = {
            session.key_bytes: session
            for session in sessions
            if not self._is_guest(session) or session.session.idle_s < 2 * USED_EVERY_S
        }
        there = shared.use(in_use)
        for key, session in in_use.items():
            if key not in there and self._is_guest(session):
                self._drop(session)

    def leave(self) -> None:
        """Leave the sessions to other gateways, with what runs for them; close those that nobody else continues."""
        for session in self._all():
            if session.is_shared:
                with self._lock:
                    self._forget(session)
            else:
                self._drop(session)

    def _drop(self, session: S) -> None:
        """Close a session here."""
        with self._lock:
            given_up = self._forget(session)
        _close(given_up)

    def count(self) -> int:
        """Return the number of open sessions."""
        with self._lock:
            return len(self._sessions)

    def _all(self) -> list[S]:
        with self._lock:
            return list(self._sessions.values())

    def _forget(self, session: S) -> list[H]:
        """Remove a session from the store, which is locked; returns its operations, which are to be closed."""
        self._sessions.pop(session.key, None)
        session.session.on_change = lambda: None
        for handle in (*session.operations, *session.drop_other_handles()):
            self._owners.pop(handle, None)
        given_up = list(session.operations.values())
        session.operations.clear()
        return given_up

    def _require_open(self, session: S) -> None:
        """Raise the error for a session that was closed meanwhile; the store is locked."""
        if self._sessions.get(session.key) is not session:
            raise self._ended()

    # ------------------------------------------------------------------ operations

    def _hold(self, session: S, handle: bytes, operation: H, make_room: Callable[[], list[H]]) -> None:
        """Add an operation to a session; after an error it is closed.

        make_room: removes others from the session, or raises; the store is locked meanwhile.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(operation.close)
            with self._lock:
                self._require_open(session)
                given_up = make_room()
                session.operations[handle] = operation
                self._owners[handle] = session
            undo.pop_all()
        _close(given_up)

    def _held(self, handle: bytes) -> tuple[S, H] | None:
        """Return an operation with its session; None: the handle is not known."""
        with self._lock:
            owner = self._owners.get(handle)
            operation = owner.operations.get(handle) if owner is not None else None
            return (owner, operation) if owner is not None and operation is not None else None

    def release(self, handle: bytes) -> None:
        """Close an operation, if it is still held."""
        with self._lock:
            given_up = self._take(handle)
        _close(given_up)

    def _take(self, handle: bytes) -> list[H]:
        """Remove an operation from the store, which is locked; returns it, which is to be closed, if it exists."""
        owner = self._owners.pop(handle, None)
        operation = owner.operations.pop(handle, None) if owner is not None else None
        if owner is None or operation is None:
            return []
        owner.released(handle, operation)
        return [operation]

    def running(self) -> int:
        """Return the number of running operations."""
        with self._lock:
            return sum(
                not operation.done.done()
                for session in self._sessions.values()
                for operation in session.operations.values()
            )


def _close(operations: Iterable[Held]) -> None:
    for operation in operations:
        operation.close()
