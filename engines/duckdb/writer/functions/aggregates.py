"""Aggregates and window functions. A mean of decimals is exact; sums of whole numbers end at 64 bits.

Where rows decide by their order what comes out (the first of a group, a list), engines may differ among themselves
from run to run; of these only the simplest are here. Approximate functions are not: each engine has its own error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.functions.numbers import exact_quotient
from engines.duckdb.writer.kinds import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    TINYINT,
    Kind,
    decimal,
)
from engines.duckdb.writer.values import Value, guard, listed, require
from engines.errors import NoEquivalent


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Call of an aggregate or window function.

    star: COUNT(*).
    suffix: FILTER and OVER clauses, which follow the call.
    keys: keys of GROUP BY with several groupings.
    is_of_all: all rows are one group, and it is no window.
    """

    name: str
    values: Sequence[Value]
    star: bool
    distinct: bool
    suffix: str
    over: bool
    ignore_nulls: bool
    keys: Sequence[Value]
    is_of_all: bool

    def one(self) -> Value:
        """Return the only argument."""
        require(len(self.values) == 1 and not self.ignore_nulls, f"{self.name} with several arguments.")
        return self.values[0]

    def call(self, function: str, arguments: str) -> str:
        """Write a call of one of DuckDB's functions over the same rows."""
        return f"{function}({'DISTINCT ' if self.distinct else ''}{arguments}){self.suffix}"


_FAR_FROM_ZERO = "1e4"
"""Mean by standard deviation, above which two engines agree in less than eleven digits: each loses as many digits as
the mean has more than the deviation."""

AggregateRule = Callable[[Aggregate], Value]


def _count(call: Aggregate) -> Value:
    if call.star or (call.values and all(value.is_literal and value.kind != NULL for value in call.values)):
        require(not call.distinct or not call.star, "COUNT(DISTINCT *).")
        if not call.distinct:
            return Value(f"count(*){call.suffix}", BIGINT)
    if len(call.values) == 1:
        return Value(call.call("count", call.values[0].text), BIGINT)
    whole = " AND ".join(f"{value.text} IS NOT NULL" for value in call.values)
    row = f"({listed(call.values)})" if call.distinct else "1"
    return Value(call.call("count", f"CASE WHEN {whole} THEN {row} END"), BIGINT)


def _number(value: Value) -> Value:
    if value.kind == STRING:
        return cast(value, DOUBLE)
    require(value.kind.is_number, f"a sum of {value.kind}.")
    return value


def _sum(call: Aggregate) -> Value:
    value = _number(call.one())
    if value.kind.is_whole:
        return Value(f"CAST({call.call('sum', value.text)} AS BIGINT)", BIGINT)
    if value.kind.is_decimal:
        kind = decimal(value.kind.precision + 10, value.kind.scale)
        return Value(call.call("sum", value.text), kind, held=Kind("decimal", MAX_PRECISION, value.kind.scale))
    return Value(call.call("sum", cast(value, DOUBLE).text), DOUBLE)


def _avg(call: Aggregate) -> Value:
    value = _number(call.one())
    if not value.kind.is_decimal:
        exact = value.text if value.kind.is_whole and value.kind != BIGINT else cast(value, DOUBLE).text
        return Value(call.call("avg", exact), DOUBLE)
    kind = decimal(value.kind.precision + 4, value.kind.scale + 4)
    total = _sum(call)
    count = Value(f"nullif({call.call('count', value.text)}, 0)", Kind("decimal", 20, 0))
    return exact_quotient(total, count, kind)


def _extreme(call: Aggregate) -> Value:
    """Write MIN and MAX. Of a column of all rows of one Parquet file, DuckDB takes the file's bounds for the answer.

    Those of floating numbers are no values: the format writes -0.0 for a minimum of 0.0, and a maximum is NaN where a
    file may have one (``can_have_nan``). An expression has no bounds.
    """
    value = call.one()
    require(value.kind.is_atomic or value.kind == NULL, f"{call.name} of {value.kind}.")
    text = f"-(-({value.text}))" if value.kind.is_floating and call.is_of_all else value.text
    return Value(f"{call.name}({text}){call.suffix}", value.kind, held=value.held)


def _spread(function: str) -> AggregateRule:
    def rule(call: Aggregate) -> Value:
        value = _number(call.one())
        exact = cast(value, DOUBLE).text
        spread = call.call(function, exact)
        deviation = spread if function.startswith("stddev") else f"sqrt({spread})"
        far = f"abs({call.call('avg', exact)}) > {_FAR_FROM_ZERO} * {deviation} AND {spread} <> 0"
        if value.kind.is_floating and function.endswith("_pop"):  # of one number that is not finite, DuckDB says 0
            strange = f"count(CASE WHEN NOT isfinite({exact}) THEN 1 END){call.suffix}"
            spread = f"CASE WHEN {strange} > 0 THEN CAST('NaN' AS DOUBLE) ELSE {spread} END"
        return Value(guard(far, "the spread of numbers far from zero", spread, DOUBLE), DOUBLE)

    return rule


def _truth(function: str) -> AggregateRule:
    def rule(call: Aggregate) -> Value:
        value = call.one()
        require(value.kind == BOOLEAN, f"{call.name} of {value.kind}.")
        return Value(call.call(function, value.text), BOOLEAN)

    return rule


