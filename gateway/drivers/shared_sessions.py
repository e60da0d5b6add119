"""Sessions that any gateway continues once theirs is gone: written to the metastore with each change.

As long as its own gateway lives, it alone answers for a session, from memory. After that, each gateway that a client
comes to reads the session for each call, as others may have changed it meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gateway.errors import AuthenticationFailed
from gateway.security.authentication import UsersFile
from gateway.security.principals import Principal
from gateway.statements.session import Session
from metastore.members.sessions import DriverSessions, SavedSession

LEAST_KEPT_S = 120.0  # longer than from one note of use to the next


class SharedSessions:
    """Sessions of one door in the metastore. keep_s: time for which one is kept that nobody uses."""

    def __init__(self, saved: DriverSessions, authenticator: UsersFile, keep_s: float) -> None:
        self._saved = saved
        self._authenticator = authenticator
        self._keep_s = max(keep_s, LEAST_KEPT_S)

    def save(self, key: bytes, session: Session, more: Callable[[], Mapping[str, Any]]) -> None:
        """Write a session as it is now. more: returns what its door has beside. Raises SQLAlchemyError."""
        user = session.principal
        saved = SavedSession(
            _id_of(key),
            user.name,
            user.authenticated,
            user.address,
            user.credential.hex(),
            {**more(), "session": session.state()},
        )
        self._saved.put(saved, keep_s=self._keep_s)

    def find(self, key: bytes) -> tuple[Principal, Mapping[str, Any]] | None:
        """Return a session's user, with the rights of now, and its state; None: there is none. Raises SQLAlchemyError.

        Raises AuthenticationFailed where its user would not be let in any more, and ends it.
        """
        saved = self._saved.get(_id_of(key))
        if saved is None:
            return None
        known = Principal(
            saved.user,
            authenticated=saved.authenticated,
            address=saved.address,
            credential=bytes.fromhex(saved.credential),
        )
        try:
            return self._authenticator.current(known), saved.state
        except AuthenticationFailed:
            self.forget(key)
            raise

    def use(self, keys: Collection[bytes]) -> None:
        """Keep sessions from expiring, and remove those that have. Raises SQLAlchemyError."""
        if keys:
            self._saved.use([_id_of(key) for key in keys], keep_s=self._keep_s)
        self._saved.remove_expired()

    def forget(self, key: bytes) -> None:
        """End a session. Raises SQLAlchemyError."""
        self._saved.remove(_id_of(key))


def _id_of(key: bytes) -> str:
    """Return the id of a session: its handle would let anybody in who reads the metastore."""
    return hashlib.sha256(key).hexdigest()
