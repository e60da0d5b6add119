"""Authentication of clients for every door, by the users file.

The file holds a line per user, ``name:scrypt:salt:hash`` or ``name:scrypt:salt:hash:role``, made by ``fusion password
NAME``. A name in the file always needs its password. Other names are believed, but only where clients may come without
a login; they own nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import math
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

from cachetools import LRUCache

from gateway.errors import AuthenticationFailed
from gateway.security import audit
from gateway.security.lockout import TOO_MANY, LockedOut, Lockout, NoTurn, Turns
from gateway.security.principals import ANONYMOUS, UNPROVED, Principal, Role

log = logging.getLogger(__name__)

LONGEST_NAME = 128
TOKEN_USER = "token"  # noqa: S105 - name that comes with a token in the place of a password, as at Databricks
SERVICE_TOKEN_PREFIX = "fsg_"  # noqa: S105 - no secret, but by what scanners find secrets
LONGEST_SERVICE_TOKEN = len(SERVICE_TOKEN_PREFIX) + 43  # 256 bits in base64
VERIFIED_KEPT = 1_024
WRONG = "The user name or the password is wrong."
GONE = "The user may not come in any more; log in again."
TOO_MANY_WRONG = "Too many wrong passwords of this user from this address."
_SCHEME = "scrypt"
_COST, _BLOCK, _LANES = 1 << 14, 8, 1  # 16 MiB and about 50 ms
_SALT_BYTES, _HASH_BYTES = 16, 64


class UsersFileInvalid(Exception):
    """The users file cannot be read, or one of its lines is not valid."""


class Anonymous(StrEnum):
    """Addresses from which clients may come without a login."""

    NEVER = "never"
    LOOPBACK = "loopback"
    EVERYWHERE = "everywhere"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A Kerberos ticket that was checked."""

    principal: str
    """Principal of the client, with its realm."""
    service: str
    """Principal of the gateway, with its realm."""
    expires_at: float
    """Time in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Login:
    """A name and password, or a token, as a client sent them, or a ticket that was checked."""

    name: str | None
    password: str | None = field(repr=False)
    address: str
    """IP address of the client."""
    token: str | None = field(default=None, repr=False)
    """Bearer token, which the users file ignores; None: the client sent none."""
    ticket: Ticket | None = None
    """Kerberos ticket, which the users file ignores; None: the client has none."""

    @property
    def token_or_password(self) -> str:
        """The token, else the password, which may be a token, too; empty: neither."""
        return self.token if self.token is not None else self.password or ""


@dataclass(frozen=True, slots=True)
class Secret:
    """A password as the file keeps it: a salt, and scrypt's hash of 64 bytes."""

    salt: bytes
    hashed: bytes

    @classmethod
    def of(cls, password: str) -> Secret:
        """Return the hash of a password, with a new salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(salt, _hashed(password, salt))

    @classmethod
    def read(cls, text: str) -> Secret:
        """Parse the text behind a name in the file. Raises ValueError."""
        scheme, salt, hashed = text.split(":")
        secret = cls(base64.b64decode(salt, validate=True), base64.b64decode(hashed, validate=True))
        if scheme != _SCHEME or not secret.salt or len(secret.hashed) != _HASH_BYTES:
            raise ValueError("not a salt and a hash of scrypt")
        return secret

    def __str__(self) -> str:
        return ":".join((_SCHEME, base64.b64encode(self.salt).decode(), base64.b64encode(self.hashed).decode()))

    def fits(self, password: str) -> bool:
        """Tell whether this is the hash of a password; that takes about 50 ms."""
        return hmac.compare_digest(_hashed(password, self.salt), self.hashed)


@dataclass(frozen=True, slots=True)
class User:
    """A line of the users file."""

    secret: Secret
    role: Role | None = None
    """Role in the line; None: the settings decide."""

    @property
    def credential(self) -> bytes:
        """Mark of the password, by which a changed one is noticed."""
        return hashlib.sha256(self.secret.salt + self.secret.hashed).digest()


class UsersFile:
    """Authenticates users by a file, which is read again when it has changed, or without one. Thread-safe.

    roles: of users whose line in the file has no role.
    operators: users with the role operator, under the same condition.
    default_role: role of the other users in the file.
    anonymous_role: role of clients without a login; None: reader where there is a file, otherwise admin on this machine
    and writer elsewhere.
    """

    tickets = None
    """Kerberos tickets are ignored."""

    def __init__(
        self,
        path: Path | None,
        *,
        anonymous: Anonymous,
        operators: Collection[str] = (),
        roles: Mapping[str, Role] = MappingProxyType({}),
        default_role: Role = Role.WRITER,
        anonymous_role: Role | None = None,
        lockout: Lockout | None = None,
    ) -> None:
        self._path = path
        self._anonymous = anonymous
        self._roles = {**dict.fromkeys(operators, Role.OPERATOR), **roles}
        self._default_role = default_role
        self._anonymous_role = anonymous_role
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._unreadable = ""
        self._users: Mapping[str, User] = {}
        self._key = secrets.token_bytes(32)
        self._verified: LRUCache[bytes, bool] = LRUCache(VERIFIED_KEPT)  # marks of correct logins
        self._refused: LRUCache[bytes, bool] = LRUCache(VERIFIED_KEPT)  # marks of wrong logins
        self._under_way: dict[bytes, Future[bool]] = {}
        self._lockout = lockout or Lockout()
        self._turns = Turns()
        self._nobody = _nobody()
        self._read()

    def recognise(self, login: Login) -> Principal | None:
        """Return the user, None where only ``authenticate`` can tell. Does not block.

        Raises AuthenticationFailed.
        """
        name = login.name or ANONYMOUS
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise AuthenticationFailed(
                f"The user name has more than {LONGEST_NAME} characters, or one that cannot be printed."
            )
        user = self._user(name)
        if user is None and self._open_to(login.address):
            return Principal(name, self._role_without_login(login.address), address=login.address)
        if not login.password:
            raise AuthenticationFailed("A user name and a password are required; log in.")
        mark = self._mark(name, user.secret if user else self._nobody, login.password)
        with self._lock:
            right, wrong = self._verified.get(mark, False), mark in self._refused
        if wrong:
            raise self._wrong(login, "the same wrong password as before")
        return self._proven(name, user, login.address) if right and user is not None else None

    def authenticate(self, login: Login) -> Principal:
        """Return the user; may block for a moment. Raises AuthenticationFailed."""
        recognised = self.recognise(login)
        if recognised is not None:
            return recognised
        name, password = login.name or ANONYMOUS, login.password or ""
        user = self._user(name)
        mark = self._mark(name, user.secret if user else self._nobody, password)
        with self._lock:
            awaited = self._under_way.get(mark)
            if awaited is None:
                under_way = self._under_way[mark] = Future()
        if awaited is not None:  # the same login, at the same time
            if not awaited.result() or user is None:
                raise AuthenticationFailed(WRONG)
            return self._proven(name, user, login.address)
        right = False
        try:
            right = self._fits(login, name, user.secret if user else None, password)
            with self._lock:
                if self._users.get(name) == user:
                    (self._verified if right else self._refused)[mark] = True
        finally:
            with self._lock:
                del self._under_way[mark]
            under_way.set_result(right)
        if not right or user is None:
            raise AuthenticationFailed(WRONG)
        proven = self._proven(name, user, login.address)
        audit.note("login", name, login.address, allowed=True, what="log in", role=proven.role.value)
        return proven

    def current(self, principal: Principal) -> Principal:
        """Return a user who logged in earlier with the role of now. Does not block.

        Raises AuthenticationFailed where the name is gone, or its password has changed.
        """
        user = self._user(principal.name)
        if principal.authenticated:
            if user is None or user.credential != principal.credential:
                raise AuthenticationFailed(GONE)
            role = self._role(principal.name, user)
        else:
            if user is not None or not self._open_to(principal.address):
                raise AuthenticationFailed(GONE)
            role = self._role_without_login(principal.address)
        return principal if principal.role is role else replace(principal, role=role)

    def present(self, name: str, authenticated: bool, address: str) -> Principal:
        """Return a user of whom it is on record that he was let in, with the rights of now.

        Raises AuthenticationFailed where he would not be any more.
        """
        user = self._user(name) if authenticated else None
        credential = user.credential if user is not None else b""
        return self.current(Principal(name, authenticated=authenticated, address=address, credential=credential))

    def of_account(self, account: str, address: str) -> Principal:
        """Return the user of an account as ``present`` does."""
        return self.present(account.removeprefix(UNPROVED), not account.startswith(UNPROVED), address)

    def has(self, name: str) -> bool:
        """Tell whether a name belongs to somebody: it is in the file."""
        return self._user(name) is not None

    def takes_token(self, token: str) -> bool:
        """Tell whether a bearer token is checked: it is ignored."""
        return False

    def holders(self, role: Role) -> Sequence[str]:
        """Return the names that have at least a role."""
        with self._lock:
            self._read()
            return [name for name, user in self._users.items() if self._role(name, user).includes(role)]

    def _user(self, name: str) -> User | None:
        with self._lock:
            self._read()
            return self._users.get(name)

    def _proven(self, name: str, user: User, address: str) -> Principal:
        return Principal(name, self._role(name, user), authenticated=True, address=address, credential=user.credential)

    def _role(self, name: str, user: User) -> Role:
        return user.role or self._roles.get(name, self._default_role)

    def _role_without_login(self, address: str) -> Role:
        if self._anonymous_role is not None:
            return self._anonymous_role
        if self._path is not None:
            return Role.READER
        return Role.ADMIN if is_loopback(address) else Role.WRITER

    def _open_to(self, address: str) -> bool:
        if self._anonymous is Anonymous.LOOPBACK:
            return is_loopback(address)
        return self._anonymous is Anonymous.EVERYWHERE

    def _mark(self, name: str, secret: Secret, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\n{secret}\n{password}".encode(errors="surrogatepass"), "sha256")

    def _fits(self, login: Login, name: str, secret: Secret | None, password: str) -> bool:
        """Hash a password, one at a time. Raises AuthenticationFailed where too many are waiting."""
        try:
            with self._lockout.attempt(name, login.address) as was_wrong:
                with self._turns.taken(name, login.address):
                    right = (secret or self._nobody).fits(password) and secret is not None
                if not right:
                    self._wrong(login, f"wrong password number {was_wrong()}")
                return right
        except LockedOut as locked:
            self._wrong(login, "locked out")
            wait_s = math.ceil(locked.wait_s)
            raise AuthenticationFailed(f"{TOO_MANY_WRONG} Try again in {wait_s} s.") from locked
        except NoTurn as error:
            raise AuthenticationFailed(TOO_MANY) from error

    def _wrong(self, login: Login, why: str) -> AuthenticationFailed:
        """Log a failed login with name and address, never the password; return the error for its client."""
        name = (login.name or ANONYMOUS)[:LONGEST_NAME]
        text = f"login of {name!r} from {login.address} failed: {why}"
        audit.note("login", name, login.address, allowed=False, what=f"log in: {why}", text=text)
        return AuthenticationFailed(WRONG)

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            lines = self._path.read_text(encoding="utf-8").splitlines()
            entries = [(line.strip(), number) for number, line in enumerate(lines, start=1) if not line.startswith("#")]
            users = dict(_entry(line, number) for line, number in entries if line)
        except (OSError, UnicodeDecodeError, UsersFileInvalid) as error:
            if self._stamp is None:
                raise UsersFileInvalid(f"The users file {self._path} cannot be used: {error}") from error
            if self._unreadable != str(error):
                log.error("the users file cannot be used, the users read before stay valid: %s", error)
                self._unreadable = str(error)
            return
        self._users, self._stamp, self._unreadable = users, stamp, ""
        self._verified.clear()
        self._refused.clear()


@lru_cache(256)
def is_loopback(address: str) -> bool:
    """Tell whether an address is a loopback address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def login_in(authorization: str, address: str) -> Login:
    """Parse an Authorization header; without Basic authentication and a bearer token the login is empty."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return Login(None, None, address, token=encoded.strip() or None)
    if scheme.lower() != "basic":
        return Login(None, None, address)
    try:
        padded = encoded + "=" * (-len(encoded) % 4)  # ADBC's driver leaves it out
        name, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Login(None, None, address)
    return Login(name or None, password, address)


def is_jwt(text: str) -> bool:
    """Tell whether a text has the form of a signed JWT: three parts, of which the first is a JSON object in base64."""
    return text.startswith("ey") and text.count(".") == 2


def is_service_token(text: str) -> bool:
    """Tell whether a text has the form of a service account's token."""
    return text.startswith(SERVICE_TOKEN_PREFIX) and len(text) == LONGEST_SERVICE_TOKEN


def user_line(name: str, password: str, role: Role | None = None) -> str:
    """Return the line of a user for the file."""
    if not name or ":" in name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError("a user's name must not be empty, hold a colon, or begin with #")
    return f"{name}:{Secret.of(password)}" + (f":{role}" if role else "")


@cache
def _nobody() -> Secret:
    """Return the hash of a password that nobody has, so that a wrong name takes as long as a wrong password."""
    return Secret.of(secrets.token_hex())


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=_LANES)


def _entry(line: str, number: int) -> tuple[str, User]:
    name, _, text = line.partition(":")
    try:
        if name:
            secret, role = (text, None) if text.count(":") < 3 else text.rsplit(":", 1)
            return name, User(Secret.read(secret), Role(role) if role is not None else None)
    except ValueError:  # binascii's is one
        pass
    raise UsersFileInvalid(
        f"Line {number} of the users file is not name:{_SCHEME}:salt:hash, with :role behind it or not."
    )
