"""Authentication by the users file and by other sources of identity, behind one interface for all doors.

A name in the users file always needs its password there; no source can prove it. A user of another source is found
again, by another gateway or for a statement that runs again, as the metastore remembers the last login, until that
expires.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import AuthenticationFailed, LoginExpired
from gateway.security import audit
from gateway.security.authentication import GONE, LONGEST_NAME, Login, Ticket, UsersFile
from gateway.security.identity.roles import Roles
from gateway.security.principals import ANONYMOUS, UNPROVED, Principal, Role
from metastore.members.logins import Logins, RememberedLogin

if TYPE_CHECKING:
    from gateway.security.identity.service_accounts import ServiceAccountSource

log = logging.getLogger(__name__)

MOST_GROUPS, LONGEST_GROUP = 1_000, 256
EXPIRED = "The login has expired; log in again, with a new token if you use one."
NAME_IN_FILE = (
    "The name {name} is in the gateway's users file, too: it would not be clear which of the two users owns a table. "
    "Log in with the password of the users file, or ask the administrator to take the name out of it."
)
NAME_OF_ACCOUNT = (
    "The name {name} is that of a service account of the gateway: it would not be clear which of the two owns a table. "
    "Ask the administrator to revoke that account, or for another name."
)
NO_GROUP = "{name} is in none of the groups whose members may use the gateway. Ask the administrator for one of them."


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Content of a message of a client that proved who it is."""

    content: bytes
    encrypted: bool


class Exchange(Protocol):
    """An exchange of Kerberos messages with one client. Used by one thread at a time; calls may block."""

    @property
    def complete(self) -> bool:
        """The client has proved who it is."""

    def step(self, message: bytes) -> bytes:
        """Return the reply to a message of the client, which may be empty. Raises AuthenticationFailed."""

    def ticket(self) -> Ticket:
        """Return the client's ticket; the exchange is complete."""

    def wrap(self, content: bytes, *, encrypted: bool) -> bytes:
        """Return a message that the client can check, and nobody else read if it is encrypted."""

    def unwrap(self, message: bytes) -> Unwrapped:
        """Return the content of a message. Raises AuthenticationFailed where it is not the client's."""

    def most_wrapped(self, size: int, *, encrypted: bool) -> int:
        """Return the most bytes of content whose message has at most ``size`` bytes."""


class Acceptor(Protocol):
    """Checks Kerberos tickets. Thread-safe."""

    def begin(self, address: str, *, over_http: bool) -> Exchange:
        """Begin an exchange with a client; may block. Raises IdentityProviderUnavailable."""


class Authenticator(Protocol):
    """Authentication as doors use it. Thread-safe."""

    def takes_token(self, token: str) -> bool:
        """Tell whether a bearer token is checked; without that it is ignored."""

    @property
    def tickets(self) -> Acceptor | None:
        """Check of Kerberos tickets; None: they are ignored."""

    def recognise(self, login: Login) -> Principal | None:
        """Return the user, None where only ``authenticate`` can tell. Does not block. Raises AuthenticationFailed."""

    def authenticate(self, login: Login) -> Principal:
        """Return the user; may block. Raises AuthenticationFailed, IdentityProviderUnavailable."""

    def current(self, principal: Principal) -> Principal:
        """Return a user who logged in earlier with the rights of now. Does not block. Raises AuthenticationFailed."""

    def present(self, name: str, authenticated: bool, address: str) -> Principal:
        """Return a user of whom it is on record that he was let in, with the rights of now; may block.

        Raises AuthenticationFailed where he would not be any more, SQLAlchemyError.
        """

    def of_account(self, account: str, address: str) -> Principal:
        """Return the user of an account as ``present`` does."""

    def has(self, name: str) -> bool:
        """Tell whether a name belongs to somebody who is no service account; may block. Raises SQLAlchemyError."""

    def holders(self, role: Role) -> Sequence[str]:
        """Return the names that have at least a role, as far as they are known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as a source knows it."""

    name: str
    groups: frozenset[str]
    credential: bytes = field(repr=False)
    """Mark of the token or password, 32 bytes."""
    expires_at: float
    """Time in seconds since 1970 at which its sessions end."""
    role: Role | None = None
    """Role that the source gives; None: the settings decide."""


