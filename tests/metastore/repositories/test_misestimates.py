from __future__ import annotations

from dataclasses import replace

from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON, misestimate


def test_a_lesson_holds_for_the_statistics_it_was_learned_under(store: Metastore) -> None:
    store.misestimates.remember(misestimate(version="books@1"))
    assert store.misestimates.on_record("f", statistics_version="books@1") == (misestimate(version="books@1"),)
    assert store.misestimates.on_record("f", statistics_version="books@2") == ()
    assert store.misestimates.on_record("g", statistics_version="books@1") == ()


def test_limits_and_engines_are_lessons_of_their_own(store: Metastore) -> None:
    misestimates = (
        misestimate(limit_bytes=1 << 33, at=NOON),
        misestimate(limit_bytes=1 << 34, at=NOON + MINUTE),
        misestimate(engine="impala", at=NOON + 2 * MINUTE),
    )
    for each in misestimates:
        store.misestimates.remember(each)
    assert store.misestimates.on_record("f", statistics_version="books@1") == misestimates
    assert store.misestimates.list() == misestimates[::-1]


def test_the_newest_lesson_of_a_kind_wins(store: Metastore) -> None:
    store.misestimates.remember(misestimate())
    newer = replace(misestimate(at=NOON + MINUTE), query_id="q2", peak_bytes=None)
    store.misestimates.remember(newer)
    assert store.misestimates.list() == (newer,)


def test_lessons_can_be_forgotten(store: Metastore) -> None:
    store.misestimates.remember(misestimate())
    store.misestimates.remember(misestimate(engine="impala"))
    assert store.misestimates.forget("f") == 2
    assert store.misestimates.forget("f") == 0
    assert store.misestimates.list() == ()
