"""Statistics as Spark's ANALYZE keeps them in the properties of a table, read and written.

    spark.sql.statistics.numRows, .totalSize
    spark.sql.statistics.colStats.COLUMN.version, .distinctCount, .nullCount, .min, .max, .avgLen, .maxLen, .histogram

Lengths of strings are in characters. A property longer than 4,000 characters, as a histogram may be, is cut:
KEY.numParts and KEY.part.0, KEY.part.1, ...

A histogram is Base64 of a stream of LZ4 blocks (lz4-java's ``LZ4BlockOutputStream``); inside, big-endian: height
(double), bins (int), then of all bins the lower bounds (double), the upper bounds (double) and the NDVs (long), and -1
(int).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore.hive.client import HiveColumn
from metastore.hive.properties import cut_property, join_property
from selector.statistics import ColumnStatistics, Histogram, TableStatistics, as_number
from selector.types import FLOATING, MOMENTS, WHOLE, value_bytes
from selector.wording import EPOCH, EPOCH_DATE, MICROSECOND
from sql.tables import Column

ROWS = "spark.sql.statistics.numRows"
BYTES = "spark.sql.statistics.totalSize"
COLUMNS = "spark.sql.statistics.colStats."
VERSION = "2"  # since then timestamps are in UTC
BINS = 254  # as many as ANALYZE makes


_HEAD = struct.Struct(">di")
_END = struct.pack(">i", -1)
_MAGIC = b"LZ4Block"
_BLOCK = struct.Struct("<8sBiiI")  # magic, method and size, compressed and plain bytes, checksum
_STORED, _LZ4 = 0x10, 0x20
_BLOCK_SIZE = 16  # log2
_SMALLEST_BLOCK = 10  # log2 of the size that a size of 0 stands for
_SEED, _CHECKSUM_BITS = 0x9747B28C, 0x0FFFFFFF


@dataclass(frozen=True, slots=True, eq=False)
class SparkStatistics:
    """Statistics that ANALYZE stored in a table's properties; rows, bytes: None: it stored none."""

    rows: int | None
    bytes: int | None
    columns: Mapping[str, ColumnStatistics]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A histogram as Spark has it. height: rows of a bin; lower, upper, ndv: shape (bins,)."""

    height: float
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    ndv: NDArray[np.int64]


def read_statistics(parameters: Mapping[str, str], columns: Sequence[Column | HiveColumn]) -> SparkStatistics:
    """Read what is known of a table's columns; names are compared without case."""
    keys = [key.removeprefix(COLUMNS) for key in parameters if key.startswith(COLUMNS) and key.endswith(".version")]
    written = {key.removesuffix(".version").lower(): key.removesuffix(".version") for key in keys}
    read: dict[str, ColumnStatistics] = {}
    notes: list[str] = []
    for column in columns:
        if column.name.lower() in written:
            prefix = f"{COLUMNS}{written[column.name.lower()]}"
            try:
                read[column.name] = _read_column(parameters, prefix, column)
            except ValueError as failure:
                notes.append(f"{column.name}: what Spark stored cannot be read: {failure}")
    return SparkStatistics(count_of(parameters, ROWS), count_of(parameters, BYTES), read, tuple(notes))


def write_statistics(
    parameters: Mapping[str, str], statistics: TableStatistics, columns: Sequence[Column | HiveColumn]
) -> dict[str, str]:
    """Return a table's properties with these statistics in them. columns: as Spark names them."""
    ours = {name.lower(): column for name, column in statistics.columns.items()}
    written = {column.name: ours[column.name.lower()] for column in columns if column.name.lower() in ours}
    stale = tuple(f"{COLUMNS}{name}." for name in written)
    others = {key: value for key, value in parameters.items() if not key.startswith(stale)} if stale else parameters
    properties = {**others, ROWS: str(statistics.rows), BYTES: str(statistics.bytes)}
    for name, column in written.items():
        for field, value in _write_column(column, statistics.rows).items():
            properties |= cut_property(f"{COLUMNS}{name}.{field}", value)
    return properties


def count_of(parameters: Mapping[str, str], key: str) -> int | None:
    """Read a count; None where there is none, or -1 says that nobody knows."""
    value = parameters.get(key, "")
    return int(value) if value.isdecimal() else None