class Source(Protocol):
    """A source of identity beside the users file. Thread-safe."""

    name: str
    """Its name, which sessions keep; at most 16 characters."""

    def takes(self, login: Login) -> bool:
        """Tell whether it checks this login, and no other source does."""

    def recognise(self, login: Login) -> Identity | None:
        """Return the user, None where only ``authenticate`` can tell. Does not block. Raises AuthenticationFailed."""

    def authenticate(self, login: Login) -> Identity:
        """Return the user; may block. Raises AuthenticationFailed, IdentityProviderUnavailable."""


class CombinedAuthenticator:
    """Authenticates users by the users file and by other sources. Thread-safe.

    accounts: service accounts, the first of the sources.
    sources: the first one that takes a login decides about it.
    required_groups: people of these sources must be in one of them; empty: all may come in.
    logins: the last login of each user, in the metastore.
    tickets: checks Kerberos tickets, of which a source makes users; None: they are ignored.
    clock: seconds since 1970.
    """

    def __init__(
        self,
        users: UsersFile,
        accounts: ServiceAccountSource,
        sources: Sequence[Source],
        roles: Roles,
        logins: Logins,
        *,
        required_groups: Collection[str] = (),
        tickets: Acceptor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tickets = tickets
        self._users = users
        self._sources: Sequence[Source] = [accounts, *sources]
        self._accounts = accounts
        self._names = frozenset(source.name for source in self._sources)
        self._roles = roles
        self._logins = logins
        self._required_groups = frozenset(required_groups)
        self._clock = clock

    def takes_token(self, token: str) -> bool:
        """Tell whether a bearer token is checked; without that it is ignored."""
        return self._source_of(Login(None, None, "", token=token)) is not None

    def recognise(self, login: Login) -> Principal | None:
        """Return the user, None where only ``authenticate`` can tell. Does not block. Raises AuthenticationFailed."""
        source = self._source_of(login)
        if source is None:
            return self._users.recognise(login)
        identity = source.recognise(login)
        return self._principal(source.name, identity, login.address) if identity is not None else None

    def authenticate(self, login: Login) -> Principal:
        """Return the user; may block. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        source = self._source_of(login)
        if source is None:
            return self._users.authenticate(login)
        recognised = source.recognise(login)
        if recognised is not None:
            return self._principal(source.name, recognised, login.address)
        return self.admit(source.name, source.authenticate(login), login.address)

    def admit(self, source: str, identity: Identity, address: str) -> Principal:
        """Let in a user whom a source has just proved, and remember that. Raises AuthenticationFailed."""
        try:
            user = self._principal(source, identity, address)
        except AuthenticationFailed as error:
            audit.note("login", identity.name, address, allowed=False, what=f"log in: {error}")
            raise
        self._remember(source, identity)
        audit.note(
            *("login", user.name, user.address), allowed=True, what="log in", role=user.role.value, source=source
        )
        return user

    def current(self, principal: Principal) -> Principal:
        """Return a user who logged in earlier with the rights of now. Does not block.

        Raises AuthenticationFailed: the login has expired, or the users file has the name.
        """
        if not principal.source:
            return self._users.current(principal)
        if principal.source not in self._names or self._users.has(principal.name):
            raise AuthenticationFailed(GONE)
        if principal.expires_at is None or principal.expires_at <= self._clock():
            raise LoginExpired(EXPIRED)
        of_account: Role | None = None
        if self._is_account(principal.source):
            of_account = self._accounts.current(principal)
        else:
            self._require_person(principal.name, principal.groups)
        role = of_account or self._roles.of(principal.name, principal.groups)
        return principal if principal.role is role else replace(principal, role=role)

    def present(self, name: str, authenticated: bool, address: str) -> Principal:
        """Return a user of whom it is on record that he was let in, with the rights of the last login; may block.

        Raises AuthenticationFailed where that has expired, SQLAlchemyError.
        """
        if not authenticated or self._users.has(name):
            return self._users.present(name, authenticated, address)
        last = self._logins.last(name)
        if last is None:
            raise AuthenticationFailed(GONE)
        if self._is_account(last.source):
            self._accounts.look_up(last.credential)
        return self.current(
            Principal(
                name,
                authenticated=True,
                address=address,
                credential=bytes.fromhex(last.credential),
                groups=frozenset(last.groups),
                source=last.source,
                expires_at=last.expires_at,
            )
        )

    def of_account(self, account: str, address: str) -> Principal:
        """Return the user of an account as ``present`` does."""
        return self.present(account.removeprefix(UNPROVED), not account.startswith(UNPROVED), address)

    def has(self, name: str) -> bool:
        """Tell whether a name is in the users file, or a user of another source came in by it; may block.

        Raises SQLAlchemyError.
        """
        if self._users.has(name):
            return True
        last = self._logins.last(name)
        return last is not None and not self._is_account(last.source) and last.expires_at > self._clock()

    def holders(self, role: Role) -> Sequence[str]:
        """Return the names that have at least a role: those in the users file, and those in the settings."""
        in_file = self._users.holders(role)
        named = [name for name, held in self._roles.by_name.items() if held.includes(role)]
        return [*in_file, *(name for name in named if not self._users.has(name))]

    def _source_of(self, login: Login) -> Source | None:
        """Return the source that decides about a login; None: the users file does."""
        has_proof = login.token is not None or login.ticket is not None
        if not has_proof and self._users.has(login.name or ANONYMOUS):
            return None
        return next((source for source in self._sources if source.takes(login)), None)

    def _principal(self, source: str, identity: Identity, address: str) -> Principal:
        """Return the user of an identity. Raises AuthenticationFailed where there cannot be one."""
        name, groups = identity.name, identity.groups
        if self._users.has(name):
            raise AuthenticationFailed(NAME_IN_FILE.format(name=name))
        if not self._is_account(source):
            self._require_person(name, groups)
        return Principal(
            name,
            identity.role or self._roles.of(name, groups),
            authenticated=True,
            address=address,
            credential=identity.credential,
            groups=groups,
            source=source,
            expires_at=identity.expires_at,
        )

    def _is_account(self, source: str) -> bool:
        """Tell whether users of a source are programs, which need no group and have their role with them."""
        return source == self._accounts.name

    def _require_person(self, name: str, groups: frozenset[str]) -> None:
        """Raise AuthenticationFailed where a service account has the name, or none of the groups may come in."""
        if self._accounts.has(name):
            raise AuthenticationFailed(NAME_OF_ACCOUNT.format(name=name))
        if self._required_groups and not groups & self._required_groups:
            raise AuthenticationFailed(NO_GROUP.format(name=name))

    def _remember(self, source: str, identity: Identity) -> None:
        """Write a login to the metastore, for other gateways; without it they cannot go on for the user."""
        groups, credential = sorted(identity.groups), identity.credential.hex()
        try:
            self._logins.put(RememberedLogin(identity.name, source, groups, credential, identity.expires_at))
        except SQLAlchemyError as error:
            log.warning("the metastore does not remember the login of %r: %s", identity.name, error)


def require_name(name: object) -> str:
    """Return the name of a user as a source has it. Raises AuthenticationFailed where the gateway cannot use it."""
    if not isinstance(name, str) or not name:
        raise AuthenticationFailed("The identity provider gives no user name, or one that is not a text.")
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip() or ":" in name or name[0] == "#":
        raise AuthenticationFailed(
            f"The user name that the identity provider gives cannot be used here: it has more than {LONGEST_NAME} "
            "characters, a colon, a # or a space at its begin, or a character that cannot be printed."
        )
    return name


def require_groups(groups: Collection[object]) -> frozenset[str]:
    """Return the groups of a user as a source has them. Raises AuthenticationFailed where there are too many."""
    if len(groups) > MOST_GROUPS:
        raise AuthenticationFailed(f"The user is in more than {MOST_GROUPS:,} groups.")
    names = [group for group in groups if isinstance(group, str) and len(group) <= LONGEST_GROUP]
    if len(names) < len(groups):
        raise AuthenticationFailed(f"A group of the user is not a text, or has more than {LONGEST_GROUP} characters.")
    return frozenset(names)
