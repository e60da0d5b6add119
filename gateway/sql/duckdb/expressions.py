"""START HERE: one expression of Spark's -> DuckDB's text and Spark's type.

Each kind of node has its method; what functions mean stands in the files of their themes. A node or a function that is
not named anywhere here has no equivalent.

It is long because each kind of node has a method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gateway.sql.duckdb.functions import comparisons, numbers, patterns, times
from gateway.sql.duckdb.functions.aggregates import AGGREGATE_ARGUMENTS, AGGREGATES, SKIP_NULL, WINDOWS, Aggregate
from gateway.sql.duckdb.functions.casts import as_text, cast
from gateway.sql.duckdb.functions.scalars import SCALAR_ARGUMENTS, SCALARS
from gateway.sql.duckdb.kinds import BINARY, BOOLEAN, INT, NULL, STRING, common_of_all, parse_kind
from gateway.sql.duckdb.ordering import direction
from gateway.sql.duckdb.scopes import Scope
from gateway.sql.duckdb.values import JUST_ONE, NoEquivalent, Value, otherwise, require, require_count, string
from gateway.sql.parser_dialects import SparkAsWritten
from selector.types import InvalidType

if TYPE_CHECKING:
    from gateway.sql.duckdb.queries import Queries

TYPED_DIVISION = "typed_division"
"""Stands for the sign of division of a dialect in which 7 / 2 is 3, until the types of both sides are known."""

RAISE = "raise_error"
"""Ends a statement as it runs, over a value that the statement's dialect takes for something that Spark has not."""

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
_ARITHMETIC = {exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul"}
_PARTS = frozenset(  # of nodes; what has any other has no equivalent, until somebody has looked at it
    """
    _type alias by_name coalesce db decimals default distinct end end_side expression expressions false field flag
    format high ifs is_string joins length limit low negate nested null occurrence offset on order over
    partition_by pivots position query quoted safe spec start start_side substr symmetric table this to true typed
    unit unnest with_
    """.split()
)
_FRAME_EDGES = ("UNBOUNDED", "CURRENT ROW")


class Expressions:
    """Writes the expressions of one SELECT. windows: named ones of its WINDOW clause."""

    def __init__(self, scope: Scope, queries: Queries, windows: Sequence[exp.Expr] = ()) -> None:
        self.scope = scope
        self.group_columns: list[Value] = []
        self._queries = queries
        self._windows = {window.name.lower(): window for window in windows}

    def value(self, node: exp.Expr) -> Value:
        """Write an expression. Raises NoEquivalent."""
        method = _METHODS.get(type(node))
        if method is None:
            raise NoEquivalent(f"{node.key.upper()}.")
        strange = [name for name, part in node.args.items() if part and name not in _PARTS]
        require(not strange, f"{', '.join(strange).upper()} of {node.key.upper()}.")
        value = method(self, node)
        require(len(value.text) <= LONGEST or type(node) in _LONG, "an expression that becomes too long.")
        self._queries.kinds[id(node)] = value.kind
        return value

    def condition(self, node: exp.Expr) -> str:
        """Write an expression that must be true or false."""
        value = self.value(node)
        if value.kind != BOOLEAN:
            require(value.kind in (NULL, STRING), f"a condition of type {value.kind}.")
            value = cast(value, BOOLEAN)
        return value.text

    # ------------------------------------------------------------------ leaves

    def _literal(self, node: exp.Literal) -> Value:
        return string(node.name) if node.is_string else numbers.literal_number(node.name)

    def _raw_string(self, node: exp.RawString) -> Value:
        return string(node.name)

    def _bytes(self, node: exp.HexString) -> Value:
        digits = node.name
        return Value("'" + "".join(f"\\x{digits[at : at + 2]}" for at in range(0, len(digits), 2)) + "'::BLOB", BINARY)

    def _strings_in_a_row(self, node: exp.Concat) -> Value:
        return self._scalar("concat", [self.value(part) for part in node.expressions])

    def _word(self, node: exp.Var) -> Value:
        raise NoEquivalent(f"the unit {node.name}.")

    def _boolean(self, node: exp.Boolean) -> Value:
        return Value("TRUE" if node.this else "FALSE", BOOLEAN)

    def _null(self, node: exp.Null) -> Value:
        return Value("NULL", NULL)

    def _column(self, node: exp.Column) -> Value:
        require(not node.args.get("db") and isinstance(node.this, exp.Identifier), f"a field of {node.table}.")
        found = self.scope.column(node.name, node.table)
        if found is None and not node.table:
            found = self.scope.given.get(node.name.lower())
        if found is None:
            raise NoEquivalent(f"the name {node.sql()}.")
        return found

    def _paren(self, node: exp.Paren) -> Value:
        return self.value(node.this)

    # ------------------------------------------------------------------ logic and comparisons

    def _connector(self, node: exp.Connector) -> Value:
        word = " AND " if isinstance(node, exp.And) else " OR "
        return Value(f"({word.join(self.condition(part) for part in node.flatten())})", BOOLEAN)

    def _not(self, node: exp.Not) -> Value:
        return Value(f"(NOT {self.condition(node.this)})", BOOLEAN)

    def _comparison(self, node: exp.Binary) -> Value:
        right = node.expression
        if isinstance(right, exp.Any | exp.All):
            raise NoEquivalent("ANY and ALL.")
        return comparisons.compare(_COMPARISONS[type(node)], self.value(node.this), self.value(right))

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        match node.expression:
            case exp.Null():
                return Value(f"({value.text} IS NULL)", BOOLEAN)
            case exp.Boolean() as truth:
                require(value.kind == BOOLEAN, f"IS TRUE of {value.kind}.")
                return Value(f"({value.text} IS {'TRUE' if truth.this else 'FALSE'})", BOOLEAN)
            case other:
                raise NoEquivalent(f"IS {other.key.upper()}.")

    def _between(self, node: exp.Between) -> Value:
        require(not node.args.get("symmetric"), "BETWEEN SYMMETRIC.")
        value, low, high = (self.value(node.args[name]) for name in ("this", "low", "high"))
        first, last = comparisons.compare(">=", value, low), comparisons.compare("<=", value, high)
        together = f"({value.text} BETWEEN {low.text} AND {high.text})"
        plain = f"({value.text} >= {low.text})", f"({value.text} <= {high.text})"
        return Value(together if (first.text, last.text) == plain else f"({first.text} AND {last.text})", BOOLEAN)

    def _in(self, node: exp.In) -> Value:
        query = node.args.get("query")
        if query is None:
            require(not (node.args.get("unnest") or node.args.get("field")), "IN over an array.")
            return comparisons.one_of(self.value(node.this), [self.value(part) for part in node.expressions])
        require(not isinstance(node.this, exp.Tuple), "IN with several columns.")
        value = self.value(node.this)
        inner = self._queries.write(query.this if isinstance(query, exp.Subquery) else query, self.scope)
        require(len(inner.columns) == 1, "IN with several columns.")
        column = inner.columns[0]
        aligned = comparisons.align(value, Value("x", column.kind, held=column.held))
        text = inner.text
        if aligned[1].text != "x":
            text = f"SELECT {aligned[1].text} FROM ({inner.text}) AS members(x)"  # noqa: S608 - all written by us
        return Value(f"({aligned[0].text} IN ({text}))", BOOLEAN)

    def _exists(self, node: exp.Exists) -> Value:
        return Value(f"EXISTS ({self._queries.write(node.this, self.scope).text})", BOOLEAN)

    def _subquery(self, node: exp.Subquery) -> Value:
        require(not node.alias, "a sub-query with a name in an expression.")
        inner = self._queries.write(node, self.scope)
        require(len(inner.columns) == 1, "a sub-query of several columns as a value.")
        return Value(inner.text, inner.columns[0].kind, held=inner.columns[0].held)

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
        value, folded = self.value(node.this), isinstance(node, exp.ILike)
        found = [patterns.like(value, self.value(part), escape, folded=folded).text for part in parts]
        if node.args.get("negate"):
            found = [f"(NOT {text})" for text in found]
        word = " OR " if isinstance(pattern, exp.Any) else " AND "
        return Value(found[0] if len(found) == 1 else f"({word.join(found)})", BOOLEAN)

    def _rlike(self, node: exp.RegexpLike) -> Value:
        require(not node.args.get("flag"), "flags of a regular expression.")
        return patterns.matches(self.value(node.this), self.value(node.expression))

    # ------------------------------------------------------------------ arithmetic

    def _arithmetic(self, node: exp.Binary) -> Value:
        left, right = node.this, node.expression
        operator = _ARITHMETIC[type(node)]
        if isinstance(right, exp.Interval):
            return times.shifted(self.value(left), right, back=operator == "sub")
        if isinstance(left, exp.Interval):
            require(operator == "add", "arithmetic with an interval.")
            return times.shifted(self.value(right), left)
        one, other = self.value(left), self.value(right)
        if one.kind.is_time or other.kind.is_time:
            return times.arithmetic(operator, one, other)
        return numbers.arithmetic(operator, one, other)

    def _div(self, node: exp.Div) -> Value:
        return numbers.divide(self.value(node.this), self.value(node.expression))

    def _int_div(self, node: exp.IntDiv) -> Value:
        return numbers.whole_quotient(self.value(node.this), self.value(node.expression))

    def _mod(self, node: exp.Mod) -> Value:
        return numbers.remainder(self.value(node.this), self.value(node.expression))

    def _neg(self, node: exp.Neg) -> Value:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return numbers.literal_number(inner.name, below_zero=True)
        return numbers.negative(self.value(inner))

    def _bits(self, node: exp.Binary) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        kind = common_of_all((left.kind, right.kind))
        require(kind is not None and kind.is_whole, "bits of anything but whole numbers.")
        one, other = (cast(side, kind or INT).text for side in (left, right))
        if isinstance(node, exp.BitwiseXor):
            return Value(f"xor({one}, {other})", kind or INT)
        return Value(f"({one} {_BITS[type(node)]} {other})", kind or INT)

    def _bitwise_not(self, node: exp.BitwiseNot) -> Value:
        value = self.value(node.this)
        require(value.kind.is_whole, "bits of anything but whole numbers.")
        return Value(f"(~{value.text})", value.kind)

    def _pipe(self, node: exp.DPipe) -> Value:
        parts = [as_text(self.value(part)) for part in (node.this, node.expression)]
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
                conditions.append(comparisons.compare("=", chosen, self.value(branch.this)).text)
            results.append(self.value(branch.args["true"]))
        default = node.args.get("default")
        if default is not None:
            results.append(self.value(default))
        return self._chosen(conditions, results)

    def _if(self, node: exp.If) -> Value:
        results = [self.value(node.args["true"])]
        if node.args.get("false") is not None:
            results.append(self.value(node.args["false"]))
        return self._chosen([self.condition(node.this)], results)

    def _chosen(self, conditions: Sequence[str], results: Sequence[Value]) -> Value:
        results, kind = comparisons.in_one_kind(results)
        text = "".join(f" WHEN {c} THEN {r.text}" for c, r in zip(conditions, results, strict=False))
        if len(results) > len(conditions):
            text += f" ELSE {results[-1].text}"
        return Value(f"CASE{text} END", kind)

    def _cast(self, node: exp.Cast) -> Value:
        require(not node.args.get("format"), "CAST with a format.")
        try:
            to = parse_kind(node.to.sql(dialect=SparkAsWritten))
        except InvalidType as error:
            raise NoEquivalent(f"a cast to {node.to.sql(dialect=SparkAsWritten)}.") from error
        forgiving = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
        return cast(self.value(node.this), to, forgiving=forgiving).computed()

    # ------------------------------------------------------------------ functions

    def _extract(self, node: exp.Extract) -> Value:
        return times.part(node.name, self.value(node.expression))

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
        require(not node.args.get("position") and not node.args.get("occurrence"), "POSITION with a start.")
        return self._scalar("instr", [self.value(node.this), self.value(node.args["substr"])])

    def _current_date(self, node: exp.Expr) -> Value:
        return self._scalar("current_date", [])

    def _current_timestamp(self, node: exp.Expr) -> Value:
        return self._scalar("current_timestamp", [])

    def _function(self, node: exp.Anonymous) -> Value:
        name = node.name.lower()
        if name == TYPED_DIVISION:
            return self._typed_division(node)
        if name == RAISE:
            return Value(otherwise("a value that its dialect reads differently", STRING), STRING)
        if name in AGGREGATES or name in WINDOWS:
            return self._aggregate(node, "")
        return self._scalar(name, [self.value(part) for part in node.expressions])

    def _typed_division(self, node: exp.Anonymous) -> Value:
        """Divide as other dialects do, where a quotient of whole numbers is one."""
        left, right = (self.value(part) for part in node.expressions)
        whole = left.kind.is_whole and right.kind.is_whole
        return numbers.whole_quotient(left, right) if whole else numbers.divide(left, right)

    def _scalar(self, name: str, values: list[Value]) -> Value:
        rule = SCALARS.get(name)
        if rule is None:
            raise NoEquivalent(f"the function {name}.")
        require_count(values, SCALAR_ARGUMENTS.get(name, JUST_ONE), name)
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
        over = f" OVER ({self._over(node)})"
        return self._aggregate(inner, over, over=True, ignore_nulls=ignore_nulls, only=only)

    def _over(self, node: exp.Expr) -> str:
        named = node.args.get("alias")
        if named is not None and isinstance(node, exp.Window):
            window = self._windows.get(named.name.lower())
            require(window is not None, f"the window {named.name}.")
            require(not (node.args.get("partition_by") or node.args.get("order")), "a window over another.")
            return self._over_parts(window) if window is not None else ""
        return self._over_parts(node)

    def _over_parts(self, node: exp.Expr) -> str:
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
        require(not spec.args.get("exclude"), "EXCLUDE of a window.")
        kind = str(spec.args.get("kind") or "RANGE").upper()
        edges = []
        for name in ("start", "end"):
            edge, side = spec.args.get(name), spec.args.get(f"{name}_side")
            if edge is None:
                edges.append("CURRENT ROW")
            elif isinstance(edge, str):
                require(edge.upper() in _FRAME_EDGES, f"a frame from {edge}.")
                edges.append(f"{edge.upper()} {side or ''}".strip())
            else:
                count = self.value(edge)
                require(
                    kind == "ROWS" and count.whole is not None and count.whole >= 0, "a frame over a range of values."
                )
                edges.append(f"{count.whole} {side}")
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
            require(not arguments[0].args.get("on"), "DISTINCT ON.")
            distinct, arguments = True, arguments[0].expressions
        star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
        rule = AGGREGATES.get(name) or (WINDOWS.get(name) if over else None)
        if rule is None:
            raise NoEquivalent(f"the function {name}{' with OVER' if over else ''}.")
        if not star:
            require_count(arguments, AGGREGATE_ARGUMENTS.get(name, JUST_ONE), name)
        values = [] if star else [self.value(part) for part in arguments]
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
            keys=self.group_columns,
        )
        return rule(call)


_METHODS: Mapping[type[exp.Expr], Callable[..., Value]] = {
    exp.Literal: Expressions._literal,
    exp.RawString: Expressions._raw_string,
    exp.HexString: Expressions._bytes,
    exp.Concat: Expressions._strings_in_a_row,
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
    exp.CurrentDate: Expressions._current_date,
    exp.CurrentTimestamp: Expressions._current_timestamp,
    exp.Anonymous: Expressions._function,
    exp.Filter: Expressions._filter,
    exp.Window: Expressions._window,
}


def knows_function(name: str) -> bool:
    """Tell whether there are words of DuckDB's for a function of Spark's, at least for some of its uses."""
    return name in SCALARS or name in AGGREGATES or name in WINDOWS or name == "if"
