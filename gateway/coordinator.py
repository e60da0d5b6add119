"""START HERE: one statement's whole life, top to bottom.

``start`` records it; ``_live`` reads it; ``_run`` decides, tries the ranked engines in turn and closes the record; a
command, which the gateway answers by itself, takes ``_obey`` instead, and what writes takes ``_write``. Every step is
written to the metastore before the next begins, so a killed gateway leaves a readable past.

It is long because every way in which a statement can go wrong ends here, each beside the step that it may befall.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
from sqlalchemy.exc import SQLAlchemyError

from engines.errors import DeadlineExceeded, EngineError, StatementCancelled
from engines.protocol import TableSource, Writer, WriteTarget
from gateway.admission import Places
from gateway.catalog.locations import LocationRefused
from gateway.catalog.registration import Registration
from gateway.commands import CommandFailed, CommandRunner
from gateway.fleet import Fleet, Member
from gateway.joins import JoinLearner
from gateway.planning.fairness import Asker
from gateway.planning.reader import StatementReader
from gateway.planning.work import Text
from gateway.results import ResultTooLarge, Spool, SpooledResult, SpoolFull
from gateway.routing import CatalogSnapshot, CatalogView, Router
from gateway.security.needs import needs
from gateway.security.policy import AccessDenied, Policy
from gateway.sql.command_parsing import is_quick
from gateway.sql.commands import Command, CreateView
from gateway.sql.compiled import CompiledStatement
from gateway.sql.errors import NotAllowed, SqlError
from gateway.sql.parsing import ParserLimits, require_length
from gateway.sql.writes import WRITES, CreateTable, InsertInto, Write, reads
from gateway.statements import Run, Statement
from gateway.tries import SECOND_OPINION_S, Tries, Try
from gateway.writing import TableWriter, WriteFailed
from metastore.patience import insist, insist_on_insert
from metastore.records import Attempt, Failure, Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decide import Decision, NoEngine

log = logging.getLogger(__name__)

Result = TypeVar("Result")

CANCEL_REPEAT_S = 0.25
RETURN_POLL_S = 0.25
ITSELF = "gateway"  # where commands run, in the place of an engine's name
NO_ENGINE = "NO_ENGINE_AVAILABLE"
TOO_MANY = "TOO_MANY_QUERIES"
GATEWAY_STOPPED = Failure(
    "GATEWAY_STOPPED",
    "The gateway stopped before the query ended; send it again. Of a write, look first whether it was done.",
)
UNRECORDED = Failure(
    "METASTORE_UNAVAILABLE",
    "The metastore did not answer when the query ended; send it again. Of a write, look first whether it was done.",
)
INTERNAL = Failure("INTERNAL", "The gateway failed; its log holds the query's id.")


class Stopping(Exception):
    """The gateway is about to stop and takes nothing new."""

    code = GATEWAY_STOPPED.code

    def __init__(self) -> None:
        super().__init__("The gateway is stopping; try again soon.")


class UnknownEngine(Exception):
    """A statement asked for an engine that is not configured."""


class Coordinator:
    """Takes statements and sees them through. Thread-safe; each statement lives in a thread of its own."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        catalog: CatalogView,
        router: Router,
        reader: StatementReader,
        metastore: Metastore,
        commands: CommandRunner,
        writer: TableWriter,
        registration: Registration,
        spool: Spool,
        misestimated: Callable[[Sequence[str]], None],
        policy: Policy,
        parser_limits: ParserLimits,
        queries: int,
        queue_s: float,
    ) -> None:
        self._fleet = fleet
        self._catalog = catalog
        self._router = router
        self._reader = reader
        self._metastore = metastore
        self._commands = commands
        self._writer = writer
        self._registration = registration
        self._joins = JoinLearner(metastore)
        self._spool = spool
        self._misestimated = misestimated
        self._policy = policy
        self.parser_limits = parser_limits
        self._queue_s = queue_s
        self._places = Places(queries)
        self._command_places = Places(queries)
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._unrecorded: list[QueryRecord] = []
        self._stopping = False

    # ------------------------------------------------------------------ what clients ask for

    def submit(self, statement: Statement) -> Run:
        """Start a statement and wait until it is read. Raises what ``start`` does, SqlError, EngineError."""
        run = self.start(statement)
        run.require_accepted()
        return run

    def start(self, statement: Statement) -> Run:
        """Record a statement and start it. From now on it can be cancelled; whether it is refused, its run tells.

        Raises StatementTooLong, UnknownEngine, TooManyQueries, Stopping.
        """
        if self._stopping:
            raise Stopping
        self._require_engine(statement)
        require_length(statement.sql, self.parser_limits)
        run = Run(statement)
        run.places = self._command_places if is_quick(statement.sql) else self._places
        run.places.take(statement.principal)
        try:
            self._metastore.queries.open(run.record)
            self._catch_up()
            with self._lock:
                self._runs[run.id] = run
            threading.Thread(target=self._live, args=(run,), name=f"query {run.id}", daemon=True).start()
        except SQLAlchemyError:
            self._end_unrecorded(run)
            self._let_go(run)
            raise
        except BaseException:
            self._let_go(run)
            self._metastore.queries.close(run.id, QueryState.FAILED, at=_now(), error=INTERNAL)
            raise
        return run

    def understand(self, statement: Statement) -> CompiledStatement | Command | Write:
        """Return what a statement is; nothing runs and nothing is recorded. Raises SqlError, EngineError."""
        return self._check(statement, asker_of(statement))[1]

    def read(self, statement: Statement, function: Callable[..., Result], *arguments: object) -> Result:
        """Have a function run where it holds up nobody: for all that parses what clients sent. Raises as it does."""
        found: Result = self._reader.call(asker_of(statement), function, *arguments)
        return found

    def explain(self, statement: Statement) -> tuple[CompiledStatement, Decision]:
        """Return where a query would go and why; nothing runs. Raises SqlError, UnknownEngine, NoEngine."""
        self._require_engine(statement)
        with self._places.hold(statement.principal):
            asker = asker_of(statement)
            snapshot, checked = self._check(statement, asker)
            if not isinstance(checked, CompiledStatement):
                raise NotAllowed("Only queries can be explained; commands run in the gateway itself.")
            pinned = statement.pinned or checked.engine
            return checked, self._router.decide(checked, snapshot, pinned=pinned, asker=asker)

    def find(self, query_id: str) -> Run | None:
        """Return a query that is still alive."""
        with self._lock:
            return self._runs.get(query_id)

    def cancel(self, query_id: str) -> bool:
        """Cancel a query; returns whether it was still alive."""
        run = self.find(query_id)
        if run is None:
            return False
        if run.cancel():
            threading.Thread(target=self._insist_on_end, args=(run,), name=f"cancel {run.id}", daemon=True).start()
        return True

    def recover(self) -> None:
        """Close what an earlier process left open, and delete results that nobody can ask for."""
        orphans = self._metastore.queries.close_orphans(at=_now(), error=GATEWAY_STOPPED)
        self._writer.recover()
        files = self._spool.keep_only(self._metastore.queries.finished(self._spool.query_ids()))
        if orphans or files:
            log.warning("closed %d queries and deleted %d result files of an earlier run", len(orphans), files)

    def refuse(self) -> None:
        """Take no statement from now on; those that run go on."""
        self._stopping = True

    def stop(self, *, grace_s: float) -> None:
        """Cancel what is alive and wait for its end."""
        self.refuse()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self.cancel(run.id)
        until = time.monotonic() + grace_s
        while time.monotonic() < until and any(not run.done.done() for run in runs):
            time.sleep(CANCEL_REPEAT_S)

    # ------------------------------------------------------------------ one statement's life

    def _check(self, statement: Statement, asker: Asker) -> tuple[CatalogSnapshot, CompiledStatement | Command | Write]:
        """Read a statement and require that its user may do what it says. Raises SqlError, EngineError."""
        snapshot = self._catalog.current()
        checked = self._read(statement, snapshot, asker)
        self._policy.require_all(statement.principal, needs(checked, snapshot, statement.session))
        self._registration.require_unchanged(_used(checked))
        return snapshot, checked

    def _read(
        self, statement: Statement, snapshot: CatalogSnapshot, asker: Asker
    ) -> CompiledStatement | Command | Write:
        own = statement.session.views if statement.session is not None else {}
        text = Text(statement.sql, statement.dialect, self.parser_limits, own, statement.partitions)
        checked = self._reader.understand(text, snapshot, asker)
        if not isinstance(checked, CompiledStatement):
            return checked
        if checked.engine is not None and checked.engine not in self._fleet:
            raise NotAllowed(f"A hint asks for the engine {checked.engine}; there are {', '.join(self._fleet)}.")
        return checked

    def _live(self, run: Run) -> None:
        """Read it and see it through; nothing escapes but bugs."""
        refusal: Exception | None = None
        try:
            snapshot, checked = self._check(run.statement, run.asker)
            if run.cancelled:
                raise StatementCancelled("The statement was cancelled while it was planned.")
            run.command = None if isinstance(checked, CompiledStatement) else checked
            run.accepted.set_result(None)
        except StatementCancelled as error:
            self._close_unread(run, QueryState.CANCELLED, Failure(error.code, error.message))
        except (SqlError, EngineError) as error:
            refusal = error
            failure = Failure(error.code, error.message, getattr(error, "position", None))
            self._close_unread(run, QueryState.FAILED, failure)
        except SQLAlchemyError as error:
            refusal = error
            self._end_unrecorded(run)
        except Exception as error:  # a defect, of which the client's interface tells and writes to the log
            refusal = error
        else:
            self._run(run, checked, snapshot)
            return
        self._end(run, refusal)

    def _close_unread(self, run: Run, state: QueryState, error: Failure) -> None:
        try:
            self._close(run, state, error=error)
        except SQLAlchemyError:
            self._end_unrecorded(run)

    def _run(self, run: Run, checked: CompiledStatement | Command | Write, snapshot: CatalogSnapshot) -> None:
        """Decide, try the ranked engines in turn, close the record; nothing escapes but bugs."""
        try:
            if isinstance(checked, WRITES):
                self._write(run, checked)
                return
            if not isinstance(checked, CompiledStatement):
                self._obey(run, checked)
                return
            decision = self._decide(run, checked, snapshot)
            if decision is None:
                return
            version = snapshot.statistics_version(checked.tables)
            run.record = replace(
                run.record,
                fingerprint=checked.fingerprint,
                template=checked.template,
                statistics_version=version,
                decision=decision,
            )
            log.info("query %s: %s because %s", run.id, decision.engine, _codes(decision))
            insist(partial(self._joins.learn, checked))
            dependable = [name for name in decision.ranking if self._fleet[name].dependable]
            tries = Tries(decision.ranking, dependable=dependable)
            for ordinal in itertools.count(1):
                this = tries.next()
                attempt = Attempt(ordinal, this.engine, QueryState.RUNNING, started_at=_now())
                if ordinal == 1:
                    self._record_decision(run, decision, attempt, checked)
                else:
                    insist_on_insert(partial(self._metastore.queries.attempt_started, run.id, attempt))
                error = self._try(run, checked, decision, version, attempt, this, tries)
                if error is None:
                    return
                if not tries.waiting and not tries.verdict:
                    tries.resume(self._returned(run, [lost.engine for lost in tries.lost]))
                if not tries.waiting:
                    told = tries.told(error)
                    self._close(run, QueryState.FAILED, error=Failure(told.code, told.message))
                    return
        except SQLAlchemyError:
            log.exception("query %s ended without the metastore", run.id)
            self._end_unrecorded(run)
        finally:
            self._end(run)

    def _decide(self, run: Run, checked: CompiledStatement, snapshot: CatalogSnapshot) -> Decision | None:
        """Decide; where no engine can take it now but one will soon, wait for that. None: the query is closed."""
        decide = partial(
            self._router.decide, checked, snapshot, pinned=run.statement.pinned or checked.engine, asker=run.asker
        )
        pinned = run.statement.pinned or checked.engine
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        while True:
            try:
                return insist(decide)
            except (StatementCancelled, DeadlineExceeded) as error:
                state = QueryState.CANCELLED if isinstance(error, StatementCancelled) else QueryState.FAILED
                self._close(run, state, error=Failure(error.code, error.message))
                return None
            except LocationRefused as error:
                self._close(run, QueryState.FAILED, error=_failure(error))
                return None
            except NoEngine as error:
                rests_s = [m.breaker.open_for_s() for m in self._fleet.values() if pinned in (None, m.name)]
                wait_s = min((rest_s for rest_s in rests_s if rest_s > 0), default=None)
                if wait_s is None or time.monotonic() + wait_s > until_s:
                    failure = Failure(NO_ENGINE, f"No engine can take it: {error}")
                    self._close(run, QueryState.FAILED, error=failure)
                    return None
            if not run.wait(wait_s):
                error_of_client = StatementCancelled("The statement was cancelled.")
                self._close(run, QueryState.CANCELLED, error=Failure(error_of_client.code, error_of_client.message))
                return None

    def _returned(self, run: Run, lost: Sequence[str]) -> list[str]:
        """Wait until one of the engines that were lost under a query takes work again; what only reads may go there."""
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        while lost and time.monotonic() < until_s and not run.cancelled:
            back = [name for name in lost if self._fleet[name].why_down() is None]
            if back:
                return back
            run.wait(RETURN_POLL_S)
        return []

    def _try(
        self,
        run: Run,
        checked: CompiledStatement,
        decision: Decision,
        version: str,
        attempt: Attempt,
        this: Try,
        tries: Tries,
    ) -> EngineError | None:
        """Try one engine; returns the error after which another try is due. A client sees only whole results."""
        member = self._fleet[attempt.engine]
        begun = time.monotonic()
        try:
            wait_s = min(self._queue_s, SECOND_OPINION_S if tries.verdict else self._queue_s)
            attempt, result = self._execute(run, checked, member, attempt, careful=this.careful, wait_s=wait_s)
        except EngineError as error:
            attempt = _failed(attempt, error, begun)
            self._router.learn(run.record, attempt)
            self._learn(run, checked, decision, version, member, error)
            if tries.goes_on(this, error):
                log.info("query %s: %s failed with %s, trying on", run.id, member.name, error.code)
                insist(partial(self._metastore.queries.attempt_ended, run.id, attempt))
                run.record = replace(run.record, attempts=(*run.record.attempts, attempt))
                return error
            told = tries.told(error)
            self._close(run, attempt.state, attempt=attempt, error=Failure(told.code, told.message))
        except (ResultTooLarge, SpoolFull, LocationRefused) as error:
            failure = _failure(error)
            attempt = _ended_badly(attempt, failure, begun)
            self._close(run, QueryState.FAILED, attempt=attempt, error=failure)
        else:
            attempt = replace(attempt, wall_s=time.monotonic() - begun)
            self._router.learn(run.record, attempt)
            self._close(run, QueryState.FINISHED, attempt=attempt, result=result)
        return None

    def _obey(self, run: Run, command: Command) -> None:
        """Carry out a command: its only attempt is the gateway's own, its rows are spooled like any others."""
        attempt = Attempt(1, ITSELF, QueryState.RUNNING, started_at=_now())
        insist_on_insert(partial(self._metastore.queries.attempt_started, run.id, attempt))
        begun = time.monotonic()
        try:
            result = self._spool.write(run.id, self._commands.run(command, run).to_reader())
        except EngineError as error:
            attempt = _failed(attempt, error, begun)
            self._close(run, attempt.state, attempt=attempt, error=Failure(error.code, error.message))
        except (CommandFailed, AccessDenied, ResultTooLarge, SpoolFull) as error:
            failure = _failure(error)
            attempt = _ended_badly(attempt, failure, begun)
            self._close(run, QueryState.FAILED, attempt=attempt, error=failure)
        else:
            attempt = replace(attempt, state=QueryState.FINISHED, wall_s=time.monotonic() - begun, rows=result.rows)
            self._close(run, QueryState.FINISHED, attempt=attempt, result=result)

    def _write(self, run: Run, write: Write) -> None:
        """Have one engine write, once: whatever fails, nothing is tried again."""
        try:
            decision = self._router.decide_write(write, pinned=run.statement.pinned)
        except NoEngine as error:
            self._close(run, QueryState.FAILED, error=Failure(NO_ENGINE, f"No engine can take it: {error}"))
            return
        member = self._fleet[decision.engine]
        attempt = Attempt(1, member.name, QueryState.RUNNING, started_at=_now())
        run.record = replace(run.record, decision=decision)
        self._record_decision(run, decision, attempt)
        begun = time.monotonic()

        def produce(sql: str, target: WriteTarget) -> pa.Schema:
            wait_s = min(self._queue_s, max(0.0, run.remaining_s))
            with member.ledger.lease(0, wait_s=wait_s, cancelled=lambda: run.cancelled, who=run.statement.principal):
                run.engine = member.name
                assert isinstance(member.engine, Writer)
                schema = member.engine.write(sql, target, query_id=run.id, deadline_s=run.remaining_s)
            self._registration.require_unchanged(reads(write))
            return schema

        try:
            table = self._writer.write(write, run, produce)
            try:
                result = self._spool.write(run.id, table.to_reader())
            except (ResultTooLarge, SpoolFull) as error:
                message = "The write is done, do not send it again; only its number of rows could not be kept."
                raise WriteFailed(_failure(error).code, message) from error
        except EngineError as error:
            attempt = _failed(attempt, error, begun)
            if error.trips_breaker:
                member.breaker.failed(error.message)
            self._close(run, attempt.state, attempt=attempt, error=Failure(error.code, error.message))
        except (WriteFailed, AccessDenied, LocationRefused) as error:
            failure = _failure(error)
            attempt = _ended_badly(attempt, failure, begun)
            self._close(run, QueryState.FAILED, attempt=attempt, error=failure)
        else:
            member.breaker.succeeded()
            attempt = replace(attempt, state=QueryState.FINISHED, wall_s=time.monotonic() - begun, rows=result.rows)
            self._close(run, QueryState.FINISHED, attempt=attempt, result=result)

    def _execute(
        self,
        run: Run,
        checked: CompiledStatement,
        member: Member,
        attempt: Attempt,
        *,
        careful: bool,
        wait_s: float,
    ) -> tuple[Attempt, SpooledResult]:
        """Hold a lease, run the engine's own SQL and spool every row."""
        sql = checked.sql(member.engine.dialect)
        wait_s = min(wait_s, max(0.0, run.remaining_s))
        estimate = run.record.decision.estimate if run.record.decision else None
        lease_held = member.ledger.lease(
            member.limit_bytes or 0,
            wait_s=wait_s,
            cancelled=lambda: run.cancelled,
            who=run.statement.principal,
            needed_bytes=(estimate.learned or estimate).upper_bytes if estimate else None,
        )
        with lease_held as lease:
            run.require()
            run.engine = member.name
            lease = replace(lease, careful=careful)
            self._registration.require_unchanged(checked.tables)
            stream = member.engine.execute(sql, query_id=run.id, lease=lease, deadline_s=run.remaining_s)
            with stream:
                result = self._spool.write(run.id, stream)
        self._require_honest(run, checked)
        member.breaker.succeeded()
        actuals = stream.actuals
        done = replace(
            attempt,
            state=QueryState.FINISHED,
            rows=result.rows,
            peak_bytes=actuals.peak_bytes,
            actuals=actuals,
        )
        return done, result

    def _require_honest(self, run: Run, checked: CompiledStatement) -> None:
        """Delete rows that were read while a table's place was exchanged, before anybody sees them."""
        try:
            self._registration.require_unchanged(checked.tables)
        except LocationRefused:
            self._spool.delete(run.id)
            raise

    def _learn(
        self,
        run: Run,
        checked: CompiledStatement,
        decision: Decision,
        version: str,
        member: Member,
        error: EngineError,
    ) -> None:
        """Keep what a failure teaches: the breaker about the engine, the metastore about the statement."""
        if error.trips_breaker:
            member.breaker.failed(error.message)
        if error.remembered and member.limit_bytes is not None:
            missed = Misestimate(
                fingerprint=checked.fingerprint,
                engine=member.name,
                statistics_version=version,
                limit_bytes=member.limit_bytes,
                query_id=run.id,
                sql=run.statement.sql,
                estimated_bytes=decision.estimate.peak_bytes,
                peak_bytes=error.peak_bytes,
                recorded_at=_now(),
            )
            insist(partial(self._metastore.misestimates.remember, missed))
            self._misestimated([table.name for table in checked.tables])

    def _close(
        self,
        run: Run,
        state: QueryState,
        *,
        attempt: Attempt | None = None,
        result: SpooledResult | None = None,
        error: Failure | None = None,
    ) -> None:
        closed = replace(
            run.record,
            state=state,
            engine=attempt.engine if attempt else None,
            attempts=(*run.record.attempts, attempt) if attempt else run.record.attempts,
            rows=result.rows if result else None,
            result_bytes=result.bytes if result else None,
            error=error,
            finished_at=_now(),
        )
        close = partial(
            self._metastore.queries.close,
            run.id,
            state,
            at=closed.finished_at or _now(),
            attempt=attempt,
            rows=closed.rows,
            result_bytes=closed.result_bytes,
            error=error,
        )
        run.record = closed if insist(close) else insist(partial(self._metastore.queries.get, run.id)) or closed

    def _record_decision(
        self, run: Run, decision: Decision, first: Attempt, checked: CompiledStatement | None = None
    ) -> None:
        decided = partial(
            self._metastore.queries.decided,
            run.id,
            fingerprint=checked.fingerprint if checked else "",
            template=checked.template if checked else "",
            statistics_version=run.record.statistics_version or "",
            decision=decision,
            first=first,
        )
        insist_on_insert(decided)

    def _end(self, run: Run, refusal: Exception | None = None) -> None:
        """Let go of a query; one that was left open by a bug is closed as failed."""
        try:
            if not run.record.state.ended:
                self._close(run, QueryState.FAILED, error=INTERNAL)
        except SQLAlchemyError:
            self._end_unrecorded(run)
        finally:
            self._let_go(run)
            if not run.accepted.done():  # before its end, so that whoever hears of that knows what it is refused for
                run.accepted.set_result(refusal)
            run.done.set_result(run.record)

    def _end_unrecorded(self, run: Run) -> None:
        """End a query for its client alone; the metastore is told of it once it answers."""
        run.record = replace(run.record, state=QueryState.FAILED, error=UNRECORDED, finished_at=_now())
        with self._lock:
            self._unrecorded.append(run.record)

    def _catch_up(self) -> None:
        """Tell the metastore of queries that ended while it did not answer."""
        with self._lock:
            late, self._unrecorded = self._unrecorded, []
        for record in late:
            self._metastore.queries.close(record.id, record.state, at=record.finished_at or _now(), error=record.error)

    def _let_go(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.id, None)
        if run.places is not None:
            run.places.give_back(run.statement.principal)

    # ------------------------------------------------------------------ help

    def _require_engine(self, statement: Statement) -> None:
        if statement.pinned is not None and statement.pinned not in self._fleet:
            raise UnknownEngine(f"There is no engine {statement.pinned}; there are {', '.join(self._fleet)}.")

    def _insist_on_end(self, run: Run) -> None:
        """Repeat a cancel until it is heard: it may come while an engine is just about to start the statement."""
        while not run.done.done():
            if run.engine is not None:
                self._fleet[run.engine].engine.cancel(run.id)
            time.sleep(CANCEL_REPEAT_S)


