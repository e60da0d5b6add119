from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.cardinality.predicates.domain_selectivity import masses, share
from selector.cardinality.predicates.domains import Domain, places_of
from selector.join_keys import Bins
from selector.statistics import TEXT_KEY_BYTES, ColumnStatistics, CommonValues, Histogram, Key
from tests.selector.examples import column, uniform

LINE = [float(n) for n in range(-1, 12)]
WORDS = [b"", b"a", b"ab", b"abc", b"b", b"ba", b"z"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]

numbers = st.sampled_from(LINE[1:-1])
simple = st.one_of(
    st.builds(Domain.where, st.sampled_from(OPERATORS), numbers),
    st.builds(lambda values: Domain.one_of(values, text=False), st.lists(numbers, max_size=5)),
    st.builds(lambda nulls: Domain.everything(nulls=nulls), st.booleans()),
    st.builds(lambda nulls: Domain.nothing(nulls=nulls), st.booleans()),
)
domains = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(Domain.__and__, inner, inner),
        st.builds(Domain.__or__, inner, inner),
        st.builds(Domain.__invert__, inner),
        st.builds(Domain.otherwise, inner),
    ),
    max_leaves=6,
)
texts = st.one_of(
    st.builds(Domain.where, st.sampled_from(OPERATORS), st.sampled_from(WORDS)),
    st.builds(Domain.beginning_with, st.sampled_from(WORDS[1:])),
)


def held(domain: Domain, line: list[Key]) -> set[Key]:
    return {value for value in line if domain.holds(value)}


@given(domains, domains)
def test_domains_are_sets(a: Domain, b: Domain) -> None:
    line: list[Key] = [*LINE, *(x + 0.5 for x in LINE)]
    assert held(a & b, line) == held(a, line) & held(b, line)
    assert held(a | b, line) == held(a, line) | held(b, line)
    assert held(~a, line) == set(line) - held(a, line)
    assert ((a & b).nulls, (a | b).nulls, (~a).nulls) == (a.nulls and b.nulls, a.nulls or b.nulls, False)
    assert (held(a.otherwise(), line), a.otherwise().nulls) == (set(line) - held(a, line), not a.nulls)
    assert list((a | b).cuts) == sorted(set((a | b).cuts))


@given(texts, texts)
def test_domains_of_strings_are_sets(a: Domain, b: Domain) -> None:
    line: list[Key] = [*WORDS, b"a\x01", b"abz", "é".encode()]
    assert held(a & b, line) == held(a, line) & held(b, line)
    assert held(~(a | b), line) == set(line) - held(a, line) - held(b, line)


def counted(values: list[float], data_type: str = "int", nulls: int = 0) -> ColumnStatistics:
    """Return a column of whose values each is counted."""
    held_by = Counter(values)
    common = CommonValues(np.array(list(held_by)), np.array(list(held_by.values())))
    return ColumnStatistics("c", data_type, nulls, len(held_by), min(values), max(values), common=common)


@given(st.lists(numbers, min_size=1, max_size=40), st.integers(0, 9), domains, st.sampled_from(["int", "double"]))
def test_a_share_of_counted_values_is_exact(values: list[float], nulls: int, domain: Domain, data_type: str) -> None:
    found = share(domain, counted(values, data_type, nulls), len(values) + nulls)
    kept = sum(domain.holds(value) for value in values) + (nulls if domain.nulls else 0)
    assert found is not None
    assert found.share == pytest.approx(kept / (len(values) + nulls))


floats = st.floats(0, 100).map(lambda x: round(x, 1))
columns = st.sampled_from(
    [
        column("c", "double", 300, minimum=0.0, maximum=100.0, histogram=uniform(0, 100)),
        column("c", "int", 90, minimum=0.0, maximum=100.0, histogram=uniform(0, 100)),
        column("c", "int", 90, minimum=0.0, maximum=100.0),
        column(
            "c", "decimal(9,1)", 900, minimum=0.0, maximum=100.0, histogram=Histogram(np.array([0.0, 3, 3, 9, 100]))
        ),
        replace(counted([1.0, 1.0, 50.0, 50.0, 50.0], "double"), ndv=40.0, minimum=0.0, maximum=100.0),
    ]
)
spread = st.one_of(
    st.builds(Domain.where, st.sampled_from(OPERATORS), floats),
    st.builds(lambda low, high: Domain.where(">=", low) & Domain.where("<=", high), floats, floats),
    st.builds(lambda values: Domain.one_of(values, text=False), st.lists(floats, max_size=4)),
)


