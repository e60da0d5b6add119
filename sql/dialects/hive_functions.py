"""Functions of Hive and Impala that Spark does not have, or has with another meaning.

Each becomes an expression of Spark with the result of its own reference, or is refused with a reason. Other functions
have the same name and meaning in Spark, or are not on the allow-list. ``tests/sql/dialects/`` compares values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from selector.types import BITS
from sql.allowlist.functions import IN_EVERY_DIALECT
from sql.dialects import hive_patterns, hive_times
from sql.dialects.calls import call_of, is_text, refused, whole_number, wrong_count
from sql.dialects.column_types import type_of
from sql.dialects.hive_templates import LN, REFUSED, TEMPLATES
from sql.dialects.names import HIVE, IMPALA
from sql.dialects.templates import filled

Rule = Callable[[exp.Anonymous], exp.Expr]

_PLACES = ("a", "b", "c", "d")
_INITCAP = r"array_join(transform(split(a, '(?<=[\\t\\n\\x0B\\f\\r])'), word -> initcap(word)), '')"


def normalize_function(call: exp.Anonymous, dialect: str) -> exp.Expr:
    """Return the expression of Spark for a call, often the call itself. Raises NotAllowed."""
    name, count = call.name.lower(), len(call.expressions)
    reason = REFUSED[dialect].get(name)
    if reason is not None:
        raise refused(call, f"{name.upper()} {reason}.")
    if dialect == IMPALA:
        hive_times.read_times(call)
    template = TEMPLATES[dialect].get((name, count)) or TEMPLATES[dialect].get((name, None))
    if template is not None:
        return filled(template, **dict(zip(_PLACES, call.expressions, strict=False)))
    rule = _RULES[dialect].get(name)
    return call if rule is None else rule(call)


def names(dialect: str) -> tuple[str, ...]:
    """Return the names of functions that are rewritten or refused by name, sorted."""
    written = (name for name, _ in TEMPLATES[dialect])
    return tuple(sorted({*written, *_RULES[dialect], *REFUSED[dialect]}))


def usable_names(dialect: str) -> tuple[str, ...]:
    """Return the names of functions that statements in this dialect may use, sorted."""
    return tuple(sorted({*IN_EVERY_DIALECT, *names(dialect)} - REFUSED[dialect].keys()))


# ---------------------------------------------------------------------- texts


def substring(node: exp.Expr, text: exp.Expr, start: exp.Expr, length: exp.Expr | None, dialect: str) -> exp.Expr:
    """Return a substring: one that starts before the text is empty; in Impala one from 0 is empty, too."""
    number = whole_number(start)
    cut = call_of("substring", text, start, *([length] if length is not None else []))
    if number is not None and (number > 0 or (number == 0 and dialect == HIVE)):
        return cut
    from_zero = "b = 0 OR " if dialect == IMPALA else ""
    return filled(f"CASE WHEN {from_zero}b < -length(a) THEN substring(a, 1, 0) ELSE c END", a=text, b=start, c=cut)


def _substr(dialect: str) -> Rule:
    def rule(call: exp.Anonymous) -> exp.Expr:
        if len(call.expressions) not in (2, 3):
            return call
        text, start, *length = call.expressions
        return substring(call, text, start, length[0] if length else None, dialect)

    return rule


def _pad(call: exp.Anonymous) -> exp.Expr:
    """Return NULL for a negative length."""
    number = whole_number(call.expressions[1]) if len(call.expressions) > 1 else 0
    if number is not None and number >= 0:
        return call
    return filled("CASE WHEN a >= 0 THEN b END", a=call.expressions[1], b=call)


def _trim(side: str) -> Rule:
    def rule(call: exp.Anonymous) -> exp.Expr:
        if len(call.expressions) != 2:
            return call
        text, letters = call.expressions
        template = f"trim({side} b FROM a)"
        if isinstance(letters, exp.Literal):
            return filled(template, a=text, b=letters)
        return filled(template, a=text, b=call_of("coalesce", letters, exp.Literal.string("")))

    return rule


def _instr(call: exp.Anonymous) -> exp.Expr:
    """Return 0 for an empty part, as Impala does; the search may begin at a position."""
    if len(call.expressions) == 4:
        raise refused(call, "INSTR with the number of an occurrence is not supported: leave it out.")
    if len(call.expressions) not in (2, 3):
        raise wrong_count(call)
    text, part, *start = call.expressions
    if start and (whole_number(start[0]) or 0) < 1:
        raise refused(call, "INSTR takes a literal position of at least 1.")
    return _zero_for_empty(call_of("locate", part, text, *start) if start else call, part)


def _locate(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) == 3 and whole_number(call.expressions[2]) is None:
        start = call.expressions[2]
        search = _zero_for_empty(call_of("locate", *call.expressions), call.expressions[0])
        return filled("CASE WHEN b IS NOT NULL THEN a END", a=search, b=start)
    return _zero_for_empty(call, call.expressions[0]) if call.expressions else call


def _zero_for_empty(search: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Return a search for a part of a text that is 0 for an empty part."""
    if is_text(part) and part.name:
        return search
    return filled("CASE WHEN a = '' THEN 0 ELSE b END", a=part, b=search)


