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
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
LONGEST_NAME = 128
VERIFIED_KEPT = 1_024
HASH_WAIT_S = 2.0
WRONG = "The user name or the password is wrong."
_SCHEME = "scrypt"
_COST, _BLOCK, _LANES = 1 << 14, 8, 1  # 16 MiB and about 50 ms
_SALT_BYTES = 16


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


class Authenticator(Protocol):
    """Tells users apart. Thread-safe; may block."""

    def authenticate(self, login: Login) -> str:
        """Return the user's name. Raises AuthenticationFailed."""


class UsersFile:
    """Implements ``Authenticator`` over a file, which is read again when it has changed, or over none."""

    def __init__(self, path: Path | None, *, anonymous: Anonymous) -> None:
        self._path = path
        self._anonymous = anonymous
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._users: Mapping[str, str] = {}
        self._key = secrets.token_bytes(32)
        self._verified: dict[bytes, None] = {}  # marks of logins that were right, so that scrypt runs once for each
        self._hashing = threading.Lock()
        self._nobody = user_line("nobody", secrets.token_hex()).partition(":")[2]  # a wrong name takes as long
        self._read()

    def authenticate(self, login: Login) -> str:
        """Return the user's name. Raises AuthenticationFailed."""
        name = login.name or ANONYMOUS
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise AuthenticationFailed("The user's name is too long or holds signs that no name has.")
        with self._lock:
            self._read()
            entry = self._users.get(name)
        if entry is None and self._open_to(login.address):
            return name
        if not login.password:
            raise AuthenticationFailed("A user name and its password are needed here.")
        if not self._fits(entry or self._nobody, login.password) or entry is None:
            raise AuthenticationFailed(WRONG)
        return name

    def _open_to(self, address: str) -> bool:
        if self._anonymous is Anonymous.LOOPBACK:
            return is_loopback(address)
        return self._anonymous is Anonymous.EVERYWHERE

    def _fits(self, entry: str, password: str) -> bool:
        mark = hmac.digest(self._key, f"{entry}\n{password}".encode(errors="surrogatepass"), "sha256")
        if mark in self._verified:
            return True
        if not self._hashing.acquire(timeout=HASH_WAIT_S):  # somebody tries one password after the other
            raise AuthenticationFailed("Too many logins at once; try again.")
        try:
            _, salt, expected = entry.split(":")
            right = hmac.compare_digest(_hashed(password, base64.b64decode(salt)), base64.b64decode(expected))
        finally:
            self._hashing.release()
        if right:
            with self._lock:
                if len(self._verified) >= VERIFIED_KEPT:
                    self._verified.clear()
                self._verified[mark] = None
        return right

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
    salt = secrets.token_bytes(_SALT_BYTES)
    parts = (name, _SCHEME, base64.b64encode(salt).decode(), base64.b64encode(_hashed(password, salt)).decode())
    return ":".join(parts)


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=_LANES)


def _holds_user(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _entry(line: str, number: int) -> tuple[str, str]:
    name, _, rest = line.strip().partition(":")
    parts = rest.split(":")
    if not name or len(parts) != 3 or parts[0] != _SCHEME:
        raise UsersFileInvalid(f"Line {number} of the users file is not name:{_SCHEME}:salt:hash.")
    return name, rest
