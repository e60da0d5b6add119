"""A statement that a client started and holds until it lets go: how it ended, what it wrote, its rows in the spool.

Rows that no other engine's can replace are there while it still runs (``execution/streaming/early_result.py``).
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager

from gateway.commands.answers import writes_rows
from gateway.errors import NotFinished, QueryFailed, ResultGone
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.results import ResultFile, Spool
from gateway.execution.streaming.early_result import EarlyResult
from gateway.statements.statement import Run
from metastore.records import QueryRecord, QueryState


class StatementRows:
    """A query's rows, in the spool or still to come. What reads them need not know the operation that they are of."""

    def __init__(self, run: Run, coordinator: Coordinator, spool: Spool) -> None:
        self._run = run
        self._coordinator = coordinator
        self._spool = spool

    def early(self) -> EarlyResult | None:
        """Return those that can be read while the query runs, if there are any."""
        early = self._coordinator.early_results.find(self._run.id)
        return early if early is not None and early.is_readable else None

    def open(self) -> AbstractContextManager[ResultFile]:
        """Read them from the first one. Raises ResultGone."""
        early = self.early()
        return self._spool.open(self._run.id) if early is None else early.open()


class StatementOperation:
    """One query, with the result that it leaves; attempts on several engines are one operation. Thread-safe."""

    def __init__(self, run: Run, coordinator: Coordinator, spool: Spool) -> None:
        self.run = run
        self._coordinator = coordinator
        self._spool = spool
        self.rows = StatementRows(run, coordinator, spool)

    @property
    def done(self) -> Future[QueryRecord]:
        """Complete once the query has ended, however."""
        return self.run.done

    def require_finished(self) -> None:
        """Raise QueryFailed with the error that the query ended with, or NotFinished."""
        record = self.run.record
        if record.error is not None:
            raise QueryFailed(record.error)
        if record.state is not QueryState.FINISHED:
            raise NotFinished(f"The query is {record.state}; it has no result.")

    @property
    def has_early_rows(self) -> bool:
        """Whether the query runs, and rows of it can be read."""
        return self.rows.early() is not None

    @property
    def ready(self) -> Future[None]:
        """Complete once rows can be read, or the query has ended, however."""
        return self.rows_after(0)

    def rows_after(self, position: int) -> Future[None]:
        """Return what completes once rows behind a place in the file can be read, or the query has ended."""
        early = self._coordinator.early_results.find(self.run.id)
        return self.run.ready if early is None else early.rows_after(position)

    def require_rows(self) -> None:
        """Raise QueryFailed with the error that the query ended with, or NotFinished where no rows can be read yet."""
        if not self.has_early_rows:
            self.require_finished()

    def rows_written(self) -> int | None:
        """Return how many rows the statement wrote, None where that is not known or it writes none."""
        if not writes_rows(self.run.command) or self.run.record.state is not QueryState.FINISHED:
            return None
        try:
            page = self._spool.page(self.run.id, max_rows=1)
        except ResultGone:
            return None
        written: int | str | None = page.batches[0].column(0)[0].as_py()
        return written if isinstance(written, int) else None  # else it is told in words, as Impala does

    def cancel(self) -> None:
        """Cancel the query."""
        self._coordinator.cancel(self.run.id)

    def close(self) -> None:
        """Cancel the query, or delete its rows, which nobody can fetch any more."""
        if self.done.done():
            self._spool.delete(self.run.id)
        else:
            self.cancel()
            self.done.add_done_callback(lambda _: self._spool.delete(self.run.id))
