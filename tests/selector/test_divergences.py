"""What an estimate tells beside its peak: where the engine's rows leave ours, and which tables meet where."""

from __future__ import annotations

from selector.estimate import DIVERGENCE_FACTOR, MemoryEstimate, OperatorEstimate


def part(
    name: str, depth: int, rows: float | None, engine_rows: float | None, table: str | None = None
) -> OperatorEstimate:
    return OperatorEstimate(name, depth, rows, engine_rows, 0, "given", table=table)


def divergences(*parts: OperatorEstimate) -> tuple[int, ...]:
    return MemoryEstimate(1, 1, parts).divergences()


def test_estimates_part_where_what_is_below_still_agrees() -> None:
    wrong_scan = part("scan", 2, 10, 1_000, "books"), part("scan", 2, 500, 500, "transactions")
    assert divergences(part("sort", 0, 10, 900), part("join", 1, 10, 900), *wrong_scan) == (2,)
    right_scans = part("scan", 2, 10, 11, "books"), part("scan", 2, 500, 500, "transactions")
    assert divergences(part("sort", 0, 10, 900), part("join", 1, 10, 900), *right_scans) == (1,)


def test_what_nobody_counted_is_looked_through() -> None:
    silent = part("project", 1, 10, None)
    assert divergences(part("join", 0, 10, 900), silent, part("scan", 2, 10, 1_000)) == (2,)
    assert divergences(part("join", 0, 10, 900), silent, part("scan", 2, 10, 10)) == (0,)
    assert divergences(part("join", 0, 10, 900), silent) == (0,)
    assert divergences(part("join", 0, None, 900)) == ()


def test_no_row_and_one_row_agree_and_a_factor_of_two_does_too() -> None:
    assert part("scan", 0, 0.0, 1.0).divergence == 1.0
    assert not part("scan", 0, 100.0, 100.0 * DIVERGENCE_FACTOR).diverges
    assert part("scan", 0, 100.0 * DIVERGENCE_FACTOR + 1, 100.0).diverges


def test_tables_below_are_those_of_the_subtree() -> None:
    parts = (
        part("join", 0, 1, 1),
        part("join", 1, 1, 1),
        part("scan", 2, 1, 1, "books"),
        part("scan", 2, 1, 1, "books"),
        part("scan", 1, 1, 1, "transactions"),
    )
    estimate = MemoryEstimate(1, 1, parts)
    assert estimate.tables_below(0) == ("books", "transactions")
    assert estimate.tables_below(1) == ("books",)
    assert estimate.tables_below(4) == ("transactions",)
