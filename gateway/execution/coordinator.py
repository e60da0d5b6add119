"""START HERE: the life of a statement, from submission to end.

``start`` records it and ``_process`` sees it through: it is read, decided about, and tried on one engine after the
other until an attempt has its rows or no other one may follow. What a client is told is on record before
(``query_log.py``). What an attempt does is in ``executor.py``, which one comes next in ``failover.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from engines.compiled import CompiledStatement
from engines.errors import EngineError, StatementCancelled
from engines.machine.threads import OneAtATime, Threads
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.commands.command import RunnableStatement, Write
from gateway.errors import GatewayLost, GatewayStopped, InternalError
from gateway.execution.authorized_reader import AuthorizedReader, requester_of
from gateway.execution.caching.answers import CachedAnswers
from gateway.execution.executor import Executor, Outcome
from gateway.execution.failover import SECOND_OPINION_S, FailoverPlan, whole_limit_pays
from gateway.execution.live import LiveStatements
from gateway.execution.parity.sampler import ParitySampler
from gateway.execution.records.query_log import QueryLog, new_attempt
from gateway.execution.records.resuming import address_in, restored
from gateway.execution.spooling.results import Spool
from gateway.execution.streaming.early_result import EarlyResult
from gateway.execution.streaming.early_results import EarlyResults
from gateway.execution.waiting import Waiting
from gateway.execution.writing import TableWriter
from gateway.failures import failure_of
from gateway.routing.admission.admission import Admission
from gateway.routing.engines import EngineRegistry
from gateway.routing.joins import JoinLearner
from gateway.routing.router import Router
from gateway.security.principals import Principal, Role
from gateway.statements.stages import Stage, StageTimes
from gateway.statements.statement import Run, Statement, submitted_s
from metastore.database.retry import retry
from metastore.records import QueryState
from metastore.repositories.queries import Orphan
from selector.decision import Decision, NoEngine
from sql.errors import FusionError, NotAllowed
from sql.parsing import require_length

log = logging.getLogger(__name__)

Result = TypeVar("Result")

STOPPING = "The gateway is stopping; try again soon."
ITSELF = "gateway"  # where commands run, in the place of an engine's name
MOST_TAKEN = 32  # queries of gateways that are gone, that one look at them takes
RECORDED_S = 60.0  # after its submission, a query is on record or will never be
TURN_S = 0.1  # that a statement waits at most until those before it have been read and decided about


class Coordinator:
    """Runs statements from submission to end. Thread-safe; each statement runs in a thread of its own.

    present: returns a user with the rights of now, by name, by whether it was proved, and by address.
    queries: largest number of statements at once.
    queue_s: longest wait for an engine.
    """

    def __init__(
        self,
        *,
        engines: EngineRegistry,
        admission: Admission,
        router: Router,
        reader: AuthorizedReader,
        executor: Executor,
        query_log: QueryLog,
        writer: TableWriter,
        spool: Spool,
        joins: JoinLearner,
        cached: CachedAnswers,
        early_results: EarlyResults,
        parity: ParitySampler,
        present: Callable[[str, bool, str], Principal],
        queries: int,
        queue_s: float,
    ) -> None:
        self._engines = engines
        self._router = router
        self._reader = reader
        self._executor = executor
        self._log = query_log
        self._writer = writer
        self._spool = spool
        self._present = present
        self._joins = joins
        self.cached = cached
        self.early_results = early_results
        self.parity = parity
        self._queue_s = queue_s
        self._waiting = Waiting(engines, router, queue_s)
        self.parser_limits = reader.limits
        self._alive = LiveStatements(engines, admission, queries)
        self._threads = Threads("statement")
        self._one_at_a_time = OneAtATime(wait_s=TURN_S)
        self.stages = StageTimes()
        self._stopping = False

    # ------------------------------------------------------------------ what clients ask for

    def submit(self, statement: Statement) -> Run:
        """Start a statement, and wait until it is classified and recorded.

        Raises what ``start`` does, SqlError, EngineError, SQLAlchemyError.
        """
        run = self.start(statement)
        run.require_accepted()
        self.require_on_record(run)
        return run

    def start(self, statement: Statement) -> Run:
        """Start a statement. From now on it can be cancelled; its run reports whether it is refused.

        Before a client hears its id, ``require_on_record`` waits until the metastore has it. Raises StatementTooLong,
        UnknownEngine, TooManyQueries, GatewayStopped.
        """
        if self._stopping:
            raise GatewayStopped(STOPPING)
        self._engines.require(statement.pinned)
        require_length(statement.sql, self.parser_limits)
        run = Run(statement)
        self._alive.add(run)
        try:
            self._log.open(run, on_failure=partial(self.cancel, run.id))
            self._threads.run(partial(self._run_statement, run))
        except BaseException:
            self._alive.release(run)
            self._log.require_closed(run)
            raise
        return run

    def require_on_record(self, run: Run) -> None:
        """Wait until a statement is recorded. Raises SQLAlchemyError."""
        self._log.require_open(run)

    def classify(self, statement: Statement) -> RunnableStatement:
        """Classify a statement without running or recording it. Raises SqlError, EngineError."""
        return self._reader.classify(statement, requester_of(statement.principal, statement.deadline_s))[1]

    def read(self, user: Principal, function: Callable[..., Result], *arguments: object) -> Result:
        """Run a function that parses client text in a planner process. Raises what the function raises."""
        return self._reader.call(requester_of(user, self._queue_s), function, *arguments)

    def explain(self, statement: Statement, *, by_rules: bool = True) -> tuple[CompiledStatement, Decision]:
        """Return where a query would go and why; nothing runs. Raises SqlError, UnknownEngine, NoEngine."""
        self._engines.require(statement.pinned)
        with self._alive.place(statement.principal):
            requester = requester_of(statement.principal, statement.deadline_s)
            snapshot, query = self._reader.classify(statement, requester)
            if not isinstance(query, CompiledStatement):
                raise NotAllowed("Only queries can be explained; commands run in the gateway itself.")
            decision = self._router.route(statement, query, snapshot, requester, by_rules=by_rules)
            if query.restricted and not statement.principal.role.includes(Role.OPERATOR):
                decision = decision.without_expectations()
            return query, decision

    def find(self, query_id: str) -> Run | None:
        """Return a query that is still alive."""
        return self._alive.find(query_id)

    def continued(self, query_id: str) -> tuple[Run, bool] | None:
        """Return a statement whose gateway is gone, and whether a client may have rows of it from another one already.

        It runs here, or is as it is on record; None: there is none. Raises SQLAlchemyError.
        """
        run = self.find(query_id) or self._log.begun_elsewhere(query_id)
        return None if run is None else (run, not self._log.is_run_here(query_id))

    def cancel(self, query_id: str) -> bool:
        """Cancel a query; returns whether it was still alive."""
        return self._alive.cancel(query_id)

    def measured(self, run: Run) -> None:
        """Record the stage times since the last call for a statement, and send them as spans."""
        run.span.tell(run.clock, run.record)
        self.stages.add(run.clock)

    def recover(self, *, alone: bool = True) -> None:
        """Finish writes of an earlier process, and delete results that belong to no query.

        alone: no other process writes results here.
        """
        self._writer.recover()
        if alone:
            self._spool.delete_unfinished()
        finished, running = self._log.with_results(self._spool.query_ids())
        recorded_s = time.time() - (0.0 if alone else RECORDED_S)

        def is_settled(query_id: str) -> bool:
            return query_id not in running and (submitted_s(query_id) or 0.0) <= recorded_s

        files = self._spool.keep_only(finished, of=is_settled)
        if files:
            log.warning("deleted %d result files of an earlier run", files)

    def take_over(self) -> None:
        """Run again, under their ids, the reads that gateways which are gone have left; close what else they left.

        Raises SQLAlchemyError.
        """
        if self._stopping:
            return
        ending = [run.id for run in self._alive.all()]
        while orphans := self._log.take_over(MOST_TAKEN, without=ending):
            for orphan in orphans:
                self._run_again(orphan)
        self._log.close_dead()

    def _run_again(self, orphan: Orphan) -> None:
        record, request = orphan.record, orphan.request
        log.warning("query %s is run again: its gateway is gone", record.id)
        try:
            principal = self._present(record.user, record.authenticated, address_in(request))
            run = Run(restored(record, request, principal), record)
            self._alive.add(run, is_accepted=True)
            self._threads.run(partial(self._run_statement, run))
        except Exception as error:  # of this one alone: the others are taken, and would be nobody's
            log.warning("query %s cannot be run again: %s", record.id, error)
            failure = error if isinstance(error, FusionError) else InternalError("It could not be run again.")
            self._log.close_untried(Run(Statement(record.sql, id=record.id), record), failure)

    def lost(self) -> None:
        """End all statements here without a record: other gateways took this one for dead, and own them now."""
        runs = self._alive.all()
        self._log.lost(runs)
        for run in runs:
            self.cancel(run.id)

    def hand_over(self) -> None:
        """Leave running reads to the other gateways, which take them over once this one has left them.

        What has changed something, or whose rows a client may have seen, stays. Raises SQLAlchemyError.
        """
        runs = [run for run in self._alive.all() if self._log.may_be_taken_over(run)]
        for run in runs:
            self._log.require_open(run)
        self._log.lost(runs)
        for run in runs:
            self.cancel(run.id)
        if runs:
            log.info("%d queries are left to the other gateways", len(runs))

    def stop_accepting(self) -> None:
        """Refuse new statements; running ones go on."""
        self._stopping = True

    def stop(self, *, grace_s: float) -> None:
        """Cancel all statements and wait for their end."""
        self.stop_accepting()
        self.parity.stop()
        self._alive.end(grace_s=grace_s)

    # ------------------------------------------------------------------ one statement's life

    def _run_statement(self, run: Run) -> None:
        """Run a statement to its end; until it first waits, others wait for it, for a short time."""
        with self._log.epoch(), self._one_at_a_time.turn() as run.end_turn:
            self._process(run)

    def _process(self, run: Run) -> None:
        """Classify a statement, run it, and release it; only defects escape as exceptions."""
        refusal: Exception | None = None
        run.clock.hand_over(Stage.START)
        try:
            snapshot, classified = self._reader.classify(run.statement, run.requester)
            run.clock.end(Stage.READ)
            if run.cancelled:
                raise StatementCancelled("The statement was cancelled while it was planned.")
            run.command = None if isinstance(classified, CompiledStatement) else classified
            if (
                run.is_taken_over and run.command is not None
            ):  # whoever asked for it may have given up, and sent another
                raise GatewayLost("Its gateway stopped before it was begun. Nothing was changed; send it again.")
            run.accepted.set_result(None)
            self._run(run, classified, snapshot)
        except (FusionError, NoEngine) as error:
            if not run.accepted.done() and not isinstance(error, StatementCancelled):
                refusal = error  # whose traceback refers to what is kept here
            self._log.close_untried(run, error)
        except SQLAlchemyError as error:
            if not run.accepted.done():
                refusal = error
            self._log.end_unrecorded(run, error)
        except Exception as error:
            if run.accepted.done():
                raise
            refusal = error  # a defect, of which the client's interface tells and writes to the log
        finally:
            self._waiting.tried(run)
            self._log.require_closed(run)
            self._alive.release(run)
            if not run.accepted.done():  # before its end, so that whoever hears of that knows what it is refused for
                run.accepted.set_result(refusal)
            run.clock.end(Stage.RECORD)
            try:
                self.measured(run)  # calls what an operator has put in for spans
            finally:
                run.done.set_result(run.record)

    def _run(self, run: Run, classified: RunnableStatement, snapshot: CatalogSnapshot) -> None:
        """Run an accepted statement. Raises its error if it fails before an engine is tried."""
        if isinstance(classified, CompiledStatement):
            self._query(run, classified, snapshot)
        elif isinstance(classified, Write) and classified.writes_rows:
            self._write(run, classified, snapshot)
        else:
            run.end_turn()
            run.only = self._router.require_allowed(run.statement, classified, snapshot, runs=True)
            attempt = new_attempt(1, ITSELF)
            self._log.attempt_started(run, attempt)
            self._close(run, self._executor.command(run, classified, attempt))

    def _query(self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot) -> None:
        """Answer from the cache, or decide, and try the ranked engines in turn."""
        lookup = self.cached.answer(run, query, snapshot)
        run.clock.end(Stage.CACHE)
        if lookup.answered:
            return
        decision = self._waiting.decision(run, query, snapshot).of_parts(query.restricted)
        run.clock.end(Stage.DECIDE)
        log.debug("query %s: %s because %s", run.id, decision.engine, decision.codes)
        retry(partial(self._joins.learn, query))
        outcome = self._try_engines(run, query, decision, snapshot.statistics_version(query.tables))
        self.cached.keep(run, query, lookup, outcome)
        self.parity.offer(run, query, outcome)

    def _try_engines(self, run: Run, query: CompiledStatement, decision: Decision, version: str) -> Outcome:
        """Try the ranked engines until one succeeds or an error ends the query; return the last attempt's outcome.

        version: of the statistics that the decision rests on.
        """
        dependable = [name for name in decision.ranking if self._engines[name].dependable]
        plan = FailoverPlan(decision.ranking, dependable=dependable)
        early: EarlyResult | None = None
        first = len(run.record.attempts) + 1
        while True:
            planned = plan.next()
            attempt = new_attempt(len(run.record.attempts) + 1, planned.engine, decision)
            if attempt.ordinal == first:
                self._log.decided(run, decision, attempt, query, version)
            else:
                self._log.attempt_started(run, attempt)
            if early is None and plan.ends_with(planned):
                early = self.early_results.begin(run)
            wait_s = SECOND_OPINION_S if plan.data_error else self._queue_s
            outcome = self._executor.query(run, query, planned, attempt, early=early, wait_s=wait_s)
            self._waiting.tried(run)
            error = outcome.error
            if not isinstance(error, EngineError) or not plan.may_continue(
                planned, error, lease_was_small=whole_limit_pays(decision, outcome.attempt)
            ):
                self._close(run, replace(outcome, error=error and _final_error(error, plan, early)))
                return outcome
            log.info("query %s: %s failed with %s, trying on", run.id, planned.engine, error.code)
            self._log.attempt_failed(run, outcome.attempt)
            if not plan.waiting and not plan.data_error:
                plan.resume(self._waiting.returned(run, plan.lost))
            if not plan.waiting:
                self._log.close(run, QueryState.FAILED, error=failure_of(_final_error(error, plan, early)))
                return outcome

    def _write(self, run: Run, write: Write, snapshot: CatalogSnapshot) -> None:
        """Run a write on one engine, once: a failed write is never repeated."""
        run.end_turn()
        decision = self._router.route_write(run.statement, write, snapshot, runs=True)
        attempt = new_attempt(1, decision.engine)
        self._log.decided(run, decision, attempt)
        self._close(run, self._executor.write(run, write, attempt))

    def _close(self, run: Run, outcome: Outcome) -> None:
        """Record the end of a statement with its last attempt."""
        run.clock.end(Stage.RUN)
        run.held = outcome.result.held if outcome.result is not None else None
        self._log.close(
            run,
            outcome.attempt.state,
            attempt=outcome.attempt,
            result=outcome.result,
            error=failure_of(outcome.error) if outcome.error is not None else None,
        )


def _final_error(error: FusionError, plan: FailoverPlan, early: EarlyResult | None) -> FusionError:
    """Return the error that a client is told at the end of a query."""
    final = plan.final_error(error)
    return final if early is None else early.final_error(final)