@given(columns, spread)
def test_what_a_domain_keeps_and_what_it_drops_are_all_rows(column: ColumnStatistics, domain: Domain) -> None:
    kept, dropped = share(domain, column, 1000), share(~domain, column, 1000)
    assert kept is not None
    assert dropped is not None
    assert 0.0 <= kept.share <= 1.0
    assert kept.share + dropped.share == pytest.approx(1.0)


@given(columns, floats, floats, floats, floats)
def test_a_wider_range_keeps_no_less(column: ColumnStatistics, a: float, b: float, c: float, d: float) -> None:
    low, inner_low, inner_high, high = sorted((a, b, c, d))
    wide = share(Domain.where(">=", low) & Domain.where("<=", high), column, 1000)
    narrow = share(Domain.where(">=", inner_low) & Domain.where("<=", inner_high), column, 1000)
    strict = share(Domain.where(">", inner_low) & Domain.where("<", inner_high), column, 1000)
    assert wide is not None
    assert narrow is not None
    assert strict is not None
    assert strict.share <= narrow.share + 1e-12
    assert narrow.share <= wide.share + 1e-12


@given(columns, floats, floats, st.lists(floats, max_size=5))
def test_values_of_a_range_are_no_more_than_the_range(
    column: ColumnStatistics, a: float, b: float, values: list[float]
) -> None:
    between = Domain.where(">=", min(a, b)) & Domain.where("<=", max(a, b))
    whole, some = share(between, column, 1000), share(between & Domain.one_of(values, text=False), column, 1000)
    assert whole is not None
    assert some is not None
    assert some.share <= whole.share + 1e-12


def test_nothing_is_certain_beyond_what_a_partial_build_has_seen() -> None:
    prices = column("c", "double", 300, minimum=0.0, maximum=100.0, histogram=uniform(0, 100))
    beyond = Domain.where(">", 1000.0)
    whole, part = share(beyond, prices, 1000), share(beyond, prices, 1000, complete=False)
    assert whole is not None
    assert part is not None
    assert whole.share == 0.0
    assert 0.0 < part.share < 0.01


def test_numbers_lie_where_their_type_has_places() -> None:
    days = column("c", "date", 10, minimum=0.0, maximum=9.0, histogram=Histogram(np.arange(10.0)))
    between = share(Domain.where(">", 3.0) & Domain.where("<", 4.0), days, 1000)
    assert between is not None
    assert between.share == 0.0
    prices = column("c", "decimal(9,2)", 3, histogram=_counting([0.57, 1.1, 5.25]))
    for value in (0.57, 1.1, 5.25):
        found = share(Domain.where("<=", value) & Domain.where(">=", value), prices, 30)
        assert found is not None
        assert found.share == pytest.approx(1 / 3)


def _counting(values: list[float]) -> Histogram:
    ranks = np.arange(len(values) + 1) / len(values)
    return Histogram(np.array(values), ranks[:-1], ranks[1:])


def test_a_column_that_nothing_bounds_knows_single_values_only() -> None:
    names = column("c", "string", 20)
    one, range_ = share(Domain.where("=", b"x"), names, 1000), share(Domain.where("<", b"x"), names, 1000)
    others = share(~Domain.one_of([b"x", b"y"], text=True), names, 1000)
    assert one is not None
    assert others is not None
    assert one.share == pytest.approx(1 / 20)
    assert others.share == pytest.approx(18 / 20)
    assert range_ is None
    assert share(Domain.where("=", b"x"), replace(names, ndv=0.0), 1000) is None


@given(st.lists(floats, min_size=1, max_size=300), st.integers(1, 30))
def test_masses_of_bins(values: list[float], ranges: int) -> None:
    """Bins have the values that lie in them."""
    lone = np.array(sorted(set(values))[::3])
    starts = np.unique(np.concatenate((lone, np.nextafter(lone, np.inf), np.linspace(0, 100, ranges + 1)[:-1])))
    bins = Bins(starts)
    found = masses(bins, counted(values, "double"), len(values))
    assert found is not None
    held_by = np.bincount(bins.of(np.array(values)), minlength=bins.count)
    assert found * len(values) == pytest.approx(held_by)


