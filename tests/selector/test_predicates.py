from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.cardinality.predicates import Selectivity, selectivity
from tests.selector.examples import BOOKS, BOOKS_STATISTICS, CATEGORIES, TOP_PRICE, TRANSACTIONS_STATISTICS, table

QUANTITIES = 10


def of_books(*predicates: str) -> Selectivity:
    return selectivity(predicates, BOOKS_STATISTICS, dialect="duckdb")


@pytest.mark.parametrize(
    ("predicate", "share"),
    [
        ("(price < 80.0)", 80 / TOP_PRICE),
        ("(80.0 > price)", 80 / TOP_PRICE),
        ("(price >= 25.0)", 1 - 25 / TOP_PRICE),
        ("(price BETWEEN 20 AND 30)", 10 / TOP_PRICE),
        ("(price > CAST(20 AS DOUBLE))", 80 / TOP_PRICE),
        ("(CAST(price AS DECIMAL(10,2)) > 20)", 80 / TOP_PRICE),
        ("(publish_date < '1970-03-15'::DATE)", 73 / 365),
        ("(publish_date < CAST('1970-03-15' AS DATE))", 73 / 365),
        ("(category = 'Fiction')", 1 / CATEGORIES),
        ("(category != 'Fiction')", 1 - 1 / CATEGORIES),
        ("(category IN ('Fiction', 'Law', 'Law'))", 2 / CATEGORIES),
        ("(category IS NULL)", 0.0),
        ("(category IS NOT NULL)", 1.0),
        ("((price < 10) OR (price < 20))", 0.1 + 0.2 - 0.1 * 0.2),
        ("(NOT (price < 10))", 0.9),
        ("(price > 1000)", 0.0),
        ("(price = 1000)", 0.0),
        ("TRUE", 1.0),
    ],
)
def test_one_predicate(predicate: str, share: float) -> None:
    assert of_books(predicate).share == pytest.approx(share, abs=1e-9)


def test_bounds_on_one_column_are_one_interval_not_a_product() -> None:
    both = of_books("(price >= 20.0)", "(price <= 30.0)")
    assert both.share == pytest.approx(10 / TOP_PRICE)
    assert both.confidence == 1.0


def test_different_columns_are_multiplied_and_cost_confidence() -> None:
    both = of_books("(price < 50)", "(category = 'Fiction')")
    assert both.share == pytest.approx(0.5 / CATEGORIES)
    assert both.confidence < of_books("(category = 'Fiction')").confidence


def test_without_a_histogram_the_range_is_taken_as_uniform() -> None:
    kept = selectivity(["quantity >= 4"], TRANSACTIONS_STATISTICS, dialect="duckdb")
    assert kept.share == pytest.approx(1 - (4 - 1) / (QUANTITIES - 1))  # Eq. (3)
    assert kept.basis == "range of quantity"


def test_nulls_answer_no_comparison() -> None:
    price = replace(BOOKS_STATISTICS.columns["price"], nulls=BOOKS // 2)
    half_empty = table("books", BOOKS, price)
    assert selectivity(["price < 50"], half_empty, dialect="duckdb").share == pytest.approx(0.25)
    assert selectivity(["price IS NULL"], half_empty, dialect="duckdb").share == pytest.approx(0.5)
    assert selectivity(["price <> 1"], half_empty, dialect="duckdb").share == pytest.approx(0.5 - 0.5 / 500)


@pytest.mark.parametrize("predicate", ["(category ~~ '%x%')", "(price + 1 < 3)", "(nothing = 3)", "((("])
def test_what_no_statistic_answers_keeps_all_rows_and_says_so(predicate: str) -> None:
    kept = of_books(predicate)
    assert kept.share == 1.0
    assert kept.confidence < 1.0
    assert kept.unanswered


def test_no_statistics_at_all() -> None:
    kept = selectivity(["price < 3"], None, dialect="duckdb")
    assert (kept.share, bool(kept.unanswered)) == (1.0, True)


prices = st.floats(-10, 200).map(lambda price: round(price, 2))
predicates = st.one_of(
    st.builds("(price {} {})".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), prices),
    st.just("(category = 'Law')"),
    st.just("(category LIKE 'L%')"),
    st.just("(id IN (1, 2, 3))"),
)


@given(st.lists(predicates, max_size=6), predicates)
def test_another_conjunct_never_adds_rows(given_predicates: list[str], one_more: str) -> None:
    before, after = of_books(*given_predicates), of_books(*given_predicates, one_more)
    assert 0.0 <= after.share <= before.share + 1e-12
    assert 0.0 < after.confidence <= 1.0


@given(prices, prices, prices)
def test_a_wider_range_never_loses_rows(low: float, high: float, more: float) -> None:
    low, high = sorted((low, high))
    narrow = of_books(f"price >= {low}", f"price <= {high}")
    wide = of_books(f"price >= {low}", f"price <= {high + abs(more)}")
    assert wide.share >= narrow.share - 1e-12
