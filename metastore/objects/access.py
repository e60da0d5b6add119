"""Access of a process to object stores and catalogs: their addresses and keys, and the folder of copies."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.store import kind_of

VARIABLE = "STATSPROC_OBJECTS"
"""Environment variable with the access of a statistics job; it has secrets, which a command line would show."""


@dataclass(frozen=True, slots=True)
class CatalogAccess:
    """An Iceberg catalog and how it is reached.

    name: first part of its tables' names.
    type: rest, sql, glue or hive.
    properties: of pyiceberg, by name, credentials among them.
    """

    name: str
    type: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def warehouse(self) -> str:
        """Name or location of its warehouse."""
        return dict(self.properties).get("warehouse", "")

    @property
    def shown_uri(self) -> str:
        """Address without login and query, which may have secrets."""
        scheme, separator, rest = dict(self.properties).get("uri", "").partition("://")
        return scheme + separator + re.split("[?#]", rest.rpartition("@")[2])[0]


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """Access to object stores and catalogs.

    stores: in which tables may lie, with their credentials.
    catalogs: Iceberg catalogs.
    folder: of all copies on this machine.
    limit_bytes: of all copies.
    """

    stores: tuple[ObjectStore, ...] = ()
    catalogs: tuple[CatalogAccess, ...] = ()
    folder: Path = Path()
    limit_bytes: int = 0

    def store_of(self, location: str) -> ObjectStore | None:
        """Return the store with the longest prefix that holds a location."""
        holding = (store for store in self.stores if store.holds(location))
        return max(holding, key=lambda store: len(store.prefix), default=None)

    def catalog_named(self, name: str) -> CatalogAccess | None:
        """Return the catalog of a name."""
        return next((catalog for catalog in self.catalogs if catalog.name == name), None)

    def to_text(self) -> str:
        """Return it as JSON, secrets included."""
        return json.dumps({**asdict(self), "folder": str(self.folder)})

    @classmethod
    def from_text(cls, text: str) -> ObjectAccess:
        """Return what ``to_text`` wrote. Raises ValueError, KeyError, TypeError."""
        values = json.loads(text)
        stores = tuple(kind_of(store["prefix"])(**store) for store in values["stores"])
        catalogs = tuple(
            CatalogAccess(one["name"], one["type"], tuple((key, value) for key, value in one["properties"]))
            for one in values["catalogs"]
        )
        return cls(stores, catalogs, Path(values["folder"]), values["limit_bytes"])


NO_OBJECTS = ObjectAccess()
