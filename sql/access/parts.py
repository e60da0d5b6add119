"""Parts of tables and views that a user may see, as sub-queries in the place of the whole.

The sub-query is written in Spark's SQL and checked like the query of a view, so that every writer, estimate, cache and
fingerprint gets a statement that asks for no more. Tables in a filter or mask are read whole: an administrator named
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from selector.quoting import spark_name
from sql import parsing
from sql.access.rights import Access, Restriction
from sql.allowlist.functions import AGGREGATES, GENERATORS
from sql.dialects.names import SPARK
from sql.dialects.session_functions import Facts, put_in_facts
from sql.errors import AccessDenied, PolicyInvalid, SqlError, UnknownTable
from sql.guards import MASKED
from sql.names import base_name, did_you_mean, names_a_snapshot
from sql.nodes import find_all, nodes, position_of
from sql.parsing import USUAL_LIMITS
from sql.resolution import COLUMNS, resolve
from sql.tables import SNAPSHOT_MARK, Column, TableSource, View, in_two_parts

FILTERED = "filtered"
"""Key of the ``meta`` of a sub-query that filters rows; the value is the condition."""
LENT = "lent"
"""Key of the ``meta`` of a view's sub-query that reads what its owner lends; the value is the view's columns."""
RELATION = "relation"
"""Key of the ``meta`` of such a sub-query; the value is the full name of the table or view."""
PART = "part"
"""Key of the ``meta`` of a sub-query that a right put in place of a table or view."""

_TEXT = "text"  # text of a sub-query that is not finished
_CHECKED = "checked"  # marks a table whose part is chosen
_OF_SEVERAL = AGGREGATES | GENERATORS
_WHOLE = "whole"  # marks a table that a filter or mask reads


@dataclass(frozen=True, slots=True)
class _Ready:
    """Tree of a part's query, whose names are looked up in these tables."""

    tree: exp.Select
    tables: tuple[TableSource, ...]


_READY: dict[tuple[str, tuple[str, ...]], _Ready] = {}  # by the text of the part, and all columns that may be seen
MOST_READY = 512

Passes = Callable[[exp.Expr], exp.Expr]


class Parts:
    """Chooses the part of each relation that one statement names.

    tables, views: all that exist.
    seen_tables, seen_views: those of which the user may know.
    passes: makes a tree of a policy's text what a view's query is.
    facts: values of session functions in a policy's text.
    """

    def __init__(
        self,
        access: Access,
        tables: Mapping[str, TableSource],
        seen_tables: Mapping[str, TableSource],
        seen_views: Mapping[str, View],
        passes: Passes,
        facts: Facts,
    ) -> None:
        self._access = access
        self._tables = tables
        self._seen_tables, self._seen_views = seen_tables, seen_views
        self._passes = passes
        self._facts = facts
        self.tells_of_session = False
        """Values of session functions were inserted."""
        self.restricted: set[str] = set()
        """Relations of which a part is read, or what the user may not see by himself."""
        self.lent: set[int] = set()
        """Identities of views that read what their owners lend."""

    def of(
        self, node: exp.Table, view: View | None, within: Sequence[View], names: Callable[[], frozenset[str] | None]
    ) -> exp.Select | None:
        """Return the sub-query for a table or view in a query; None: all of it may be read, or its part is chosen.

        within: the views whose query names it, from the outside in.
        names: returns the names among which are those of all columns that the query reads; None: it may read all.

        Raises UnknownTable, AccessDenied, PolicyInvalid.
        """
        if node.meta.get(_CHECKED) or node.meta.get(_WHOLE) or not isinstance(node.this, exp.Identifier):
            return None
        position = None if within else position_of(node)
        name = base_name(node.name)
        relation = view or self._tables.get(node.name)
        if not within and node.name not in self._seen_views and node.name not in self._seen_tables:
            near = did_you_mean(node.name, (*self._seen_tables, *self._seen_views))
            raise UnknownTable(f"There is no table {node.name}{near}", position)
        if relation is None:
            return None  # of a view's query: resolution tells what is wrong
        around = within[-1] if within else None
        lender = around.owner if around is not None and not around.temporary else None
        base = relation if view is not None else self._tables.get(name, relation)  # of which it may be a snapshot
        restriction = self._access.restriction(name, base.columns, lender)
        if restriction is None:
            if around is not None and lender and self._access.restriction(name, base.columns) is not None:
                self.lent.add(id(around))
                self.restricted.add(name)
            return None
        if restriction.is_invalid:
            raise invalid(name)
        if not restriction.columns:
            shown = f"what the view {within[0].name} reads" if within else name
            message = f"{self._access.name} may not read {shown}. Ask its owner, or an administrator."
            raise AccessDenied(message, position)
        if SNAPSHOT_MARK in node.name:
            what = f"older versions and metadata of {name}" if not within else f"what the view {within[0].name} reads"
            message = f"{self._access.name} may not read {what}: that takes the right to all of its rows and columns."
            raise AccessDenied(message, position)
        self.restricted.add(name)
        every, read = restriction.columns, names()
        wanted = every if read is None else tuple(column for column in every if column.lower() in read)
        text = text_of(name, relation.columns, replace(restriction, columns=wanted or every[:1]))
        ready = _READY.get((text, every))
        if ready is not None and all(self._tables.get(table.name) is table for table in ready.tables):
            return ready.tree.copy()
        return self._part(name, text, every)

    def fill(self, part: exp.Select) -> None:
        """Put the user's proved name and groups into a sub-query."""
        self.tells_of_session = put_in_facts(part, self._facts) or self.tells_of_session

    def finish(self, part: exp.Select) -> None:
        """Look up the columns of a sub-query whose views are expanded. Raises PolicyInvalid.

        It is kept for the next statement, if it names tables alone.
        """
        text, every = part.meta.pop(_TEXT)
        has_views = any(not table.name or table.name not in self._tables for table in find_all(part, exp.Table))
        try:
            tables = resolve(part, self._tables)
        except SqlError as error:
            raise invalid(part.meta[RELATION]) from error
        if not has_views and not find_all(part, exp.Subquery):
            if len(_READY) >= MOST_READY:
                _READY.clear()
            _READY[text, every] = _Ready(part.copy(), tables)

    def _part(self, name: str, text: str, every: tuple[str, ...]) -> exp.Select:
        try:
            tree = self._passes(parsing.parse(text, SPARK, USUAL_LIMITS)[0])
        except SqlError as error:
            raise invalid(name) from error
        assert isinstance(tree, exp.Select)
        for table in find_all(tree, exp.Table):
            table.meta[_WHOLE] = True
        tree.meta[_TEXT] = text, every
        tree.meta[RELATION] = name
        source = tree.args["from_"].this
        source.meta[_WHOLE] = False
        source.meta[_CHECKED] = True
        tree.meta[PART] = True
        tree.meta[COLUMNS] = frozenset(column.lower() for column in every)
        for shown in tree.selects:
            if isinstance(shown, exp.Alias):
                shown.meta[MASKED] = True
        if tree.args.get("where") is not None:
            tree.meta[FILTERED] = True
        return tree


