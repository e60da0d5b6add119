"""EXPLAIN: where a statement would run and why, as POST /v1/explain says, and how the engine plans it.

EXPLAIN [EXTENDED | FORMATTED | COST | CODEGEN] statement
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from engines.compiled import CompiledStatement
from engines.protocol import EXPLAIN_S, snapshots_of
from gateway.commands.command import RunnableCommand, RunnableStatement
from gateway.commands.grammar.queries import blanked
from gateway.commands.grammar.reader import Reader
from gateway.commands.grammar.token_reader import GAP
from gateway.commands.services import CommandServices
from gateway.security.policy import Need
from gateway.statements.command import Kind, OwnedCatalog, required_actions, tables_of
from gateway.statistics.tables import texts_of
from selector.decision import Decision, NoEngine, Reason
from selector.wording import mebibytes, seconds_of
from sql.dialects.names import HIVE, IMPALA
from sql.errors import NotAllowed
from sql.nodes import position_at
from sql.tables import TableSource

if TYPE_CHECKING:
    from gateway.routing.engines import EngineEntry

HEADINGS: Mapping[str, str] = {HIVE: "Explain", IMPALA: "Explain String"}
NOT_READ = "The gateway does it by itself: no engine reads or writes rows for it."
HIDDEN = "(hidden)"
OF_PARTS = "it would tell of rows or columns that you may not see."

_PLACE = re.compile(r"(?:Location: [^\n]*+|file:/[^\s,\]\"]*+)")
_HEAD = re.compile(
    rf"{GAP}*+EXPLAIN\b(?:{GAP}++(?P<details>EXTENDED|FORMATTED|COST|CODEGEN)\b(?!\s*+[.=(]))?", re.IGNORECASE
)
_RUNS = re.compile(rf"{GAP}*+(?P<verb>ANALYZE|EXPLAIN)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Explain(RunnableCommand):
    """Explain a statement, of which nothing runs. details: with the engine's own plan."""

    statement: RunnableStatement
    details: bool = False

    rule_kind = Kind.EXPLAIN

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the actions that the statement itself takes."""
        return required_actions(self.statement, catalog)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the tables of the statement itself."""
        return iter(tables_of(self.statement, catalog))

    @property
    def explained_query(self) -> CompiledStatement | None:
        """The statement, where it is a query."""
        return self.statement if isinstance(self.statement, CompiledStatement) else None

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The queries of the statement."""
        return (self.statement,) if isinstance(self.statement, CompiledStatement) else self.statement.queries

    def run(self, services: CommandServices) -> pa.Table:
        """Return lines of text. Raises EngineError, StatementCancelled, DeadlineExceeded."""
        heading = HEADINGS.get(services.dialect, "plan")
        return texts_of((heading,), [[line] for line in self._lines(services)])

    def _lines(self, services: CommandServices) -> Sequence[str]:
        query = next(iter(self.queries), None)
        if query is None:
            return [NOT_READ]
        query = services.registration.pinned_query(query, services.run.requester)
        try:
            decision = self._decision(query, services)
        except NoEngine as none:
            return ["Engine: none can take it", *(() if query.restricted else _reasons(none.reasons))]
        if query.restricted:
            return [*_ranked(decision), f"What is expected of it is not shown: {OF_PARTS}"]
        lines = list(_decided(decision))
        if self.details:
            entry = services.engines[decision.engine]
            lines += ["", f"Plan of {decision.engine}:", *_engine_plan(entry, query, services)]
        return lines

    def _decision(self, query: CompiledStatement, services: CommandServices) -> Decision:
        snapshot = services.catalog.current()
        if isinstance(self.statement, RunnableCommand) and self.statement.writes_rows:
            return services.router.route_write(services.run.statement, self.statement, snapshot)
        return services.router.route(services.run.statement, query, snapshot, services.run.requester)


def _engine_plan(entry: EngineEntry, query: CompiledStatement, services: CommandServices) -> Sequence[str]:
    """Have an engine plan a query, and return its words without where files lie."""
    sql, run = query.sql(entry.engine.writer), services.run
    with services.on(entry), services.registration.planning(query.tables, run.require):
        deadline_s = min(EXPLAIN_S, run.remaining_s)
        text = entry.engine.explain(
            sql, deadline_s=deadline_s, cancelled=lambda: run.cancelled, snapshots=snapshots_of(query.tables)
        )
    return _without_places(text, query.tables).splitlines()


def _decided(decision: Decision) -> Iterator[str]:
    """Yield a decision, a line for each thing that it says."""
    yield from _ranked(decision)
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


def _ranked(decision: Decision) -> Iterator[str]:
    """Yield the engines of a decision."""
    yield f"Engine: {decision.engine}"
    if len(decision.ranking) > 1:
        yield f"If it fails there: {', '.join(decision.ranking[1:])}"


def _reasons(reasons: Sequence[Reason]) -> list[str]:
    return [f"Because: {reason.text} [{reason.code}]" for reason in reasons]


def _without_places(text: str, tables: Sequence[TableSource]) -> str:
    """Put a table's name where an engine names its folder, and nothing for other places."""
    for table in sorted(tables, key=lambda table: len(table.location), reverse=True):
        text = text.replace(table.location, table.name)
    return _PLACE.sub(HIDDEN, text)


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> Explain:
    """Read EXPLAIN, with the whole statement behind it."""
    sql, details = explained(reader.sql)
    reader.skip_rest()
    statement = reader.context.classify(sql)
    if not isinstance(statement, CompiledStatement) and not statement.can_be_explained:
        raise NotAllowed("EXPLAIN takes a query, or a statement that writes; this one runs in the gateway itself.")
    return Explain(statement, details)


def explained(sql: str) -> tuple[str, bool]:
    """Return the statement behind EXPLAIN, with blanks before it, and whether details are asked for."""
    head = _HEAD.match(sql)
    assert head is not None  # the first word chose this family
    rest = sql[head.end() :]
    inner = _RUNS.match(rest)
    if inner is not None:
        message = f"EXPLAIN {inner['verb'].upper()} is not allowed: EXPLAIN runs nothing, and takes one statement."
        raise NotAllowed(message, position_at(sql, head.end() + inner.start("verb")))
    return blanked(sql[: head.end()]) + rest, head["details"] is not None
