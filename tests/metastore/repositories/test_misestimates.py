from __future__ import annotations

from dataclasses import replace

from metastore.store import Metastore
from selector.forecast.history import SMALLER, Ground
from tests.metastore.examples import MINUTE, NOON, misestimate

LIMIT, MODEL = 1 << 33, 100_000
MISSED = replace(misestimate(limit_bytes=LIMIT), model_bytes=MODEL)
GROUND = Ground("duckdb", LIMIT, "books@1", MODEL)


def test_the_same_statistics_and_limit_are_the_same_ground(store: Metastore) -> None:
    store.misestimates.remember(MISSED)
    (known,) = store.misestimates.about("f")
    assert known == MISSED
    assert known.ground == GROUND
    assert known.stands_on(GROUND)
    assert known.stands_on(replace(GROUND, limit_bytes=LIMIT - 1))
    assert known.stands_on(replace(GROUND, model_bytes=None))
    assert known.stands_on(replace(GROUND, model_bytes=1))  # of the same statistics, say, after an upgrade


def test_other_engines_and_larger_limits_are_other_ground() -> None:
    assert not MISSED.stands_on(replace(GROUND, engine="impala"))
    assert not MISSED.stands_on(replace(GROUND, limit_bytes=LIMIT + 1))
    assert not MISSED.stands_on(replace(GROUND, limit_bytes=None))
    assert not replace(GROUND, limit_bytes=None).misses_on(GROUND)


def test_new_statistics_that_change_nothing_are_the_same_ground() -> None:
    again = replace(GROUND, statistics_version="books@2")
    assert MISSED.stands_on(again)
    assert MISSED.stands_on(replace(again, model_bytes=10 * MODEL))
    assert MISSED.stands_on(replace(again, model_bytes=round(SMALLER * MODEL) + 1))
    assert not MISSED.stands_on(replace(again, limit_bytes=LIMIT + 1))


def test_new_statistics_that_expect_clearly_less_are_other_ground() -> None:
    smaller = replace(GROUND, statistics_version="books@2", model_bytes=round(SMALLER * MODEL) - 1)
    assert not MISSED.stands_on(smaller)
    assert not MISSED.stands_on(replace(smaller, model_bytes=None))
    assert not replace(MISSED, model_bytes=None).stands_on(replace(smaller, model_bytes=MODEL))


def test_limits_engines_and_statistics_are_misestimates_of_their_own(store: Metastore) -> None:
    misestimates = (
        misestimate(limit_bytes=1 << 33, at=NOON),
        misestimate(limit_bytes=1 << 34, at=NOON + MINUTE),
        misestimate(engine="impala", at=NOON + 2 * MINUTE),
        misestimate(version="books@2", at=NOON + 3 * MINUTE),
    )
    for misestimated in reversed(misestimates):
        store.misestimates.remember(misestimated)
    assert store.misestimates.about("f") == misestimates
    assert store.misestimates.about("g") == ()
    assert store.misestimates.list() == misestimates[::-1]
    assert store.misestimates.forget("f") == len(misestimates)
    assert store.misestimates.forget("f") == 0
    assert store.misestimates.list() == ()


def test_the_newest_misestimate_of_a_kind_replaces_the_others(store: Metastore) -> None:
    store.misestimates.remember(misestimate())
    newer = replace(misestimate(at=NOON + MINUTE), query_id="q2", peak_bytes=None)
    store.misestimates.remember(newer)
    assert store.misestimates.list() == (newer,)