def decode_bins(text: str) -> Bins:
    """Read Spark's text form of a histogram. Raises ValueError."""
    try:
        plain = b"".join(_blocks(base64.b64decode(text, validate=True)))
        height, bins = _HEAD.unpack_from(plain)
    except (binascii.Error, struct.error) as failure:
        raise ValueError(f"no histogram: {failure}") from failure
    if bins < 1 or len(plain) < _HEAD.size + 3 * bins * 8:
        raise ValueError(f"a histogram of {bins} bins in {len(plain)} bytes")
    lower, upper = np.frombuffer(plain, dtype=">f8", count=2 * bins, offset=_HEAD.size).reshape(2, bins)
    ndv = np.frombuffer(plain, dtype=">i8", count=bins, offset=_HEAD.size + 2 * bins * 8)
    return Bins(height, lower.astype(np.float64), upper.astype(np.float64), ndv.astype(np.int64))


def encode_bins(bins: Bins) -> str:
    """Write a histogram in Spark's text form."""
    plain = _HEAD.pack(bins.height, bins.ndv.size)
    plain += bins.lower.astype(">f8").tobytes() + bins.upper.astype(">f8").tobytes() + bins.ndv.astype(">i8").tobytes()
    plain += _END
    size = 1 << _BLOCK_SIZE
    stream = b"".join(_block(plain[start : start + size]) for start in range(0, len(plain), size))
    return base64.b64encode(stream + _BLOCK.pack(_MAGIC, _STORED | _BLOCK_SIZE - _SMALLEST_BLOCK, 0, 0, 0)).decode()


def histogram_of(bins: Bins) -> Histogram | None:
    """Make our histogram of Spark's; None if it has no two finite ends.

    NaN and infinities at its ends count as rows beyond all endpoints, as everywhere here.
    """
    ends = np.concatenate((bins.lower[:1], bins.upper))
    finite = np.isfinite(ends)
    if finite.sum() < 2:
        return None
    ranks = np.arange(ends.size, dtype=np.float64) / bins.ndv.size
    below = ranks[np.searchsorted(ends, ends, side="left")]
    up_to = ranks[np.searchsorted(ends, ends, side="right") - 1]
    return Histogram(ends[finite], below[finite], up_to[finite])


def bins_of(histogram: Histogram, *, rows: float, ndv: float, whole: bool) -> Bins:
    """Make Spark's histogram of ours. rows: not NULL; ndv: of the whole column; whole: no values but whole numbers.

    Spark wants an NDV per bin. Where ours has every value as an endpoint they are counted; else what is left
    of the NDV is shared out by how many values a bin has room for.
    """
    assert histogram.below is not None
    assert histogram.up_to is not None
    counted = float(histogram.up_to[-1])
    ranks = np.linspace(0.0, counted, BINS + 1)
    upper = np.minimum(np.searchsorted(histogram.up_to, ranks, side="left"), histogram.endpoints.size - 1)
    lower = np.maximum(upper - 1, 0)
    low, high = histogram.endpoints[lower].astype(np.float64), histogram.endpoints[upper].astype(np.float64)
    start, end = histogram.up_to[lower], histogram.below[upper]
    with np.errstate(divide="ignore", invalid="ignore"):
        way = np.where(end > start, np.clip((ranks - start) / (end - start), 0.0, 1.0), 1.0)
    ends = np.where(way < 1.0, low + (high - low) * way, high)
    ends[0] = histogram.endpoints[0]
    ends = np.maximum.accumulate(np.round(ends) if whole else ends)
    height = rows * counted / BINS
    return Bins(height, ends[:-1], ends[1:], _bin_ndv(histogram, ends, height, ndv, whole=whole))


def _bin_ndv(
    histogram: Histogram, ends: NDArray[np.float64], height: float, ndv: float, *, whole: bool
) -> NDArray[np.int64]:
    values = np.unique(histogram.endpoints)
    seen = np.diff(np.searchsorted(values, ends, side="right"))
    seen[0] += 1  # the first bin holds its lower bound too
    if values.size >= ndv:
        return np.asarray(np.maximum(seen, 1), dtype=np.int64)
    width = np.diff(ends)
    wide = width > 0
    room = np.where(whole, np.minimum(width, height), height) * wide
    unseen = max(0.0, ndv - np.unique(ends[1:][~wide]).size)
    share = min(1.0, unseen / room.sum()) if room.sum() else 0.0
    return np.asarray(np.maximum(np.round(room * share), np.maximum(seen, 1)), dtype=np.int64)


