"""Names that Spark gives to columns without an alias: ``count(1)`` for ``count(*)``, ``(a + b)`` for ``a + b``.

Spark makes them from the analysed expression: operators in brackets, strings without quotes, optional arguments with
their defaults. Spark names its own columns; other engines return these names, and outer queries use them.
``benchmarks/spark_suite.py`` compares them with Spark's own.

It is long because each kind of node has its own form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlglot import exp
from sqlglot.generator import Generator

from sql.errors import SyntaxInvalid
from sql.nodes import position_of
from sql.parsers.dialects import LIBRARY_DEFECTS, SparkAsWritten
from sql.parsers.spark import OPERATOR, SPELLED, TYPED, WITHIN

_OPERATORS: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.NullSafeEQ: "<=>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_IN_CAPITALS = frozenset(  # their expressions have no other name in Spark's code
    """
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc degrees dense_rank e exp expm1 hypot log10 log1p log2
    percent_rank pi power radians rank regexp regexp_like rlike sec signum sin sinh sqrt tan tanh
    """.split()
)
_OTHER_NAMES = {
    "array_agg": "collect_list",
    "curdate": "current_date",
    "current_database": "current_schema",
    "dateadd": "date_add",
}
_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?", re.ASCII
)
_DEFAULTS: Mapping[str, tuple[str, ...]] = {  # of all arguments; those that are missing at the end are added
    "round": ("", "0"),
    "bround": ("", "0"),
    "substring": ("", "", "2147483647"),
    "substr": ("", "", "2147483647"),
    "locate": ("", "", "1"),
    "position": ("", "", "1"),
    "overlay": ("", "", "", "-1"),
    "split": ("", "", "-1"),
    "regexp_replace": ("", "", "", "1"),
    "regexp_extract": ("", "", "1"),
    "regexp_extract_all": ("", "", "1"),
    "regexp_instr": ("", "", "0"),
    "lpad": ("", "", " "),
    "rpad": ("", "", " "),
    "replace": ("", "", ""),
    "percentile": ("", "", "1"),
    "percentile_approx": ("", "", "10000"),
    "approx_percentile": ("", "", "10000"),
    "months_between": ("", "", "true"),
    "lag": ("", "1", "NULL"),
    "lead": ("", "1", "NULL"),
    "listagg": ("", "NULL"),
    "string_agg": ("", "NULL"),
    "unix_timestamp": ("current_timestamp()", "yyyy-MM-dd HH:mm:ss"),
    "to_unix_timestamp": ("", "yyyy-MM-dd HH:mm:ss"),
    "from_unixtime": ("", "yyyy-MM-dd HH:mm:ss"),
}
_CASTS = frozenset("bigint binary boolean date decimal double float int smallint string timestamp tinyint".split())
_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_ROW_FRAMED = frozenset("row_number rank dense_rank percent_rank ntile".split())
_SHIFTED = {"lag": -1, "lead": 1}
_DOUBLE_LETTERS = "DdFf"
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7  # between them Java writes a double without an exponent


def default_name(node: exp.Expr) -> str:
    """Return the name of an output without an alias. Raises SyntaxInvalid where it cannot be written."""
    match node:
        case exp.Paren():
            return default_name(node.this)
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return node.expression.name
        case exp.Cast() | exp.TryCast() if isinstance(node.this, exp.Column) and not node.meta.get(TYPED):
            return node.this.name
        case _:
            return _name(node)


def _name(node: exp.Expr) -> str:
    kind = type(node)
    if node.args.get("negate"):
        positive = node.copy()
        positive.set("negate", None)
        return f"(NOT {_name(positive)})"
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return f"{_name(node.this)} {_OPERATORS[kind]} {_name(node.expression)}"
    if isinstance(node, exp.Add | exp.Sub) and _is_date(node.this) != _is_date(node.expression):
        day, count = (node.this, node.expression) if _is_date(node.this) else (node.expression, node.this)
        return f"date_{'add' if isinstance(node, exp.Add) else 'sub'}({_name(day)}, {_name(count)})"
    if kind in _OPERATORS:
        return f"({_name(node.this)} {_OPERATORS[kind]} {_name(node.expression)})"
    form = _FORMS.get(kind)
    return form(node) if form is not None else _as_written(node)


def _is_date(node: exp.Expr) -> bool:
    """Return True for a literal date, to which a number adds days."""
    return bool(node.meta.get(TYPED)) and isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE


def _as_written(node: exp.Expr) -> str:
    writer: Generator = SparkAsWritten().generator(normalize_functions="lower", comments=False)
    try:
        return str(writer.generate(node))
    except LIBRARY_DEFECTS as error:
        message = "Syntax error: a function or type has arguments that its dialect does not know."
        raise SyntaxInvalid(message, position_of(node)) from error


def _listed(nodes: list[exp.Expr]) -> str:
    return ", ".join(_name(node) for node in nodes)


# ---------------------------------------------------------------------- literals and columns


def _literal(node: exp.Literal) -> str:
    text = node.name
    if node.is_string:
        return text
    if text[-1:] in _DOUBLE_LETTERS or "e" in text.lower():
        return java_double(float(text.rstrip(_DOUBLE_LETTERS))) if text[-2:].upper() != "BD" else text[:-2]
    digits = text.rstrip("LlSsYy").removesuffix("BD").removesuffix("bd")
    return str(Decimal(digits))  # which writes small ones as Java does, 1.2E-8


def java_double(value: float) -> str:
    """Write a double as Java does: 1000.0, 1.0E10, 1.0E-7."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return f"{value:.17f}".rstrip("0").ljust(3, "0") if "e" in repr(value) else repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits = mantissa.lstrip("-").replace(".", "").strip("0") or "0"
        exponent = str(len(mantissa.lstrip("-").partition(".")[0].lstrip("0")) - 1)
        if abs(value) < 1:
            fraction = mantissa.partition(".")[2]
            exponent = str(-(len(fraction) - len(fraction.lstrip("0")) + 1))
        sign = "-" if value < 0 else ""
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}E{int(exponent)}"


