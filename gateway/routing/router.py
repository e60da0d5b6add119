"""From a checked statement to a decision: the fast engine's plan, our estimate, history, and the ranking."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engines.errors import EngineError, MemoryExceeded, UnsupportedFeature
from engines.protocol import EXPLAIN_S, TableSource, Writer
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.errors import StatementTooComplex
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.sql.commands.writes import DropTable, Write, reads
from gateway.sql.compiled import CompiledStatement
from gateway.sql.duckdb.values import NoEquivalent
from gateway.sql.planning.fairness import FairSlots, Requester
from gateway.sql.planning.pool import Planners
from gateway.sql.planning.process import PlannerFault, Shared
from gateway.sql.planning.work import EnginePlan, estimate
from gateway.sql.statement import CheckedStatement
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decide import Candidate, Decision, RoutingPolicy, decide, decide_write
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.learning import RECENT, Residuals, WorkloadKey, observe

log = logging.getLogger(__name__)

CACHED_ESTIMATES = 2_048
SHOWN_PATTERN = 60

BACKTRACKING = frozenset({"spark", "hive"})
"""Dialects of engines that match regular expressions with Java's, which may take for ever and hears no cancel."""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """What one fast engine is expected to need.

    unsupported: why it cannot run the statement at all. no_equivalent: what of it would mean something else there.
    """

    estimate: MemoryEstimate = UNKNOWN
    unsupported: str | None = None
    no_equivalent: str | None = None


class Router:
    """Decides where statements go. Estimates are kept per fingerprint until the catalog changes.

    What runs taught is read once; after that, the coordinator tells each run that ends. Estimates are kept without it.
    require_unchanged: looks at tables whose files an engine is about to open for its plan, and may raise.
    """

    def __init__(
        self,
        engines: EngineRegistry,
        metastore: Metastore,
        policy: RoutingPolicy,
        planners: Planners,
        *,
        require_unchanged: Callable[[Sequence[TableSource]], None] = lambda _: None,
    ) -> None:
        self._engines = engines
        self._require_unchanged = require_unchanged
        self._metastore = metastore
        self._policy = policy
        self._planners = planners
        self._explaining = {
            entry.name: FairSlots(entry.planners, wait_s=planners.wait_s)
            for entry in engines.values()
            if not entry.dependable
        }
        self._lock = threading.Lock()
        self._prospects: OrderedDict[tuple[int, str, str], _Prospect] = OrderedDict()
        self._residuals = {
            entry.name: Residuals(metastore.queries.observations(entry.name, limit=RECENT))
            for entry in engines.values()
            if entry.limit_bytes is not None
        }

    def decide(
        self, statement: CompiledStatement, snapshot: CatalogSnapshot, *, pinned: str | None, asker: Requester
    ) -> Decision:
        """Return the ranking and its reasons.

        Raises NoEngine where nothing can take the statement, LocationRefused, StatementCancelled or DeadlineExceeded
        where nobody waits for it any more.
        """
        version = snapshot.statistics_version(statement.tables)
        misestimates = self._metastore.misestimates.on_record(statement.fingerprint, statistics_version=version)
        candidates: list[Candidate] = []
        for entry in self._engines.values():
            prospect = self._prospect(entry, statement, snapshot, asker)
            missed = [misestimate for misestimate in misestimates if _applies(misestimate, entry)]
            candidates.append(
                Candidate(
                    engine=entry.name,
                    dependable=entry.dependable,
                    limit_bytes=entry.limit_bytes,
                    down=entry.why_down(),
                    unsupported=prospect.unsupported,
                    no_equivalent=prospect.no_equivalent,
                    estimate=self._corrected(prospect.estimate, entry, statement, version),
                    misestimates=tuple(misestimate.query_id for misestimate in missed),
                    missed_bytes=max((misestimate.limit_bytes for misestimate in missed), default=None),
                )
            )
        return decide(candidates, policy=self._policy, pinned=pinned)

    def decide_write(self, write: Write, *, pinned: str | None) -> Decision:
        """Return the engine that writes. Raises NoEngine."""
        formats = {table.format: table.name for table in reads(write)}
        candidates = []
        for entry in self._engines.values():
            unreadable = sorted(name for format, name in formats.items() if format not in entry.engine.formats)
            unsupported = f"it cannot read the form of {', '.join(unreadable)}." if unreadable else None
            query = None if isinstance(write, DropTable) else write.query
            if query is not None:
                unsupported = unsupported or _unsafe_pattern(entry, query)
            if not isinstance(entry.engine, Writer):
                unsupported = "it does not write."
            candidates.append(Candidate(entry.name, entry.dependable, down=entry.why_down(), unsupported=unsupported))
        return decide_write(candidates, pinned=pinned)

    def learn(self, query: QueryRecord, attempt: Attempt) -> None:
        """Learn from an attempt that has ended: its measured peak, or that it ran out of memory."""
        residuals, decision = self._residuals.get(attempt.engine), query.decision
        ran_out = attempt.failure == MemoryExceeded.code
        measured = attempt.state is QueryState.FINISHED and attempt.peak_bytes is not None
        expected = decision.on(attempt.engine) if decision is not None else None
        if residuals is None or expected is None or expected.limit_bytes is None or not (measured or ran_out):
            return
        subject = WorkloadKey(
            query.fingerprint or "", query.template or "", query.statistics_version or "", expected.limit_bytes
        )
        observation = observe(expected.estimate, subject, measured_bytes=None if ran_out else attempt.peak_bytes)
        if observation is not None:
            with self._lock:
                residuals.add(observation)

    def _corrected(
        self, estimate: MemoryEstimate, entry: EngineEntry, statement: CompiledStatement, version: str
    ) -> MemoryEstimate:
        if entry.limit_bytes is None or entry.dependable:
            return estimate
        subject = WorkloadKey(statement.fingerprint, statement.template, version, entry.limit_bytes)
        with self._lock:
            return self._residuals[entry.name].correct(estimate, subject)

    def _prospect(
        self, entry: EngineEntry, statement: CompiledStatement, snapshot: CatalogSnapshot, asker: Requester
    ) -> _Prospect:
        unreadable = [table.name for table in statement.tables if table.format not in entry.engine.formats]
        if unreadable:
            return _Prospect(unsupported=f"it cannot read the form of {', '.join(unreadable)}.")
        if unsafe := _unsafe_pattern(entry, statement):
            return _Prospect(unsupported=unsafe)
        if entry.dependable:
            return _Prospect()
        key = (snapshot.version, entry.name, statement.fingerprint)
        with self._lock:
            known = self._prospects.get(key)
        if known is not None:
            return known
        try:
            prospect = _Prospect(self._estimate(entry, statement, snapshot, asker))
        except NoEquivalent as error:
            prospect = _Prospect(no_equivalent=error.message)
        except UnsupportedFeature as error:
            prospect = _Prospect(unsupported=error.message)
        except EngineError:
            asker.require()
            return _Prospect()  # no plan now; not to be remembered
        with self._lock:
            self._prospects[key] = prospect
            if len(self._prospects) > CACHED_ESTIMATES:
                self._prospects.popitem(last=False)
        return prospect

    def _estimate(
        self, entry: EngineEntry, statement: CompiledStatement, snapshot: CatalogSnapshot, asker: Requester
    ) -> MemoryEstimate:
        engine = entry.engine
        sql = statement.sql(engine.dialect)
        if engine.cost_model is None:
            return UNKNOWN
        shapes = [snapshot.shapes[table.name] for table in statement.tables]
        builds = [snapshot.statistics[table.name] for table in statement.tables if table.name in snapshot.statistics]
        named = statement.named.get(engine.dialect, {})
        self._require_unchanged(statement.tables)
        with self._explaining[entry.name].hold(asker):
            text = engine.explain(sql, deadline_s=min(EXPLAIN_S, asker.remaining_s), cancelled=asker.cancelled)
        plan = EnginePlan(text, engine.cost_model, entry.threads, entry.hosts)
        try:
            with self._planners.place(asker) as place:
                found: MemoryEstimate = place.call(
                    estimate, plan, shapes, statement.joined, statement.references, named, *map(Shared, builds)
                )
        except StatementTooComplex as error:
            return replace(UNKNOWN, too_complex=error.message)
        except PlannerFault:
            log.exception("an estimate failed; the statement goes on without one")
            return UNKNOWN
        return found


def _unsafe_pattern(entry: EngineEntry, statement: CheckedStatement | CompiledStatement) -> str | None:
    """Return why a statement's regular expressions keep it from an engine; None where they do not."""
    pattern = statement.explosive_pattern() if entry.engine.dialect in BACKTRACKING else None
    if pattern is None:
        return None
    return (
        f"the regular expression '{pattern[:SHOWN_PATTERN]}' can match one text in so many ways that it might never "
        "end there; repeat no group that holds another repetition of the same characters."
    )


def _applies(misestimate: Misestimate, entry: EngineEntry) -> bool:
    """Tell whether a misestimate holds for an engine: until its limit is raised above the one that was not enough."""
    return (
        misestimate.engine == entry.name
        and entry.limit_bytes is not None
        and entry.limit_bytes <= misestimate.limit_bytes
    )
