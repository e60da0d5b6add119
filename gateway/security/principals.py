"""Users: their names, roles and proof of identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

ANONYMOUS = "anonymous"
UNPROVED = ":"
"""Begin of the account of a user who has not proved its name."""


class Role(StrEnum):
    """Rights of a user in general; each role includes those before it."""

    READER = "reader"
    WRITER = "writer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Place among the roles, 0 for the least."""
        return _RANKS[self]

    def includes(self, other: Role) -> bool:
        """Tell whether this role has all rights of another one."""
        return self.rank >= other.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as far as the gateway knows it."""

    name: str
    role: Role = Role.READER
    authenticated: bool = False
    """Has proved its name, with a password or a token; any other name owns nothing."""
    address: str = ""
    """IP address; empty: none."""
    credential: bytes = field(default=b"", repr=False)
    """Mark of the password or token; sessions that were opened with an older password of the users file end."""
    groups: frozenset[str] = frozenset()
    """Groups that its source of identity names."""
    source: str = ""
    """Source of identity that let it in; empty: the users file, or nobody asked for a login."""
    expires_at: float | None = None
    """Time in seconds since 1970 at which its sessions end; None: when the users file says so."""

    @property
    def owner(self) -> str | None:
        """Name of the owner of whatever this user creates; None: it has not proved its name."""
        return self.name if self.authenticated else None

    @property
    def account(self) -> str:
        """Unique name, also different from an unproved one that is equal: no name in a file has a colon."""
        return self.name if self.authenticated else f"{UNPROVED}{self.name}"

    @property
    def quota_key(self) -> str:
        """Key by which shares of the gateway are counted: anybody can invent names, but not addresses."""
        return self.name if self.authenticated else f":{self.address}"


IN_PROCESS = Principal(ANONYMOUS, Role.ADMIN)
"""User of calls from inside this process, which no door passed on."""
