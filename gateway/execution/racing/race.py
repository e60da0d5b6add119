"""START HERE: a query's attempts, of which two may run at once. The first whole answer wins.

Most attempts run alone, one after the other. One on a fast engine is watched: where it is expected to run out of
memory, and the next engine to end sooner, that one starts before the crash, in the place of the first or beside it
(``selector/forecast/continuation.py``). The query's own thread decides all, and hears what happens from a queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

from engines.errors import BrokenOff, EngineError, StatementCancelled, Superseded
from engines.machine.threads import Threads
from gateway.errors import GatewayError
from gateway.execution.executor import Executor, Outcome
from gateway.execution.failover import FailoverPlan, PlannedAttempt
from gateway.execution.query_log import QueryLog, new_attempt
from gateway.execution.racing.runner import FinishLine, Runner
from gateway.execution.streaming.early_result import EarlyResult
from gateway.execution.streaming.early_results import EarlyResults
from gateway.routing.admission.admission import Admission
from gateway.routing.engines import EngineRegistry
from gateway.routing.router import Router
from gateway.sql.compiled import CompiledStatement
from gateway.statements.statement import Run
from metastore.records import Attempt
from selector.decision import Decision
from selector.forecast.continuation import Continuation, Prospects, Standing, Weighed, weigh
from selector.forecast.experience import PeakForecast

log = logging.getLogger(__name__)

WORTH_A_LOOK = 0.25  # share of what it can get, from which an attempt's memory is looked at


@dataclass(frozen=True, slots=True)
class _Started:
    """A runner holds its lease."""

    runner: Runner


@dataclass(frozen=True, slots=True)
class _Doubted:
    """A runner probably runs out of memory, and another engine is expected to end sooner."""

    runner: Runner
    weighed: Weighed


@dataclass(frozen=True, slots=True)
class _Ended:
    """A runner has come to its end. defect: what no attempt ends with."""

    runner: Runner
    outcome: Outcome | None
    defect: BaseException | None = None


class Races:
    """Makes races. early: whether another engine may start before the first one has failed."""

    def __init__(
        self,
        engines: EngineRegistry,
        admission: Admission,
        router: Router,
        executor: Executor,
        query_log: QueryLog,
        *,
        early: bool,
        early_results: EarlyResults,
    ) -> None:
        self.engines = engines
        self.admission = admission
        self.router = router
        self.executor = executor
        self.log = query_log
        self.early = early
        self.early_results = early_results
        self.threads = Threads("attempt")


class Race:
    """The attempts of one query. Lives in its thread. tried: hears each time that it is on record how one failed."""

    def __init__(
        self,
        races: Races,
        run: Run,
        query: CompiledStatement,
        decision: Decision,
        plan: FailoverPlan,
        statistics_version: str,
        *,
        tried: Callable[[], None],
    ) -> None:
        self._races = races
        self._run = run
        self._query = query
        self._decision = decision
        self._plan = plan
        self._statistics_version = statistics_version
        self._tried = tried
        self._finish = FinishLine()
        self._early: EarlyResult | None = None
        self._events: SimpleQueue[_Started | _Doubted | _Ended] = SimpleQueue()
        self._running: list[Runner] = []
        self._doubted: dict[Runner, Weighed] = {}
        self._attempts = 0

    def next(self, wait_s: float) -> Outcome | None:
        """Run what comes next in the plan, and what overlaps it. wait_s: longest wait for a slot.

        Returns how the query ended; None where another attempt may follow, which the plan holds.
        """
        self._start(wait_s)
        while True:
            match self._events.get():
                case _Started(runner):
                    self._break_off_before(runner)
                case _Doubted(runner, weighed):
                    if self._running == [runner] and self._next_is_up():
                        self._doubted[runner] = weighed
                        self._start(wait_s)
                case _Ended(_, _, defect) if defect is not None:
                    raise defect
                case _Ended(runner, outcome) if outcome is not None:
                    self._running.remove(runner)
                    self._tried()
                    error = outcome.error
                    if not isinstance(error, EngineError) or not error.fails_over:
                        self._supersede(outcome)
                        return self._told(outcome)
                    lease_was_small = self._whole_pays(outcome.attempt)
                    may_continue = self._plan.may_continue(runner.this, error, lease_was_small=lease_was_small)
                    if not may_continue and not self._running:
                        return self._told(outcome)
                    log.info("query %s: %s failed with %s, trying on", self._run.id, runner.this.engine, error.code)
                    self._races.log.attempt_failed(self._run, outcome.attempt)
                    if not self._running:
                        return None

    def _start(self, wait_s: float) -> None:
        """Start the next attempt: in a thread of its own where another one runs, or may follow before it ends."""
        this = self._plan.next()
        self._attempts += 1
        attempt = new_attempt(self._attempts, this.engine, self._decision)
        if self._attempts == 1:
            self._races.log.decided(self._run, self._decision, attempt, self._query, self._statistics_version)
        else:
            self._races.log.attempt_started(self._run, attempt)
        judge = self._judge(this)
        settled = self._is_settled(this)
        runner = Runner(
            self._run,
            this,
            attempt,
            self._finish,
            started=lambda runner: self._events.put(_Started(runner)),
            judge=judge,
            early=self._early if settled or self._was_opened else None,
            settled=settled,
        )
        self._running.append(runner)
        carry_out = partial(self._carry_out, runner, wait_s)
        if judge is None and len(self._running) == 1:
            carry_out()
        else:
            self._races.threads.run(carry_out)

    def _is_settled(self, this: PlannedAttempt) -> bool:
        """Tell whether nothing can take the place of an attempt's rows but a second try of its own.

        It is the plan's last, and nothing runs beside it. It reads: what writes does not come here.
        """
        if self._running or not self._plan.ends_with(this):
            return False
        if self._early is None:
            self._early = self._races.early_results.begin(self._run)
        return self._early is not None

    @property
    def _was_opened(self) -> bool:
        return self._early is not None and self._early.was_opened

    def told(self, error: EngineError) -> EngineError | GatewayError:
        """Return what a client hears of the last attempt's error."""
        final = self._plan.final_error(error)
        return final if self._early is None else self._early.told(final)

    def _told(self, outcome: Outcome) -> Outcome:
        if self._early is None or outcome.error is None:
            return outcome
        return replace(outcome, error=self._early.told(outcome.error))

    def _carry_out(self, runner: Runner, wait_s: float) -> None:
        try:
            outcome = self._races.executor.query(self._query, runner, wait_s=wait_s)
        except BaseException as defect:
            self._events.put(_Ended(runner, None, defect))
        else:
            self._events.put(_Ended(runner, outcome))
        finally:
            runner.ended()

    def _judge(self, this: PlannedAttempt) -> Callable[[Runner, Standing], None] | None:
        """Return what weighs a running attempt against the next in the plan; None where there is nothing to weigh."""
        here, engines = self._decision.price(this.engine), self._races.engines
        following = self._plan.waiting[0].engine if self._plan.waiting else None
        there = self._decision.price(following) if following is not None else None
        limited = engines[this.engine].limit_bytes is not None
        if not (self._races.early and limited) or this.to_the_end or self._running or self._was_opened:
            return None
        if here is None or here.fits is None or there is None or following is None:
            return None
        elsewhere_s = there.wait_s + there.seconds if there.first_s is None else there.first_s
        slowed = engines.slowed(this.engine, following)
        expected = here.fits, here.seconds, elsewhere_s, slowed
        peaks: list[PeakForecast | None] = []  # looked up once, if at all
        doubted = threading.Event()

        def judge(runner: Runner, standing: Standing) -> None:
            if doubted.is_set() or standing.held_bytes < WORTH_A_LOOK * standing.limit_bytes:
                return
            if not peaks:
                peaks.append(self._races.router.peak(self._run.record, this.engine))
            if peaks[0] is None:
                return
            weighed = weigh(Prospects(peaks[0], *expected), standing)
            if weighed.choice is not Continuation.GO_ON:
                doubted.set()
                self._events.put(_Doubted(runner, weighed))

        return judge

    def _whole_pays(self, attempt: Attempt) -> bool:
        """Tell whether an attempt that ran out of memory is worth another one with all that its engine gives.

        It is not where the engine says that it had more than it was leased: then the lease was not too small.
        """
        price, lease = self._decision.price(attempt.engine), attempt.lease_bytes
        considered = self._decision.on(attempt.engine)
        if price is None or considered is None or considered.limit_bytes is None or lease is None:
            return False
        return price.whole_pays and lease < considered.limit_bytes and (attempt.peak_bytes or 0) <= lease

    def _next_is_up(self) -> bool:
        waiting = self._plan.waiting
        return bool(waiting) and self._races.engines[waiting[0].engine].why_down() is None

    def _break_off_before(self, runner: Runner) -> None:
        """End what an attempt takes the place of, now that it holds a lease and can begin."""
        for other in self._running:
            weighed = self._doubted.get(other)
            if other is not runner and weighed is not None and weighed.choice is Continuation.SWITCH:
                text = f"Broken off in favour of {runner.this.engine}: {weighed.text(runner.this.engine)}."
                log.info("query %s: %s was %s", self._run.id, other.this.engine, text)
                limit_bytes = weighed.standing.limit_bytes
                error = BrokenOff(text, peak_bytes=other.held_bytes, limit_bytes=limit_bytes)
                outcome = Outcome(self._end(other, error), error=error)
                self._races.executor.learn(self._run, self._query, outcome)

    def _supersede(self, outcome: Outcome) -> None:
        """End what still runs, now that the query has ended."""
        for other in self._running:
            told = "answered" if outcome.error is None else "ended the query"
            reason: StatementCancelled = Superseded(f"{outcome.attempt.engine} {told} first.")
            if self._run.cancelled:
                reason = StatementCancelled("The statement was cancelled.")
            self._races.log.attempt_failed(self._run, self._end(other, reason))

    def _end(self, runner: Runner, reason: StatementCancelled) -> Attempt:
        """End a runner, also where it waits for its lease; returns what is put on record of it."""
        attempt = runner.end(reason)
        self._races.admission.wake(self._run.id)
        return attempt
