"""One attempt: a query on an engine, a write, or a command that the gateway carries out by itself.

Whatever an attempt does, it ends as an ``Outcome``: with its rows in the spool, or with the error that it failed with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from engines.errors import BrokenOff, EngineError, StatementCancelled
from engines.protocol import Actuals, Writer, WriteTarget
from gateway.catalog.registration import Registration
from gateway.commands.answers import answer
from gateway.commands.command_runner import CommandRunner
from gateway.errors import GatewayError, ResultError, failure_of
from gateway.execution.failover import PlannedAttempt
from gateway.execution.query_log import QueryLog, now
from gateway.execution.racing.runner import Runner
from gateway.execution.spooling.results import Spool, SpooledResult
from gateway.execution.writing import TableWriter
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.router import Router
from gateway.sql.commands.commands import Command
from gateway.sql.commands.writes import WRITES, Write, reads
from gateway.sql.compiled import CompiledStatement
from gateway.statements.stages import Stage
from gateway.statements.statement import Admitted, Run, WaitsFor
from metastore.records import Attempt, Misestimate, QueryState

WRITTEN = "The write is done, do not send it again; only its number of rows could not be kept."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: with a result, or with an error."""

    attempt: Attempt
    result: SpooledResult | None = None
    error: EngineError | GatewayError | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    result: SpooledResult
    actuals: Actuals | None = None


