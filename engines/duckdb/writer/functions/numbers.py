"""Arithmetic: results have Spark's types, nothing is divided by zero, quotients of decimals are exact.

DuckDB adds and multiplies decimals as Spark does where it has the digits: of two that fit into 64 bits it makes a third
that must, unless one of them is written with more. It divides them as doubles, so a quotient is taken of whole numbers
of 128 bits: both sides without their points, the upper one with as many digits more as the result is to have.
"""

from __future__ import annotations

import re

from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.kinds import (
    BIGINT,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    STRING,
    TINYINT,
    Kind,
    adjusted,
    as_decimal,
    common,
    decimal,
)
from engines.duckdb.writer.values import Value, guard, require
from engines.errors import NoEquivalent
from selector.types import BITS
from sql.guards import DIVISION_BY_ZERO

_WHOLE_LETTERS = {"Y": TINYINT, "S": SMALLINT, "L": BIGINT}
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_NOT_ZERO = re.compile(r"\(?-?[0-9.]*[1-9][0-9.]*\)?")
_DIGITS_OF_64_BITS = 18
_DIGITS_OF_A_SIGN = 34  # Spark rounds what it negates to as many
_LARGEST_FLOAT, _LARGEST_DOUBLE = 3.4028234663852886e38, 1.7976931348623157e308
ZERO = DIVISION_BY_ZERO


def literal_number(text: str, *, below_zero: bool = False) -> Value:
    """Read a number as it stands in a statement, with the letter of its type where it has one.

    below_zero: with the sign right before it, which belongs to the literal.
    """
    digits = text.rstrip("BDFLSYbdflsy")
    letter = text[len(digits) :].upper()
    if digits.isdecimal() and (letter in _WHOLE_LETTERS or not letter):
        number = -int(digits) if below_zero else int(digits)
        if not letter:
            return whole_number(number)
        kind = _WHOLE_LETTERS[letter]
        end = 2 ** (BITS[kind.name] - 1)
        require(-end <= number < end, f"a {kind} of so many digits.")
        return Value(f"CAST({number} AS {kind.duckdb})", kind, whole=number)
    return negative(_with_fraction(digits, letter)) if below_zero else _with_fraction(digits, letter)


def _with_fraction(digits: str, letter: str) -> Value:
    """Read a number that is none of fixed width."""
    if letter in ("F", "D"):
        kind = FLOAT if letter == "F" else DOUBLE
        require(abs(float(digits)) <= (_LARGEST_FLOAT if kind == FLOAT else _LARGEST_DOUBLE), f"a {kind} so large.")
        return Value(f"CAST({digits} AS {kind.duckdb})", kind)
    if "e" in digits.lower():
        require(not letter, "a decimal with an exponent.")
        require(abs(float(digits)) <= _LARGEST_DOUBLE, "a double so large.")
        return Value(f"CAST({digits} AS DOUBLE)", DOUBLE)
    if "." not in digits:
        return _whole_decimal(int(digits))
    whole, _, fraction = digits.partition(".")
    whole = whole.lstrip("0")
    precision = max(1, len(whole) + len(fraction))
    require(precision <= MAX_PRECISION, "a number of more than 38 digits.")
    if not fraction:
        return _whole_decimal(int(whole or "0"))
    kind = Kind("decimal", precision, len(fraction))
    held = Kind("decimal", max(precision, len(fraction) + 1), len(fraction))  # DuckDB counts a digit before the point
    return Value(f"{whole or '0'}.{fraction}", kind, held=held)


def whole_number(number: int) -> Value:
    """Return a whole number's literal: an int, a bigint, or a decimal without fraction."""
    if -(2**31) <= number < 2**31:
        return Value(_signed(number), Kind("int"), whole=number)
    if -(2**63) <= number < 2**63:
        return Value(f"CAST({number} AS BIGINT)", BIGINT, whole=number)
    return _whole_decimal(number)


