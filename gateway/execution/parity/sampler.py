"""START HERE: a share of the queries that fast engines answered runs again on the dependable one, in the background.

Both answers are compared over the same files. Where they differ, a case is kept, and the template goes to the
dependable engine until somebody releases it. Nothing waits for this: a sample runs where the dependable engine has a
free slot and nobody waits for one, and all samples of a day for no more than some seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import pyarrow as pa
from sqlalchemy.exc import SQLAlchemyError

from engines.compiled import CompiledStatement
from engines.errors import EngineBusy, StatementCancelled
from engines.protocol import Lease, reads_of, snapshots_of
from gateway.catalog.readable_files import require_present, require_unreplaced
from gateway.catalog.registration import Registration
from gateway.errors import ResultGone
from gateway.execution.executor import Outcome
from gateway.execution.parity.comparing import Difference, Row, difference
from gateway.execution.spooling.results import Spool
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.open_cases import OpenCases
from gateway.security.principals import Principal
from gateway.statements.statement import Run
from metastore.query_log.parity import COMPARED, DIFFERENT, Parity
from metastore.records import ParityCase, QueryRecord, QueryState
from sql.errors import FusionError, TableUnreadable

log = logging.getLogger(__name__)

WAITING = 200  # samples that wait; what comes while there are as many is left out
TRY_AGAIN_S = 1.0
LONGEST_WAIT_S = 600.0  # for a free slot
LONGEST_S = 600.0  # of a sample on the dependable engine
LARGEST_BYTES, MOST_ROWS = 64 << 20, 200_000
SAMPLER = Principal("parity sampler")
NOT_REPEATABLE, NO_EQUIVALENT, TOO_LARGE, TOO_MANY = "not repeatable", "no equivalent", "too large", "too many waiting"
OF_USERS = "as a user"  # an engine runs it with the rights of its user; the sampler has none
OPEN_ANSWER, FAILED, OVER_BUDGET, NO_SLOT = "answer left open", "failed there", "over the day's seconds", "no free slot"
GONE = "result or files gone"
VERSIONS = 64  # characters, as the metastore has them
LONGEST_ROW = 2_000  # characters


@dataclass(frozen=True, slots=True)
class _Sample:
    record: QueryRecord
    query: CompiledStatement
    since_s: float


class ParitySampler:
    """Compares answers. Thread-safe.

    share: of the queries that fast engines answer; pools: of single pools'. seconds_a_day: of the dependable engine.
    versions: returns the versions of engines, by name.
    """

    def __init__(
        self,
        *,
        engines: EngineRegistry,
        admission: Admission,
        registration: Registration,
        spool: Spool,
        parity: Parity,
        cases: OpenCases,
        share: float,
        pools: Mapping[str, float],
        seconds_a_day: float,
        versions: Callable[[], Mapping[str, str]],
    ) -> None:
        self._engines = engines
        self._admission = admission
        self._registration = registration
        self._spool = spool
        self._parity = parity
        self._cases = cases
        self._share = share
        self._pools = pools
        self._seconds_a_day = seconds_a_day
        self._versions = versions
        self._spent: tuple[str, float] = ("", 0.0)
        self._waiting: queue.Queue[_Sample | str | None] = queue.Queue(WAITING)  # str: a reason to be counted
        self._random = random.Random()  # noqa: S311 - not for secrets
        self._stopping = threading.Event()
        self._running: str | None = None
        self._ran_s = 0.0  # seconds of the newest run on the dependable engine, without its wait for a slot
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._outcomes = Counter({COMPARED: 0, DIFFERENT: 0})  # told from the start, so that a first one is an increase

    def offer(self, run: Run, query: CompiledStatement, outcome: Outcome) -> None:
        """Take a query that has ended, or not: as the share says."""
        record = run.record
        is_answer = record.state is QueryState.FINISHED and outcome.result is not None
        if not is_answer or record.engine is None or self._engines[record.engine].dependable or self._stopping.is_set():
            return
        share = self._pools.get(self._admission.pool(run.statement.pool).name, self._share)
        if not share or self._random.random() >= share:
            return
        reason = self._why_not(query, outcome)
        try:
            self._waiting.put_nowait(reason or _Sample(record, query, time.monotonic()))
        except queue.Full:
            self._outcomes[TOO_MANY] += 1  # not on record: the client waits for this thread
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="parity", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the sample that runs, and take no more."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        running, entry = self._running, self._dependable()
        if running is not None and entry is not None:
            entry.engine.cancel(running)
        if self._thread is not None:
            self._thread.join(TRY_AGAIN_S)

    def outcomes(self) -> Mapping[str, int]:
        """Return how often each outcome came since the start."""
        return dict(self._outcomes)

    def is_idle(self) -> bool:
        """Tell whether no sample waits or runs."""
        return self._waiting.unfinished_tasks == 0 or (self._thread is not None and not self._thread.is_alive())

    def _dependable(self) -> EngineEntry | None:
        return next((entry for entry in self._engines.values() if entry.dependable), None)

    def _why_not(self, query: CompiledStatement, outcome: Outcome) -> str | None:
        """Return why an answer cannot be compared, None if it can."""
        entry = self._dependable()
        if not query.is_repeatable:
            return NOT_REPEATABLE
        if entry is None or not isinstance(query.texts.get(entry.engine.writer), str):
            return NO_EQUIVALENT
        if entry.acts_for_users or self._engines[outcome.attempt.engine].acts_for_users:
            return OF_USERS
        result = outcome.result
        if result is None or result.bytes > LARGEST_BYTES or result.rows > MOST_ROWS:
            return TOO_LARGE
        return None

    # ------------------------------------------------------------------ in the sampler's thread

    def _work(self) -> None:
        while not self._stopping.is_set():
            sample = self._waiting.get()
            try:
                if isinstance(sample, str):
                    self._count(sample)
                elif sample is not None:
                    self._compare(sample)
            except Exception:  # a defect here must not end the comparisons
                log.exception("an answer could not be compared")
            finally:
                self._waiting.task_done()

    def _compare(self, sample: _Sample) -> None:
        entry = self._dependable()
        assert entry is not None
        if not self._has_seconds():
            return self._count(OVER_BUDGET)
        self._ran_s = 0.0
        try:
            with self._spool.open(sample.record.id) as result:
                answer = pa.Table.from_batches(list(result), result.schema)
            there = self._ask(sample, entry)
        except EngineBusy:
            return self._count(NO_SLOT)
        except StatementCancelled:
            return None
        except FusionError as error:
            log.info("the answer of %s cannot be compared: %s", sample.record.id, error)
            gone = isinstance(error, ResultGone | TableUnreadable)
            return self._count(GONE if gone else FAILED, self._ran_s)
        seconds = self._ran_s
        differs = difference(answer, there, sorted_by=sample.query.sorted_by)
        if differs is None:
            return self._count(COMPARED, seconds)
        if sample.query.leaves_open:
            return self._count(OPEN_ANSWER, seconds)
        self._count(COMPARED, seconds)
        self._count(DIFFERENT)
        return self._keep(sample, entry.name, differs)

    def _ask(self, sample: _Sample, entry: EngineEntry) -> pa.Table:
        """Run a query on the dependable engine. Raises EngineBusy where no slot gets free, EngineError, FusionError."""
        query, name = sample.query, f"{sample.record.id}_parity"
        sql = query.sql(entry.engine.writer)
        request = Request(entry.name, 0, SAMPLER, "", name)
        while True:
            try:
                if self._is_crowded(entry.name):
                    raise EngineBusy("Others wait for it.")
                with self._admission.lease(request, wait_s=0.0) as grant, entry.breaker.watched():
                    return self._run(sql, name, entry, grant.lease, query)
            except EngineBusy:
                if time.monotonic() - sample.since_s > LONGEST_WAIT_S or self._stopping.wait(TRY_AGAIN_S):
                    raise

    def _run(self, sql: str, name: str, entry: EngineEntry, lease: Lease, query: CompiledStatement) -> pa.Table:
        self._running, begun_s = name, time.monotonic()
        try:
            with self._registration.reading(query.tables, query.columns, self._require_running):
                require_present(query.tables)
                stream = entry.engine.execute(
                    sql,
                    query_id=name,
                    lease=lease,
                    deadline_s=LONGEST_S,
                    snapshots=snapshots_of(query.tables),
                )
                with stream:
                    table = pa.Table.from_batches(list(stream), stream.schema)
            self._registration.require_unchanged(query.tables)
            require_unreplaced(query.tables)
            return table
        finally:
            self._running, self._ran_s = None, time.monotonic() - begun_s

    def _is_crowded(self, engine: str) -> bool:
        states = self._admission.describe().engines
        return any(state.budget.name == engine and state.waiting for state in states)

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise StatementCancelled("The gateway stops.")

    def _has_seconds(self) -> bool:
        today = f"{_now():%Y%m%d}"
        if self._spent[0] != today:
            midnight = _now().replace(hour=0, minute=0, second=0, microsecond=0)
            self._spent = today, self._parity.counts(midnight).seconds
        return self._spent[1] < self._seconds_a_day

    def _keep(self, sample: _Sample, other: str, differs: Difference) -> None:
        record = sample.record
        log.warning("the answer of %s on %s differs from %s's: %s", record.id, record.engine, other, differs.text)
        case = ParityCase(
            query_id=record.id,
            template=sample.query.template,
            sql=record.sql,
            dialect=record.dialect,
            user=record.user,
            authenticated=record.authenticated,
            engine=record.engine or "",
            other=other,
            difference=differs.text[:LONGEST_ROW],
            rows=_texts(differs.one),
            other_rows=_texts(differs.other),
            snapshots={name: read.snapshot for name, read in reads_of(sample.query.tables).items()},
            version=self._versions_of(record.engine or "", other),
            found_at=_now(),
        )
        self._parity.keep(case)
        self._cases.changed()

    def _versions_of(self, *engines: str) -> str:
        """Return the versions of the gateway and of two engines, as far as they are known here."""
        versions = self._versions()
        own = f"gateway {version('fusion-sql-gateway')}"
        return ", ".join([own, *(f"{engine} {versions[engine]}" for engine in engines if engine in versions)])[
            :VERSIONS
        ]

    def _count(self, outcome: str, seconds: float = 0.0) -> None:
        self._outcomes[outcome] += 1
        today = f"{_now():%Y%m%d}"
        if self._spent[0] == today:
            self._spent = today, self._spent[1] + seconds
        try:
            self._parity.count(outcome, _now(), seconds)
        except SQLAlchemyError as error:
            log.warning("a comparison could not be counted: %s", error)


def _texts(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(repr(row)[:LONGEST_ROW] for row in rows)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
