"""Iceberg catalogs that there are: those of the settings, and those that commands add while the gateway runs.

Operators may add catalogs, and they are not administrators. An added catalog lies at an address that the settings
allow, has properties of a list, and names where its secret is: no statement can make the gateway send a secret of the
settings, open a file or import a class that the administrator has not meant for this.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.catalog.snapshot import CatalogView
from gateway.settings import CATALOG_NAME, LakeCatalogSettings, Settings, access_to_catalog
from metastore.objects.access import CatalogAccess, ObjectAccess
from metastore.objects.kinds.kind import InvalidLocation
from metastore.objects.store import is_remote, location_of
from metastore.records import AddedCatalog
from sql.errors import NotAllowed
from sql.names import CATALOG

TYPES = {"rest": ("http", "https"), "hive": ("thrift",)}
"""Types of catalogs that may be added, with the schemes of their addresses.

The address of `sql` is a database's, with its password or its file; `glue` has none, and acts as the gateway itself.
"""
PROPERTIES = ("audience", "hive.hive2-compatible", "resource", "rest-page-size", "scope", "snapshot-loading-mode")
"""Properties of pyiceberg that an added catalog may have: none names a class, an address or a file."""
_SECRETS = ("credential", "token", "secret", "password", "key")
_VARIABLE = re.compile(r"FUSION_CATALOGS_[A-Z0-9][A-Z0-9_]{0,99}")  # with __, it is a catalog's of the settings
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_ADDRESS = re.compile(r"[a-z]+://[A-Za-z0-9.:/_~+,=\[\]-]+")
"""No login, query, escape or backslash: parsers of addresses disagree about these."""
LONGEST_SECRET = 65_536


@dataclass(frozen=True, slots=True)
class KnownCatalog:
    """One catalog.

    max_age_s: of the list of its tables.
    added: by a command; None: it is of the settings.
    problem: reason why it cannot be asked; "": it can.
    """

    access: CatalogAccess
    max_age_s: float
    added: AddedCatalog | None = None
    problem: str = ""

    @property
    def remedy(self) -> str:
        """Remedy for a person when it cannot be asked."""
        if self.added is None:
            return of_settings(self.access.name)
        return "correct its secret or its server, or drop it and add it again"


class KnownCatalogs:
    """All catalogs. Thread-safe. catalog: of the tables, which tells the added ones."""

    def __init__(self, settings: Settings, catalog: CatalogView) -> None:
        self._settings = settings
        self._catalog = catalog
        self._lock = threading.Lock()
        self._added: Mapping[str, AddedCatalog] = {}
        self._access = settings.object_access
        self._of_settings = {
            access.name: KnownCatalog(access, settings.catalogs[access.name].max_age_s)
            for access in self._access.catalogs
        }
        self._all = self._of_settings

    def all(self) -> Mapping[str, KnownCatalog]:
        """Return the catalogs by name. Of two with one name, that of the settings is taken."""
        added = self._catalog.latest.catalogs
        with self._lock:
            if added is not self._added:
                self._added = added
                self._all = {name: self.built(row) for name, row in added.items()} | self._of_settings
                ever = {access.name: access for access in self._access.catalogs}  # running statements finish
                ever |= {name: one.access for name, one in self._all.items() if not one.problem}
                self._access = replace(self._access, catalogs=tuple(ever.values()))
            return self._all

    def access(self) -> ObjectAccess:
        """Return the access to stores and catalogs, also to those that were dropped since the start."""
        self.all()
        with self._lock:
            return self._access

    def built(self, added: AddedCatalog) -> KnownCatalog:
        """Return how an added catalog is reached, with its secret as it is now."""
        secret, problem = "", ""
        try:
            self.require_allowed(added)
            secret = self._secret(added)
        except NotAllowed as refusal:  # the settings are other ones than when it was added
            problem = refusal.message.rstrip(".")
        is_pair = ":" in secret
        section = LakeCatalogSettings(
            type="hive" if added.type == "hive" else "rest",
            uri=SecretStr(added.uri),
            warehouse=added.warehouse,
            credential=SecretStr(secret) if is_pair else None,
            token=SecretStr(secret) if secret and not is_pair else None,
            properties=dict(added.properties),
        )
        access = access_to_catalog(added.name, section, self._settings.object_access.stores)
        return KnownCatalog(access, section.max_age_s, added, problem)

    def require_allowed(self, added: AddedCatalog) -> None:
        """Raise NotAllowed for a catalog that must not be added."""
        if added.name == CATALOG:
            raise NotAllowed(f"{CATALOG} is the gateway's own catalog: give this one another name.")
        if not re.fullmatch(CATALOG_NAME, added.name):
            raise NotAllowed("The name of a catalog has small letters, digits and _, at most 63, and begins with one.")
        for key in added.properties:
            require_no_secret(key)
            if key not in PROPERTIES:
                raise NotAllowed(
                    f"{key:.80} is not a property that a command may give a catalog, which takes "
                    f"{', '.join(PROPERTIES)}: name the catalog in fusion.toml (catalogs.{added.name})."
                )
        if added.type not in TYPES:
            raise NotAllowed(
                f"A command adds catalogs of the types {' and '.join(TYPES)}, not {added.type:.20}: name this one in "
                f"fusion.toml (catalogs.{added.name})."
            )
        if added.type == "hive" and added.warehouse and not self._is_in_store(added.warehouse):
            raise NotAllowed(
                "A catalog of the type hive that a command adds has its warehouse in an object store of the settings "
                "(stores.NAME.prefix)."
            )
        if not added.uri:
            raise NotAllowed("A catalog has an address: WITH (type = 'rest', uri = 'https://...').")
        allowed = self._settings.catalog.iceberg_uris
        if not any(_is_under(added.uri, prefix, TYPES[added.type]) for prefix in allowed):
            raise NotAllowed(
                f"No catalog may be added at {added.uri:.200}: the settings allow "
                f"{', '.join(allowed) or 'no address'} (catalog.iceberg_uris). Ask the administrator to name it there."
            )

    def _is_in_store(self, location: str) -> bool:
        try:
            return is_remote(location) and self._settings.object_access.store_of(location_of(location)) is not None
        except InvalidLocation:
            return False

    def _secret(self, added: AddedCatalog) -> str:
        """Return the secret of an added catalog; "": it has none. Raises NotAllowed."""
        if added.credential_env and added.credential_file:
            raise NotAllowed("A catalog has a credential_env or a credential_file, not both.")
        if added.credential_env:
            if not _VARIABLE.fullmatch(added.credential_env):
                raise NotAllowed("A credential_env is a variable of the gateway named FUSION_CATALOGS_X.")
            secret = os.environ.get(added.credential_env, "").strip()
            if not secret:
                raise NotAllowed(f"The gateway has no variable {added.credential_env}: set it, and start it again.")
            return secret
        if not added.credential_file:
            return ""
        folder = self._settings.catalog.iceberg_secrets
        if folder is None or not _FILE.fullmatch(added.credential_file):
            raise NotAllowed("A credential_file is the name of a file in the folder catalog.iceberg_secrets.")
        try:
            return _content(folder / added.credential_file)
        except (OSError, UnicodeDecodeError):
            raise NotAllowed(
                f"The file {added.credential_file} of catalog.iceberg_secrets cannot be read: it is a file, not a "
                f"link, of at most {LONGEST_SECRET:,} bytes of text."
            ) from None


def of_settings(name: str) -> str:
    """Return the remedy for a catalog of the settings."""
    return f"see catalogs.{name} in fusion.toml"


def is_secret(key: str) -> bool:
    """Tell whether a property's name says that its value is a secret."""
    return any(word in key.lower() for word in _SECRETS)