def asker_of(statement: Statement) -> Asker:
    """Return who waits for a statement that is not recorded."""
    return Asker(statement.principal.account, time.monotonic() + statement.deadline_s)


def _failed(attempt: Attempt, error: EngineError, begun: float) -> Attempt:
    cancelled = isinstance(error, StatementCancelled)
    return replace(
        attempt,
        state=QueryState.CANCELLED if cancelled else QueryState.FAILED,
        wall_s=time.monotonic() - begun,
        failure=error.code,
        message=error.message,
        peak_bytes=error.peak_bytes,
    )


def _failure(
    error: CommandFailed | WriteFailed | AccessDenied | LocationRefused | ResultTooLarge | SpoolFull,
) -> Failure:
    if isinstance(error, AccessDenied | LocationRefused):
        return Failure(error.code, error.message)
    if isinstance(error, CommandFailed | WriteFailed):
        return error.failure
    return Failure("RESULT_TOO_LARGE" if isinstance(error, ResultTooLarge) else "RESULT_STORE_FULL", str(error))


def _ended_badly(attempt: Attempt, failure: Failure, begun: float) -> Attempt:
    return replace(
        attempt,
        state=QueryState.FAILED,
        wall_s=time.monotonic() - begun,
        failure=failure.code,
        message=failure.message,
    )


def _used(checked: CompiledStatement | Command | Write) -> tuple[TableSource, ...]:
    """Return the tables whose files a statement reads or adds to; of a query, whoever opens them looks at them."""
    match checked:
        case CreateView():
            return checked.query.tables
        case InsertInto():
            return (*reads(checked), checked.target)
        case CreateTable():
            return reads(checked)
        case _:
            return ()


def _codes(decision: Decision) -> str:
    return ", ".join(dict.fromkeys(reason.code.value for reason in decision.reasons))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
