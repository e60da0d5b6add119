"""Attempts: a query on an engine, a write, or a command that the gateway runs itself.

Whatever an attempt does, it ends as an ``Outcome``: with its rows in the spool, or with the error that it failed with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from engines.compiled import CompiledStatement
from engines.errors import DeadlineExceeded, EngineError, MemoryExceeded, StatementCancelled, UserRefused
from engines.protocol import Actuals, Impersonator, ResultStream, Writer, WriteTarget, snapshots_of, unwatched
from gateway.catalog.readable_files import require_present, require_unreplaced
from gateway.catalog.registration import Registration
from gateway.commands.command import RunnableCommand, Write
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.services import CommandServices
from gateway.errors import ResultError
from gateway.execution.failover import PlannedAttempt
from gateway.execution.lake.writer import TRIES
from gateway.execution.memory_watch import MemoryWatch
from gateway.execution.records.query_log import QueryLog, now
from gateway.execution.spooling.results import Spool, SpooledResult
from gateway.execution.streaming.early_result import EarlyResult
from gateway.execution.writing import TableWriter
from gateway.failures import failure_of
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.router import Router
from gateway.security.principals import Principal
from gateway.statements.stages import Stage
from gateway.statements.statement import Admitted, Run, WaitsFor
from metastore.records import Attempt, Misestimate, QueryState
from sql.errors import FusionError, TableChangedConcurrently
from sql.names import base_name
from sql.tables import TableSource

WRITTEN = "The write is done, do not send it again; only its number of rows could not be kept."


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an attempt: a result, or an error."""

    attempt: Attempt
    result: SpooledResult | None = None
    error: FusionError | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    result: SpooledResult
    actuals: Actuals | None = None


@dataclass(slots=True)
class _Granted:
    """Resources of an attempt on an engine.

    admitted: admission with the lease; None: it still waits.
    memory: watch that raises its lease; None: the engine spills.
    """

    admitted: Admitted | None = None
    memory: MemoryWatch | None = None

    def noted(self, attempt: Attempt) -> Attempt:
        """Return the attempt with its resources. The limit that it had to fit into is its lease, if that bound it."""
        lease_bytes, expected = self.memory.leased_bytes if self.memory else None, attempt.expected
        bound = lease_bytes is not None and (attempt.peak_bytes or 0) <= lease_bytes
        if bound and expected.limit_bytes is not None:
            expected = replace(expected, limit_bytes=lease_bytes)
        waited_s, threads = (self.admitted.waited_s, self.admitted.threads) if self.admitted else (0.0, None)
        return replace(attempt, waited_s=waited_s, lease_bytes=lease_bytes, threads=threads, expected=expected)


