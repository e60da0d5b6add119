"""START HERE for Sail: a statement of Spark's as Sail gives Spark's answer to it, or why it does not.

Sail reads Spark's SQL, but its numbers are DataFusion's: sums of whole numbers wrap around, quotients of decimals are
cut off and have fewer digits, -0.0 is not 0.0. So each node and function has a rule here, made from a comparison with
Spark (``benchmarks/same_answers.py --engine sail``). What has no rule is left to other engines. The types come from the
reader that writes DuckDB's SQL: what that cannot tell, Sail does not get.

It is long because each kind of node has a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from engines.protocol import TableSource
from gateway.sql.duckdb.kinds import BIGINT, DATE, DOUBLE, FLOAT, INT, NULL, STRING, TIMESTAMP, Kind, common
from gateway.sql.duckdb.queries import Queries
from gateway.sql.duckdb.values import NoEquivalent
from selector import types
from selector.types import MAX_PRECISION

SAIL = "sail"

_SUM_DIGITS = 10  # that a sum of decimals has more than they have
_QUOTIENT_SCALE = 4  # digits after the point that DataFusion gives a quotient beside those of the dividend
_WIDE_WHOLE = 20  # digits of a decimal in which arithmetic of two bigints does not overflow

_TEXT_LIKE = (types.Kind.STRING, types.Kind.DATE, types.Kind.BOOLEAN, *types.WHOLE)

_SCALARS = frozenset(  # the same for every argument of the types that DuckDB's rules take
    """
    add_months ascii char_length character_length contains date_add date_sub day dayofmonth dayofweek dayofyear endswith
    instr last_day len length locate lower lcase ltrim md5 month octet_length quarter replace reverse rtrim sha1 sha2
    startswith translate trim ucase upper weekday year
    """.split()
)
_COUNTED = frozenset("left lpad repeat right rpad substr substring".split())
"""Functions of a text that take numbers, which have to stand in the statement."""

_PLACED = frozenset(["substr", "substring"])
"""Those of which the first number may be negative."""

_FLOATING = frozenset("exp ln log10 log2 sqrt".split())
_CHOICES = frozenset("coalesce greatest ifnull least nullif nvl".split())
_AGGREGATES = frozenset(
    """
    avg bit_and bit_or bit_xor bool_and bool_or count count_if every max mean min some std stddev stddev_pop stddev_samp
    sum var_pop var_samp variance
    """.split()
)
_WINDOWS = frozenset("dense_rank lag lead ntile rank row_number".split())
_OVER = frozenset("bool_and bool_or count count_if every max min some sum".split())
"""Aggregates that may have OVER; a moving average of floating-point numbers gathers errors, as does their sum."""

_PARTS_OF_DAYS = frozenset("YEAR QUARTER MONTH DAY".split())


def for_sail(tree: exp.Expr, tables: Iterable[TableSource]) -> exp.Expr:
    """Return a query that means the same on Sail. Raises NoEquivalent."""
    tree = tree.copy()
    queries = Queries({table.name.lower(): table for table in tables})
    queries.write(tree, outermost=True)
    rules = _Rules(queries.kinds)
    for node in reversed(list(tree.bfs())):  # what is inside first; a rule may put its node into another
        rules.apply(node)
    return tree


class _Rules:
    """Changes one node after the other. kinds: Spark's types of expressions, by the node's id."""

    def __init__(self, kinds: Mapping[int, Kind]) -> None:
        self._kinds = dict(kinds)

    def apply(self, node: exp.Expr) -> None:
        """Change a node where it stands. Raises NoEquivalent."""
        rule = _RULES.get(type(node))
        if rule is not None:
            rule(self, node)
        elif id(node) in self._kinds and type(node) not in _AS_THEY_ARE:
            raise NoEquivalent(f"{node.key.upper()} was not compared on Sail.")

    def kind(self, node: exp.Expr) -> Kind:
        """Return the type of an expression."""
        found = self._kinds.get(id(node))
        if found is None and isinstance(node, exp.Paren):
            return self.kind(node.this)
        if found is None:
            raise NoEquivalent(f"a type that cannot be told, of {node.key.upper()}.")
        return found

    # ------------------------------------------------------------------ arithmetic

    def arithmetic(self, node: exp.Binary) -> None:
        if isinstance(node.this, exp.Interval) or isinstance(node.expression, exp.Interval):
            return
        kind, sides = self.kind(node), (node.this, node.expression)
        kinds = [self.kind(side) for side in sides]
        if kind.is_whole:
            self._whole(node, kind)
        elif kind.is_decimal:
            for side, of_side in zip(sides, kinds, strict=True):
                _require(of_side.is_decimal or of_side.is_whole, f"arithmetic with {of_side}")
                self._as_decimal(side)
        elif kind.is_floating:
            _require(FLOAT not in kinds, "arithmetic with float")
        else:
            _require(DATE in kinds and any(each.is_whole for each in kinds), f"arithmetic that gives {kind}")

    def _whole(self, node: exp.Binary, kind: Kind) -> None:
        """Compute whole numbers where they have room, and let the cast back find out that they had too little."""
        wider = BIGINT if kind != BIGINT else Kind("decimal", _WIDE_WHOLE - isinstance(node, exp.Mul), 0)
        for side in (node.this, node.expression):
            side.replace(_cast(exp.paren(side.copy()), wider))
        self._put(node, _cast(exp.paren(node.copy()), kind), kind)

    def _as_decimal(self, side: exp.Expr) -> None:
        """Give a whole number's literal the digits that it has, as Spark does; Sail gives it those of its type."""
        inner = side.unnest()
        negative = isinstance(inner, exp.Neg)
        digits = inner.this if negative else inner
        if isinstance(digits, exp.Literal) and not digits.is_string and digits.name.isdigit():
            self._put(side, _cast(exp.paren(side.copy()), Kind("decimal", len(digits.name.lstrip("0")) or 1, 0)))

    def division(self, node: exp.Div) -> None:
        kind, left, right = self.kind(node), self.kind(node.this), self.kind(node.expression)
        if kind == DOUBLE and not left.is_decimal and not right.is_decimal and FLOAT not in (left, right):
            return
        _require(kind.is_decimal and (left.is_decimal or left.is_whole), f"a division of {left} by {right}")
        self._as_decimal(node.expression)
        self._put(node, _quotient(node.this, left, node.expression, kind), kind)

    def whole_division(self, node: exp.IntDiv) -> None:
        _require(
            self.kind(node.this).is_whole and self.kind(node.expression).is_whole, "DIV of anything but whole numbers"
        )
        _require(_is_literal(node.expression), "DIV by what is no literal")

    def remainder(self, node: exp.Mod) -> None:
        _require(self.kind(node.this).is_whole and self.kind(node.expression).is_whole, "a remainder of decimals")

    def negation(self, node: exp.Neg) -> None:
        _require(self.kind(node).is_number, "a negative interval")

    # ------------------------------------------------------------------ comparisons

    def comparison(self, node: exp.Binary) -> None:
        left, right = self.kind(node.this), self.kind(node.expression)
        meet = common(left, right)
        if meet is None or NULL in (left, right):
            raise NoEquivalent(f"a comparison of {left} and {right} on Sail.")
        for side, kind in ((node.this, left), (node.expression, right)):
            self._compared(side, kind, meet)

    def _compared(self, side: exp.Expr, kind: Kind, meet: Kind) -> None:
        if meet.is_floating:  # by adding zero, -0.0 becomes 0.0, which it equals
            zero = _cast(exp.Literal.number(0), meet)
            self._put(side, exp.paren(exp.Add(this=_cast(exp.paren(side.copy()), meet), expression=zero)))
        elif kind != meet and not (meet.is_number and kind.is_number):
            _require(kind != STRING or (meet in (DATE, TIMESTAMP) and side.is_string), f"{kind} in place of {meet}")
            _require(meet != TIMESTAMP, f"a comparison of {kind} with timestamp")
            self._put(side, _cast(side.copy(), meet))

    def between(self, node: exp.Between) -> None:
        sides = [node.this, node.args["low"], node.args["high"]]
        kinds = [self.kind(side) for side in sides]
        meets = {common(kinds[0], kind) for kind in kinds[1:]}
        if len(meets) != 1 or None in meets or NULL in kinds:
            raise NoEquivalent(f"BETWEEN of {', '.join(map(str, kinds))} on Sail.")
        meet = meets.pop()
        assert meet is not None
        for side, kind in zip(sides, kinds, strict=True):
            self._compared(side, kind, meet)

    def membership(self, node: exp.In) -> None:
        outer = node.parent.parent if isinstance(node.parent, exp.Paren) else node.parent
        _require(not (isinstance(outer, exp.Not) and node.args.get("query")), "NOT IN with a query")
        members = node.expressions or [select for select in _selects(node.args["query"])]
        kinds = [self.kind(each) for each in (node.this, *members)]
        told = {kind for kind in kinds if kind != NULL}
        plain = len(told) <= 1 or all(kind.is_whole for kind in told) or all(kind.is_decimal for kind in told)
        if kinds[0] in (DATE, TIMESTAMP) and told == {kinds[0], STRING} and node.expressions:
            for member in node.expressions:
                self._compared(member, self.kind(member), kinds[0])
            return
        _require(plain and not any(kind.is_floating for kind in told), f"IN of {', '.join(map(str, told))}")

    def like(self, node: exp.Expr) -> None:
        _require(not isinstance(node.args["expression"], exp.Any | exp.All), "LIKE ANY and LIKE ALL")
        _require(self.kind(node.this) == STRING, "LIKE of anything but a text")

    # ------------------------------------------------------------------ choices and casts

    def case(self, node: exp.Case) -> None:
        _require(
            node.args.get("this") is None or not self.kind(node.this).is_floating, "CASE of a floating-point number"
        )
        results = [branch.args["true"] for branch in node.args["ifs"]]
        if node.args.get("this") is not None:
            told = {self.kind(each) for each in (node.this, *(branch.this for branch in node.args["ifs"]))}
            _require(len(told) == 1, "CASE that compares different types")
        self._chosen([*results, *filter(None, [node.args.get("default")])], self.kind(node))

    def choice(self, node: exp.If) -> None:
        if isinstance(node.parent, exp.Case):
            return
        self._chosen([node.args["true"], *filter(None, [node.args.get("false")])], self.kind(node))

    def _chosen(self, results: Sequence[exp.Expr], kind: Kind) -> None:
        """Give each result the type that all of them have together."""
        for result in results:
            own = self.kind(result)
            if own in (kind, NULL):
                continue
            _require(own.is_number and kind.is_number and own != FLOAT, f"{own} where others are {kind}")
            self._put(result, _cast(exp.paren(result.copy()), kind))

    def cast(self, node: exp.Cast) -> None:
        own, to = self.kind(node.this), self.kind(node)
        if own in (to, NULL):
            return
        good = (
            ((own.is_whole or own.is_decimal) and (to.is_whole or to.is_decimal or to == DOUBLE))
            or (to == STRING and own.name in _TEXT_LIKE)
            or (own == DATE and to == TIMESTAMP)
            or (own == TIMESTAMP and to == DATE)
            or (own == FLOAT and to == DOUBLE)
            or (node.this.is_string and to == DATE)
        )
        _require(good, f"a cast from {own} to {to}")

    # ------------------------------------------------------------------ functions

    def extract(self, node: exp.Extract) -> None:
        _require(node.name.upper() in _PARTS_OF_DAYS, f"the part {node.name}")

    def substring(self, node: exp.Substring) -> None:
        start, length = node.args.get("start"), node.args.get("length")
        _require(start is None or _is_literal(start), "SUBSTRING from a computed place")
        _require(length is None or _is_count(length), "SUBSTRING of a computed or negative length")

    def pipe(self, node: exp.Expr) -> None:
        parts = node.expressions or [node.this, node.expression]
        for part in parts:
            kind = self.kind(part)
            _require(kind.name in _TEXT_LIKE or kind.is_decimal, f"{kind} as a text")
            if kind != STRING:
                self._put(part, _cast(exp.paren(part.copy()), STRING))

    def function(self, node: exp.Anonymous) -> None:
        name = node.name.lower()
        arguments = node.expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments = arguments[0].expressions
        if name in _AGGREGATES or name in _WINDOWS:
            self._aggregate(node, name, arguments)
            return
        kinds = [self.kind(argument) for argument in arguments]
        if name in _CHOICES:
            told = {kind for kind in kinds if kind != NULL}
            _require(
                not any(kind.is_floating for kind in told) or name in ("coalesce", "ifnull", "nvl"),
                f"{name} of {kinds[0]}",
            )
            if name == "nullif":
                _require(len(told) == 1, "nullif of different types")
            else:
                self._chosen(arguments, self.kind(node))
        elif name in ("concat", "concat_ws"):
            self.pipe(node)
        elif name in _COUNTED:
            _require(
                name in _PLACED or all(map(_is_count, arguments[1:])), f"{name} with a computed or negative number"
            )
            _require(
                all(map(_is_literal, arguments[1:])) and all(map(_is_count, arguments[2:])),
                f"{name} by what is computed",
            )
        elif name in _FLOATING:
            for argument, kind in zip(arguments, kinds, strict=True):
                if kind != DOUBLE:
                    self._put(argument, _cast(exp.paren(argument.copy()), DOUBLE))
        elif name in ("datediff", "date_diff"):
            self._put(node, _cast(node.copy(), INT), INT)
        elif name in ("round", "abs", "positive", "negative"):
            kind = self.kind(node)
            _require(not kind.is_floating or name != "round", "round of a floating-point number")
            _require(
                name != "round" or all(_is_literal(argument) for argument in arguments[1:]), "round to a computed place"
            )
            if kind.is_decimal:
                self._put(node, _cast(node.copy(), kind), kind)
        elif name == "if":
            self._chosen(arguments[1:], self.kind(node))
        elif name == "date_trunc":
            _require(kinds[1] == TIMESTAMP, f"date_trunc of {kinds[1]}")
        else:
            _require(name in _SCALARS, f"the function {name}")

    def _aggregate(self, node: exp.Anonymous, name: str, arguments: Sequence[exp.Expr]) -> None:
        over = node.find_ancestor(exp.Window, exp.Select)
        is_over = isinstance(over, exp.Window) and over.this.find(exp.Anonymous) is node
        _require(not is_over or name in _OVER or name in _WINDOWS, f"{name} with OVER")
        if name in ("count", "row_number", "rank", "dense_rank") or isinstance(arguments[0], exp.Star):
            distinct = bool(node.expressions) and isinstance(node.expressions[0], exp.Distinct)
            _require(
                not distinct or not any(self.kind(each).is_floating for each in arguments),
                "DISTINCT of floating-point numbers",
            )
            return
        kind = self.kind(arguments[0])
        distinct = isinstance(node.expressions[0], exp.Distinct)
        _require(not (distinct and kind.is_floating), "DISTINCT of floating-point numbers")
        wrapped: exp.Expr = node
        while (
            isinstance(wrapped.parent, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls)
            and wrapped.arg_key == "this"
        ):
            wrapped = wrapped.parent
        if name in ("sum", "avg", "mean") and is_over:
            _require(not kind.is_floating, f"{name} of floating-point numbers with OVER")
        if name in ("min", "max"):
            _require(not kind.is_floating, f"{name} of floating-point numbers")
        if name == "sum" and kind == BIGINT:
            argument = arguments[0]
            argument.replace(_cast(exp.paren(argument.copy()), Kind("decimal", _WIDE_WHOLE, 0)))
            self._put(wrapped, _cast(wrapped.copy(), BIGINT), BIGINT)
        elif name == "sum" and kind.is_decimal:
            _require(kind.precision + _SUM_DIGITS <= MAX_PRECISION, f"a sum of {kind}, which may overflow")
        elif name in ("avg", "mean") and kind.is_decimal:
            _require(wrapped is node, "an average of decimals with FILTER or OVER")
            result = self.kind(node)
            total, count = node.copy(), node.copy()
            total.set("this", "sum")
            count.set("this", "count")
            rows = exp.Anonymous(this="nullif", expressions=[count, exp.Literal.number(0)])
            summed = Kind("decimal", min(kind.precision + _SUM_DIGITS, MAX_PRECISION), kind.scale)
            self._put(node, _quotient(total, summed, rows, result), result)

    # ------------------------------------------------------------------ whole queries

    def select(self, node: exp.Select) -> None:
        grouped = node.args.get("group")
        if grouped is not None:
            _require(
                not any(grouped.args.get(name) for name in ("cube", "rollup", "grouping_sets")),
                "several groupings at once",
            )
            self._require_no_floats(self._meant(key, node) for key in grouped.expressions)
        if node.args.get("distinct"):
            self._require_no_floats(node.selects)
        order = node.args.get("order")
        if order is not None:
            self._require_no_floats(self._meant(key.this, node) for key in order.expressions)

    def set_operation(self, node: exp.SetOperation) -> None:
        left, right = _selects(node.this), _selects(node.expression)
        pairs = [(self.kind(one.unalias()), self.kind(other.unalias())) for one, other in zip(left, right, strict=True)]
        _require(
            all(one == other or NULL in (one, other) for one, other in pairs), "a set operation of different types"
        )
        if not (isinstance(node, exp.Union) and node.args.get("distinct") is False):
            _require(not any(one.is_floating for one, _ in pairs), "a set operation over floating-point numbers")
        order = node.args.get("order")
        _require(order is None or not any(one.is_floating for one, _ in pairs), "an order by floating-point numbers")

    def window(self, node: exp.Window) -> None:
        keys = [*(node.args.get("partition_by") or ())]
        if node.args.get("order") is not None:
            keys += [key.this for key in node.args["order"].expressions]
        self._require_no_floats(keys)

    def join(self, node: exp.Join) -> None:
        _require(not node.args.get("using"), "a join with USING")

    def _meant(self, key: exp.Expr, select: exp.Select) -> exp.Expr:
        """Return the expression that a key is the place or the name of."""
        if isinstance(key, exp.Literal) and key.name.isdigit() and 0 < int(key.name) <= len(select.selects):
            return select.selects[int(key.name) - 1].unalias()
        if isinstance(key, exp.Column) and id(key) not in self._kinds:
            named = (each for each in select.selects if each.alias_or_name.lower() == key.name.lower())
            return next(named, key).unalias()
        return key

    def _require_no_floats(self, keys: Iterable[exp.Expr]) -> None:
        for key in keys:
            _require(not self.kind(key.unalias()).is_floating, "groups and orders of floating-point numbers")

    def _put(self, node: exp.Expr, other: exp.Expr, kind: Kind | None = None) -> None:
        """Put another node in a node's place; it is of the same type, where no other is given."""
        own = kind or self._kinds.get(id(node))
        node.replace(other)
        if own is not None:
            self._kinds[id(other)] = own


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise NoEquivalent(f"{what} on Sail.")


