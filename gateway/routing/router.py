"""From a checked statement to a decision: the fast engine's plan, our estimate, history, and the ranking."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from itertools import chain

from cachetools import LRUCache

from engines.compiled import CompiledStatement
from engines.errors import EngineError, MemoryExceeded, NoEquivalent, UnsupportedFeature
from engines.files.bounds_statistics import bounds_statistics
from engines.protocol import EXPLAIN_S, Writer, reads_of, snapshots_of
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.planning.fairness import FairSlots, Requester
from gateway.planning.pool import Planners
from gateway.planning.process import PlannerFault, Shared
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import DEFAULT_POOL, Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.estimating import EnginePlan, estimate
from gateway.routing.open_cases import OpenCases
from gateway.routing.prospect import Prospect, of_dependable, unsafe_pattern
from gateway.routing.rules.matching import first_match
from gateway.routing.rules.rules import RoutingRule
from gateway.routing.rules.rules_file import RulesFile
from gateway.routing.rules.subject import EngineExpectation, EngineState, subject_of
from gateway.statements.command import ClassifiedStatement, Command, kinds_of, tables_of
from gateway.statements.statement import Statement
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decide import decide, decide_write
from selector.decision import Candidate, Decision, Demand, NoEngine, RoutingPolicy, Rule, RuleAction
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.experience import Experience
from selector.forecast.history import Ground, PastRun, WorkloadKey
from selector.forecast.lease import LEAST_BYTES, lease_bytes
from selector.forecast.seconds import Work
from selector.plan import TableShape
from selector.query_text import Wording
from selector.statistics import TableStatistics
from sql.errors import RuleDenied, RuleForbidsEngine, StatementTooComplex
from sql.names import base_name
from sql.tables import TableSource

log = logging.getLogger(__name__)

CACHED_ESTIMATES = 2_048
RUNS_READ = 500  # of the past, for each engine


def _planning(tables: Sequence[TableSource], require: Callable[[], None]) -> AbstractContextManager[None]:
    """Plan a query whose tables need no preparation."""
    return nullcontext()


class Router:
    """Routes statements to engines. Estimates are cached per fingerprint until one of the statement's tables changes.

    Learned corrections are read once; after that, the executor adds each run that ends. Cached estimates are without
    corrections.

    admission: source of expected waits.
    pools: routing policy of each pool.
    pool_threads: threads of each pool's statements.
    rules: rules of the administrator's file.
    has_users: user names are authenticated.
    planning: context in which an engine plans a query of tables; raises where it cannot open their files.
    """

    def __init__(
        self,
        engines: EngineRegistry,
        metastore: Metastore,
        policy: RoutingPolicy,
        planners: Planners,
        admission: Admission,
        *,
        pools: Mapping[str, Rule] = {},
        pool_threads: Mapping[str, int] = {},
        rules: RulesFile | None = None,
        has_users: bool = False,
        planning: Callable[[Sequence[TableSource], Callable[[], None]], AbstractContextManager[None]] = _planning,
    ) -> None:
        self._pools = pools
        self._pool_threads = pool_threads
        self.rules = rules or RulesFile(None, engines)
        self.open_cases = OpenCases(metastore.parity)
        self._has_users = has_users
        self._engines = engines
        self._planning = planning
        self._metastore = metastore
        self._policy = policy
        self._planners = planners
        self._admission = admission
        self._explaining = {
            entry.name: FairSlots(entry.planners, wait_s=planners.wait_s)
            for entry in engines.values()
            if not entry.dependable
        }
        self._lock = threading.Lock()
        self._prospects: LRUCache[tuple[object, ...], Prospect] = LRUCache(CACHED_ESTIMATES)
        speeds = {entry.name: entry.first_speed for entry in engines.values()}
        self._experience = Experience(speeds, metastore.queries.runs(limit=RUNS_READ))

    def route(
        self,
        statement: Statement,
        query: CompiledStatement,
        snapshot: CatalogSnapshot,
        requester: Requester,
        *,
        by_rules: bool = True,
    ) -> Decision:
        """Return the decision about a query, for running and explaining it alike.

        by_rules: whether routing rules have a say. Raises RuleDenied, RuleForbidsEngine, NoEngine where nothing can
        take it, LocationRefused, StatementCancelled or DeadlineExceeded where nobody waits for it any more.
        """
        pinned, policy = statement.pinned or query.engine, replace(self._policy, rule=self.rule_of(statement))
        candidates = cache(partial(self._candidates, statement, query, snapshot, requester))
        expected = partial(_expectations, candidates)
        matched = self.matched(statement, query, snapshot, expected) if by_rules else None
        demand = self._demand(matched, pinned)
        ranked = candidates() if candidates.cache_info().currsize else None
        if ranked is None and demand is not None and demand.only is not None:
            ranked = self._candidates(statement, query, snapshot, requester, only=demand.only)
        ranked = candidates() if ranked is None else ranked
        with _noted(matched):
            decided = decide(ranked, policy=policy, pinned=pinned, template=query.template, demand=demand)
        decided = replace(decided, reads=reads_of(query.tables))
        return replace(decided, matched=matched.name) if matched is not None else decided

    def may_answer(
        self, statement: Statement, query: CompiledStatement, snapshot: CatalogSnapshot, requester: Requester
    ) -> tuple[str | None, frozenset[str] | None]:
        """Return the rule that a query meets, and the engines whose earlier results may answer it; None for all.

        What only prefers an engine lets any answer; one that is to be tried first is taken at its word. Raises as
        ``route`` does, but for NoEngine.
        """
        pinned = statement.pinned or query.engine
        candidates = partial(self._candidates, statement, query, snapshot, requester)
        matched = self.matched(statement, query, snapshot, partial(_expectations, candidates))
        demand = self._demand(matched, pinned)
        only = None if demand is None or demand.action is RuleAction.PREFER else frozenset(demand.engines)
        return matched.name if matched is not None else None, only if pinned is None else frozenset({pinned})

    def route_write(
        self, statement: Statement, write: Command, snapshot: CatalogSnapshot, *, runs: bool = False
    ) -> Decision:
        """Return where a write goes. runs: not only explained. Raises RuleDenied, RuleForbidsEngine, NoEngine."""
        matched = self.matched(statement, write, snapshot, runs=runs)
        demand = self._demand(matched, statement.pinned)
        with _noted(matched):
            decided = self.decide_write(write, pinned=statement.pinned, demand=demand)
        return replace(decided, matched=matched.name if matched is not None else None)

    def require_allowed(
        self, statement: Statement, command: ClassifiedStatement, snapshot: CatalogSnapshot, *, runs: bool = False
    ) -> tuple[str, ...] | None:
        """Return the engines that may run a command; None: all. runs: it is not only explained. Raises RuleDenied."""
        matched = self.matched(statement, command, snapshot, runs=runs)
        demand = matched.demand if matched is not None else None
        return demand.only if demand is not None else None

    def matched(
        self,
        statement: Statement,
        classified: ClassifiedStatement,
        snapshot: CatalogSnapshot,
        expected: Callable[[], Mapping[str, EngineExpectation]] = lambda: {},
        *,
        runs: bool = False,
    ) -> RoutingRule | None:
        """Return the rule that a statement meets, None where it meets none. Raises RuleDenied."""
        rules = self.rules.current()
        if not rules.rule:
            return None
        subject = subject_of(
            statement,
            kinds=kinds_of(classified),
            tables=tuple(map(base_name, tables_of(classified, chain(snapshot.tables, snapshot.views)))),
            states=cache(partial(self._state, statement)),
            expected=expected,
            has_users=self._has_users,
        )
        matched = first_match(rules, subject)
        if runs and matched is not None:
            self.rules.hit(matched.name)
        if matched is not None and matched.deny is not None:
            raise RuleDenied(f"{matched.deny} (Denied by the routing rule '{matched.name}'.)", matched.name)
        return matched

    @staticmethod
    def _demand(matched: RoutingRule | None, pinned: str | None) -> Demand | None:
        """Return what a rule demands; what only prefers gives way to the client's choice. Raises RuleForbidsEngine."""
        demand = matched.demand if matched is not None else None
        if demand is None or pinned is None:
            return demand
        if demand.only is not None and pinned not in demand.only:
            names = " or ".join(demand.only)
            where = f"on {names} alone" if demand.action is RuleAction.ALLOW else f"on {names} and nowhere else"
            message = (
                f"The statement asks for {pinned}, and the routing rule '{demand.rule}' has it run {where}. Ask for "
                "that engine, or for none."
            )
            raise RuleForbidsEngine(message, demand.rule)
        return None

    def _state(self, statement: Statement, name: str) -> EngineState:
        request = Request(name, LEAST_BYTES, statement.principal, statement.pool)
        wait_s, _ = self._admission.congestion(request)
        return EngineState(self._engines[name].why_down() is not None, wait_s > 0.0, wait_s)

    def _candidates(
        self,
        statement: Statement,
        query: CompiledStatement,
        snapshot: CatalogSnapshot,
        requester: Requester,
        *,
        only: Sequence[str] | None = None,
    ) -> list[Candidate]:
        """Return the candidates with their current state. only: engines to consider; no other runs EXPLAIN."""
        entries = [entry for entry in self._engines.values() if only is None or entry.name in only]
        version = snapshot.statistics_version(query.tables)
        missed = self._metastore.misestimates.about(query.fingerprint)
        requested_threads = self.threads_of(statement)
        threads = {
            entry.name: entry.threads_for(requested_threads, beside=self._admission.long_at(entry.name))
            for entry in entries
        }
        prospects = {
            entry.name: self._prospect(entry, query, snapshot, requester, threads[entry.name]) for entry in entries
        }
        estimates = (prospect.estimate for prospect in prospects.values() if prospect.estimate.known)
        work = Work.of(
            next(estimates, UNKNOWN)
        )  # on all: what plans of engines differ by says nothing of their seconds
        subject = WorkloadKey(query.fingerprint, query.template)
        candidates = []
        for entry in entries:
            prospect = prospects[entry.name]
            limit_bytes = self._admission.limit_bytes(entry.name, statement.pool)
            ground = Ground(entry.name, limit_bytes, version, prospect.estimate.peak_bytes)
            standing = [one for one in missed if one.stands_on(ground)]
            with self._lock:
                forecast = self._experience.forecast(entry.name, subject, work, prospect.estimate, limit_bytes)
            leased = limit_bytes
            if limit_bytes is not None and self._policy.lease_by_estimate:
                with_least = replace(ground, limit_bytes=0)  # whatever was leased then
                too_few = (one.limit_bytes for one in missed if one.stands_on(with_least))
                leased = lease_bytes(forecast.estimate, limit_bytes, missed_bytes=max(too_few, default=None))
            wait_s, crowd = self._admission.congestion(
                Request(entry.name, leased or 0, statement.principal, statement.pool, expected_s=forecast.seconds)
            )
            candidates.append(
                Candidate(
                    engine=entry.name,
                    dependable=entry.dependable,
                    limit_bytes=limit_bytes,
                    lease_bytes=leased,
                    down=entry.why_down(),
                    unsupported=prospect.unsupported or _unplannable(entry, missed),
                    no_equivalent=prospect.no_equivalent or self._differed(entry, query),
                    forecast=forecast,
                    wait_s=wait_s,
                    held_s=crowd * forecast.seconds,
                    misestimates=tuple(one.query_id for one in standing),
                    missed_bytes=max((one.limit_bytes for one in standing), default=None),
                    threads=None if entry.dependable else threads[entry.name],
                )
            )
        return candidates

    def _differed(self, entry: EngineEntry, query: CompiledStatement) -> str | None:
        """Return why a query's template stays off an engine, if an answer of it there was found to differ."""
        case = None if entry.dependable else self.open_cases.of(entry.name, query.template)
        return None if case is None else f"its answer differed for {case}, see fusion parity show {case}"

    def rule_of(self, statement: Statement) -> Rule:
        """Return what decides about a statement: its own rule, that of its pool, or the gateway's."""
        return statement.rule or self._pools.get(statement.pool) or self._pools.get(DEFAULT_POOL) or self._policy.rule

    def threads_of(self, statement: Statement) -> int | None:
        """Return the threads that a statement asks for: its own, its session's, or those of its pool."""
        return statement.threads or self._pool_threads.get(statement.pool) or self._pool_threads.get(DEFAULT_POOL)

    def decide_write(self, write: Command, *, pinned: str | None, demand: Demand | None = None) -> Decision:
        """Return the engine that writes. demand: of a routing rule. Raises NoEngine."""
        formats = {table.format: table.name for table in write.reads}
        candidates = []
        for entry in self._engines.values():
            unreadable = sorted(name for format, name in formats.items() if format not in entry.engine.formats)
            unsupported = f"it cannot read the form of {', '.join(unreadable)}." if unreadable else None
            for query in write.queries:
                unsupported = unsupported or unsafe_pattern(entry, query)
            if not isinstance(entry.engine, Writer):
                unsupported = "it does not write."
            candidates.append(Candidate(entry.name, entry.dependable, down=entry.why_down(), unsupported=unsupported))
        return decide_write(candidates, pinned=pinned, demand=demand)

    def learn(self, query: QueryRecord, attempt: Attempt) -> None:
        """Learn from an attempt that has ended well, or that ran out of memory."""
        ran_out = attempt.failure == MemoryExceeded.code
        if attempt.state is not QueryState.FINISHED and not ran_out:
            return
        run = PastRun(
            attempt.engine,
            _subject(query),
            attempt.expected,
            ran_out,
            None if ran_out else attempt.peak_bytes,
            attempt.run_s,
        )
        with self._lock:
            self._experience.learn(run)

    def forget_misses(self, fingerprint: str) -> None:
        """Drop a statement's misestimates, which the metastore has deleted."""
        with self._lock:
            self._experience.forget_misses(fingerprint)

    def _prospect(
        self,
        entry: EngineEntry,
        statement: CompiledStatement,
        snapshot: CatalogSnapshot,
        requester: Requester,
        threads: int,
    ) -> Prospect:
        unreadable = [table.name for table in statement.tables if table.format not in entry.engine.formats]
        if unreadable:
            return Prospect(unsupported=f"it cannot read the form of {', '.join(unreadable)}.")
        if unsafe := unsafe_pattern(entry, statement):
            return Prospect(unsupported=unsafe)
        if entry.dependable:
            return of_dependable(entry, statement)
        states = tuple(table.snapshot for table in statement.tables if table.is_lake)
        key = (snapshot.changed_at(statement.tables), entry.name, statement.fingerprint, threads, states)
        with self._lock:
            remembered = self._prospects.get(key)
        if remembered is not None:
            return remembered
        try:
            prospect = Prospect(self._estimate(entry, statement, snapshot, requester, threads))
        except NoEquivalent as error:
            prospect = Prospect(no_equivalent=error.message)
        except UnsupportedFeature as error:
            prospect = Prospect(unsupported=error.message)
        except EngineError:
            requester.require()
            return Prospect()  # no plan now; not to be remembered
        with self._lock:
            self._prospects[key] = prospect
        return prospect

    def _estimate(
        self,
        entry: EngineEntry,
        statement: CompiledStatement,
        snapshot: CatalogSnapshot,
        requester: Requester,
        threads: int,
    ) -> MemoryEstimate:
        engine = entry.engine
        sql = statement.sql(engine.writer)
        if engine.cost_model is None:
            return UNKNOWN
        shapes = [_shape(snapshot.shapes, table) for table in statement.tables]
        builds = [build for table in statement.tables if (build := _build(snapshot, table)) is not None]
        wording = statement.wording.get(engine.cost_model, Wording())
        with self._planning(statement.tables, requester.require), self._explaining[entry.name].hold(requester):
            text = engine.explain(
                sql,
                deadline_s=min(EXPLAIN_S, requester.remaining_s),
                cancelled=requester.cancelled,
                snapshots=snapshots_of(statement.tables),
            )
        plan = EnginePlan(text, engine.cost_model, threads, entry.hosts)
        try:
            with self._planners.place(requester) as place:
                memory_estimate: MemoryEstimate = place.call(
                    estimate, plan, shapes, statement.joined, statement.references, wording, *map(Shared, builds)
                )
        except StatementTooComplex as error:
            return replace(UNKNOWN, too_complex=error.message)
        except PlannerFault:
            log.exception("an estimate failed; the statement goes on without one")
            return UNKNOWN
        return memory_estimate


