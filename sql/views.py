"""Expansion of views: a view in a query is replaced by the view's query before tables are resolved.

Names in a view's query are resolved in the view: common table expressions of the statement around it do not apply, nor
do a session's temporary views in a view of the catalog. A temporary view may name the table or view that it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import count

from sqlglot import exp

from sql.access.parts import LENT, Parts, is_finished, is_whole, mark_whole, names_in
from sql.access.rights import Visible, everything, visible
from sql.dialects.names import DIALECTS
from sql.errors import StatementTooComplex, StatementTooDeep, TableUnreadable
from sql.limits.complexity import require_bounded
from sql.names import rename, tables_named, temporary_name
from sql.nodes import find_all, nodes, position_of
from sql.tables import View, full_name, name_in_database

MOST_VIEWS = 200  # uses of views in one statement, with those inside of other views; each costs a parse
DEEPEST_VIEWS = 20
MOST_NODES = 200_000  # of the syntax trees of all uses of views in a statement

_AFTER_TABLE = ("joins", "sample", "laterals", "pivots")  # arguments of a table that its sub-query takes over

Read = Callable[[View], exp.Expr]


def expand(tree: exp.Expr, views: Mapping[str, View], read: Read, parts: Parts | None = None) -> None:
    """Replace the views of a query by their queries, and rename common table expressions that share names with tables.

    Raises StatementTooDeep for views that are nested too deep, StatementTooComplex for a query that is too large once
    expanded, and what ``Parts.of`` raises.

    read: returns a new tree of a view's query.
    parts: parts of relations that the user may read; None: all may be read.
    """
    if views or parts is not None:
        _Expansion(views, read, parts).into(tree)
    _rename_expressions(tree)
    require_bounded(tree, tables_named(tree))


def temporary_in(tree: exp.Expr, views: Mapping[str, View]) -> exp.Table | None:
    """Return a use of a temporary view in a query; None: there is none."""
    for node, expression in tables_named(tree):
        if expression is None and not node.db and temporary_name(node.name) in views:
            return node
    return None


def below(views: Mapping[str, View], name: str, *, temporary: bool) -> Mapping[str, View]:
    """Return the views that the query of a new view may name: not itself, and temporary ones only for a temporary view.

    name: key of the new view.
    """
    others = {
        other: view for other, view in everything(views).items() if other != name and (temporary or not view.temporary)
    }
    return visible(others, views.access) if isinstance(views, Visible) else others


class _Expansion:
    """Expansion of one statement's views, within limits."""

    def __init__(self, views: Mapping[str, View], read: Read, parts: Parts | None) -> None:
        self._views = views
        self._read = read
        self._parts = parts
        self._count = 0
        self._nodes = 0
        self._queries: dict[int, tuple[exp.Expr, int]] = {}  # by the identity of views, with their size

    def into(self, tree: exp.Expr, within: tuple[View, ...] = ()) -> None:
        """Expand the views of a query. within: the views whose query it is part of, from the outside in."""
        names = cache(partial(names_in, tree))
        for node, expression in list(tables_named(tree)):
            if expression is not None:
                continue
            view = self._view_of(node, within)
            part = self._parts.of(node, view, within, names) if self._parts is not None else None
            if self._parts is not None and part is not None:
                self._count_nodes(len(nodes(part)))
                if not is_finished(part):
                    self.into(part, within)
                    self._parts.finish(part)
                self._parts.fill(part)
                node.replace(_in_place_of(node, part))
                continue
            if view is None:
                continue
            defect = view.defect or _dialect_defect(view)
            if defect:
                message = f"The view {view.name} cannot be used: {defect}. Create it again, or drop it."
                raise TableUnreadable(message, None if within else position_of(node))
            self._count += 1
            if len(within) >= DEEPEST_VIEWS or self._count > MOST_VIEWS:
                message = f"Views are nested more than {DEEPEST_VIEWS} deep, or used more than {MOST_VIEWS} times."
                raise StatementTooDeep(message, None if within else position_of(node))
            query = self._query_of(view)
            if is_whole(node):
                mark_whole(query)
            self.into(query, (*within, view))
            _rename_expressions(query)
            subquery = _in_place_of(node, _renamed(query, view))
            if self._parts is not None and id(view) in self._parts.lent:
                subquery.meta[LENT] = [column.name for column in view.columns]
            node.replace(subquery)

    def _query_of(self, view: View) -> exp.Expr:
        """Return a tree of a view's query; its text is parsed once."""
        if id(view) not in self._queries:
            query = self._read(view)
            self._queries[id(view)] = query, len(nodes(query))
        query, count = self._queries[id(view)]
        self._count_nodes(count)
        return query.copy()

    def _count_nodes(self, count: int) -> None:
        self._nodes += count
        if self._nodes > MOST_NODES:
            raise StatementTooComplex("The queries of the statement's views are too long together: use fewer views.")

    def _view_of(self, node: exp.Table, within: tuple[View, ...]) -> View | None:
        """Return the view of a name; in a view's own query, its name means the table or view that it hides."""
        view = self._views.get(node.name)
        if view in within and view is not None and view.temporary:
            rename(node, full_name(within[-1].database, view.name))
            view = self._views.get(node.name)
        return None if view in within else view


def _in_place_of(node: exp.Table, query: exp.Expr) -> exp.Subquery:
    """Return a query as a sub-query with the alias of a table, and what stands behind that."""
    others = {argument: node.args[argument] for argument in _AFTER_TABLE if node.args.get(argument)}
    sample = others.pop("sample", None)
    if sample is not None:  # behind a sub-query with an alias no engine takes one
        query = exp.select("*").from_(exp.Subquery(this=query, sample=sample))
    subquery = exp.Subquery(this=query, alias=node.args["alias"], **others)
    subquery.meta.update(node.meta)
    return subquery


def _dialect_defect(view: View) -> str:
    """Return the reason why a view's text cannot be parsed, "" if it can: earlier releases had other dialects."""
    if view.dialect in DIALECTS:
        return ""
    return f"its dialect {view.dialect} is none of {', '.join(DIALECTS)}"


def _renamed(query: exp.Expr, view: View) -> exp.Expr:
    """Return a query with the column names of its view."""
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
    """Give common table expressions unique names, different from those of tables.

    So no name captures another one, also on an engine that allows them only at the top of a query.
    """
    expressions = find_all(tree, exp.CTE)
    if not expressions:
        return
    tables = list(tables_named(tree))
    read = {node.name.lower() for node, expression in tables if expression is None}
    used = read | {expression.alias.lower() for expression in expressions}
    renamed: dict[int, str] = {}
    seen = set(read)
    for expression in expressions:
        name = expression.alias.lower()
        if name not in seen:
            seen.add(name)
        else:
            new = next(new for number in count(1) if (new := f"{name}_{number}") not in used)
            used.add(new)
            renamed[id(expression)] = new
            expression.args["alias"].set("this", exp.to_identifier(new, quoted=True))
    for node, cte in tables:
        if cte is not None and id(cte) in renamed:
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            node.set("this", exp.to_identifier(renamed[id(cte)], quoted=True))


def visible_views(stored: Mapping[str, View], own: Mapping[str, View]) -> Mapping[str, View]:
    """Return the views that a session's statements may name, by their keys."""
    return {**stored, **{temporary_name(name): view for name, view in own.items()}}