def _cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(str(kind), dialect="spark"))


def _quotient(dividend: exp.Expr, own: Kind, divisor: exp.Expr, kind: Kind) -> exp.Expr:
    """Divide with a digit more than wanted, which is cut off there, and round to the type that Spark gives it."""
    scale = max(own.scale, kind.scale + 1 - _QUOTIENT_SCALE)
    whole = own.precision - own.scale if own.is_decimal else _WIDE_WHOLE
    _require(whole + scale <= MAX_PRECISION, f"a division that gives {kind}")
    wide = _cast(exp.paren(dividend.copy()), Kind("decimal", MAX_PRECISION, scale))
    return _cast(exp.paren(exp.Div(this=wide, expression=exp.paren(divisor.copy()))), kind)


def _is_literal(node: exp.Expr) -> bool:
    inner = node.unnest()
    inner = inner.this if isinstance(inner, exp.Neg) else inner
    return isinstance(inner, exp.Literal)


def _is_count(node: exp.Expr) -> bool:
    """Tell whether it is a text, or a number that is not negative, which stands in the statement."""
    return isinstance(node.unnest(), exp.Literal)


def _selects(query: exp.Expr) -> Sequence[exp.Expr]:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    _require(isinstance(query, exp.Select) and not query.is_star, "a star in a set operation or IN")
    return [select.unalias() for select in query.selects] if isinstance(query, exp.Select) else []