def _build(snapshot: CatalogSnapshot, table: TableSource) -> TableStatistics | None:
    """Return a table's statistics; without any, those of its log."""
    build = snapshot.statistics.get(table.name)
    if build is not None or not table.is_lake:
        return build
    try:
        return bounds_statistics(table)
    except OSError:  # the manifest has gone meanwhile; reading will tell
        return None


def _shape(shapes: Mapping[str, TableShape], table: TableSource) -> TableShape:
    """Return a table's shape; of a lake table with the columns and rows of its snapshot."""
    if not table.is_lake or table.snapshot is None:
        return shapes[table.name]
    columns = {column.name: column.data_type for column in table.columns}
    return TableShape(table.name, columns, table.snapshot.rows)


def _expectations(candidates: Callable[[], Sequence[Candidate]]) -> Mapping[str, EngineExpectation]:
    return {
        candidate.engine: EngineExpectation(
            candidate.estimate.peak_bytes, candidate.forecast.seconds if candidate.forecast else None
        )
        for candidate in candidates()
        if not candidate.dependable
    }


def _subject(query: QueryRecord) -> WorkloadKey:
    return WorkloadKey(query.fingerprint or "", query.template or "")


@contextmanager
def _noted(matched: RoutingRule | None) -> Iterator[None]:
    """Add the matching routing rule to an error that no engine can run a statement."""
    try:
        yield
    except NoEngine as none:
        none.matched = matched.name if matched is not None else None
        raise


def _unplannable(entry: EngineEntry, missed: Sequence[Misestimate]) -> str | None:
    """Return why an engine that spills does not get a statement again: it ran out of memory while planning it."""
    earlier = next((one.query_id for one in missed if entry.dependable and one.engine == entry.name), None)
    if earlier is None:
        return None
    return f"it ran out of memory while it planned the same statement, query {earlier}; write it in smaller parts."
