from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.cardinality.predicates.selectivity import (
    PATTERN_SHARE,
    RANGE_SHARE,
    Filtered,
    Selectivity,
    filter_of,
)
from selector.statistics import Histogram, TableStatistics
from tests.selector.described import described
from tests.selector.examples import (
    BOOKS,
    BOOKS_STATISTICS,
    CATEGORIES,
    TOP_PRICE,
    TRANSACTIONS_STATISTICS,
    column,
    table,
)

QUANTITIES = 10
PRICES = 500
ROWS = 20_000
SAMPLE_SHARE = 0.25


def of_books(*predicates: str) -> Selectivity:
    return filter_of(predicates, BOOKS_STATISTICS, dialect="duckdb")


@pytest.mark.parametrize(
    ("predicate", "share"),
    [
        ("(price < 80.0)", 80 / TOP_PRICE),
        ("(80.0 > price)", 80 / TOP_PRICE),
        ("(price >= 25.0)", 1 - 25 / TOP_PRICE),
        ("(price >= 20) AND (price < 30)", 10 / TOP_PRICE),
        ("(price BETWEEN 20 AND 30)", 10 / TOP_PRICE + 1 / PRICES),
        ("(price > CAST(20 AS DOUBLE))", 80 / TOP_PRICE - 1 / PRICES),
        ("(CAST(price AS DECIMAL(10,2)) >= 20)", 80 / TOP_PRICE),
        ("(price + 1 < 31)", 30 / TOP_PRICE),
        ("(100 - price <= 30)", 30 / TOP_PRICE),
        ("(publish_date < '1970-03-15'::DATE)", 73 / 365),
        ("(publish_date < CAST('1970-03-15' AS DATE))", 73 / 365),
        ("(year(publish_date) = 1970)", 1 - 1 / 365),
        ("(year(publish_date) > 1970)", 1 / 365),
        ("(category = 'Fiction')", 1 / CATEGORIES),
        ("(category != 'Fiction')", 1 - 1 / CATEGORIES),
        ("(category IN ('Fiction', 'Law', 'Law'))", 2 / CATEGORIES),
        ("(category = 'Fiction') OR (category = 'Law')", 2 / CATEGORIES),
        ("(category IS NULL)", 0.0),
        ("(category IS NOT NULL)", 1.0),
        ("((price < 10) OR (price < 20))", 20 / TOP_PRICE),
        ("((price < 10) OR (price >= 80))", 30 / TOP_PRICE),
        ("((price < 10) OR (publish_date < '1970-03-15'::DATE))", 1 - (1 - 0.1) * (1 - 73 / 365)),
        ("(NOT (price < 10))", 0.9),
        ("(price < 10) AND (price > 20)", 0.0),
        ("(price > 1000)", 0.0),
        ("(price = 1000)", 0.0),
        ("(price = NULL)", 0.0),
        ("TRUE", 1.0),
        ("1 > 2", 0.0),
    ],
)
def test_one_predicate(predicate: str, share: float) -> None:
    assert of_books(predicate).share == pytest.approx(share, abs=1e-9)


def test_bounds_on_one_column_are_one_interval_not_a_product() -> None:
    assert of_books("(price >= 20.0)", "(price < 30.0)").share == pytest.approx(10 / TOP_PRICE)


def test_different_columns_back_off() -> None:
    both = of_books("(price < 50)", "(category = 'Fiction')")
    assert both.share == pytest.approx(math.sqrt(0.5) / CATEGORIES)


def test_many_selective_predicates_are_never_a_product() -> None:
    columns = [column(f"c{n}", "int", 10, minimum=0.0, maximum=10.0) for n in range(15)]
    kept = filter_of([f"c{n} = 3" for n in range(15)], table("wide", BOOKS, *columns), dialect="duckdb")
    assert 0.1**2 < kept.share < 0.1


