"""Blobs of arrays in the database: compressed, exact to the bit, with a number for their form.

A blob is ``FORM`` (1 byte), the decompressed size of what follows (8 bytes) and, compressed with zstd, the size of the
head (8 bytes), the head and the arrays, each filled up to a multiple of 8 bytes. The head is JSON: ``content``, which
is the caller's, and of each array its type, its shape and the type that it is stored in.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engines.files.listing import FileMark
from selector.join_keys import Bins, KeySample, KeyStatistics
from selector.row_sample import PackedNumbers, PackedTexts, RowSample, SampleColumn, narrow_codes
from selector.statistics import CommonValues, Histogram

FORM = 1
WORD = 8

Array = NDArray[Any]
Shared = Callable[[Bins], Bins]

_PREFIX = struct.Struct("<BQ")
_HEAD_SIZE = struct.Struct("<Q")
_NARROW = tuple((np.iinfo(kind).max, np.dtype(kind)) for kind in (np.uint8, np.uint16, np.uint32))


def pack(content: Any, arrays: Sequence[Array]) -> bytes:
    """Put JSON content and arrays of numbers, booleans or bytes into a blob."""
    stored = [_narrowed(array) for array in arrays]
    shapes = [(array.dtype.str, array.shape, small.dtype.str) for array, small in zip(arrays, stored, strict=True)]
    head = json.dumps({"content": content, "arrays": shapes}, separators=(",", ":")).encode()
    parts = [_HEAD_SIZE.pack(len(head)), head, *(small.tobytes() for small in stored)]
    whole = b"".join(part + bytes(-len(part) % WORD) for part in parts)
    return _PREFIX.pack(FORM, len(whole)) + bytes(pa.compress(whole, codec="zstd", asbytes=True))


def unpack(blob: bytes) -> tuple[Any, list[Array]]:
    """Return the content and the arrays of a blob; the arrays cannot be written to."""
    form, size = _PREFIX.unpack_from(blob)
    if form != FORM:
        raise ValueError(f"a blob of form {form}: written by a newer version of this program")
    whole = pa.decompress(memoryview(blob)[_PREFIX.size :], decompressed_size=size, codec="zstd", asbytes=True)
    (head_size,) = _HEAD_SIZE.unpack_from(whole)
    place = WORD + head_size
    head = json.loads(whole[WORD:place])
    arrays: list[Array] = []
    for wanted, shape, stored in head["arrays"]:
        place += -place % WORD
        array = np.frombuffer(whole, dtype=stored, count=int(np.prod(shape)), offset=place).reshape(shape)
        place += array.nbytes
        arrays.append(array.astype(wanted))  # a copy, so that the blob can go
        arrays[-1].flags.writeable = False
    return head["content"], arrays


def histogram_blob(histogram: Histogram) -> bytes:
    """Encode a histogram."""
    assert histogram.below is not None
    assert histogram.up_to is not None
    return pack(None, [histogram.endpoints, histogram.below, histogram.up_to])


def histogram_of(blob: bytes) -> Histogram:
    """Decode a histogram."""
    return Histogram(*unpack(blob)[1])


def common_blob(common: CommonValues) -> bytes:
    """Encode common values."""
    return pack(None, [common.values, common.rows])


def common_of(blob: bytes) -> CommonValues:
    """Decode common values."""
    return CommonValues(*unpack(blob)[1])


def sample_blob(sample: RowSample) -> bytes:
    """Encode a row sample: of each column its codes and its numbers, or its strings' lengths and their bytes."""
    arrays: list[Array] = []
    for column in sample.columns.values():
        arrays.append(column.codes)
        if isinstance(column.packed, PackedTexts):
            content = b"".join(column.packed.bytes_of_each())
            arrays += [column.packed.lengths.astype(np.int64), np.frombuffer(content, np.uint8)]
        else:
            arrays.append(column.packed.unpacked()[0])
    columns = [(name, column.is_text) for name, column in sample.columns.items()]
    head = {"rows": sample.rows, "share": sample.share, "columns": columns, "coded": True}
    return pack(head, arrays)


