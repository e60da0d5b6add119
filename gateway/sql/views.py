"""Views: a name in a query that stands for another query, which takes its place before anything else looks at it.

What a view's query names is settled in the view: neither the common table expressions of the statement around it, nor
a session's temporary views where it is everybody's, get in between. It may name whatever has its own name below it, a
table or, for a temporary view, the view that it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from gateway.errors import StatementTooComplex, StatementTooDeep, TableUnreadable
from gateway.sql.limits.complexity import require_bounded
from gateway.sql.names import DEFAULT_DATABASE
from gateway.sql.position import position_of
from metastore.records import View

MOST_VIEWS = 200  # in one statement, those inside others counted; each costs a parse
DEEPEST_VIEWS = 20  # inside one another
MOST_NODES = 200_000  # of the syntax trees of all views that a statement names, each time that it does

_BEHIND = ("joins", "sample", "laterals", "pivots")  # what may hang on a table
_SETTLED = "of a view"  # marks tables that a view's query names

Read = Callable[[View], exp.Expr]
Settle = Callable[[View, exp.Expr], None]


def expand(tree: exp.Expr, views: Mapping[str, View], read: Read, settle: Settle) -> None:
    """Put queries in the place of the views that a query names, and keep common table expressions apart from tables.

    read: returns a fresh tree of a view's query. settle: is told each such tree, once the views in it are put in.
    Raises StatementTooDeep for views that stand in one another too deep, StatementTooComplex for a query that stands
    for too much text.
    """
    if views:
        _Expansion(views, read, settle).into(tree)
    _rename_expressions(tree)
    require_bounded(tree, _tables(tree))


def temporary_in(tree: exp.Expr, views: Mapping[str, View]) -> exp.Table | None:
    """Return a place where a query names a temporary view, None where there is none."""
    for node, expression in _tables(tree):
        view = views.get(node.name.lower())
        if expression is None and not node.db and view is not None and view.temporary:
            return node
    return None


def below(views: Mapping[str, View], name: str, *, temporary: bool) -> Mapping[str, View]:
    """Return the views that the query of a new view may name: it stands in none, and hides one if it is temporary."""
    if not temporary:
        permanent = {other: permanent_of(view) for other, view in views.items() if other != name}
        return {other: view for other, view in permanent.items() if view is not None}
    hidden = permanent_of(views.get(name))
    others = {other: view for other, view in views.items() if other != name}
    return others if hidden is None else others | {name: hidden}


def permanent_of(view: View | None) -> View | None:
    """Return everybody's view of a name, whatever a session hides it by."""
    return view.hides if view is not None and view.temporary else view


class _Expansion:
    """One statement's views, counted."""

    def __init__(self, views: Mapping[str, View], read: Read, settle: Settle) -> None:
        self._views = views
        self._read = read
        self._settle = settle
        self._count = 0
        self._nodes = 0
        self._queries: dict[int, tuple[exp.Expr, int]] = {}  # by the identity of views, with their size

    def into(self, tree: exp.Expr, within: tuple[View, ...] = ()) -> None:
        """Put views into a query. within: the views whose query it is part of, from the outside in."""
        for node, expression in list(_tables(tree)):
            view = None if expression is not None else self._meant(node, within)
            if view is None:
                if expression is None and within:
                    node.meta[_SETTLED] = True
                continue
            if view.defect:
                message = f"The view {view.name} cannot be used: {view.defect}. Make it again, or drop it."
                raise TableUnreadable(message, None if within else position_of(node))
            self._count += 1
            if len(within) >= DEEPEST_VIEWS or self._count > MOST_VIEWS:
                message = f"Views stand in one another more than {DEEPEST_VIEWS} deep, or {MOST_VIEWS} times in all."
                raise StatementTooDeep(message, None if within else position_of(node))
            query = self._query_of(view)
            self.into(query, (*within, view))
            _rename_expressions(query)
            self._settle(view, query)
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(view.name, quoted=True))
            others = {part: node.args[part] for part in _BEHIND if node.args.get(part)}
            node.replace(exp.Subquery(this=_renamed(query, view), alias=alias, **others))

    def _query_of(self, view: View) -> exp.Expr:
        """Return a tree of a view's query; its text is read once."""
        if id(view) not in self._queries:
            query = self._read(view)
            self._queries[id(view)] = query, sum(1 for _ in query.walk())
        query, nodes = self._queries[id(view)]
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise StatementTooComplex("The statement's views stand for too much text; name fewer of them.")
        return query.copy()

    def _meant(self, node: exp.Table, within: tuple[View, ...]) -> View | None:
        if node.catalog or node.db.lower() not in ("", DEFAULT_DATABASE):
            return None
        view = self._views.get(node.name.lower())
        if node.db or (within and not within[-1].temporary) or view in within:
            view = permanent_of(view)
        return None if view in within else view


