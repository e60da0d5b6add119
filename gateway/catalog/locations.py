"""Checks of table locations: at registration, and again each time that a statement uses the table.

What is registered is the place itself, with every link on the way followed. A place that leads through a link later was
exchanged by somebody, and so was a table whose folder holds a link that leads out of it.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engines.files.lake_formats import lake_format, lake_table_around
from engines.files.listing import InspectionFailed, data_files
from metastore.database.connection import sqlite_file
from metastore.discovery.inspection import path_of
from metastore.objects.access import NO_OBJECTS, ObjectAccess
from metastore.objects.kinds.kind import InvalidLocation
from metastore.objects.store import is_remote, location_of
from sql.errors import LocationRefused, RootsRequired
from sql.tables import TableSource

if TYPE_CHECKING:
    from gateway.settings import Settings

SYSTEM_PLACES = tuple(map(Path, ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/boot")))
SECRETS_OF_A_USER = (  # below the home of whoever runs the gateway
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".local", ".password-store", ".netrc"),
    *(".pgpass", ".my.cnf", ".git-credentials", ".bash_history", ".python_history"),
)
IN_OWN_FOLDERS = "No table may lie in the gateway's own folders, or around them."
_SETTLED_S = 0.1  # a folder that changed this long ago may be remembered: clocks of disks are coarse

_GLOB = frozenset("*?[]{}\\")  # engines would look for other names

_Identity = tuple[int, int]  # device and inode
_Stamp = tuple[str, _Identity, int]  # path, what is there, when it changed in nanoseconds


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits that the settings put on table locations. All paths are absolute, with links followed.

    own: the gateway's folders; only tables that the gateway made itself may be read there.
    secrets: files and folders that no table may contain.
    roots: folders under which tables may be registered; empty: every place that everybody may read.
    roots_required: users log in, so that ``roots`` must not be empty.
    objects: access to the object stores in which tables may lie.
    delta_warehouse: location of the gateway's own tables there; "": there is none.
    """

    own: tuple[Path, ...]
    secrets: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()
    roots_required: bool = False
    objects: ObjectAccess = NO_OBJECTS
    delta_warehouse: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """Return the rules that follow from a gateway's settings."""
        home = Path(os.path.expanduser("~"))  # it may be unknown
        of_users, of_tls = settings.authentication.users_file, settings.tls.key or settings.tls.certificate
        files = (of_users, of_tls, settings.catalog.iceberg_secrets)
        secrets = [*SYSTEM_PLACES, *(home / name for name in SECRETS_OF_A_USER), *(file for file in files if file)]
        database = sqlite_file(settings.metastore_url)
        if database is not None:
            secrets += [database.with_name(database.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
        return cls(
            own=tuple(dict.fromkeys((_followed(settings.home), _followed(settings.warehouse)))),
            secrets=tuple(dict.fromkeys(map(_followed, secrets))),
            roots=tuple(map(_followed, settings.catalog.roots)),
            roots_required=settings.authentication.has_users,
            objects=settings.object_access,
            delta_warehouse=settings.catalog.delta_warehouse,
        )


class Locations:
    """Judges places by the rules. Thread-safe."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._in_order: dict[str, tuple[_Stamp, ...]] = {}  # folders of tables in which there was nothing to refuse
        self._lock = threading.Lock()

    @property
    def confined(self) -> bool:
        """Tell whether the settings limit tables to some folders."""
        return bool(self._rules.roots)

    def admit(self, place: Path) -> None:
        """Require that a place, with links followed, may become a table. Raises LocationRefused, InspectionFailed."""
        if self._rules.roots_required and not self._rules.roots:
            raise RootsRequired(
                "Tables can be registered once the administrator has said where they may lie: catalog.roots is not set."
            )
        self._require_free(place)
        if (place / "metadata").is_dir():  # a table of Iceberg, perhaps
            self.require_in_no_warehouse(str(place))
        self._require_no_lake_around(place)
        if os.path.exists(place):  # of what may not be looked at, the look at its files tells
            self._look_through(place.name, place)
            if not self._rules.roots:
                _require_readable_by_others(place)

    def admit_remote(self, location: str) -> str:
        """Return a location in an object store as it is registered. Raises LocationRefused, InspectionFailed."""
        try:
            canonical = location_of(location)
        except InvalidLocation as failure:
            raise InspectionFailed(f"{location!r:.200} is no location in an object store: {failure}") from failure
        self._require_store(canonical)
        own = self._rules.delta_warehouse
        if own and (f"{canonical}/".startswith(f"{own}/") or own.startswith(f"{canonical}/")):
            raise LocationRefused(IN_OWN_FOLDERS)
        if not _GLOB.isdisjoint(canonical):
            raise LocationRefused(f"The name of a table's folder holds none of {' '.join(sorted(_GLOB))}.")
        return canonical

    def require_in_no_warehouse(self, location: str) -> None:
        """Refuse an Iceberg table in a catalog's warehouse, as rights on it go by the catalog's name for it.

        Raises LocationRefused.
        """
        for catalog in self._rules.objects.catalogs:
            warehouse = catalog.warehouse.rstrip("/")
            if not is_remote(warehouse):
                warehouse = str(self.place_of(warehouse)) if warehouse.startswith(("/", "file:")) else ""
            if warehouse and f"{location}/".startswith(f"{warehouse}/"):
                raise LocationRefused(
                    f"That is in the warehouse of the catalog {catalog.name}, which names its tables: "
                    f"{catalog.name}.namespace.table."
                )

    def _require_store(self, location: str) -> None:
        if self._rules.objects.store_of(location) is None:
            prefixes = ", ".join(store.prefix for store in self._rules.objects.stores) or "none"
            raise LocationRefused(
                "Tables in object stores may lie under the prefixes that the administrator has set "
                f"(stores.NAME.prefix): {prefixes}."
            )

    def place_of(self, location: str) -> Path:
        """Return the place that a location means, with links followed. Raises InspectionFailed."""
        return _followed(path_of(location))

    @staticmethod
    def require_apart(table: TableSource, others: Iterable[TableSource]) -> None:
        """Require that no table that was registered lies at, in or around a table of a catalog. Raises LocationRefused.

        Who may use the one could read and change the other.
        """
        place = f"{table.location.rstrip('/')}/"
        for other in others:
            theirs = f"{other.location.rstrip('/')}/"
            if not other.catalog and (place.startswith(theirs) or theirs.startswith(place)):
                raise LocationRefused(
                    f"{table.name} lies where a table is registered that is not the catalog's: drop it."
                )

    def require_unchanged(self, table: TableSource, *, own: Callable[[TableSource], bool]) -> None:
        """Require that a table is still where it was registered, and that no link leads out of it.

        own: tells whether the gateway made its folder. Raises LocationRefused.
        """
        if is_remote(table.location):
            self._require_store(table.location)
            return
        if self._is_in_order(table.location):  # the same folder, whatever leads there
            return
        place = Path(table.location)
        if _followed(place) != place:
            raise LocationRefused(
                f"The place of {table.name} was exchanged: a link leads away from where it was registered. "
                "Register the table again where its files are."
            )
        if not own(table):
            try:
                self._require_free(place)
            except LocationRefused as refused:
                raise LocationRefused(f"{table.name}: {refused.message}") from refused
        self._look_through(table.name, place)

    def _require_free(self, place: Path) -> None:
        """Refuse what overlaps the gateway's own folders or a secret, in either direction, or lies under no root."""
        if any(_overlap(place, own) for own in self._rules.own):
            raise LocationRefused(IN_OWN_FOLDERS)
        for secret in self._rules.secrets:
            if _overlap(place, secret) and not any(root.is_relative_to(secret) for root in self._rules.roots):
                raise LocationRefused("No table may lie in a place of the system or of secrets, or around one.")
        if self._rules.roots and not any(place.is_relative_to(root) for root in self._rules.roots):
            roots = ", ".join(map(str, self._rules.roots))
            raise LocationRefused(f"{place} lies outside of catalog.roots ({roots}); tables may lie nowhere else.")
        if not _GLOB.isdisjoint(str(place)):
            raise LocationRefused(f"The name of a table's folder holds none of {' '.join(sorted(_GLOB))}.")

    def _require_no_lake_around(self, place: Path) -> None:
        """Refuse a part of a table of a lake format, as far up as the administrator lets tables lie."""
        if place in self._rules.roots:
            return
        lake_table = lake_table_around(place, up_to=lambda folder: folder in self._rules.roots)
        if lake_table is not None:
            folder, lake = lake_table
            raise InspectionFailed(lake.refusal(folder))

    def _look_through(self, name: str, place: Path) -> None:
        """Refuse a table that holds a link out of it, or a secret under another name; remember one that does not."""
        begun_s = time.time()
        secrets = frozenset(_identities(self._rules.secrets))
        stamps = []
        for path in _tree(place):
            try:
                status = os.lstat(path)
            except (FileNotFoundError, PermissionError):  # a moment ago it was there; or nobody here can read it
                continue
            if stat.S_ISDIR(status.st_mode) or path == str(place):
                stamps.append(_stamp(path, status))
            if stat.S_ISLNK(status.st_mode):
                target = _followed(Path(path))
                if os.path.isdir(target) or not target.is_relative_to(place):
                    raise LocationRefused(
                        f"{name} holds {os.path.basename(path)}, a link that leads out of the table's folder: put the "
                        "file itself there, or remove the link."
                    )
            if _identity(status) in secrets:
                raise LocationRefused(f"{os.path.basename(path)} of {name} is a secret of the gateway by another name.")
        settled = all(changed_ns / 1e9 + _SETTLED_S < begun_s for _, _, changed_ns in stamps)
        with self._lock:
            self._in_order.pop(str(place), None)
            if stamps and settled:
                self._in_order[str(place)] = tuple(stamps)

    def _is_in_order(self, location: str) -> bool:
        """Tell whether no folder of a table has got or lost anything since the table was looked through."""
        with self._lock:
            stamps = self._in_order.get(location)
        if stamps is None:
            return False
        try:
            return all(_stamp(stamp[0], os.lstat(stamp[0])) == stamp for stamp in stamps)
        except OSError:
            return False


def _followed(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _overlap(one: Path, other: Path) -> bool:
    """Tell whether one place is the other, or lies in it, also under another name of the same folder."""
    if one.is_relative_to(other) or other.is_relative_to(one):
        return True
    return _is_around(one, other) or _is_around(other, one)


def _is_around(outer: Path, inner: Path) -> bool:
    own = next(_identities((outer,)), None)
    return own is not None and own in _identities((inner, *inner.parents))


def _identities(paths: Iterable[Path]) -> Iterator[_Identity]:
    for path in paths:
        try:
            yield _identity(path.stat())
        except OSError:  # it is not there, or nobody can tell
            continue


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _stamp(path: str, status: os.stat_result) -> _Stamp:
    return path, _identity(status), status.st_ctime_ns


def _tree(place: Path) -> Iterator[str]:
    """Yield a place and all that lies below it and may be read; engines pass over names that begin with a dot."""
    waiting = [str(place)]
    while waiting:
        folder = waiting.pop()
        yield folder
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry.path
        except (
            NotADirectoryError,
            FileNotFoundError,
            PermissionError,
        ):  # a table of one file; or it was there a moment ago
            continue


def _require_readable_by_others(place: Path) -> None:
    """Refuse files that their owner hides from others. Raises LocationRefused, InspectionFailed."""
    is_lake = place.is_dir() and lake_format(place, os.listdir(place)) is not None
    files = filter(Path.is_file, map(Path, _tree(place))) if is_lake else (file.path for file in data_files(place))
    for file in files:
        if not os.stat(file).st_mode & stat.S_IROTH:
            raise LocationRefused(
                f"{file.name} is hidden from other users of this machine; where that is wanted, the administrator "
                "names the folder in catalog.roots."
            )