def test_without_a_histogram_the_range_is_taken_as_uniform() -> None:
    kept = filter_of(["quantity >= 4"], TRANSACTIONS_STATISTICS, dialect="duckdb")
    assert kept.share == pytest.approx(1 - (4 - 1) / (QUANTITIES - 1))  # Eq. (3)
    assert kept.basis == "range of quantity"
    one = filter_of(["quantity = 4"], TRANSACTIONS_STATISTICS, dialect="duckdb")
    assert one.share == pytest.approx(1 / QUANTITIES)  # Eq. (2)
    assert one.basis == "NDV of quantity"


def test_nulls_answer_no_comparison() -> None:
    price = replace(BOOKS_STATISTICS.columns["price"], nulls=BOOKS // 2)
    half_empty = table("books", BOOKS, price)
    assert filter_of(["price < 50"], half_empty, dialect="duckdb").share == pytest.approx(0.25)
    assert filter_of(["price IS NULL"], half_empty, dialect="duckdb").share == pytest.approx(0.5)
    assert filter_of(["price <> 1"], half_empty, dialect="duckdb").share == pytest.approx(0.5 - 0.5 / PRICES)
    assert filter_of(["coalesce(price, 1) < 50"], half_empty, dialect="duckdb").share == pytest.approx(0.75)


@pytest.mark.parametrize(
    "predicate", ["(nothing = 3)", "(((", "nothing LIKE 'a%' AND nothing < 3", "hash(nothing) = 1"]
)
def test_what_no_statistic_answers_keeps_all_rows_and_says_so(predicate: str) -> None:
    kept = of_books(predicate)
    assert kept.share == 1.0
    assert kept.unanswered


@pytest.mark.parametrize(
    ("predicate", "share"),
    [
        ("(category ~~ '%x%')", PATTERN_SHARE),
        ("(NOT (category ~~ '%x%'))", 1 - PATTERN_SHARE),
        ("(category < 'L')", RANGE_SHARE),
        ("(month(publish_date) = 3)", 1 / 12),
        ("((id % 4) = 1)", 1 / 4),
        ("(id < price)", RANGE_SHARE),
    ],
)
def test_what_is_guessed_from_its_form_is_named(predicate: str, share: float) -> None:
    kept = of_books(predicate)
    assert kept.share == pytest.approx(share)
    assert len(kept.unanswered) == 1


def test_two_columns_are_equal_in_one_by_the_larger_ndv() -> None:
    kept = of_books("(id = price)")
    assert kept.share == pytest.approx(1 / BOOKS)
    assert not kept.unanswered


def test_no_statistics_at_all() -> None:
    kept = filter_of(["price < 3"], None, dialect="duckdb")
    assert (kept.share, bool(kept.unanswered)) == (1.0, True)


@pytest.mark.parametrize(
    ("predicate", "share"),
    [
        ("books.price < CAST(20 AS DECIMAL(3,0))", 0.2),
        ("CAST(publish_date AS DATE) < DATE '1970-03-15'", 73 / 365),
        ("`publish_date` < '1970-03-15'", 73 / 365),
        ("publish_date + INTERVAL 10 DAYS < DATE '1970-03-25'", 73 / 365),
        ("date_add(publish_date, 10) < DATE '1970-03-25'", 73 / 365),
        ("year(publish_date) = 1970", 1 - 1 / 365),
        ("category IN ('Fiction')", 1 / CATEGORIES),
        ("category RLIKE '^Fic'", PATTERN_SHARE),
        ("price <=> 1000", 0.0),
        ("!(price < 10)", 0.9),
        ("CAST(born AS TIMESTAMP) < TIMESTAMP '2001-01-01 00:00:00' AND born >= '2000-06-01'", 0.5),
        ("CAST(born AS DATE) >= DATE '2000-06-01' AND CAST(born AS DATE) < '2001-01-01'", 0.5),
    ],
)
def test_impala_writes_predicates_in_its_own_way(predicate: str, share: float) -> None:
    texts = np.array([b"2000-01-01", b"2000-06-01", b"2001-01-01", b"2002-01-01"])
    ranks = np.array([0.0, 0.25, 0.75, 1.0])
    born = column("born", "string", 400, histogram=Histogram(texts, ranks, ranks))
    books = replace(BOOKS_STATISTICS, columns={**BOOKS_STATISTICS.columns, "born": born})
    assert filter_of([predicate], books, dialect="hive").share == pytest.approx(share, abs=1e-9)


TYPES = {"id": "int", "kind": "int", "size": "int", "word": "string", "day": "date", "owner": "int"}


@cache
def data() -> pa.Table:
    """Give a table whose columns depend on each other: half of the kinds have a size, and owners have one kind."""
    random = np.random.default_rng(5)
    owner = (random.zipf(1.4, ROWS) % 400).astype(np.int32)
    kind = (owner % 4).astype(np.int32)
    size = (random.lognormal(2, 1, ROWS) * (1 + kind)).astype(np.int32)
    words = np.array(["red", "green", "blue", "black", "white", "ash"])[(kind + random.integers(0, 2, ROWS)) % 6]
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS, dtype=np.int32)),
            "kind": pa.array(kind),
            "size": pa.array(size, mask=kind > 1),
            "word": pa.array(words),
            "day": pa.array((size // 4 + 18_000).astype(np.int32), pa.date32()),
            "owner": pa.array(owner, mask=random.random(ROWS) < 0.1),
        }
    )


