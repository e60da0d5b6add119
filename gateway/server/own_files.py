"""The gateway's own files: nobody else on the machine may read them, and of files that are not its own it warns."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from engines.machine.private_files import close_to_others, open_to_others, private_folder
from gateway.http.forwarding.siblings import SOCKETS
from gateway.server.heartbeat import ID_FILE
from gateway.server.startup import ADDRESS_FILE, LOCK_FILE, StartFailed
from gateway.settings import Settings

OWN_NAMES = (  # what the gateway makes in its home folder; other things there are somebody's who put them there
    *("results", "jobs", "spark", "warehouse", "snapshots", "fusion.toml", ADDRESS_FILE, ID_FILE, LOCK_FILE, SOCKETS),
    *("metastore.db", "metastore.db-wal", "metastore.db-shm", "metastore.db-journal"),
    *("results.db", "results.db-wal", "results.db-shm", "results.db.broken"),
)


class HomeShared(StartFailed):
    """The home folder is one in which everybody writes, such as /tmp."""


def close_home(settings: Settings) -> None:
    """Make the home folder, or close one that is there with all that an earlier release made. Raises HomeShared."""
    home = settings.home
    if home.exists() and home.stat().st_mode & stat.S_ISVTX:
        raise HomeShared(f"{home} is a folder that everybody shares; choose another --home, such as {home / 'fusion'}")
    private_folder(home)
    for name in OWN_NAMES:
        for path in _plain(home / name):
            with contextlib.suppress(FileNotFoundError):
                close_to_others(path)


def exposed(settings: Settings) -> list[str]:
    """Return a warning for each secret that others may read."""
    secrets = {
        "The users file": settings.authentication.users_file,
        "The keytab": settings.authentication.kerberos.keytab,
        "The key of the certificate": settings.tls.key or settings.tls.certificate,
    }
    warnings = []
    for what, file in secrets.items():
        with contextlib.suppress(OSError):  # what is missing is told elsewhere
            if file is not None and open_to_others(file):
                warnings.append(f"{what} {file} can be read by other users of this machine: chmod 600 {file}")
    return warnings


def roots_at_fault(settings: Settings) -> list[str]:
    """Return a warning for each way in which ``catalog.roots`` keeps tables out."""
    roots, own = settings.catalog.roots, settings.home.resolve()
    warnings = []
    if settings.authentication.has_users and not roots:
        warnings.append("Users log in, but catalog.roots is not set: no table can be registered until it is")
    for root in roots:
        if root.resolve().is_relative_to(own):
            warnings.append(
                f"catalog.roots names {root}, which is in the home folder: no table can be registered there"
            )
        elif not root.is_dir():
            warnings.append(f"catalog.roots names {root}, which is no folder here")
    return warnings


def _plain(path: Path) -> Iterator[Path]:
    """Yield a file, or a folder with all that is in it; no links."""
    if path.is_symlink() or not path.exists():
        return
    yield path
    if not path.is_dir():
        return
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            entry = Path(place) / name
            if not entry.is_symlink():
                yield entry