_AS_THEY_ARE = (
    *(exp.Literal, exp.Boolean, exp.Null, exp.Column, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.Escape),
    *(exp.Exists, exp.Subquery, exp.Trim, exp.StrPosition, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.Filter),
)
_RULES: Mapping[type[exp.Expr], Callable[..., None]] = {
    exp.Add: _Rules.arithmetic,
    exp.Sub: _Rules.arithmetic,
    exp.Mul: _Rules.arithmetic,
    exp.Div: _Rules.division,
    exp.IntDiv: _Rules.whole_division,
    exp.Mod: _Rules.remainder,
    exp.Neg: _Rules.negation,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _Rules.comparison),
    exp.Between: _Rules.between,
    exp.In: _Rules.membership,
    exp.Like: _Rules.like,
    exp.ILike: _Rules.like,
    exp.Case: _Rules.case,
    exp.If: _Rules.choice,
    exp.Cast: _Rules.cast,
    exp.TryCast: _Rules.cast,
    exp.Extract: _Rules.extract,
    exp.Substring: _Rules.substring,
    exp.DPipe: _Rules.pipe,
    exp.Concat: _Rules.pipe,
    exp.Anonymous: _Rules.function,
    exp.Select: _Rules.select,
    exp.Union: _Rules.set_operation,
    exp.Intersect: _Rules.set_operation,
    exp.Except: _Rules.set_operation,
    exp.Window: _Rules.window,
    exp.Join: _Rules.join,
}
