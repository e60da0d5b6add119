"""Resolution of a statement's tables and columns in the catalog, by Spark's rules.

A name of several parts, such as ``a.b.c``, may be a column of a table or a field of a struct. The longest prefix that
names a relation is the relation, the next part is a column, and the rest are fields; a subquery looks in its own FROM
first. Only names that are certainly wrong are reported: where the columns of a source are not known (a generator),
names are left to the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from sql.allowlist.syntax import is_generator
from sql.errors import NotAllowed, SyntaxInvalid, UnknownColumn, UnknownTable
from sql.names import QUALIFIER, did_you_mean, require_usable
from sql.nodes import find_all, position_of
from sql.parsers.pipes import Piped
from sql.rewriting import DEFAULT_NAME, named
from sql.tables import TableSource

LITERAL_FUNCTIONS = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtime", "current_user", "session_user", "user"}
)
"""Functions that may be called without brackets where no column has their name (Spark's LiteralFunctionResolution)."""

ALIASES_NEEDED = "give the tables of one FROM different names with AS"
"""End of messages about tables with the same name."""

COLUMNS = "columns"
"""Key of the ``meta`` of a query with the names, in lower case, that its outputs could have, for suggestions."""

_GROUPING_ID = "grouping__id"  # a column that Spark and Hive add for CUBE, ROLLUP and GROUPING SETS


def resolve(tree: exp.Expr, catalog: Mapping[str, TableSource]) -> tuple[TableSource, ...]:
    """Return the tables that a query reads, by the full names in its tree.

    Raises UnknownTable or UnknownColumn with the nearest names and the position, and SyntaxInvalid if two tables of one
    FROM have the same name.
    """
    _fold_case(tree)
    scopes = traverse_scope(tree)
    _check_all_seen(tree, scopes)
    tables: dict[str, TableSource] = {}
    for scope in scopes:
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                table = _table(source, catalog)
                tables[table.name] = table
    _Columns(scopes, catalog).resolve(tree)
    return tuple(tables.values())


def _fold_case(tree: exp.Expr) -> None:
    """Write names of tables, common table expressions and aliases in lower case: no engine tells them apart by case."""
    for node in find_all(tree, exp.Table, exp.TableAlias, exp.Column):
        part = node.args.get("table") if isinstance(node, exp.Column) else node.this
        if isinstance(part, exp.Identifier):
            part.set("this", part.name.lower())


def _check_all_seen(tree: exp.Expr, scopes: Sequence[Scope]) -> None:
    """Refuse tables that no scope has seen."""
    seen = {id(table) for scope in scopes for table in scope.tables}
    for node in find_all(tree, exp.Table):
        if id(node) not in seen:
            raise NotAllowed("A sub-query is not allowed in this place.", position_of(node))


def _table(node: exp.Table, catalog: Mapping[str, TableSource]) -> TableSource:
    table = catalog.get(node.name)
    if table is None:
        raise UnknownTable(f"There is no table {node.name}{did_you_mean(node.name, catalog)}", position_of(node))
    return require_usable(table, position_of(node))


@dataclass(frozen=True, slots=True)
class _Relation:
    """Relation of a FROM.

    name: its alias.
    qualifier: catalog, database and name, if it has no alias.
    columns: in lower case; None: unknown.
    """

    name: str
    qualifier: tuple[str, ...]
    columns: frozenset[str] | None

    def is_called(self, prefix: Sequence[str]) -> bool:
        """Return True if the first parts of a name are this relation's.

        Drivers quote a catalog's database as one name: ```lake.sales`.orders.id``.
        """
        if [*prefix] == [self.name] or tuple(prefix) == self.qualifier[-len(prefix) :]:
            return True
        database, *rest = prefix
        return bool(rest) and "." in database and (*database.split("."), *rest) == self.qualifier

    def may_have(self, column: str) -> bool:
        """Return True if it has a column, or may have it."""
        return self.columns is None or column in self.columns


class _Columns:
    """The columns of one statement."""

    def __init__(self, scopes: Sequence[Scope], catalog: Mapping[str, TableSource]) -> None:
        self._scopes = {id(scope.expression): scope for scope in scopes}
        self._catalog = catalog
        self._relations: dict[int, tuple[_Relation, ...]] = {}
        self._outputs: dict[int, frozenset[str] | None] = {}
        self._aliases: dict[tuple[int, bool], frozenset[str]] = {}

    def resolve(self, tree: exp.Expr) -> None:
        """Write each column with its relation, and fields after it. Raises UnknownColumn."""
        columns: dict[int, list[exp.Column]] = {}
        stars: list[tuple[exp.Column, Scope]] = []
        for column in find_all(tree, exp.Column):
            scope = self._scope_of(column)
            if not isinstance(column.this, exp.Identifier):
                stars += [(column, scope)] if scope is not None and column.table else []
                continue
            if scope is not None:
                columns.setdefault(id(scope.expression), []).append(column)
            elif len(column.parts) == 1 and column.name.lower() in LITERAL_FUNCTIONS:
                _call(column)  # in VALUES, which reads no columns
        for place, scope in self._scopes.items():  # inner ones first, so that their outputs have names
            self._relations_of(scope)
            for column in columns.get(place, ()):
                self._resolve(column, scope)
        for star, scope in stars:
            self._resolve_star(star, scope)

    def _resolve_star(self, star: exp.Column, scope: Scope) -> None:
        """Write ``a.b.*`` with its relation; another one is of a struct."""
        prefix = [part.name.lower() for part in star.parts[:-1]]
        called = [relation for relation in self._relations_of(scope) if relation.is_called(prefix)]
        if called:
            _require_one(called, star)
            star.set("table", exp.to_identifier(called[0].name, quoted=True))
            star.set("db", None)
            star.set("catalog", None)

    def _scope_of(self, column: exp.Column) -> Scope | None:
        """Return the query of a column: its SELECT, or the set operation with the column in its ORDER BY."""
        node: exp.Expr | None = column
        while node is not None and id(node) not in self._scopes:
            node = node.parent
        return None if node is None else self._scopes[id(node)]

    def _resolve(self, column: exp.Column, scope: Scope) -> None:
        parts = [part.name.lower() for part in column.parts]
        is_call = len(parts) == 1 and parts[0] in LITERAL_FUNCTIONS
        for level in _levels(scope):
            relations = self._relations_of(level)
            for length in range(len(parts) - 1, 0, -1):
                called = [r for r in relations if r.is_called(parts[:length]) and r.may_have(parts[length])]
                if called:
                    _require_one(called, column)
                    _rewrite(column, length, called[0].name)
                    return
            if any(relation.columns is not None and parts[0] in relation.columns for relation in relations):
                _rewrite(column, 0)
                return
            if self._is_output(parts, column, level, is_call=is_call):
                return
            if self._may_be_hidden(parts, level):
                break
        else:
            if not is_call:
                self._raise_unknown(column, scope)
        if is_call:
            _call(column)

    def _is_output(self, parts: Sequence[str], column: exp.Column, level: Scope, *, is_call: bool) -> bool:
        """Return True if a name may be that of an output, or of a column that GROUP BY adds."""
        if [*parts] == [_GROUPING_ID] and level.expression.args.get("group"):
            return True
        is_projected = _is_projected(column)
        return parts[0] in self._aliases_of(level, is_projected=is_projected) and not (is_call and is_projected)

    def _may_be_hidden(self, parts: Sequence[str], level: Scope) -> bool:
        """Return True if a name may mean something unknown here: it is left to the engine."""
        if isinstance(level.expression, Piped) and len(parts) > 1:
            return True  # an operator also sees the relations before the one before it
        relations = self._relations_of(level)
        is_known = all(relation.columns is not None for relation in relations)
        if is_known and not level.expression.args.get("laterals"):
            return False
        is_named = any(relation.is_called(parts[:1]) and relation.columns is not None for relation in relations)
        return len(parts) == 1 or not is_named

    def _raise_unknown(self, column: exp.Column, scope: Scope) -> None:
        parts = [part.name for part in column.parts]
        visible = [relation for level in _levels(scope) for relation in self._relations_of(level)]
        named = [relation for relation in visible if relation.is_called([parts[0].lower()])] if len(parts) > 1 else []
        columns = [name for relation in named or visible for name in relation.columns or ()]
        message = f"There is no column {'.'.join(parts)}{did_you_mean(parts[-1], columns)}"
        raise UnknownColumn(message, position_of(column.this))

    def _aliases_of(self, scope: Scope, *, is_projected: bool) -> frozenset[str]:
        """Return the names of a query's outputs that a column may use: in the select list only those given with AS."""
        key = (id(scope), is_projected)
        if key not in self._aliases:
            self._aliases[key] = frozenset(_aliases(scope, is_projected=is_projected))
        return self._aliases[key]

    def _relations_of(self, scope: Scope) -> tuple[_Relation, ...]:
        """Return the relations in the FROM of a query, also those of semi joins."""
        if id(scope) not in self._relations:
            relations = tuple(self._relations_in(scope))
            _require_own_names(relations)
            self._relations[id(scope)] = relations
        return self._relations[id(scope)]

    def _relations_in(self, scope: Scope) -> Iterator[_Relation]:
        if isinstance(scope.expression, exp.SetOperation | exp.Subquery):  # their ORDER BY sees their outputs
            yield _Relation("", (), self._outputs_of(scope))
            return
        for node in _sources_of(scope.expression):
            name = node.alias_or_name.lower()
            source = scope.sources.get(name)
            columns = None if node.args.get("pivots") else self._columns_of(source, node)
            yield _Relation(name, node.meta.get(QUALIFIER, ()), columns)
            for join in node.args.get("joins") or ():  # within brackets
                yield _Relation(join.this.alias_or_name.lower(), join.this.meta.get(QUALIFIER, ()), None)

    def _columns_of(self, source: object, node: exp.Expr) -> frozenset[str] | None:
        alias = node.args.get("alias")
        renamed = [column.name.lower() for column in alias.args.get("columns") or ()] if alias else []
        if renamed:
            return frozenset(renamed)
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            table = self._catalog.get(source.name.lower())
            return frozenset(column.name.lower() for column in table.columns) if table else None
        return self._outputs_of(source) if isinstance(source, Scope) else None

    def _outputs_of(self, scope: Scope) -> frozenset[str] | None:
        if id(scope) not in self._outputs:
            self._outputs[id(scope)] = None  # for a recursive query, until it is known
            self._outputs[id(scope)] = self._outputs_in(scope)
        return self._outputs[id(scope)]

    def _outputs_in(self, scope: Scope) -> frozenset[str] | None:
        query = scope.expression
        if isinstance(query, exp.Values):
            row = query.expressions[0]
            return frozenset(f"col{place}" for place, _ in enumerate(getattr(row, "expressions", [row]), 1))
        if not isinstance(query, exp.Query):
            return None
        around = query.parent
        while isinstance(around, exp.SetOperation):
            around = around.parent  # a recursive query gets its names from its first part
        alias = around.args.get("alias") if isinstance(around, exp.CTE) else None
        if alias is not None and alias.args.get("columns"):
            return frozenset(column.name.lower() for column in alias.args["columns"])
        names: set[str] = set(query.meta.get(COLUMNS, ()))
        for select in query.selects:
            if is_generator(select):
                return None
            if isinstance(select, exp.Aliases):
                names.update(alias.name.lower() for alias in select.expressions)
                continue
            if isinstance(select, exp.Star) and not any(select.args.values()) and isinstance(query, exp.Select):
                relations = self._relations_of(scope)
                if query.args.get("laterals") or any(relation.columns is None for relation in relations):
                    return None
                names.update(name for relation in relations for name in relation.columns or ())
            elif select.is_star:
                return None
            else:
                names.add(select.alias_or_name.lower())
        return frozenset(names)


def _levels(scope: Scope) -> Iterator[Scope]:
    """Yield the queries whose relations a query's columns may belong to, from the inside out.

    A query in FROM or WITH does not see the sources beside it, but those outside of the query that it is part of.
    """
    yield scope
    while scope.parent is not None:
        is_apart = scope.is_derived_table or scope.is_cte
        scope = scope.parent
        if not is_apart and isinstance(scope.expression, exp.Select):
            yield scope


def _require_own_names(relations: Sequence[_Relation]) -> None:
    names = Counter(relation.name for relation in relations if relation.name)
    for name, count in names.items():
        if count > 1:
            raise SyntaxInvalid(f"{count} tables are called {name}: {ALIASES_NEEDED}.")


def _require_one(relations: Sequence[_Relation], column: exp.Column) -> None:
    """Raise SyntaxInvalid if a column may belong to several relations, such as ``t.a`` of ``FROM one.t, two.t``."""
    if len(relations) > 1 and all(relation.columns is not None for relation in relations):
        names = " or ".join(".".join(relation.qualifier) or relation.name for relation in relations)
        written = ".".join(part.name for part in column.parts)
        raise SyntaxInvalid(f"{written} may be of {names}: {ALIASES_NEEDED}.", position_of(column.this))


def _sources_of(query: exp.Expr) -> Iterator[exp.Expr]:
    clause = query.args.get("from_")
    if clause is not None:
        yield clause.this
    for join in query.args.get("joins") or ():
        yield join.this


def _rewrite(column: exp.Column, length: int, relation: str | None = None) -> None:
    """Write a column with its relation's name; parts after it become fields. length: parts that name the relation."""
    if length == len(column.parts) - 1 and length < 2:
        return
    parts = [part.copy() for part in column.parts]
    for key, part in zip(("this", "table", "db", "catalog"), (parts[length], None, None, None), strict=True):
        column.set(key, part)
    if relation is not None:
        name = parts[length - 1]
        name.set("this", relation)
        column.set("table", name)
    fields = parts[length + 1 :]
    if fields:
        node: exp.Expr = column.copy()
        for field in fields:
            node = exp.Dot(this=node, expression=field)
        column.replace(node)


def _call(column: exp.Column) -> None:
    """Replace a column by a call of the function of its name, which was called without brackets."""
    call = exp.Anonymous(this=column.name.lower(), expressions=[])
    call.meta.update(column.this.meta)
    is_output = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
    column.replace(named(call) if is_output else call)


def _is_projected(column: exp.Column) -> bool:
    """Return True for a column in a select list, where functions without brackets come before other aliases."""
    node: exp.Expr = column
    while node.parent is not None and not isinstance(node.parent, exp.Select):
        node = node.parent
    return node.arg_key == "expressions"


def _aliases(scope: Scope, *, is_projected: bool) -> Iterator[str]:
    query = scope.expression
    group = query.args.get("group")
    yield from (key.name.lower() for key in (group.expressions if group is not None else ()) if _is_window(key))
    for select in query.selects if isinstance(query, exp.Query) else ():
        if isinstance(select, exp.Alias):
            if not (is_projected and select.meta.get(DEFAULT_NAME)):
                yield select.alias.lower()
        elif isinstance(select, exp.Dot | exp.Column) and not select.is_star:
            parts = select.parts
            if len(parts) > 1:  # a field is called by its own name
                yield parts[-1].name.lower()


def _is_window(key: exp.Expr) -> bool:
    """Return True if a key of GROUP BY is a window of time: its column has the function's name."""
    return isinstance(key, exp.Anonymous) and key.name.lower() in ("window", "session_window")
