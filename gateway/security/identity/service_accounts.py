"""Service accounts: users that are programs, with tokens that the gateway makes, that expire and can be revoked.

All accounts of the metastore are in memory, read again once in ``REFRESH_S``: so a login asks the metastore for nothing
but a token that is in none of them, and a revoked token ends everywhere within a second. A token has 256 random bits,
of which nobody can try out enough; so a plain hash is enough, and nobody has to wait after a wrong one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cachetools import LRUCache
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import AuthenticationFailed, BadRequest, LoginExpired, MetastoreUnavailable, NameInUse, NotFound
from gateway.security import audit
from gateway.security.authentication import GONE, SERVICE_TOKEN_PREFIX, TOKEN_USER, Login, is_service_token
from gateway.security.identity.authenticator import Identity
from gateway.security.principals import Principal, Role
from metastore.members.service_accounts import ServiceAccount, ServiceAccounts

log = logging.getLogger(__name__)

REFRESH_S = 0.4  # so that a revoked token is refused everywhere within a second
LOOK_UP_S = 5.0  # for which a login waits for the metastore
MOST_ACCOUNTS = 1_000
SEEN_KEPT = 4_096  # tokens that were audited
TOKEN_BYTES = 32
REFUSED = "The token is refused: no service account has it; it was revoked, or replaced by a newer one."
NO_ANSWER = "The metastore, which has the hash of the token, does not answer; try again soon."
EXPIRED = "The token of the service account has expired; ask an administrator to rotate it."


@dataclass(frozen=True, slots=True)
class _Token:
    account: ServiceAccount
    expires_at: float


class ServiceAccountSource:
    """Checks tokens of service accounts, and administers these. Thread-safe. clock: seconds since 1970."""

    name = "service"

    def __init__(self, accounts: ServiceAccounts, clock: Callable[[], float] = time.time) -> None:
        self._accounts = accounts
        self._clock = clock
        self._by_token: Mapping[str, _Token] = {}
        self._names: Collection[str] = frozenset()
        self._reading = threading.Lock()
        self._read_s = 0.0  # begin of the last look at the metastore
        self._lock = threading.Lock()
        self._seen: LRUCache[str, bool] = LRUCache(SEEN_KEPT)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="service accounts", daemon=True)

    # ------------------------------------------------------------------ logins

    def takes(self, login: Login) -> bool:
        """Tell whether a login has a token of a service account, also in the place of its password."""
        return is_service_token(login.token_or_password)

    def recognise(self, login: Login) -> Identity | None:
        """Return the user of a token that came before. Raises AuthenticationFailed."""
        digest = _digest(login.token_or_password)
        token = self._by_token.get(digest)
        with self._lock:
            was_seen = digest in self._seen
        return self._identity(login, digest, token) if token is not None and was_seen else None

    def authenticate(self, login: Login) -> Identity:
        """Return the user of a token; may read the accounts. Raises AuthenticationFailed, MetastoreUnavailable."""
        digest = _digest(login.token_or_password)
        try:
            self.look_up(digest)
        except SQLAlchemyError as error:
            log.warning("the metastore cannot tell whose a token from %s is: %s", login.address, error)
            raise MetastoreUnavailable(NO_ANSWER) from error
        token = self._by_token.get(digest)
        if token is None:
            self._note_refusal(login, "no service account has it")
            raise AuthenticationFailed(REFUSED)
        identity = self._identity(login, digest, token)
        with self._lock:
            self._seen[digest] = True
        return identity

    def current(self, principal: Principal) -> Role | None:
        """Return the role of an account that came in earlier; None: the settings decide. Does not block.

        Raises AuthenticationFailed where its token was revoked.
        """
        token = self._by_token.get(principal.credential.hex())
        if token is None or token.account.name != principal.name:
            raise AuthenticationFailed(GONE)
        if token.expires_at <= self._clock():
            raise LoginExpired(EXPIRED)
        return _role(token.account)

    def has(self, name: str) -> bool:
        """Tell whether an account has a name. Does not block."""
        return name in self._names

    def look_up(self, digest: str) -> None:
        """Read the accounts again where none has a token. Raises SQLAlchemyError, MetastoreUnavailable."""
        began_s = time.monotonic()
        if digest in self._by_token:
            return
        if not self._reading.acquire(timeout=LOOK_UP_S):
            raise MetastoreUnavailable(NO_ANSWER)
        try:
            if self._read_s < began_s:  # many strange tokens at once cost one look
                self._read()
        finally:
            self._reading.release()

    # ------------------------------------------------------------------ what is on record

    def start(self, *, is_shared: bool) -> None:
        """Read the accounts; where gateways share the metastore, follow its changes until ``stop``.

        Once begun, it goes on. Raises SQLAlchemyError.
        """
        self.refresh()
        if is_shared and self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Follow no more."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def refresh(self) -> None:
        """Read the accounts. Raises SQLAlchemyError."""
        with self._reading:
            self._read()

    def _watch(self) -> None:
        is_away = False
        while not self._stopped.wait(REFRESH_S):
            try:
                self.refresh()
                is_away = False
            except SQLAlchemyError as error:
                if not is_away:
                    log.warning("service accounts cannot be read, those read before stay valid: %s", error)
                is_away = True

    def _read(self) -> None:
        began_s, tokens = time.monotonic(), dict[str, _Token]()
        accounts = self._accounts.list()
        for account in accounts:
            tokens[account.token] = _Token(account, account.expires_at.timestamp())
            if account.earlier_token is not None and account.earlier_until is not None:
                tokens[account.earlier_token] = _Token(account, account.earlier_until.timestamp())
        self._names = frozenset(account.name for account in accounts)
        self._by_token, self._read_s = tokens, began_s

    # ------------------------------------------------------------------ administration

    def list(self) -> tuple[ServiceAccount, ...]:
        """Return all accounts, by name. Raises SQLAlchemyError."""
        return self._accounts.list()

    def add(
        self, name: str, *, role: Role | None, groups: Collection[str], lasts: dt.timedelta, by: Principal
    ) -> tuple[ServiceAccount, str]:
        """Add an account, and return it with its token, which nobody can ask for later.

        Raises NameInUse, BadRequest where there are too many, SQLAlchemyError.
        """
        if len(self._accounts.list()) >= MOST_ACCOUNTS:
            raise BadRequest(f"There are {MOST_ACCOUNTS:,} service accounts already; revoke those that nobody uses.")
        token, now = _new_token(), self._now()
        named_role = role.value if role is not None else None
        account = ServiceAccount(name, named_role, sorted(set(groups)), _digest(token), now + lasts, now, by.name)
        if not self._accounts.add(account):
            raise NameInUse(f"There is a service account {name} already; rotate its token, or choose another name.")
        self._note(by, "add", account)
        return account, token

    def rotate(
        self, name: str, *, lasts: dt.timedelta, overlap: dt.timedelta, by: Principal
    ) -> tuple[ServiceAccount, str]:
        """Give an account a new token, and return both. overlap: time for which the token before counts, too.

        Raises NotFound, SQLAlchemyError.
        """
        before = self._accounts.get(name)
        if before is None:
            raise _no_such(name)
        token, now = _new_token(), self._now()
        account = replace(
            before,
            token=_digest(token),
            expires_at=now + lasts,
            earlier_token=before.token if overlap else None,
            earlier_until=min(before.expires_at, now + overlap) if overlap else None,
        )
        if not self._accounts.change(account, token=before.token):
            raise NotFound(f"The service account {name} was changed at the same moment; list it, and try again.")
        self._note(by, "rotate the token of", account)
        return account, token

    def revoke(self, name: str, *, by: Principal) -> None:
        """Remove an account: its tokens count no more. Raises NotFound, SQLAlchemyError."""
        account = self._accounts.get(name)
        if account is None or not self._accounts.remove(name):
            raise _no_such(name)
        self._note(by, "revoke", account)

    def _note(self, by: Principal, verb: str, account: ServiceAccount) -> None:
        """Apply a change here, and note it as an event of security."""
        what = f"{verb} the service account {account.name}"
        expires_at = account.expires_at.isoformat()
        audit.note(
            *("service_account", by.name, by.address), allowed=True, what=what, role=account.role, expires_at=expires_at
        )
        self.refresh()

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), dt.UTC)

    def _identity(self, login: Login, digest: str, token: _Token) -> Identity:
        """Return the user of a token. Raises AuthenticationFailed, LoginExpired."""
        account = token.account
        if token.expires_at <= self._clock():
            self._note_refusal(login, f"that of {account.name} has expired")
            raise LoginExpired(EXPIRED)
        if login.token is None and login.name not in (TOKEN_USER, account.name):
            self._note_refusal(login, f"it is not of the user {login.name!r:.140}")
            raise AuthenticationFailed(f"The token is not of the user {login.name!r:.140}; log in as {TOKEN_USER}.")
        return Identity(
            account.name, frozenset(account.groups), bytes.fromhex(digest), token.expires_at, _role(account)
        )

    def _note_refusal(self, login: Login, why: str) -> None:
        """Log a refused token with the address, never the token."""
        text = f"a service account's token from {login.address} is refused: {why}"
        audit.note("login", login.name or "", login.address, allowed=False, what=f"log in: {why}", text=text)


def _no_such(name: str) -> NotFound:
    return NotFound(f"There is no service account {name}; fusion service-account list shows those that there are.")


def _role(account: ServiceAccount) -> Role | None:
    return Role(account.role) if account.role is not None else None


def _new_token() -> str:
    return SERVICE_TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
