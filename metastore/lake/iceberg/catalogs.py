"""Iceberg catalogs, opened by pyiceberg: which tables they have, and how the files of each are reached.

A table's metadata comes from whoever may write to the table. Its properties choose neither the class that reads files
nor the endpoint: files are read by pyarrow alone, with what the settings and the catalog say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from pydantic import field_validator
from pyiceberg.catalog import Catalog, load_catalog, rest
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.table import Table, locations
from sqlalchemy.exc import SQLAlchemyError

from metastore.lake.iceberg.store_io import CatalogIO
from metastore.lake.place import TablePlace, local_path
from metastore.lake.values import LakeUnreadable, LakeUnwritable, TableGone, one_line
from metastore.objects.access import CatalogAccess
from metastore.objects.credentials import with_given
from metastore.objects.kinds.kind import CONNECT_S, REQUEST_S, InvalidLocation
from metastore.objects.store import FILE_PROPERTIES, is_remote, location_of

_DENIED = (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError)
_DENIED_WORDS = ("AccessDenied", "UnrecognizedClient", "InvalidSignature", "ExpiredToken", "NoCredentials")
"""Words in errors of Glue that mean the same."""
_LIBRARIES = {"botocore.exceptions": ("BotoCoreError", "ClientError"), "thrift.Thrift": ("TException",)}
"""Errors of the libraries of Glue and Hive, which are there once such a catalog was opened."""
CODE = "write.py-location-provider.impl"
"""Property of a table that names a function, which pyiceberg would call."""
_OF_SERVERS = frozenset(
    """
    namespace-separator prefix rest-page-size snapshot-loading-mode view-endpoints-supported warehouse
    """.split()
)
"""Properties that a server may give its clients, beside those of files."""
MOST_TABLES = 20_000
"""Tables of one catalog that are listed."""


class _Timed(requests.Session):
    """Session of requests that do not wait for ever."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request."""
        return super().send(request, **{**options, "timeout": options.get("timeout") or (CONNECT_S, REQUEST_S)})

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where an answer leads. Raises RequestException where that is another server, which nobody named."""
        target: str | None = super().get_redirect_target(resp)
        if target is not None and _server_of(urljoin(resp.url, target)) != _server_of(resp.url):
            resp.close()
            raise requests.TooManyRedirects("it leads to another server", response=resp)
        return target


def _server_of(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


class _ConfigResponse(rest.ConfigResponse):
    """Answer of a server about itself; of what it says of its clients only what changes no address, key or code."""

    @field_validator("defaults", "overrides", mode="after")
    @classmethod
    def _taken(cls, properties: dict[str, str] | None) -> dict[str, str]:
        taken = {**(properties or {})}
        return {key: value for key, value in taken.items() if key in _OF_SERVERS or key.startswith(FILE_PROPERTIES)}


def _no_code(name: str, *_: object) -> None:
    """Refuse to call what a table's metadata name. Raises LakeUnwritable."""
    raise LakeUnwritable(f"its property {CODE} names code ({name:.80}), which is not run here: UNSET it")


vars(locations)["_import_location_provider"] = _no_code
vars(rest)["Session"] = _Timed  # pyiceberg 0.12 sets no time-out
vars(rest)["ConfigResponse"] = _ConfigResponse  # pyiceberg calls what its "auth" names, and sends secrets to its "uri"


@contextmanager
def as_unreadable(name: str) -> Iterator[None]:
    """Raise LakeUnreadable in the place of what a catalog's library raises. name: of the catalog."""
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as failure:
        raise TableGone(f"the catalog {name} has no such table ({one_line(failure)})") from failure
    except _DENIED as failure:
        raise LakeUnreadable(
            f"the catalog {name} does not accept the gateway's credentials, or denies it the table "
            f"({type(failure).__name__})"
        ) from failure
    except NotInstalledError as failure:
        raise LakeUnreadable(f"the library of the catalog {name} is not installed ({one_line(failure)})") from failure
    except unanswered() as failure:
        if any(word in str(failure) for word in _DENIED_WORDS):
            raise LakeUnreadable(
                f"the catalog {name} does not accept the gateway's credentials ({type(failure).__name__})"
            ) from failure
        raise LakeUnreadable(
            f"the catalog {name} does not answer as it should ({type(failure).__name__}); try again soon"
        ) from failure


def unanswered() -> tuple[type[Exception], ...]:
    """Return the errors of requests to catalogs; those of Glue's and Hive's libraries once these are imported."""
    of_libraries = [(sys.modules[name], errors) for name, errors in _LIBRARIES.items() if name in sys.modules]
    others = [getattr(module, error) for module, errors in of_libraries for error in errors]
    return (RESTError, requests.RequestException, SQLAlchemyError, *others)


