"""Values of every type, made from a seed: bounds of types, powers of two and ten, halves, odd texts, and random ones.

They stand in one Parquet table, a column for each type, so that no engine computes with them before it runs.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sql.tables import Column, TableSource

NULLS = 0.03  # share of values
_DECIMALS = ((9, 0), (5, 2), (18, 4), (20, 0), (38, 0), (38, 10), (6, 6))
_WHOLE_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SPECIAL_DOUBLES = (
    0.0,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
)
_SPACES = ("", "", "", "", "", " ", "\t", "\n", "\r", "\x01", "\x00", "\x1f", "\x7f", "\u00a0", "\u3000", "  ")
_WORDS = """
    true false t f y n yes no 1 0 TRUE False tRuE T nan NaN inf Infinity -Infinity +inf infinity null NULL abc a x1 ß
    Zoë 日本 1L 1.5d 1.5f 2.D 0x1F 1_000 1e 1e+ .e1 . - + +- -- 1. .5 -.5 +.5e1 00 007 -0 1,000 ١٢ e5 1e5 -1E-5 1.5E3
    1e400 1e-400 1.0e38 9e37 99999999999999999999999999999999999999 0.5 -0.5 1.25 2.5 3.5 2147483647 2147483648
    -2147483649 9223372036854775807 9223372036854775808 128 -129 32768 now today epoch tomorrow
