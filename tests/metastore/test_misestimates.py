from __future__ import annotations

from dataclasses import replace

from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON, lesson


def test_a_lesson_holds_for_the_statistics_it_was_learned_under(store: Metastore) -> None:
    store.misestimates.remember(lesson(version="books@1"))
    assert store.misestimates.on_record("f", statistics_version="books@1") == (lesson(version="books@1"),)
    assert store.misestimates.on_record("f", statistics_version="books@2") == ()
    assert store.misestimates.on_record("g", statistics_version="books@1") == ()


def test_limits_and_engines_are_lessons_of_their_own(store: Metastore) -> None:
    lessons = (
        lesson(limit_bytes=1 << 33, at=NOON),
        lesson(limit_bytes=1 << 34, at=NOON + MINUTE),
        lesson(engine="impala", at=NOON + 2 * MINUTE),
    )
    for each in lessons:
        store.misestimates.remember(each)
    assert store.misestimates.on_record("f", statistics_version="books@1") == lessons
    assert store.misestimates.list() == lessons[::-1]


def test_the_newest_lesson_of_a_kind_wins(store: Metastore) -> None:
    store.misestimates.remember(lesson())
    newer = replace(lesson(at=NOON + MINUTE), query_id="q2", peak_bytes=None)
    store.misestimates.remember(newer)
    assert store.misestimates.list() == (newer,)


def test_lessons_can_be_forgotten(store: Metastore) -> None:
    store.misestimates.remember(lesson())
    store.misestimates.remember(lesson(engine="impala"))
    assert store.misestimates.forget("f") == 2
    assert store.misestimates.forget("f") == 0
    assert store.misestimates.list() == ()
