"""An LDAP directory: proof of a password by a bind, the user's entry, and groups, also those that groups are in.

One connection serves one login: it searches the user, binds as the user, and reads the groups. Names are escaped before
they come into a filter or a distinguished name; an empty password never reaches a server, which would take the bind for
an anonymous one.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit

import ldap3
from ldap3.core.exceptions import (
    LDAPException,
    LDAPInvalidDnError,
    LDAPInvalidFilterError,
    LDAPInvalidValueError,
)
from ldap3.core.results import (
    RESULT_CONSTRAINT_VIOLATION,
    RESULT_INAPPROPRIATE_AUTHENTICATION,
    RESULT_INVALID_CREDENTIALS,
    RESULT_INVALID_DN_SYNTAX,
    RESULT_NO_SUCH_OBJECT,
    RESULT_SIZE_LIMIT_EXCEEDED,
    RESULT_SUCCESS,
    RESULT_UNWILLING_TO_PERFORM,
)
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from gateway.errors import IdentityProviderUnavailable
from gateway.security.identity.authenticator import MOST_GROUPS

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_ANSWER = "The directory does not answer; try again soon."
SKIPPED_S = 30.0  # time for which a server that did not answer comes last
DOWN_S = 2.0  # time after a vain try of all servers in which nobody else tries
GROUPS_A_SEARCH = 50  # whose own groups one search asks for
OF_THE_LOGIN = (LDAPInvalidDnError, LDAPInvalidFilterError, LDAPInvalidValueError, UnicodeEncodeError)
"""Errors of the library about a name or password, before it sends anything."""
WRONG = frozenset(
    {
        *(RESULT_INVALID_CREDENTIALS, RESULT_NO_SUCH_OBJECT, RESULT_INVALID_DN_SYNTAX, RESULT_CONSTRAINT_VIOLATION),
        *(RESULT_INAPPROPRIATE_AUTHENTICATION, RESULT_UNWILLING_TO_PERFORM),
    }
)
"""Results of a bind that tell of the user, not of the server."""


class DirectoryFault(Exception):
    """A server does not answer, or not as it should; the message is for the log."""


@dataclass(frozen=True, slots=True)
class Access:
    """Servers of a directory, and how they are reached."""

    servers: Sequence[str]
    """Addresses, ``ldaps://HOST`` or ``ldap://HOST:PORT``, in the order in which they are tried."""
    start_tls: bool
    """An ``ldap://`` connection is encrypted before anything else."""
    ca_file: Path | None
    """Certificates that are trusted in place of the system's, PEM; None: the system's."""
    timeout_s: int
    """Time for a connection, and for each answer; the library takes whole seconds."""


@dataclass(frozen=True, slots=True)
class Users:
    """Users of a directory: found by a search, or by their distinguished name."""

    dn: str
    """Distinguished name with {name} in it; empty: users are searched."""
    base: str
    """Entry below which users are searched."""
    filter: str
    """Filter with {name} in it."""
    attribute: str
    """Attribute with the user's name."""
    bind_dn: str
    """Distinguished name of the account that searches; empty: nobody's."""
    bind_password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of a directory."""

    base: str
    """Entry below which they are searched; empty: users have no groups."""
    filter: str
    """Filter with {dn} of a member in it, or with {name} of a user."""
    attribute: str
    """Attribute with the group's name."""
    depth: int
    """Levels of groups that are in groups; 0: only those that have the user as a member."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A user whose password was right."""

    name: str
    """The name as the directory has it."""
    groups: Sequence[str]


