"""Limits of a query's size once its common table expressions are expanded.

Engines expand them: Spark always does where that cannot change a result. If each expression names the one before twice,
the size doubles with each, so that a kilobyte may become millions of tables. And planners try each condition with each
join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from sql.errors import StatementTooComplex

MOST_TABLES = 2_000  # each use of a table counts
MOST_NODES = 1_000_000  # of the syntax tree
MOST_PUSHED = 10_000
"""Conditions of a query times the joins below them. Spark's optimizer tries to push each condition below each join:
50 kB of ORs over 8 joins, 30,000 of these, took all of its heap, and all other statements with it (issue 32)."""


@dataclass(slots=True)
class _Part:
    """A common table expression, or the rest of the query. named: the expressions that it names."""

    tables: int = 0
    nodes: int = 0
    named: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Query:
    """One SELECT. below: the queries that it reads."""

    conditions: int = 0
    """In WHERE, ON, HAVING and QUALIFY."""
    joins: int = 0
    """Without those of the queries below."""
    below: list[int] = field(default_factory=list)


_CONDITIONS = (exp.Where, exp.Having, exp.Qualify, exp.Connector)  # each adds one; so does an ON


def require_bounded(tree: exp.Expr, tables: Iterable[tuple[exp.Table, exp.CTE | None]]) -> None:
    """Raise StatementTooComplex for a query that is too large once expanded, or has too many conditions over joins.

    The time is linear in the text.

    tables: all that it names, each with the common table expression of that name; None: a table or view.
    """
    meaning = {id(node): id(expression) for node, expression in tables if expression is not None}
    parts: dict[int, _Part] = {0: _Part()}
    queries: dict[int, _Query] = {0: _Query()}
    waiting: list[tuple[exp.Expr, int, int]] = [(tree, 0, 0)]
    while waiting:
        node, place, inside = waiting.pop()
        if isinstance(node, exp.CTE):
            place = inside = id(node)
            parts[place], queries[place] = _Part(), _Query()
        elif isinstance(node, exp.Select):
            queries[inside].joins += 1  # a sub-query may become a join
            queries[inside].below.append(id(node))
            inside = id(node)
            queries[inside] = _Query()
        part, query = parts[place], queries[inside]
        part.nodes += 1
        query.conditions += isinstance(node, _CONDITIONS)
        if isinstance(node, exp.Join):
            query.joins += 1
            query.conditions += bool(node.args.get("on") or node.args.get("using"))
        elif isinstance(node, exp.Table):
            expression = meaning.get(id(node))
            if expression is None:
                part.tables += 1
            else:
                part.named.append(expression)
                query.below.append(expression)
        waiting += [(child, place, inside) for child in node.iter_expressions()]
    named = {place: part.named for place, part in parts.items()}
    all_tables = _totals({place: part.tables for place, part in parts.items()}, named, MOST_TABLES)[0]
    all_nodes = _totals({place: part.nodes for place, part in parts.items()}, named, MOST_NODES)[0]
    if all_tables > MOST_TABLES or all_nodes > MOST_NODES:
        raise StatementTooComplex(
            f"With its common table expressions and views expanded, the statement reads more than {MOST_TABLES:,} "
            f"tables or has more than {MOST_NODES:,} nodes: store repeated parts in a table."
        )
    below = {place: query.below for place, query in queries.items()}
    joins = _totals({place: query.joins for place, query in queries.items()}, below, MOST_PUSHED)
    if sum(query.conditions * joins[place] for place, query in queries.items()) > MOST_PUSHED:
        raise StatementTooComplex(
            f"The statement has more than {MOST_PUSHED:,} pairs of a condition and a join below it, too many for a "
            "planner: write long lists of values with IN, or store them in a table and join it."
        )


def _totals(own: Mapping[int, int], below: Mapping[int, Sequence[int]], most: int) -> dict[int, int]:
    """Return the own value of each part plus the totals of the parts below it, each at most ``most + 1``.

    A recursive part counts once in itself.
    """
    totals: dict[int, int] = {}
    begun: set[int] = set()
    waiting = list(own)
    while waiting:
        part = waiting[-1]
        begun.add(part)
        unknown = next((other for other in below[part] if other not in totals and other not in begun), None)
        if unknown is not None:
            waiting.append(unknown)
            continue
        waiting.pop()
        if part not in totals:
            totals[part] = min(own[part] + sum(totals.get(other, 0) for other in below[part]), most + 1)
    return totals
