"""Who acts: a name, what it may do, and whether anybody proved to be it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

ANONYMOUS = "anonymous"


class Role(StrEnum):
    """What a user may do in general; each role includes those before it."""

    READER = "reader"
    WRITER = "writer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Place among the roles, 0 for the least."""
        return _RANKS[self]

    def includes(self, other: Role) -> bool:
        """Tell whether this role may all that another one may."""
        return self.rank >= other.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts.

    authenticated: showed the password of the users file; any other name is only told, and owns nothing.
    address: an IP address, empty where there is none. credential: marks the password that was shown, so that what was
    opened with an older one ends with it.
    """

    name: str
    role: Role = Role.READER
    authenticated: bool = False
    address: str = ""
    credential: bytes = field(default=b"", repr=False)

    @property
    def owner(self) -> str | None:
        """Name under which this user owns what it makes; None where it proved nothing."""
        return self.name if self.authenticated else None

    @property
    def account(self) -> str:
        """What tells users apart, also from somebody who only says the same name: no name in a file has a colon."""
        return self.name if self.authenticated else f":{self.name}"

    @property
    def quota_key(self) -> str:
        """Who a share of the gateway is counted for: names that are only told cost nothing, addresses do."""
        return self.name if self.authenticated else f":{self.address}"


IN_PROCESS = Principal(ANONYMOUS, Role.ADMIN)
"""A caller inside this process, where no door passed its own."""