def _chr(call: exp.Anonymous) -> exp.Expr:
    number = whole_number(call.expressions[0]) if call.expressions else None
    if number is not None and 0 <= number < 128:
        return call
    return filled("CASE WHEN a BETWEEN 0 AND 127 THEN chr(a) WHEN a < 0 OR a > 255 THEN '' END", a=call.expressions[0])


def _group_concat(call: exp.Anonymous) -> exp.Expr:
    """Return LISTAGG; the default separator is a comma and a space."""
    arguments = list(call.expressions)
    distinct = arguments[0] if arguments and isinstance(arguments[0], exp.Distinct) else None
    parts = distinct.expressions if distinct is not None else arguments
    if len(parts) == 1:
        parts.append(exp.Literal.string(", "))
    if len(parts) != 2 or not isinstance(parts[1], exp.Literal):
        raise refused(call, "GROUP_CONCAT takes a text and a literal separator.")
    text = parts[0]
    if distinct is not None:
        both = exp.Distinct(expressions=[text.copy(), parts[1].copy()])
        return exp.Anonymous(this="listagg", expressions=[both])
    return call_of("listagg", text, parts[1])


def _small_letters(call: exp.Anonymous) -> exp.Expr:
    """Return LOWER with the dotted capital I as i; Java makes two characters of it."""
    if len(call.expressions) != 1:
        return call
    text = call.expressions[0]
    if is_text(text):
        return call_of("lower", exp.Literal.string(text.name.replace("\u0130", "i")))
    return call_of("lower", text)


def _initcap(call: exp.Anonymous) -> exp.Expr:
    """Return INITCAP with words after any white space, as in Impala; in Spark they begin after spaces only."""
    if len(call.expressions) != 1:
        return call
    text = call.expressions[0]
    if is_text(text):
        text = exp.Literal.string(text.name.replace("\u0130", "I"))
        if set(text.name).isdisjoint("\t\n\x0b\f\r"):
            return call_of("initcap", text)
    return filled(_INITCAP, a=text)


# ---------------------------------------------------------------------- numbers

MOST_DIGITS = 15


def _pmod(call: exp.Anonymous) -> exp.Expr:
    """Return the remainder with the divisor's sign."""
    if len(call.expressions) != 2 or (whole_number(call.expressions[1]) or 0) > 0:
        return call
    return filled("((a % b) + b) % b", a=call.expressions[0], b=call.expressions[1])


def _extreme(call: exp.Anonymous) -> exp.Expr:
    """Return NULL if an argument is NULL."""
    if not call.expressions:
        return call
    unknown = exp.or_(*(exp.Is(this=value.copy(), expression=exp.Null()) for value in call.expressions))
    return exp.Case(ifs=[exp.If(this=unknown, true=exp.Null())], default=call.copy())


def _width_bucket(call: exp.Anonymous) -> exp.Expr:
    """Refuse numbers of more digits than a DOUBLE has, with which Spark computes."""
    for number in call.find_all(exp.Literal):
        if len(number.name) > MOST_DIGITS:
            raise refused(call, f"WIDTH_BUCKET takes numbers of at most {MOST_DIGITS} digits here.")
    return call


