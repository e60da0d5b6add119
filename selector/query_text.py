"""Facts for plan readers from a query's text: the columns that it joins, its predicates, and its aliases.

Joins are read off equalities, through sub-queries and common table expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from selector.join_keys import SEPARATOR, ColumnRef, KeyPair

MOST_COLUMNS = 6  # of a key
LONGEST_KEY = 255  # characters of its columns' names, with those between them; the metastore has room for no more
LONGEST_NAMING = 5  # of names that stand for expressions of names
LONGEST_WAY = 50  # of sub-queries that pass a column on; a recursive one passes it on for ever


_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In, exp.Between, exp.Is)
_PLAIN = (exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Not, exp.Paren, exp.Connector)

_Way = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """A query's own expressions, as text without tables, where its plan has others.

    named: expressions by alias, in lower case; one alias may mean several.
    predicates: conjuncts that compute something.
    """

    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    predicates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Origin:
    """The stored column behind a column of a query. way: the references that lead there, from the outside in."""

    column: ColumnRef
    way: _Way


def join_pairs(tree: exp.Expr, columns_of: Mapping[str, frozenset[str]]) -> tuple[KeyPair, ...]:
    """Return the pairs of stored columns that a query wants to be equal, each once, in order.

    Where it compares several columns of two references, they are a pair of keys together as well.

    Counted are conjuncts of WHERE and ON, USING, IN with a sub-query and the correlation of one, between different
    references to tables, which may be the same table twice. A column counts where sub-queries pass it on unchanged.
    columns_of: the columns of each registered table, both in lower case.
    """
    try:
        scopes = traverse_scope(tree)
    except OptimizeError:
        return ()
    reader = _Reader(scopes, columns_of)
    pairs = {pair for scope in scopes for pair in reader.pairs(scope)}
    return tuple(sorted(pairs))


def wording(tree: exp.Expr, *, dialect: str) -> Wording:
    """Return a query's own words.

    A name within a named expression that is itself such a name is replaced by what it means, if it means one thing
    only; predicates are there with their names, and with what these mean.
    """
    meanings: dict[str, dict[str, exp.Expr]] = {}
    for alias in tree.find_all(exp.Alias):
        meant = alias.this.unnest()
        if isinstance(alias.parent, exp.Select) and not meant.find(exp.Query):
            meanings.setdefault(alias.alias.lower(), {})[meant.sql()] = meant
    unambiguous = {name: next(iter(some.values())) for name, some in meanings.items() if len(some) == 1}
    named = {
        name: tuple(
            dict.fromkeys(
                _spelled(meant, unambiguous, (name,)).sql(dialect=dialect, copy=False) for meant in some.values()
            )
        )
        for name, some in meanings.items()
    }
    spelled = [
        _spelled(conjunct, names, ())
        for conjunct in _all_conjuncts(tree)
        for names in (({}, unambiguous) if unambiguous else ({},))
    ]
    predicates = (one.sql(dialect=dialect, copy=False) for one in spelled if _computes(one))
    return Wording(named, tuple(dict.fromkeys(predicates)))


def _all_conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conjuncts of all conditions in a query that ask no query themselves."""
    for clause in tree.find_all(exp.Where, exp.Having, exp.Join):
        conjuncts = _conjuncts(clause.args.get("on") if isinstance(clause, exp.Join) else clause)
        yield from (conjunct for conjunct in conjuncts if not conjunct.find(exp.Query))


def _computes(condition: exp.Expr) -> bool:
    """Tell whether a condition does more than to compare columns and constants."""
    return any(not isinstance(node, (*_PLAIN, *_COMPARED)) for node in condition.walk())