def _column(node: exp.Column) -> str:
    return "1" if isinstance(node.this, exp.Star) and not node.table else node.name


def _field(node: exp.Dot) -> str:
    return f"{_name(node.this)}.{node.expression.name}"


def _typed(node: exp.Expr) -> str:
    """Name a cast, or a typed literal such as DATE '2020-01-01'."""
    if SPELLED in node.meta:
        return str(node.meta[SPELLED])
    to = node.args["to"].sql(dialect=SparkAsWritten).replace(", ", ",").replace("TIMESTAMP_LTZ", "TIMESTAMP")
    if node.meta.get(TYPED):
        return f"{to} '{_moment(node.this.name.strip()) if to.startswith('TIMESTAMP') else node.this.name.strip()}'"
    to = "DECIMAL(10,0)" if to == "DECIMAL" else to
    word = "CAST" if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) else "TRY_CAST"
    return f"{word}({_name(node.this)} AS {to})"


def _moment(text: str) -> str:
    """Write a literal timestamp without a zone with all of its parts; another text stays as it is."""
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return text
    year, *others, fraction = parts.groups(default="0")
    month, day, hour, minute, second = (part.zfill(2) for part in others)
    fraction = fraction.rstrip("0")
    return f"{year}-{month}-{day} {hour}:{minute}:{second}{'.' if fraction else ''}{fraction}"


def _interval(node: exp.Interval) -> str:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return f"INTERVAL '{node.this.name}' {unit.this.name.upper()} TO {unit.expression.name.upper()}"
    if unit is None:
        return f"INTERVAL '{node.this.name}'"
    amount, word = node.this.name, unit.name.upper().removesuffix("S")
    if word == "WEEK" and amount.lstrip("+-").isdecimal():
        amount, word = str(7 * int(amount)), "DAY"
    if word in ("HOUR", "MINUTE", "SECOND"):
        whole, dot, rest = amount.partition(".")
        amount = f"{whole.zfill(2)}{dot}{rest}"
    return f"INTERVAL '{amount}' {word}"


# ---------------------------------------------------------------------- operators


def _is(node: exp.Is) -> str:
    operand, test = _name(node.this), node.expression
    if isinstance(test, exp.Null):
        return f"({operand} IS NULL)"
    return f"({operand} <=> {_name(test)})"


def _not(node: exp.Not) -> str:
    inner = node.this
    if node.meta.get(WITHIN) and isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return f"({_name(inner.this)} IS NOT NULL)"
    return f"(NOT {_name(inner)})"


def _in(node: exp.In) -> str:
    if node.args.get("query") is not None:
        return f"({_name(node.this)} IN (listquery()))"
    return f"({_name(node.this)} IN ({_listed(node.expressions)}))"


def _like(node: exp.Like) -> str:
    return f"{_name(node.this)} LIKE {_name(node.expression)}"


