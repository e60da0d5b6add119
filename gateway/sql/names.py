"""Tables and columns that a statement names, held against the catalog.

First every table gets its full name (``qualify``); once views are put in, tables and columns are looked up. Only what
is certainly wrong is reported: where a source's columns are not known (a star over something unresolved, a lateral
view), its columns are left to the engine.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from engines.protocol import TableSource
from engines.table_names import DEFAULT_DATABASE, canonical, full_name
from gateway.errors import NotAllowed, TableUnreadable, UnknownColumn, UnknownDatabase, UnknownTable
from gateway.sql.nodes import find_all, position_of
from metastore.records import Position

CATALOG = "spark_catalog"  # the one that there is, as Spark's clients call it
SUGGESTIONS = 3
_FILE_SOURCES = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile"})
_GENERATORS = frozenset({"explode", "explode_outer", "posexplode", "posexplode_outer"})  # as they were written
_QUALIFIED = "full name"  # marks tables that have theirs: no common table expression is meant


@dataclass(frozen=True, slots=True)
class Naming:
    """What names of tables and views mean in a statement. database: of bare names. databases: all that there are."""

    database: str = DEFAULT_DATABASE
    databases: frozenset[str] = frozenset({DEFAULT_DATABASE})

    def full(self, parts: Sequence[str]) -> str:
        """Return the full name behind a name's parts; whether there is such a table is not asked.

        A bare name with a dot in it, in quotes, is a full one.
        """
        before, name = [part.lower() for part in parts[:-1]], parts[-1]
        if before[:1] == [CATALOG] and len(before) > 1:
            del before[0]
        if before:
            return full_name(".".join(before), name)
        return canonical(name) if "." in name else full_name(self.database, name)

    def require(self, database: str, position: Position | None = None) -> str:
        """Return the name of a database in lower case. Raises UnknownDatabase."""
        name = database.lower()
        if name not in self.databases:
            known = sorted(self.databases)
            there_are = f"; there is {' and '.join(known)}." if len(known) < SUGGESTIONS else did_you_mean(name, known)
            raise UnknownDatabase(f"There is no database {database}{there_are}", position)
        return name


IN_DEFAULT = Naming()


def temporary_name(name: str) -> str:
    """Return what a session's own view is found by among all views: it is in no database."""
    return f".{name.lower()}"


def qualify(tree: exp.Expr, naming: Naming, views: Container[str]) -> None:
    """Write the full names of tables and views into a query; each keeps the name that it was called by as its alias.

    views: the names by which they are found, a session's own among them, which a bare name means first.
    """
    _tell_same_names_apart(tree)
    for node, expression in list(tables_named(tree)):
        if expression is not None or not isinstance(node.this, exp.Identifier) or node.meta.get(_QUALIFIED):
            continue
        if node.db.lower() in _FILE_SOURCES and node.db.lower() not in naming.databases:
            raise NotAllowed("Files cannot be read directly; register them as a table.", position_of(node))
        own = temporary_name(node.name)
        full = own if not node.db and own in views else naming.full([part.name for part in node.parts])
        alias = node.args.get("alias")
        if alias is None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name.lower())))
        elif not alias.this:
            alias.set("this", exp.to_identifier(node.name.lower()))
        node.this.meta.update(node.parts[0].meta)  # the position of the whole name
        rename(node, full)
        node.set("db", None)
        node.set("catalog", None)
        node.meta[_QUALIFIED] = True


