from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import TEXT_KEY_BYTES
from statsproc.texts import WORD_BYTES, Texts, common_prefix

texts = st.lists(st.binary(max_size=50), max_size=30)


@settings(deadline=None)
@given(texts, st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]), st.integers(0, 3))
def test_strings_come_back_as_they_are(values: list[bytes], arrow: pa.DataType, skipped: int) -> None:
    found = Texts.of(pa.array(values, arrow).slice(skipped))
    assert [found[row] for row in range(len(found))] == values[skipped:]
    lengths = [len(value) for value in values[skipped:]]
    assert (found.longest, found.shortest) == (max(lengths, default=0), min(lengths, default=0))


@settings(deadline=None)
@given(texts, st.integers(0, 50))
def test_words_are_eight_bytes_with_the_first_one_highest(values: list[bytes], offset: int) -> None:
    words = Texts.of(pa.array(values, pa.binary())).words(offset)
    cut = [value[offset : offset + WORD_BYTES].ljust(WORD_BYTES, b"\0") for value in values]
    assert words.tolist() == [int.from_bytes(word, "big") for word in cut]


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=30))
def test_keys_are_the_first_bytes_in_the_order_of_the_strings(values: list[str]) -> None:
    known = [value.encode() for value in values]
    keys = Texts.of(pa.array(values)).keys()
    assert keys.tolist() == [value[:TEXT_KEY_BYTES].rstrip(b"\0") for value in known]
    order = np.argsort(keys, kind="stable")
    assert [known[row][:TEXT_KEY_BYTES].rstrip(b"\0") for row in order] == sorted(keys.tolist())


@settings(deadline=None)
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_what_two_strings_have_in_common(low: bytes, high: bytes) -> None:
    found = common_prefix(low, high)
    assert low.startswith(found)
    assert high.startswith(found)
    assert low[len(found) : len(found) + 1] != high[len(found) : len(found) + 1] or low == high
