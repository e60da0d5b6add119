"""Functions that Hive and Impala have under names of Spark's for something else, or that Spark does not have.

Each becomes an expression of Spark's that gives what its own reference says, or is refused with a reason. What is in
neither list has the same name and meaning in Spark, or no meaning there; the allow-list knows.
``tests/gateway/dialects/`` holds them to it, value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from gateway.sql import hive_patterns
from gateway.sql.errors import NotAllowed
from gateway.sql.hive_templates import HIVE, IMPALA, LN, REFUSED, TEMPLATES
from gateway.sql.position import position_of
from gateway.sql.templates import filled

Types = Mapping[str, str]
"""Types of columns by their names, where a name has one type among the statement's tables."""

UNKNOWN: Types = {}

Rule = Callable[[exp.Anonymous, Types], exp.Expr]

_PLACES = ("a", "b", "c", "d")


def put_function(call: exp.Anonymous, dialect: str, types: Types) -> exp.Expr:
    """Return what a function means in Spark's words: often itself. Raises NotAllowed."""
    name, count = call.name.lower(), len(call.expressions)
    reason = REFUSED[dialect].get(name)
    if reason is not None:
        raise refused(call, f"{name.upper()} {reason}")
    template = TEMPLATES[dialect].get((name, count)) or TEMPLATES[dialect].get((name, None))
    if template is not None:
        return filled(template, **dict(zip(_PLACES, call.expressions, strict=False)))
    rule = _RULES[dialect].get(name)
    return call if rule is None else rule(call, types)


def names(dialect: str) -> tuple[str, ...]:
    """Return the names of functions that are written anew or refused by name, sorted."""
    written = (name for name, _ in TEMPLATES[dialect])
    return tuple(sorted({*written, *_RULES[dialect], *REFUSED[dialect]}))


def refused(node: exp.Expr, message: str) -> NotAllowed:
    """Return the refusal of a part of a statement, with its place."""
    return NotAllowed(message, position_of(node))


