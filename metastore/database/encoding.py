"""How arrays lie in the database: one compressed blob, exact to the bit, with a number for its form.

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

from metastore.records import FileMark
from selector.join_keys import Bins, ConditionalCounts, KeyStatistics
from selector.statistics import CommonValues, Histogram, RowSample, SampleColumn

FORM = 1
BY_BIN = "bin"  # the order of a key's cells
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
    whole = b"".join(_filled(part) for part in parts)
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
        arrays.append(array if stored == wanted else _frozen(array.astype(wanted)))
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
    """Encode a row sample: of each column its NULLs and its numbers, or its strings' lengths and their bytes."""
    arrays: list[Array] = []
    for column in sample.columns.values():
        arrays.append(column.nulls)
        if column.values.dtype.kind != "O":
            arrays.append(column.values)
            continue
        texts = [str(text).encode() for text in column.values]
        arrays += [np.array([len(text) for text in texts], dtype=np.int64), np.frombuffer(b"".join(texts), np.uint8)]
    texts_in = [column.values.dtype.kind == "O" for column in sample.columns.values()]
    content = {"rows": sample.rows, "share": sample.share, "columns": list(zip(sample.columns, texts_in, strict=True))}
    return pack(content, arrays)


def sample_of(blob: bytes) -> RowSample:
    """Decode a row sample."""
    content, arrays = unpack(blob)
    left = iter(arrays)
    columns = {}
    for name, is_text in content["columns"]:
        nulls = next(left)
        columns[name] = SampleColumn(_texts(next(left), next(left)) if is_text else next(left), nulls)
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
    cuts = cuts_of(key)
    counts: list[Array] = [key.rows, key.ndv, key.largest]
    for given in key.given.values():
        counts += [given.ends, given.bucket, given.rows]
    shares = [given.share for given in key.given.values()]
    names = [[bins.group, bins.version] for bins in cuts]
    content = {"cuts": names, "given": list(key.given), "shares": shares, "by": BY_BIN}
    return pack(content, [*(bins.starts for bins in cuts), *counts])


def key_of(blob: bytes, *, shared: Shared) -> KeyStatistics:
    """Decode a key's counts. shared: gives the one object that stands for equal bins."""
    content, arrays = unpack(blob)
    cuts = [
        shared(Bins(starts, group, version)) for starts, (group, version) in zip(arrays, content["cuts"], strict=False)
    ]
    rows, ndv, largest, *given = arrays[len(cuts) :]
    by_bin = content.get("by") == BY_BIN
    parts = zip(content["given"], cuts[1:], given[::3], given[1::3], given[2::3], content["shares"], strict=True)
    together = {}
    for name, cut, ends, cells, held, share in parts:
        if not by_bin:
            ends, cells, held = _transposed(ends, cells, held, bins=rows.size)
        together[name] = ConditionalCounts(cut, ends, cells, held, share)
    return KeyStatistics(cuts[0], rows, ndv, largest, together)


def _transposed(ends: Array, bins_of_cells: Array, rows: Array, *, bins: int) -> tuple[Array, Array, Array]:
    """Put the cells of an older blob, which are in order of buckets, in order of bins."""
    order = np.argsort(bins_of_cells, kind="stable")
    buckets = np.repeat(np.arange(ends.size, dtype=np.int32), np.diff(ends, prepend=0))
    return np.cumsum(np.bincount(bins_of_cells, minlength=bins)), buckets[order], rows[order]


def marks_blob(marks: Sequence[FileMark]) -> bytes:
    """Encode the marks of files."""
    sizes = np.array([(mark.bytes, mark.modified_ns) for mark in marks], dtype=np.int64).reshape(len(marks), 2)
    return pack([mark.path for mark in marks], [sizes])


def marks_of(blob: bytes) -> tuple[FileMark, ...]:
    """Decode the marks of files."""
    paths, (sizes,) = unpack(blob)
    return tuple(FileMark(path, *size) for path, size in zip(paths, sizes.tolist(), strict=True))


def shared_bins(known: Iterable[Bins]) -> Shared:
    """Return what gives one object for equal bins of one group and version: the first that it saw, or a known one."""
    seen = {(bins.group, bins.version): bins for bins in known}

    def share(bins: Bins) -> Bins:
        if not bins.group:
            return bins
        first = seen.setdefault((bins.group, bins.version), bins)
        return first if np.array_equal(first.starts, bins.starts) else bins

    return share


def cuts_of(key: KeyStatistics) -> tuple[Bins, ...]:
    """Return all bins that a key's counts stand on, its own first."""
    return (key.bins, *(given.buckets for given in key.given.values()))


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


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _filled(part: bytes) -> bytes:
    return part + bytes(-len(part) % WORD)
