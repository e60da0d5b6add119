"""Who a client is: one interface for every way in, and the file of users behind it.

The file holds a line per user, ``name:scrypt:salt:hash``, made by ``fusion password NAME``. A name that stands there
always needs its password. Other names are taken as they are told, but only where clients without a login are let in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
LONGEST_NAME = 128
VERIFIED_KEPT = 1_024
HASHES_AT_ONCE = 5  # one that runs and those that wait for it; somebody may be trying one password after the other
WRONG = "The user name or the password is wrong."
_SCHEME = "scrypt"
_COST, _BLOCK, _LANES = 1 << 14, 8, 1  # 16 MiB and about 50 ms
_SALT_BYTES, _HASH_BYTES = 16, 64


class AuthenticationFailed(Exception):
    """The login is missing or wrong; the message does not say which part of it."""


class UsersFileInvalid(Exception):
    """The users file cannot be read, or a line of it is none."""


class Anonymous(StrEnum):
    """Who may come without a login."""

    NEVER = "never"
    LOOPBACK = "loopback"
    EVERYWHERE = "everywhere"


@dataclass(frozen=True, slots=True)
class Login:
    """What a client says about itself. address: where it comes from, an IP address."""

    name: str | None
    password: str | None
    address: str


@dataclass(frozen=True, slots=True)
class Secret:
    """What the file keeps of a password. salt, hashed: scrypt's, with a hash of 64 bytes."""

    salt: bytes
    hashed: bytes

    @classmethod
    def of(cls, password: str) -> Secret:
        """Return what is kept of a password."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(salt, _hashed(password, salt))

    @classmethod
    def read(cls, text: str) -> Secret:
        """Return what stands behind a name in the file. Raises ValueError."""
        scheme, salt, hashed = text.split(":")
        found = cls(base64.b64decode(salt, validate=True), base64.b64decode(hashed, validate=True))
        if scheme != _SCHEME or not found.salt or len(found.hashed) != _HASH_BYTES:
            raise ValueError("not what is kept of a password")
        return found

    def __str__(self) -> str:
        return ":".join((_SCHEME, base64.b64encode(self.salt).decode(), base64.b64encode(self.hashed).decode()))

    def fits(self, password: str) -> bool:
        """Tell whether this is of a password; that takes about 50 ms."""
        return hmac.compare_digest(_hashed(password, self.salt), self.hashed)


class Authenticator(Protocol):
    """Tells users apart. Thread-safe."""

    def recognise(self, login: Login) -> str | None:
        """Return the user's name, None where only ``authenticate`` can tell. Does not block.

        Raises AuthenticationFailed.
        """

    def authenticate(self, login: Login) -> str:
        """Return the user's name; may block for a moment. Raises AuthenticationFailed."""

    def may_use(self, user: str, owner: str) -> bool:
        """Tell whether a user may end the owner's queries and fetch their rows."""


class UsersFile:
    """Implements ``Authenticator`` over a file, which is read again when it has changed, or over none.

    operators: who may use the queries of all.
    """

    def __init__(self, path: Path | None, *, anonymous: Anonymous, operators: Collection[str] = ()) -> None:
        self._path = path
        self._anonymous = anonymous
        self._operators = frozenset(operators)
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._users: Mapping[str, Secret] = {}
        self._key = secrets.token_bytes(32)
        self._verified: dict[bytes, None] = {}  # marks of logins that were right, so that scrypt runs once for each
        self._hashing = threading.Lock()
        self._hashes = threading.BoundedSemaphore(HASHES_AT_ONCE)
        self._nobody = Secret.of(secrets.token_hex())  # a wrong name takes as long
        self._read()

    def recognise(self, login: Login) -> str | None:
        """Return the user's name, None where only ``authenticate`` can tell. Does not block.

        Raises AuthenticationFailed.
        """
        name = login.name or ANONYMOUS
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise AuthenticationFailed("The user's name is too long or holds signs that no name has.")
        kept = self._kept(name)
        if kept is None and self._open_to(login.address):
            return name
        if not login.password:
            raise AuthenticationFailed("A user name and its password are needed here.")
        return name if kept is not None and self._mark(kept, login.password) in self._verified else None

    def authenticate(self, login: Login) -> str:
        """Return the user's name; may block for a moment. Raises AuthenticationFailed."""
        recognised = self.recognise(login)
        if recognised is not None:
            return recognised
        name, password = login.name or ANONYMOUS, login.password or ""
        kept = self._kept(name)
        if not self._fits(kept or self._nobody, password) or kept is None:
            raise AuthenticationFailed(WRONG)
        with self._lock:
            if len(self._verified) >= VERIFIED_KEPT:
                self._verified.clear()
            self._verified[self._mark(kept, password)] = None
        return name

    def may_use(self, user: str, owner: str) -> bool:
        """Tell whether a user may end the owner's queries and fetch their rows.

        A name without a password proves nothing: what was sent under it is everybody's.
        """
        return user == owner or self._kept(owner) is None or (user in self._operators and self._kept(user) is not None)

    def _kept(self, name: str) -> Secret | None:
        with self._lock:
            self._read()
            return self._users.get(name)

    def _open_to(self, address: str) -> bool:
        if self._anonymous is Anonymous.LOOPBACK:
            return is_loopback(address)
        return self._anonymous is Anonymous.EVERYWHERE

    def _mark(self, kept: Secret, password: str) -> bytes:
        return hmac.digest(self._key, f"{kept}\n{password}".encode(errors="surrogatepass"), "sha256")

    def _fits(self, kept: Secret, password: str) -> bool:
        """Hash a password, one at a time; who would wait for long is refused at once, and holds no thread."""
        if not self._hashes.acquire(blocking=False):
            raise AuthenticationFailed("Too many logins at once; try again.")
        try:
            with self._hashing:
                return kept.fits(password)
        finally:
            self._hashes.release()

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            lines = self._path.read_text(encoding="utf-8").splitlines()
            users = dict(_entry(line, number) for number, line in enumerate(lines, start=1) if _holds_user(line))
        except (OSError, UnicodeDecodeError, UsersFileInvalid) as error:
            if self._stamp is None:
                raise UsersFileInvalid(f"The users file {self._path} cannot be used: {error}") from error
            log.error("the users file cannot be used, those of before stay: %s", error)
            return
        self._users, self._stamp = users, stamp
        self._verified.clear()


def is_loopback(address: str) -> bool:
    """Tell whether an address is this machine's own."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def basic_login(authorization: str, address: str) -> Login:
    """Return what an Authorization header says; one that is no Basic authentication says nothing."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return Login(None, None, address)
    try:
        padded = encoded + "=" * (-len(encoded) % 4)  # which ADBC's driver leaves out
        name, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Login(None, None, address)
    return Login(name or None, password, address)


def user_line(name: str, password: str) -> str:
    """Return the line of a user for the file."""
    if not name or ":" in name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError("a user's name is not empty and holds no colon")
    return f"{name}:{Secret.of(password)}"


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=_LANES)


def _holds_user(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _entry(line: str, number: int) -> tuple[str, Secret]:
    name, _, kept = line.strip().partition(":")
    try:
        if name:
            return name, Secret.read(kept)
    except ValueError:  # binascii's is one
        pass
    raise UsersFileInvalid(f"Line {number} of the users file is not name:{_SCHEME}:salt:hash.")
