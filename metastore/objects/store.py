"""Locations in object stores, of whatever kind: their only form, their copies here, and the store that holds them.

START HERE: ``KINDS``; all that is particular to a kind is in its module (``kinds/``), found by a location's scheme.
"""

from __future__ import annotations

from pathlib import Path

from metastore.objects.kinds.azure import AzureStore
from metastore.objects.kinds.gcs import GcsStore
from metastore.objects.kinds.kind import InvalidLocation, ObjectStore
from metastore.objects.kinds.s3 import S3Store

KINDS: tuple[type[ObjectStore], ...] = (S3Store, AzureStore, GcsStore)
_BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.SCHEMES}
FILE_PROPERTIES = tuple(sorted({f"{name.partition('.')[0]}." for kind in KINDS for name in kind.PROPERTIES}))
"""First parts of pyiceberg's properties that say how files are reached."""


def is_remote(location: str) -> bool:
    """Return True for a location in an object store."""
    return "://" in location and location.partition("://")[0].lower() in _BY_SCHEME


def kind_of(location: str) -> type[ObjectStore]:
    """Return the kind of store that a location lies in. Raises InvalidLocation."""
    kind = _BY_SCHEME.get(location.partition("://")[0].lower())
    if kind is None:
        raise InvalidLocation(f"give {' or '.join(kind.EXAMPLE for kind in KINDS)}")
    return kind


def location_of(text: str) -> str:
    """Return a location in its only form, such as ``s3://bucket/a/b``. Raises InvalidLocation."""
    scheme, _, rest = text.rstrip("/").partition("://")
    return kind_of(text).canonical(scheme.lower(), rest)


def key_of(location: str) -> str:
    """Return a location as a path of its store's file system: ``bucket/a/b``. Raises InvalidLocation."""
    return kind_of(location).key(location_of(location))


def copy_of(location: str, folder: Path, catalog: str = "") -> Path:
    """Return the path of an object's copy. Raises InvalidLocation.

    folder: of all copies.
    catalog: that says how the object is reached, as another one may mean another object; "": the settings say it.
    """
    scheme, _, rest = location_of(location).partition("://")
    return folder / (f"{scheme}@{catalog}" if catalog else scheme) / rest


def origin_of(copy: Path, folder: Path) -> str:
    """Return the location of the object whose copy has a path."""
    reached, *steps = copy.relative_to(folder).parts
    return f"{reached.partition('@')[0]}://{'/'.join(steps)}"
