"""Limits of arguments that decide what a call costs, or what it may reach: they have to be literals.

A schema of thousands of nested types keeps Spark's parser busy for minutes, a path ``$[2000000000]`` fills an array up
to that place, XPath's ``system-property`` tells the settings of the engine's process, and an XML schema is a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sql.allowlist.syntax import DEEPEST_TYPE
from sql.errors import ValueOutOfRange
from sql.limits.sizes import number_of, text_of
from sql.nodes import find_all, position_of

LONGEST_SCHEMA = 65_536
"""Characters: some thousands of columns."""

LARGEST_PLACE = 10_000
"""Index in a path into a VARIANT; an array is filled with nulls up to it."""

MOST_ROWS = 1_000
"""Rows of one call of stack: Spark generates code for each of them."""

MOST_PARTITIONS = 1_000
"""Partitions of range: each is a task."""

MOST_WINDOWS = 1_000
"""Windows of time that one row may belong to: Spark plans a projection for each."""

MOST_PIVOTED = 1_000
"""Columns of PIVOT or UNPIVOT: Spark plans as many expressions, or as many rows for each row."""

MOST_BINS = 10_000
"""Bins of histogram_numeric, which goes through all of them for every row."""

LARGEST_SKETCH = 20
"""Binary logarithm of the entries of a theta or tuple sketch; one of 2^26 takes half a gigabyte."""

FINEST_ERROR = 0.0001
SUREST = 0.999999
"""Error and confidence of count_min_sketch, which keeps 2 / error * log2(1 / (1 - confidence)) numbers."""

LONGEST_COUNT = 12
"""Digits of a number in a duration."""

_SCHEMA_FUNCTIONS = frozenset({"schema_of_csv", "schema_of_json", "schema_of_xml"})
_FILE_OPTION = "rowvalidationxsdpath"
_ENGINE_PROPERTY = "system-property"
_NUMBERS = re.compile(r"[0-9]+")
_UNIT_MICROSECONDS: Mapping[str, int] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

Arguments = Sequence[exp.Expr]


@dataclass(frozen=True, slots=True)
class ArgumentLimit:
    """Limit of a function's arguments.

    wanted: the end of a sentence "<function> takes ...".
    holds: returns True if a call with these arguments may run.
    """

    wanted: str
    holds: Callable[[Arguments], bool]


def check_arguments(tree: exp.Expr) -> None:
    """Raise ValueOutOfRange for the first call with an argument beyond its limit."""
    for pivot in find_all(tree, exp.Pivot):
        values = sum(len(field.expressions) for field in pivot.args.get("fields") or ())
        if values * len(pivot.expressions) > MOST_PIVOTED:
            raise ValueOutOfRange(f"PIVOT and UNPIVOT take {MOST_PIVOTED:,} columns at most.", position_of(pivot))
    for call in find_all(tree, exp.Anonymous):
        limits = LIMITS.get(call.name.lower(), ())
        if limits and any(isinstance(argument, exp.Kwarg) for argument in call.expressions):
            raise ValueOutOfRange(
                f"{call.name.lower()} takes its arguments by position here, not by name.", position_of(call)
            )
        for limit in limits:
            if not limit.holds(call.expressions):
                raise ValueOutOfRange(f"{call.name.lower()} takes {limit.wanted}.", position_of(call))


def _at(place: int, holds: Callable[[exp.Expr], bool]) -> Callable[[Arguments], bool]:
    """Return a condition on the argument at a place; it holds if there is no such argument."""
    return lambda arguments: place >= len(arguments) or holds(arguments[place])


def _number(place: int, most: float, what: str) -> ArgumentLimit:
    def holds(argument: exp.Expr) -> bool:
        value = number_of(argument)
        return value is not None and abs(value) <= most

    return ArgumentLimit(f"{what} of at most {most:,}, as a number", _at(place, holds))


def _is_schema(argument: exp.Expr) -> bool:
    if isinstance(argument, exp.Anonymous) and argument.name.lower() in _SCHEMA_FUNCTIONS:
        return True
    text = text_of(argument)
    return text is not None and len(text) <= LONGEST_SCHEMA and _depth(text) <= DEEPEST_TYPE


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in text:
        depth += (sign in "<({[") - (sign in ">)}]")
        deepest = max(deepest, depth)
    return deepest


def _is_document(argument: exp.Expr) -> bool:
    text = text_of(argument)
    return text is not None and max(_depth(text), _tag_depth(text)) <= DEEPEST_TYPE


def _tag_depth(text: str) -> int:
    """Return the depth of nested elements of XML."""
    depth = deepest = 0
    for before, sign, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if sign == "<" and after not in "/!?":
            depth += 1
        elif (sign == "<" and after == "/") or (sign == ">" and before == "/"):
            depth -= 1
        deepest = max(deepest, depth)
    return deepest


def _names_no_file(argument: exp.Expr) -> bool:
    """Return True for options as a map with literal keys, none of which names a file."""
    if not isinstance(argument, exp.Anonymous) or argument.name.lower() != "map":
        return False
    keys = [text_of(key) for key in argument.expressions[::2]]
    return all(key is not None and key.strip().lower() != _FILE_OPTION for key in keys)


def _is_xpath(argument: exp.Expr) -> bool:
    text = text_of(argument)
    return text is not None and _ENGINE_PROPERTY not in text


def _is_variant_path(argument: exp.Expr) -> bool:
    text = text_of(argument)
    return text is not None and all(len(n) < 9 and int(n) <= LARGEST_PLACE for n in _NUMBERS.findall(text))


def _has_few_windows(arguments: Arguments) -> bool:
    if len(arguments) < len(("time", "duration", "slide")):
        return True
    duration, slide = (_microseconds(argument) for argument in arguments[1:3])
    return duration is not None and slide is not None and 0 < duration <= slide * MOST_WINDOWS


def _microseconds(argument: exp.Expr) -> int | None:
    """Return the length of a duration, such as the text ``1 day 2 hours``; None: it is not a literal duration."""
    number = number_of(argument) if text_of(argument) is None else None
    if number is not None:
        return int(number)
    words = (text_of(argument) or "").lower().removeprefix("interval ").split()
    total = 0
    for count, unit in zip(words[::2], words[1::2], strict=False):
        unit_microseconds = _UNIT_MICROSECONDS.get(unit.removesuffix("s"))
        if unit_microseconds is None or not count.isdecimal() or len(count) > LONGEST_COUNT:
            return None
        total += int(count) * unit_microseconds
    return total if words and len(words) % 2 == 0 else None


_SCHEMA = ArgumentLimit(
    f"its schema as a string literal of at most {LONGEST_SCHEMA:,} characters, with types nested at most "
    f"{DEEPEST_TYPE} deep, or as a call of schema_of_csv, schema_of_json or schema_of_xml",
    _at(1, _is_schema),
)
_DOCUMENT = ArgumentLimit(f"a string literal, nested at most {DEEPEST_TYPE} deep", _at(0, _is_document))
_TYPE = ArgumentLimit(f"its type as a string literal, nested at most {DEEPEST_TYPE} deep", _at(2, _is_schema))
_XPATH = ArgumentLimit(f"its path as a string literal without {_ENGINE_PROPERTY}", _at(1, _is_xpath))
_PATH = ArgumentLimit(f"its path as a string literal with no number above {LARGEST_PLACE:,}", _at(1, _is_variant_path))
_ENTRIES = "a logarithm of its entries"


def _options(place: int) -> ArgumentLimit:
    return ArgumentLimit(
        "its options as map('name', 'value', ...) with literal names, and without rowValidationXSDPath",
        _at(place, _names_no_file),
    )


def _sketches() -> Iterator[tuple[str, tuple[ArgumentLimit, ...]]]:
    yield "theta_sketch_agg", (_number(1, LARGEST_SKETCH, _ENTRIES),)
    yield "theta_union_agg", (_number(1, LARGEST_SKETCH, _ENTRIES),)
    yield "theta_union", (_number(2, LARGEST_SKETCH, _ENTRIES),)
    for kind in ("double", "integer"):
        yield f"tuple_sketch_agg_{kind}", (_number(2, LARGEST_SKETCH, _ENTRIES),)
        yield f"tuple_union_agg_{kind}", (_number(1, LARGEST_SKETCH, _ENTRIES),)
        yield f"tuple_union_{kind}", (_number(2, LARGEST_SKETCH, _ENTRIES),)
        yield f"tuple_union_theta_{kind}", (_number(2, LARGEST_SKETCH, _ENTRIES),)


LIMITS: Mapping[str, tuple[ArgumentLimit, ...]] = {
    **dict.fromkeys(("from_csv", "from_json"), (_SCHEMA,)),
    "from_xml": (_SCHEMA, _options(2)),
    "to_xml": (_options(1),),
    "schema_of_xml": (_DOCUMENT, _options(1)),
    **dict.fromkeys(("schema_of_csv", "schema_of_json"), (_DOCUMENT,)),
    **dict.fromkeys(("variant_get", "try_variant_get"), (_TYPE,)),
    **dict.fromkeys(("variant_insert", "variant_set", "variant_array_append"), (_PATH,)),
    **dict.fromkeys(("try_variant_insert", "try_variant_set", "try_variant_array_append"), (_PATH,)),
    **dict.fromkeys(
        (
            *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
            *("xpath_short", "xpath_string"),
        ),
        (_XPATH,),
    ),
    "histogram_numeric": (_number(1, MOST_BINS, "a number of bins"),),
    "count_min_sketch": (
        ArgumentLimit(
            f"a relative error of {FINEST_ERROR} or more",
            _at(1, lambda argument: (number_of(argument) or 0.0) >= FINEST_ERROR),
        ),
        ArgumentLimit(
            f"a confidence of {SUREST} or less",
            _at(2, lambda argument: (number_of(argument) or 1.0) <= SUREST),
        ),
    ),
    "stack": (_number(0, MOST_ROWS, "a number of rows"),),
    "range": (_number(3, MOST_PARTITIONS, "a number of partitions"),),
    "window": (
        ArgumentLimit(
            f"a literal duration and slide such as '1 day', by which a row is in {MOST_WINDOWS:,} windows at most",
            _has_few_windows,
        ),
    ),
    **dict(_sketches()),
}
"""Functions whose arguments have a limit."""
