"""Folders held open by descriptor: operations below one never follow links that somebody puts in the way.

Every step of a path is opened by itself, without following a link, below the step before it. A path that leads
through a link is an error, never another place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Self

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # needs no right to list
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RIGHTS = 0o2777  # with the group that new files inherit


class Folder:
    """A folder by its descriptor. Raises OSError for whatever is not there or leads through a link.

    Paths of methods are below it, of plain names with slashes between them.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Open an absolute path."""
        if not path.is_absolute():
            raise OSError(errno.EINVAL, "not an absolute path", str(path))
        steps = path.parts[1:]
        descriptor = os.open(path.anchor, _THROUGH if steps else _STEP)
        try:
            for depth, step in enumerate(steps, start=1):
                descriptor = _entered(descriptor, step, _STEP if depth == len(steps) else _THROUGH)
            yield cls(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def parent_of(self, path: str, *, mode: int | None = None) -> Iterator[tuple[int, str]]:
        """Open the folder that a path below lies in; yields its descriptor and the path's last name.

        mode: of folders that are made on the way; without one, none is made.
        """
        *steps, name = steps_of(path)
        descriptor = os.dup(self.descriptor)
        try:
            for step in steps:
                if mode is not None:
                    _make(descriptor, step, mode)
                descriptor = _entered(descriptor, step, _STEP)
            yield descriptor, name
        finally:
            os.close(descriptor)

    def mode(self) -> int:
        """Return the rights of the folder."""
        return stat.S_IMODE(os.fstat(self.descriptor).st_mode) & _RIGHTS

    def has(self, path: str) -> bool:
        """Tell whether there is a folder at a path, and no link."""
        try:
            with self.parent_of(path) as (parent, name):
                return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def rename(self, name: str, new: str) -> None:
        """Give something in this very folder another name."""
        os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def move(self, path: str, place: str, *, folder_mode: int, file_mode: int) -> bool:
        """Move a plain file, with these rights, into the place of what is there; False where there is no such file."""
        try:
            with self.parent_of(path) as (source, name):
                _set_rights(source, name, file_mode)
                with self.parent_of(place, mode=folder_mode) as (target, new):
                    os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
        except FileNotFoundError:
            return False
        return True

    def unlink(self, path: str) -> None:
        """Delete a file, or a link instead of what it leads to; where there is none, nothing happens."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self.parent_of(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def remove_tree(self, name: str) -> None:
        """Delete a folder in this very folder with all that is in it; where there is none, nothing happens."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(name, dir_fd=self.descriptor)


def set_rights(path: Path, *, folder_mode: int, file_mode: int) -> None:
    """Give these rights to a folder and all that is in it, as far as it is ours."""
    with Folder.opened(path) as folder:
        for _, _, files, descriptor in os.fwalk(".", dir_fd=folder.descriptor):
            with contextlib.suppress(PermissionError):  # an engine of another user made it
                os.fchmod(descriptor, folder_mode)
            for name in files:
                _set_rights(descriptor, name, file_mode)


def remove_folder(path: Path) -> bool:
    """Delete a folder with all that is in it; returns whether it is gone. Links are neither followed nor deleted."""
    try:
        with Folder.opened(path.parent) as parent:
            parent.remove_tree(path.name)
    except FileNotFoundError:  # nor is the folder around it
        return False
    return True


def steps_of(path: str) -> tuple[str, ...]:
    """Return the names of a path below a folder. Raises OSError for one that would leave it."""
    steps = PurePosixPath(path).parts
    if not steps or any(step in ("/", "..", ".") or "\0" in step for step in steps):
        raise OSError(errno.EINVAL, "not a path below its folder", path)
    return steps


def _entered(descriptor: int, step: str, flags: int) -> int:
    """Go one step down; the descriptor that was is closed. Raises NotADirectoryError for a link."""
    try:
        entered = os.open(step, flags, dir_fd=descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP:  # as some systems say of a link
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), step) from error
        raise
    os.close(descriptor)
    return entered


def _make(descriptor: int, name: str, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=descriptor)
    except FileExistsError:
        return
    made = os.open(name, _STEP, dir_fd=descriptor)  # the umask took some of the rights away
    try:
        os.fchmod(made, mode)
    finally:
        os.close(made)


def _set_rights(descriptor: int, name: str, mode: int) -> None:
    if not stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
        raise OSError(errno.EINVAL, "not a plain file", name)
    with contextlib.suppress(PermissionError):  # an engine of another user wrote it
        file = os.open(name, _FILE, dir_fd=descriptor)
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)