def _escape(node: exp.Escape) -> str:
    if isinstance(node.this, exp.ILike):
        return _name(node.this)
    return f"{_name(node.this)} ESCAPE '{node.expression.name}'"


def _case(node: exp.Case) -> str:
    parts = ["CASE"]
    for branch in node.args["ifs"]:
        condition = _name(branch.this)
        if node.this is not None:
            condition = f"({_name(node.this)} = {condition})"
        parts.append(f"WHEN {condition} THEN {_name(branch.args['true'])}")
    if node.args.get("default") is not None:
        parts.append(f"ELSE {_name(node.args['default'])}")
    return " ".join([*parts, "END"])


def _neg(node: exp.Neg) -> str:
    if isinstance(node.this, exp.Literal):
        name = _name(node.this)
        is_double = node.this.name[-1:] in _DOUBLE_LETTERS or "e" in node.this.name.lower()
        return name if not is_double and not name.strip("0.") else f"-{name}"  # only doubles have a -0
    return f"(- {_name(node.this)})"


# ---------------------------------------------------------------------- functions


def _function(node: exp.Anonymous) -> str:
    name, arguments = node.name.lower(), [_name(argument) for argument in node.expressions]
    count = len(arguments)
    if name in _CASTS and count == 1:
        return arguments[0]
    if name in ("isnull", "isnotnull") and count == 1:
        return f"({arguments[0]} IS {'NOT ' if name == 'isnotnull' else ''}NULL)"
    if name == "shiftrightunsigned" and node.meta.get(OPERATOR):
        return f"({arguments[0]} >>> {arguments[1]})"
    if name == "div" and count == 2:
        return f"({arguments[0]} div {arguments[1]})"
    if name == "positive":
        return f"(+ {', '.join(arguments)})"
    if name == "if":
        return f"(IF({', '.join(arguments)}))"
    if name == "like" and count == 2:
        return f"{arguments[0]} LIKE {arguments[1]}"
    if name in _TRIMS and count == 2:
        return f"TRIM({_TRIMS[name]} {arguments[0]} FROM {arguments[1]})"
    if name == "datepart" and count == 2:
        return f"datepart({arguments[0]} FROM {arguments[1]})"
    if name == "log":
        return f"LOG({', '.join(arguments if count > 1 else ['E()', *arguments])})"
    if name in ("ceil", "floor") and count == 1:
        return f"{name.upper()}({arguments[0]})"
    if name in ("dateadd", "date_add", "datediff", "date_diff") and count == 3:
        name = "timestampadd" if name in ("dateadd", "date_add") else "timestampdiff"
    elif name in ("first", "last", "first_value", "last_value", "any_value"):
        arguments = arguments[:1]
    elif name == "count" and count == 1 and isinstance(node.expressions[0], exp.Star):
        arguments = ["1"]
    elif name in _IN_CAPITALS:
        name = name.upper()
    else:
        name = _OTHER_NAMES.get(name, name)
    arguments += _DEFAULTS.get(name, ())[count:]
    return f"{name}({', '.join(arguments)})"


def _distinct(node: exp.Distinct) -> str:
    return f"DISTINCT {_listed(node.expressions)}"


def _filter(node: exp.Filter) -> str:
    return f"{_name(node.this)} FILTER (WHERE {_name(node.expression.this)})"


def _extract(node: exp.Extract) -> str:
    return f"extract({node.meta.get(SPELLED, node.name)} FROM {_name(node.expression)})"


def _trim(node: exp.Trim) -> str:
    side = (node.args.get("position") or "BOTH").upper()
    if node.expression is None:
        return f"{next(name for name, word in _TRIMS.items() if word == side)}({_name(node.this)})"
    return f"TRIM({side} {_name(node.expression)} FROM {_name(node.this)})"


def _with_defaults(name: str, *keys: str) -> Callable[[exp.Expr], str]:
    def write(node: exp.Expr) -> str:
        arguments = [_name(node.args[key]) for key in keys if node.args.get(key) is not None]
        return f"{node.meta.get(SPELLED, name)}({', '.join([*arguments, *_DEFAULTS[name][len(arguments) :]])})"

    return write


# ---------------------------------------------------------------------- windows


def _window(node: exp.Window) -> str:
    inner = node.this
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    if node.args.get("alias") is not None or isinstance(node.args.get("over"), exp.Identifier):
        return _as_written(node)
    function = inner.name.lower() if isinstance(inner, exp.Anonymous) else ""
    order = node.args.get("order")
    parts = []
    if node.args.get("partition_by"):
        parts.append(f"PARTITION BY {_listed(node.args['partition_by'])}")
    if order is not None:
        parts.append(f"ORDER BY {', '.join(_ordered(term) for term in order.expressions)}")
    parts.append(_frame(node.args.get("spec"), function, inner, is_ordered=order is not None))
    return f"{_name(inner)} OVER ({' '.join(parts)})"


