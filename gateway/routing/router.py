"""From a checked statement to a decision: the fast engine's plan, our estimate, history, and the ranking."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engines.errors import EngineError, MemoryExceeded, UnsupportedFeature
from engines.protocol import EXPLAIN_S, TableSource, Writer
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.errors import StatementTooComplex
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.sql.commands.writes import Write, queries_of, reads
from gateway.sql.compiled import CompiledStatement
from gateway.sql.duckdb.values import NoEquivalent
from gateway.sql.planning.fairness import FairSlots, Requester
from gateway.sql.planning.pool import Planners
from gateway.sql.planning.process import PlannerFault, Shared
from gateway.sql.planning.work import EnginePlan, estimate
from gateway.sql.statement import CheckedStatement
from gateway.statements.statement import Statement
from metastore.records import Attempt, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decide import decide, decide_write
from selector.decision import Candidate, Decision, RoutingPolicy, Rule
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.experience import Experience
from selector.forecast.history import Ground, PastRun, WorkloadKey
from selector.forecast.seconds import Work

log = logging.getLogger(__name__)

CACHED_ESTIMATES = 2_048
RUNS_READ = 500  # of the past, for each engine
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
    """Decides where statements go. Estimates are kept per fingerprint until one of the statement's tables changes.

    What runs taught is read once; after that, the executor tells each run that ends. Estimates are kept without it.
    pools: rules of pools, by name. require_unchanged: looks at tables whose files an engine is about to open for its
    plan, and may raise.
    """

    def __init__(
        self,
        engines: EngineRegistry,
        metastore: Metastore,
        policy: RoutingPolicy,
        planners: Planners,
        *,
        pools: Mapping[str, Rule] = {},
        require_unchanged: Callable[[Sequence[TableSource]], None] = lambda _: None,
    ) -> None:
        self._pools = pools
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
        speeds = {entry.name: entry.first_speed for entry in engines.values()}
        self._experience = Experience(speeds, metastore.queries.runs(limit=RUNS_READ))

    def decide(
        self,
        statement: CompiledStatement,
        snapshot: CatalogSnapshot,
        *,
        pinned: str | None,
        asker: Requester,
        rule: Rule | None = None,
    ) -> Decision:
        """Return the ranking and its reasons. rule: that decides; None for the gateway's own.

        Raises NoEngine where nothing can take the statement, LocationRefused, StatementCancelled or DeadlineExceeded
        where nobody waits for it any more.
        """
        version = snapshot.statistics_version(statement.tables)
        missed = self._metastore.misestimates.about(statement.fingerprint)
        prospects = {entry.name: self._prospect(entry, statement, snapshot, asker) for entry in self._engines.values()}
        known = (prospect.estimate for prospect in prospects.values() if prospect.estimate.known)
        work = Work.of(next(known, UNKNOWN))
        subject = WorkloadKey(statement.fingerprint, statement.template)
        candidates = []
        for entry in self._engines.values():
            prospect = prospects[entry.name]
            ground = Ground(entry.name, entry.limit_bytes, version, prospect.estimate.peak_bytes)
            standing = [one for one in missed if one.stands_on(ground)]
            with self._lock:
                forecast = self._experience.forecast(entry.name, subject, work, prospect.estimate, entry.limit_bytes)
                mean_s = self._experience.mean_seconds(entry.name)
            wait_s, waiting = entry.ledger.queue(mean_s)
            candidates.append(
                Candidate(
                    engine=entry.name,
                    dependable=entry.dependable,
                    limit_bytes=entry.limit_bytes,
                    down=entry.why_down(),
                    unsupported=prospect.unsupported,
                    no_equivalent=prospect.no_equivalent,
                    forecast=forecast,
                    wait_s=wait_s,
                    held_s=waiting * forecast.seconds,
                    misestimates=tuple(one.query_id for one in standing),
                    missed_bytes=max((one.limit_bytes for one in standing), default=None),
                )
            )
        policy = self._policy if rule is None else replace(self._policy, rule=rule)
        return decide(candidates, policy=policy, pinned=pinned, template=statement.template)

    def rule_of(self, statement: Statement) -> Rule:
        """Return what decides about a statement: its own rule, that of its pool, or the gateway's."""
        return statement.rule or self._pools.get(statement.pool, self._policy.rule)

    def decide_write(self, write: Write, *, pinned: str | None) -> Decision:
        """Return the engine that writes. Raises NoEngine."""
        formats = {table.format: table.name for table in reads(write)}
        candidates = []
        for entry in self._engines.values():
            unreadable = sorted(name for format, name in formats.items() if format not in entry.engine.formats)
            unsupported = f"it cannot read the form of {', '.join(unreadable)}." if unreadable else None
            for query in queries_of(write):
                unsupported = unsupported or _unsafe_pattern(entry, query)
            if not isinstance(entry.engine, Writer):
                unsupported = "it does not write."
            candidates.append(Candidate(entry.name, entry.dependable, down=entry.why_down(), unsupported=unsupported))
        return decide_write(candidates, pinned=pinned)

    def learn(self, query: QueryRecord, attempt: Attempt) -> None:
        """Learn from an attempt that has ended well, or that ran out of memory."""
        ran_out = attempt.failure == MemoryExceeded.code
        if attempt.state is not QueryState.FINISHED and not ran_out:
            return
        run = PastRun(
            attempt.engine,
            WorkloadKey(query.fingerprint or "", query.template or ""),
            attempt.expected,
            ran_out,
            None if ran_out else attempt.peak_bytes,
            attempt.run_s,
        )
        with self._lock:
            self._experience.learn(run)

    def forget_misses(self, fingerprint: str) -> None:
        """Forget that a statement ran out of memory; the metastore was told already."""
        with self._lock:
            self._experience.forget_misses(fingerprint)

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
        key = (snapshot.changed_at(statement.tables), entry.name, statement.fingerprint)
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
