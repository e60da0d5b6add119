"""Sets of values of one column.

A domain is a sequence of cuts on the column's line, each just before or just behind a value. Between cuts, values are
alternately in and out of the domain. The type decides which values are between two cuts: behind 3 is before 4 for whole
numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from selector.statistics import Key, as_text_key

Cut = tuple[Key, int]  # (value, 0): just before it; (value, 1): just behind it

_NUMBERS = ((-np.inf, 0), (np.inf, 1))
TEXT_TOP = b"\xff"  # no UTF-8 text has such a byte
_TEXTS = ((b"", 0), (TEXT_TOP, 1))
FEW_CUTS = 4  # up to which each cut is searched separately
MOST_SEARCHED = 0.05  # cuts per string, up to which searching each cut is faster


@dataclass(frozen=True, slots=True)
class Domain:
    """Set of values of one column, as a predicate keeps it.

    cuts: an even number, strictly increasing; values between the first and the second are kept, and so on.
    nulls: NULL is kept.
    text: the line is that of strings.
    """

    cuts: tuple[Cut, ...]
    nulls: bool = False
    text: bool = False

    @classmethod
    def everything(cls, *, text: bool = False, nulls: bool = False) -> Domain:
        """Return the domain of all values."""
        return cls(_TEXTS if text else _NUMBERS, nulls, text)

    @classmethod
    def nothing(cls, *, text: bool = False, nulls: bool = False) -> Domain:
        """Return the domain of no value."""
        return cls((), nulls, text)

    @classmethod
    def where(cls, comparison: str, value: Key) -> Domain:
        """Return the values for which a comparison with ``value`` holds. comparison: one of = <> < <= > >=."""
        text = isinstance(value, bytes)
        bottom, top = _TEXTS if text else _NUMBERS
        before, behind = (value, 0), (value, 1)
        cuts = {
            "=": (before, behind),
            "<>": (bottom, before, behind, top),
            "<": (bottom, before),
            "<=": (bottom, behind),
            ">": (behind, top),
            ">=": (before, top),
        }[comparison]
        return cls(joined(cuts), text=text)

    @classmethod
    def one_of(cls, values: Iterable[Key], *, text: bool) -> Domain:
        """Return the domain of some values."""
        return cls(tuple(cut for value in sorted(set(values)) for cut in ((value, 0), (value, 1))), text=text)

    @classmethod
    def any_of(cls, domains: Sequence[Domain]) -> Domain:
        """Return the union of domains of one line; in time that grows with their cuts alone."""
        stretches = sorted(
            stretch for domain in domains for stretch in zip(domain.cuts[::2], domain.cuts[1::2], strict=True)
        )
        cuts = joined([cut for stretch in stretches for cut in stretch])
        return cls(cuts, any(domain.nulls for domain in domains), domains[0].text)

    @classmethod
    def all_of(cls, domains: Sequence[Domain]) -> Domain:
        """Return the intersection of domains of one line; by halves, so that many small ones stay small."""
        if len(domains) == 1:
            return domains[0]
        half = len(domains) // 2
        return cls.all_of(domains[:half]) & cls.all_of(domains[half:])

    @classmethod
    def beginning_with(cls, prefix: bytes) -> Domain:
        """Return the strings with a prefix."""
        end = after_prefix(prefix)
        return cls(((prefix, 0), end if end is not None else _TEXTS[1]), text=True)

    @property
    def line(self) -> tuple[Cut, Cut]:
        """Return the cuts before and behind everything."""
        return _TEXTS if self.text else _NUMBERS

    @property
    def is_everything(self) -> bool:
        """Tell whether every value is kept."""
        return self.cuts == self.line

    def names_text_of(self, size: int) -> bool:
        """Return whether it keeps or leaves out single strings of at least ``size`` bytes."""
        return self.text and any(
            low == high and isinstance(low, bytes) and len(low) >= size for (low, _), (high, _) in pairwise(self.cuts)
        )

    @property
    def values(self) -> tuple[Key, ...] | None:
        """Values that are kept, if they are single values; else None."""
        if any(low != high for (low, _), (high, _) in zip(self.cuts[::2], self.cuts[1::2], strict=True)):
            return None
        return tuple(low for low, _ in self.cuts[::2])

    def __and__(self, other: Domain) -> Domain:
        cuts = self._without_line(other)
        if cuts is None:
            cuts = _intersection(self.cuts, other.cuts)
        return Domain(cuts, self.nulls and other.nulls, self.text)

    def __or__(self, other: Domain) -> Domain:
        return Domain.any_of((self, other))

    def __invert__(self) -> Domain:
        """Return the complement without NULL, as NOT does."""
        bottom, top = self.line
        head = self.cuts[1:] if self.cuts[:1] == (bottom,) else (bottom, *self.cuts)
        return Domain(head[:-1] if head[-1:] == (top,) else (*head, top), False, self.text)

    def otherwise(self) -> Domain:
        """Return the complement, with NULL if this domain is without."""
        return Domain((~self).cuts, not self.nulls, self.text)

    def mapped(self, place: Callable[[Key, int], Cut], *, falling: bool = False, text: bool = False) -> Domain:
        """Return the preimage under a monotone function.

        place: the cut of arguments for a cut of values. falling: the function falls. text: arguments are strings.
        """
        (bottom, top), (low, high) = self.line, (_TEXTS if text else _NUMBERS)
        if falling:
            low, high = high, low
        moved = [low if cut == bottom else high if cut == top else place(*cut) for cut in self.cuts]
        return Domain(joined(moved[::-1] if falling else moved), self.nulls, text)

    def holds(self, value: Key) -> bool:
        """Return whether a value is kept."""
        return sum(1 for cut in self.cuts if cut <= (value, 0)) % 2 == 1

    def holds_each(self, places: NDArray[np.float64] | NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Return True for each place that is kept, shape as ``places``."""
        if not self.cuts:
            return np.zeros(places.shape, dtype=np.bool_)
        values = np.array([value for value, _ in self.cuts], dtype=np.bytes_ if self.text else np.float64)
        behind = np.array([bool(side) for _, side in self.cuts])
        passed = np.searchsorted(values[~behind], places, side="right")
        passed += np.searchsorted(values[behind], places, side="left")
        return (passed & 1).astype(np.bool_)

    def stretches(self, values: NDArray[np.float64] | NDArray[np.object_]) -> list[tuple[int, int]]:
        """Return the ranges of indices, (first, end), of increasing values that are kept.

        values: shape (n,), numbers or strings. Same result as ``holds_each`` of their places, by binary search.
        """
        if not self.text and len(self.cuts) <= FEW_CUTS:
            at = [int(values.searchsorted(value, side="right" if side else "left")) for value, side in self.cuts]
        elif not self.text:
            ends = np.array([value for value, _ in self.cuts], dtype=np.float64)
            sides = np.array([side for _, side in self.cuts], dtype=np.bool_)
            first, last = (np.searchsorted(values, ends, side=side) for side in ("left", "right"))
            at = np.where(sides, last, first).tolist()
        elif len(self.cuts) > MOST_SEARCHED * values.size:
            return _stretches(self.holds_each(places_of(values)))
        else:
            at = [(bisect_right if side else bisect_left)(values, value, key=as_text_key) for value, side in self.cuts]
        return [(low, high) for low, high in zip(at[::2], at[1::2], strict=True) if low < high]

    def _without_line(self, other: Domain) -> tuple[Cut, ...] | None:
        if self.is_everything:
            return other.cuts
        return self.cuts if other.is_everything else None