def require_no_secret(key: str) -> None:
    """Raise NotAllowed for a property whose name says that its value is a secret."""
    if is_secret(key):
        raise NotAllowed(
            f"{key:.80} would be a secret in a statement, which is kept on record: change that secret now, put it into "
            "a variable FUSION_CATALOGS_X of the gateway or a file of catalog.iceberg_secrets, and name that as "
            "credential_env or credential_file."
        )


def _is_under(uri: str, prefix: str, schemes: tuple[str, ...]) -> bool:
    """Tell whether an address lies under one that the settings allow."""
    if not _ADDRESS.fullmatch(uri) or "/." in uri:
        return False
    try:
        (wanted, allowed) = (urlsplit(one.rstrip("/") + "/") for one in (uri, prefix))
        same = (wanted.scheme, wanted.hostname, wanted.port) == (allowed.scheme, allowed.hostname, allowed.port)
    except ValueError:
        return False
    return same and wanted.scheme in schemes and bool(wanted.hostname) and wanted.path.startswith(allowed.path)


def _content(file: Path) -> str:
    """Return the text of a file that is no link. Raises OSError, UnicodeDecodeError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as opened:
        content = opened.read(LONGEST_SECRET + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    text = content.decode().strip()
    if not text or len(content) > LONGEST_SECRET:
        raise OSError(f"{file} holds no secret")
    return text
