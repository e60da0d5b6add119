"""What EXPLAIN tells: where a statement would run and why, as POST /v1/explain does, and how the engine plans it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from engines.protocol import EXPLAIN_S, TableSource
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.router import Router
from gateway.sql.commands.commands import CreateView, Explain
from gateway.sql.commands.writes import Write, queries_of
from gateway.sql.compiled import CompiledStatement
from gateway.sql.dialects.names import HIVE, IMPALA
from gateway.statements.statement import Run
from gateway.statistics.tables import texts_of
from selector.decision import Decision, NoEngine, Reason
from selector.wording import mebibytes, seconds_of

HEADINGS: Mapping[str, str] = {HIVE: "Explain", IMPALA: "Explain String"}
NOT_READ = "The gateway does it by itself: no engine reads or writes rows for it."
HIDDEN = "(hidden)"
_PLACE = re.compile(r"(?:Location: [^\n]*+|file:/[^\s,\]\"]*+)")


class Explainer:
    """Answers EXPLAIN. Thread-safe. queue_s: longest wait for an engine that tells its plan."""

    def __init__(
        self,
        catalog: CatalogView,
        registration: Registration,
        router: Router,
        engines: EngineRegistry,
        admission: Admission,
        *,
        queue_s: float,
    ) -> None:
        self._catalog = catalog
        self._registration = registration
        self._router = router
        self._engines = engines
        self._admission = admission
        self._queue_s = queue_s

    def answer(self, command: Explain, run: Run) -> pa.Table:
        """Return lines of text. Raises EngineError, StatementCancelled, DeadlineExceeded."""
        asked = command.statement
        query = asked if isinstance(asked, CompiledStatement) else _query(asked)
        heading = HEADINGS.get(run.statement.dialect, "plan")
        if query is None:
            return texts_of((heading,), [[NOT_READ]])
        try:
            decision = self._decision(command, query, run)
        except NoEngine as none:
            return texts_of((heading,), [[line] for line in ("Engine: none can take it", *_reasons(none.reasons))])
        lines = list(_decided(decision))
        if command.details:
            lines += ["", f"Plan of {decision.engine}:", *self._plan(self._engines[decision.engine], query, run)]
        return texts_of((heading,), [[line] for line in lines])

    def _decision(self, command: Explain, query: CompiledStatement, run: Run) -> Decision:
        statement, asked = run.statement, command.statement
        if not isinstance(asked, CompiledStatement | CreateView):
            return self._router.route_write(statement, asked, self._catalog.current())
        return self._router.route(statement, query, self._catalog.current(), run.asker)

    def _plan(self, entry: EngineEntry, query: CompiledStatement, run: Run) -> Sequence[str]:
        """Have an engine plan a query, and return its words without where files lie."""
        sql = query.sql(entry.engine.dialect)
        with self._lease(entry, run), entry.breaker.watched(), run.on(entry.name):
            run.require()
            self._registration.require_unchanged(query.tables)
            deadline_s = min(EXPLAIN_S, run.remaining_s)
            text = entry.engine.explain(sql, deadline_s=deadline_s, cancelled=lambda: run.cancelled)
        return _without_places(text, query.tables).splitlines()

    def _lease(self, entry: EngineEntry, run: Run) -> AbstractContextManager[Grant]:
        """Hold a slot: planning takes hardly any memory."""
        asked = Request(entry.name, 0, run.statement.principal, run.statement.pool, run.id)
        wait_s = min(self._queue_s, max(0.0, run.remaining_s))
        return self._admission.lease(asked, wait_s=wait_s, cancelled=lambda: run.cancelled)


def _decided(decision: Decision) -> Iterator[str]:
    """Yield a decision, a line for each thing that it says."""
    yield f"Engine: {decision.engine}"
    if len(decision.ranking) > 1:
        yield f"If it fails there: {', '.join(decision.ranking[1:])}"
    yield from _reasons(decision.reasons)
    estimate = decision.estimate
    if estimate.peak_bytes is not None and estimate.upper_bytes is not None:
        limit = f", of a limit of {mebibytes(decision.limit_bytes)}" if decision.limit_bytes is not None else ""
        peaks = f"{mebibytes(estimate.peak_bytes)} expected, at most {mebibytes(estimate.upper_bytes)}"
        yield f"Memory on {decision.estimated_for}: {peaks}{limit}"
    if decision.threads is not None:
        yield f"Threads on {decision.estimated_for}: {decision.threads}"
    for price in decision.prices:
        yield f"Time on {price.engine}: {seconds_of(price.seconds)} expected"
    if estimate.operators:
        yield ""
        yield f"Operators on {decision.estimated_for}:"
    for part in estimate.operators:
        rows = "unknown" if part.rows is None else f"{part.rows:,.0f}"
        held = f", holds {mebibytes(part.held_bytes)}" if part.held_bytes else ""
        yield f"{'  ' * (part.depth + 1)}{part.operator}: {rows} rows{held}"


def _reasons(reasons: Sequence[Reason]) -> list[str]:
    return [f"Because: {reason.text} [{reason.code}]" for reason in reasons]


def _query(statement: CreateView | Write) -> CompiledStatement | None:
    """Return the query in a statement, None where it has none."""
    query = statement.query if isinstance(statement, CreateView) else next(iter(queries_of(statement)), None)
    assert query is None or isinstance(query, CompiledStatement)  # as all that a planner read
    return query


def _without_places(text: str, tables: Sequence[TableSource]) -> str:
    """Put a table's name where an engine names its folder, and nothing for other places."""
    for table in sorted(tables, key=lambda each: len(each.location), reverse=True):
        text = text.replace(table.location, table.name)
    return _PLACE.sub(HIDDEN, text)
