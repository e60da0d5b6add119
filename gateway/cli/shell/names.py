"""Names for completion: tables with columns, databases, engines and functions.

They are fetched in a thread, so that typing never waits, and again after statements that change them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sql.tables import DEFAULT_DATABASE, database_of

if TYPE_CHECKING:
    from gateway.cli.client import Client

CLOSE_WAIT_S = 1.0  # that the end of the shell waits for a fetch


@dataclass(frozen=True, slots=True)
class Names:
    """Names at one moment."""

    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of tables, by the full name of the table, which has no database where that is the default one."""
    databases: tuple[str, ...] = (DEFAULT_DATABASE,)
    """Databases, and Iceberg catalogs."""
    engines: tuple[str, ...] = ()
    """Engines of the gateway."""
    functions: tuple[str, ...] = ()
    """Functions that statements may call."""


class NameCache:
    """The last names that were fetched. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wanted = threading.Event()
        self._is_closed = False
        self._names = Names()
        self._thread = threading.Thread(target=self._fetch_when_wanted, name="names", daemon=True)

    @property
    def latest(self) -> Names:
        """The last names that were fetched; without any before the first reply."""
        return self._names

    def start(self) -> None:
        """Begin to fetch."""
        self._wanted.set()
        self._thread.start()

    def refresh(self) -> None:
        """Fetch them again, in the background."""
        self._wanted.set()

    def close(self) -> None:
        """End fetching."""
        self._is_closed = True
        self._wanted.set()
        self._thread.join(CLOSE_WAIT_S)

    def _fetch_when_wanted(self) -> None:
        import httpx

        from gateway.cli.client import RequestFailed

        while self._wanted.wait() and not self._is_closed:
            self._wanted.clear()
            try:
                self._names = fetch_names(self._client)
            except (RequestFailed, httpx.HTTPError):  # the older names stay
                continue


def fetch_names(client: Client) -> Names:
    """Return the names that a gateway has now. Raises RequestFailed, httpx.HTTPError."""
    from sql.allowlist.functions import FUNCTIONS, TABLE_FUNCTIONS

    tables = {
        table["name"]: tuple(column["name"] for column in table["columns"])
        for table in client.get("/v1/tables")["tables"]
    }
    databases = {DEFAULT_DATABASE, *map(database_of, tables)}
    catalogs = {catalog["name"] for catalog in client.get("/v1/catalogs")["catalogs"]}
    return Names(
        tables=tables,
        databases=tuple(sorted(databases | catalogs)),
        engines=tuple(engine["name"] for engine in client.get("/v1/engines")["engines"]),
        functions=tuple(sorted(FUNCTIONS | TABLE_FUNCTIONS)),
    )