def call_of(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function of Spark's."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def whole_number(node: exp.Expr) -> int | None:
    """Return the whole number that an expression writes out, if it does."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdigit():
        return None
    return -int(literal.name) if negative else int(literal.name)


def type_of(node: exp.Expr, types: Types) -> str:
    """Return the type of a column, a literal or a CAST, as far as that can be seen; else an empty text."""
    match node:
        case exp.Paren():
            return type_of(node.this, types)
        case exp.Cast() | exp.TryCast():
            return str(node.to.this.value).lower() if isinstance(node.to, exp.DataType) else ""
        case exp.CurrentDate():
            return "date"
        case exp.Literal() if node.is_string:
            return "string"
        case exp.Column():
            return types.get(node.name.lower(), "")
        case exp.Boolean() | exp.Predicate() | exp.Connector() | exp.Not():
            return "boolean"
        case exp.Anonymous() if node.name.lower() in ("to_date", "last_day", "next_day", "current_date"):
            return "date"
    return ""


def _time(node: exp.Expr) -> exp.Expr:
    """Return a time; a literal text is one too where Impala wants a time."""
    is_text = isinstance(node, exp.Literal) and node.is_string
    return exp.cast(node.copy(), exp.DType.TIMESTAMP) if is_text else node


# ---------------------------------------------------------------------- texts


def substring(node: exp.Expr, text: exp.Expr, start: exp.Expr, length: exp.Expr | None, dialect: str) -> exp.Expr:
    """Return a part of a text: one that starts before the text is empty; in Impala one from 0 is too."""
    number = whole_number(start)
    cut = call_of("substring", text, start, *([length] if length is not None else []))
    if number is not None and (number > 0 or (number == 0 and dialect == HIVE)):
        return cut
    from_zero = "b = 0 OR " if dialect == IMPALA else ""
    return filled(f"CASE WHEN {from_zero}b < -length(a) THEN substring(a, 1, 0) ELSE c END", a=text, b=start, c=cut)


def _substr(dialect: str) -> Rule:
    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        if len(call.expressions) not in (2, 3):
            return call
        text, start, *length = call.expressions
        return substring(call, text, start, length[0] if length else None, dialect)

    return rule


def _pad(call: exp.Anonymous, types: Types) -> exp.Expr:
    """Give NULL for a negative length."""
    number = whole_number(call.expressions[1]) if len(call.expressions) > 1 else 0
    if number is not None and number >= 0:
        return call
    return filled("CASE WHEN a >= 0 THEN b END", a=call.expressions[1], b=call)


def _trim(side: str) -> Rule:
    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        if len(call.expressions) != 2:
            return call
        text, letters = call.expressions
        template = f"trim({side} b FROM a)"
        if isinstance(letters, exp.Literal):
            return filled(template, a=text, b=letters)
        return filled(template, a=text, b=call_of("coalesce", letters, exp.Literal.string("")))

    return rule


def _instr(call: exp.Anonymous, types: Types) -> exp.Expr:
    """In Impala nothing is found nowhere, and a search may begin elsewhere."""
    if len(call.expressions) not in (2, 3):
        raise refused(call, "INSTR counts no occurrences here.") if len(call.expressions) == 4 else _wrong(call)
    text, part, *start = call.expressions
    if start and (whole_number(start[0]) or 0) < 1:
        raise refused(call, "INSTR searches from a position that is written out, at least 1.")
    found = call_of("locate", part, text, *start) if start else call
    return found if _is_text(part) else filled("CASE WHEN a = '' THEN 0 ELSE b END", a=part, b=found)


def _locate(call: exp.Anonymous, types: Types) -> exp.Expr:
    if not call.expressions or _is_text(call.expressions[0]):
        return call
    return filled("CASE WHEN a = '' THEN 0 ELSE b END", a=call.expressions[0], b=call)


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and node.name != ""


def _wrong(call: exp.Anonymous) -> NotAllowed:
    return refused(call, f"{call.name.upper()} does not take {len(call.expressions)} arguments.")


def _chr(call: exp.Anonymous, types: Types) -> exp.Expr:
    number = whole_number(call.expressions[0]) if call.expressions else None
    if number is not None and 0 <= number < 128:
        return call
    return filled("CASE WHEN a BETWEEN 0 AND 127 THEN chr(a) WHEN a < 0 OR a > 255 THEN '' END", a=call.expressions[0])


def _group_concat(call: exp.Anonymous, types: Types) -> exp.Expr:
    """Its separator is a comma and a space."""
    arguments = list(call.expressions)
    distinct = arguments[0] if arguments and isinstance(arguments[0], exp.Distinct) else None
    parts = distinct.expressions if distinct is not None else arguments
    if len(parts) == 1:
        parts.append(exp.Literal.string(", "))
    if len(parts) != 2 or not isinstance(parts[1], exp.Literal):
        raise refused(call, "GROUP_CONCAT takes a text and a separator that is written out.")
    text = parts[0]
    if distinct is not None:
        both = exp.Distinct(expressions=[text.copy(), parts[1].copy()])
        return exp.Anonymous(this="listagg", expressions=[both])
    return call_of("listagg", text, parts[1])


# ---------------------------------------------------------------------- numbers


def _pmod(call: exp.Anonymous, types: Types) -> exp.Expr:
    """Give the remainder the divisor's sign."""
    if len(call.expressions) != 2 or (whole_number(call.expressions[1]) or 0) > 0:
        return call
    return filled("((a % b) + b) % b", a=call.expressions[0], b=call.expressions[1])


def _extreme(call: exp.Anonymous, types: Types) -> exp.Expr:
    """With a NULL, it is NULL."""
    if not call.expressions:
        return call
    unknown = exp.or_(*(exp.Is(this=value.copy(), expression=exp.Null()) for value in call.expressions))
    return exp.Case(ifs=[exp.If(this=unknown, true=exp.Null())], default=call.copy())


def _truncated(call: exp.Anonymous, digits: Sequence[exp.Expr]) -> exp.Expr:
    value = call.expressions[0]
    if digits and whole_number(digits[0]) is None:
        raise refused(call, f"{call.name.upper()} takes a number of digits that is written out.")
    if not digits:
        return filled("CASE WHEN a < 0 THEN ceil(a) ELSE floor(a) END", a=value)
    return filled("CASE WHEN a < 0 THEN ceil(a, b) ELSE floor(a, b) END", a=value, b=digits[0])


def _truncate(call: exp.Anonymous, types: Types) -> exp.Expr:
    return _truncated(call, call.expressions[1:]) if len(call.expressions) in (1, 2) else call


# ---------------------------------------------------------------------- times

_UNITS_OF_TRUNC = {
    **dict.fromkeys("SYYYY YYYY YEAR SYEAR YYY YY Y".split(), "YEAR"),
    **dict.fromkeys("MONTH MON MM RM".split(), "MONTH"),
    **dict.fromkeys("DDD DD J".split(), "DAY"),
    **dict.fromkeys("DAY DY D".split(), "WEEK"),
    **dict.fromkeys("HH HH12 HH24".split(), "HOUR"),
    "Q": "QUARTER",
    "MI": "MINUTE",
}
_DAYS_OF_TRUNC = {"WW": "dayofyear", "W": "day"}  # weeks that begin on the weekday of the year's or month's first day
_UNITS = {
    **{f"{unit}S": unit for unit in ("MICROSECOND", "MILLISECOND")},
    **{unit: unit for unit in "SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split()},
}


def _trunc_impala(call: exp.Anonymous, types: Types) -> exp.Expr:
    """Of a time with a unit, which Spark's TRUNC does not have for all; of a number with digits."""
    if len(call.expressions) == 1:
        return _truncated(call, ())
    if len(call.expressions) != 2:
        raise _wrong(call)
    value, unit = call.expressions
    if whole_number(unit) is not None:
        return _truncated(call, [unit])
    name = unit.name.upper() if isinstance(unit, exp.Literal) else ""
    time = _time(value)
    if name in _DAYS_OF_TRUNC:
        template = f"date_trunc('DAY', a) - (({_DAYS_OF_TRUNC[name]}(a) - 1) % 7) * INTERVAL '1' DAY"
    elif name in _UNITS_OF_TRUNC:
        template = f"date_trunc('{_UNITS_OF_TRUNC[name]}', a)"
    else:
        raise refused(call, f"TRUNC takes one of {', '.join((*_UNITS_OF_TRUNC, *_DAYS_OF_TRUNC))} as a literal.")
    return _as_date(filled(template, a=time), value, types)


def _trunc_hive(call: exp.Anonymous, types: Types) -> exp.Expr:
    digits = call.expressions[1:]
    is_date = len(digits) == 1 and whole_number(digits[0]) is None
    return call if is_date or len(digits) > 1 else _truncated(call, digits)


def _date_trunc(call: exp.Anonymous, types: Types) -> exp.Expr:
    if len(call.expressions) != 2:
        raise _wrong(call)
    unit, value = call.expressions
    name = _UNITS.get(unit.name.upper()) if isinstance(unit, exp.Literal) else None
    if name is None:
        raise refused(call, f"DATE_TRUNC takes one of {', '.join(_UNITS)} as a literal.")
    return _as_date(filled(f"date_trunc('{name}', a)", a=_time(value)), value, types)


def _as_date(time: exp.Expr, of: exp.Expr, types: Types) -> exp.Expr:
    return exp.cast(time, exp.DType.DATE) if type_of(of, types) == "date" else time


def _shift(unit: str, sign: int) -> Rule:
    """Add units to a time, which stays a time; Spark's functions of that name give days."""

    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        if len(call.expressions) != 2:
            raise _wrong(call)
        time, amount = _time(call.expressions[0]), call.expressions[1]
        if isinstance(amount, exp.Interval):
            return filled("a + b" if sign > 0 else "a - b", a=time, b=amount)
        number = whole_number(amount)
        if number is not None:
            return filled(f"a + INTERVAL '{sign * number}' {unit}", a=time)
        return filled(f"a {'+' if sign > 0 else '-'} b * INTERVAL '1' {unit}", a=time, b=amount)

    return rule


def _add_months(dialect: str) -> Rule:
    """Keep the last day of a month one; in Impala the time of day is kept, in Hive it is not."""

    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        if len(call.expressions) != 2:
            raise refused(call, "ADD_MONTHS takes a date and a number of months; use date_format for a format.")
        time, amount = call.expressions
        if dialect == HIVE:
            template = "CASE WHEN to_date(a) = last_day(a) THEN last_day(add_months(a, b)) ELSE add_months(a, b) END"
            return filled(template, a=time, b=amount)
        shifted = _shift("MONTH", 1)(call, types)
        if type_of(time, types) == "date":
            template = "CASE WHEN a = last_day(a) THEN last_day(b) ELSE b END"
        else:
            template = (
                "CASE WHEN to_date(a) = last_day(a) THEN b + datediff(last_day(b), b) * INTERVAL '1' DAY ELSE b END"
            )
        return filled(template, a=_time(time), b=shifted)

    return rule


_PARTS = {
    **{name: f"{name}(a)" for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "epoch": "unix_seconds(CAST(a AS TIMESTAMP))",
    "millisecond": "second(a) * 1000 + CAST(date_format(a, 'SSS') AS INT)",
}
_PARTS_OF_HIVE = {"dayofweek": "dayofweek(a)", "week": "weekofyear(a)"}


def part(node: exp.Expr, unit: str, of: exp.Expr, dialect: str) -> exp.Expr:
    """Return a part of a time as a whole number. Raises NotAllowed for one that the dialect does not have."""
    template = _PARTS.get(unit.lower()) or (_PARTS_OF_HIVE.get(unit.lower()) if dialect == HIVE else None)
    if template is None or (dialect == HIVE and unit.lower() in ("epoch", "millisecond")):
        raise refused(node, f"{unit.upper() or 'This'} is no part of a time in {dialect.capitalize()}.")
    return filled(template, a=_time(of))


def _date_part(dialect: str) -> Rule:
    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        if len(call.expressions) != 2 or not isinstance(call.expressions[0], exp.Literal):
            raise refused(call, "DATE_PART takes the name of a part as a literal, and a time.")
        return part(call, call.expressions[0].name, call.expressions[1], dialect)

    return rule


def _with_pattern(function: str, place: int, *, reads: bool) -> Rule:
    """Write a pattern of times as Java has it. place: of the pattern among the arguments."""

    def rule(call: exp.Anonymous, types: Types) -> exp.Expr:
        arguments = list(call.expressions)
        if len(arguments) <= place:
            return call_of(function, *arguments) if function == call.name.lower() else call
        pattern = hive_patterns.time_pattern(call, arguments[place], reads=reads)
        arguments[place] = exp.Literal.string(pattern)
        return call_of(function, *arguments)

    return rule


def _to_timestamp(call: exp.Anonymous, types: Types) -> exp.Expr:
    if len(call.expressions) == 1:
        return filled("CAST(a AS TIMESTAMP)", a=call.expressions[0])
    return _with_pattern("try_to_timestamp", 1, reads=True)(call, types)


def _unix_timestamp(call: exp.Anonymous, types: Types) -> exp.Expr:
    if len(call.expressions) < 2:
        return call
    return call_of("unix_seconds", _with_pattern("try_to_timestamp", 1, reads=True)(call, types))


# ---------------------------------------------------------------------- the lists

_SHIFTS: Mapping[str, Rule] = {
    **{
        f"{unit.lower()}s_{verb}": _shift(unit, sign)
        for unit in "YEAR MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND".split()
        for verb, sign in (("add", 1), ("sub", -1))
    },
    **dict.fromkeys(("date_add", "adddate"), _shift("DAY", 1)),
    **dict.fromkeys(("date_sub", "subdate"), _shift("DAY", -1)),
}
_RULES: Mapping[str, Mapping[str, Rule]] = {
    IMPALA: {
        **_SHIFTS,
        **dict.fromkeys(("substr", "utf8_substr", "utf8_substring"), _substr(IMPALA)),
        **dict.fromkeys(("lpad", "rpad"), _pad),
        "ltrim": _trim("LEADING"),
        "rtrim": _trim("TRAILING"),
        "btrim": _trim("BOTH"),
        "instr": _instr,
        "locate": _locate,
        "chr": _chr,
        "group_concat": _group_concat,
        "pmod": _pmod,
        **dict.fromkeys(("greatest", "least"), _extreme),
        **dict.fromkeys(("truncate", "dtrunc"), _truncate),
        "trunc": _trunc_impala,
        "date_trunc": _date_trunc,
        "add_months": _add_months(IMPALA),
        "date_part": _date_part(IMPALA),
        "from_timestamp": _with_pattern("date_format", 1, reads=False),
        "from_unixtime": _with_pattern("from_unixtime", 1, reads=False),
        "to_timestamp": _to_timestamp,
        "unix_timestamp": _unix_timestamp,
        "regexp_extract": hive_patterns.regexp_extract,
        "regexp_replace": hive_patterns.regexp_replace,
        "regexp_like": hive_patterns.regexp_like,
        "regexp_match_count": hive_patterns.regexp_match_count,
        "get_json_object": hive_patterns.get_json_object,
        "decode": lambda call, types: _decode(call),
        "log": lambda call, types: _logarithm(call),
    },
    HIVE: {
        **dict.fromkeys(("substr", "substring"), _substr(HIVE)),
        **dict.fromkeys(("lpad", "rpad"), _pad),
        "pmod": _pmod,
        **dict.fromkeys(("greatest", "least"), _extreme),
        "trunc": _trunc_hive,
        "add_months": _add_months(HIVE),
        "date_part": _date_part(HIVE),
    },
}


def _decode(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) < 3:
        raise refused(call, "DECODE takes a value, what to search for and what it becomes.")
    return call


def _logarithm(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 2:
        raise refused(call, "LOG takes a base and a number; LN is the natural logarithm.")
    base, number = (filled(LN.format("ln"), a=each) for each in call.expressions)
    return filled("b / a", a=base, b=number)
