"""Folders and files that only the gateway's own user may read, under any umask."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)

UMASK = 0o077
"""Umask of every process that the gateway starts."""

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_UNCHANGEABLE = {errno.EPERM: "belongs to another user", errno.EROFS: "is mounted for reading only"}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def private_folder(path: Path) -> Path:
    """Create a private folder and its parents; an existing folder is closed to others."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    close_to_others(path)
    return path


def private_file(path: Path) -> Path:
    """Create an empty private file; an existing file is closed to others."""
    try:
        os.close(os.open(path, _NEW, FILE_MODE))
    except FileExistsError:
        close_to_others(path)
    return path


def open_private(path: Path) -> IO[bytes]:
    """Open a private file for writing from its start."""
    return private_file(path).open("wb")


def write_private(path: Path, content: bytes | memoryview) -> None:
    """Write a private file as a whole."""
    try:
        file: IO[bytes] = os.fdopen(os.open(path, _NEW, FILE_MODE), "wb")  # buffered: it writes all, or raises
    except FileExistsError:
        file = open_private(path)
    with file:
        file.write(content)


def close_to_others(path: Path) -> None:
    """Remove the rights of all other users; what cannot be changed is left, with a warning."""
    status = path.stat()
    if not status.st_mode & _OTHERS:
        return
    try:
        path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    except OSError as error:
        if error.errno not in _UNCHANGEABLE:
            raise
        log.warning("%s %s, and others can read it", path, _UNCHANGEABLE[error.errno])


def open_to_others(path: Path) -> bool:
    """Return True if users other than the owner may read a file or list a folder."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
