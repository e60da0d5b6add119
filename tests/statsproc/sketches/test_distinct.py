from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.hashing import LONG_BYTES, hash_words
from statsproc.sketches.byte_strings import Texts
from statsproc.sketches.distinct import (
    EVERYTHING,
    KEPT,
    Distinct,
    distinct_of,
    hash_texts,
    merge_distinct,
)

STANDARD_ERROR = 1 / np.sqrt(KEPT)
FEW = 16
HASHES = ["e220a8397b1dcdaf", "94c0a917ec122e13", "0830cb6c1c38f591", "8015bb585b6fb8d8", "61b17a81f27b0bb5"]


def _hash(texts: list[bytes]) -> list[int]:
    return [int(value) for value in hash_texts(Texts.of(pa.array(texts, pa.binary())))]


def _distinct(values: list[int], kept: int = FEW) -> Distinct:
    return distinct_of(hash_words(np.array(values, dtype=np.uint64)), capacity=kept)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)))
def test_equal_texts_and_only_they_have_equal_hashes(texts: list[bytes]) -> None:
    assert len(set(_hash(texts))) == len(set(texts))


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.binary(max_size=300), max_size=5))
def test_a_text_has_the_same_hash_in_any_company(text: bytes, others: list[bytes]) -> None:
    assert _hash([*others, text])[-1] == _hash([text])[0]


def test_hashes_are_those_of_stored_summaries() -> None:
    """Another function would need another format of what is stored: partitions are merged by hashes."""
    found = [f"{value:016x}" for value in _hash([b"", b"a", b"12345678", b"x" * 100, b"y" * 300])]
    assert found == HASHES


@pytest.mark.parametrize("length", [0, 7, 8, 9, LONG_BYTES, LONG_BYTES + 1, 5000])
def test_texts_that_differ_in_their_last_byte_or_length(length: int) -> None:
    texts = [b"x" * length, b"x" * length + b"a", b"x" * length + b"b", b"x" * length + b"\0"]
    assert len(set(_hash(texts))) == len(texts)


@settings(deadline=None)
@given(st.lists(st.integers(0, 60)), st.lists(st.integers(0, 200), max_size=4), st.randoms())
def test_any_split_in_any_order_is_the_whole(values: list[int], cuts: list[int], random: object) -> None:
    """Exactly: the smallest hashes of the whole are those of its parts, and their rows add up."""
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [_distinct(values[low:high]) for low, high in pairwise(bounds)]
    whole = _distinct(values)
    random.shuffle(parts)  # type: ignore[attr-defined]
    merged = merge_distinct(parts, capacity=FEW)
    nested = merge_distinct([parts[0], merge_distinct(parts[1:], capacity=FEW)], capacity=FEW)
    for found in (merged, nested):
        np.testing.assert_array_equal(found.hashes, whole.hashes)
        np.testing.assert_array_equal(found.rows, whole.rows)
        assert found.limit == whole.limit
    counts = Counter(hash_words(np.array(values, dtype=np.uint64)).tolist())
    assert [counts[kept] for kept in whole.hashes.tolist()] == whole.rows.tolist()


def test_few_values_are_counted_exactly() -> None:
    found = distinct_of(hash_words(np.arange(KEPT, dtype=np.uint64).repeat(100)))
    assert (found.count, found.limit, found.share) == (KEPT, EVERYTHING, 1.0)
    assert set(found.rows.tolist()) == {100}


@pytest.mark.parametrize("distinct", [10_000, 300_000, 2_000_000])
def test_many_values_are_estimated(distinct: int) -> None:
    hashes = hash_words(np.arange(distinct, dtype=np.uint64))
    merged = merge_distinct([distinct_of(hashes[: distinct // 2]), distinct_of(hashes[distinct // 3 :])])
    assert abs(merged.count / distinct - 1) < 4 * STANDARD_ERROR
    assert abs(merged.once / (distinct * 5 / 6) - 1) < 5 * STANDARD_ERROR


def test_the_error_is_the_stated_one() -> None:
    """Root mean square over 200 draws of an eighth of the hashes kept."""
    kept, distinct = KEPT // 8, 20_000
    errors = []
    for seed in range(200):
        words = np.random.default_rng(seed).integers(0, 1 << 63, distinct).astype(np.uint64)
        errors.append(distinct_of(hash_words(words), capacity=kept).count / distinct - 1)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(1 / np.sqrt(kept), rel=0.2)


def test_popular_values_do_not_crowd_out_others() -> None:
    words = np.concatenate((np.zeros(1_000_000, dtype=np.uint64), np.arange(5000, dtype=np.uint64)))
    found = distinct_of(hash_words(words))
    assert found.count == 5000
    assert found.rows.max() == 1_000_001


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), unique=True, max_size=100))
def test_keys_stay_with_their_hashes(values: list[float]) -> None:
    keys = np.unique(np.array(values, dtype=np.float64) + 0.0)
    hashes = hash_words(keys.view(np.uint64))
    halves = [slice(0, keys.size // 2), slice(keys.size // 3, None)]
    rows = np.ones(keys.size, dtype=np.int64)
    merged = merge_distinct([distinct_of(hashes[h], rows[h], keys=keys[h], capacity=FEW) for h in halves], capacity=FEW)
    assert merged.keys is not None
    np.testing.assert_array_equal(hash_words(merged.keys.view(np.uint64)), merged.hashes)


def test_nothing_keeps_its_keys() -> None:
    nothing = distinct_of(np.empty(0, np.uint64), np.empty(0, np.int64), keys=np.empty(0))
    for merged in (merge_distinct([nothing]), merge_distinct([nothing, nothing])):
        assert merged.keys is not None
        assert merged.count == 0
    assert merge_distinct([]).count == 0