def places_of(values: NDArray[np.float64] | NDArray[np.object_]) -> NDArray[np.float64] | NDArray[np.bytes_]:
    """Return the places of a sample's values: numbers themselves, of strings their first bytes."""
    if values.dtype != object:
        return np.asarray(values, dtype=np.float64)
    return np.array([as_text_key(str(value)) for value in values], dtype=np.bytes_)


def _stretches(is_kept: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the ranges of indices, (first, end), that are True."""
    ends = np.flatnonzero(np.diff(is_kept, prepend=False, append=False)).tolist()
    return list(zip(ends[::2], ends[1::2], strict=True))


def after_prefix(prefix: bytes) -> Cut | None:
    """Return the cut behind all strings with a prefix; None if there is no string behind them."""
    stem = prefix.rstrip(b"\xff")
    return (stem[:-1] + bytes((stem[-1] + 1,)), 0) if stem else None


def _intersection(a: Sequence[Cut], b: Sequence[Cut]) -> tuple[Cut, ...]:
    cuts: list[Cut] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i], b[j]), min(a[i + 1], b[j + 1])
        if low < high:
            cuts += (low, high)
        if a[i + 1] < b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(cuts)


def joined(cuts: Sequence[Cut]) -> tuple[Cut, ...]:
    """Return cuts without empty stretches, and with touching stretches merged."""
    stretches: list[Cut] = []
    for low, high in zip(cuts[::2], cuts[1::2], strict=True):
        if low >= high:
            continue
        if stretches and stretches[-1] >= low:
            stretches[-1] = max(stretches[-1], high)
        else:
            stretches += (low, high)
    return tuple(stretches)
