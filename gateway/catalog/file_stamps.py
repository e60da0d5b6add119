"""Stamps of all files of some tables at one moment: a later comparison shows whether any has changed.

A file is taken to be the same while its device, inode, size, time of change and time of its last status change are: the
last one nobody can set back. A folder's own times tell of names that come and go. What has changed a moment ago may
change again within the same tick of the disk's clock, so that nothing is said of it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST_FILES = 1 << 16  # with their folders: each is looked at for each statement
SETTLED_S = 2.0  # as coarse as the clock of any disk that we know of
_HIDDEN = "."  # which no engine reads; the names that begin with _ some do

_Stamp = tuple[int, int, int, int, int]  # device, inode, bytes, changed and status changed in nanoseconds


class _Unclear(Exception):
    """The location holds something else than plain files and folders, or too many of them."""


@dataclass(frozen=True, slots=True)
class FileStamps:
    """Paths of files and folders, each with what was there."""

    stamps: tuple[tuple[str, _Stamp], ...]

    def are_unchanged(self) -> bool:
        """Tell whether no file has changed."""
        try:
            return all(_stamp(os.stat(path)) == stamp for path, stamp in self.stamps)
        except OSError:
            return False


def files_at(locations: Iterable[str], *, settled_s: float = SETTLED_S) -> FileStamps | None:
    """Return stamps of the files below some locations; None: unreadable, too many, or changed just now."""
    begun_ns = time.time_ns()
    stamps = list[tuple[str, _Stamp]]()
    try:
        for location in dict.fromkeys(locations):
            for stamp in _below(location):
                stamps.append(stamp)
                if len(stamps) > MOST_FILES:
                    return None
    except (OSError, _Unclear):
        return None
    newest_ns = max((max(changed_ns, status_ns) for _, (*_, changed_ns, status_ns) in stamps), default=0)
    return FileStamps(tuple(stamps)) if newest_ns + settled_s * 1e9 < begun_ns else None


def _below(location: str) -> Iterator[tuple[str, _Stamp]]:
    """Yield a place and all that lies below it, each folder before what is in it."""
    waiting = [location]
    while waiting:
        path = waiting.pop()
        status = os.stat(path)
        yield path, _stamp(status)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.startswith(_HIDDEN):
                        continue
                    if entry.is_symlink() and entry.is_dir():
                        raise _Unclear
                    waiting.append(entry.path)
        elif not stat.S_ISREG(status.st_mode):
            raise _Unclear


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
