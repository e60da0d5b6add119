"""Marks of files, by which whoever reads one again notices that it has changed."""

from __future__ import annotations

from pathlib import Path

FileMark = tuple[int, int, int] | None
"""Time of the last change in nanoseconds, bytes and number of a file; None: there is no file."""


def mark_of(path: Path) -> FileMark:
    """Return the mark of a file as it is now."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