def _read_column(parameters: Mapping[str, str], prefix: str, column: Column | HiveColumn) -> ColumnStatistics:
    text = join_property(parameters, f"{prefix}.histogram")
    histogram = histogram_of(decode_bins(text)) if text is not None else None
    of_utc = parameters[f"{prefix}.version"] != "1" or not column.data_type.startswith("timestamp")
    minimum, maximum = (
        _number(parameters[f"{prefix}.{end}"], column.data_type) if of_utc and f"{prefix}.{end}" in parameters else None
        for end in ("min", "max")
    )
    if histogram is not None:
        minimum = float(histogram.endpoints[0]) if minimum is None else minimum
        maximum = float(histogram.endpoints[-1]) if maximum is None else maximum
    has_length = column.data_type in ("string", "binary")
    average, longest = (count_of(parameters, f"{prefix}.{field}") for field in ("avgLen", "maxLen"))
    ndv, nulls = (count_of(parameters, f"{prefix}.{field}") for field in ("distinctCount", "nullCount"))
    if ndv is None or nulls is None:
        raise ValueError("distinct values and nulls are not counted")
    return ColumnStatistics(
        name=column.name,
        data_type=column.data_type,
        nulls=nulls,
        ndv=float(ndv),
        minimum=minimum,
        maximum=maximum,
        average_length=float(average) if has_length and average is not None else None,
        maximum_length=longest if has_length else None,
        histogram=histogram,
    )


def _write_column(column: ColumnStatistics, rows: int) -> dict[str, str]:
    fixed = value_bytes(column.data_type)
    average, longest = (column.average_length, column.maximum_length) if fixed is None else (fixed, fixed)
    fields: dict[str, Any] = {
        "version": VERSION,
        "distinctCount": round(column.ndv),
        "nullCount": column.nulls,
        "avgLen": None if average is None else int(np.ceil(average)),
        "maxLen": longest,
        "min": _text(column.minimum, column.data_type),
        "max": _text(column.maximum, column.data_type),
    }
    values = rows - column.nulls
    if column.histogram is not None and column.histogram.endpoints.dtype.kind == "f" and values > 0:
        if column.data_type != "boolean":  # Spark has no histograms of them
            whole = column.data_type in (*WHOLE, "date")
            fields["histogram"] = encode_bins(bins_of(column.histogram, rows=values, ndv=column.ndv, whole=whole))
    return {field: str(value) for field, value in fields.items() if value is not None}


def _number(text: str, data_type: str) -> float | None:
    """Put Spark's text of a value on the number line; None for NaN, infinities and years of five digits."""
    if data_type == "boolean":
        return {"true": 1.0, "false": 0.0}.get(text.lower())
    return as_number(text, data_type)


def _text(value: float | str | None, data_type: str) -> str | None:
    """Write a value as Spark does; None where Spark keeps none."""
    if value is None or isinstance(value, str) or not np.isfinite(value):
        return None
    try:
        match data_type:
            case "boolean":
                return "true" if value else "false"
            case "date":
                return (EPOCH_DATE + dt.timedelta(days=value)).isoformat()
            case _ if data_type in MOMENTS:
                return (EPOCH + value * MICROSECOND).replace(tzinfo=None).isoformat(" ", "microseconds")
            case _ if data_type in FLOATING:
                return repr(value)
    except OverflowError:
        return None  # beyond the year 9999
    return str(int(value)) if data_type in WHOLE else format(Decimal(repr(value)), "f")


def _blocks(stream: bytes) -> Iterator[bytes]:
    import xxhash

    position = 0
    while position < len(stream):
        magic, token, packed, plain, checksum = _BLOCK.unpack_from(stream, position)
        position += _BLOCK.size
        if magic != _MAGIC or not 0 <= plain <= 1 << (token & 0x0F) + _SMALLEST_BLOCK or packed < 0:
            raise ValueError("no stream of LZ4 blocks")
        if packed == 0:
            continue  # the end of a stream; another may follow
        content = stream[position : position + packed]
        position += packed
        try:
            block = content if token & 0xF0 == _STORED else pa.decompress(content, plain, codec="lz4_raw", asbytes=True)
        except OSError as failure:
            raise ValueError("an LZ4 block is damaged") from failure
        if len(block) != plain or xxhash.xxh32_intdigest(block, _SEED) & _CHECKSUM_BITS != checksum:
            raise ValueError("the checksum of an LZ4 block is wrong")
        yield block


def _block(plain: bytes) -> bytes:
    import xxhash

    packed: bytes = pa.compress(plain, codec="lz4_raw", asbytes=True)
    method = _LZ4
    if len(packed) >= len(plain):
        packed, method = plain, _STORED
    checksum = xxhash.xxh32_intdigest(plain, _SEED) & _CHECKSUM_BITS
    return _BLOCK.pack(_MAGIC, method | _BLOCK_SIZE - _SMALLEST_BLOCK, len(packed), len(plain), checksum) + packed
