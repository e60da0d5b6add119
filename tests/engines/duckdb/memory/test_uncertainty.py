"""How uncertain a peak is: by what holds most of it, and by how large its plan is."""

from __future__ import annotations

import math

import pytest

from engines.duckdb.memory.uncertainty import BOUNDS, DUCKDB, LARGE_PLAN, NO_STATISTICS, uncertainty_of
from selector.estimate import UPPER_DEVIATIONS, OperatorEstimate, Uncertainty


def part(operator: str, *, basis: str = "histogram", table: str | None = None) -> OperatorEstimate:
    return OperatorEstimate(operator, 0, 1.0, 1.0, 1, basis, table=table)


@pytest.mark.parametrize(
    ("driver", "kind"),
    [
        (part("hash join", basis="key bins"), "joins"),
        (part("aggregate"), "groups"),
        (part("scan of books", table="books"), "scans"),
        (part("sort"), "rows kept whole"),
        (part("window"), "rows kept whole"),
        (part("aggregate", basis="a guess of groups"), "guesses"),
        (part("hash join", basis="books without statistics"), "guesses"),
        (part("hash join", basis="engine"), "guesses"),
        (part("hash join", basis="key bins of engines.id"), "joins"),
    ],
)
def test_what_holds_most_tells_the_kind(driver: OperatorEstimate, kind: str) -> None:
    others = [part("scan of transactions", table="transactions")]
    assert uncertainty_of([*others, driver], 1) == Uncertainty(kind, *DUCKDB[kind])
    assert uncertainty_of([driver, *others], 0) == Uncertainty(kind, *DUCKDB[kind])
    large = [driver, *others * LARGE_PLAN]
    assert uncertainty_of(large, 0) == Uncertainty(f"{kind} of a large plan", *DUCKDB[f"{kind} of a large plan"])
    assert uncertainty_of(large[:-1], 0).kind == kind


def test_a_plan_that_holds_nothing_is_one_that_scans() -> None:
    assert uncertainty_of([], None).kind == "scans"


def test_nothing_is_less_certain_than_a_guess() -> None:
    described = {kind: known for kind, known in DUCKDB.items() if not kind.endswith((NO_STATISTICS, BOUNDS))}
    for kind, (_, above, below) in described.items():
        assert 0.0 < above <= DUCKDB["guesses"][1] or kind.startswith("guesses")
        assert 0.0 < below <= DUCKDB["guesses"][2] or kind.startswith("guesses")


def test_another_engine_may_have_other_numbers() -> None:
    known = {"joins": (0.5, 0.25, 0.75)}
    found = uncertainty_of([part("hash join")], 0, known)
    assert found == Uncertainty("joins", 0.5, 0.25, 0.75)
    assert found.upper_bytes(1_000.0) == pytest.approx(1_000.0 * math.exp(0.5 + UPPER_DEVIATIONS * 0.25))


def test_errors_above_and_below_have_deviations_of_their_own() -> None:
    skewed = Uncertainty("scans", 0.5, 0.25, 1.0)
    assert (skewed.in_deviations(1.0), skewed.in_deviations(-0.5)) == (2.0, -1.0)
    even = Uncertainty("scans", 0.5, 0.25)
    assert (even.in_deviations(1.0), even.in_deviations(-0.5)) == (2.0, -4.0)


def test_an_upper_bound_is_never_below_what_is_expected() -> None:
    assert Uncertainty("scans", -5.0, 0.1).upper_bytes(1_000.0) == 1_000.0


@pytest.mark.parametrize("description", [NO_STATISTICS, BOUNDS])
@pytest.mark.parametrize(
    ("driver", "kind"),
    [
        (part("aggregate", basis="a grouping key without statistics"), "groups"),
        (part("aggregate"), "groups"),
        (part("hash join"), "joins"),
        (part("sort"), "rows"),
        (part("scan of books", table="books"), "rows"),
    ],
)
def test_without_statistics_little_is_known(driver: OperatorEstimate, kind: str, description: str) -> None:
    found = uncertainty_of([driver] * (LARGE_PLAN + 1), 0, description=description)
    assert found == Uncertainty(f"{kind} {description}", *DUCKDB[f"{kind} {description}"])
    assert found.deviation > uncertainty_of([part("hash join")], 0).deviation
