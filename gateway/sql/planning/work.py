"""What planners do: read statements, and estimate what the fast engines plan for them. Functions of values alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engines.protocol import TableSource
from engines.table_names import DEFAULT_DATABASE
from gateway.errors import NotAllowed
from gateway.sql import statement as checking
from gateway.sql.commands.commands import Command, CreateView, Explain
from gateway.sql.commands.parsing import (
    alter_parsing,
    change_parsing,
    command_parsing,
    database_parsing,
    show_parsing,
    write_parsing,
)
from gateway.sql.commands.parsing.relation_reader import Context
from gateway.sql.commands.writes import (
    AS_THE_DIALECT_HAS_IT,
    WRITES,
    ChangeRows,
    CreateTable,
    InsertInto,
    InsertIntoSeveral,
    PartitionSettings,
    Write,
)
from gateway.sql.compiled import CompiledStatement, compiled
from gateway.sql.dialects.names import SPARK
from gateway.sql.dialects.session_functions import facts_of
from gateway.sql.names import Naming, temporary_name
from gateway.sql.parsing import ParserLimits
from gateway.sql.planning.regular_expressions import search
from gateway.sql.statement import CheckedStatement
from metastore.records import View
from selector.cardinality.predicates.patterns import use_search
from selector.cardinality.tree import estimate_rows
from selector.cost.model import model_of
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.join_keys import KeyPair
from selector.plan import TableShape, UnreadablePlan
from selector.statistics import TableStatistics

use_search(search)


@dataclass(frozen=True, slots=True)
class Text:
    """A statement as it was sent.

    views: of the session that sent it, by bare name. partitions: how it writes them. database: of bare names in it.
    user: name of who asks.
    """

    sql: str
    dialect: str
    limits: ParserLimits
    views: Mapping[str, View] = field(default_factory=dict)
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT
    database: str = DEFAULT_DATABASE
    user: str = ""


@dataclass(frozen=True, slots=True)
class Engines:
    """Which engines a statement is written for. dialects: of all. explained: of the fast ones, which plan it first."""

    dialects: tuple[str, ...]
    explained: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """A fast engine's plan of a statement, as its text. threads, hosts: that the statement would run on.

    cost_model: the module of the engine's.
    """

    text: str
    cost_model: str
    threads: int
    hosts: int


def understand(
    text: Text,
    tables: Mapping[str, TableSource],
    views: Mapping[str, View],
    databases: Collection[str],
    engines: Engines,
) -> CompiledStatement | Command | Write:
    """Return what a text asks for. tables, views: everybody's. databases: names of all. Raises SqlError."""
    to_explain = show_parsing.explained(text.sql)
    if to_explain is not None:
        sql, details = to_explain
        return _explanation(understand(replace(text, sql=sql), tables, views, databases, engines), details=details)
    naming, facts = Naming(text.database, frozenset(databases)), facts_of(text.user, text.dialect, text.database)
    visible = visible_views(views, text.views)
    context = Context(text.dialect, tables, text.limits, visible, naming, facts, text.partitions)
    for parsing in (database_parsing, alter_parsing, command_parsing, write_parsing, change_parsing):
        found = parsing.parse(text.sql, context)
        if found is not None:
            return _with_query(found, engines)
    checked = checking.check(
        text.sql, text.dialect, catalog=tables, limits=text.limits, views=visible, naming=naming, facts=facts
    )
    return compiled(checked, engines.dialects, explained=engines.explained)


def visible_views(stored: Mapping[str, View], own: Mapping[str, View]) -> Mapping[str, View]:
    """Return the views that a session's statements may name, with the names by which they are found."""
    return {**stored, **{temporary_name(name): view for name, view in own.items()}}


def estimate(
    plan: EnginePlan,
    shapes: Sequence[TableShape],
    joined: Iterable[KeyPair],
    references: Mapping[str, int],
    named: Mapping[str, Sequence[str]],
    *builds: TableStatistics,
) -> MemoryEstimate:
    """Return what a plan is expected to need. shapes, builds: of the statement's tables, as far as there are any."""
    statistics = {build.table: build for build in builds}
    model = model_of(plan.cost_model)
    try:
        read = model.read(plan.text, shapes, joined, references, named)
    except UnreadablePlan:
        return UNKNOWN
    tree = estimate_rows(read, statistics, shapes)
    return model.price(tree, read, statistics, threads=plan.threads, hosts=plan.hosts)


def _explanation(statement: CompiledStatement | Command | Write, *, details: bool) -> Explain:
    if not isinstance(statement, (CompiledStatement, CreateView, *WRITES)):
        raise NotAllowed("EXPLAIN takes a query, or a statement that writes; this one runs in the gateway itself.")
    return Explain(statement, details)


def _with_query(statement: Command | Write, engines: Engines) -> Command | Write:
    """Return a command or a write as engines get the query in it."""
    match statement:
        case CreateView() | CreateTable() | InsertInto() if isinstance(statement.query, CheckedStatement):
            return replace(statement, query=compiled(statement.query, {*engines.dialects, SPARK}))
        case ChangeRows():
            rows, added, source = (_compiled(each) for each in (statement.rows, statement.added, statement.source))
            return replace(statement, rows=rows, added=added, source=source)
        case InsertIntoSeveral():
            inserts = (
                replace(each, query=compiled(_checked(each), {*engines.dialects, SPARK})) for each in statement.inserts
            )
            return InsertIntoSeveral(tuple(inserts))
        case _:
            return statement


def _compiled(query: CheckedStatement | CompiledStatement | None) -> CompiledStatement | None:
    """Return a query as the engine that writes gets it: its texts are put into Spark's SQL."""
    return compiled(query, (SPARK,)) if isinstance(query, CheckedStatement) else query


def _checked(insert: InsertInto) -> CheckedStatement:
    assert isinstance(insert.query, CheckedStatement)  # as it was parsed a moment ago
    return insert.query
