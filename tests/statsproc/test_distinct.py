from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsproc.distinct import (
    KEPT,
    LONG_BYTES,
    distinct_values,
    hash_texts,
    hash_words,
    merge_smallest,
    smallest,
)

STANDARD_ERROR = 1 / np.sqrt(KEPT - 2)


def _hash(texts: list[bytes]) -> list[int]:
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64) if texts else lengths
    return [int(value) for value in hash_texts(data, starts, lengths)]


@given(st.lists(st.binary(max_size=40)))
def test_equal_texts_and_only_they_have_equal_hashes(texts: list[bytes]) -> None:
    assert len(set(_hash(texts))) == len(set(texts))


@given(st.binary(max_size=300), st.lists(st.binary(max_size=300), max_size=5))
def test_a_text_has_the_same_hash_in_any_company(text: bytes, others: list[bytes]) -> None:
    assert _hash([*others, text])[-1] == _hash([text])[0]


@pytest.mark.parametrize("length", [0, 7, 8, 9, LONG_BYTES, LONG_BYTES + 1, 5000])
def test_texts_that_differ_in_their_last_byte_or_length(length: int) -> None:
    texts = [b"x" * length, b"x" * length + b"a", b"x" * length + b"b", b"x" * length + b"\0"]
    assert len(set(_hash(texts))) == len(texts)


def test_few_values_are_counted_exactly() -> None:
    words = np.arange(KEPT - 1, dtype=np.uint64).repeat(300)
    assert distinct_values(smallest(hash_words(words))) == KEPT - 1


@pytest.mark.parametrize("distinct", [10_000, 300_000, 2_000_000])
def test_many_values_are_estimated(distinct: int) -> None:
    words = np.arange(distinct, dtype=np.uint64)
    halves = (smallest(hash_words(words[: distinct // 2])), smallest(hash_words(words[distinct // 3 :])))
    estimate = distinct_values(merge_smallest(*halves))
    assert abs(estimate / distinct - 1) < 4 * STANDARD_ERROR


def test_popular_values_do_not_crowd_out_others() -> None:
    words = np.concatenate((np.zeros(1_000_000, dtype=np.uint64), np.arange(5000, dtype=np.uint64)))
    assert distinct_values(smallest(hash_words(words))) == 5000