def _ordered(node: exp.Expr) -> str:
    if not isinstance(node, exp.Ordered):
        return f"{_name(node)} ASC NULLS FIRST"
    first = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{_name(node.this)} {'DESC' if node.args.get('desc') else 'ASC'} NULLS {first}"


def _frame(spec: exp.Expr | None, function: str, call: exp.Expr, *, is_ordered: bool) -> str:
    if function in _SHIFTED:
        offset = call.expressions[1].name if len(call.expressions) > 1 else "1"
        sign = "-" if _SHIFTED[function] < 0 else ""
        return f"ROWS BETWEEN {sign}{offset} FOLLOWING AND {sign}{offset} FOLLOWING"
    if spec is not None:
        start = _edge(spec.args.get("start"), spec.args.get("start_side"))
        end = _edge(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
        return f"{spec.args['kind'].upper()} BETWEEN {start} AND {end}"
    if not is_ordered:
        return "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    return f"{'ROWS' if function in _ROW_FRAMED else 'RANGE'} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _edge(edge: exp.Expr | str | None, side: str | None) -> str:
    text = edge if isinstance(edge, str) else _name(edge) if edge is not None else "CURRENT ROW"
    return f"{text} {side.upper()}" if side else text


_FORMS: Mapping[type[exp.Expr], Callable[..., str]] = {
    exp.Alias: lambda node: _name(node.this),
    exp.Paren: lambda node: _name(node.this),
    exp.Literal: _literal,
    exp.Boolean: lambda node: "true" if node.this else "false",
    exp.Null: lambda _: "NULL",
    exp.HexString: lambda node: f"X'{str(node.this).upper()}'",
    exp.Column: _column,
    exp.Star: lambda _: "1",
    exp.Identifier: lambda node: node.name,
    exp.Var: lambda node: node.name,
    exp.Dot: _field,
    exp.Bracket: lambda node: f"{_name(node.this)}[{_listed(node.expressions)}]",
    exp.Cast: _typed,
    exp.TryCast: _typed,
    exp.Interval: _interval,
    exp.DPipe: lambda node: f"concat({_name(node.this)}, {_name(node.expression)})",
    exp.NEQ: lambda node: f"(NOT ({_name(node.this)} = {_name(node.expression)}))",
    exp.NullSafeNEQ: lambda node: f"(NOT ({_name(node.this)} <=> {_name(node.expression)}))",
    exp.Is: _is,
    exp.Not: _not,
    exp.Between: lambda node: f"between({_listed([node.this, node.args['low'], node.args['high']])})",
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: lambda node: f"ilike({_name(node.this)}, {_name(node.expression)})",
    exp.RegexpLike: lambda node: f"RLIKE({_name(node.this)}, {_name(node.expression)})",
    exp.Escape: _escape,
    exp.Neg: _neg,
    exp.BitwiseNot: lambda node: f"~{_name(node.this)}",
    exp.Case: _case,
    exp.If: lambda node: f"(IF({_listed([node.this, node.args['true'], node.args.get('false') or exp.null()])}))",
    exp.Tuple: lambda node: f"named_struct({', '.join(f'{default_name(p)}, {_name(p)}' for p in node.expressions)})",
    exp.Anonymous: _function,
    exp.AnonymousAggFunc: _function,
    exp.Distinct: _distinct,
    exp.Filter: _filter,
    exp.IgnoreNulls: lambda node: _name(node.this),
    exp.RespectNulls: lambda node: _name(node.this),
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Substring: _with_defaults("substring", "this", "start", "length"),
    exp.StrPosition: _with_defaults("locate", "substr", "this", "position"),
    exp.Overlay: _with_defaults("overlay", "this", "expression", "from_", "for_"),
    exp.CurrentDate: lambda _: "current_date()",
    exp.CurrentTimestamp: lambda _: "current_timestamp()",
    exp.Subquery: lambda _: "scalarsubquery()",
    exp.Select: lambda _: "scalarsubquery()",
    exp.Exists: lambda _: "exists()",
    exp.Any: lambda node: f"any({_name(node.this)})",
    exp.Window: _window,
    exp.Lambda: _as_written,
}
