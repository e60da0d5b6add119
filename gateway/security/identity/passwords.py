"""Users by name and password of an LDAP directory.

A correct password is remembered for a short time, a wrong one as long, so that a client that repeats one does not have
the directory lock its account. Wrong ones count as those of the users file do.
"""

from __future__ import annotations

import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from cachetools import TTLCache

from gateway.errors import AuthenticationFailed
from gateway.security import audit
from gateway.security.authentication import LONGEST_NAME, TOO_MANY_WRONG, WRONG, Login
from gateway.security.identity.authenticator import Identity, require_groups, require_name
from gateway.security.identity.directory import Directory
from gateway.security.lockout import TOO_MANY, LockedOut, Lockout, NoTurn, Turns, directory_turns

LONGEST_PASSWORD = 1_024
MOST_REMEMBERED = 1_024  # logins
# Each of these holds a thread; of those over HTTP (``gateway/http/requests/login.py``), some are left for other logins.
AWAITING = 16  # logins that wait for the outcome of the same login


class PasswordSource:
    """Checks passwords by a directory. Thread-safe.

    keep_s: time for which a password is remembered.
    session_s: time after which a session that a password opened ends.
    turns: of logins that ask the directory.
    clock: seconds since 1970; timer: seconds that never go back.
    """

    name = "ldap"

    def __init__(
        self,
        directory: Directory,
        *,
        keep_s: float,
        session_s: float,
        lockout: Lockout | None = None,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._session_s = session_s
        self._lockout = lockout or Lockout()
        self._turns = turns or directory_turns()
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._right: TTLCache[bytes, Identity] = TTLCache(MOST_REMEMBERED, keep_s, timer)
        self._wrong: TTLCache[bytes, bool] = TTLCache(MOST_REMEMBERED, keep_s, timer)
        self._under_way: dict[bytes, Future[Identity | None]] = {}
        self._awaiting = 0

    def takes(self, login: Login) -> bool:
        """Tell whether a login has a name and a password."""
        return login.token is None and bool(login.name and login.password)

    def recognise(self, login: Login) -> Identity | None:
        """Return the user of a password that was right a short time ago. Raises AuthenticationFailed."""
        name, password = _parts(login)
        mark = self._mark(name, password)
        with self._lock:
            identity, was_wrong = self._right.get(mark), mark in self._wrong
        if was_wrong:
            raise self._refusal(login, "the same wrong password as before")
        return identity

    def authenticate(self, login: Login) -> Identity:
        """Return the user; asks the directory. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        recognised = self.recognise(login)
        if recognised is not None:
            return recognised
        name, password = _parts(login)
        mark = self._mark(name, password)
        with self._lock:
            awaited = self._under_way.get(mark)
            if awaited is None:
                under_way = self._under_way[mark] = Future()
            elif self._awaiting >= AWAITING:
                raise AuthenticationFailed(TOO_MANY)
            else:
                self._awaiting += 1
        if awaited is not None:  # the same login, at the same time
            try:
                identity = awaited.result()
            finally:
                with self._lock:
                    self._awaiting -= 1
            if identity is None:
                raise AuthenticationFailed(WRONG)
            return identity
        try:
            identity = self._asked(login, name, password, mark)
        except BaseException as error:
            with self._lock:
                del self._under_way[mark]
            under_way.set_exception(error)
            raise
        with self._lock:
            if identity is None:
                self._wrong[mark] = True
            else:
                self._right[mark] = identity
            del self._under_way[mark]
        under_way.set_result(identity)
        if identity is None:
            raise AuthenticationFailed(WRONG)
        return identity

    def _asked(self, login: Login, name: str, password: str, mark: bytes) -> Identity | None:
        """Ask the directory; None: the login is wrong. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        try:
            with self._lockout.attempt(name, login.address) as was_wrong:
                with self._turns.taken(name, login.address):
                    entry = self._directory.prove(name, password)
                if entry is None:
                    self._refusal(login, f"wrong password number {was_wrong()}")
                    return None
        except LockedOut as locked:
            self._refusal(login, "locked out")
            raise AuthenticationFailed(f"{TOO_MANY_WRONG} Try again in {math.ceil(locked.wait_s)} s.") from locked
        except NoTurn as error:
            raise AuthenticationFailed(TOO_MANY) from error
        return Identity(require_name(entry.name), require_groups(entry.groups), mark, self._clock() + self._session_s)

    def _mark(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\n{password}".encode(errors="surrogatepass"), "sha256")

    def _refusal(self, login: Login, why: str) -> AuthenticationFailed:
        """Log a failed login with name and address, never the password; return the error for its client."""
        name = (login.name or "")[:LONGEST_NAME]
        text = f"login of {name!r} from {login.address} failed: {why}"
        audit.note("login", name, login.address, allowed=False, what=f"log in: {why}", text=text)
        return AuthenticationFailed(WRONG)


def _parts(login: Login) -> tuple[str, str]:
    """Return the name, in the letters in which it is compared, and the password. Raises AuthenticationFailed."""
    name, password = require_name((login.name or "").lower()), login.password or ""
    if not password or len(password) > LONGEST_PASSWORD:
        raise AuthenticationFailed(WRONG)
    return name, password