class _Tls(ldap3.Tls):  # type: ignore[misc]  # the library has no types
    """Encryption by Python's own context, which also compares the server's name: the library's way ended with 3.12."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._context = context

    def wrap_socket(self, connection: ldap3.Connection, do_handshake: bool = False) -> None:
        """Encrypt a connection. Raises OSError."""
        host = connection.server.host
        connection.socket = self._context.wrap_socket(connection.socket, server_hostname=host)


class Directory:
    """Asks the servers of a directory. Thread-safe. clock: seconds that never go back."""

    def __init__(
        self, access: Access, users: Users, groups: Groups, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._access = access
        self._users = users
        self._groups = groups
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_s: dict[str, float] = {}
        self._down_until_s = 0.0

    def prove(self, name: str, password: str) -> Entry | None:
        """Return the user of a name and password; None: they are wrong. Raises IdentityProviderUnavailable."""
        return self._ask(lambda connection: self._entry(connection, name, password)) if password else None

    def groups_of(self, name: str) -> Sequence[str]:
        """Return the groups of a user who proved the name elsewhere; none where the directory does not have the user.

        Raises IdentityProviderUnavailable.
        """
        return self._ask(lambda connection: self._groups_of(connection, name)) or ()

    def _ask(self, question: Callable[[ldap3.Connection], T]) -> T | None:
        """Ask the servers in turn; None: the name is not valid. Raises IdentityProviderUnavailable."""
        with self._lock:
            if self._clock() < self._down_until_s:
                raise IdentityProviderUnavailable(NO_ANSWER)
            failed = dict(self._failed_s)
        latest = self._clock() - SKIPPED_S
        for address in sorted(self._access.servers, key=lambda one: failed.get(one, 0.0) > latest and one in failed):
            try:
                with self._connected(address) as connection:
                    return question(connection)
            except OF_THE_LOGIN:
                return None
            except (DirectoryFault, LDAPException, OSError) as error:
                log.warning("the directory at %s cannot be asked: %s: %s", address, type(error).__name__, error)
                with self._lock:
                    self._failed_s[address] = self._clock()
        with self._lock:
            self._down_until_s = self._clock() + DOWN_S
        raise IdentityProviderUnavailable(NO_ANSWER)

    def check(self) -> str:
        """Return the address of a server that the gateway can search. Raises DirectoryFault where there is none."""
        faults = []
        for address in self._access.servers:
            try:
                with self._connected(address) as connection:
                    if not self._users.dn:
                        self._bind_service(connection)
                        self._search(connection, self._users.base, "(objectClass=*)", [], scope=ldap3.BASE)
                    return address
            except (DirectoryFault, LDAPException, OSError) as error:
                faults.append(f"{address}: {type(error).__name__}: {error}")
        raise DirectoryFault("; ".join(faults))

    @contextmanager
    def _connected(self, address: str) -> Iterator[ldap3.Connection]:
        """Connect to a server, encrypted if that is configured. Raises LDAPException, OSError."""
        parsed = urlsplit(address)
        encrypted = parsed.scheme == "ldaps" or self._access.start_tls
        server = ldap3.Server(
            parsed.hostname or "",
            port=parsed.port,
            use_ssl=parsed.scheme == "ldaps",
            tls=_Tls(ssl.create_default_context(cafile=self._access.ca_file)) if encrypted else None,
            get_info=ldap3.NONE,
            connect_timeout=self._access.timeout_s,
        )
        connection = ldap3.Connection(
            server,
            receive_timeout=self._access.timeout_s,
            auto_referrals=False,
            read_only=True,
            check_names=False,
        )
        try:
            connection.open(read_server_info=False)
            if self._access.start_tls and parsed.scheme == "ldap" and not connection.start_tls(read_server_info=False):
                raise DirectoryFault(f"StartTLS fails: {connection.result.get('description')}")
            yield connection
        finally:
            connection.unbind()
            if connection.socket is not None:  # it was never open
                connection.socket.close()

    def _entry(self, connection: ldap3.Connection, name: str, password: str) -> Entry | None:
        """Return the user; None: name or password is wrong. Raises DirectoryFault, LDAPException."""
        users = self._users
        # A name that is not there costs the same steps as a wrong password.
        dn = self._dn(connection, name) or f"cn={token_hex(8)},{users.base}"
        if not self._bind(connection, dn, password):
            return None
        if users.bind_dn:
            self._bind_service(connection)
        return self._described(connection, dn, name)

    def _groups_of(self, connection: ldap3.Connection, name: str) -> Sequence[str]:
        """Return a user's groups, as the gateway's own account sees them. Raises DirectoryFault, LDAPException."""
        self._bind_service(connection)
        dn = self._dn(connection, name)
        if dn is None or not self._search(connection, dn, "(objectClass=*)", []):
            return ()
        entry = self._described(connection, dn, name)
        return entry.groups if entry.name == name.lower() else ()  # the filter may find users by other attributes, too

    def _dn(self, connection: ldap3.Connection, name: str) -> str | None:
        """Return the distinguished name of a user; None: a search does not tell one. Raises as ``_search``."""
        users = self._users
        if users.dn:
            return users.dn.replace("{name}", escape_rdn(name))
        self._bind_service(connection)
        wanted = users.filter.replace("{name}", escape_filter_chars(name))
        entries = self._search(connection, users.base, wanted, [], size_limit=2)
        if len(entries) > 1:
            log.warning("the search for a user finds more than one entry: make authentication.ldap.filter narrower")
        return str(entries[0]["dn"]) if len(entries) == 1 else None

    def _described(self, connection: ldap3.Connection, dn: str, name: str) -> Entry:
        """Return the name and the groups of an entry. Raises DirectoryFault, LDAPException."""
        users = self._users
        own = self._search(connection, dn, "(objectClass=*)", [users.attribute], scope=ldap3.BASE)
        names = [value for entry in own for value in _texts(entry, users.attribute)]
        if not names:
            raise DirectoryFault(f"nobody may read the attribute {users.attribute} of {dn}, or there is none")
        of_user = next((value for value in names if value.lower() == name.lower()), names[0]).lower()
        return Entry(of_user, self._group_names(connection, dn, of_user))

    def _group_names(self, connection: ldap3.Connection, dn: str, name: str) -> Sequence[str]:
        """Return the names of a user's groups, and of the groups that these are in, up to a depth."""
        groups = self._groups
        if not groups.base:
            return ()
        names: dict[str, None] = {}
        seen: set[str] = set()
        members = [dn]
        for _ in range(groups.depth + 1):
            entries = []
            for start in range(0, len(members), GROUPS_A_SEARCH):
                filters = [
                    groups.filter.replace("{dn}", escape_filter_chars(member)).replace(
                        "{name}", escape_filter_chars(name)
                    )
                    for member in members[start : start + GROUPS_A_SEARCH]
                ]
                wanted = filters[0] if len(filters) == 1 else f"(|{''.join(filters)})"
                entries += self._search(connection, groups.base, wanted, [groups.attribute], size_limit=MOST_GROUPS + 1)
            new = [entry for entry in entries if entry["dn"].lower() not in seen]
            seen.update(entry["dn"].lower() for entry in new)
            names.update(dict.fromkeys(value for entry in new for value in _texts(entry, groups.attribute)))
            members = list(dict.fromkeys(entry["dn"] for entry in new))
            if not members or len(names) > MOST_GROUPS or "{dn}" not in groups.filter:
                break
        return list(names)

    def _bind_service(self, connection: ldap3.Connection) -> None:
        users = self._users
        if not self._bind(connection, users.bind_dn, users.bind_password):
            raise DirectoryFault(f"it does not accept authentication.ldap.bind_dn: {connection.result['description']}")

    def _bind(self, connection: ldap3.Connection, dn: str, password: str) -> bool:
        """Bind as an entry; False: name or password is wrong. Raises DirectoryFault, LDAPException.

        The library normalizes texts, and fails with some, such as a soft hyphen; it sends bytes as they are.
        """
        if dn:
            connection.authentication, connection.user, connection.password = ldap3.SIMPLE, dn, password.encode()
        else:
            connection.authentication, connection.user, connection.password = ldap3.ANONYMOUS, None, None
        connection.bind(read_server_info=False)
        result = connection.result["result"]
        if result != RESULT_SUCCESS and result not in WRONG:
            raise DirectoryFault(f"a bind ends with {connection.result['description']}")
        return bool(result == RESULT_SUCCESS)

    def _search(
        self,
        connection: ldap3.Connection,
        base: str,
        wanted: str,
        attributes: Sequence[str],
        *,
        scope: str = ldap3.SUBTREE,
        size_limit: int = 1,
    ) -> list[dict[str, Any]]:
        """Return entries, at most ``size_limit``. Raises DirectoryFault, LDAPException."""
        names = list(attributes) or [ldap3.NO_ATTRIBUTES]
        connection.search(base, wanted, scope, attributes=names, size_limit=size_limit)
        result = connection.result["result"]
        if result == RESULT_NO_SUCH_OBJECT and scope == ldap3.SUBTREE:
            return []
        if result not in (RESULT_SUCCESS, RESULT_SIZE_LIMIT_EXCEEDED):
            raise DirectoryFault(f"a search below {base} ends with {connection.result['description']}")
        return [entry for entry in connection.response if entry["type"] == "searchResEntry"]


def _texts(entry: Mapping[str, Any], attribute: str) -> list[str]:
    """Return the values of an attribute that are texts."""
    values = entry["attributes"].get(attribute) or []
    return [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, str)]