def _getbit(call: exp.Anonymous) -> exp.Expr:
    """Refuse a position beyond the number's type: it is an error in Impala, but not in Spark."""
    place = whole_number(call.expressions[1]) if len(call.expressions) == 2 else None
    bits = BITS.get(type_of(call.expressions[0]), 8) if not _is_number(call) else 8
    if place is None or not 0 <= place < bits:
        raise refused(call, f"GETBIT takes a literal position, here from 0 to {bits - 1}.")
    return call


def _is_number(call: exp.Anonymous) -> bool:
    return isinstance(call.expressions[0].unnest(), exp.Literal | exp.Neg)  # of the narrowest type that holds it


def _rand(call: exp.Anonymous) -> exp.Expr:
    if call.expressions:
        raise refused(call, f"{call.name.upper()} with a seed gives other numbers in Spark: leave out the seed.")
    return call


def _truncated(call: exp.Anonymous, digits: Sequence[exp.Expr]) -> exp.Expr:
    value = call.expressions[0]
    if digits and whole_number(digits[0]) is None:
        raise refused(call, f"{call.name.upper()} takes a literal number of digits.")
    if not digits:
        return filled("CASE WHEN a < 0 THEN ceil(a) ELSE floor(a) END", a=value)
    return filled("CASE WHEN a < 0 THEN ceil(a, b) ELSE floor(a, b) END", a=value, b=digits[0])


def _truncate(call: exp.Anonymous) -> exp.Expr:
    return _truncated(call, call.expressions[1:]) if len(call.expressions) in (1, 2) else call


def _trunc_impala(call: exp.Anonymous) -> exp.Expr:
    """Truncate a time to a unit, or a number to digits."""
    if len(call.expressions) == 1:
        return _truncated(call, ())
    if len(call.expressions) != 2:
        raise wrong_count(call)
    digits = whole_number(call.expressions[1])
    return hive_times.trunc(call) if digits is None else _truncated(call, call.expressions[1:])


def _trunc_hive(call: exp.Anonymous) -> exp.Expr:
    digits = call.expressions[1:]
    is_date = len(digits) == 1 and whole_number(digits[0]) is None
    return call if is_date or len(digits) > 1 else _truncated(call, digits)


def _decode(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) < 3:
        raise refused(call, "DECODE takes a value, a value to compare it with, and a result.")
    return call


def _logarithm(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 2:
        raise refused(call, "LOG takes a base and a number; LN is the natural logarithm.")
    base, number = (filled(LN.format("ln"), a=argument) for argument in call.expressions)
    return filled("b / a", a=base, b=number)


# ---------------------------------------------------------------------- the lists

_RULES: Mapping[str, Mapping[str, Rule]] = {
    IMPALA: {
        **dict.fromkeys(("substr", "utf8_substr", "utf8_substring"), _substr(IMPALA)),
        **dict.fromkeys(("lpad", "rpad"), _pad),
        "ltrim": _trim("LEADING"),
        "rtrim": _trim("TRAILING"),
        "btrim": _trim("BOTH"),
        "instr": _instr,
        "locate": _locate,
        "chr": _chr,
        "group_concat": _group_concat,
        **dict.fromkeys(("lower", "lcase", "lower_utf8", "lcase_utf8"), _small_letters),
        **dict.fromkeys(("initcap", "initcap_utf8"), _initcap),
        "width_bucket": _width_bucket,
        "getbit": _getbit,
        **dict.fromkeys(("rand", "random"), _rand),
        "pmod": _pmod,
        **dict.fromkeys(("greatest", "least"), _extreme),
        **dict.fromkeys(("truncate", "dtrunc"), _truncate),
        "trunc": _trunc_impala,
        **hive_times.RULES[IMPALA],
        "regexp_extract": hive_patterns.regexp_extract,
        "regexp_replace": hive_patterns.regexp_replace,
        "regexp_like": hive_patterns.regexp_like,
        "regexp_match_count": hive_patterns.regexp_match_count,
        "get_json_object": hive_patterns.get_json_object,
        "decode": _decode,
        "log": _logarithm,
    },
    HIVE: {
        **dict.fromkeys(("substr", "substring"), _substr(HIVE)),
        **dict.fromkeys(("lpad", "rpad"), _pad),
        "pmod": _pmod,
        **dict.fromkeys(("greatest", "least"), _extreme),
        "trunc": _trunc_hive,
        **hive_times.RULES[HIVE],
    },
}
