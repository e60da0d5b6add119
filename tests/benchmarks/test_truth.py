from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from benchmarks.truth import ColumnFacts, Truth
from selector.statistics import ColumnStatistics, CommonValues, Histogram, TableStatistics
from sql.tables import Column

AGES = (8, 9, 23, 23, 23, 23, 27, 45)
AGES_SQL = "(SELECT unnest([8, 9, 23, 23, 23, 23, 27, 45, NULL]) AS age)"
AGE = Column("age", "int")
WORDS = "(VALUES ('pear'), ('fig'), (NULL), ('fig'), ('ä')) AS t(word)"
WORD = Column("word", "string")
SHARED = "x" * 32
DAYS = "(VALUES (DATE '1969-12-31'), (DATE '1970-01-02')) AS t(day)"


def _ages(**changed: object) -> TableStatistics:
    known: dict[str, object] = {
        "nulls": 1,
        "ndv": 5.0,
        "minimum": 8.0,
        "maximum": 45.0,
        "histogram": Histogram(np.array([8.0, 23.0, 45.0]), np.array([0, 2, 7]) / 8, np.array([1, 6, 8]) / 8),
        "common": CommonValues(np.array([23.0]), np.array([4])),
    }
    column = ColumnStatistics("age", "int", **(known | changed))  # type: ignore[arg-type]
    return TableStatistics("people", version=1, rows=len(AGES) + 1, bytes=0, columns={"age": column})


def test_what_is_true_is_counted() -> None:
    assert Truth().facts(AGES_SQL, [AGE]) == (9, {"age": ColumnFacts(1, 5, 8.0, 45.0, None, None)})
    lengths = [len(word.encode()) for word in ("pear", "fig", "fig", "ä")]
    assert Truth().facts(WORDS, [WORD]) == (
        5,
        {"word": ColumnFacts(1, 3, "fig", "ä", sum(lengths) / len(lengths), max(lengths))},
    )
    _, days = Truth().facts(DAYS, [Column("day", "date")])
    assert (days["day"].minimum, days["day"].maximum) == (-1.0, 1.0)


def test_exact_statistics_have_no_errors() -> None:
    (errors,) = Truth().errors(AGES_SQL, [AGE], _ages())
    assert (errors.rank_percent, errors.ndv_percent, errors.common_percent, errors.inexact) == (0.0, 0.0, 0.0, ())


@pytest.mark.parametrize(
    ("changed", "inexact"),
    [
        ({"nulls": 0}, "nulls"),
        ({"minimum": 9.0}, "minimum"),
        ({"maximum": 44.0}, "maximum"),
        ({"average_length": 4.0}, "average_length"),
        ({"maximum_length": 4}, "maximum_length"),
    ],
)
def test_a_field_that_is_off_is_named(changed: dict[str, object], inexact: str) -> None:
    (errors,) = Truth().errors(AGES_SQL, [AGE], _ages(**changed))
    assert errors.inexact == (inexact,)


def test_rank_distinct_and_count_errors_are_in_percent() -> None:
    off = Histogram(np.array([8.0, 23.0, 45.0]), np.array([0, 2, 7]) / 8, np.array([1, 5, 8]) / 8)
    common = CommonValues(np.array([23.0, 27.0]), np.array([4, 3]))
    (errors,) = Truth().errors(AGES_SQL, [AGE], _ages(histogram=off, ndv=6.0, common=common))
    assert errors.rank_percent == pytest.approx(100 / 8)
    assert errors.ndv_percent == pytest.approx(100 / 5)
    assert errors.common_percent == pytest.approx(100 * (3 - 1) / 8)


def test_strings_are_ranked_by_their_first_bytes() -> None:
    relation = f"(VALUES ('a'), ('{SHARED}one'), ('{SHARED}two'), ('é')) AS t(word)"
    keys = np.array([b"a", SHARED.encode(), "é".encode()], dtype="S32")
    histogram = Histogram(keys, np.array([0, 1, 3]) / 4, np.array([1, 3, 4]) / 4)
    column = ColumnStatistics("word", "string", 0, 4.0, histogram=histogram)
    found = TableStatistics("words", version=1, rows=4, bytes=0, columns={"word": column})
    (errors,) = Truth().errors(relation, [WORD], found)
    assert errors.rank_percent == 0.0


def test_an_end_point_without_shares_is_right_at_any_rank_of_its_value() -> None:
    quarters = Histogram(np.array([8.0, 23.0, 23.0, 23.0, 45.0]))  # ranks 0, 2, 4, 6, 8 of 8
    assert Truth().place_percent(AGES_SQL, AGE, quarters) == 0.0
    late = Histogram(np.array([8.0, 27.0, 27.0, 27.0, 45.0]))  # 27 has the ranks 6 to 7
    assert Truth().place_percent(AGES_SQL, AGE, late) == pytest.approx(100 * (6 - 2) / 8)


def test_values_come_with_the_rows_below_them() -> None:
    values, below = Truth().cumulative(AGES_SQL, "age")
    assert values == sorted(set(AGES))
    assert below.tolist() == [0, 1, 2, 6, 7, 8]
    assert isinstance(Truth().cumulative(DAYS, "day")[0][0], dt.date)