""".split()
_DAY_FORMS = (
    "{0:04d}-{1:02d}-{2:02d}",
    "{0}-{1}-{2}",
    "{0:04d}-{1:02d}",
    "{0:04d}",
    "{0:04d}/{1:02d}/{2:02d}",
    "{0:04d}{1:02d}{2:02d}",
)
_CLOCKS = ("", "", " 00:00:00", "T12:34:56", " 23:59:59.999999", " 1:2:3", " 12:34", " 24:00:00", " 12:34:56.1234567")
_ZONES = ("", "", "", "Z", "+00:00", " UTC", "+01:30", " Europe/Paris")


def kinds() -> Mapping[str, pa.DataType]:
    """Return the types of values by Spark's names, with Arrow's types."""
    return {
        **{
            "boolean": pa.bool_(),
            "tinyint": pa.int8(),
            "smallint": pa.int16(),
            "int": pa.int32(),
            "bigint": pa.int64(),
        },
        **{"float": pa.float32(), "double": pa.float64(), "string": pa.string(), "date": pa.date32()},
        **{"timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us")},
        **{f"decimal({precision},{scale})": pa.decimal128(precision, scale) for precision, scale in _DECIMALS},
    }


def column_of(kind: str) -> str:
    """Return the name of the column that has a type."""
    return kind.translate(str.maketrans("(,", "__", ")"))


def write_values(folder: Path, count: int, seed: int) -> TableSource:
    """Write the table: a number, and of each type the columns c_TYPE and o_TYPE, of the same values in other orders."""
    chance = random.Random(seed)  # noqa: S311 - no secrets
    columns: dict[str, tuple[str, pa.Array]] = {"id": ("int", pa.array(range(count), pa.int32()))}
    for kind, arrow in kinds().items():
        for place in ("c", "o"):
            made = [None if chance.random() < NULLS else value(kind, chance) for _ in range(count)]
            columns[f"{place}_{column_of(kind)}"] = (kind, pa.array(made, arrow))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: values for name, (_, values) in columns.items()}), folder / "part-0.parquet")
    declared = tuple(Column(name, kind) for name, (kind, _) in columns.items())
    return TableSource("vals", str(folder), "parquet", declared)


def value(kind: str, chance: random.Random) -> object:
    """Make one value of a type."""
    if kind in _WHOLE_BITS:
        return _whole(_WHOLE_BITS[kind], chance)
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        return _decimal(precision, scale, chance)
    return _MAKERS[kind](chance)


def _whole(bits: int, chance: random.Random) -> int:
    least, end = -(1 << (bits - 1)), 1 << (bits - 1)
    power = chance.choice((1 << chance.randrange(bits), int(10.0 ** chance.randrange(len(str(end)))), end, 0))
    near = chance.choice((1, -1)) * (power + chance.randint(-2, 2))
    made = chance.choice((near, chance.randint(-20, 20), chance.randrange(least, end)))
    return min(max(made, least), end - 1)


def _decimal(precision: int, scale: int, chance: random.Random) -> Decimal:
    digits = chance.randint(0, precision)
    near = 10**digits + chance.randint(-2, 2)
    made = chance.choice(
        (near, chance.randrange(10**digits) if digits else 0, 10**precision - 1, 5 * 10 ** chance.randrange(precision))
    )
    made = min(made, 10**precision - 1) * chance.choice((1, -1))
    sign = "-" if made < 0 else ""
    text = str(abs(made)).rjust(scale + 1, "0")
    return Decimal(f"{sign}{text[: len(text) - scale]}.{text[len(text) - scale :]}" if scale else f"{sign}{text}")


def _double(chance: random.Random) -> float:
    match chance.randrange(8):
        case 0:
            return chance.choice(_SPECIAL_DOUBLES)
        case 1:
            return float(_whole(chance.choice((8, 16, 32, 64)), chance)) + chance.choice((0.0, 0.5, -0.5, 0.25))
        case 2:
            return chance.choice((1, -1)) * 10.0 ** chance.randint(-12, 40)
        case 3:
            return math.nextafter(10.0 ** chance.randint(-5, 38), chance.choice((0.0, math.inf)))
        case 4:
            return round(chance.uniform(-1_000, 1_000), chance.randrange(6))
        case 5:
            return chance.uniform(-1, 1) * 10.0 ** chance.randint(-4, 8)
        case 6:
            return round(chance.uniform(-10, 10), 2) + 0.005
        case _:
            return float(struct.unpack("<d", chance.randbytes(8))[0])


def _float(chance: random.Random) -> float:
    if chance.random() < 0.2:
        return float(struct.unpack("<f", chance.randbytes(4))[0])
    made = _double(chance)
    return made if not math.isfinite(made) or abs(made) < 3e38 else 1.5


def _day(chance: random.Random) -> dt.date:
    first = chance.choice(
        (dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31))
    )
    near = chance.choice((0, 1, -1, 30, -31, 365, -366, chance.randint(-800_000, 800_000)))
    number = min(max(first.toordinal() + near, 1), dt.date.max.toordinal())
    return dt.date.fromordinal(number)


def _moment(chance: random.Random) -> dt.datetime:
    microseconds = chance.choice((0, 1, 999_999, 500_000, chance.randrange(10**6)))
    second = chance.choice((0, 59, 86_399, 43_200, chance.randrange(86_400)))
    start = dt.datetime.combine(_day(chance), dt.time())
    return start + dt.timedelta(seconds=second, microseconds=microseconds)


def _text(chance: random.Random) -> str:
    made = chance.choice((_word, _number_text, _number_text, _day_text, _letters))(chance)
    return f"{chance.choice(_SPACES)}{made}{chance.choice(_SPACES)}"


def _word(chance: random.Random) -> str:
    return chance.choice(_WORDS)


def _number_text(chance: random.Random) -> str:
    kind = chance.choice(("int", "bigint", "double", "decimal(9,0)", "decimal(18,4)", "decimal(38,10)", "tinyint"))
    text = str(value(kind, chance))
    if chance.random() < 0.2:
        text = f"{text}e{chance.randint(-12, 40)}"
    return text


def _day_text(chance: random.Random) -> str:
    day = _day(chance)
    month, number = chance.choice((day.month, 2, 13)), chance.choice((day.day, 29, 30, 31))
    made = chance.choice(_DAY_FORMS).format(day.year, month, number)
    return f"{made}{chance.choice(_CLOCKS)}{chance.choice(_ZONES)}"


def _letters(chance: random.Random) -> str:
    return "".join(chance.choice("abcXYZ ,.%_\\'\"éßİıǅ日\U0001f600-0159\t\n") for _ in range(chance.randrange(9)))


_MAKERS: Mapping[str, Callable[[random.Random], object]] = {
    "boolean": lambda chance: chance.random() < 0.5,
    "double": _double,
    "float": _float,
    "string": _text,
    "date": _day,
    "timestamp": lambda chance: _moment(chance).replace(tzinfo=dt.UTC),
    "timestamp_ntz": _moment,
}