def listing(access: CatalogAccess) -> dict[str, list[str]]:
    """Return the names of all tables by namespace, whose levels have dots in between. Raises LakeUnreadable."""
    with as_unreadable(access.name):
        catalog = opened(access)
        names_by_namespace: dict[str, list[str]] = {}
        waiting = list(catalog.list_namespaces())
        count = 0
        while waiting and count < MOST_TABLES:
            namespace = waiting.pop()
            names_by_namespace[".".join(namespace)] = names = [table[-1] for table in catalog.list_tables(namespace)]
            count += len(names) + 1
            waiting += [inner for inner in catalog.list_namespaces(namespace) if len(inner) > len(namespace)]
        return names_by_namespace


def load(place: TablePlace) -> tuple[Table, TablePlace]:
    """Return a catalog's table and where its files lie. Raises LakeUnreadable, TableGone."""
    catalog = place.catalog
    assert catalog is not None
    with as_unreadable(catalog.name):
        table = opened(catalog).load_table(place.identifier)
    foreign = [key for key in table.metadata.properties if key.startswith(FILE_PROPERTIES)]
    if foreign:
        raise LakeUnreadable(f"its property {foreign[0]} says how files are reached, which only its catalog may")
    return table, located(place, table)


def located(place: TablePlace, table: Table) -> TablePlace:
    """Return where a table's files lie, with what its catalog gives to reach them. Raises LakeUnreadable."""
    location = table.location().rstrip("/")
    if not is_remote(location):
        return replace(place, location=local_path(location))
    try:
        location = location_of(location)
    except InvalidLocation as failure:
        raise LakeUnreadable(f"its location {location:.200} cannot be read: {failure}") from failure
    store = with_given(place.access.store_of(location), location, table.io.properties)
    if store is None:
        raise LakeUnreadable(
            f"its files lie in {location}, for which the catalog gives no credentials and the settings name no store"
        )
    return replace(place, location=location, store=store)


def require_namespace(access: CatalogAccess, namespace: str, *, there: bool) -> None:
    """Make a namespace, or drop an empty one. Raises LakeUnreadable, LakeUnwritable."""
    with as_unreadable(access.name):
        catalog, levels = opened(access), tuple(namespace.split("."))
        try:
            if there:
                _require_free(levels, catalog.list_namespaces(levels[:-1]))
                catalog.create_namespace(levels)
            else:
                catalog.drop_namespace(levels)
        except NamespaceNotEmptyError as failure:
            raise LakeUnwritable(f"the namespace {namespace} has tables: drop them first") from failure
        except NamespaceAlreadyExistsError as failure:
            raise LakeUnwritable(f"there is a namespace {namespace} already") from failure


def drop(place: TablePlace) -> None:
    """Drop a catalog's table; its files stay. Raises LakeUnreadable."""
    assert place.catalog is not None
    with as_unreadable(place.catalog.name):
        opened(place.catalog).drop_table(place.identifier)


def create(place: TablePlace, schema: Any, spec: Any, properties: dict[str, str]) -> None:
    """Make a catalog's table. Raises LakeUnreadable, LakeUnwritable."""
    assert place.catalog is not None
    with as_unreadable(place.catalog.name):
        catalog = opened(place.catalog)
        _require_free(place.identifier, catalog.list_tables(place.identifier[:-1]))
        try:
            catalog.create_table(place.identifier, schema=schema, partition_spec=spec, properties=properties)
        except TableAlreadyExistsError as failure:
            raise LakeUnwritable("there is such a table already") from failure


def _require_free(identifier: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> None:
    """Raise LakeUnwritable if one of the others differs from a new name by case alone, which SQL cannot tell apart."""
    for other in others:
        if other[-1] != identifier[-1] and other[-1].lower() == identifier[-1].lower():
            raise LakeUnwritable(f"its catalog has {'.'.join(other)}, which differs by case alone: take another name")


@lru_cache(32)
def opened(access: CatalogAccess) -> Catalog:
    """Return a catalog, opened once per process."""
    properties = {**dict(access.properties), "py-io-impl": f"{CatalogIO.__module__}.{CatalogIO.__qualname__}"}
    catalog = load_catalog(access.name, type=access.type, **properties)
    catalog._load_file_io = partial(_file_io, catalog)  # type: ignore[method-assign]
    vars(catalog)["_delete_old_metadata"] = _keep  # its list names any file; VACUUM deletes the table's own
    return catalog


def _keep(*_: object) -> None:
    """Delete nothing."""


def _file_io(catalog: Catalog, properties: dict[str, str] | None = None, location: str | None = None) -> CatalogIO:
    """Return the reader and writer of files, whatever class the properties name."""
    return CatalogIO({**catalog.properties, **(properties or {})})