def _spelled(expression: exp.Expr, meanings: Mapping[str, exp.Expr], within: tuple[str, ...]) -> exp.Expr:
    """Return an expression whose columns have no tables, and none of which is a name of another expression."""

    def bare(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        name = node.name.lower()
        meant = meanings.get(name)
        if meant is None or name in within or len(within) > LONGEST_NAMING:
            return exp.column(node.name)
        inner = _spelled(meant, meanings, (*within, name))
        return inner if isinstance(inner, exp.Column | exp.Func) else exp.paren(inner, copy=False)

    return expression.transform(bare)


def _can_be_named(columns: Iterable[tuple[ColumnRef, ColumnRef]]) -> bool:
    """Return whether the names of columns can stand together for a key, on both sides."""
    for side in zip(*columns, strict=True):
        names = [column.column for column in side]
        if len(SEPARATOR.join(names)) > LONGEST_KEY or any(SEPARATOR in name for name in names):
            return False
    return True


class _Reader:
    """Follows columns through one query's scopes."""

    def __init__(self, scopes: list[Scope], columns_of: Mapping[str, frozenset[str]]) -> None:
        self._scope_of = {id(scope.expression): scope for scope in scopes}
        self._columns_of = columns_of

    def pairs(self, scope: Scope) -> Iterator[KeyPair]:
        """Yield what one query, without those inside it, joins."""
        query = scope.expression
        if not isinstance(query, exp.Select):
            return
        conditions = [query.args.get("where"), *(join.args.get("on") for join in query.args.get("joins") or ())]
        equalities = list(self._of_using(scope, query))
        for condition in conditions:
            for conjunct in _conjuncts(condition):
                equalities += self._of_conjunct(scope, conjunct)
        together: dict[tuple[_Way, _Way], set[tuple[ColumnRef, ColumnRef]]] = {}
        for mine, theirs in equalities:
            yield KeyPair.of(mine.column, theirs.column)
            if theirs.way < mine.way:
                mine, theirs = theirs, mine
            together.setdefault((mine.way, theirs.way), set()).add((mine.column, theirs.column))
        for columns in together.values():
            if 1 < len(columns) <= MOST_COLUMNS and _can_be_named(columns):
                yield KeyPair.together(columns)

    def _of_conjunct(self, scope: Scope, conjunct: exp.Expr) -> Iterator[tuple[_Origin, _Origin]]:
        if isinstance(conjunct, exp.EQ | exp.NullSafeEQ):
            yield from self._joined(self._origin(scope, conjunct.left), self._origin(scope, conjunct.right))
        elif isinstance(conjunct, exp.In):
            inner = self._scope_of.get(id(_bare(conjunct.args.get("query"))))
            outer = _bare(conjunct.this)
            wanted = outer.expressions if isinstance(outer, exp.Tuple) else [outer]
            selects = inner.expression.selects if inner and isinstance(inner.expression, exp.Select) else []
            if inner is not None and len(selects) == len(wanted):
                for outer_column, inner_column in zip(wanted, selects, strict=True):
                    yield from self._joined(
                        self._origin(scope, outer_column), self._origin(inner, inner_column.unalias())
                    )

    def _of_using(self, scope: Scope, query: exp.Select) -> Iterator[tuple[_Origin, _Origin]]:
        names = list(scope.selected_sources)
        for join in query.args.get("joins") or ():
            joined_name = join.alias_or_name
            for shared in join.args.get("using") or ():
                column = shared.name.lower()
                earlier = names[: names.index(joined_name)] if joined_name in names else []
                for earlier_name in earlier:
                    yield from self._joined(
                        self._in_source(scope, earlier_name, column, ()),
                        self._in_source(scope, joined_name, column, ()),
                    )

    def _joined(self, first: _Origin | None, second: _Origin | None) -> Iterator[tuple[_Origin, _Origin]]:
        if first is not None and second is not None and first.way != second.way:
            yield first, second

    # ------------------------------------------------------------------ where a column comes from

    def _origin(self, scope: Scope, expression: exp.Expr, way: _Way = ()) -> _Origin | None:
        """Return the stored column that an expression is, as seen from a scope; None if it is anything else."""
        column = _bare(expression)
        if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier) or len(way) > LONGEST_WAY:
            return None
        name, qualifier = column.name.lower(), column.table.lower()
        current: Scope | None = scope
        while current is not None:
            names = [qualifier] if qualifier else list(current.selected_sources)
            origins = [
                self._in_source(current, reference, name, way)
                for reference in names
                if reference in current.selected_sources
            ]
            stored = [origin for origin in origins if origin is not None]
            if stored:
                return stored[0] if len(stored) == 1 else None
            current = current.parent if current.is_correlated_subquery or current.is_subquery else None
        return None

    def _in_source(self, scope: Scope, reference: str, column: str, way: _Way) -> _Origin | None:
        _, source = scope.selected_sources[reference]
        way = (*way, (id(scope), reference))
        if isinstance(source, exp.Table):
            table = source.name.lower()
            is_stored = column in self._columns_of.get(table, frozenset())
            return _Origin(ColumnRef(table, column), way) if is_stored else None
        query = source.expression
        if isinstance(query, exp.SetOperation) or not isinstance(query, exp.Query):
            return None  # several origins at once
        passed = _output(query, column)
        return self._origin(source, passed, way) if passed is not None else None


def _output(query: exp.Query, column: str) -> exp.Expr | None:
    """Return what a query puts out under a name; through a star, the name itself."""
    outer = query.parent
    alias = outer.args.get("alias") if isinstance(outer, exp.CTE | exp.Subquery) else None
    renamed = [identifier.name.lower() for identifier in alias.args.get("columns") or ()] if alias else []
    selects = query.selects
    if renamed:
        place = renamed.index(column) if column in renamed and len(renamed) == len(selects) else None
        return selects[place].unalias() if place is not None else None
    for select in selects:
        if select.alias_or_name.lower() == column and not select.is_star:
            return select.unalias()
    stars = [select for select in selects if select.is_star]
    return exp.column(column) if len(stars) == 1 and not _changes(stars[0]) else None


def _changes(star: exp.Expr) -> bool:
    """Tell whether a star leaves out, replaces or renames columns."""
    inner = star.this if isinstance(star, exp.Column) else star
    return any(inner.args.get(change) for change in ("except_", "except", "replace", "rename"))


def _conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    waiting = [condition]
    while waiting:
        node = _bare(waiting.pop())
        if isinstance(node, exp.Where | exp.Having):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.left, node.right]
        elif isinstance(node, exp.Not) and isinstance(_bare(node.this), exp.In):
            waiting.append(node.this)
        elif node is not None:
            yield node


def _bare(node: exp.Expr | None) -> exp.Expr | None:
    while isinstance(node, exp.Paren | exp.Subquery) and not node.args.get("alias"):
        node = node.this
    return node