def is_finished(part: exp.Select) -> bool:
    """Tell whether the views in a sub-query are expanded, and its names looked up."""
    return _TEXT not in part.meta


def require_whole_snapshots(tree: exp.Expr, tables: Mapping[str, TableSource], access: Access) -> None:
    """Raise AccessDenied for an older version, or metadata, of a table of which the user may see a part."""
    for node in find_all(tree, exp.Table):
        table = tables.get(node.name) if names_a_snapshot(node) else None
        if table is not None and access.restriction(table.name, table.columns) is not None:
            message = f"{access.name} may not read older versions and metadata of {table.name}: that takes all of it."
            raise AccessDenied(message, position_of(node))


def names_in(tree: exp.Expr) -> frozenset[str] | None:
    """Return the names in a query, in lower case, those of its columns among them; None: a star hides some."""
    names = set()
    for node in nodes(tree):
        if isinstance(node, exp.Star) and not _counts(node.parent):
            return None
        if isinstance(node, exp.Pivot) or (isinstance(node, exp.Join) and node.args.get("method")):
            return None
        if isinstance(node, exp.TableAlias) and node.args.get("columns"):
            return None
        if isinstance(node, exp.Identifier):
            names.add(node.name.lower())
    return frozenset(names)


def _counts(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Count) or (isinstance(node, exp.Anonymous) and node.name.lower() == "count")


def is_whole(node: exp.Table) -> bool:
    """Tell whether a table is one that a filter or mask reads."""
    return bool(node.meta.get(_WHOLE))


def mark_whole(query: exp.Expr) -> None:
    """Have all tables of a query read whole: it is that of a view that a filter or mask names."""
    for table in find_all(query, exp.Table):
        table.meta[_WHOLE] = True


def invalid(relation: str) -> PolicyInvalid:
    """Return the error for a policy of a relation that cannot be applied; its text is not told."""
    return PolicyInvalid(f"A row filter or column mask of {relation} cannot be applied. Tell an administrator.")


def text_of(relation: str, columns: Sequence[Column], restriction: Restriction) -> str:
    """Return the query of the part of a relation, in Spark's SQL."""
    types = {column.name: column.data_type for column in columns}
    shown = ", ".join(
        f"TRY_CAST(({restriction.masks[name]}\n) AS {types[name]}) AS {spark_name(name)}"
        if name in restriction.masks
        else spark_name(name)
        for name in restriction.columns
    )
    where = " AND ".join(f"({condition}\n)" for condition in restriction.filters)
    return f"SELECT {shown} FROM {in_two_parts(relation)}" + (f" WHERE {where}" if where else "")  # noqa: S608 - texts of an administrator, each checked by ``require_expression``; names are quoted


def require_expression(sql: str) -> None:
    """Raise SqlError for a text that is no single expression in Spark's SQL."""
    tree, _ = parsing.parse(f"SELECT {sql}\n AS c", SPARK, USUAL_LIMITS)
    if not isinstance(tree, exp.Select) or len(tree.selects) != 1 or set(tree.args) - {"expressions"} & _present(tree):
        raise PolicyInvalid("A row filter or column mask is one expression.")
    for node in nodes(tree, but_below=exp.Subquery):
        if isinstance(node, exp.Window) or (isinstance(node, exp.Anonymous) and node.name.lower() in _OF_SEVERAL):
            raise PolicyInvalid("A row filter or column mask is of one row: no aggregate, window or generator.")


def _present(tree: exp.Expr) -> set[str]:
    return {name for name, value in tree.args.items() if value}