class Executor:
    """Carries out attempts. Thread-safe. misestimated: hears of tables whose statement did not fit."""

    def __init__(
        self,
        *,
        engines: EngineRegistry,
        admission: Admission,
        router: Router,
        commands: CommandRunner,
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
        self._commands = commands
        self._writer = writer
        self._registration = registration
        self._spool = spool
        self._log = query_log
        self._misestimated = misestimated
        self._queue_s = queue_s

    def query(self, query: CompiledStatement, runner: Runner, *, wait_s: float) -> Outcome:
        """Run a query on an engine, and learn from how it went. wait_s: longest wait for a slot."""
        run, entry = runner.run, self._engines[runner.attempt.engine]
        runner.begin()
        outcome = _carried_out(runner.attempt, partial(self._query, query, runner, entry, wait_s))
        outcome = replace(outcome, attempt=runner.noted(outcome.attempt))
        if not isinstance(outcome.error, BrokenOff):  # who broke it off has learned already
            self.learn(run, query, outcome)
        return outcome

    def learn(self, run: Run, query: CompiledStatement, outcome: Outcome) -> None:
        """Learn from how an attempt went, and remember where it did not fit."""
        error, lease_bytes = outcome.error, outcome.attempt.lease_bytes
        if isinstance(error, EngineError) and error.remembered and lease_bytes is not None:
            had_bytes = outcome.attempt.expected.limit_bytes or lease_bytes
            limit_bytes = error.limit_bytes if isinstance(error, BrokenOff) else had_bytes
            self._remember(run, query, outcome.attempt, limit_bytes, error)
        if not isinstance(error, GatewayError):
            self._router.learn(run.record, outcome.attempt)

    def write(self, run: Run, write: Write, attempt: Attempt) -> Outcome:
        """Have an engine write, once."""
        entry = self._engines[attempt.engine]
        return _carried_out(attempt, partial(self._write, run, write, entry))

    def command(self, run: Run, command: Command | Write, attempt: Attempt) -> Outcome:
        """Carry out what no engine is needed for; its rows are spooled like any others."""
        return _carried_out(attempt, partial(self._command, run, command))

    def _command(self, run: Run, command: Command | Write) -> _Done:
        done = self._writer.write(command, run) if isinstance(command, WRITES) else self._commands.run(command, run)
        return _Done(self._spool.write(run.id, answer(command, run.statement.dialect, done).to_reader()))

    def _query(self, query: CompiledStatement, runner: Runner, entry: EngineEntry, wait_s: float) -> _Done:
        """Hold a lease, run the engine's own SQL, spool every row, and publish them all where nobody else has."""
        run, sql = runner.run, query.sql(entry.engine.dialect)
        wait_s = min(wait_s, self._queue_s, max(0.0, run.remaining_s))
        limit_bytes = self._admission.limit_bytes(entry.name, run.statement.pool)
        asked = self._request(run, runner.this, entry)

        def publish(rename: Callable[[], None]) -> None:
            self._registration.require_unchanged(query.tables)
            runner.finish.cross(rename)

        try:
            with (
                self._leased(run, asked, entry, wait_s, lambda: runner.is_unwanted) as grant,
                entry.breaker.watched(),
                runner.holding(entry, grant, limit_bytes),
            ):
                self._registration.require_unchanged(query.tables)
                stream = entry.engine.execute(
                    sql, query_id=run.id, lease=grant.lease, deadline_s=run.remaining_s, watch=runner.watch
                )
                with stream:
                    if runner.early is not None:
                        result = runner.early.write(stream, settled=runner.settled, publish=publish)
                    else:
                        result = self._spool.write(run.id, stream, attempt=runner.attempt.ordinal, publish=publish)
        except EngineError as error:
            raise runner.reason(error) from error
        return _Done(result, stream.actuals)

    @contextmanager
    def _leased(
        self, run: Run, asked: Request, entry: EngineEntry, wait_s: float, cancelled: Callable[[], bool]
    ) -> Iterator[Grant]:
        """Hold a lease; the run tells that it waits for it, and how long it did."""
        begun = time.monotonic()
        with ExitStack() as held:
            with run.waits(WaitsFor.LEASE, entry.name):
                grant = held.enter_context(self._admission.lease(asked, wait_s=wait_s, cancelled=cancelled))
            lease = grant.lease
            memory_bytes = None if entry.limit_bytes is None else lease.memory_bytes
            waited_s = time.monotonic() - begun
            run.clock.end(Stage.ADMIT)
            run.admit(Admitted(entry.name, now(), waited_s, memory_bytes, lease.threads or entry.threads))
            yield grant

    def _request(self, run: Run, this: PlannedAttempt, entry: EngineEntry) -> Request:
        """Ask for what the decision says that the statement needs; for the engine's limit where it says nothing."""
        statement, decision = run.statement, run.record.decision
        price = decision.price(entry.name) if decision else None
        expected = decision.on(entry.name) if decision else None
        lease_bytes = price.lease_bytes if price and not this.whole else None
        return Request(
            entry.name,
            (entry.limit_bytes or 0) if lease_bytes is None else lease_bytes,
            statement.principal,
            statement.pool,
            run.id,
            expected_s=price.seconds if price else None,
            threads=expected.threads if expected else None,
            careful=this.careful,
        )

    def _write(self, run: Run, write: Write, entry: EngineEntry) -> _Done:
        def produce(sql: str, target: WriteTarget) -> pa.Schema:
            wait_s = min(self._queue_s, max(0.0, run.remaining_s))
            asked = Request(entry.name, 0, run.statement.principal, run.statement.pool, run.id)
            lease = self._leased(run, asked, entry, wait_s, lambda: run.cancelled)
            with lease, entry.breaker.watched(), run.on(entry.name):
                assert isinstance(entry.engine, Writer)
                schema = entry.engine.write(sql, target, query_id=run.id, deadline_s=run.remaining_s)
            self._registration.require_unchanged(reads(write))
            return schema

        table = answer(write, run.statement.dialect, self._writer.write(write, run, produce))
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
        self._router.missed(query.fingerprint)
        self._misestimated([table.name for table in query.tables])


def _carried_out(attempt: Attempt, work: Callable[[], _Done]) -> Outcome:
    """Do the work of an attempt, and note how long it took and how it ended."""
    begun = time.monotonic()
    try:
        done = work()
    except (EngineError, GatewayError) as error:
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
