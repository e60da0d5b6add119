"""What is kept within how many bytes, and what goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.execution.caching import result_cache
from gateway.execution.caching.result_cache import ENTRY_BYTES, LARGEST_SHARE, CachedResult, ResultCache
from gateway.execution.spooling.results import SpooledResult
from selector.decision import Decision
from selector.estimate import UNKNOWN
from tests.clock import set_clock

KEEP_S = 60.0
ROW_BYTES = 1_000


def entry(sql: str, *, engine: str = "duckdb", size: int = ROW_BYTES, at_s: float = 0.0) -> CachedResult:
    return CachedResult(
        query_id=f"of {sql}",
        engine=engine,
        sql=sql,
        result=SpooledResult(1, size),
        file=Path(f"{engine}-{sql}"),
        tables=(),
        day=0,
        decision=Decision(engine, (engine,), (), UNKNOWN, None),
        cached_s=at_s,
    )


SIZE = entry("a").bytes


def cache(*, entries: float) -> tuple[ResultCache, list[CachedResult]]:
    gone: list[CachedResult] = []
    return ResultCache(limit_bytes=int(entries * SIZE), keep_s=KEEP_S, forget=gone.append), gone


def kept(of: ResultCache, names: Sequence[str]) -> list[str]:
    return [found.sql for name in names for found in of.find([("duckdb", name)])]


def test_an_entry_takes_its_rows_and_its_text() -> None:
    assert SIZE == ENTRY_BYTES + len("a") + ROW_BYTES


def test_what_was_not_asked_for_longest_goes_first() -> None:
    held, gone = cache(entries=1 / LARGEST_SHARE)
    names = [chr(ord("a") + n) for n in range(round(1 / LARGEST_SHARE))]
    for name in names:
        held.put(entry(name))
    assert kept(held, names) == names
    assert held.usage().bytes == held.usage().limit_bytes
    held.has_answered(held.find([("duckdb", "a")])[0])
    held.put(entry("z"))
    assert [each.sql for each in gone] == ["b"]
    assert kept(held, ["a", "b", "z"]) == ["a", "z"]
    assert (held.usage().evicted, held.usage().hits, held.usage().entries) == (1, 1, len(names))


def test_what_is_too_large_is_not_kept_and_takes_nobodys_place() -> None:
    held, gone = cache(entries=1 / LARGEST_SHARE)
    held.put(entry("a"))
    held.put(entry("b", size=ROW_BYTES + 1))
    assert [each.sql for each in gone] == ["b"]
    assert kept(held, ["a", "b"]) == ["a"]


def test_a_newer_result_takes_the_place_of_the_older_one() -> None:
    held, gone = cache(entries=20)
    first, second = entry("a"), entry("a", size=ROW_BYTES // 2)
    held.put(first)
    held.put(second)
    assert held.find([("duckdb", "a")]) == [second]
    assert (gone, held.usage().bytes) == ([first], second.bytes)
    held.drop(first)  # of which somebody else has found that it is outdated
    assert held.find([("duckdb", "a")]) == [second]
    held.drop(second)
    assert (gone, held.usage().bytes, held.usage().outdated) == ([first, second], 0, 1)


def test_results_of_engines_stand_side_by_side() -> None:
    held, _ = cache(entries=20)
    held.put(entry("a", engine="spark"))
    held.put(entry("a"))
    assert [each.engine for each in held.find([("duckdb", "a"), ("spark", "a"), ("spark", "b")])] == ["duckdb", "spark"]


def test_age_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    held, _ = cache(entries=20)
    set_clock(monkeypatch, result_cache, lambda: KEEP_S)
    assert not held.is_too_old(entry("a", at_s=0.0))
    assert held.is_too_old(entry("a", at_s=-0.1))
    assert held.usage().hit_rate is None
    held.has_missed()
    held.put(entry("a"))
    for _ in range(3):
        held.has_answered(entry("a"))
    assert held.usage().hit_rate == 3 / 4


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, ROW_BYTES * 2), st.sampled_from("pdu"))))
def test_its_bytes_are_those_of_its_entries_and_never_more_than_its_limit(
    steps: list[tuple[str, int, str]],
) -> None:
    held, gone = cache(entries=16.0)
    put: list[CachedResult] = []
    for name, size, step in steps:
        found = held.find([("duckdb", name)])
        if step == "p":
            put.append(entry(name, size=size))
            held.put(put[-1])
        elif found:
            (held.drop if step == "d" else held.has_answered)(found[0])
        usage = held.usage()
        present = [each for name in "abcdefgh" for each in held.find([("duckdb", name)])]
        assert usage.bytes == sum(each.bytes for each in present) <= usage.limit_bytes
        assert sorted(map(id, (*present, *gone))) == sorted(map(id, put))  # each is there, or somebody heard that not
