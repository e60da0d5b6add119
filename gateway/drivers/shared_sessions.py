"""Sessions that any gateway continues once theirs is gone: written to the metastore with each change.

As long as its own gateway lives, it alone answers for a session, from memory. After that, each gateway that a client
comes to reads the session for each call, as others may have changed it meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gateway.security.identity.authenticator import Authenticator
from gateway.security.identity.saved_users import identity_state, saved_session, user_of
from gateway.security.principals import Principal
from gateway.statements.session import Session
from metastore.members.sessions import DriverSessions

LEAST_KEPT_S = 120.0  # longer than from one note of use to the next


class SharedSessions:
    """Sessions of one door in the metastore. keep_s: time for which one is kept that nobody uses."""

    def __init__(self, saved: DriverSessions, authenticator: Authenticator, keep_s: float) -> None:
        self._saved = saved
        self._authenticator = authenticator
        self._keep_s = max(keep_s, LEAST_KEPT_S)
        self._writing = threading.Lock()

    def add(self, key: bytes, session: Session, more: Callable[[], Mapping[str, Any]]) -> None:
        """Write a new session. more: returns what its door has beside. Raises SQLAlchemyError."""
        saved = saved_session(_id_of(key), session.principal, _state(session, more))
        self._saved.add(saved, keep_s=self._keep_s)

    def change(self, key: bytes, session: Session, more: Callable[[], Mapping[str, Any]]) -> None:
        """Write a session as it is now; not one that was closed meanwhile. Raises SQLAlchemyError."""
        with self._writing:  # in the order of the changes
            self._saved.change(_id_of(key), _state(session, more), keep_s=self._keep_s)

    def find(self, key: bytes) -> tuple[Principal, Mapping[str, Any]] | None:
        """Return a session's user, with the rights of now, and its state; None: there is none. Raises SQLAlchemyError.

        Raises AuthenticationFailed where its user would not be let in any more.
        """
        saved = self._saved.get(_id_of(key))
        if saved is None:
            return None
        return self._authenticator.current(user_of(saved)), saved.state

    def use(self, keys: Collection[bytes]) -> Collection[bytes]:
        """Keep sessions from expiring, and return those that there are. Raises SQLAlchemyError."""
        ids = {_id_of(key): key for key in keys}
        there = self._saved.use(ids, keep_s=self._keep_s) if ids else ()
        self._saved.remove_expired()
        return {ids[session_id] for session_id in there}

    def forget(self, key: bytes) -> None:
        """End a session. Raises SQLAlchemyError."""
        self._saved.remove(_id_of(key))


def _state(session: Session, more: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what the metastore has of a session beside its user's name."""
    return {**more(), "session": session.state(), **identity_state(session.principal)}


def _id_of(key: bytes) -> str:
    """Return the id of a session: its handle would let anybody in who reads the metastore."""
    return hashlib.sha256(key).hexdigest()
