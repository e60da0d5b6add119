"""Keys, their places on the line and their chances: what the statistics job and the estimator agree on."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from selector.hashing import BLOCK, LONG_BYTES, hash_words
from selector.join_keys import Bins, ColumnRef, KeyPair, KeySample, KeyStatistics, chance_of, key_groups, key_order
from selector.key_line import line_of_hashes, line_of_sample, line_of_texts, line_together
from selector.row_sample import PackedNumbers, PackedTexts, RowSample, SampleColumn, Unpacked

LINE_ENDS = 2.0**53
SIGMAS = 5.0
TEXTS = [7956156453446585.0, 5233766129566277.0, 6972991825389671.0, 7728308225611617.0, 861806330156664.0]
PAIRS = [2110968810415458.0, 5876733520225071.0]

floats = st.floats(allow_nan=False)


def _columns(*names: tuple[str, str]) -> list[tuple[ColumnRef, ColumnRef]]:
    return [(ColumnRef("sales", own), ColumnRef("books", its)) for own, its in names]


def test_a_key_of_several_columns_is_one_whichever_way_it_is_written() -> None:
    pairs = _columns(("shop", "store"), ("book", "id"), ("Day", "date"))
    found = KeyPair.together(pairs)
    assert found == KeyPair.together([*pairs[::-1], pairs[0]]) == KeyPair.together((b, a) for a, b in pairs)
    assert (found.left, found.right) == (ColumnRef("books", "id,date,store"), ColumnRef("sales", "book,Day,shop"))
    assert found.left.columns == ("id", "date", "store")
    assert ColumnRef("books", "id").columns == ("id",)
    assert KeyPair.together(pairs[:1]) == KeyPair.of(*pairs[0])


@given(st.text(max_size=3), st.text(max_size=3))
def test_the_order_of_a_keys_columns_does_not_depend_on_the_side(one: str, other: str) -> None:
    assert key_order(one, other) == key_order(other, one) == key_order(one.lower(), other.lower())


def test_a_key_of_several_columns_has_a_group_of_its_own() -> None:
    pairs = _columns(("shop", "store"), ("book", "id"))
    both = KeyPair.together(pairs)
    groups = key_groups([*(KeyPair.of(*pair) for pair in pairs), both])
    assert groups["books.id,store"] == (both.left, both.right)
    assert groups["books.id"] == (ColumnRef("books", "id"), ColumnRef("sales", "book"))
    assert len(groups) == 3


def test_bins_hold_what_lies_before_their_next_start() -> None:
    bins = Bins(np.array([0.0, 5.0, np.nextafter(5.0, 6.0), 9.0]))
    assert bins.alone.tolist() == [False, True, False, False]
    assert bins.of(np.array([-1.0, 0.0, 4.9, 5.0, 5.1, 9.0, np.inf])).tolist() == [0, 0, 0, 1, 2, 3, 3]
    for starts in ([], [1.0, 1.0], [2.0, 1.0], [[1.0]]):
        with pytest.raises(ValueError, match="bin"):
            Bins(np.array(starts))


def test_every_bin_of_a_key_is_counted() -> None:
    bins, counts = Bins(np.array([0.0, 5.0])), np.ones(2)
    sample = KeySample(0.5, RowSample(0, 0.5, {}))
    assert KeyStatistics(bins, counts, counts, counts, sample).sample is sample
    with pytest.raises(ValueError, match="every bin"):
        KeyStatistics(bins, counts, counts[:1], counts)


# ---------------------------------------------------------------------- hashes


def test_hashes_stay_as_they_are() -> None:
    """Statistics that are stored were made with them: splitmix64's first numbers from 0, its author's own."""
    steps = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [f"{word:016x}" for word in hash_words(steps)] == [
        "e220a8397b1dcdaf",
        "6e789e6aa1b965f4",
        "06c45d188009454f",
    ]
    assert line_of_texts([b"", b"a", b"abcdefgh", b"abcdefghi", b"x" * 300]).tolist() == TEXTS
    assert line_together([np.array([1.0, 0.0]), np.array([2.0, 0.0])]).tolist() == PAIRS


def test_hashes_do_not_depend_on_how_many_are_made_at_once() -> None:
    words = np.arange(2 * BLOCK + 3, dtype=np.uint64)
    at = [0, BLOCK - 1, BLOCK, 2 * BLOCK + 2]
    assert hash_words(words)[at].tolist() == [int(hash_words(words[[place]])[0]) for place in at]
    assert words[5] == 5


@given(st.lists(floats, min_size=1, max_size=50, unique=True))
def test_chances_are_those_of_keys(keys: list[float]) -> None:
    line = np.array(keys)
    chances = chance_of(line)
    assert ((chances >= 0.0) & (chances <= 1.0)).all()
    np.testing.assert_array_equal(chance_of(line[::-1]), chances[::-1])
    assert chance_of(np.array([-0.0]))[0] == chance_of(np.array([0.0]))[0]


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_as_many_keys_are_chosen_as_the_share_says(share: float) -> None:
    """Also of neighbours, and whichever keys another share chose."""
    keys = np.arange(100_000.0)
    for line in (keys, keys * 86_400e6, line_of_hashes(hash_words(keys.view(np.uint64)))):
        chosen = chance_of(line) < share
        assert chosen.sum() == pytest.approx(share * line.size, abs=SIGMAS * np.sqrt(share * line.size))
        assert (chosen[1:] & chosen[:-1]).sum() == pytest.approx(
            share**2 * line.size, abs=SIGMAS * np.sqrt(share**2 * line.size) + SIGMAS
        )
        assert not (chosen & ~(chance_of(line) < 2 * share)).any()


@given(
    st.lists(st.tuples(floats, floats), min_size=2, max_size=20, unique_by=lambda pair: (pair[0] + 0.0, pair[1] + 0.0))
)
def test_pairs_of_keys_lie_at_places_of_their_own(pairs: list[tuple[float, float]]) -> None:
    line = line_together([np.array(side) for side in zip(*pairs, strict=True)])
    assert np.unique(line).size == len(pairs)
    assert ((line >= 0.0) & (line < LINE_ENDS) & (line == np.floor(line))).all()


def test_the_order_of_columns_counts() -> None:
    one, other = np.array([1.0]), np.array([2.0])
    places = {line_together(lines)[0] for lines in ([one, other], [other, one], [one, one], [one], [one, one, one])}
    assert len(places) == 5


def test_long_strings_that_differ_at_their_ends_lie_apart() -> None:
    """Also behind what a histogram keeps of them, and behind what is hashed many at a time."""
    for length in (31, 32, 33, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, 1000):
        begin = hashlib.sha256(b"begin").digest() * 32
        texts = [begin[:length], begin[: length - 1], begin[: length - 1] + b"\0", begin[: length - 1] + b"\xff"]
        assert np.unique(line_of_texts(texts)).size == len(texts)


def test_sampled_values_lie_where_their_keys_do() -> None:
    nulls = np.array([False, True, False])
    texts = SampleColumn.of(np.array(["b", "", "a"], dtype=object), nulls)
    assert line_of_sample(texts).tolist() == line_of_texts([b"a", b"b"]).tolist()
    assert line_of_sample(SampleColumn.of(np.array([7.0, 0.0, -1.0]), nulls)).tolist() == [-1.0, 7.0]


# ---------------------------------------------------------------------- sampled columns


@given(st.lists(st.none() | floats) | st.lists(st.none() | st.text(max_size=3)))
def test_a_sampled_column_holds_each_value_once(held: list[float | str | None]) -> None:
    text = any(isinstance(value, str) for value in held)
    nulls = np.array([value is None for value in held], dtype=np.bool_)
    known = [("" if text else 0.0) if value is None else value for value in held]
    column = SampleColumn.of(np.array(known, dtype=object if text else np.float64), nulls)
    assert column.values.tolist() == sorted({value for value in held if value is not None})
    assert column.nulls.tolist() == nulls.tolist()
    assert [value for value, null in zip(column.rows.tolist(), nulls, strict=True) if not null] == [
        value for value in held if value is not None
    ]
    assert column.held.tolist() == [*(held.count(value) for value in column.values.tolist()), held.count(None)]
    assert column.is_text is text
    assert column.size == column.values.size


def test_codes_become_wider_where_fewer_bytes_are_too_few() -> None:
    for different, kind in ((255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.uint32)):
        column = SampleColumn.of(np.arange(different + 1.0), np.arange(different + 1) == different)
        assert column.codes.dtype == kind
        assert (column.values.size, np.flatnonzero(column.nulls).tolist()) == (different, [different])


DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("numbers", "each"),
    [
        (np.arange(1_000.0), 1),
        (np.arange(1_000.0) * DAY + 3.0, 1),  # as timestamps at midnight are
        ((np.arange(1_000.0) - 500.0) / 100.0, 1),
        (np.cumsum(np.arange(1_000.0)), 2),
        (np.array([-(2.0**52), 0.0, 2.0**52]), 4),  # one gap: both are the same
        (np.sqrt(np.arange(1_000.0)), 8),
        (np.array([0.0, 1.0, 1e300]), 8),
        (np.array([0.0, 1.0, np.inf, np.nan]), 8),
        (np.array([-0.0, 1.0]), 8),
    ],
)
def test_packed_numbers_come_back_to_the_bit(numbers: NDArray[np.float64], each: int) -> None:
    packed = PackedNumbers.of(numbers)
    assert packed.unpacked()[0].tobytes() == numbers.tobytes()
    assert packed.size == numbers.size
    assert packed.nbytes <= each * numbers.size


@given(st.lists(floats, unique=True))
def test_any_packed_numbers_come_back_to_the_bit(held: list[float]) -> None:
    numbers = np.array(sorted(held), dtype=np.float64)
    assert PackedNumbers.of(numbers).unpacked()[0].tobytes() == numbers.tobytes()


@given(st.sets(st.text()))
def test_packed_texts_come_back(held: set[str]) -> None:
    packed = PackedTexts.of([text.encode() for text in sorted(held)])
    assert packed.unpacked()[0].tolist() == sorted(held)
    assert packed.bytes_of_each() == [text.encode() for text in sorted(held)]


def test_packed_texts_take_less_than_their_bytes() -> None:
    texts = [f"https://example.org/books/{number:08}".encode() for number in range(1_000)]
    assert PackedTexts.of(texts).nbytes < sum(map(len, texts)) / 3


def test_what_stays_unpacked_is_bounded() -> None:
    """The values that were looked at last stay; those of others are unpacked anew, and are the same."""
    held = Unpacked(most_bytes=3 * 8 * 100)
    columns = [PackedNumbers.of(np.arange(100.0) + start) for start in range(4)]
    first = [held.of(column) for column in columns[:3]]
    assert held.of(columns[0]) is first[0]
    held.of(columns[3])  # for which the second has to go
    assert held.of(columns[0]) is first[0]
    again = held.of(columns[1])
    assert again is not first[1]
    assert again.tolist() == first[1].tolist()
    large = PackedNumbers.of(np.arange(1_000.0))
    assert held.of(large) is not held.of(large)
    assert held.bytes <= 3 * 8 * 100
