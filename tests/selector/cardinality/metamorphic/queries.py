"""Queries over a world: as plans that are built directly, and as statements that a real DuckDB plans."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import duckdb

from benchmarks.tables import explained
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode
from tests.selector.cardinality.metamorphic.worlds import COLUMNS, WITHOUT_NULLS, World

DIALECT = "duckdb"
_WORDS = {JoinType.INNER: "JOIN", JoinType.CROSS: "CROSS JOIN"}

Column = tuple[int, str]  # number of the reading, and its column


@dataclass(frozen=True)
class Read:
    """The rows of a table that predicates keep. number: tells readings apart. predicates: ``{k} = 5``, all hold."""

    table: str
    number: int
    predicates: tuple[str, ...] = ()

    def where(self, *predicates: str) -> Read:
        """Return what further predicates keep."""
        return replace(self, predicates=(*self.predicates, *predicates))


@dataclass(frozen=True)
class UnionAll:
    """The rows of several readings; a column is called as the first one's."""

    members: tuple[Read, ...]


@dataclass(frozen=True)
class Join:
    """Rows of both sides whose keys are equal. keys: columns of the left and of the right side."""

    left: Query
    right: Query
    keys: tuple[tuple[Column, Column], ...]
    kind: JoinType = JoinType.INNER


@dataclass(frozen=True)
class Group:
    """One row of each combination of columns."""

    below: Query
    keys: tuple[Column, ...]


Query = Read | UnionAll | Join | Group
Estimate = Callable[[World, Query], float]
"""Rows of a query's result."""


def on(left: int, right: int, *columns: str) -> tuple[tuple[Column, Column], ...]:
    """Return the equality of columns of two readings."""
    return tuple(((left, column), (right, column)) for column in columns)


def readings(query: Query) -> Iterator[Read]:
    """Yield what a query reads, from left to right."""
    match query:
        case Read():
            yield query
        case UnionAll():
            yield from query.members
        case Join():
            yield from readings(query.left)
            yield from readings(query.right)
        case Group():
            yield from readings(query.below)


# ---------------------------------------------------------------------- as a plan


def planned_as_written(world: World, query: Query) -> Plan:
    """Build the plan that does what a query says in the order in which it says so."""
    tables = {one.number: one.table for one in readings(query)}

    def column(place: Column) -> PlanColumn:
        number, name = place
        table = tables[number]
        naming = world.naming
        return PlanColumn(naming.column(table, name), world.type(table, name), naming.table(table), number)

    def node(query: Query) -> PlanNode:
        match query:
            case Read():
                columns = tuple(column((query.number, name)) for name in COLUMNS)
                return PlanNode(
                    Operator.SCAN,
                    "SEQ_SCAN",
                    columns=columns,
                    scanned=columns,
                    table=world.naming.table(query.table),
                    predicates=tuple(world.written(text, query.table) for text in query.predicates),
                    scan=query.number,
                )
            case UnionAll():
                members = tuple(node(member) for member in query.members)
                return PlanNode(Operator.UNION, "UNION", members, columns=members[0].columns)
            case Join():
                left, right = node(query.left), node(query.right)
                return PlanNode(
                    Operator.HASH_JOIN,
                    "HASH_JOIN",
                    (left, right),
                    columns=(*left.columns, *right.columns),
                    join_type=query.kind,
                    join_keys=tuple((column(a), column(b)) for a, b in query.keys),
                )
            case Group():
                keys = tuple(column(key) for key in query.keys)
                return PlanNode(
                    Operator.AGGREGATE, "HASH_GROUP_BY", (node(query.below),), columns=keys, group_keys=keys
                )

    return Plan(node(query), DIALECT)


def tree_as_written(world: World, query: Query) -> EstimatedNode:
    """Estimate the plan of a query as it is written."""
    return estimate_rows(planned_as_written(world, query), world.statistics, world.catalog.shapes)


def as_written(world: World, query: Query) -> float:
    """Estimate a query whose plan nobody has optimised."""
    rows = tree_as_written(world, query).rows
    assert rows is not None
    return rows


# ---------------------------------------------------------------------- as a statement


def sql_of(world: World, query: Query) -> str:
    """Write a query as a statement that gives its rows: one column of its first table, or groups."""
    tables = {one.number: one.table for one in readings(query)}

    def name(place: Column) -> str:
        number, column = place
        return f"r{number}.{world.naming.column(tables[number], column)}"

    def rows(read: Read) -> str:
        kept = " AND ".join(f"({world.written(text, read.table)})" for text in read.predicates)
        return f"SELECT * FROM {world.naming.table(read.table)}{f' WHERE {kept}' if kept else ''}"

    def source(query: Query) -> str:
        match query:
            case Read():
                if not query.predicates:
                    return f"{world.naming.table(query.table)} AS r{query.number}"
                return f"({rows(query)}) AS r{query.number}"
            case UnionAll():
                return f"({' UNION ALL '.join(rows(one) for one in query.members)}) AS r{query.members[0].number}"
            case Join():
                words = _WORDS.get(query.kind, f"{query.kind.name} JOIN")
                equal = " AND ".join(f"{name(a)} = {name(b)}" for a, b in query.keys)
                on = f" ON {equal}" if query.keys else ""
                return f"({source(query.left)} {words} {source(query.right)}{on})"
            case Group():
                raise AssertionError("groups are made last")

    if isinstance(query, Group):
        keys = ", ".join(name(key) for key in query.keys)
        return f"SELECT {keys} FROM {source(query.below)} GROUP BY {keys}"
    return f"SELECT {name((next(readings(query)).number, WITHOUT_NULLS))} FROM {source(query)}"


@lru_cache(maxsize=32)
def database(world: World) -> duckdb.DuckDBPyConnection:
    """Return a database that holds a world's tables."""
    connection = duckdb.connect(config={"threads": 1})
    for name in world.names:
        connection.register("rows", world.stored(name))
        connection.execute(f"CREATE TABLE {world.naming.table(name)} AS FROM rows")
        connection.unregister("rows")
    return connection


atexit.register(database.cache_clear)  # DuckDB tells of connections that nobody closes


def tree_by_duckdb(world: World, query: Query) -> EstimatedNode:
    """Estimate the plan that DuckDB makes of a query."""
    sql = sql_of(world, query)
    plan = world.catalog.plan(sql, explained(database(world), sql))
    return estimate_rows(plan, world.statistics, world.catalog.shapes)


def planned_by_duckdb(world: World, query: Query) -> float:
    """Estimate a query by the plan that DuckDB makes of it."""
    rows = tree_by_duckdb(world, query).rows
    assert rows is not None
    return rows


def count(world: World, query: Query) -> int:
    """Return the rows that a query really has."""
    found = database(world).execute(f"SELECT count(*) FROM ({sql_of(world, query)})").fetchone()
    assert found is not None
    return int(found[0])