def sample_of(blob: bytes) -> RowSample:
    """Decode a row sample; older ones have each row's value and whether it is NULL."""
    content, arrays = unpack(blob)
    stored = iter(arrays)
    columns = {}
    for name, is_text in content["columns"]:
        codes = next(stored)
        if not content.get("coded"):
            columns[name] = SampleColumn.of(_texts(next(stored), next(stored)) if is_text else next(stored), codes)
            continue
        packed: PackedTexts | PackedNumbers
        if is_text:
            packed = PackedTexts.of_content(next(stored), next(stored).tobytes())
        else:
            packed = PackedNumbers.of(next(stored))
        columns[name] = SampleColumn(packed, narrow_codes(codes, packed.size))
    return RowSample(content["rows"], content["share"], columns)


def _texts(lengths: Array, content: Array) -> NDArray[np.object_]:
    whole, ends = content.tobytes(), np.cumsum(lengths).tolist()
    texts = np.empty(lengths.size, dtype=object)
    texts[:] = [whole[end - size : end].decode() for end, size in zip(ends, lengths.tolist(), strict=True)]
    return texts


def bins_blob(bins: Bins) -> bytes:
    """Encode the starts of bins."""
    return pack(None, [bins.starts])


def bins_of(blob: bytes, *, group: str, version: int) -> Bins:
    """Decode the bins of a group."""
    return Bins(unpack(blob)[1][0], group, version)


def key_blob(key: KeyStatistics) -> bytes:
    """Encode a key's counts together with their bins, so that they stay readable when the group is cut anew."""
    content: dict[str, Any] = {"group": key.bins.group, "version": key.bins.version}
    arrays: list[Array] = [key.bins.starts, key.rows, key.ndv, key.largest]
    if key.sample is not None:
        content["share"] = key.sample.share
        arrays.append(np.frombuffer(sample_blob(key.sample.rows), np.uint8))
    return pack(content, arrays)


def key_of(blob: bytes, *, shared: Shared) -> KeyStatistics:
    """Decode a key's counts. shared: gives the one object that stands for equal bins.

    Older ones have several cuts: the key's own comes first, and its counts behind all of them; the rest is not read.
    """
    content, arrays = unpack(blob)
    if "cuts" in content:
        group, version = content["cuts"][0]
        rows, ndv, largest = arrays[len(content["cuts"]) :][:3]
        return KeyStatistics(shared(Bins(arrays[0], group, version)), rows, ndv, largest)
    starts, rows, ndv, largest, *sampled = arrays
    sample = KeySample(content["share"], sample_of(sampled[0].tobytes())) if sampled else None
    return KeyStatistics(shared(Bins(starts, content["group"], content["version"])), rows, ndv, largest, sample)


def marks_blob(marks: Sequence[FileMark]) -> bytes:
    """Encode the marks of files."""
    sizes = np.array([(mark.bytes, mark.modified_ns) for mark in marks], dtype=np.int64).reshape(len(marks), 2)
    return pack([mark.path for mark in marks], [sizes])


def marks_of(blob: bytes) -> tuple[FileMark, ...]:
    """Decode the marks of files."""
    paths, (sizes,) = unpack(blob)
    return tuple(FileMark(path, *size) for path, size in zip(paths, sizes.tolist(), strict=True))


def shared_bins(loaded: Iterable[Bins]) -> Shared:
    """Return a function that gives one object for equal bins of one group and version: a loaded one, or its first."""
    seen = {(bins.group, bins.version): bins for bins in loaded}

    def share(bins: Bins) -> Bins:
        if not bins.group:
            return bins
        first = seen.setdefault((bins.group, bins.version), bins)
        return first if np.array_equal(first.starts, bins.starts) else bins

    return share


def _narrowed(array: Array) -> Array:
    """Return whole numbers that are not negative in the smallest type that holds them; other arrays as they are."""
    if array.dtype != np.float64 or not array.size or np.signbit(array).any():
        return array
    largest = array.max()
    for limit, kind in _NARROW:
        if largest <= limit:
            small = array.astype(kind)
            return small if np.array_equal(small, array) else array
    return array
