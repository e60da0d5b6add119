"""Queries: SELECT with its clauses, set operations, common table expressions, joins.

A name that a clause takes from the select list is written out as what it stands for, or as the place where it stands,
so that it does not matter which of two meanings DuckDB would prefer. NULL comes first in ascending order.

It is long because all clauses of a query share its scope.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from engines.duckdb.writer.expressions import Expressions
from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.kinds import INT, NULL, STRING, Kind, common, common_of_rows, parse_kind
from engines.duckdb.writer.ordering import direction
from engines.duckdb.writer.parts import check_parts
from engines.duckdb.writer.scopes import Output, Scope, Source
from engines.duckdb.writer.values import Value, quoted_name, require
from engines.errors import NoEquivalent
from engines.writing import is_fence
from sql.parsers.pipes import Piped
from sql.parsers.words import describe
from sql.tables import TableSource

_JOIN_KINDS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("", "ANTI"): "ANTI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
}
_LEAF = re.compile(r'("(?:[^"]|"")*")(\.?)|\'(?:[^\']|\'\')*\'|\b\d+')
"""A name, of a table where a point follows, or a literal in what was written."""

FENCED = " LIMIT 9223372036854775807"
"""A fence: DuckDB moves no condition past a limit."""

_SETS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


@dataclass(frozen=True, slots=True)
class Query:
    """Query in DuckDB's SQL with its output columns. is_correlated: it uses columns of an outer query."""

    text: str
    columns: tuple[Output, ...]
    is_correlated: bool = False