class Executor:
    """Runs attempts. Thread-safe. misestimated: function to call with the tables of a misestimated statement."""

    def __init__(
        self,
        *,
        engines: EngineRegistry,
        admission: Admission,
        router: Router,
        services: Callable[[Run], CommandServices],
        writer: TableWriter,
        registration: Registration,
        spool: Spool,
        query_log: QueryLog,
        misestimated: Callable[[Sequence[str]], None],
        queue_s: float,
    ) -> None:
        self._engines = engines
        self._admission = admission
        self._router = router
        self._services = services
        self._writer = writer
        self._registration = registration
        self._spool = spool
        self._log = query_log
        self._misestimated = misestimated
        self._queue_s = queue_s

    def query(
        self,
        run: Run,
        query: CompiledStatement,
        planned: PlannedAttempt,
        attempt: Attempt,
        *,
        early: EarlyResult | None,
        wait_s: float,
    ) -> Outcome:
        """Run a query on an engine, and record its peak or misestimate.

        early: takes the rows, which clients may read while it runs; None: they are read at its end.
        wait_s: longest wait for a slot.
        """
        granted = _Granted()
        outcome = _carried_out(attempt, partial(self._query, run, query, planned, granted, early, wait_s))
        outcome = replace(outcome, attempt=granted.noted(outcome.attempt))
        self._learn(run, query, outcome)
        return outcome

    def _learn(self, run: Run, query: CompiledStatement, outcome: Outcome) -> None:
        """Update the learned corrections from an attempt, and record a misestimate."""
        error, lease_bytes = outcome.error, outcome.attempt.lease_bytes
        if isinstance(error, EngineError) and error.remembered and lease_bytes is not None:
            limit_bytes = outcome.attempt.expected.limit_bytes or lease_bytes
            self._remember(run, query, outcome.attempt, limit_bytes, error)
        elif isinstance(error, MemoryExceeded) and error.while_planning:
            self._remember(run, query, outcome.attempt, 0, error)  # whatever memory it is given, it is planned first
        if error is None or isinstance(error, EngineError):
            self._router.learn(run.record, outcome.attempt)

    def write(self, run: Run, write: Write, attempt: Attempt) -> Outcome:
        """Run a write on an engine, once."""
        entry = self._engines[attempt.engine]
        return _carried_out(attempt, partial(self._write, run, write, entry))

    def command(self, run: Run, command: RunnableCommand, attempt: Attempt) -> Outcome:
        """Run a command that needs no engine; its rows are spooled like any others."""
        return _carried_out(attempt, partial(self._command, run, command))

    def _command(self, run: Run, command: RunnableCommand) -> _Done:
        rows = command.reply(run.statement.dialect, command.run(self._services(run)))
        return _Done(self._spool.write(run.id, rows.to_reader()))

    def _query(
        self,
        run: Run,
        query: CompiledStatement,
        planned: PlannedAttempt,
        granted: _Granted,
        early: EarlyResult | None,
        wait_s: float,
    ) -> _Done:
        """Hold a lease, run the engine's own SQL, spool every row, and publish them all."""
        entry = self._engines[planned.engine]
        engine, sql = entry.engine, query.sql(entry.engine.writer)
        start = _start_of(entry, run.statement.principal)
        wait_s = min(wait_s, self._queue_s)
        limit_bytes = self._admission.limit_bytes(entry.name, run.statement.pool)
        request = self._request(run, planned, entry)

        def publish(make_result: Callable[[], None]) -> None:
            self._registration.require_unchanged(query.tables)
            require_unreplaced(query.tables)
            self._log.require_owned()
            make_result()

        with self._leased(run, request, entry, wait_s, query.tables, query.columns) as (grant, admitted):
            granted.admitted = admitted
            if limit_bytes is not None:
                granted.memory = MemoryWatch(run.id, engine, grant, limit_bytes)
            watch = granted.memory if granted.memory and granted.memory.can_raise else unwatched
            with entry.breaker.watched(), run.on(entry.name), _told_of_changed_files(query.tables):
                run.require()
                with self._registration.reading(query.tables, query.columns, run.require):
                    stream = start(
                        sql,
                        query_id=run.id,
                        lease=grant.lease,
                        deadline_s=run.remaining_s,
                        watch=watch,
                        snapshots=snapshots_of(query.tables),
                    )
                    with stream:
                        if early is not None:
                            result = early.write(stream, publish=publish)
                        else:
                            result = self._spool.write(run.id, stream, publish=publish)
        return _Done(result, stream.actuals)

    @contextmanager
    def _leased(
        self,
        run: Run,
        request: Request,
        entry: EngineEntry,
        wait_s: float,
        tables: Sequence[TableSource],
        columns: frozenset[str] | None,
    ) -> Iterator[tuple[Grant, Admitted]]:
        """Hold a lease; objects that tables need are fetched before. The run records the waits for both.

        columns: that are read of any table, in small letters; None: all.
        """
        begun = time.monotonic()
        if remote := self._registration.in_object_stores(tables):
            with run.waits(WaitsFor.OBJECTS), self._registration.reading(remote, columns, run.require):
                pass  # they stay, as others are not likely to need the room meanwhile
        wait_s = min(wait_s, max(0.0, run.remaining_s))
        with ExitStack() as held:
            with run.waits(WaitsFor.LEASE, entry.name):
                lease = self._admission.lease(request, wait_s=wait_s, cancelled=lambda: run.cancelled)
                grant = held.enter_context(lease)
            memory_bytes = None if entry.limit_bytes is None else grant.lease.memory_bytes
            waited_s = time.monotonic() - begun
            run.clock.end(Stage.ADMIT)
            admitted = Admitted(entry.name, now(), waited_s, memory_bytes, grant.lease.threads or entry.threads)
            run.admit(admitted)
            yield grant, admitted

    def _request(self, run: Run, planned: PlannedAttempt, entry: EngineEntry) -> Request:
        """Return the lease request of a decision; without an estimate, for the engine's limit."""
        statement, decision = run.statement, run.record.decision
        price = decision.price(entry.name) if decision else None
        expected = decision.on(entry.name) if decision else None
        lease_bytes = price.lease_bytes if price and not planned.whole else None
        return Request(
            entry.name,
            (entry.limit_bytes or 0) if lease_bytes is None else lease_bytes,
            statement.principal,
            statement.pool,
            run.id,
            expected_s=price.seconds if price else None,
            threads=expected.threads if expected else None,
            careful=planned.careful,
        )

    def _write(self, run: Run, write: Write, entry: EngineEntry) -> _Done:
        """Run a write. An INSERT OVERWRITE is computed again where others have committed what it read."""
        for _ in range(TRIES - 1):
            try:
                return self._write_once(run, write, entry)
            except TableChangedConcurrently:
                if not isinstance(write, InsertInto) or write.overwrite is None or not write.target.is_lake:
                    raise
                run.require()
        return self._write_once(run, write, entry)

    def _write_once(self, run: Run, write: Write, entry: EngineEntry) -> _Done:
        pinned = self._registration.pinned(write.reads, run.requester)
        snapshots = snapshots_of(pinned)

        def produce(sql: str, target: WriteTarget) -> pa.Schema:
            target = replace(target, snapshots=snapshots)
            request = Request(entry.name, 0, run.statement.principal, run.statement.pool, run.id)
            leased = self._leased(run, request, entry, self._queue_s, pinned, None)
            with leased, entry.breaker.watched(), run.on(entry.name), _told_of_changed_files(pinned):
                assert isinstance(entry.engine, Writer)
                with self._registration.reading(pinned, None, run.require):
                    schema = entry.engine.write(sql, target, query_id=run.id, deadline_s=run.remaining_s)
            self._registration.require_unchanged(write.reads)
            require_unreplaced(pinned)
            return schema

        table = write.reply(run.statement.dialect, self._writer.write(write, run, produce, pinned))
        try:
            return _Done(self._spool.write(run.id, table.to_reader()))
        except ResultError as error:
            raise type(error)(WRITTEN) from error

    def _remember(
        self, run: Run, query: CompiledStatement, attempt: Attempt, limit_bytes: int, error: EngineError
    ) -> None:
        expected = run.record.decision.on(attempt.engine) if run.record.decision else None
        missed = Misestimate(
            fingerprint=query.fingerprint,
            engine=attempt.engine,
            statistics_version=run.record.statistics_version or "",
            limit_bytes=limit_bytes,
            query_id=run.id,
            sql=run.statement.sql,
            estimated_bytes=expected.estimate.peak_bytes if expected else None,
            model_bytes=attempt.expected.peak_bytes,
            peak_bytes=error.peak_bytes,
            recorded_at=now(),
        )
        self._log.misestimated(missed)
        self._misestimated([base_name(table.name) for table in query.tables])


