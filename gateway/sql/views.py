"""Views: a name in a query that stands for another query, which takes its place before anything else looks at it.

What a view's query names is settled in the view: neither the common table expressions of the statement around it, nor
a session's temporary views where it is everybody's, get in between. It may name whatever has its own name below it, a
table or, for a temporary view, the view that it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from sqlglot import exp

from engines.table_names import full_name, name_in_database
from gateway.errors import StatementTooComplex, StatementTooDeep, TableUnreadable
from gateway.sql.limits.complexity import require_bounded
from gateway.sql.names import rename, tables_named, temporary_name
from gateway.sql.nodes import find_all, nodes, position_of
from metastore.records import View

MOST_VIEWS = 200  # in one statement, those inside others counted; each costs a parse
DEEPEST_VIEWS = 20  # inside one another
MOST_NODES = 200_000  # of the syntax trees of all views that a statement names, each time that it does

_BEHIND = ("joins", "sample", "laterals", "pivots")  # what may hang on a table

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
    require_bounded(tree, tables_named(tree))


def temporary_in(tree: exp.Expr, views: Mapping[str, View]) -> exp.Table | None:
    """Return a place where a query names a temporary view, None where there is none."""
    for node, expression in tables_named(tree):
        if expression is None and not node.db and temporary_name(node.name) in views:
            return node
    return None


def below(views: Mapping[str, View], name: str, *, temporary: bool) -> Mapping[str, View]:
    """Return the views that the query of a new view may name: not itself, nor a session's own if it is everybody's.

    name: by which the new one will be found.
    """
    return {other: view for other, view in views.items() if other != name and (temporary or not view.temporary)}


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
        for node, expression in list(tables_named(tree)):
            view = None if expression is not None else self._meant(node, within)
            if view is None:
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
            others = {part: node.args[part] for part in _BEHIND if node.args.get(part)}
            node.replace(exp.Subquery(this=_renamed(query, view), alias=node.args["alias"], **others))

    def _query_of(self, view: View) -> exp.Expr:
        """Return a tree of a view's query; its text is read once."""
        if id(view) not in self._queries:
            query = self._read(view)
            self._queries[id(view)] = query, len(nodes(query))
        query, count = self._queries[id(view)]
        self._nodes += count
        if self._nodes > MOST_NODES:
            raise StatementTooComplex("The statement's views stand for too much text; name fewer of them.")
        return query.copy()

    def _meant(self, node: exp.Table, within: tuple[View, ...]) -> View | None:
        """Return the view that a table stands for; a view's own name, in its query, is what is below it."""
        view = self._views.get(node.name)
        if view in within and view is not None and view.temporary:
            rename(node, full_name(within[-1].database, view.name))
            view = self._views.get(node.name)
        return None if view in within else view


def _renamed(query: exp.Expr, view: View) -> exp.Expr:
    """Give a query's columns the names that its view gave them."""
    names = [column.name for column in view.columns]
    first = query
    while not isinstance(first, exp.Select | exp.Values):
        first = first.this  # of a set operation or in brackets: the first query has the names
    if isinstance(first, exp.Values):
        columns = [exp.to_identifier(name, quoted=True) for name in names]
        alias = exp.TableAlias(this=exp.to_identifier(name_in_database(view.name), quoted=True), columns=columns)
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


def _rename_expressions(tree: exp.Expr) -> None:
    """Give common table expressions names of their own, other than those of tables that are read.

    None captures what another one means, nor on an engine that knows them at the top of a query alone.
    """
    expressions = find_all(tree, exp.CTE)
    if not expressions:
        return
    tables = list(tables_named(tree))
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
