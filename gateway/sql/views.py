"""Views: a name in a query that stands for another query, which takes its place before anything else looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from gateway.sql.errors import StatementTooDeep
from gateway.sql.names import DEFAULT_DATABASE
from gateway.sql.position import position_of
from metastore.records import View

MOST_VIEWS = 200  # in one statement, those inside others counted; each costs a parse
DEEPEST_VIEWS = 20  # inside one another

_BEHIND = ("joins", "sample", "laterals", "pivots")  # what may hang on a table

Read = Callable[[View], exp.Expr]


def expand(tree: exp.Expr, views: Mapping[str, View], read: Read) -> None:
    """Put queries in the place of the views that a query names.

    read: returns a fresh tree of a view's query. A common table expression hides a view of its name. Raises
    StatementTooDeep for views that stand in one another too deep, which those in a circle do.
    """
    if not views:
        return
    waiting = [(node, 1) for node in _named(tree, views)]
    count = 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > DEEPEST_VIEWS or count > MOST_VIEWS:
            message = f"Views stand in one another more than {DEEPEST_VIEWS} deep, or {MOST_VIEWS} times in all."
            raise StatementTooDeep(message, position_of(node) if depth == 1 else None)
        view = views[node.name.lower()]
        query = read(view)
        waiting += [(inner, depth + 1) for inner in _named(query, views)]
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(view.name, quoted=True))
        others = {part: node.args[part] for part in _BEHIND if node.args.get(part)}
        node.replace(exp.Subquery(this=_renamed(query, view), alias=alias, **others))


def _renamed(query: exp.Expr, view: View) -> exp.Expr:
    """Give a query's columns the names that its view gave them."""
    names = [column.name for column in view.columns]
    first = query
    while not isinstance(first, exp.Select):
        first = first.this  # of a set operation or in brackets: the first query has the names
    if [select.alias_or_name for select in first.selects] == names or any(select.is_star for select in first.selects):
        return query
    first.set(
        "expressions",
        [exp.alias_(select.unalias(), name, quoted=True) for select, name in zip(first.selects, names, strict=True)],
    )
    return query


def _named(tree: exp.Expr, views: Mapping[str, View]) -> list[exp.Table]:
    hidden = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}

    def is_view(node: exp.Table) -> bool:
        name = node.name.lower()
        if node.db:
            return node.db.lower() == DEFAULT_DATABASE and name in views and not views[name].temporary
        return name in views and name not in hidden

    return [node for node in tree.find_all(exp.Table) if is_view(node)]
