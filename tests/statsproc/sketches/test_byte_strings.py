from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import TEXT_KEY_BYTES
from statsproc.sketches.byte_strings import BLOCK, WORD_BYTES, Texts, common_prefix

texts = st.lists(st.binary(max_size=50), max_size=30)


@settings(deadline=None)
@given(texts, st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]), st.integers(0, 3))
def test_strings_come_back_as_they_are(values: list[bytes], arrow: pa.DataType, skipped: int) -> None:
    found = Texts.of(pa.array(values, arrow).slice(skipped))
    assert [found[row] for row in range(len(found))] == values[skipped:]
    lengths = [len(value) for value in values[skipped:]]
    assert found.longest == max(lengths, default=0)
    assert found.lengths.tolist() == lengths
    if values[skipped:]:
        assert found.ends() == (min(values[skipped:]), max(values[skipped:]))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=150), min_size=1, max_size=20), st.integers(0, 150))
def test_parts_of_strings(values: list[bytes], offset: int) -> None:
    whole = Texts.of(pa.array(values, pa.binary()))
    rest = whole.behind(offset)
    assert [rest[row] for row in range(len(rest))] == [value[offset:] for value in values]
    some = whole.some(np.array([len(values) - 1, 0]))
    assert [some[0], some[1]] == [values[-1], values[0]]
    assert some.words(0).tolist() == whole.words(0)[[-1, 0]].tolist()


def test_blocks_are_the_whole() -> None:
    whole = Texts.of(pa.array([str(n) for n in range(2 * BLOCK + 1)]))
    blocks = list(whole.blocks())
    assert [len(block) for block in blocks] == [BLOCK, BLOCK, 1]
    assert np.concatenate([block.words(0) for block in blocks]).tolist() == whole.words(0).tolist()
    assert blocks[2][0] == str(2 * BLOCK).encode()


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
