"""Tables and columns that a statement names, held against the catalog.

Only what is certainly wrong is reported: where a source's columns are not known (a star over something unresolved,
a lateral view), its columns are left to the engine.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from engines.protocol import TableSource
from gateway.errors import NotAllowed, SyntaxInvalid, TableUnreadable, UnknownColumn, UnknownTable
from gateway.sql.position import position_of
from metastore.records import Position

DEFAULT_DATABASE = "default"
SUGGESTIONS = 3
_FILE_SOURCES = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile"})


def resolve(tree: exp.Expr, catalog: Mapping[str, TableSource]) -> tuple[TableSource, ...]:
    """Return the tables that a query reads, and write their catalog names into its tree.

    Raises UnknownTable or UnknownColumn with the nearest names and the position.
    """
    _fold_case(tree)
    try:
        scopes = traverse_scope(tree)
    except OptimizeError as error:
        raise SyntaxInvalid(f"The statement cannot be resolved: {error}") from error
    _check_all_seen(tree, scopes)
    found: dict[str, TableSource] = {}
    for scope in scopes:
        for source in scope.sources.values():
            if isinstance(source, exp.Table):
                table = _table(source, catalog)
                found[table.name] = table
    for scope in scopes:
        _check_columns(scope, catalog)
    for node in tree.find_all(exp.Table):
        _write_catalog_name(node, found)
    for column in tree.find_all(exp.Column):
        if column.args.get("db"):
            column.set("db", None)
            column.set("catalog", None)
    return tuple(found.values())


def _fold_case(tree: exp.Expr) -> None:
    """Write names of tables, common table expressions and aliases in lower case: no engine tells them apart by case."""
    for node in tree.find_all(exp.Table, exp.TableAlias, exp.Column):
        part = node.args.get("table") if isinstance(node, exp.Column) else node.this
        if isinstance(part, exp.Identifier):
            part.set("this", part.name.lower())


def _check_all_seen(tree: exp.Expr, scopes: Sequence[Scope]) -> None:
    """Refuse tables where no scope looks for them."""
    seen = {id(table) for scope in scopes for table in scope.tables}
    for node in tree.find_all(exp.Table):
        if id(node) not in seen:
            raise NotAllowed("A sub-query is not allowed in this place.", position_of(node))


def _table(node: exp.Table, catalog: Mapping[str, TableSource]) -> TableSource:
    database = node.db.lower()
    if database in _FILE_SOURCES:
        raise NotAllowed("Files cannot be read directly; register them as a table.", position_of(node))
    table = catalog.get(node.name.lower())
    if table is None or database not in ("", DEFAULT_DATABASE) or node.catalog:
        name = ".".join(part.name for part in node.parts)
        raise UnknownTable(f"There is no table {name}{did_you_mean(node.name, catalog)}", position_of(node))
    return require_usable(table, position_of(node))


def _write_catalog_name(node: exp.Table, found: Mapping[str, TableSource]) -> None:
    if node.name.lower() in found and node.db.lower() in ("", DEFAULT_DATABASE):
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
        node.set("this", exp.to_identifier(node.name.lower(), quoted=True))
        node.set("db", None)


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
    if any(isinstance(select, exp.Star) or select.is_star for select in query.selects):
        return None
    return frozenset(name.lower() for name in query.named_selects)


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
