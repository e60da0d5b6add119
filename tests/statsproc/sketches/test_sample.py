from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from statsproc.sketches.sample import (
    SAMPLE_ROWS,
    TEXT_CHARACTERS,
    Sampled,
    draw,
    merge_samples,
    row_sample,
    rows_wanted,
)

DRAWS = 400
CHUNKS = (5, 70, 25)  # rows of three chunks of one table
SIGMAS = 5.0


def _sampled(first: int, rows: int, share: float, place: str) -> Sampled:
    drawn = draw(rows, share, place)
    numbers = pa.array(range(first, first + rows))
    columns = {
        "n": drawn.of(numbers, "bigint"),
        "s": drawn.of(pa.array([f"s{n}" for n in range(first, first + rows)]), "string"),
    }
    return Sampled(drawn.share, drawn.tickets, columns)


@pytest.mark.parametrize("shares", [(0.2, 0.2, 0.2), (1.0, 0.3, 0.2)])
def test_every_row_has_the_same_chance(shares: tuple[float, ...]) -> None:
    """Whichever chunk it lies in, and however much of that chunk was drawn before the merge."""
    held = np.zeros(sum(CHUNKS))
    together = 0
    for number in range(DRAWS):
        first, parts = 0, []
        for rows, share in zip(CHUNKS, shares, strict=True):
            parts.append(_sampled(first, rows, share, f"{number} {first}"))
            first += rows
        merged = merge_samples(parts)
        assert merged.share == min(shares)
        rows_in = merged.columns["n"].to_numpy().astype(int)
        held[rows_in] += 1
        together += 10 in rows_in and 60 in rows_in
    share = min(shares)
    spread = np.sqrt(DRAWS * share * (1 - share))
    assert np.abs(held - DRAWS * share).max() < SIGMAS * spread
    assert abs(held.sum() - DRAWS * share * held.size) < SIGMAS * spread * np.sqrt(held.size)
    assert abs(together - DRAWS * share**2) < SIGMAS * np.sqrt(DRAWS * share**2)  # rows are independent of each other


def test_rows_stay_whole() -> None:
    merged = merge_samples([_sampled(0, 500, 0.5, "a"), _sampled(500, 500, 0.3, "b"), _sampled(1000, 3, 0.9, "c")])
    assert merged.tickets.size > 100
    assert merged.columns["s"].to_pylist() == [f"s{int(n)}" for n in merged.columns["n"].to_pylist()]
    assert np.all(merged.tickets < merged.share)


def test_rows_keep_their_order_within_a_part() -> None:
    """The estimate of memory tells by it which values lie together in the files."""
    parts = [_sampled(1000, 500, 1.0, "b"), _sampled(0, 500, 0.6, "a")]
    found = row_sample(merge_samples([merge_samples(parts), _sampled(2000, 9, 0.8, "c")]))
    assert found is not None
    assert found.share == 0.6
    values = found.columns["n"].rows.astype(float)
    assert np.count_nonzero(np.diff(values) < 0) == 1  # where the second part begins
    assert values[0] >= 1000


def test_a_part_in_which_nothing_was_drawn_changes_nothing() -> None:
    some, none = _sampled(0, 500, 0.5, "a"), _sampled(500, 1, 1e-9, "b")
    assert none.tickets.size == 0
    merged = merge_samples([none, Sampled(0.5, some.tickets, some.columns)])
    assert set(merged.columns) == {"n", "s"}


def test_a_sample_stays_small() -> None:
    parts = [_sampled(n * 9_000, 9_000, 1.0, str(n)) for n in range(10)]
    merged = merge_samples(parts)
    assert SAMPLE_ROWS / 1.1 < merged.tickets.size <= 2 * SAMPLE_ROWS
    assert [rows_wanted(columns) for columns in (0, 256, 2_000, 10**6)] == [20_000, 20_000, 2_560, 500]
    assert merged.share in (0.5, 0.25, 0.125)
    assert merged.tickets.size == pytest.approx(90_000 * merged.share, rel=0.05)


def test_the_same_data_give_the_same_sample() -> None:
    np.testing.assert_array_equal(_sampled(0, 100, 0.3, "a").tickets, _sampled(0, 100, 0.3, "a").tickets)
    assert _sampled(0, 100, 0.3, "a").tickets.size != _sampled(0, 100, 0.3, "b").tickets.size


def test_values_on_their_lines() -> None:
    drawn = draw(3, 1.0, "x")
    assert drawn.of(pa.array([True, None, False]), "boolean").to_pylist() == [1.0, None, 0.0]
    amounts = pa.array([Decimal("1.5"), None, Decimal(-2)], pa.decimal128(30, 2))
    assert drawn.of(amounts, "decimal(30,2)").to_pylist() == [1.5, None, -2.0]
    texts = pa.array(["é" * 400, None, "short"]).dictionary_encode()
    assert drawn.of(texts, "string").to_pylist() == ["é" * TEXT_CHARACTERS, None, "short"]
    assert drawn.of(pa.array([b"\xff", None, b"ok"], pa.binary()), "string").to_pylist() == ["\ufffd", None, "ok"]
    broken = pa.array([b"\xff" + b"x" * 400, None, b"ok"], pa.binary())
    assert drawn.of(broken, "string").to_pylist() == ["\ufffd" + "x" * (TEXT_CHARACTERS - 1), None, "ok"]
    assert drawn.of(pa.nulls(3), "int").to_pylist() == [None] * 3


def test_what_the_estimator_reads() -> None:
    drawn = draw(3, 1.0, "x")
    columns = {"n": drawn.of(pa.array([1, None, 3]), "int"), "s": drawn.of(pa.array(["a", "b", None]), "string")}
    found = row_sample(Sampled(1.0, drawn.tickets, columns), read=0.25)
    assert found is not None
    assert (found.rows, found.share) == (3, 0.25)
    assert found.columns["n"].rows[~found.columns["n"].nulls].tolist() == [1.0, 3.0]
    assert found.columns["s"].rows[~found.columns["s"].nulls].tolist() == ["a", "b"]
    assert row_sample(Sampled()) is None
