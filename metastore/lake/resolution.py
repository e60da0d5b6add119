"""START HERE: a state of a lake table becomes a manifest, which is written once.

``pin`` and ``history`` take values alone: the gateway runs them in processes of their own, as metadata comes from
strangers.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from metastore.lake.values import (
    HistoryEntry,
    LakeState,
    LakeUnreadable,
    ResolvedSnapshot,
    SnapshotName,
    require_within,
)
from sql.errors import TableUnreadable
from sql.tables import LAKE_FORMATS, Column, Snapshot, TableSource

KEEP_S = 86_400.0
"""Age from which a manifest is deleted that no statement asked for since; a statement may live for hours."""


@dataclass(frozen=True, slots=True)
class PinnedState:
    """A state of a lake table with its manifest. bytes: of all data files."""

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...]
    snapshot: Snapshot
    files: int
    bytes: int


_pinned: LRUCache[str, PinnedState] = LRUCache(1_024)
"""States by their keys, as long as this process lives."""


def pin(table: TableSource, name: SnapshotName | None, folder: Path) -> PinnedState:
    """Return a state of a registered table. folder: for manifests. Raises TableUnreadable."""
    with _as_table_unreadable(table):
        return pin_location(table.format, table.location, name, folder)


def history(table: TableSource) -> Sequence[HistoryEntry]:
    """Return the snapshots of a registered table, the newest first. Raises TableUnreadable."""
    with _as_table_unreadable(table):
        entries: Sequence[HistoryEntry] = module_of(table.format).history(table.location)
        return entries


@contextmanager
def _as_table_unreadable(table: TableSource) -> Iterator[None]:
    """Raise TableUnreadable in the place of LakeUnreadable, without the table's location."""
    try:
        yield
    except LakeUnreadable as failure:
        reason = str(failure).replace(table.location, table.name)
        raise TableUnreadable(f"{table.name} cannot be read: {reason}.") from failure


def pin_location(format: str, location: str, name: SnapshotName | None, folder: Path) -> PinnedState:
    """Return a state of the table in a folder. Raises LakeUnreadable."""
    state = state_of(format, location, name)
    earlier = _pinned.get(state.key)
    if earlier is not None:
        with suppress(FileNotFoundError):
            os.utime(earlier.snapshot.manifest)
            return earlier
    resolved = load(state, location)
    manifest = folder / f"{hashlib.sha256(state.key.encode()).hexdigest()[:32]}.arrow"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    resolved.manifest.write(manifest)
    _delete_old(folder)
    pinned = PinnedState(
        resolved.columns,
        resolved.partition_columns,
        Snapshot(state.id, str(manifest), resolved.manifest.rows),
        len(resolved.manifest.files),
        sum(file.bytes for file in resolved.manifest.files),
    )
    _pinned[state.key] = pinned
    return pinned


def state_of(format: str, location: str, name: SnapshotName | None = None) -> LakeState:
    """Return a state of the table in a folder; None: the newest. Raises LakeUnreadable."""
    state: LakeState = module_of(format).state(location, name)
    return state


def module_of(format: str, *, writing: bool = False) -> Any:
    """Return the module that reads tables of a format, or writes to them. Raises LakeUnreadable."""
    if format not in LAKE_FORMATS:
        raise ValueError(f"{format} is no lake format")
    try:
        return importlib.import_module(f"metastore.lake.{format}{'_writing' if writing else ''}")
    except ModuleNotFoundError as failure:
        raise LakeUnreadable(
            f"the library of {format} is not installed: pip install 'fusion-sql-gateway[lake]'"
        ) from failure


def load(state: LakeState, location: str) -> ResolvedSnapshot:
    """Return the snapshot of a state, all files of which lie in the table's folder. Raises LakeUnreadable."""
    resolved = state.load()
    for file in resolved.manifest.files:
        require_within(location, file.path)
    return resolved


def _delete_old(folder: Path) -> None:
    before_s = time.time() - KEEP_S
    for path in folder.glob("*.arrow"):
        try:
            if path.stat().st_mtime < before_s:
                path.unlink()
        except FileNotFoundError:  # another process was faster
            continue
