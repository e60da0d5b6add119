"""Functions of one row. Only those stand here whose answers were compared on both engines.

It is long because it is a list: a rule for each function, and how many arguments it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engines.duckdb.writer.functions import comparisons, numbers, patterns, texts, times
from engines.duckdb.writer.functions.casts import as_text, cast
from engines.duckdb.writer.kinds import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Kind,
    decimal,
    parse_kind,
)
from engines.duckdb.writer.signatures import require_accepted
from engines.duckdb.writer.values import Value, at_least_zero, guard, listed, require, string

Rule = Callable[[list[Value]], Value]


def _template(text: str, gives: Kind, *takes: Kind) -> Rule:
    """Return the rule of a function that DuckDB has alike, or can compute from what it has.

    text: with {0}, {1} for the arguments. takes: their types; each argument is cast to its own.
    """

    def rule(values: list[Value]) -> Value:
        require(len(values) == len(takes), "another number of arguments than usual.")
        arguments = [_argument(value, kind) for value, kind in zip(values, takes, strict=True)]
        return Value(text.format(*arguments), gives)

    return rule


def _argument(value: Value, kind: Kind) -> str:
    require(value.kind != BINARY or kind == BINARY, "a binary in place of another type.")
    if kind == DATE:
        return times.day_of(value).text
    if kind == DOUBLE and value.kind.is_floating:
        return value.text if value.kind == DOUBLE else f"CAST({value.text} AS DOUBLE)"
    return cast(value, kind).text


# ---------------------------------------------------------------------- numbers


def _same_kind(text: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        value = cast(values[0], DOUBLE) if values[0].kind == STRING else values[0]
        require(value.kind.is_number, "a function of a number.")
        numbers.require_exact_sign(value)
        return Value(text.format(_typed(value)), value.kind, held=value.held)

    return rule


def _typed(value: Value) -> str:
    """Return a text that DuckDB takes for a value of its type, also of a literal."""
    return f"CAST({value.text} AS {value.kind.duckdb})" if value.whole is not None else value.text


def _rounded_up_or_down(function: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 1, f"{function} with a number of digits.")
        value = values[0]
        if value.kind.is_whole:
            return cast(value, BIGINT).computed()
        if value.kind.is_decimal:
            if not value.kind.scale:
                return value
            kind = decimal(value.kind.precision - value.kind.scale + 1, 0)
            return Value(f"CAST({function}({value.text}) AS {kind.duckdb})", kind)
        exact = cast(value, DOUBLE).text
        inside = f"CAST({function}({exact}) AS BIGINT)"
        return Value(guard(f"NOT (abs({exact}) < 9e18)", "a number too large for a bigint", inside, BIGINT), BIGINT)

    return rule


def _round(values: list[Value]) -> Value:
    """Round half away from zero; a double is rounded by its digits, as it is written."""
    value = cast(values[0], DOUBLE) if values[0].kind == STRING else values[0]
    places = values[1].whole if len(values) > 1 else 0
    require(places is not None and value.kind.is_number, "ROUND to anything but a number of digits.")
    places = places or 0
    if value.kind.is_whole:
        require(places >= 0 or value.kind.name in ("int", "bigint"), "ROUND of a small number.")
        if places >= 0:
            return value.computed()
        return Value(f"CAST(round({_typed(value)}, {places}) AS {value.kind.duckdb})", value.kind)
    if value.kind.is_decimal:
        whole = value.kind.precision - value.kind.scale + 1
        if places < 0:
            kind = decimal(max(whole, 1 - places), 0)
            require(kind.precision <= 37, "ROUND of a decimal of many digits.")
            factor = f"CAST({10**-places} AS DECIMAL({1 - places}, 0))"
            wide = f"CAST(trunc({value.text}) AS HUGEINT)"
            half = 10**-places // 2
            near = f"(({wide} + CASE WHEN {wide} < 0 THEN -{half} ELSE {half} END) // {10**-places})"
            return Value(f"CAST({near} * CAST({factor} AS HUGEINT) AS {kind.duckdb})", kind)
        scale = min(value.kind.scale, places)
        kind = decimal(whole + scale, scale)
        if scale == value.kind.scale:
            return Value(f"CAST({value.text} AS {kind.duckdb})", kind)
        return Value(f"CAST(round({value.text}, {scale}) AS {kind.duckdb})", kind)
    require(0 <= places <= 15 and value.kind == DOUBLE, "ROUND of a float, or to many digits.")
    digits = f"CAST(round(CAST(CAST({value.text} AS VARCHAR) AS DECIMAL(38, 22)), {places}) AS VARCHAR)"
    text = f"CAST({digits} AS DOUBLE)"
    large = f"NOT (abs({value.text}) < 1e15)"
    fraction = f"{value.text} <> trunc({value.text})"  # of so large a number, Java writes other last digits
    unrounded = guard(fraction, "rounding of a large number with a fraction", value.text, DOUBLE)
    return Value(f"CASE WHEN {value.text} IS NULL THEN NULL WHEN {large} THEN {unrounded} ELSE {text} END", DOUBLE)


def _bround(values: list[Value]) -> Value:
    """Round half to the even digit."""
    value, places = values[0], values[1].whole if len(values) > 1 else 0
    require(value.kind.is_decimal and places is not None and places >= 0, "BROUND of anything but a decimal.")
    scale = min(value.kind.scale, places or 0)
    kind = decimal(value.kind.precision - value.kind.scale + 1 + scale, scale)
    rounded = value.text if scale == value.kind.scale else f"round_even({value.text}, {scale})"
    return Value(f"CAST({rounded} AS {kind.duckdb})", kind)


def _power(values: list[Value]) -> Value:
    """Raise to a power; Java knows no power of 1 or -1 whose exponent is none, or is infinite."""
    base, exponent = (_argument(value, DOUBLE) for value in values)
    power = f"pow({base}, {exponent})"
    if values[1].whole is not None:
        return Value(power, DOUBLE)
    unknown = f"isnan({exponent}) OR (abs({base}) = 1 AND NOT isfinite({exponent}))"
    return Value(f"CASE WHEN {unknown} THEN {base} * CAST('NaN' AS DOUBLE) ELSE {power} END", DOUBLE)


def _logarithm(values: list[Value]) -> Value:
    if len(values) == 1:
        return _positive("ln({0})")(values)
    base, number = (_argument(value, DOUBLE) for value in values)
    return Value(f"CASE WHEN {base} > 0 AND {number} > 0 THEN ln({number}) / ln({base}) END", DOUBLE)


def _positive(text: str) -> Rule:
    """Return the rule of a function of positive numbers; of others, it is NULL."""

    def rule(values: list[Value]) -> Value:
        require(len(values) == 1, "a logarithm.")
        number = _argument(values[0], DOUBLE)
        return Value(f"CASE WHEN {number} > 0 THEN {text.format(number)} END", DOUBLE)

    return rule


def _binary(function: Callable[[Value, Value], Value]) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 2, "another number of arguments than usual.")
        return function(values[0], values[1])

    return rule


# ---------------------------------------------------------------------- choices


def _coalesce(values: list[Value]) -> Value:
    aligned, kind = comparisons.in_one_kind(values)
    return Value(f"coalesce({listed(aligned)})", kind)


def _extreme(name: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) > 1, f"{name} of one.")
        aligned, kind = comparisons.in_one_kind(values)
        return Value(f"{name}({listed(aligned)})", kind)

    return rule


def _nullif(values: list[Value]) -> Value:
    require(len(values) == 2, "NULLIF.")
    equal = comparisons.compare("=", values[0], values[1]).text
    aligned, kind = comparisons.in_one_kind([values[0]])
    return Value(f"CASE WHEN {equal} THEN NULL ELSE {aligned[0].text} END", kind)


def _nvl2(values: list[Value]) -> Value:
    require_accepted("CASE", values[1:])
    aligned, kind = comparisons.in_one_kind(values[1:])
    return Value(f"CASE WHEN {values[0].text} IS NOT NULL THEN {aligned[0].text} ELSE {aligned[1].text} END", kind)


def _decode(values: list[Value]) -> Value:
    this, rest = values[0], values[1:]
    if len(rest) % 2 == 0:
        rest.append(Value("CAST(NULL AS VARCHAR)", STRING))  # Spark's default is a text, which widens the others
    for wanted in rest[:-1:2]:
        require_accepted("<=>", [this, wanted])
    results = [*rest[1::2], rest[-1]]
    require_accepted("CASE", results)
    results, kind = comparisons.in_one_kind(results)
    tests = [comparisons.compare("IS NOT DISTINCT FROM", this, wanted).text for wanted in rest[:-1:2]]
    text = "".join(f" WHEN {test} THEN {result.text}" for test, result in zip(tests, results, strict=False))
    return Value(f"CASE{text} ELSE {results[-1].text} END", kind)


def _null_test(word: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        return Value(f"({values[0].text} IS {word})", BOOLEAN)

    return rule


def _null_if_zero(values: list[Value]) -> Value:
    value = values[0]
    require(value.kind.is_number, "NULLIFZERO.")
    return Value(f"CASE WHEN {value.text} = 0 THEN NULL ELSE {_typed(value)} END", value.kind, held=value.held)


def _zero_if_null(values: list[Value]) -> Value:
    return _coalesce([values[0], numbers.whole_number(0)])


def _as(name: str) -> Rule:
    return lambda values: cast(values[0], parse_kind(name)).computed()


# ---------------------------------------------------------------------- texts


def _concat(values: list[Value]) -> Value:
    require(bool(values), "CONCAT of nothing.")
    return Value(f"({' || '.join(as_text(value) for value in values)})", STRING)


def _concat_ws(values: list[Value]) -> Value:
    separator = cast(values[0], STRING).text
    if len(values) == 1:
        return Value(f"CASE WHEN {separator} IS NOT NULL THEN '' END", STRING)
    parts = ", ".join(as_text(cast(value, STRING)) for value in values[1:])
    return Value(f"concat_ws({separator}, {parts})", STRING)


def _cased(write: Callable[[str], str]) -> Rule:
    return lambda values: Value(write(cast(values[0], STRING).text), STRING)


def _length(values: list[Value]) -> Value:
    if values[0].kind == BINARY:
        return Value(f"CAST(octet_length({values[0].text}) AS INTEGER)", INT)
    return Value(f"CAST(length({cast(values[0], STRING).text}) AS INTEGER)", INT)


def _octet_length(values: list[Value]) -> Value:
    if values[0].kind == BINARY:
        return _length(values)
    return Value(f"CAST(strlen({cast(values[0], STRING).text}) AS INTEGER)", INT)


def _end(side: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 2, side.upper())
        return Value(f"{side}({cast(values[0], STRING).text}, {at_least_zero(cast(values[1], INT))})", STRING)

    return rule


def _trimmed(name: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 1, f"{name} with signs.")
        return Value(f"{name}({cast(values[0], STRING).text}, ' ')", STRING)

    return rule


def _hashed(function: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 1 and values[0].kind in (STRING, NULL), f"{function} of anything but a text.")
        return Value(f"{function}({cast(values[0], STRING).text})", STRING)

    return rule


def _sha2(values: list[Value]) -> Value:
    require(len(values) == 2 and values[1].whole in (0, 256), "SHA2 of another length than 256.")
    return _hashed("sha256")(values[:1])


def _hex(values: list[Value]) -> Value:
    value = values[0]
    require(value.kind.is_whole or value.kind == STRING, f"HEX of {value.kind}.")
    return Value(f"hex({value.text if value.kind == STRING else cast(value, BIGINT).text})", STRING)


def _ascii(values: list[Value]) -> Value:
    text = cast(values[0], STRING).text
    return Value(f"CASE WHEN {text} = '' THEN CAST(0 AS INTEGER) ELSE CAST(unicode({text}) AS INTEGER) END", INT)


def _regexp_extract(values: list[Value]) -> Value:
    return patterns.extracted(values[0], values[1], values[2] if len(values) > 2 else numbers.whole_number(1))


def _regexp_replace(values: list[Value]) -> Value:
    require(len(values) == 3, "REGEXP_REPLACE with a start.")
    return patterns.replaced(values[0], values[1], values[2])


def _translate(values: list[Value]) -> Value:
    signs = [value.literal for value in values[1:]]
    require(len(signs) == 2 and all(sign is not None and sign.isascii() for sign in signs), "TRANSLATE.")
    return Value(f"translate({cast(values[0], STRING).text}, {values[1].text}, {values[2].text})", STRING)


def _split_part(values: list[Value]) -> Value:
    require(len(values) == 3 and bool(values[1].literal) and bool(values[2].whole), "SPLIT_PART without literals.")
    return Value(f"split_part({cast(values[0], STRING).text}, {values[1].text}, {values[2].text})", STRING)


def _substring_index(values: list[Value]) -> Value:
    require(len(values) == 3 and len(values[1].literal or "") == 1, "SUBSTRING_INDEX with more than one sign.")
    require(values[2].whole in (1, -1), "SUBSTRING_INDEX with another number than 1.")
    return _split_part(values)


def _levenshtein(values: list[Value]) -> Value:
    require(len(values) == 2, "LEVENSHTEIN with a limit.")
    one, other = (cast(value, STRING).text for value in values)
    distance = f"CAST(levenshtein({one}, {other}) AS INTEGER)"
    return Value(texts.plain_only(one, texts.plain_only(other, distance, INT), INT), INT)


def _chr(values: list[Value]) -> Value:
    number = cast(values[0], BIGINT).text
    character = f"CASE WHEN {number} < 0 THEN '' ELSE chr(CAST({number} % 256 AS INTEGER)) END"
    return Value(guard(f"{number} % 256 = 0", "the character of zero", character, STRING), STRING)


def _repeat(values: list[Value]) -> Value:
    require(len(values) == 2, "REPEAT.")
    return Value(f"repeat({cast(values[0], STRING).text}, {at_least_zero(cast(values[1], INT))})", STRING)


def _reversed(values: list[Value]) -> Value:
    text = cast(values[0], STRING).text
    return Value(texts.plain_only(text, f"reverse({text})", STRING), STRING)


# ---------------------------------------------------------------------- times


def _parted(name: str) -> Rule:
    return lambda values: times.part(
        name, values[0] if values[0].kind != STRING or name in _CLOCK else times.day_of(values[0])
    )


_CLOCK = ("HOUR", "MINUTE", "SECOND")


def _second(values: list[Value]) -> Value:
    value = values[0] if values[0].kind in (TIMESTAMP, TIMESTAMP_NTZ) else cast(values[0], TIMESTAMP)
    return Value(f"CAST(second({times.naive(value)}) AS INTEGER)", INT)


def _date_part(values: list[Value]) -> Value:
    require(values[0].literal is not None, "DATE_PART of anything but a literal.")
    part = (values[0].literal or "").upper()
    require_accepted("EXTRACT:HOUR" if part.startswith(_CLOCK) else "EXTRACT:YEAR", values[1:])
    return times.part(values[0].literal or "", values[1])


def _date_add(sign: str) -> Rule:
    def rule(values: list[Value]) -> Value:
        require(len(values) == 2 and values[1].kind.is_whole and values[1].kind != BIGINT, "DATE_ADD with a unit.")
        return Value(f"({times.day_of(values[0]).text} {sign} {cast(values[1], INT).text})", DATE)

    return rule


def _datediff(values: list[Value]) -> Value:
    require(len(values) == 2, "DATEDIFF with a unit.")
    one, other = (times.day_of(value).text for value in values)
    return Value(f"CAST({one} - {other} AS INTEGER)", INT)


def _add_months(values: list[Value]) -> Value:
    require(len(values) == 2, "ADD_MONTHS.")
    return times.add_months(times.day_of(values[0]), cast(values[1], INT))


def _date_trunc(values: list[Value]) -> Value:
    require(len(values) == 2, "DATE_TRUNC.")
    return times.truncated(values[1], values[0], TIMESTAMP)


def _trunc(values: list[Value]) -> Value:
    require(len(values) == 2, "TRUNC of a number.")
    return times.truncated(values[0], values[1], DATE)


def _to_date(values: list[Value]) -> Value:
    require(len(values) == 1 or values[1].literal == "yyyy-MM-dd", "TO_DATE with a format.")
    require(len(values) == 1 or values[0].kind in (DATE, TIMESTAMP, TIMESTAMP_NTZ), "TO_DATE of a text with a format.")
    return cast(values[0], DATE)


def _to_timestamp(values: list[Value]) -> Value:
    require(len(values) == 1, "TO_TIMESTAMP with a format.")
    return cast(values[0], TIMESTAMP)


def _unix_seconds(values: list[Value]) -> Value:
    require(len(values) == 1 and values[0].kind.is_time, "seconds since 1970 of anything but a time.")
    return cast(cast(values[0], TIMESTAMP), BIGINT)


def _unix_timestamp(values: list[Value]) -> Value:
    """Return seconds since 1970, where half a second before is zero."""
    require(len(values) == 1 and values[0].kind.is_time, "seconds since 1970 of anything but a time.")
    return Value(f"(epoch_us({cast(values[0], TIMESTAMP).text}) // 1000000)", BIGINT)


def _of_two_numbers(text: str) -> Rule:
    return _template(text, DOUBLE, DOUBLE, DOUBLE)


def _of_number(text: str) -> Rule:
    return _template(text, DOUBLE, DOUBLE)


def _sign(values: list[Value]) -> Value:
    value = _argument(values[0], DOUBLE)
    return Value(f"CASE WHEN isnan({value}) OR {value} = 0 THEN {value} ELSE CAST(sign({value}) AS DOUBLE) END", DOUBLE)


def _now(values: list[Value]) -> Value:
    return Value("CAST(now() AS TIMESTAMPTZ)", TIMESTAMP)


SCALARS: Mapping[str, Rule] = {
    # numbers
    "abs": _same_kind("abs({0})"),
    "positive": _same_kind("{0}"),
    "negative": lambda values: numbers.negative(values[0]),
    "ceil": _rounded_up_or_down("ceil"),
    "ceiling": _rounded_up_or_down("ceil"),
    "floor": _rounded_up_or_down("floor"),
    "round": _round,
    "bround": _bround,
    "factorial": _template("CASE WHEN {0} BETWEEN 0 AND 20 THEN CAST(factorial({0}) AS BIGINT) END", BIGINT, INT),
    "mod": _binary(numbers.remainder),
    "pmod": _binary(numbers.positive_remainder),
    "div": _binary(numbers.whole_quotient),
    "power": _power,
    "pow": _power,
    "sqrt": _of_number("sqrt({0})"),
    "cbrt": _of_number("cbrt({0})"),
    "exp": _of_number("exp({0})"),
    "ln": _positive("ln({0})"),
    "log": _logarithm,
    "log10": _positive("log10({0})"),
    "log2": _positive("log2({0})"),
    "degrees": _of_number("degrees({0})"),
    "radians": _of_number("radians({0})"),
    "sin": _of_number("sin({0})"),
    "cos": _of_number("cos({0})"),
    "tan": _of_number("tan({0})"),
    "atan": _of_number("atan({0})"),
    "atan2": _of_two_numbers("atan2({0} + 0e0, {1} + 0e0)"),
    "sign": _sign,
    "signum": _sign,
    "pi": _template("pi()", DOUBLE),
    "isnan": _template("coalesce(isnan({0}), FALSE)", BOOLEAN, DOUBLE),
    # choices
    "coalesce": _coalesce,
    "nvl": _coalesce,
    "ifnull": _coalesce,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "nullif": _nullif,
    "nvl2": _nvl2,
    "decode": _decode,
    "isnull": _null_test("NULL"),
    "isnotnull": _null_test("NOT NULL"),
    "nullifzero": _null_if_zero,
    "zeroifnull": _zero_if_null,
    "equal_null": _binary(lambda one, other: comparisons.compare("IS NOT DISTINCT FROM", one, other)),
    # casts
    **{name: _as(name) for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean")},
    **{name: _as(name) for name in ("date", "timestamp", "decimal", "binary")},
    # texts
    "concat": _concat,
    "concat_ws": _concat_ws,
    "upper": _cased(texts.folded_upper),
    "ucase": _cased(texts.folded_upper),
    "lower": _cased(texts.folded_lower),
    "lcase": _cased(texts.folded_lower),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _length),
    "octet_length": _octet_length,
    "bit_length": lambda values: Value(f"({_octet_length(values).text} * 8)", INT),
    "substring": texts.substring,
    "substr": texts.substring,
    "left": _end("left"),
    "right": _end("right"),
    "lpad": texts.padded("l"),
    "rpad": texts.padded("r"),
    "trim": _trimmed("trim"),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    "instr": lambda values: texts.located([values[1], values[0]]),
    "locate": texts.located,
    "position": texts.located,
    "split_part": _split_part,
    "substring_index": _substring_index,
    "levenshtein": _levenshtein,
    "chr": _chr,
    "char": _chr,
    "repeat": _repeat,
    "space": lambda values: _repeat([string(" "), *values]),
    "replace": _template("replace({0}, {1}, {2})", STRING, STRING, STRING, STRING),
    "reverse": _reversed,
    "startswith": _template("starts_with({0}, {1})", BOOLEAN, STRING, STRING),
    "endswith": _template("ends_with({0}, {1})", BOOLEAN, STRING, STRING),
    "contains": _template("contains({0}, {1})", BOOLEAN, STRING, STRING),
    "translate": _translate,
    "ascii": _ascii,
    "md5": _hashed("md5"),
    "sha": _hashed("sha1"),
    "sha1": _hashed("sha1"),
    "sha2": _sha2,
    "hex": _hex,
    "regexp_extract": _regexp_extract,
    "regexp_replace": _regexp_replace,
    "regexp_like": _binary(patterns.matches),
    "rlike": _binary(patterns.matches),
    "regexp": _binary(patterns.matches),
    "like": _binary(lambda value, pattern: patterns.like(value, pattern, "\\")),
    "ilike": _binary(lambda value, pattern: patterns.like(value, pattern, "\\", folded=True)),
    # times
    "year": _parted("YEAR"),
    "quarter": _parted("QUARTER"),
    "month": _parted("MONTH"),
    "day": _parted("DAY"),
    "dayofmonth": _parted("DAY"),
    "dayofweek": _parted("DOW"),
    "dayofyear": _parted("DOY"),
    "weekofyear": _parted("WEEK"),
    "weekday": _template("CAST(isodow({0}) - 1 AS INTEGER)", INT, DATE),
    "hour": _parted("HOUR"),
    "minute": _parted("MINUTE"),
    "second": _second,
    "date_part": _date_part,
    "datepart": _date_part,
    "extract": _date_part,
    "date_add": _date_add("+"),
    "dateadd": _date_add("+"),
    "date_sub": _date_add("-"),
    "datediff": _datediff,
    "date_diff": _datediff,
    "add_months": _add_months,
    "last_day": _template("last_day({0})", DATE, DATE),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "date_format": _binary(times.formatted),
    "unix_date": _template("CAST({0} - DATE '1970-01-01' AS INTEGER)", INT, DATE),
    "unix_seconds": _unix_seconds,
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "next_day": _binary(lambda day, name: times.next_weekday(times.day_of(day), name)),
    "dayname": _template("strftime({0}, '%a')", STRING, DATE),
    "monthname": _template("strftime({0}, '%b')", STRING, DATE),
    "current_date": _template("current_date", DATE),
    "curdate": _template("current_date", DATE),
    "current_timestamp": _now,
    "now": _now,
}
_ANY_NUMBER = 100_000
SCALAR_ARGUMENTS: Mapping[str, range] = {
    **dict.fromkeys("pi current_date curdate current_timestamp now".split(), range(1)),
    **dict.fromkeys("round bround log to_date to_timestamp unix_timestamp to_unix_timestamp".split(), range(1, 3)),
    **dict.fromkeys(
        """
        mod pmod div power pow atan2 nvl ifnull nullif equal_null left right instr levenshtein repeat startswith
        endswith contains sha2 regexp_like rlike regexp like ilike date_part datepart extract date_add dateadd date_sub
        datediff date_diff add_months date_trunc trunc date_format next_day
        """.split(),
        range(2, 3),
    ),
    **dict.fromkeys("substring substr lpad rpad locate position regexp_extract".split(), range(2, 4)),
    **dict.fromkeys("nvl2 split_part substring_index replace translate regexp_replace".split(), range(3, 4)),
    "concat": range(_ANY_NUMBER),
    **dict.fromkeys(("coalesce", "concat_ws"), range(1, _ANY_NUMBER)),
    **dict.fromkeys(("greatest", "least"), range(2, _ANY_NUMBER)),
    "decode": range(3, _ANY_NUMBER),
}
"""How many arguments a function takes; one where nothing is said."""
