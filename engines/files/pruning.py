"""Files of a snapshot that may hold rows of a query's answer, by the bounds that the table's log has of each file.

A manifest has the bounds as columns; the files that remain become another manifest, beside the first one.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from engines.files.ranges import ColumnRange, Reading, Value

MOST_BOUNDS = 100
"""Columns of a table of which bounds are kept, the first ones."""
FEW_FILES = 32
LEAST, MOST, NULLS = "least ", "most ", "nulls "
"""Beginnings of the names of columns with bounds, and rows with NULL, in a manifest's Arrow table."""
_FORM = 2
"""Of a manifest's Arrow table; another form has other names, as the files of an earlier release may still be there."""
_EXACT = Context(prec=200)
_KIND = b"fusion.kind"
_INT_BYTES, _DECIMAL_BYTES = 4, 16
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_STORED = {
    "int32": (pa.int32(), pa.int32()),
    "int64": (pa.int64(), pa.int64()),
    "date32[day]": (pa.int32(), pa.date32()),
    str(_UTC): (pa.int64(), _UTC),
    str(_LOCAL): (pa.int64(), _LOCAL),
}
"""Types in which Iceberg stores bounds, and of the column, by the name of the latter."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one column in all files.

    least, most: one entry per file, None: unknown; in the column's type, or as Iceberg's manifests have it
        (specification, "Binary single-value serialization").
    kind: type of the column, if they are as in Iceberg's manifests.
    nulls: rows that have NULL, int64; None: unknown.
    """

    least: pa.Array
    most: pa.Array
    kind: pa.DataType | None = None
    nulls: pa.Array | None = None


def pruned(manifest: str, readings: Sequence[Reading], *, least_files: int = FEW_FILES) -> str:
    """Return the path of a manifest with the files that matter for any of some readings of a table.

    manifest: path of all files.
    least_files: fewer are not worth another manifest, as engines open a table anew for it.

    Raises OSError, FileNotFoundError among them.
    """
    name = hashlib.sha256(f"{_FORM} {Path(manifest).stem} {readings}".encode()).hexdigest()[:32]
    path = Path(manifest).with_name(f"{name}.arrow")
    try:
        os.utime(path)
    except FileNotFoundError:
        with pa.memory_map(manifest) as source:
            table = pa.ipc.open_file(source).read_all()
            mask = _mask(table, readings) if len(table) >= least_files else None
            if mask is None or pc.all(mask).as_py():
                return manifest
            write_table(table.filter(mask), path)
    return str(path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a manifest's table under its final name in one step."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def with_bounds(table: pa.Table, bounds: Mapping[str, Bounds]) -> pa.Table:
    """Return a manifest's table with the bounds of columns."""
    for name, both in bounds.items():
        note = {_KIND: str(both.kind)} if both.kind is not None else None
        for side, values in ((LEAST, both.least), (MOST, both.most)):
            table = table.append_column(pa.field(side + name.lower(), values.type, metadata=note), values)
        if both.nulls is not None:
            table = table.append_column(NULLS + name.lower(), both.nulls)
    return table


def has_bounds(kind: pa.DataType) -> bool:
    """Return True for types of which bounds are kept; not floating ones, as NaN is above all bounds."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _mask(table: pa.Table, readings: Sequence[Reading]) -> pa.ChunkedArray | None:
    """Return True for each file that matters; None: no bounds are known of the columns."""
    result = None
    for reading in readings:
        masks = [mask for column in reading for mask in _within(table, column)]
        if not masks:
            return None
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        result = mask if result is None else pc.or_(result, mask)
    return result


def _within(table: pa.Table, column: ColumnRange) -> list[pa.ChunkedArray]:
    """Return, for each limit of a range, True for the files that may have values within it."""
    name = column.column.lower()
    if LEAST + name not in table.column_names:
        return []
    least, most = typed_bounds(table, LEAST + name), typed_bounds(table, MOST + name)
    masks = []
    if column.least is not None and (limit := _scalar(column.least, most.type, math.ceil)) is not None:
        masks.append(pc.fill_null(pc.greater_equal(most, limit), True))
    if column.most is not None and (limit := _scalar(column.most, least.type, math.floor)) is not None:
        masks.append(pc.fill_null(pc.less_equal(least, limit), True))
    return masks


def typed_bounds(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return bounds in the type of their column; one that is damaged is unknown."""
    text = (table.schema.field(name).metadata or {}).get(_KIND, b"").decode()
    if not text:
        return table[name]
    if text in _STORED and (numbers := _of_one_width(table[name], _STORED[text][0])) is not None:
        return numbers.cast(_STORED[text][1])
    contents = table[name].to_pylist()
    if text == "string":
        return pa.chunked_array([[_text(content) for content in contents]], pa.string())
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        kind = pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.chunked_array([[_decimal(content, kind) for content in contents]], kind)
    stored, kind = _STORED[text]
    widths = range(_INT_BYTES, stored.bit_width // 8 + 1, _INT_BYTES)  # a long may have been an int
    numbers = [
        int.from_bytes(one, "little", signed=True) if one is not None and len(one) in widths else None
        for one in contents
    ]
    return pa.chunked_array([numbers], stored).cast(kind)


def _decimal(content: bytes | None, kind: pa.Decimal128Type) -> Decimal | None:
    """Return a decimal as Iceberg stores it; None: it is not known, or of more digits than the type has."""
    if not content or len(content) > _DECIMAL_BYTES:
        return None
    number = int.from_bytes(content, "big", signed=True)
    return Decimal(number).scaleb(-kind.scale, _EXACT) if abs(number) < 10**kind.precision else None


def _of_one_width(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Return binary values as little-endian numbers; None: some are missing or of another width."""
    values = column.combine_chunks()
    width = kind.bit_width // 8
    if values.null_count or not pc.all(pc.equal(pc.binary_length(values), width)).as_py():
        return None
    _, _, data = values.buffers()
    numbers = pa.Array.from_buffers(kind, len(values), [None, data], offset=0)
    return pa.chunked_array([numbers])


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:  # cut within a character
        return None


def _scalar(value: Value, kind: pa.DataType, rounded: Callable[[Decimal], int]) -> pa.Scalar | None:
    """Return a limit in a column's type. None: it lies beyond that type, and nothing is known by it."""
    try:
        if isinstance(value, Decimal) and pa.types.is_decimal(kind):
            whole = Decimal(rounded(value.scaleb(kind.scale, _EXACT)))
            return pa.scalar(whole.scaleb(-kind.scale, _EXACT), kind)
        if isinstance(value, Decimal):
            return pa.scalar(rounded(value), kind)
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
