"""Summary of a table or of a part of it: columns, keys and a sample; it is merged, sent and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from statsproc.sketches.column_summary import ColumnSummary, compact, merge
from statsproc.sketches.distinct import KEPT, Distinct, merge_distinct
from statsproc.sketches.histogram import POINTS, Distribution
from statsproc.sketches.join_keys import KEYS_KEPT, KeyRows, KeySummary, merge_keys
from statsproc.sketches.sample import Sampled, merge_samples

FORMAT = 2  # of stored summaries; others are computed anew

ROOMY = 256  # columns of a table; of a wider one each keeps less, so that tasks and partitions stay as small
LEAST = 256  # points, and different values, that are kept in any case

Arrays = dict[str, NDArray[Any]]


class UnreadableSummary(ValueError):
    """A stored summary is of another format."""


@dataclass(frozen=True, slots=True, eq=False)
class TableSummary:
    """Summary of a table over some rows.

    cut: identity of the cut under which its keys were counted.
    types: types of the columns, as they were read.
    additions: number of merges of compacted summaries; each makes it a little less exact.
    """

    rows: int = 0
    columns: Mapping[str, ColumnSummary] = field(default_factory=dict)
    keys: Mapping[str, KeySummary] = field(default_factory=dict)
    sample: Sampled = field(default_factory=Sampled)
    cut: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    additions: int = 0


def merge_tables(parts: Sequence[TableSummary]) -> TableSummary:
    """Merge the summaries of disjoint rows.

    Columns that a part does not know are left out, and all keys where they were counted under different cuts. A part
    without rows has no say.
    """
    parts = [part for part in parts if part.rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    first = parts[0] if parts else TableSummary()
    names = [name for name in first.columns if all(name in part.columns for part in parts)]
    one_cut = all(part.cut == first.cut for part in parts)
    keys = [name for name in first.keys if one_cut and all(name in part.keys for part in parts)]
    return TableSummary(
        rows=sum(part.rows for part in parts),
        columns={name: merge([part.columns[name] for part in parts]) for name in names},
        keys={name: merge_keys([part.keys[name] for part in parts]) for name in keys},
        sample=merge_samples([part.sample for part in parts]),
        cut=first.cut if one_cut else "",
        types=first.types,
        additions=max((part.additions for part in parts), default=0),
    )


def compact_table(whole: TableSummary, *, fewer: int = 1) -> TableSummary:
    """Make a summary small enough to keep or to travel: some 150 KB a column, less of a wide table's.

    fewer: divisor of the size of each column's summary.
    """
    fewer *= -(-len(whole.columns) // ROOMY) or 1
    points, capacity = max(LEAST, POINTS // fewer), max(LEAST, KEPT // fewer)
    return replace(
        whole,
        columns={name: compact(column, points=points, capacity=capacity) for name, column in whole.columns.items()},
        keys={
            name: replace(key, distinct=merge_distinct([key.distinct], capacity=min(KEYS_KEPT, 8 * capacity)))
            for name, key in whole.keys.items()
        },
    )


def encode(whole: TableSummary) -> bytes:
    """Write a summary as bytes: an Arrow stream with one row per array, behind a row of all that is small."""
    arrays: Arrays = {}
    head: dict[str, Any] = {"format": FORMAT, "rows": whole.rows, "cut": whole.cut}
    head |= {"types": dict(whole.types), "additions": whole.additions}
    head["columns"] = [_put_column(arrays, f"c{i}", *item) for i, item in enumerate(whole.columns.items())]
    head["keys"] = [_put_key(arrays, f"k{i}", *item) for i, item in enumerate(whole.keys.items())]
    head["share"] = whole.sample.share
    arrays["tickets"] = whole.sample.tickets
    if whole.sample.columns:
        arrays["sample"] = np.frombuffer(_stream(pa.RecordBatch.from_pydict(dict(whole.sample.columns))), np.uint8)
    rows = [{"name": "", "type": "", "data": json.dumps(head).encode()}]
    rows += [{"name": name, "type": array.dtype.str, "data": array.tobytes()} for name, array in arrays.items()]
    return _stream(pa.RecordBatch.from_pylist(rows, schema=_STORED))


def decode(stored: bytes) -> TableSummary:
    """Read a summary back. Raises UnreadableSummary where another version wrote it."""
    try:
        rows = pa.ipc.open_stream(stored).read_all().to_pylist()
        head = json.loads(rows[0]["data"])
    except (pa.ArrowException, IndexError, OSError, ValueError) as failure:
        raise UnreadableSummary("the stored summary cannot be read") from failure
    if head.get("format") != FORMAT:
        raise UnreadableSummary(f"the stored summary has format {head.get('format')}, not {FORMAT}")
    arrays = {row["name"]: np.frombuffer(row["data"], dtype=row["type"]) for row in rows[1:]}
    return TableSummary(
        rows=head["rows"],
        columns=dict(_column(arrays, f"c{i}", stored_column) for i, stored_column in enumerate(head["columns"])),
        keys=dict(_key(arrays, f"k{i}", stored_column) for i, stored_column in enumerate(head["keys"])),
        sample=Sampled(head["share"], arrays["tickets"], _columns(arrays.get("sample"))),
        cut=head["cut"],
        types=head["types"],
        additions=head["additions"],
    )


def _columns(stream: NDArray[Any] | None) -> Mapping[str, pa.Array]:
    if stream is None:
        return {}
    (batch,) = pa.ipc.open_stream(stream.tobytes())
    return {name: batch.column(name) for name in batch.schema.names}


_STORED = pa.schema([("name", pa.string()), ("type", pa.string()), ("data", pa.large_binary())])
_COUNTS = ("rows", "nulls", "not_numbers", "below_all", "above_all", "text_bytes", "longest_bytes")


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _put_column(arrays: Arrays, place: str, name: str, column: ColumnSummary) -> dict[str, Any]:
    distribution = column.distribution
    arrays |= {
        f"{place}.values": distribution.values,
        f"{place}.below": distribution.below,
        f"{place}.up_to": distribution.up_to,
    }
    return {
        "name": name,
        "minimum": None if column.minimum is None else column.minimum.hex(),
        "maximum": None if column.maximum is None else column.maximum.hex(),
        "distinct": _put_distinct(arrays, place, column.distinct),
        **{count: getattr(column, count) for count in _COUNTS},
    }


def _column(arrays: Mapping[str, NDArray[Any]], place: str, stored: Mapping[str, Any]) -> tuple[str, ColumnSummary]:
    return stored["name"], ColumnSummary(
        distribution=Distribution(*(arrays[f"{place}.{part}"] for part in ("values", "below", "up_to"))),
        distinct=_distinct(arrays, place, stored["distinct"]),
        minimum=None if stored["minimum"] is None else bytes.fromhex(stored["minimum"]),
        maximum=None if stored["maximum"] is None else bytes.fromhex(stored["maximum"]),
        **{count: stored[count] for count in _COUNTS},
    )


def _put_key(arrays: Arrays, place: str, name: str, key: KeySummary) -> dict[str, Any]:
    arrays |= {f"{place}.bins": key.rows, f"{place}.popular": key.popular, f"{place}.popular_rows": key.popular_rows}
    arrays |= {f"{place}.line": key.chosen.line, f"{place}.alone": key.chosen.popular}
    if key.chosen.columns:
        chosen = pa.RecordBatch.from_pydict(dict(key.chosen.columns))
        arrays[f"{place}.chosen"] = np.frombuffer(_stream(chosen), np.uint8)
    return {
        "name": name,
        "share": key.chosen.share,
        "distinct": _put_distinct(arrays, place, key.distinct),
    }


def _key(arrays: Mapping[str, NDArray[Any]], place: str, stored: Mapping[str, Any]) -> tuple[str, KeySummary]:
    bins = arrays[f"{place}.bins"]
    return stored["name"], KeySummary(
        distinct=_distinct(arrays, place, stored["distinct"]),
        popular=arrays[f"{place}.popular"],
        popular_rows=arrays[f"{place}.popular_rows"],
        rows=bins,
        chosen=KeyRows(
            stored["share"],
            arrays[f"{place}.line"],
            arrays[f"{place}.alone"],
            _columns(arrays.get(f"{place}.chosen")),
        ),
    )


def _put_distinct(arrays: Arrays, place: str, distinct: Distinct) -> int:
    arrays[f"{place}.hashes"], arrays[f"{place}.held"] = distinct.hashes, distinct.rows
    if distinct.keys is not None:
        arrays[f"{place}.keys"] = distinct.keys
    return distinct.limit


def _distinct(arrays: Mapping[str, NDArray[Any]], place: str, limit: int) -> Distinct:
    return Distinct(arrays[f"{place}.hashes"], arrays[f"{place}.held"], limit, arrays.get(f"{place}.keys"))