@contextmanager
def _told_of_changed_files(tables: Sequence[TableSource]) -> Iterator[None]:
    """Raise TableUnreadable in the place of an engine's error where a file of a snapshot is gone or has changed."""
    try:
        yield
    except (StatementCancelled, DeadlineExceeded):
        raise
    except EngineError:
        require_present(tables)
        raise


def _carried_out(attempt: Attempt, work: Callable[[], _Done]) -> Outcome:
    """Run the work of an attempt, and return its outcome with its times."""
    begun = time.monotonic()
    try:
        done = work()
    except FusionError as error:
        failure = failure_of(error)
        failed = replace(
            attempt,
            state=QueryState.CANCELLED if isinstance(error, StatementCancelled) else QueryState.FAILED,
            wall_s=time.monotonic() - begun,
            failure=failure.code,
            message=failure.message,
            peak_bytes=error.peak_bytes if isinstance(error, EngineError) else None,
        )
        error.__traceback__ = error.__cause__ = error.__context__ = None  # whose frames hold all that the statement had
        return Outcome(failed, error=error)
    finished = replace(attempt, state=QueryState.FINISHED, wall_s=time.monotonic() - begun, rows=done.result.rows)
    if done.actuals is not None:
        finished = replace(finished, peak_bytes=done.actuals.peak_bytes, actuals=done.actuals)
    return Outcome(finished, done.result)


def _start_of(entry: EngineEntry, user: Principal) -> Callable[..., ResultStream]:
    """Return the call that starts a statement, as its user where the engine acts for users. Raises UserRefused.

    Who has not proved a name would get the rights of the gateway's own user, or of whichever user it names.
    """
    engine = entry.engine
    if not entry.acts_for_users or not isinstance(engine, Impersonator):
        return engine.execute
    if not user.authenticated:
        raise UserRefused(
            f"{entry.name} runs statements as users who have logged in, and {user.name} has not; log in, or choose "
            "another engine."
        )
    return partial(engine.execute, user=user.name)