@cache
def statistics(sample_share: float = SAMPLE_SHARE) -> TableStatistics:
    return described(data(), TYPES, keys=("owner",), sample_share=sample_share)


def of_data(*predicates: str, sample_share: float = SAMPLE_SHARE) -> Filtered:
    return filter_of(predicates, statistics(sample_share), dialect="duckdb")


def kept_rows(*predicates: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("data", data())
        return connection.sql(
            f"SELECT * FROM data WHERE {' AND '.join(f'({text})' for text in predicates)}"
        ).to_arrow_table()


@pytest.mark.parametrize(
    "predicates",
    [
        ("kind = 1", "size > 20"),
        ("size IS NOT NULL", "kind <= 1", "word IN ('red', 'green')"),
        ("word = 'blue' OR kind = 2",),
        ("word LIKE '%e%'", "kind = 0"),
        ("size > kind * 10",),
        ("CASE WHEN kind = 1 THEN size > 10 ELSE word = 'red' END",),
    ],
)
def test_columns_that_go_together_are_counted_on_the_sample(predicates: tuple[str, ...]) -> None:
    kept = of_data(*predicates)
    assert kept.share * ROWS == pytest.approx(kept_rows(*predicates).num_rows, rel=0.1)
    assert not kept.unanswered


def test_few_sampled_rows_are_no_reason_to_expect_none() -> None:
    kept = of_data("kind = 1", "size = 3", "id < 300")
    assert 0.0 < kept.share < 0.001


def test_a_sample_of_all_rows_is_a_count() -> None:
    predicates = ("size > 20 OR word = 'red'", "kind <> 3", "day < '2019-05-01'")
    assert of_data(*predicates, sample_share=1.0).share * ROWS == pytest.approx(kept_rows(*predicates).num_rows)


prices = st.floats(-10, 200).map(lambda price: round(price, 2))
predicates = st.one_of(
    st.builds("(price {} {})".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), prices),
    st.builds("(price IN ({}, {}))".format, prices, prices),
    st.just("(category = 'Law')"),
    st.just("(category LIKE 'L%')"),
    st.just("(category ~~ '%a%')"),
    st.just("(id IN (1, 2, 3))"),
    st.just("(id < price)"),
    st.just("(nothing = 3)"),
)
atoms = st.one_of(
    st.builds("kind {} {}".format, st.sampled_from(["=", "<>", "<", ">="]), st.integers(-1, 4)),
    st.builds("size {} {}".format, st.sampled_from(["=", "<", ">="]), st.integers(0, 99)),
    st.builds("size IN ({}, {})".format, st.integers(0, 99), st.integers(0, 99)),
    st.builds("day < DATE '{}'".format, st.dates(dt.date(2019, 4, 1), dt.date(2019, 9, 1))),
    st.sampled_from(["word = 'red'", "word LIKE '%e%'", "word > 'b'", "size IS NULL", "size > kind", "hash(size) = 1"]),
)
conjuncts = st.one_of(atoms, st.builds("({}) OR ({})".format, atoms, atoms), st.builds("NOT ({})".format, atoms))


