"""START HERE: one expression of Spark's -> DuckDB's text and Spark's type.

Each kind of node has its method; what functions mean stands in the files of their themes. A node or a function that is
not named anywhere here has no equivalent.

It is long because each kind of node has a method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from engines.duckdb.writer.functions import comparisons, numbers, patterns, times
from engines.duckdb.writer.functions.aggregates import (
    AGGREGATE_ARGUMENTS,
    AGGREGATES,
    ORDERED_WINDOWS,
    SKIP_NULL,
    WINDOWS,
    Aggregate,
)
from engines.duckdb.writer.functions.casts import as_text, cast
from engines.duckdb.writer.functions.scalars import SCALAR_ARGUMENTS, SCALARS
from engines.duckdb.writer.kinds import BINARY, BOOLEAN, INT, NULL, STRING, common_of_all, parse_kind
from engines.duckdb.writer.ordering import direction
from engines.duckdb.writer.scopes import Scope
from engines.duckdb.writer.signatures import BY_THEIR_PARTS, require_accepted
from engines.duckdb.writer.values import JUST_ONE, Value, raise_at_runtime, require, require_count, string
from engines.errors import NoEquivalent
from selector.types import InvalidType
from sql.guards import RAISE
from sql.parsers.dialects import SparkAsWritten
from sql.parsers.words import describe

if TYPE_CHECKING:
    from engines.duckdb.writer.queries import Queries, Query


LONGEST = 65_536
"""Signs of an expression. Some rules name an argument several times, so that what is nested deep would grow."""

_LONG = (exp.And, exp.Or, exp.In, exp.Subquery, exp.Exists, exp.Literal)  # whose texts grow with the statement's own
_BITS = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}
_NEVER_FAIL = (exp.Column, exp.Literal, exp.Star, exp.Null, exp.Boolean)
_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_BIT_SIGNS = {**_BITS, exp.BitwiseXor: "^"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_ARITHMETIC = {exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul"}
_FRAME_EDGES = ("UNBOUNDED", "CURRENT ROW")
_WINDOW_PARTS = ("partition_by", "order", "spec")
_CONDITIONS = (exp.Where, exp.Having)
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)


class Expressions:
    """Writer of the expressions of one SELECT. windows: named windows of its WINDOW clause."""

    def __init__(self, scope: Scope, queries: Queries, windows: Sequence[exp.Expr] = ()) -> None:
        self.scope = scope
        self.group_columns: list[Value] = []
        self.has_groups = self.has_grouping_sets = False
        self._queries = queries
        self._windows = {window.name.lower(): window for window in windows}
        require(len(self._windows) == len(windows), "a window whose name another one has.")

    def value(self, node: exp.Expr) -> Value:
        """Write an expression. Raises NoEquivalent."""
        method = _METHODS.get(type(node))
        if method is None:
            raise NoEquivalent(f"{describe(node)}.")
        value = method(self, node)
        require(len(value.text) <= LONGEST or type(node) in _LONG, "an expression that becomes too long.")
        return value

    def condition(self, node: exp.Expr) -> str:
        """Write an expression that decides about rows, or between values."""
        value = self.value(node)
        require(value.kind == BOOLEAN, f"a condition of type {value.kind}.")
        return value.text

    def _truth(self, node: exp.Expr) -> str:
        """Write a part of a condition, which may be NULL without a type."""
        value = self.value(node)
        require(value.kind in (BOOLEAN, NULL), f"a condition of type {value.kind}.")
        return cast(value, BOOLEAN).text

    # ------------------------------------------------------------------ leaves

    def _literal(self, node: exp.Literal) -> Value:
        return string(node.name) if node.is_string else numbers.literal_number(node.name)

    def _raw_string(self, node: exp.RawString) -> Value:
        return string(node.name)

    def _bytes(self, node: exp.HexString) -> Value:
        digits = node.name
        return Value("'" + "".join(f"\\x{digits[at : at + 2]}" for at in range(0, len(digits), 2)) + "'::BLOB", BINARY)

    def _word(self, node: exp.Var) -> Value:
        raise NoEquivalent(f"the unit {node.name}.")

    def _boolean(self, node: exp.Boolean) -> Value:
        return Value("TRUE" if node.this else "FALSE", BOOLEAN)

    def _null(self, node: exp.Null) -> Value:
        return Value("NULL", NULL)

    def _column(self, node: exp.Column) -> Value:
        require(isinstance(node.this, exp.Identifier), f"a field of {node.table}.")
        column = self.scope.column(node.name, node.table)
        if column is None and not node.table:
            column = self.scope.aliases.get(node.name.lower())
        if column is None:
            raise NoEquivalent(f"the name {node.sql()}.")
        return column

    def _paren(self, node: exp.Paren) -> Value:
        return self.value(node.this)

    # ------------------------------------------------------------------ logic and comparisons

    def _connector(self, node: exp.Connector) -> Value:
        word = " AND " if isinstance(node, exp.And) else " OR "
        return Value(f"({word.join(self._truth(part) for part in node.flatten())})", BOOLEAN)

    def _not(self, node: exp.Not) -> Value:
        return Value(f"(NOT {self._truth(node.this)})", BOOLEAN)

    def _comparison(self, node: exp.Binary) -> Value:
        right = node.expression
        if isinstance(right, exp.Any | exp.All):
            raise NoEquivalent("ANY and ALL.")
        values = [self.value(node.this), self.value(right)]
        require_accepted(
            "<=>"
            if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ)
            else "="
            if isinstance(node, exp.EQ | exp.NEQ)
            else "<",
            values,
        )
        return comparisons.compare(_COMPARISONS[type(node)], *values)

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        match node.expression:
            case exp.Null():
                return Value(f"({value.text} IS NULL)", BOOLEAN)
            case exp.Boolean() as truth:
                require(value.kind == BOOLEAN, f"IS TRUE of {value.kind}.")
                return Value(f"({value.text} IS {'TRUE' if truth.this else 'FALSE'})", BOOLEAN)
            case other:
                raise NoEquivalent(f"IS with {describe(other)}.")

    def _between(self, node: exp.Between) -> Value:
        value, low, high = (self.value(node.args[name]) for name in ("this", "low", "high"))
        for edge in (low, high):
            require_accepted("<", [value, edge])
        first, last = comparisons.compare(">=", value, low), comparisons.compare("<=", value, high)
        together = f"({value.text} BETWEEN {low.text} AND {high.text})"
        plain = f"({value.text} >= {low.text})", f"({value.text} <= {high.text})"
        is_plain = value.kind != NULL and (first.text, last.text) == plain
        return Value(together if is_plain else f"({first.text} AND {last.text})", BOOLEAN)

    def _in(self, node: exp.In) -> Value:
        query = node.args.get("query")
        if query is None:
            values = [self.value(node.this), *map(self.value, node.expressions)]
            require_accepted("IN", values)
            return comparisons.one_of(values[0], values[1:])
        require(not isinstance(node.this, exp.Tuple), "IN with several columns.")
        value = self.value(node.this)
        inner = self._inner(query.this if isinstance(query, exp.Subquery) else query)
        require(len(inner.columns) == 1, "IN with several columns.")
        require(_is_part_of_condition(node), "IN (query) as a value: where it is unknown, Spark says FALSE.")
        column = inner.columns[0]
        require_accepted("IN", [value, Value("x", column.kind)])
        aligned = comparisons.align(value, Value("x", column.kind, held=column.held))
        text = inner.text
        if aligned[1].text != "x":
            text = f"SELECT {aligned[1].text} FROM ({inner.text}) AS members(x)"  # noqa: S608 - all written by us
        return Value(f"({aligned[0].text} IN ({text}))", BOOLEAN)

    def _exists(self, node: exp.Exists) -> Value:
        inner = self._inner(node.this)
        if not isinstance(node.this, exp.SetOperation):
            return Value(f"EXISTS ({inner.text})", BOOLEAN)
        require(not inner.is_correlated, "EXISTS over several queries that name a column of an outer one.")
        return Value(f"EXISTS (SELECT 1 FROM ({inner.text}) AS members)", BOOLEAN)  # noqa: S608 - written by us

    def _subquery(self, node: exp.Subquery) -> Value:
        require(not node.alias, "a sub-query with a name in an expression.")
        inner = self._inner(node)
        require(len(inner.columns) == 1, "a sub-query of several columns as a value.")
        alone = self.scope.in_filter or not self.has_groups
        require(alone or not inner.is_correlated, "a correlated sub-query as a value beside groups.")
        return Value(inner.text, inner.columns[0].kind, held=inner.columns[0].held)

    def _inner(self, node: exp.Expr) -> Query:
        """Write a query inside an expression."""
        scope = Scope(parent=self.scope, is_expression=True)
        return replace(self._queries.write(node, scope), is_correlated=scope.is_correlated)

    def _like(self, node: exp.Like | exp.ILike) -> Value:
        return self._matched(node, "\\")

    def _escape(self, node: exp.Escape) -> Value:
        require(isinstance(node.this, exp.Like | exp.ILike), "ESCAPE.")
        return self._matched(node.this, node.expression.name)

    def _matched(self, node: exp.Expr, escape: str) -> Value:
        """Match one pattern, or any or all of several; NOT is said of each of them."""
        pattern = node.args["expression"]
        parts = [pattern]
        if isinstance(pattern, exp.Any | exp.All):
            parts = pattern.this.expressions if isinstance(pattern.this, exp.Tuple) else [pattern.this.unnest()]
        require(bool(parts), "LIKE of no pattern.")
        value, folded = self.value(node.this), isinstance(node, exp.ILike)
        wanted = [self.value(part) for part in parts]
        for pattern_value in wanted:
            require_accepted("ILIKE" if folded else "LIKE", [value, pattern_value])
        matches = [patterns.like(value, part, escape, folded=folded).text for part in wanted]
        if node.args.get("negate"):
            matches = [f"(NOT {text})" for text in matches]
        word = " OR " if isinstance(pattern, exp.Any) else " AND "
        return Value(matches[0] if len(matches) == 1 else f"({word.join(matches)})", BOOLEAN)

    def _rlike(self, node: exp.RegexpLike) -> Value:
        values = [self.value(node.this), self.value(node.expression)]
        require_accepted("RLIKE", values)
        return patterns.matches(*values)

    # ------------------------------------------------------------------ arithmetic

    def _arithmetic(self, node: exp.Binary) -> Value:
        lhs, rhs = node.this, node.expression
        operator = _ARITHMETIC[type(node)]
        if isinstance(rhs, exp.Interval):
            return times.shifted(self.value(lhs), rhs, back=operator == "sub")
        if isinstance(lhs, exp.Interval):
            require(operator == "add", "arithmetic with an interval.")
            return times.shifted(self.value(rhs), lhs)
        one, other = self._operands(_SIGNS[operator], node)
        if one.kind.is_time or other.kind.is_time:
            return times.arithmetic(operator, one, other)
        return numbers.arithmetic(operator, one, other)

    def _div(self, node: exp.Div) -> Value:
        return numbers.divide(*self._operands("/", node))

    def _operands(self, sign: str, node: exp.Binary) -> tuple[Value, Value]:
        """Write both sides of an operator that Spark accepts."""
        values = self.value(node.this), self.value(node.expression)
        require_accepted(sign, values)
        return values

    def _int_div(self, node: exp.IntDiv) -> Value:
        return numbers.whole_quotient(*self._operands("DIV", node))

    def _mod(self, node: exp.Mod) -> Value:
        return numbers.remainder(*self._operands("%", node))

    def _neg(self, node: exp.Neg) -> Value:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return numbers.literal_number(inner.name, below_zero=True)
        value = self.value(inner)
        require_accepted("negated", [value])
        return numbers.negative(value)

    def _bits(self, node: exp.Binary) -> Value:
        lhs, rhs = self._operands(_BIT_SIGNS[type(node)], node)
        kind = common_of_all((lhs.kind, rhs.kind))
        require(kind is not None and kind.is_whole, "bits of anything but whole numbers.")
        one, other = (cast(side, kind or INT).text for side in (lhs, rhs))
        if isinstance(node, exp.BitwiseXor):
            return Value(f"xor({one}, {other})", kind or INT)
        return Value(f"({one} {_BITS[type(node)]} {other})", kind or INT)

    def _bitwise_not(self, node: exp.BitwiseNot) -> Value:
        value = self.value(node.this)
        require_accepted("~", [value])
        require(value.kind.is_whole, "bits of anything but whole numbers.")
        return Value(f"(~{value.text})", value.kind)

    def _pipe(self, node: exp.DPipe) -> Value:
        parts = [as_text(value) for value in self._operands("||", node)]
        return Value(f"({' || '.join(parts)})", STRING)

    # ------------------------------------------------------------------ choices and casts

    def _case(self, node: exp.Case) -> Value:
        this = node.args.get("this")
        chosen = None if this is None else self.value(this)
        conditions, results = [], []
        for branch in node.args["ifs"]:
            if chosen is None:
                conditions.append(self.condition(branch.this))
            else:
                wanted = self.value(branch.this)
                require_accepted("=", [chosen, wanted])
                conditions.append(comparisons.compare("=", chosen, wanted).text)
            results.append(self.value(branch.args["true"]))
        default = node.args.get("default")
        if default is not None:
            results.append(self.value(default))
        return self._chosen(conditions, results)

    def _if(self, node: exp.If) -> Value:
        results = [self.value(node.args["true"])]
        if node.args.get("false") is not None:
            results.append(self.value(node.args["false"]))
        condition = self._truth(node.this) if isinstance(node.this, exp.Null) else self.condition(node.this)
        return self._chosen([condition], results)

    def _chosen(self, conditions: Sequence[str], results: Sequence[Value]) -> Value:
        if len(results) > 1:
            require_accepted("CASE", results)
        results, kind = comparisons.in_one_kind(results)
        text = "".join(f" WHEN {c} THEN {r.text}" for c, r in zip(conditions, results, strict=False))
        if len(results) > len(conditions):
            text += f" ELSE {results[-1].text}"
        return Value(f"CASE{text} END", kind)

    def _cast(self, node: exp.Cast) -> Value:
        try:
            to = parse_kind(node.to.sql(dialect=SparkAsWritten))
        except InvalidType as error:
            raise NoEquivalent(f"a cast to {node.to.sql(dialect=SparkAsWritten)}.") from error
        forgiving = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
        value = self.value(node.this)
        require_accepted(f"{'TRY_CAST' if forgiving else 'CAST'}:{to.name}", [value])
        return cast(value, to, forgiving=forgiving).computed()

    # ------------------------------------------------------------------ functions

    def _extract(self, node: exp.Extract) -> Value:
        return self._scalar("extract", [string(node.name), self.value(node.expression)])

    def _trim(self, node: exp.Trim) -> Value:
        position = (node.args.get("position") or "BOTH").upper()
        name = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}[position]
        text = cast(self.value(node.this), STRING).text
        expression = node.args.get("expression")
        signs = cast(self.value(expression), STRING).text if expression is not None else "' '"
        return Value(f"{name}({text}, {signs})", STRING)

    def _substring(self, node: exp.Substring) -> Value:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        return self._scalar("substring", [self.value(part) for part in parts if part is not None])

    def _position(self, node: exp.StrPosition) -> Value:
        return self._scalar("instr", [self.value(node.this), self.value(node.args["substr"])])

    def _function(self, node: exp.Anonymous) -> Value:
        name = node.name.lower()
        if name == RAISE:
            return Value(raise_at_runtime("a value that its dialect reads differently", STRING), STRING)
        if name in AGGREGATES or name in WINDOWS:
            return self._aggregate(node, "")
        return self._scalar(name, [self.value(part) for part in node.expressions])

    def _scalar(self, name: str, values: list[Value]) -> Value:
        rule = SCALARS.get(name)
        if rule is None:
            raise NoEquivalent(f"the function {name}.")
        require_count(values, SCALAR_ARGUMENTS.get(name, JUST_ONE), name)
        if name not in BY_THEIR_PARTS:
            require_accepted(name, values)
        return rule(values)

    def _filter(self, node: exp.Filter) -> Value:
        require(isinstance(node.this, exp.Anonymous), "FILTER of anything but a function.")
        return self._aggregate(node.this, "", only=self.condition(node.expression.this))

    def _window(self, node: exp.Window) -> Value:
        only = None
        inner = node.this
        if isinstance(inner, exp.Filter):
            only = self.condition(inner.expression.this)
            inner = inner.this
        ignore_nulls = isinstance(inner, exp.IgnoreNulls)
        if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
            inner = inner.this
        require(isinstance(inner, exp.Anonymous), "OVER of anything but a function.")
        window = self._window_meant(node)
        self._check_window(inner.name.lower(), window)
        over = f" OVER ({self._over(window)})"
        return self._aggregate(inner, over, over=True, ignore_nulls=ignore_nulls, only=only)

    def _window_meant(self, node: exp.Expr) -> exp.Expr:
        """Return the window that a name stands for, or the node itself."""
        for _ in range(len(self._windows) + 1):
            name = node.args.get("alias")
            if name is None:
                return node
            require(not any(node.args.get(part) for part in _WINDOW_PARTS), "a window that adds to a named one.")
            window = self._windows.get(name.name.lower())
            if window is None:
                break
            node = window
        raise NoEquivalent("the name of a window.")

    def _check_window(self, function: str, window: exp.Expr) -> None:
        """Refuse a window that Spark refuses for a function."""
        ordered, frame = window.args.get("order") is not None, window.args.get("spec")
        if function in ORDERED_WINDOWS:
            require(ordered and frame is None, f"{function} without an order, or with a frame.")
        require(
            frame is None or ordered or frame.text("kind").upper() == "ROWS", "a frame of a range without an order."
        )

    def _over(self, node: exp.Expr) -> str:
        parts = []
        keys = node.args.get("partition_by")
        if keys:
            parts.append(f"PARTITION BY {', '.join(self.value(key).text for key in keys)}")
        order = node.args.get("order")
        if order is not None:
            parts.append(
                f"ORDER BY {', '.join(self.value(key.this).text + direction(key) for key in order.expressions)}"
            )
        spec = node.args.get("spec")
        if spec is not None:
            parts.append(self._frame(spec))
        return " ".join(parts)

    def _frame(self, spec: exp.WindowSpec) -> str:
        kind = str(spec.args.get("kind") or "RANGE").upper()
        edges: list[str] = []
        places: list[float] = []  # from the current row
        for name in ("start", "end"):
            edge, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").upper()
            sign = -1 if side == "PRECEDING" else 1
            if edge is None:
                edges.append("CURRENT ROW")
                places.append(0)
            elif isinstance(edge, str):
                require(edge.upper() in _FRAME_EDGES, f"a frame from {edge}.")
                edges.append(f"{edge.upper()} {side}".strip())
                places.append(sign * math.inf if side else 0)
            else:
                count = self.value(edge).whole
                if kind != "ROWS" or count is None or count < 0:
                    raise NoEquivalent("a frame over a range of values.")
                edges.append(f"{count} {side}")
                places.append(sign * count)
        require(places[0] <= places[1], "a frame that ends before it begins.")
        return f"{kind} BETWEEN {edges[0]} AND {edges[1]}"

    def _aggregate(
        self,
        node: exp.Anonymous,
        suffix: str,
        *,
        over: bool = False,
        ignore_nulls: bool = False,
        only: str | None = None,
    ) -> Value:
        """Write a call. only: the condition of its FILTER; DuckDB computes arguments before it, Spark behind it."""
        name = node.name.lower()
        arguments = node.expressions
        distinct = False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            require(not over, f"{name} with DISTINCT and OVER.")
            distinct, arguments = True, arguments[0].expressions
        star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
        rule = AGGREGATES.get(name) or (WINDOWS.get(name) if over else None)
        if rule is None:
            raise NoEquivalent(f"the function {name}{' with OVER' if over else ''}.")
        if not star:
            require_count(arguments, AGGREGATE_ARGUMENTS.get(name, JUST_ONE), name)
        in_filter, self.scope.in_filter = self.scope.in_filter, False  # Spark aggregates no columns of an outer query
        values = [] if star else [self.value(part) for part in arguments]
        if not star and name not in BY_THEIR_PARTS:
            require_accepted(name, values)
        self.scope.in_filter = in_filter
        if only is not None and all(isinstance(part, _NEVER_FAIL) for part in arguments):
            suffix = f" FILTER (WHERE {only}){suffix}"
        elif only is not None:
            require(name in SKIP_NULL, f"FILTER of {name} over what is computed.")
            values = [
                value
                if isinstance(part, _NEVER_FAIL)
                else Value(f"CASE WHEN {only} THEN {value.exactly()} END", value.kind)
                for value, part in zip(values, arguments, strict=True)
            ]
        call = Aggregate(
            name=name,
            values=values,
            star=star,
            distinct=distinct,
            suffix=suffix,
            over=over,
            ignore_nulls=ignore_nulls,
            keys=self.group_columns if self.has_grouping_sets else (),
            is_of_all=not over and all(key.is_constant for key in self.group_columns),
        )
        return rule(call)


_METHODS: Mapping[type[exp.Expr], Callable[..., Value]] = {
    exp.Literal: Expressions._literal,
    exp.RawString: Expressions._raw_string,
    exp.HexString: Expressions._bytes,
    exp.Boolean: Expressions._boolean,
    exp.Null: Expressions._null,
    exp.Var: Expressions._word,
    exp.Column: Expressions._column,
    exp.Paren: Expressions._paren,
    exp.And: Expressions._connector,
    exp.Or: Expressions._connector,
    exp.Not: Expressions._not,
    **dict.fromkeys(_COMPARISONS, Expressions._comparison),
    exp.Is: Expressions._is,
    exp.Between: Expressions._between,
    exp.In: Expressions._in,
    exp.Exists: Expressions._exists,
    exp.Subquery: Expressions._subquery,
    exp.Like: Expressions._like,
    exp.ILike: Expressions._like,
    exp.Escape: Expressions._escape,
    exp.RegexpLike: Expressions._rlike,
    **dict.fromkeys(_ARITHMETIC, Expressions._arithmetic),
    exp.Div: Expressions._div,
    exp.IntDiv: Expressions._int_div,
    exp.Mod: Expressions._mod,
    exp.Neg: Expressions._neg,
    exp.BitwiseAnd: Expressions._bits,
    exp.BitwiseOr: Expressions._bits,
    exp.BitwiseXor: Expressions._bits,
    exp.BitwiseNot: Expressions._bitwise_not,
    exp.DPipe: Expressions._pipe,
    exp.Case: Expressions._case,
    exp.If: Expressions._if,
    exp.Cast: Expressions._cast,
    exp.TryCast: Expressions._cast,
    exp.Extract: Expressions._extract,
    exp.Trim: Expressions._trim,
    exp.Substring: Expressions._substring,
    exp.StrPosition: Expressions._position,
    exp.Anonymous: Expressions._function,
    exp.Filter: Expressions._filter,
    exp.Window: Expressions._window,
}


def _is_part_of_condition(node: exp.Expr) -> bool:
    """Tell whether a row is kept or not by what a node says, so that an unknown is as good as FALSE.

    AND, OR and NOT may stand between: Spark moves NOT down to what it negates before it makes FALSE of an unknown.
    """
    while isinstance(node.parent, _LOGIC):
        node = node.parent
    return isinstance(node.parent, _CONDITIONS)


def knows_function(name: str) -> bool:
    """Tell whether a function of Spark has an equivalent in DuckDB, at least for some of its uses."""
    return name in SCALARS or name in AGGREGATES or name in WINDOWS or name == "if"
