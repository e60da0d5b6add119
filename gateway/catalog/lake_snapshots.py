"""Snapshots of lake tables for statements: resolved once per statement, in a process of its own.

Logs and manifests were written by strangers, and a library may crash, hang or take much memory over them. The processes
keep tables open, so that a table that has not changed takes a millisecond.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.planning.pool import Planners
from gateway.planning.process import PlannerFault
from sql.errors import StatementTooComplex, TableUnreadable
from sql.tables import TableSource

if TYPE_CHECKING:  # planners import this module, and no metastore
    from gateway.planning.fairness import Requester
    from metastore.lake.resolution import PinnedState
    from metastore.lake.values import HistoryEntry, SnapshotName

log = logging.getLogger(__name__)

PROCESSES = 2
CPU_S = 60.0
"""Processor time for one table's metadata: a table of 10,000 files takes 1.5 s."""


class LakeSnapshots:
    """Resolves snapshots. Thread-safe; no process runs before the first lake table is read.

    folder: for manifests.
    wait_s: longest wait for a process.
    """

    def __init__(self, folder: Path, *, wait_s: float) -> None:
        self._folder = folder
        self._planners = Planners(size=PROCESSES, cpu_s=CPU_S, wait_s=wait_s)

    def state(self, table: TableSource, requester: Requester, name: SnapshotName | None = None) -> PinnedState:
        """Return a state of a table. name: of an older snapshot; None: the newest.

        Raises TableUnreadable, EngineBusy, StatementCancelled, DeadlineExceeded.
        """
        from metastore.lake.resolution import pin

        state: PinnedState = self._call(table, requester, pin, table, name, self._folder)
        return state

    def history(self, table: TableSource, requester: Requester) -> Sequence[HistoryEntry]:
        """Return the snapshots of a table, the newest first. Raises as ``state`` does."""
        from metastore.lake.resolution import history

        entries: Sequence[HistoryEntry] = self._call(table, requester, history, table)
        return entries

    def _call(
        self, table: TableSource, requester: Requester, function: Callable[..., object], *arguments: object
    ) -> Any:
        try:
            with self._planners.place(requester) as place:
                return place.call(function, *arguments)
        except StatementTooComplex as error:
            raise TableUnreadable(
                f"{table.name} cannot be read: reading its metadata took too much time or memory, or ended the process."
            ) from error
        except PlannerFault as fault:  # damage that a library of the formats did not foresee
            log.warning("the metadata of %s cannot be read: %s", table.name, fault)
            raise TableUnreadable(
                f"{table.name} cannot be read: its metadata is damaged; the gateway's log says how."
            ) from fault

    def close(self) -> None:
        """End the processes."""
        self._planners.close()
