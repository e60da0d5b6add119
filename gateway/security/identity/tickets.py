"""Users by Kerberos tickets, which a door had checked, and their groups by a directory.

The name is the principal's without its realm, in small letters as in a directory, so that nobody has two. Only
principals of trusted realms are users, and those with a second part (``etl/host@REALM``) only where the settings name
the first one: ``admin/whatever`` must not become ``admin``.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from cachetools import TTLCache

from gateway.errors import AuthenticationFailed
from gateway.security import audit
from gateway.security.authentication import Login, Ticket
from gateway.security.identity.authenticator import Identity, require_groups, require_name
from gateway.security.lockout import TOO_MANY, NoTurn, Turns, directory_turns

MOST_REMEMBERED = 1_024  # tickets
JITTER_S = 2.0  # by which the end of one ticket may differ: the library counts seconds from now
REFUSED = "The Kerberos ticket is refused: {}."

GroupsOf = Callable[[str], Collection[str]]


class _Refused(Exception):
    """A ticket is refused; the message completes "The Kerberos ticket is refused: ..."."""


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """Principals that are users."""

    realms: Collection[str] = ()
    """Trusted realms; empty: the one of the gateway's own principal."""
    services: Collection[str] = ()
    """First parts of principals with two parts, of programs, that are users, too."""

    def name_of(self, ticket: Ticket) -> str:
        """Return the user's name. Raises _Refused."""
        whole, _, realm = ticket.principal.rpartition("@")
        trusted = self.realms or {ticket.service.rpartition("@")[2]}
        if "\\" in ticket.principal:
            raise _Refused("its principal has characters that a user's name cannot have")
        if realm not in trusted:
            raise _Refused(f"its realm {realm} is not trusted; authentication.kerberos.realms names those that are")
        first, *others = whole.split("/")
        if len(others) > 1 or (others and first not in self.services):
            raise _Refused(
                f"{whole} is a service or an administrator, not a user; authentication.kerberos.services names the "
                "programs that may log in"
            )
        return first.lower()


class TicketSource:
    """Makes users of tickets that were checked. Thread-safe.

    groups_of: asks the directory, and may block; None: users have no groups.
    keep_s: time for which the groups of a ticket's user are remembered.
    turns: of logins that ask the directory.
    timer: seconds that never go back.
    """

    name = "kerberos"

    def __init__(
        self,
        rules: PrincipalRules,
        groups_of: GroupsOf | None = None,
        *,
        keep_s: float = 60.0,
        turns: Turns | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._groups_of = groups_of
        self._turns = turns or directory_turns()
        self._lock = threading.Lock()
        self._remembered: TTLCache[str, Identity] = TTLCache(MOST_REMEMBERED, keep_s, timer)

    def takes(self, login: Login) -> bool:
        """Tell whether a login is by a ticket."""
        return login.ticket is not None

    def recognise(self, login: Login) -> Identity | None:
        """Return the user of a ticket that came a short time ago."""
        assert login.ticket is not None
        with self._lock:
            identity = self._remembered.get(login.ticket.principal)
        is_same = identity is not None and abs(identity.expires_at - login.ticket.expires_at) <= JITTER_S
        return identity if is_same else None

    def authenticate(self, login: Login) -> Identity:
        """Return the user; may ask the directory. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        ticket = login.ticket
        assert ticket is not None
        try:
            name = require_name(self._rules.name_of(ticket))
            groups = require_groups(self._groups(name, login.address))
        except _Refused as refused:
            raise refusal(login.address, str(refused), ticket.principal) from refused
        except AuthenticationFailed as error:
            refusal(login.address, str(error), ticket.principal)
            raise
        mark = hashlib.sha256(f"{ticket.principal}\n{ticket.expires_at:.0f}".encode()).digest()
        identity = Identity(name, groups, mark, ticket.expires_at)
        with self._lock:
            self._remembered[ticket.principal] = identity
        return identity

    def _groups(self, name: str, address: str) -> Collection[str]:
        """Return a user's groups. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        if self._groups_of is None:
            return ()
        try:
            with self._turns.taken(name, address):
                return self._groups_of(name)
        except NoTurn as error:
            raise AuthenticationFailed(TOO_MANY) from error


def refusal(address: str, why: str, principal: str = "") -> AuthenticationFailed:
    """Log a refused ticket, never its bytes; return the error for its client. principal: empty: it is not known."""
    text = f"a Kerberos ticket of {principal or 'somebody'!r:.200} from {address} is refused: {why}"
    audit.note("login", principal[:200], address, allowed=False, what=f"log in: {why}", text=text)
    return AuthenticationFailed(REFUSED.format(why))
