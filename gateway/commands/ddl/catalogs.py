"""Iceberg catalogs that are added and dropped while the gateway runs. The same in every dialect.

CREATE CATALOG [IF NOT EXISTS] c WITH (type = 'rest', uri = '...' [, warehouse = '...'] [, credential_env = 'X'] ...)
DROP CATALOG [IF EXISTS] c
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.commands.command import DONE, Definition
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from metastore.records import AddedCatalog

_FIELDS = ("type", "uri", "warehouse", "credential_env", "credential_file")


@dataclass(frozen=True, slots=True)
class CreateCatalog(Definition):
    """Add a catalog. if_not_exists: one that exists is no mistake."""

    name: str
    type: str = "rest"
    uri: str = ""
    warehouse: str = ""
    credential_env: str = ""
    credential_file: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False

    actions = (Action.ADMINISTER_CATALOGS,)

    def added(self, owner: str | None) -> AddedCatalog:
        """Return the catalog as it is recorded."""
        given = {name: getattr(self, name) for name in ("name", *_FIELDS, "properties")}
        return AddedCatalog(**given, owner=owner)

    def run(self, services: CommandServices) -> pa.Table:
        """Add it."""
        if not (self.if_not_exists and self.name in services.catalogs.names):
            services.catalogs.add(self.added(services.principal.owner), services.run.requester)
        return DONE


@dataclass(frozen=True, slots=True)
class DropCatalog(Definition):
    """Drop a catalog. if_exists: one that does not exist is no mistake."""

    name: str
    if_exists: bool = False

    actions = (Action.ADMINISTER_CATALOGS,)

    def run(self, services: CommandServices) -> pa.Table:
        """Drop it."""
        if not self.if_exists or self.name in services.catalogs.names:
            services.catalogs.remove(self.name)
        return DONE


def parse(reader: Reader) -> CreateCatalog | DropCatalog | None:
    """Read a statement about catalogs."""
    if reader.accept("DROP", "CATALOG"):
        if_exists = reader.accept("IF", "EXISTS")
        name = reader.name().lower()
        reader.end()
        return DropCatalog(name, if_exists)
    if not reader.accept("CREATE", "CATALOG"):
        return None
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name().lower()
    reader.expect("WITH")
    given = reader.properties()
    reader.end()
    values = {key: given.pop(key) for key in _FIELDS if key in given}
    return CreateCatalog(name, **values, properties=given, if_not_exists=if_not_exists)
