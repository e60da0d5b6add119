"""START HERE: repeated queries are answered with the result of an earlier run, exactly as if they ran again.

A result answers while the text that its engine got, the definitions of its tables, the lists of their files and the
day are the same; who asks has been authorised for what the text reads before, and routing rules have their say as ever.
Each answer is a query of its own: on record before it is told, its rows a file under its own id. What is not known
exactly is not kept (docs/adr/0044-cached-results.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from engines.compiled import CompiledStatement
from engines.errors import StatementCancelled
from engines.protocol import reads_of
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.execution.caching.result_cache import CachedResult, Key, ResultCache
from gateway.execution.executor import Outcome
from gateway.execution.records.query_log import QueryLog
from gateway.execution.spooling.results import Spool
from gateway.routing.admission.values import DEFAULT_POOL
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.router import Router
from gateway.statements.caching import CacheUsage, CacheUse
from gateway.statements.statement import Run, Statement
from metastore.database.retry import retry
from metastore.records import QueryState
from selector.decision import Decision, Reason, ReasonCode
from selector.estimate import UNKNOWN
from sql.errors import RuleDenied
from sql.tables import TableSource

log = logging.getLogger(__name__)

DAY_S = 86_400
CANCELLED = "The statement was cancelled."


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of a cache lookup.

    answered: the query was answered from the cache.
    day: days since 1970, in UTC, before the query runs; None: its result is not to be cached.
    """

    answered: bool = False
    day: int | None = None


BYPASSED, ANSWERED = Lookup(), Lookup(answered=True)


class CachedAnswers:
    """Cache of whole results. Thread-safe.

    enabled: default for statements; pools: overrides by pool.
    announce: function to call with each result that is cached; other processes of this home folder ``take`` it.
    """

    def __init__(
        self,
        *,
        engines: EngineRegistry,
        router: Router,
        spool: Spool,
        query_log: QueryLog,
        limit_bytes: int,
        keep_s: float,
        enabled: bool,
        pools: Mapping[str, bool] = {},
    ) -> None:
        self._engines = engines
        self._router = router
        self._spool = spool
        self._log = query_log
        self._cache = ResultCache(limit_bytes=limit_bytes, keep_s=keep_s, forget=_delete)
        self._is_there = limit_bytes > 0
        self._enabled = enabled
        self._pools = pools
        self.announce: Callable[[CachedResult], object] = lambda _: None

    def take(self, cached: CachedResult) -> None:
        """Cache a result of another process, whose file lies here, too."""
        self._cache.put(replace(cached, is_ours=False))

    def usage(self) -> CacheUsage:
        """Return size and usage of the cache."""
        return self._cache.usage()

    def answer(self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot) -> Lookup:
        """Answer a query from the cache, if a valid result exists; this also ends the query's record.

        Raises RuleDenied, RuleForbidsEngine, EngineError, SQLAlchemyError.
        """
        if not (self._is_on(run.statement) and query.is_repeatable):
            return BYPASSED
        keys = self._keys(query, run.statement.pinned or query.engine)
        if not keys:
            return BYPASSED
        run.cache = CacheUse.MISS
        candidates = self._cache.find(keys)
        if candidates:
            matched, only = self._may_answer(run, query, snapshot)
            for cached in candidates:
                differed = self._router.open_cases.of(cached.engine, query.template) is not None
                is_allowed = not differed and (only is None or cached.engine in only)
                if is_allowed and self._answered(run, query, snapshot, cached, matched):
                    return ANSWERED
        self._cache.has_missed()
        return Lookup(day=_today() if all(map(_is_settled, query.tables)) else None)

    def keep(self, run: Run, query: CompiledStatement, lookup: Lookup, outcome: Outcome) -> None:
        """Cache the result of a query that ran on the files that were listed for it."""
        if lookup.day is None or outcome.result is None or run.record.state is not QueryState.FINISHED:
            return
        engine = outcome.attempt.engine
        sql = query.texts[self._engines[engine].engine.writer]
        if not isinstance(sql, str) or not _reads_exactly(self._engines[engine], query):
            return
        if outcome.result.bytes > self._cache.largest_bytes or lookup.day != _today():
            return
        try:
            file = self._spool.keep(run.id, outcome.result)
        except OSError as error:  # it has gone already, or the disk knows no second names
            log.info("the result of %s cannot be cached: %s", run.id, error)
            return
        reads = reads_of(query.tables)
        text = f"The result of {run.id} on {engine} is the answer: nothing that it rests on has changed."
        cached = CachedResult(
            query_id=run.id,
            engine=engine,
            sql=sql,
            result=outcome.result,
            file=file,
            tables=query.tables,
            day=lookup.day,
            decision=Decision(
                engine, (engine,), (Reason(ReasonCode.CACHED, text),), UNKNOWN, None, reads=reads
            ).of_parts(query.restricted),
            cached_s=time.monotonic(),
            alone=run.record.summary.alone if run.record.summary else None,
        )
        self._cache.put(cached)
        self.announce(cached)

    def _is_on(self, statement: Statement) -> bool:
        """Tell whether a statement may be answered: by its session, its pool, or the gateway."""
        if statement.cache is not None:
            return self._is_there and statement.cache
        of_pool = self._pools.get(statement.pool, self._pools.get(DEFAULT_POOL, self._enabled))
        return self._is_there and of_pool

    def _keys(self, query: CompiledStatement, pinned: str | None) -> list[Key]:
        """Return the cache keys of a query: one for each engine whose result may answer it."""
        entries = (self._engines[pinned],) if pinned is not None else self._engines.values()
        texts = ((entry.name, query.texts[entry.engine.writer]) for entry in entries if _reads_exactly(entry, query))
        return [(name, text) for name, text in texts if isinstance(text, str)]

    def _may_answer(
        self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot
    ) -> tuple[str | None, frozenset[str] | None]:
        try:
            return retry(partial(self._router.may_answer, run.statement, query, snapshot, run.requester))
        except RuleDenied as denied:
            self._router.rules.hit(denied.rule)
            raise

    def _answered(
        self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot, cached: CachedResult, matched: str | None
    ) -> bool:
        """Answer with a cached result if it is valid, else drop it."""
        is_right = cached.tables == query.tables and cached.day == _today() and not self._cache.is_too_old(cached)
        if run.cancelled:
            raise StatementCancelled(CANCELLED)
        try:
            if is_right:
                self._spool.share(cached.result, cached.file, run.id)
        except FileNotFoundError:  # it went this moment, for others' sake
            is_right = False
        if not is_right:
            self._cache.drop(cached)
            return False
        decision = cached.decision if matched is None else replace(cached.decision, matched=matched)
        self._log.answered(run, decision, query, snapshot.statistics_version(query.tables), cached)
        run.held, run.cache = cached.result.held, CacheUse.HIT
        self._router.rules.hit(matched)
        self._cache.has_answered(cached)
        log.debug("query %s: answered with the result of %s", run.id, cached.query_id)
        return True


def _reads_exactly(entry: EngineEntry, query: CompiledStatement) -> bool:
    return all(table.format in entry.exact_formats for table in query.tables)


def _is_settled(table: TableSource) -> bool:
    return table.snapshot is not None and table.snapshot.is_settled


def _today() -> int:
    return int(time.time() // DAY_S)


def _delete(gone: CachedResult) -> None:
    if gone.file is not None and gone.is_ours:
        gone.file.unlink(missing_ok=True)
