"""Whole rows of a table, sampled: each column's different values, and which of them each row holds.

A sample is held in few bytes, since a gateway holds those of all tables: numbers as the gaps between them, strings
compressed. They are unpacked where somebody looks at them; the last ones stay unpacked, as far as MOST_UNPACKED allows.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_DIGITS = 6  # behind the decimal point of numbers that are held as whole ones
EXACT = 2.0**53  # whole numbers up to it are told apart
MOST_UNPACKED = 64 << 20  # bytes of values that stay unpacked, of all tables together
TEXT_BYTES = 57  # of a short string beside its characters (CPython), and of the reference to it

Numbers = NDArray[np.float64]
Texts = NDArray[np.object_]
Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

_UNSIGNED = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class PackedNumbers:
    """Different numbers in order, exact to the bit.

    gaps: shape (n,), unsigned, from each number to the next in multiples of ``step``, the first one 0; or, where the
    numbers are no whole multiples of anything, themselves, as float64. first: the smallest number. Both count units of
    10 ** -digits.
    """

    gaps: NDArray[Any]
    first: int = 0
    step: int = 1
    digits: int = 0

    @classmethod
    def of(cls, numbers: Numbers) -> PackedNumbers:
        """Pack numbers, shape (n,), increasing."""
        for digits in range(MOST_DIGITS + 1):
            with np.errstate(invalid="ignore", over="ignore"):
                whole = np.rint(numbers * 10.0**digits)
            if not numbers.size or not np.abs(whole).max() < EXACT:  # NaN is not, either
                break
            if np.array_equal(whole / 10.0**digits, numbers):
                gaps = np.diff(whole.astype(np.int64), prepend=int(whole[0]))
                step = max(1, int(np.gcd.reduce(gaps)))
                narrow = _narrowed((gaps // step).astype(np.int64))
                packed = cls(narrow, int(whole[0]), step, digits) if narrow is not None else None
                if packed is not None and packed.unpacked()[0].tobytes() == numbers.tobytes():  # -0.0 is not
                    return packed
        return cls(np.array(numbers, dtype=np.float64))

    @property
    def size(self) -> int:
        """Tell how many numbers there are."""
        return int(self.gaps.size)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.gaps.nbytes)

    def unpacked(self) -> tuple[Numbers, int]:
        """Return the numbers, shape (n,), and the bytes that they take then."""
        if self.gaps.dtype == np.float64:
            return self.gaps, 0
        whole = np.cumsum(self.gaps, dtype=np.int64) * self.step + self.first
        numbers = whole.astype(np.float64)
        if self.digits:
            numbers /= 10.0**self.digits
        return numbers, numbers.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class PackedTexts:
    """Different strings in order. lengths: shape (n,), unsigned, bytes of each. content: all of them, compressed."""

    lengths: NDArray[Any]
    content: bytes

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> PackedTexts:
        """Pack strings, UTF-8, increasing."""
        return cls.of_content([len(text) for text in texts], b"".join(texts))

    @classmethod
    def of_content(cls, lengths: Sequence[int] | NDArray[Any], content: bytes) -> PackedTexts:
        """Pack strings that lie one behind the other."""
        held = np.asarray(lengths, dtype=np.int64)
        narrow = _narrowed(held)
        return cls(held if narrow is None else narrow, zlib.compress(content, 1))

    @property
    def size(self) -> int:
        """Tell how many strings there are."""
        return int(self.lengths.size)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.lengths.nbytes) + len(self.content)

    def bytes_of_each(self) -> list[bytes]:
        """Return the strings in UTF-8."""
        content, ends = zlib.decompress(self.content), np.cumsum(self.lengths, dtype=np.int64)
        starts = ends - self.lengths
        return [content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def unpacked(self) -> tuple[Texts, int]:
        """Return the strings as objects of type ``str``, shape (n,), and the bytes that they take then."""
        texts = np.empty(self.size, dtype=object)
        texts[:] = [text.decode() for text in self.bytes_of_each()]
        return texts, int(self.lengths.sum(dtype=np.int64)) + self.size * TEXT_BYTES


class Unpacked:
    """Values that were unpacked last, as far as they fit. Thread-safe. bytes: of those that stay."""

    def __init__(self, *, most_bytes: int) -> None:
        self.bytes = 0
        self._most_bytes = most_bytes
        self._held: OrderedDict[PackedNumbers | PackedTexts, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def of(self, packed: PackedNumbers | PackedTexts) -> Any:
        """Return the values, which nobody may write to."""
        with self._lock:
            held = self._held.get(packed)
            if held is not None:
                self._held.move_to_end(packed)
                return held[0]
        values, size = packed.unpacked()
        values.flags.writeable = False
        if 0 < size <= self._most_bytes:
            with self._lock:
                if packed not in self._held:
                    self._held[packed] = values, size
                    self.bytes += size
                while self.bytes > self._most_bytes:
                    self.bytes -= self._held.popitem(last=False)[1][1]
        return values


_UNPACKED = Unpacked(most_bytes=MOST_UNPACKED)


@dataclass(frozen=True, slots=True, eq=False)
class SampleColumn:
    """One column of a row sample, its different values numbered.

    packed: the n different values, increasing: numbers on the type's line, or strings (whole, up to 256 characters).
    codes: shape (rows,), the smallest unsigned type: where each row's value stands in ``values``; n for NULL.
    """

    packed: PackedNumbers | PackedTexts
    codes: Codes

    @classmethod
    def of(cls, values: Numbers | Texts, nulls: NDArray[np.bool_]) -> SampleColumn:
        """Return the column of some rows: shape (rows,), float64 or objects of type ``str``; of NULLs anything."""
        present: Any = values[~nulls]
        distinct, places = np.unique(present, return_inverse=True)
        codes = np.full(nulls.size, distinct.size, dtype=np.uint32)
        codes[~nulls] = places
        if values.dtype == object:
            return cls(
                PackedTexts.of([text.encode() for text in distinct.tolist()]), narrow_codes(codes, distinct.size)
            )
        return cls(PackedNumbers.of(distinct.astype(np.float64)), narrow_codes(codes, distinct.size))

    @property
    def size(self) -> int:
        """Tell how many different values there are, n."""
        return self.packed.size

    @property
    def is_text(self) -> bool:
        """Tell whether the values are strings."""
        return isinstance(self.packed, PackedTexts)

    @property
    def nbytes(self) -> int:
        """Bytes that the column takes."""
        return self.packed.nbytes + int(self.codes.nbytes)

    @property
    def values(self) -> Numbers | Texts:
        """The different values, shape (n,), float64 or objects of type ``str``; not to be written to."""
        values: Numbers | Texts = _UNPACKED.of(self.packed)
        return values

    @property
    def nulls(self) -> NDArray[np.bool_]:
        """Tell whether each row is NULL, shape (rows,)."""
        missing: NDArray[np.bool_] = self.codes == self.size
        return missing

    @property
    def rows(self) -> Numbers | Texts:
        """The value of each row, shape (rows,); of NULLs anything."""
        return self.padded[self.codes]

    @property
    def padded(self) -> Numbers | Texts:
        """The different values and one that stands for NULL, shape (n + 1,)."""
        return np.append(self.values, "" if self.is_text else 0.0).astype(object if self.is_text else np.float64)

    @property
    def held(self) -> NDArray[np.intp]:
        """Tell how many rows hold each value, and how many are NULL, shape (n + 1,)."""
        return np.bincount(self.codes, minlength=self.size + 1)


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Whole rows, each of the table's taken with the same chance.

    share: that chance, 0..1. The rows of neighbouring row groups stand together, in the order of their file: a column
    whose values lie together there is told by it.
    """

    rows: int
    share: float
    columns: Mapping[str, SampleColumn]


def narrow_codes(codes: NDArray[Any], different: int) -> Codes:
    """Return codes in the smallest type that holds them, as an array of its own. different: values beside NULL."""
    narrow: Any = codes.astype(next(kind for kind in _UNSIGNED if different <= np.iinfo(kind).max))
    result: Codes = narrow
    return result


def _narrowed(whole: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return whole numbers from 0 on in the smallest type that holds them; None where that is no smaller."""
    largest = int(whole.max(initial=0))
    return next((whole.astype(kind) for kind in _UNSIGNED if largest <= np.iinfo(kind).max), None)