class Queries:
    """Writer of the queries of one statement. tables: tables of the catalog, by lower-case name."""

    def __init__(self, tables: Mapping[str, TableSource]) -> None:
        self._tables = tables

    def write(self, node: exp.Expr, outer: Scope | None = None, *, outermost: bool = False) -> Query:
        """Write any query. outermost: its columns must have exactly Spark's names and types."""
        if outermost and outer is None:
            check_parts(node)
        match node:
            case Piped():
                raise NoEquivalent("pipe operators.")
            case exp.Select():
                return self._select(node, outer, outermost)
            case exp.SetOperation():
                return self._set_operation(node, outer, outermost)
            case exp.Subquery():
                return self._bracketed(node, outer, outermost=outermost)
            case exp.Values():
                query = self._values(node, outer)
                names = ", ".join(quoted_name(column.name) for column in query.columns)
                return Query(f"SELECT * FROM ({query.text}) AS inline({names})", query.columns)  # noqa: S608 - all quoted
            case _:
                raise NoEquivalent(f"{describe(node)} as a query.")

    # ------------------------------------------------------------------ queries

    def _bracketed(self, node: exp.Subquery, outer: Scope | None, *, outermost: bool = False) -> Query:
        """Write what stands in brackets; an alias and joins are the caller's."""
        scope, prefix = self._with(node, outer)
        query = self.write(node.this, scope, outermost=outermost)
        tail = self._tail(node, Scope(parent=scope), query.columns)
        return Query(f"{prefix}({query.text}){tail}" if prefix or tail else f"({query.text})", query.columns)

    def _set_operation(self, node: exp.SetOperation, outer: Scope | None, outermost: bool) -> Query:
        scope, prefix = self._with(node, outer)
        sides = [self.write(side, scope) for side in (node.left, node.right)]
        lhs, rhs = (side.columns for side in sides)
        require(len(lhs) == len(rhs), "a set operation over different numbers of columns.")
        columns = []
        for one, other in zip(lhs, rhs, strict=True):
            kind = common(one.kind, other.kind)
            require(kind is not None and kind.is_atomic, f"a set operation over {one.kind} and {other.kind}.")
            columns.append(Output(one.name, kind or one.kind))
        is_distinct = bool(node.args.get("distinct"))
        texts = [_of_columns(side, columns, is_distinct) for side in sides]
        word = _SETS[type(node)] + ("" if is_distinct else " ALL")
        tail = self._tail(node, Scope(parent=scope), tuple(columns))
        return Query(f"{prefix}{texts[0]} {word} {texts[1]}{tail}", tuple(columns))

    def _values(self, node: exp.Values, outer: Scope | None) -> Query:
        write = Expressions(Scope(parent=outer), self)
        rows = [
            [write.value(part) for part in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in node.expressions
        ]
        require(len({len(row) for row in rows}) == 1, "rows of different lengths.")
        columns = []
        for place, values in enumerate(zip(*rows, strict=True), 1):
            kind = common_of_rows([value.kind for value in values])
            texts_only = kind != STRING and all(value.kind != STRING for value in values)
            require(kind is not None and kind.is_atomic, "a column of no single type in VALUES.")
            require(
                texts_only or all(value.kind in (STRING, NULL) for value in values), "texts beside others in VALUES."
            )
            columns.append(Output(f"col{place}", kind or NULL))
        texts = [
            "("
            + ", ".join(f"CAST({cast(v, c.kind).text} AS {c.kind.duckdb})" for v, c in zip(row, columns, strict=True))
            + ")"
            for row in rows
        ]
        return Query(f"VALUES {', '.join(texts)}", tuple(columns))

    def _select(self, node: exp.Select, outer: Scope | None, outermost: bool) -> Query:
        outer, prefix = self._with(node, outer)
        scope = Scope(parent=outer)
        parts = ["SELECT"]
        source = self._from(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None:
            parts.append("DISTINCT")
        write = Expressions(scope, self, windows=node.args.get("windows") or ())
        group = node.args.get("group")
        if group is not None:
            write.has_groups = True
            write.has_grouping_sets = group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None
            write.group_columns = [self._meant(part, node, write) for part in _group_keys(group)]
            require(bool(write.group_columns), "GROUP BY without keys.")
        texts, columns = self._outputs(node, write, outermost)
        parts.append(", ".join(texts))
        parts.append(source)
        where = node.args.get("where")
        fence = where.this if where is not None and is_fence(where.this) else None
        is_doubtful = fence is not None and bool(fence.expressions)
        require(not is_doubtful, "a constant that may fail, over rows of which the user sees a part.")
        if where is not None and fence is None:
            aliases, scope.aliases = scope.aliases, {}
            parts.append(f"WHERE {self._filter(where, write)}")
            scope.aliases = aliases
        if group is not None:
            parts.append(self._group(group, node, write))
        having = node.args.get("having")
        if having is not None:
            require(not _ambiguous(having.this, scope), "a name in HAVING that is both a column and an alias.")
        conditions = [self._filter(having, write)] if having is not None else []
        if write.has_grouping_sets:  # of no rows at all, Spark has no total either
            conditions.insert(0, "count(*) > 0")
        if conditions:
            parts.append(f"HAVING {' AND '.join(conditions)}")
        if write.has_grouping_sets:
            require(not scope.is_correlated, "several groupings in a sub-query that names columns of an outer query.")
            _check_keys_are_told_apart([key.text for key in write.group_columns], [*texts, *conditions[1:]])
        text = prefix + " ".join(part for part in parts if part)
        return Query(text + self._tail(node, scope, columns, write) + (FENCED if fence is not None else ""), columns)

    def _filter(self, clause: exp.Where | exp.Having, write: Expressions) -> str:
        """Write the condition of WHERE or HAVING: the only place where Spark takes columns of a query further out."""
        write.scope.in_filter = True
        condition = write.condition(clause.this)
        write.scope.in_filter = False
        return condition

    def _outputs(self, node: exp.Select, write: Expressions, outermost: bool) -> tuple[list[str], tuple[Output, ...]]:
        """Write the select list; returns texts and columns."""
        texts: list[str] = []
        columns: list[Output] = []
        scope = write.scope
        distinct = node.args.get("distinct") is not None
        for expression in node.expressions:
            if expression.is_star:
                table = expression.args["table"].name if isinstance(expression, exp.Column) and expression.table else ""
                shown = list(scope.star(table))
                require(bool(shown), "a star over nothing.")
                zeros = distinct and any(column.kind.is_floating for _, column in shown)
                if scope.merged or zeros or (outermost and any(column.held for _, column in shown)):
                    for text, column in shown:
                        value = Value(text, column.kind, held=column.held)
                        exact = value.exactly() if outermost else text
                        if distinct:
                            exact = _without_negative_zero(exact, column.kind)
                        texts.append(f"{exact} AS {quoted_name(column.name)}")
                        columns.append(Output(column.name, column.kind, None if outermost else column.held))
                else:
                    texts.append(f"{quoted_name(table)}.*" if table else "*")
                    columns += [column for _, column in shown]
                continue
            inner = expression.unalias()
            name = expression.output_name
            value = write.value(inner)
            require(value.kind.is_atomic or value.kind == NULL, f"a column of type {value.kind}.")
            text = value.exactly() if outermost else value.text
            if distinct or any(key.text == value.text for key in write.group_columns):
                text = _without_negative_zero(text, value.kind)
            floating = [key.text for key in write.group_columns if key.kind.is_floating]
            is_text_of_key = value.kind == STRING and any(key in value.text for key in floating)
            require(not is_text_of_key, "the text of a floating number by which rows are grouped.")  # "-0.0" or "0.0"
            is_alias = isinstance(expression, exp.Alias)
            if is_alias or text != value.text or not _keeps_name(inner, scope):
                text = f"{text} AS {quoted_name(name)}"
            texts.append(text)
            columns.append(Output(name, value.kind, None if outermost else value.held))
            if is_alias and name.lower() not in scope.aliases:
                scope.aliases[name.lower()] = value.computed()
        return texts, tuple(columns)

    def _with(self, node: exp.Expr, outer: Scope | None) -> tuple[Scope | None, str]:
        """Write the common table expressions of a query; returns the scope in which they are known."""
        clause = node.args.get("with_")
        if clause is None:
            return outer, ""
        cte_columns: dict[str, tuple[Output, ...]] = {}
        scope = Scope(parent=outer, queries=cte_columns)
        texts = []
        for cte in clause.expressions:
            query = self.write(cte.this, Scope(parent=outer, queries=dict(cte_columns)))
            columns = _renamed(query.columns, cte.args["alias"])
            cte_columns[cte.alias.lower()] = columns
            names = ", ".join(quoted_name(column.name) for column in columns)
            renamed = f"({names})" if cte.args["alias"].args.get("columns") else ""
            texts.append(f"{quoted_name(cte.alias)}{renamed} AS ({query.text})")
        return scope, f"WITH {', '.join(texts)} "

    # ------------------------------------------------------------------ FROM

    def _from(self, node: exp.Select, scope: Scope) -> str:
        clause = node.args.get("from_")
        if clause is None:
            return ""
        text = f"FROM {self._source(clause.this, scope)}"
        for join in node.args.get("joins") or ():
            text += self._join(join, scope)
        return text

    def _join(self, node: exp.Join, scope: Scope) -> str:
        on, using = node.args.get("on"), node.args.get("using")
        kind = (node.side.upper(), node.kind.upper())
        before = len(scope.sources)
        source = self._source(node.this, scope)
        if kind == ("", "") and on is None and not using:
            return f", {source}"
        word = _JOIN_KINDS.get(kind)
        require(word is not None, f"a {' '.join(kind).strip()} join.")
        if word == "CROSS JOIN" and (on is not None or using):  # whose condition counts all the same
            word = "JOIN"
        if on is None and not using:
            require(word in ("CROSS JOIN", "JOIN"), "an outer join without a condition.")
            return f" CROSS JOIN {source}"
        hides = word in ("SEMI JOIN", "ANTI JOIN")
        if using:
            require(hides or word in ("JOIN", "LEFT JOIN"), f"USING in a {word}.")
            scope.merge([column.name.lower() for column in using], before)
            how = f"USING ({', '.join(quoted_name(column.name) for column in using)})"
        else:
            condition = on or exp.true()
            require(not _has_query(condition), "a sub-query in the condition of a join.")
            how = f"ON {Expressions(scope, self).condition(condition)}"
        if hides:  # nobody sees more of the right side than this condition
            scope.forget(before)
        return f" {word} {source} {how}"

    def _source(self, node: exp.Expr, scope: Scope) -> str:
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                alias = node.args.get("alias")
                name = node.name.lower()
                cte_columns = scope.query(name)
                if cte_columns is None:
                    table = self._tables.get(name)
                    require(table is not None, f"the table {name}.")
                    columns = tuple(Output(c.name, parse_kind(c.data_type)) for c in table.columns) if table else ()
                else:
                    columns = cte_columns
                text = quoted_name(node.name)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                own_parts = [name for name, part in node.args.items() if part and name != "this"]
                require(not own_parts, "a join in brackets with more than the join.")
                inside = self._source(node.this, scope)
                return f"({inside})"
            case exp.Subquery():
                alias = node.args.get("alias")
                query = self._bracketed(node, scope.parent)
                text, columns = query.text, query.columns
            case exp.Values():
                alias = node.args.get("alias")
                query = self._values(node, scope.parent)
                names = ", ".join(quoted_name(column.name) for column in query.columns)
                text, columns = f"(SELECT * FROM ({query.text}) AS inline({names}))", query.columns  # noqa: S608
            case _:
                raise NoEquivalent(f"{describe(node)} in FROM.")
        columns = _renamed(columns, alias)
        name = node.alias_or_name
        scope.sources.append(Source(name.lower(), columns))
        if name:
            renamed = alias is not None and alias.args.get("columns")
            names = f"({', '.join(quoted_name(column.name) for column in columns)})" if renamed else ""
            text += f" AS {quoted_name(name)}{names}"
        for join in node.args.get("joins") or ():
            text += self._join(join, scope)
        return text

    # ------------------------------------------------------------------ GROUP BY, ORDER BY, LIMIT

    def _group(self, node: exp.Group, select: exp.Select, write: Expressions) -> str:
        in_sets = write.has_grouping_sets

        def keys(nodes: Sequence[exp.Expr]) -> str:
            meant = [self._meant(part, select, write) for part in nodes]
            require(
                not (in_sets and any(key.is_constant for key in meant)), "a literal among the keys of several groups."
            )
            return ", ".join(_not_a_place(key) for key in meant)

        def grouped(part: exp.Expr) -> str:
            match part:
                case exp.Rollup() | exp.Cube():
                    require(
                        not any(isinstance(key, exp.Tuple) and not key.expressions for key in part.expressions),
                        "an empty set in ROLLUP or CUBE.",
                    )
                    return f"{part.key.upper()} ({', '.join(grouped(one) for one in part.expressions)})"
                case exp.GroupingSets():
                    return f"GROUPING SETS ({', '.join(grouped(one) for one in part.expressions)})"
                case exp.Tuple():
                    return f"({keys(part.expressions)})"
                case exp.Paren():
                    return f"({keys([part.this])})"
                case _:
                    return keys([part])

        more = [part for name in ("rollup", "cube", "grouping_sets") for part in node.args.get(name) or []]
        require(len(more) <= 1, "more than one of ROLLUP, CUBE and GROUPING SETS after the keys.")
        if more and isinstance(more[0], exp.GroupingSets):  # the keys before them are named a second time
            return f"GROUP BY {grouped(more[0])}"
        if more:
            return f"GROUP BY {more[0].key.upper()} ({keys(node.expressions)})"
        return f"GROUP BY {', '.join(grouped(part) for part in node.expressions)}"

    def _meant(self, node: exp.Expr, select: exp.Select, write: Expressions) -> Value:
        """Return what a key of GROUP BY means: a column, a place in the select list, or a name given there."""
        expressions = select.expressions
        if isinstance(node, exp.Literal) and node.is_int:
            place = int(node.name) - 1
            require(0 <= place < len(expressions) and not any(e.is_star for e in expressions), "a place in GROUP BY.")
            return write.value(expressions[place].unalias())
        if isinstance(node, exp.Column) and not node.table and not write.scope.has(node.name):
            for expression in expressions:
                if isinstance(expression, exp.Alias) and expression.alias.lower() == node.name.lower():
                    return write.value(expression.this)
        require(not _has_query(node), "a sub-query among the keys of groups.")
        return write.value(node)

    def _tail(
        self,
        node: exp.Expr,
        scope: Scope,
        columns: Sequence[Output],
        write: Expressions | None = None,
    ) -> str:
        """Write ORDER BY, LIMIT and OFFSET."""
        text = ""
        order = node.args.get("order")
        if order is not None:
            sorting = [key for key in order.expressions if not _is_constant(key.this.unnest())]
            keys = [self._order_key(key, scope, columns, write) for key in sorting]
            text += f" ORDER BY {', '.join(keys)}" if keys else ""
        for word, clause in (("LIMIT", node.args.get("limit")), ("OFFSET", node.args.get("offset"))):
            if clause is not None:
                count = Expressions(Scope(), self).value(clause.expression)
                require(count.kind == INT and (count.whole or 0) >= 0, f"{word} of anything but a number.")
                require(count.whole is not None, f"{word} of anything but a number.")
                text += f" {word} {count.whole}"
        return text

    def _order_key(
        self,
        key: exp.Expr,
        scope: Scope,
        columns: Sequence[Output],
        write: Expressions | None,
    ) -> str:
        if not isinstance(key, exp.Ordered):
            raise NoEquivalent("an order without direction.")
        this = key.this.unnest()  # a place in brackets is one, too
        places = [
            place
            for place, column in enumerate(columns, 1)
            if isinstance(this, exp.Column) and not this.table and column.name.lower() == this.name.lower()
        ]
        if isinstance(this, exp.Literal) and this.is_int:
            require(1 <= int(this.name) <= len(columns), "a place in ORDER BY.")
            text = str(int(this.name))
        elif places:
            require(len(places) == 1, f"the name {this.name}, which more than one column has.")
            text = str(places[0])
        elif write is None:
            raise NoEquivalent("ORDER BY over more than the columns of a set operation.")
        else:
            if isinstance(key.parent, exp.Order) and isinstance(key.parent.parent, exp.Select):
                _check_order_of_groups(key.parent.parent, columns, this)
            require(not _ambiguous(this, scope), "a name in ORDER BY that is both a column and an alias.")
            require(not _has_query(this), "a sub-query in ORDER BY.")
            value = write.value(this)
            require(value.kind.is_atomic or value.kind == NULL, f"an order of {value.kind}.")
            text = _not_a_place(value)
        return text + direction(key)


def _has_query(node: exp.Expr) -> bool:
    return node.find(exp.Query) is not None


def _check_keys_are_told_apart(keys: Sequence[str], others: Sequence[str]) -> None:
    """Refuse keys of several groupings that Spark counts as one although DuckDB does not: ``a + b`` and ``b + a``."""
    for key in keys:
        leaves = _leaves(key)
        alike = [other for other in keys if other != key and _leaves(other) == leaves]
        if leaves.total() > 1:
            alike += [other for other in others if key not in other and leaves <= _leaves(other)]
        require(not alike, "a key of several groupings beside what may mean the same.")


def _leaves(text: str) -> Counter[str]:
    """Count the columns, without the names of their tables, and the literals in what was written."""
    return Counter(leaf[1] or leaf[0] for leaf in _LEAF.finditer(text) if not leaf[2])


def _check_order_of_groups(select: exp.Select, places: Sequence[Output], key: exp.Expr) -> None:
    """Refuse a key of ORDER BY that Spark does not find behind DISTINCT, or behind both groups and windows."""
    names = {column.name.lower() for column in places}
    if select.args.get("distinct") is not None:
        own = all(column.name.lower() in names for column in key.find_all(exp.Column))
        require(own, "ORDER BY over more than the columns of SELECT DISTINCT.")
    windows = any(expression.find(exp.Window) for expression in select.expressions)
    require(
        not (windows and select.args.get("group")), "ORDER BY over more than the columns behind groups and windows."
    )


def _keeps_name(node: exp.Expr, scope: Scope) -> bool:
    """Tell whether DuckDB gives an expression the name that it was written with."""
    if not isinstance(node, exp.Column):
        return False
    return any(column.name == node.name for source in scope.sources for column in source.columns)


def _renamed(columns: Sequence[Output], alias: exp.Expr | None) -> tuple[Output, ...]:
    names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    if not names:
        return tuple(columns)
    require(len(names) == len(columns), "an alias with another number of columns.")
    return tuple(Output(name, c.kind, c.held) for name, c in zip(names, columns, strict=True))


def _without_negative_zero(text: str, kind: Kind) -> str:
    """Write a key of groups, of DISTINCT or of a set: Spark makes 0.0 of -0.0 there, as it counts both as equal."""
    return f"{text} + CAST(0 AS {kind.duckdb})" if kind.is_floating else text


def _of_columns(query: Query, columns: Sequence[Output], is_distinct: bool) -> str:
    """Wrap a side of a set operation if its columns have other types than the result, or may be -0.0 in a set."""
    same = all(own.kind == wanted.kind and own.held is None for own, wanted in zip(query.columns, columns, strict=True))
    if same and not (is_distinct and any(column.kind.is_floating for column in columns)):
        return f"({query.text})"
    names = [f"c{place}" for place in range(len(columns))]
    casts = []
    for name, own, wanted in zip(names, query.columns, columns, strict=True):
        text = cast(Value(name, own.kind, held=own.held), wanted.kind).exactly()
        if is_distinct:
            text = _without_negative_zero(text, wanted.kind)
        casts.append(f"{text} AS {quoted_name(wanted.name)}")
    return f"(SELECT {', '.join(casts)} FROM ({query.text}) AS side({', '.join(names)}))"  # noqa: S608 - all quoted


def _group_keys(group: exp.Group) -> list[exp.Expr]:
    """Return the keys in the order in which GROUPING_ID counts them."""
    keys: list[exp.Expr] = []

    def add(part: exp.Expr) -> None:
        match part:
            case exp.Rollup() | exp.Cube() | exp.GroupingSets() | exp.Tuple():
                for inner in part.expressions:
                    add(inner)
            case exp.Paren():
                add(part.this)
            case _ if part not in keys:
                keys.append(part)

    for part in group.expressions:
        add(part)
    return keys


def _is_constant(node: exp.Expr) -> bool:
    """Tell whether a key of ORDER BY is the same for all rows; a whole number is a place in the select list."""
    return isinstance(node, exp.Null | exp.Boolean) or (isinstance(node, exp.Literal) and not node.is_int)


def _not_a_place(value: Value) -> str:
    """Return a key's text; a number would be taken for a place in the select list."""
    require(value.whole is None or value.whole >= 0, "a place below zero in the select list.")
    return f"CAST({value.text} AS {value.kind.duckdb})" if value.is_literal and value.kind != NULL else value.text


def _ambiguous(node: exp.Expr, scope: Scope) -> bool:
    """Tell whether a name means one thing in FROM and another in the select list."""
    for column in node.find_all(exp.Column):
        alias = scope.aliases.get(column.name.lower())
        if alias is not None and not column.table and scope.has(column.name):
            own = scope.column(column.name, "")
            if own is None or own.text.lower() != alias.text.lower():
                return True
    return False
