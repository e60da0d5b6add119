"""Owners of tables, views and databases.

ALTER TABLE | VIEW | DATABASE x SET OWNER [USER] name
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import DONE, OwnedCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from gateway.statements.command import OwnedKind
from sql.errors import AccessDenied, UnknownTable


@dataclass(frozen=True, slots=True)
class SetOwner(OwnedCommand):
    """Give something to somebody."""

    name: str
    owner: str
    kind: OwnedKind = OwnedKind.TABLE

    owner_action = Action.SET_OWNER

    def run(self, services: CommandServices) -> pa.Table:
        """Change the owner."""
        set_owner = {
            OwnedKind.TABLE: services.metastore.catalog.set_owner,
            OwnedKind.VIEW: services.metastore.views.set_owner,
            OwnedKind.DATABASE: services.metastore.databases.set_owner,
        }[self.kind]
        if not set_owner(self.name, self.owner, check=self.owner_check(services)):
            raise UnknownTable(f"The {self.kind} {self.name} is gone.")
        return DONE


def parse(reader: Reader) -> SetOwner | None:
    """Read an ALTER statement that sets an owner."""
    subject = reader.altered()
    if subject is None or not reader.accept("SET", "OWNER"):
        return None
    token = reader.peek()
    if reader.has_ahead(2):
        reader.expect("USER")
    if subject.kind is OwnedKind.VIEW and reader.context.access is not None:
        message = "A view lends its owner's rights: an administrator gives it away while there is an access policy."
        raise AccessDenied(message, reader.position(token))
    return SetOwner(subject.name, reader.text_or_name("a name"), subject.kind)
