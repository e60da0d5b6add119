"""Every type of Spark's at its extremes, and how each door writes it: one table for engines, doors and the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa

LONGEST = 100_000
MICROSECONDS_OF_DAY = 86_400_000_000
LEAST_I32, MOST_I32 = -(2**31), 2**31 - 1
LEAST_I64, MOST_I64 = -(2**63), 2**63 - 1
NINES = "9" * 38
AWKWARD = 'a"b,\n\r\0\\'


@dataclass(frozen=True, slots=True)
class Extreme:
    """One value.

    kind: its type as Spark prints it. sql: gives it. value: one row of it, as it comes from an engine and goes to Arrow
    and Flight SQL. json: in every JSON reply. csv: the field of a CSV file. hive: over HiveServer2, as its drivers read
    it. listed: whether the docs list it; not what no table of theirs can show.
    """

    kind: str
    sql: str
    value: pa.Array
    json: Any
    csv: str
    hive: Any
    listed: bool = True


def _whole(kind: str, bits: int) -> Iterator[Extreme]:
    arrow = pa.type_for_alias(f"int{bits}")
    for number in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
        sql = f"CAST('{number}' AS {kind.upper()})"
        yield Extreme(kind, sql, pa.array([number], arrow), number, str(number), number)


def _floating(kind: str, arrow: pa.DataType, least: float, most: float) -> Iterator[Extreme]:
    texts = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
    for text, number in texts.items():
        value = float(number)
        yield Extreme(kind, f"CAST('{text}' AS {kind.upper()})", pa.array([value], arrow), text, f'"{text}"', value)
    for value in (-0.0, least, most):
        array = pa.array([value], arrow)
        written = array.cast(pa.string())[0].as_py()
        as_double = array.cast(pa.float64())[0].as_py()
        sql = f"CAST('{written}' AS {kind.upper()})"
        yield Extreme(kind, sql, array, as_double, written, as_double)


def _decimals(precision: int, scale: int, *digits: str) -> Iterator[Extreme]:
    kind = f"decimal({precision},{scale})"
    for text in digits:
        value = pa.array([Decimal(text)], pa.decimal128(precision, scale))
        csv = text if scale <= 6 else f'"{text}"'
        yield Extreme(kind, f"CAST('{text}' AS {kind.upper()})", value, text, csv, text)


def _text(sql: str, text: str, *, listed: bool = True) -> Extreme:
    quoted = '"' + text.replace('"', '""') + '"'
    return Extreme("string", sql, pa.array([text]), text, quoted, text, listed)


def _binary(content: bytes, base64: str) -> Extreme:
    csv = f'"{base64}"'
    return Extreme("binary", f"X'{content.hex().upper()}'", pa.array([content]), base64, csv, content)


def _dates() -> Iterator[Extreme]:
    for days, text in (
        (-719_162, "0001-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (-719_163, "0000-12-31"),
        (-719_866, "-0001-01-28"),
        (LEAST_I32, "-5877641-06-23"),
        (MOST_I32, "+5881580-07-11"),
    ):
        csv = text if len(text) == len("9999-12-31") else f'"{text}"'
        csv = f'"{text}"' if text.startswith("0000") else csv
        yield Extreme("date", f"date_from_unix_date({days})", pa.array([days], pa.date32()), text, csv, text)


def _moments(kind: str, arrow: pa.DataType, json_zone: str, csv_zone: str) -> Iterator[Extreme]:
    for count, whole, fraction in (
        (-719_162 * MICROSECONDS_OF_DAY, "0001-01-01 00:00:00", ""),
        (2_932_897 * MICROSECONDS_OF_DAY - 1, "9999-12-31 23:59:59", ".999999"),
        (2_932_897 * MICROSECONDS_OF_DAY, "+10000-01-01 00:00:00", ""),
        (-719_162 * MICROSECONDS_OF_DAY - 1, "0000-12-31 23:59:59", ".999999"),
        (LEAST_I64, "-290308-12-21 19:59:05", ".224192"),
        (MOST_I64, "+294247-01-10 04:00:54", ".775807"),
    ):
        csv = f"{whole}{fraction or '.000000'}{csv_zone}"
        if whole[4] != "-" or whole.startswith("0000"):
            csv = f'"{csv}"'
        sql = f"CAST(timestamp_micros({count}) AS {kind.upper()})"
        value = pa.array([count], arrow)
        yield Extreme(kind, sql, value, f"{whole}{fraction}{json_zone}", csv, f"{whole}{fraction}")


def _times() -> Iterator[Extreme]:
    for count, text in ((0, "00:00:00"), (MICROSECONDS_OF_DAY - 1, "23:59:59.999999"), (500_000, "00:00:00.500000")):
        whole = text if "." in text else f"{text}.000000"
        yield Extreme("time(6)", f"TIME'{text}'", pa.array([count], pa.time64("us")), text, whole, whole)
    value = pa.array([1_000_000], pa.time64("us"))
    yield Extreme(
        "time(0)", "CAST('00:00:01.987654' AS TIME(0))", value, "00:00:01", "00:00:01.000000", "00:00:01.000000"
    )
    text = "23:59:59.999999999"
    value = pa.array([1_000 * MICROSECONDS_OF_DAY - 1], pa.time64("ns"))
    yield Extreme("time(9)", f"CAST('{text}' AS TIME(9))", value, text, text, text)


def _intervals() -> Iterator[Extreme]:
    for count, sql, text in (
        (0, "INTERVAL '0' DAY", "0 00:00:00.000000000"),
        (
            MOST_I64,
            "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
            "106751991 04:00:54.775807000",
        ),
        (
            LEAST_I64,
            "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
            "-106751991 04:00:54.775808000",
        ),
    ):
        value = pa.array([count], pa.duration("us"))
        yield Extreme("interval day to second", sql, value, text, f'"{text}"', text)
    for months, sql, text in (
        (0, "INTERVAL '0' MONTH", "0-0"),
        (MOST_I32, "INTERVAL '178956970-7' YEAR TO MONTH", "178956970-7"),
        (LEAST_I32, "INTERVAL '-178956970-8' YEAR TO MONTH", "-178956970-8"),
    ):
        value = pa.array([pa.MonthDayNano([months, 0, 0])])
        yield Extreme("interval year to month", sql, value, text, f'"{text}"', text)
    text = "1 years 2 months 25 days 5 hours 6 minutes 7.5 seconds"
    yield Extreme("interval", "make_interval(1, 2, 3, 4, 5, 6, 7.5)", pa.array([text]), text, f'"{text}"', text)


def _variant(sql: str, text: str) -> Extreme:
    csv = '"' + text.replace('"', '""') + '"'
    return Extreme("variant", sql, pa.array([text]), text, csv, text)


def _nested(kind: str, sql: str, value: pa.Array, json_value: Any, hive: str) -> Extreme:
    csv = '"' + json.dumps(json_value).replace('"', '""') + '"'
    return Extreme(kind, sql, value, json_value, csv, hive)


_DAY = pa.array([2_932_897], pa.date32())
_ONE = pa.array([0, 1], pa.int32())

EXTREMES: tuple[Extreme, ...] = (
    Extreme("boolean", "true", pa.array([True]), True, "true", True),
    *_whole("tinyint", 8),
    *_whole("smallint", 16),
    *_whole("int", 32),
    *_whole("bigint", 64),
    *_floating("float", pa.float32(), 2.0**-149, 2.0**128 - 2.0**104),
    *_floating("double", pa.float64(), 2.0**-1074, 1.7976931348623157e308),
    *_decimals(38, 0, NINES, f"-{NINES}"),
    *_decimals(38, 38, f"0.{NINES}", f"-0.{'0' * 37}1"),
    *_decimals(5, 2, "-0.01"),
    _text("''", ""),
    _text("CAST(X'FF' AS STRING)", "\ufffd"),
    _text("CAST(X'61EDA08062' AS STRING)", "a\ufffd\ufffd\ufffdb"),
    _text("CAST(X'F09F9880' AS STRING)", "\N{GRINNING FACE}"),
    _text(f"CAST(X'{AWKWARD.encode().hex()}' AS STRING)", AWKWARD, listed=False),
    _text(f"repeat('x', {LONGEST})", "x" * LONGEST, listed=False),
    _binary(b"\x00\xff", "AP8="),
    _binary(b"", ""),
    *_dates(),
    *_moments("timestamp", pa.timestamp("us", "UTC"), "+00:00", "Z"),
    *_moments("timestamp_ntz", pa.timestamp("us"), "", ""),
    *_times(),
    *_intervals(),
    _nested("array<void>", "array()", pa.array([[]], pa.list_(pa.null())), [], "[]"),
    _nested("array<void>", "array(NULL)", pa.array([[None]], pa.list_(pa.null())), [None], "[null]"),
    _nested(
        "array<double>",
        "array(CAST('NaN' AS DOUBLE), -0.0D)",
        pa.array([[float("nan"), -0.0]]),
        ["NaN", -0.0],
        "[NaN,-0.0]",
    ),
    _nested(
        "array<date>",
        "array(DATE'9999-12-31' + INTERVAL '1' DAY)",
        pa.ListArray.from_arrays(_ONE, _DAY),
        ["+10000-01-01"],
        '["+10000-01-01"]',
    ),
    _nested("array<string>", "array(CAST(X'FF' AS STRING))", pa.array([["\ufffd"]]), ["\ufffd"], '["\ufffd"]'),
    _nested(
        "array<interval month>",
        "array(INTERVAL '-1' MONTH, NULL)",
        pa.array([[pa.MonthDayNano([-1, 0, 0]), None]]),
        ["-0-1", None],
        '["-0-1",null]',
    ),
    _nested("map<void,void>", "map()", pa.array([[]], pa.map_(pa.string(), pa.null())), [], "{}"),
    _nested(
        "map<date,decimal(3,2)>",
        "map(DATE'9999-12-31' + INTERVAL '1' DAY, CAST('-0.50' AS DECIMAL(3,2)))",
        pa.MapArray.from_arrays(_ONE, _DAY, pa.array([Decimal("-0.50")], pa.decimal128(3, 2))),
        [["+10000-01-01", "-0.50"]],
        '{"+10000-01-01":-0.50}',
    ),
    _nested(
        "map<struct<a:int>,boolean>",
        "map(named_struct('a', 1), true)",
        pa.array([[({"a": 1}, True)]], pa.map_(pa.struct([("a", pa.int32())]), pa.bool_())),
        [[{"a": 1}, True]],
        '{{"a":1}:true}',
    ),
    _nested(
        "map<int,map<void,void>>",
        "map(1, map())",
        pa.array([[(1, [])]], pa.map_(pa.int32(), pa.map_(pa.string(), pa.null()))),
        [[1, []]],
        "{1:{}}",
    ),
    _nested("struct<>", "struct()", pa.array([{}], pa.struct([])), {}, "{}"),
    _nested(
        "struct<a:void,m:map<void,void>>",
        "named_struct('a', NULL, 'm', map())",
        pa.array([{"a": None, "m": []}], pa.struct([("a", pa.null()), ("m", pa.map_(pa.string(), pa.null()))])),
        {"a": None, "m": []},
        '{"a":null,"m":{}}',
    ),
    _nested(
        "struct<a:int,a:int>",
        "named_struct('a', 1, 'a', 2)",
        pa.StructArray.from_arrays([pa.array([one], pa.int32()) for one in (1, 2)], ["a", "a"]),
        [["a", 1], ["a", 2]],
        '{"a":1,"a":2}',
    ),
    Extreme("void", "NULL", pa.nulls(1), None, "", None),
    _variant("parse_json('{\"a\":[1,null]}')", '{"a":[1,null]}'),
    _variant("CAST(DATE'9999-12-31' + INTERVAL '1' DAY AS VARIANT)", '"+10000-01-01"'),
)


def all_in_one_row() -> pa.RecordBatch:
    """Return a batch with a column for each value."""
    return pa.record_batch([extreme.value for extreme in EXTREMES], names=[f"c{n}" for n in range(len(EXTREMES))])


def documented() -> str:
    """Return the table of values for the docs."""
    lines = ["| type | value | JSON | CSV | HiveServer2 |", "|---|---|---|---|---|"]
    for kind, extremes in groupby((extreme for extreme in EXTREMES if extreme.listed), key=lambda each: each.kind):
        for extreme in extremes:
            hive = extreme.hive
            if isinstance(hive, bytes):
                hive = f"bytes {hive.hex()}" if hive else "no bytes"
            cells = [kind, extreme.sql, json.dumps(extreme.json, ensure_ascii=False), extreme.csv, _shown(hive)]
            lines.append("| " + " | ".join(f"`{cell}`" if cell else "" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(hive: Any) -> str:
    if hive is None:
        return "NULL"
    return json.dumps(hive) if isinstance(hive, bool | int | float) else str(hive)