def _whole_decimal(number: int) -> Value:
    precision = len(str(abs(number)))
    require(precision <= MAX_PRECISION, "a number of more than 38 digits.")
    return Value(f"CAST({number} AS DECIMAL({precision}, 0))", Kind("decimal", precision, 0))


def _signed(number: int) -> str:
    return str(number) if number >= 0 else f"({number})"


def arithmetic(operator: str, lhs: Value, rhs: Value) -> Value:
    """Add, subtract or multiply (``add``, ``sub``, ``mul``) two numbers."""
    lhs, rhs = _numbers(lhs, rhs)
    sign = _SIGNS[operator]
    kind = _common(lhs, rhs)
    if not kind.is_decimal:
        return Value(f"({_of_kind(lhs, kind)} {sign} {_of_kind(rhs, kind)})", kind)
    lhs, rhs = in_decimals(lhs), in_decimals(rhs)
    one, other = lhs.kind, rhs.kind
    if operator == "mul":
        natural = Kind("decimal", one.precision + other.precision + 1, one.scale + other.scale)
    else:
        scale = max(one.scale, other.scale)
        natural = Kind("decimal", max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    width = _width(operator, lhs.decimal, rhs.decimal)
    if width > _DIGITS_OF_64_BITS >= max(lhs.decimal.precision, rhs.decimal.precision):
        lhs = _in_128_bits(lhs)
        width = _width(operator, lhs.decimal, rhs.decimal)
    kind = adjusted(natural.precision, natural.scale)
    if kind.scale < natural.scale:
        return _shortened(operator, lhs, rhs, natural.scale, kind)
    return Value(f"({lhs.text} {sign} {rhs.text})", kind, held=decimal(width, kind.scale))


def _width(operator: str, one: Kind, other: Kind) -> int:
    """Return how many digits DuckDB takes for a result, if it has room for them."""
    if operator == "mul":
        return one.precision + other.precision
    return max(one.precision - one.scale, other.precision - other.scale) + max(one.scale, other.scale) + 1


def _in_128_bits(value: Value) -> Value:
    """Return a decimal in a type of more than 64 bits, with which DuckDB computes in as many."""
    held = Kind("decimal", _DIGITS_OF_64_BITS + 1, value.kind.scale)
    return Value(f"CAST({value.text} AS {held.duckdb})", value.kind, held=held)


def _shortened(operator: str, lhs: Value, rhs: Value, scale: int, kind: Kind) -> Value:
    """Round a result that has more digits after the point than Spark keeps; DuckDB has room for all of them."""
    require(scale <= MAX_PRECISION, "decimals that need more than 38 digits.")
    sides = [f"abs(CAST({side.text} AS DOUBLE))" for side in (lhs, rhs)]
    size = f"{sides[0]} * {sides[1]}" if operator == "mul" else f"{sides[0]} + {sides[1]}"
    result = f"CAST({lhs.text} {_SIGNS[operator]} {rhs.text} AS {kind.duckdb})"
    return Value(guard(f"{size} >= 4e{37 - scale}", "decimals that need more than 38 digits", result, kind), kind)


def divide(lhs: Value, rhs: Value) -> Value:
    """Divide; whole numbers as doubles, decimals exactly."""
    lhs, rhs = _numbers(lhs, rhs)
    kind = _common(lhs, rhs)
    if not kind.is_decimal:
        above, below = (cast(side, DOUBLE).text for side in (lhs, rhs))
        return Value(_guard_zero(rhs, f"{above} / {below}", DOUBLE), DOUBLE)
    return _guard_zero_value(rhs, quotient(in_decimals(lhs), in_decimals(rhs)))


def quotient(lhs: Value, rhs: Value) -> Value:
    """Divide two decimals, the lower of which is not zero, and round half away from zero."""
    one, other = lhs.kind, rhs.kind
    scale = max(6, one.scale + other.precision + 1)
    kind = adjusted(one.precision - one.scale + other.scale + scale, scale)
    return exact_quotient(lhs, rhs, kind)


def exact_quotient(lhs: Value, rhs: Value, kind: Kind) -> Value:
    """Divide two decimals into a decimal of a given scale."""
    one, other = lhs.kind, rhs.kind
    shift = kind.scale - one.scale + other.scale
    require(0 <= shift < MAX_PRECISION, "a quotient of decimals of more than 38 digits.")
    above = unscaled(lhs)
    room = f"abs({above}) >= CAST({10 ** (MAX_PRECISION - shift)} AS HUGEINT)"
    if shift:
        above = f"({above} * CAST({10**shift} AS HUGEINT))"
    below = unscaled(rhs)
    half = f"(abs({below}) // 2)"
    rounded = f"(({above} + CASE WHEN {above} < 0 THEN -{half} ELSE {half} END) // {below})"
    text = scaled(rounded, kind)
    if one.precision + shift > MAX_PRECISION:
        text = guard(room, "a quotient of decimals of more than 38 digits", text, kind)
    return Value(text, kind)


def unscaled(value: Value) -> str:
    """Return a decimal without its point, as a HUGEINT."""
    precision, scale = value.kind.precision, value.kind.scale
    text = value.exactly()
    if not scale:
        return f"CAST({text} AS HUGEINT)"
    digits = scale + 1
    if precision + digits > _DIGITS_OF_64_BITS >= max(precision, digits):
        digits = _DIGITS_OF_64_BITS + 1
    if precision + digits <= MAX_PRECISION:
        return f"CAST({text} * CAST({10**scale} AS DECIMAL({digits}, 0)) AS HUGEINT)"
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def scaled(text: str, kind: Kind) -> str:
    """Return a HUGEINT with a point put in, as a decimal."""
    if not kind.scale:
        return f"CAST({text} AS {kind.duckdb})"
    point = f"CAST(0.{'0' * (kind.scale - 1)}1 AS DECIMAL({kind.scale}, {kind.scale}))"
    return f"CAST(CAST({text} AS DECIMAL(38, 0)) * {point} AS {kind.duckdb})"


def whole_quotient(lhs: Value, rhs: Value) -> Value:
    """Divide with DIV: a bigint, without the rest."""
    lhs, rhs = _numbers(lhs, rhs)
    kind = _common(lhs, rhs)
    require(not kind.is_floating, "DIV of numbers that are not exact.")
    if kind.is_whole:
        above, below = cast(lhs, BIGINT).text, cast(rhs, BIGINT).text
        return Value(_guard_zero(rhs, f"{above} // {below}", BIGINT), BIGINT)
    lhs, rhs = in_decimals(lhs), in_decimals(rhs)
    scale = max(lhs.kind.scale, rhs.kind.scale)
    sides = []
    for side in (lhs, rhs):
        require(side.kind.precision - side.kind.scale + scale <= MAX_PRECISION, "DIV of decimals of many digits.")
        sides.append(unscaled(cast(side, decimal(side.kind.precision - side.kind.scale + scale, scale))))
    return Value(f"CAST({_guard_zero(rhs, f'{sides[0]} // {sides[1]}', BIGINT)} AS BIGINT)", BIGINT)


def remainder(lhs: Value, rhs: Value) -> Value:
    """Return what a division leaves, with the sign of what is divided."""
    above, below, kind, held = _for_remainder(lhs, rhs)
    return Value(_guard_zero(rhs, f"{above} % {below}", held or kind), kind, held=held)


def positive_remainder(lhs: Value, rhs: Value) -> Value:
    """Return what a division leaves, with the sign of the divisor where the two have the same."""
    above, below, kind, held = _for_remainder(lhs, rhs)
    rest = f"({above} % {below})"
    with_sign = f"CASE WHEN {rest} < 0 THEN ({rest} + {below}) % {below} ELSE {rest} END"
    text = with_sign if rhs.whole else guard(f"{rhs.text} = 0", ZERO, with_sign, held or kind)
    return Value(f"CAST({text} AS {kind.duckdb})", kind)


def _for_remainder(lhs: Value, rhs: Value) -> tuple[str, str, Kind, Kind | None]:
    lhs, rhs = _numbers(lhs, rhs)
    kind = _common(lhs, rhs)
    if not kind.is_decimal:
        below = _of_kind(rhs, kind)
        if kind.is_whole and rhs.whole == -1:
            below = "1"
        elif kind.is_whole and rhs.whole is None:  # by -1, the least number of a type has no quotient
            below = f"CASE WHEN {below} = -1 THEN 1 ELSE {below} END"
        return _of_kind(lhs, kind), below, kind, None
    one, other = as_decimal_kind(lhs), as_decimal_kind(rhs)
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    require(whole + scale <= MAX_PRECISION, "a remainder of decimals of more than 38 digits.")
    held = Kind("decimal", whole + scale, scale)
    result = Kind("decimal", min(one.precision - one.scale, other.precision - other.scale) + scale, scale)
    return f"CAST({lhs.text} AS {held.duckdb})", f"CAST({rhs.text} AS {held.duckdb})", result, held


def negative(value: Value) -> Value:
    """Change the sign of what is no bare literal."""
    if value.whole is not None:
        require(value.whole != -(2 ** (BITS[value.kind.name] - 1)), "the least number of a type without its sign.")
        value = value.computed()
    value = cast(value, DOUBLE) if value.kind == STRING else value
    require(value.kind.is_number, f"a sign before {value.kind}.")
    require_exact_sign(value)
    return Value(f"(-{value.text})", value.kind, held=value.held)


def require_exact_sign(value: Value) -> None:
    """Refuse a decimal that Spark rounds where it changes its sign."""
    digits = value.kind.precision if value.kind.is_decimal else 0
    require(digits <= _DIGITS_OF_A_SIGN, f"a sign of a decimal of more than {_DIGITS_OF_A_SIGN} digits.")


def in_decimals(value: Value) -> Value:
    """Return a whole number as a decimal."""
    kind = as_decimal_kind(value)
    return value if value.kind.is_decimal else Value(f"CAST({value.text} AS {kind.duckdb})", kind)


def as_decimal_kind(value: Value) -> Kind:
    """Return the decimal type that a number has beside a decimal: Spark counts the digits of no tinyint's literal."""
    if value.whole is not None and value.kind.is_whole and value.kind != TINYINT:
        return Kind("decimal", len(str(abs(value.whole))), 0)
    return as_decimal(value.kind)


def _numbers(lhs: Value, rhs: Value) -> tuple[Value, Value]:
    """Read texts beside numbers as Spark does: beside a whole number as a bigint, else as a double."""
    if lhs.kind == STRING and rhs.kind == STRING:
        lhs, rhs = cast(lhs, DOUBLE), cast(rhs, DOUBLE)
    elif lhs.kind == STRING:
        lhs = cast(lhs, common(lhs.kind, rhs.kind) or DOUBLE)
    elif rhs.kind == STRING:
        rhs = cast(rhs, common(lhs.kind, rhs.kind) or DOUBLE)
    for side in (lhs, rhs):
        if not side.kind.is_number:
            raise NoEquivalent(f"arithmetic with {side.kind}.")
    return lhs, rhs


def _common(lhs: Value, rhs: Value) -> Kind:
    kind = common(lhs.kind, rhs.kind)
    if kind is None:
        raise NoEquivalent(f"arithmetic with {lhs.kind} and {rhs.kind}.")
    return kind


def _of_kind(value: Value, kind: Kind) -> str:
    """Return the text of a value in a type; DuckDB takes a bare literal for the type of what is beside it."""
    is_bare = value.whole is not None and value.kind == INT
    return value.text if value.kind == kind or is_bare else cast(value, kind).text


def _guard_zero(divisor: Value, quotient: str, kind: Kind) -> str:
    if divisor.whole or _NOT_ZERO.fullmatch(divisor.text):
        return f"({quotient})"
    return guard(f"{divisor.text} = 0", ZERO, quotient, kind)


def _guard_zero_value(divisor: Value, value: Value) -> Value:
    return Value(_guard_zero(divisor, value.text, value.decimal), value.kind, held=value.held)
