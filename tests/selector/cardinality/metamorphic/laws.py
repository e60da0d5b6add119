"""How a law is checked: a relation between estimates, which needs no truth, over generated worlds and queries."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, assume, given, note, seed, settings
from hypothesis import strategies as st

from tests.selector.cardinality.metamorphic.queries import Estimate, Query, as_written, count, planned_by_duckdb, sql_of
from tests.selector.cardinality.metamorphic.statements import Draw
from tests.selector.cardinality.metamorphic.worlds import World, world

FEW, MANY = 15, 2_000  # examples: always, and when all is run
FEW_WORLDS, MANY_WORLDS = 24, 120  # which are made once for all laws
ARITHMETIC = 1e-6  # relative, and rows: what is only reckoned in another order
BY_PARTS = 0.1  # relative: what a sample that is a part of the rows says of parts of a range
PRIOR_ROWS = 2.0  # sampled rows that an estimate without the sample is worth, for each part anew

WHOLE, PARTS, ANY = "whole", "parts", "any"  # samples of all rows, of a part of them, or either

MOST_COUNTED = 300_000  # rows of a join that is really made

Law = Callable[[Estimate, World, Draw], None]


def counted(known: World, query: Query) -> float:
    """Count a query's rows, unless they seem to be many."""
    assume(as_written(known, query) < MOST_COUNTED)
    return float(count(known, query))


BY_DUCKDB: tuple[Estimate, ...] = (planned_by_duckdb,)
DIRECT: tuple[Estimate, ...] = (as_written,)
BOTH: tuple[Estimate, ...] = (as_written, planned_by_duckdb)
WRITTEN: tuple[Estimate, ...] = (as_written, counted)
ALL: tuple[Estimate, ...] = (*BOTH, counted)


def law(
    ways: Sequence[Estimate] = ALL, *, whole: bool = False, fails: Sequence[Estimate] = ()
) -> Callable[[Law], Callable[..., None]]:
    """Make a test of a law: a few examples in each way of estimating, and many if all is run.

    Then real rows are counted, too: a law that data break is none. whole: only in worlds whose samples hold all rows.
    fails: ways in which it does not hold yet where samples hold a part of the rows; where they hold all, it does.
    """

    def decorate(check: Law) -> Callable[..., None]:
        def test(way: Estimate, examples: int, samples: str) -> None:
            numbers = st.integers(0, (FEW_WORLDS if examples == FEW else MANY_WORLDS) - 1)

            def example(number: int, data: st.DataObject) -> None:
                known = world(number if samples == ANY else number - number % 2 + (samples == PARTS))
                check(partial(_noted, way), known, Draw(data, known, apart=way is planned_by_duckdb))

            phases = (Phase.generate,) if samples == PARTS else tuple(Phase)  # what fails need not be made small
            run = settings(max_examples=examples, phases=phases)(given(numbers, st.data())(example))
            if settings.default is not None and settings.default.derandomize:
                run = seed(zlib.crc32(f"{check.__name__} {way.__name__} {samples}".encode()))(run)
            run()

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return pytest.mark.parametrize(("way", "examples", "samples"), list(_cases(ways, whole, fails)))(test)

    return decorate


def _cases(ways: Sequence[Estimate], whole: bool, fails: Sequence[Estimate]) -> Iterator[Any]:
    thorough = pytest.mark.thorough
    not_yet = pytest.mark.xfail(raises=AssertionError, strict=False, reason="samples of parts do not keep this law yet")
    for way in ways:
        for samples in (WHOLE, PARTS) if way in fails else (WHOLE,) if whole else (ANY,):
            marks = [not_yet] * (samples == PARTS)
            if way is not counted and samples != PARTS:
                yield pytest.param(way, FEW, samples, marks=marks, id=f"{way.__name__}-{samples}-{FEW}")
            number = FEW if way is counted else MANY
            yield pytest.param(way, number, samples, marks=[*marks, thorough], id=f"{way.__name__}-{samples}-{number}")


def _noted(way: Estimate, known: World, query: Query) -> float:
    """Estimate a query, which is told with an example that fails."""
    rows = way(known, query)
    note(f"{known}: {rows:.6g} rows of {sql_of(known, query)}")
    return rows


def equal(found: float, expected: float, *, relative: float = ARITHMETIC, rows: float = ARITHMETIC) -> None:
    """Assert that two estimates are the same."""
    assert found == pytest.approx(expected, rel=relative, abs=rows)


def at_most(low: float, high: float, *, relative: float = ARITHMETIC, rows: float = ARITHMETIC) -> None:
    """Assert that an estimate is not above another."""
    assert low <= high * (1.0 + relative) + rows


def sums_to(parts: Sequence[float], whole: float, *, world: World, share: float = 1.0) -> None:
    """Assert that the estimates of parts add up.

    share: result rows that a row of the parted table stands for. Of a sample that holds all rows this is arithmetic.
    Else every part is an average of what was counted on the sample and of what was expected without it, which are not
    as many rows for the parts as for the whole: a few sampled rows of each part.
    """
    if world.sampled >= 1.0:
        equal(sum(parts), whole)
    else:
        equal(sum(parts), whole, relative=BY_PARTS, rows=len(parts) * PRIOR_ROWS / world.sampled * share)
