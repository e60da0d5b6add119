"""The sessions of drivers, with their bounds and their end, and what each holds until its client lets go of it.

Every door has a store of its own: how a client is known by its handles is the protocol's, and stands beside the door.
What the doors share is here: a session is opened where there is room, counts among its user's, ends when nobody asks
anything of it for too long or when its user is gone, and takes with it all that it holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from gateway.errors import AuthenticationFailed, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session, require_room

SPARE_S = 10.0  # after which a silent session gives way to another one of its user's


class Held(Protocol):
    """What a client started, and holds a handle of."""

    @property
    def done(self) -> Future[Any]:
        """Complete once it has ended, however."""

    def close(self) -> None:
        """End it, and forget its result."""


H = TypeVar("H", bound=Held)


@dataclass(slots=True, eq=False, kw_only=True)
class DriverSession(Generic[H]):
    """A client's session. key: by which its store finds it. is_counted: among those that limits are about.

    operations: what it holds, by handle; changed by its store alone.
    """

    session: Session
    key: bytes | str
    is_counted: bool = True
    operations: dict[bytes, H] = field(default_factory=dict)

    @property
    def has_ended_all(self) -> bool:
        """Whether nothing that it started runs."""
        return all(operation.done.done() for operation in self.operations.values())

    def released(self, handle: bytes, operation: H) -> None:
        """Take note that an operation is not held any more; the store is locked meanwhile."""

    def drop_other_handles(self) -> Iterable[bytes]:
        """Forget what else its client has handles of, as it ends; returns those. The store is locked meanwhile."""
        return ()


S = TypeVar("S", bound=DriverSession[Any])


class SessionStore(Generic[S, H]):
    """All sessions of a door, and what they hold. Thread-safe.

    current: returns a user as it is now, or raises AuthenticationFailed. ended: makes the error for a session that was
    closed meanwhile.
    """

    def __init__(
        self, limits: Limits, current: Callable[[Principal], Principal], *, ended: Callable[[], Exception]
    ) -> None:
        self._limits = limits
        self._current = current
        self._ended = ended
        self._lock = threading.Lock()
        self._sessions: dict[bytes | str, S] = {}  # in the order in which they were opened
        self._owners: dict[bytes, S] = {}

    # ------------------------------------------------------------------ sessions

    def _add(self, opened: S, make_room: Callable[[], S | None]) -> None:
        """Add a session. make_room: returns one that is to end for it, or raises; the store is locked meanwhile."""
        with self._lock:
            spare = make_room()
            given_up = self._forget(spare) if spare is not None else []
            self._sessions[opened.key] = opened
        _close(given_up)

    def _require_room(self, user: Principal) -> None:
        """Raise TooManySessions where another session of a user is too much; the store is locked meanwhile."""
        require_room((each.session for each in self._sessions.values() if each.is_counted), user, self._limits)

    def _spare(self, user: Principal, has_no_end: Callable[[S], bool]) -> S | None:
        """Return None where there is room for another session of a user; the store is locked meanwhile.

        Else the one that is silent for longest, has nothing running, and nothing that ends it once its client is gone.
        Raises TooManySessions where there is none.
        """
        try:
            self._require_room(user)
        except TooManySessions:
            spare = [
                each
                for each in self._sessions.values()
                if each.is_counted
                and each.session.principal.account == user.account
                and has_no_end(each)
                and each.session.idle_s > SPARE_S
                and each.has_ended_all
            ]
            if not spare:
                raise
            return max(spare, key=lambda each: each.session.idle_s)
        return None

    def _session(self, key: bytes | str) -> S | None:
        with self._lock:
            return self._sessions.get(key)

    def require_current(self, session: S) -> None:
        """Take note of what a session's user may do now. Raises AuthenticationFailed, where it ends the session."""
        try:
            session.session.principal = self._current(session.session.principal)
        except AuthenticationFailed:
            self.close(session)
            raise

    def is_current(self, session: S) -> bool:
        """Tell whether a session's user is still one."""
        try:
            self._current(session.session.principal)
        except AuthenticationFailed:
            return False
        return True

    def close(self, session: S) -> None:
        """Forget a session with all that it has under way."""
        with self._lock:
            given_up = self._forget(session)
        _close(given_up)

    def close_idle(self) -> None:
        """Close sessions of which nobody has asked anything for too long, or whose user is gone."""
        for each in self._all():
            if each.session.is_idle_too_long(self._limits.idle_s) or not self.is_current(each):
                self.close(each)

    def close_all(self) -> None:
        """Close every session."""
        for each in self._all():
            self.close(each)

    def count(self) -> int:
        """Return how many sessions are open."""
        with self._lock:
            return len(self._sessions)

    def _all(self) -> list[S]:
        with self._lock:
            return list(self._sessions.values())

    def _forget(self, session: S) -> list[H]:
        """Take a session out of the store, which is locked; returns what it held, which is to be closed."""
        self._sessions.pop(session.key, None)
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
        """Give an operation to a session; one that it does not take is closed.

        make_room: takes others from it, or raises; the store is locked meanwhile.
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
        """Return an operation with its session, None where there is none of that handle."""
        with self._lock:
            owner = self._owners.get(handle)
            found = owner.operations.get(handle) if owner is not None else None
            return (owner, found) if owner is not None and found is not None else None

    def release(self, handle: bytes) -> None:
        """Forget an operation, if it is still held, and end it."""
        with self._lock:
            given_up = self._take(handle)
        _close(given_up)

    def _take(self, handle: bytes) -> list[H]:
        """Take an operation out of the store, which is locked; returns it, which is to be closed, if it was there."""
        owner = self._owners.pop(handle, None)
        operation = owner.operations.pop(handle, None) if owner is not None else None
        if owner is None or operation is None:
            return []
        owner.released(handle, operation)
        return [operation]

    def running(self) -> int:
        """Return how many operations have not ended."""
        with self._lock:
            return sum(
                not operation.done.done() for each in self._sessions.values() for operation in each.operations.values()
            )


def _close(operations: Iterable[Held]) -> None:
    for operation in operations:
        operation.close()