def _count_if(call: Aggregate) -> Value:
    value = call.one()
    require(value.kind == BOOLEAN and not call.distinct, f"count_if of {value.kind}.")
    return Value(f"count(CASE WHEN {value.text} THEN 1 END){call.suffix}", BIGINT)


def _bits(call: Aggregate) -> Value:
    value = call.one()
    require(value.kind.is_whole, f"{call.name} of {value.kind}.")
    return Value(call.call(call.name, value.text), value.kind)


def _percentile(call: Aggregate) -> Value:
    share = call.values[1] if len(call.values) > 1 else None
    require(call.name == "median" or (share is not None and len(call.values) == 2), "PERCENTILE with frequencies.")
    require(not call.distinct and not call.over, f"{call.name} with DISTINCT or OVER.")
    wanted = "0.5" if share is None else share.text
    literal = share is None or share.whole in (0, 1) or wanted.startswith("0.")
    require(literal, "PERCENTILE at anything but a literal.")
    value = cast(_number(call.values[0]), DOUBLE).text
    return Value(f"quantile_cont({value}, {wanted}){call.suffix}", DOUBLE)


def _any(call: Aggregate) -> Value:
    value = call.one()
    require(not call.distinct and value.kind.is_atomic, f"{call.name} of {value.kind}.")
    function = "last" if call.name.startswith("last") else "first"
    if call.over:
        function += "_value"
    return Value(f"{function}({value.text}){call.suffix}", value.kind, held=value.held)


def _grouping(call: Aggregate) -> Value:
    require(bool(call.keys), "GROUPING without several groupings.")
    return Value(f"CAST(grouping({call.one().text}) AS TINYINT)", TINYINT)


def _grouping_id(call: Aggregate) -> Value:
    keys = [key.text for key in call.keys]
    require(bool(keys), "GROUPING_ID without several groupings.")
    require(not call.values or [value.text for value in call.values] == keys, "GROUPING_ID of other keys than all.")
    return Value(f"CAST(grouping_id({', '.join(keys)}) AS BIGINT)", BIGINT)


def _numbered(call: Aggregate) -> Value:
    require(not call.distinct, call.name)
    arguments = [cast(value, INT).text for value in call.values]
    return Value(f"CAST({call.name}({', '.join(arguments)}){call.suffix} AS INTEGER)", INT)


def _ranked_share(call: Aggregate) -> Value:
    require(not call.values, call.name)
    return Value(f"{call.name}(){call.suffix}", DOUBLE)


def _neighbour(call: Aggregate) -> Value:
    value, rest = call.values[0], list(call.values[1:])
    require(value.kind.is_atomic and len(rest) <= 2 and not call.distinct, f"{call.name} of {value.kind}.")
    typed = value.exactly()
    if value.is_literal:
        raise NoEquivalent(f"{call.name} of a literal.")
    arguments = [typed]
    if rest:
        require(rest[0].whole is not None, f"{call.name} by anything but a number.")
        arguments.append(str(rest[0].whole))
    if len(rest) == 2:
        arguments.append(cast(rest[1], value.kind).exactly())
    text = ", ".join(arguments)
    if call.ignore_nulls:
        text += " IGNORE NULLS"
    return Value(f"{call.name}({text}){call.suffix}", value.kind)


def _edge(call: Aggregate) -> Value:
    require(len(call.values) == 1 and not call.distinct, f"{call.name} with several arguments.")
    value = call.values[0]
    require(value.kind.is_atomic, f"{call.name} of {value.kind}.")
    nulls = " IGNORE NULLS" if call.ignore_nulls else ""
    function = "last_value" if call.name.startswith("last") else "first_value"
    return Value(f"{function}({value.text}{nulls}){call.suffix}", value.kind, held=value.held)


AGGREGATES: Mapping[str, AggregateRule] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "min": _extreme,
    "max": _extreme,
    **dict.fromkeys(("stddev", "std", "stddev_samp"), _spread("stddev_samp")),
    "stddev_pop": _spread("stddev_pop"),
    **dict.fromkeys(("variance", "var_samp"), _spread("var_samp")),
    "var_pop": _spread("var_pop"),
    **dict.fromkeys(("bool_and", "every"), _truth("bool_and")),
    **dict.fromkeys(("bool_or", "some", "any"), _truth("bool_or")),
    "count_if": _count_if,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "median": _percentile,
    "percentile": _percentile,
    "any_value": _any,
    "first": _any,
    "last": _any,
    "grouping": _grouping,
    "grouping_id": _grouping_id,
}
AGGREGATE_ARGUMENTS: Mapping[str, range] = {
    "count": range(1, 100),
    "percentile": range(2, 4),
    "grouping_id": range(100),
    **dict.fromkeys(("row_number", "rank", "dense_rank", "percent_rank", "cume_dist"), range(1)),
    **dict.fromkeys(("lag", "lead"), range(1, 4)),
}
"""How many arguments an aggregate or window function takes; one where nothing is said."""

SKIP_NULL = AGGREGATES.keys() - {"any_value", "first", "last", "grouping", "grouping_id"}
"""Aggregates to which a row whose argument is NULL is none."""

ORDERED_WINDOWS = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead".split())
"""Window functions that need an order, and take no frame."""

WINDOWS: Mapping[str, AggregateRule] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile"), _numbered),
    "percent_rank": _ranked_share,
    "cume_dist": _ranked_share,
    "lag": _neighbour,
    "lead": _neighbour,
    **dict.fromkeys(("first_value", "last_value"), _edge),
}