def _free_name(wanted: str, taken: Container[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


def rename(node: exp.Table, full: str) -> None:
    """Have a table node name another table or view; its position stays."""
    node.this.set("this", full)
    node.this.set("quoted", True)


def _tell_same_names_apart(tree: exp.Expr) -> None:
    """Give tables of one name, of several databases, aliases of their own where they stand side by side."""
    for select in find_all(tree, exp.Select):
        sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
        bare = [each.this for each in sources if each is not None and isinstance(each.this, exp.Table)]
        called = Counter(node.alias_or_name.lower() for node in bare)
        again = [node for node in bare if node.db and not node.alias and called[node.name.lower()] > 1]
        columns: dict[tuple[str, str], list[exp.Column]] = {}
        for column in find_all(select, exp.Column) if again else ():
            columns.setdefault((column.db.lower(), column.table.lower()), []).append(column)
        for node in again:
            alias = exp.to_identifier(_free_name(f"{node.db}_{node.name}".lower(), called), quoted=True)
            for column in columns.pop((node.db.lower(), node.name.lower()), ()):
                column.set("table", alias.copy())
                column.set("db", None)
            node.set("alias", exp.TableAlias(this=alias))


def resolve(tree: exp.Expr, catalog: Mapping[str, TableSource]) -> tuple[TableSource, ...]:
    """Return the tables that a query reads, by the full names in its tree.

    Raises UnknownTable or UnknownColumn with the nearest names and the position, and OptimizeError where two tables of
    one SELECT have the same name.
    """
    _fold_case(tree)
    scopes = traverse_scope(tree)
    _check_all_seen(tree, scopes)
    found: dict[str, TableSource] = {}
    for scope in scopes:
        for source in scope.sources.values():
            if isinstance(source, exp.Table):
                table = _table(source, catalog)
                found[table.name] = table
    for scope in scopes:
        _check_columns(scope, catalog)
    for column in find_all(tree, exp.Column):
        if column.args.get("db"):
            column.set("db", None)
            column.set("catalog", None)
    return tuple(found.values())


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


def tables_named(tree: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
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
            own = node.db or visible is None or node.meta.get(_QUALIFIED)
            yield node, None if own or visible is None else visible.find(node.name.lower())
        waiting += [(child, visible) for child in node.iter_expressions() if child is not clause]


def _fold_case(tree: exp.Expr) -> None:
    """Write names of tables, common table expressions and aliases in lower case: no engine tells them apart by case."""
    for node in find_all(tree, exp.Table, exp.TableAlias, exp.Column):
        part = node.args.get("table") if isinstance(node, exp.Column) else node.this
        if isinstance(part, exp.Identifier):
            part.set("this", part.name.lower())


def _check_all_seen(tree: exp.Expr, scopes: Sequence[Scope]) -> None:
    """Refuse tables where no scope looks for them."""
    seen = {id(table) for scope in scopes for table in scope.tables}
    for node in find_all(tree, exp.Table):
        if id(node) not in seen:
            raise NotAllowed("A sub-query is not allowed in this place.", position_of(node))


def _table(node: exp.Table, catalog: Mapping[str, TableSource]) -> TableSource:
    table = catalog.get(node.name)
    if table is None:
        raise UnknownTable(f"There is no table {node.name}{did_you_mean(node.name, catalog)}", position_of(node))
    return require_usable(table, position_of(node))


def _check_columns(scope: Scope, catalog: Mapping[str, TableSource]) -> None:
    visible = _visible(scope, catalog)
    for column in scope.columns:
        # A scope also lists what its sub-queries may mean by an outer column; each is looked at in its own place.
        if not isinstance(column.this, exp.Identifier) or column.parent_select is not scope.expression:
            continue
        name = column.name.lower()
        known = _qualified(scope, column.table, catalog) if column.table else visible
        if known is None or name in known or (not column.table and name in _aliases(scope)):
            continue
        text = f"{column.table}.{column.name}" if column.table else column.name
        raise UnknownColumn(f"There is no column {text}{did_you_mean(name, known)}", position_of(column.this))


def _qualified(scope: Scope | None, qualifier: str, catalog: Mapping[str, TableSource]) -> frozenset[str] | None:
    """Return the columns of the source that a qualifier names, from the inside out; None where unknown."""
    while scope is not None:
        for name, source in scope.sources.items():
            if name.lower() == qualifier.lower():
                return _columns(source, catalog)
        scope = scope.parent
    return None  # may be a column with fields


def _visible(scope: Scope, catalog: Mapping[str, TableSource]) -> frozenset[str] | None:
    """Return all columns that an unqualified name may mean; None where one source is unknown."""
    names: set[str] = set()
    current: Scope | None = scope
    while current is not None:
        if current.expression.args.get("laterals"):
            return None
        for name in current.selected_sources:
            columns = _columns(current.sources.get(name), catalog)
            if columns is None:
                return None
            names |= columns
        current = current.parent
    return frozenset(names)


def _columns(source: object, catalog: Mapping[str, TableSource]) -> frozenset[str] | None:
    if isinstance(source, exp.Table):
        table = catalog.get(source.name.lower())
        return frozenset(column.name.lower() for column in table.columns) if table else None
    if not isinstance(source, Scope):
        return None
    query = source.expression
    if not isinstance(query, exp.Query):
        return None
    alias = query.parent.args.get("alias") if isinstance(query.parent, exp.CTE | exp.Subquery) else None
    renamed = [column.name.lower() for column in alias.args.get("columns") or ()] if alias else []
    if renamed:
        return frozenset(renamed)
    if any(select.is_star or is_generator(select) for select in query.selects):
        return None
    return frozenset(name.lower() for name in query.named_selects)


def is_generator(expression: exp.Expr) -> bool:
    """Tell whether an output is a function that makes rows: its columns have their own names (pos, col, key, value)."""
    written = isinstance(expression, exp.Anonymous) and expression.name.lower() in _GENERATORS
    return written or isinstance(expression, exp.Explode | exp.Posexplode)


def _aliases(scope: Scope) -> frozenset[str]:
    """Return the names given with AS, which ORDER BY, GROUP BY, HAVING and later expressions may use."""
    query = scope.expression
    selects = query.selects if isinstance(query, exp.Query) else []
    return frozenset(select.alias.lower() for select in selects if isinstance(select, exp.Alias))


def require_usable(table: TableSource, position: Position | None = None) -> TableSource:
    """Return a table as it is. Raises TableUnreadable where what is stored of it cannot be used."""
    if table.defect:
        message = f"The table {table.name} cannot be used: {table.defect}. REFRESH it, register it again, or drop it."
        raise TableUnreadable(message, position)
    return table


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known names as the end of a message."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=SUGGESTIONS, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else "."