def test_bins_of_another_line_have_no_masses() -> None:
    assert masses(Bins(np.array([1.0, 2.0])), column("c", "string", 20), 9) is None


def test_many_values_at_once() -> None:
    values = [float(n) for n in range(0, 15_000, 3)]
    many = Domain.one_of(values, text=False)
    ids = column("c", "int", 100_000, minimum=0.0, maximum=99_999.0, histogram=uniform(0, 99_999, 200))
    found = share(many, ids, 100_000)
    assert found is not None
    assert found.share == pytest.approx(len(values) / 100_000, rel=0.01)
    halves = reduce(Domain.__or__, (Domain.one_of(values[::2], text=False), Domain.one_of(values[1::2], text=False)))
    assert halves == many


@given(domains)
def test_places_are_kept_as_values_are(domain: Domain) -> None:
    line = np.array([*LINE, *(x + 0.5 for x in LINE)])
    assert domain.holds_each(line).tolist() == [domain.holds(value) for value in line.tolist()]


@given(texts, texts)
def test_places_of_strings_are_kept_as_values_are(a: Domain, b: Domain) -> None:
    for domain in (a & b, a | b, ~a):
        found = domain.holds_each(places_of(np.array([word.decode() for word in WORDS], dtype=object)))
        assert found.tolist() == [domain.holds(word) for word in WORDS]


@pytest.mark.parametrize(("length", "names"), [(TEXT_KEY_BYTES - 1, False), (TEXT_KEY_BYTES, True)])
def test_a_domain_tells_whether_it_names_long_strings(length: int, names: bool) -> None:
    one = Domain.where("=", b"x" * length)
    assert (one.names_text_of(TEXT_KEY_BYTES), (~one).names_text_of(TEXT_KEY_BYTES)) == (names, names)
    assert not Domain.where(">", b"x" * length).names_text_of(TEXT_KEY_BYTES)
    assert not Domain.where("=", 3.0).names_text_of(TEXT_KEY_BYTES)


def test_a_domain_tells_which_values_it_names() -> None:
    assert Domain.one_of([7.0, 1.0, 5.0], text=False).values == (1.0, 5.0, 7.0)
    assert Domain.where("<>", 1.0).values is None
    assert (~Domain.where("<>", 1.0)).values == (1.0,)


@given(columns, st.lists(floats, min_size=1, max_size=200, unique=True))
def test_a_list_and_its_opposite_keep_all_rows(column: ColumnStatistics, values: list[float]) -> None:
    listed = Domain.one_of(values, text=False)
    kept, dropped = share(listed, column, 1000), share(~listed, column, 1000)
    assert kept is not None
    assert dropped is not None
    assert kept.share + dropped.share == pytest.approx(1.0)


@given(st.lists(domains, min_size=1, max_size=6))
def test_many_domains_are_put_together_as_one_after_the_other(several: list[Domain]) -> None:
    line: list[Key] = [*LINE, *(x + 0.5 for x in LINE)]
    sets = [held(domain, line) for domain in several]
    assert held(Domain.any_of(several), line) == set.union(*sets)
    assert held(Domain.all_of(several), line) == set.intersection(*sets)
    assert Domain.any_of(several) == reduce(Domain.__or__, several)
    assert Domain.all_of(several) == reduce(Domain.__and__, several)


@pytest.mark.parametrize("copies", [1, 50])
@given(st.one_of(domains, texts))
def test_stretches_are_what_a_domain_holds_of_increasing_values(copies: int, domain: Domain) -> None:
    words = sorted({word.decode() * n for word in WORDS for n in range(1, copies + 1)})
    values = np.array(words, dtype=object) if domain.text else np.array(LINE)
    kept = np.zeros(values.size, dtype=np.bool_)
    for low, high in domain.stretches(values):
        kept[low:high] = True
    assert kept.tolist() == domain.holds_each(places_of(values)).tolist()