@given(st.lists(predicates, max_size=6), predicates)
def test_another_conjunct_never_adds_rows(given_predicates: list[str], one_more: str) -> None:
    before, after = of_books(*given_predicates), of_books(*given_predicates, one_more)
    most = before.share
    if len(after.unanswered) < len(before.unanswered):  # it tells what was guessed before: 'Law' is LIKE 'L%'
        most = max(most, of_books(one_more).share)
    assert 0.0 <= after.share <= most + 1e-12


@settings(deadline=None)
@given(st.lists(conjuncts, max_size=5), conjuncts, st.sampled_from([0.0, SAMPLE_SHARE, 1.0]))
def test_with_or_without_a_sample_another_conjunct_never_adds_rows(
    given_predicates: list[str], one_more: str, sample_share: float
) -> None:
    before = of_data(*given_predicates, sample_share=sample_share)
    after = of_data(*given_predicates, one_more, sample_share=sample_share)
    assert 0.0 <= after.share <= before.share + 1e-12
    assert after.share == of_data(*given_predicates, one_more, sample_share=sample_share).share


@given(prices, prices, prices)
def test_a_wider_range_never_loses_rows(low: float, high: float, more: float) -> None:
    low, high = sorted((low, high))
    narrow = of_books(f"price >= {low}", f"price <= {high}")
    wide = of_books(f"price >= {low}", f"price <= {high + abs(more)}")
    assert wide.share >= narrow.share - 1e-12


@given(predicates.filter(lambda text: "nothing" not in text))
def test_a_predicate_and_its_opposite_keep_all_rows(predicate: str) -> None:
    assert of_books(predicate).share + of_books(f"NOT {predicate}").share == pytest.approx(1.0)


@pytest.mark.parametrize("predicate", ["word LIKE '%r%'", "length(word) = 4", "upper(word) > 'BLUE'", "kind % 2 = 1"])
def test_any_predicate_is_exact_where_all_values_of_its_column_are_counted(predicate: str) -> None:
    kept = of_data(predicate, sample_share=0.0)
    assert kept.share * ROWS == pytest.approx(kept_rows(predicate).num_rows)
    assert kept.unanswered == ()


@pytest.mark.parametrize(
    "predicate",
    [
        "year(publish_date) = 99999999999",
        "year(publish_date) IN (1e300)",
        "publish_date + INTERVAL 999999999 YEAR > DATE '2020-01-01'",
        "publish_date + 1e300 > DATE '2020-01-01'",
        "date_trunc('century', publish_date) > DATE '2020-01-01'",
        "price < 1e400",
        "round(price, 400) > 3",
        "id = 99999999999999999999",
        "id % 0 = 1",
        "id IN (SELECT 1)",
        "price IN ()",
        "price = 'abc'",
        "publish_date = 'garbage'",
        "regexp_matches(category, '[')",
        "(price, id) = (1, 2)",
        "price",
        "5",
        "",
    ],
)
def test_odd_predicates_have_a_share_too(predicate: str) -> None:
    kept = of_books(predicate)
    assert 0.0 <= kept.share <= 1.0


@pytest.mark.parametrize("sample_share", [0.0, SAMPLE_SHARE, 1.0])
def test_a_constant_that_is_null_where_a_column_is_keeps_what_it_says(sample_share: float) -> None:
    def kept(text: str) -> float:
        return of_data(text, sample_share=sample_share).share

    assert kept("kind = 1 OR constant_or_null(false, kind, 9)") == pytest.approx(kept("kind = 1"))
    assert kept("NOT constant_or_null(false, size)") == pytest.approx(kept("size IS NOT NULL"))
    assert kept("constant_or_null(true, size)") == pytest.approx(kept("size IS NOT NULL"))