def _renamed(query: exp.Expr, view: View) -> exp.Expr:
    """Give a query's columns the names that its view gave them."""
    names = [column.name for column in view.columns]
    first = query
    while not isinstance(first, exp.Select | exp.Values):
        first = first.this  # of a set operation or in brackets: the first query has the names
    if isinstance(first, exp.Values):
        columns = [exp.to_identifier(name, quoted=True) for name in names]
        alias = exp.TableAlias(this=exp.to_identifier(view.name, quoted=True), columns=columns)
        rows = exp.select("*").from_(exp.Values(expressions=first.expressions, alias=alias))
        if first is query:
            return rows
        first.replace(rows)
        return query
    if [select.alias_or_name for select in first.selects] == names or any(select.is_star for select in first.selects):
        return query
    first.set(
        "expressions",
        [exp.alias_(select.unalias(), name, quoted=True) for select, name in zip(first.selects, names, strict=True)],
    )
    return query


# ---------------------------------------------------------------------- common table expressions


@dataclass(frozen=True, slots=True)
class _Visible:
    """The common table expressions of one WITH that are seen from a place: those before ``end``, and outer ones."""

    places: Mapping[str, tuple[int, exp.CTE]]
    end: int
    outer: _Visible | None

    def find(self, name: str) -> exp.CTE | None:
        visible: _Visible | None = self
        while visible is not None:
            at, expression = visible.places.get(name, (visible.end, None))
            if at < visible.end:
                return expression
            visible = visible.outer
        return None


def _tables(tree: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    """Yield all tables that a query names, each with the common table expression that it means, if it is one."""
    waiting: list[tuple[exp.Expr, _Visible | None]] = [(tree, None)]
    while waiting:
        node, visible = waiting.pop()
        clause = node.args.get("with_")
        if clause is not None:
            expressions = clause.expressions
            places = {each.alias.lower(): (at, each) for at, each in enumerate(expressions)}
            itself = 1 if clause.args.get("recursive") else 0
            waiting += [(each, _Visible(places, at + itself, visible)) for at, each in enumerate(expressions)]
            visible = _Visible(places, len(expressions), visible)
        if isinstance(node, exp.Table):
            own = node.db or visible is None or node.meta.get(_SETTLED)
            yield node, None if own or visible is None else visible.find(node.name.lower())
        waiting += [(child, visible) for child in node.iter_expressions() if child is not clause]


def _rename_expressions(tree: exp.Expr) -> None:
    """Give common table expressions names of their own, other than those of tables that are read.

    None captures what another one means, nor on an engine that knows them at the top of a query alone.
    """
    expressions = list(tree.find_all(exp.CTE))
    if not expressions:
        return
    tables = list(_tables(tree))
    read = {node.name.lower() for node, expression in tables if expression is None}
    taken = read | {expression.alias.lower() for expression in expressions}
    renamed: dict[int, str] = {}
    seen = set(read)
    for expression in expressions:
        name = expression.alias.lower()
        if name not in seen:
            seen.add(name)
        else:
            new = next(new for number in count(1) if (new := f"{name}_{number}") not in taken)
            taken.add(new)
            renamed[id(expression)] = new
            expression.args["alias"].set("this", exp.to_identifier(new, quoted=True))
    for node, meant in tables:
        if meant is not None and id(meant) in renamed:
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            node.set("this", exp.to_identifier(renamed[id(meant)], quoted=True))
