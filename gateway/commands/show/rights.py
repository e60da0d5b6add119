"""Roles and grants. Statements give none here, so that there are none to show; who owns what is in ``ddl/owners.py``.

SHOW ROLES | CURRENT ROLES | ROLE GRANT ... | PRINCIPALS ... | GRANT ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from gateway.commands.command import ShowCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.statistics.tables import texts_of
from sql.dialects.names import IMPALA


class RightsKind(StrEnum):
    """Questions about roles and grants. The value is their first words."""

    ROLES = "ROLES"
    CURRENT_ROLES = "CURRENT ROLES"
    ROLE_GRANT = "ROLE GRANT"
    PRINCIPALS = "PRINCIPALS"
    GRANT = "GRANT"


_GRANTED = ("principal_name", "principal_type", "privilege", "grant_option", "grant_time", "grantor")
RIGHTS: Mapping[RightsKind, Sequence[str]] = {
    RightsKind.ROLES: ("role",),
    RightsKind.CURRENT_ROLES: ("role",),
    RightsKind.ROLE_GRANT: ("role", "grant_option", "grant_time", "grantor"),
    RightsKind.PRINCIPALS: (
        "principal_name",
        "principal_type",
        "grant_option",
        "grantor",
        "grantor_type",
        "grant_time",
    ),
    RightsKind.GRANT: ("database", "table", "partition", "column", *_GRANTED),
}
IMPALAS_RIGHTS: Mapping[RightsKind, Sequence[str]] = {
    **RIGHTS,
    RightsKind.ROLES: ("role_name",),
    RightsKind.CURRENT_ROLES: ("role_name",),
    RightsKind.GRANT: (
        *("principal_name", "principal_type", "scope", "database", "table", "column", "uri", "storage_type"),
        *("storage_uri", "privilege", "grant_option", "create_time"),
    ),
}


@dataclass(frozen=True, slots=True)
class ShowRights(ShowCommand):
    """Show roles and grants that statements gave: none."""

    kind: RightsKind

    def run(self, services: CommandServices) -> pa.Table:
        """Return the headings."""
        return texts_of((IMPALAS_RIGHTS if services.dialect == IMPALA else RIGHTS)[self.kind], [])


def parse(reader: Reader) -> ShowRights | None:
    """Read a statement that shows roles or grants."""
    reader.expect("SHOW")
    kind = next((kind for kind in RightsKind if reader.accept(*kind.split())), None)
    if kind is None and reader.accept("GRANTS"):
        kind = RightsKind.GRANT
    if kind is None:
        return None
    while kind not in (RightsKind.ROLES, RightsKind.CURRENT_ROLES) and reader.more():
        reader.skip()  # of whom and on what: there is nothing to choose from
    return ShowRights(kind)
