"""A statement that a client started, with its result, until the client closes it.

Rows that no other engine can replace any more are readable while it runs (``execution/streaming/early_result.py``).
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager

from gateway.errors import NotFinished, QueryFailed, ResultGone
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.results import ResultFile, Spool
from gateway.execution.streaming.early_result import EarlyResult
from gateway.statements.statement import Run
from metastore.records import QueryRecord, QueryState

GONE = "The gateway that had the rows is gone, and some of them may have been fetched; send the statement again."


class StatementRows:
    """A query's rows, in the spool or still to come. Their readers need no reference to the operation."""

    def __init__(self, run: Run, coordinator: Coordinator, spool: Spool, *, are_gone: bool = False) -> None:
        self._run = run
        self._coordinator = coordinator
        self._spool = spool
        self._are_gone = are_gone

    def early(self) -> EarlyResult | None:
        """Return rows that can be read while the query runs, if there are any."""
        early = self._coordinator.early_results.find(self._run.id)
        return early if early is not None and early.is_readable else None

    def open(self) -> AbstractContextManager[ResultFile]:
        """Open the rows, from the first one. Raises ResultGone."""
        if self._are_gone:
            raise ResultGone(GONE)
        early = self.early()
        return self._spool.open(self._run.id) if early is None else early.open()


class StatementOperation:
    """One query with its result; attempts on several engines are one operation. Thread-safe.

    rows_gone: its client may have seen rows at a gateway that is gone, so that these would come again.
    """

    def __init__(self, run: Run, coordinator: Coordinator, spool: Spool, *, rows_gone: bool = False) -> None:
        self.run = run
        self._coordinator = coordinator
        self._spool = spool
        self.rows = StatementRows(run, coordinator, spool, are_gone=rows_gone)

    @property
    def done(self) -> Future[QueryRecord]:
        """Completes when the query ends."""
        return self.run.done

    def require_finished(self) -> None:
        """Raise QueryFailed where the query failed, or NotFinished."""
        record = self.run.record
        if record.error is not None:
            raise QueryFailed(record.error)
        if record.state is not QueryState.FINISHED:
            raise NotFinished(f"The query is {record.state}; it has no result.")

    @property
    def has_early_rows(self) -> bool:
        """Tell whether the query runs and its rows can be read already."""
        return self.rows.early() is not None

    @property
    def ready(self) -> Future[None]:
        """Completes when rows can be read, or the query ends."""
        return self.rows_after(0)

    def rows_after(self, position: int) -> Future[None]:
        """Return a future that completes when rows after a place in the file can be read, or the query ends."""
        early = self._coordinator.early_results.find(self.run.id)
        return self.run.ready if early is None else early.rows_after(position)

    def require_here(self) -> None:
        """Raise NotFinished where the query runs at another gateway, so that nothing here completes with it."""
        if self.run.is_lost and not self.done.done():
            raise NotFinished("The statement runs again at another gateway; ask for its state until it has ended.")

    def require_rows(self) -> None:
        """Raise QueryFailed where the query failed, or NotFinished where no rows can be read yet."""
        if not self.has_early_rows:
            self.require_finished()

    def rows_written(self) -> int | None:
        """Return the number of rows that the statement wrote; None: it does not write, or it is not known."""
        command = self.run.command
        if command is None or not command.writes_rows or self.run.record.state is not QueryState.FINISHED:
            return None
        try:
            page = self._spool.page(self.run.id, max_rows=1)
        except ResultGone:
            return None
        written: int | str | None = page.batches[0].column(0)[0].as_py()
        return written if isinstance(written, int) else None  # otherwise a sentence, as Impala returns

    def cancel(self) -> None:
        """Cancel the query."""
        self._coordinator.cancel(self.run.id)

    def close(self) -> None:
        """Cancel the query, or delete its rows."""
        if self.done.done():
            self._spool.delete(self.run.id)
        else:
            self.cancel()
            self.done.add_done_callback(lambda _: self._spool.delete(self.run.id))
