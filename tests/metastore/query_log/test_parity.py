from __future__ import annotations

import datetime as dt
from dataclasses import replace

from metastore.query_log.parity import COMPARED, DIFFERENT
from metastore.records import ParityCase
from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON

DAY = dt.timedelta(days=1)
CASE = ParityCase(
    query_id="q1",
    template="t1",
    sql="SELECT 1",
    dialect="spark",
    user="ann",
    authenticated=True,
    engine="duckdb",
    other="spark",
    difference="x: 1 and 2",
    rows=("(1,)",),
    other_rows=("(2,)",),
    snapshots={"t": "7"},
    version="0.2.0",
    found_at=NOON,
)


def test_outcomes_are_counted_by_day(store: Metastore) -> None:
    yesterday = NOON - 1440 * MINUTE
    for at in (NOON, NOON, yesterday):
        store.parity.count(COMPARED, at, 1.5)
    store.parity.count(DIFFERENT, NOON)
    store.parity.count("too large", NOON, 0.5)
    today, both = store.parity.counts(NOON), store.parity.counts(yesterday)
    assert (today.compared, today.different, today.left_out, today.seconds) == (2, 1, {"too large": 1}, 3.5)
    assert (both.compared, both.seconds) == (3, 5.0)


def test_a_release_is_of_all_cases_of_a_template(store: Metastore) -> None:
    store.parity.keep(CASE)
    store.parity.keep(CASE)  # again
    store.parity.keep(replace(CASE, query_id="q2", found_at=NOON + MINUTE))
    store.parity.keep(replace(CASE, query_id="q3", template="t2"))
    assert store.parity.open_templates().keys() == {("duckdb", "t1"), ("duckdb", "t2")}
    assert not store.parity.release("nobody", by="ann", at=NOON)
    assert store.parity.release("q1", by="ann", at=NOON + 2 * MINUTE)
    assert not store.parity.release("q1", by="ann", at=NOON + 3 * MINUTE)
    assert store.parity.open_templates() == {("duckdb", "t2"): "q3"}
    first, *others = store.parity.cases()
    assert first == replace(CASE, query_id="q3", template="t2")
    assert {case.query_id: (case.released_by, case.released_at) for case in others} == {
        "q1": ("ann", NOON + 2 * MINUTE),
        "q2": ("ann", NOON + 2 * MINUTE),
    }


def test_what_is_released_and_old_goes_and_open_cases_stay(store: Metastore) -> None:
    for name in ("old", "new", "open"):
        store.parity.keep(replace(CASE, query_id=name, template=name))
    store.parity.release("old", by="ann", at=NOON)
    store.parity.release("new", by="ann", at=NOON + 2 * DAY)
    store.parity.count(COMPARED, NOON)
    store.parity.count(COMPARED, NOON + 2 * DAY)
    assert store.history.drop_older(NOON + DAY) == 2
    assert {case.query_id for case in store.parity.cases()} == {"new", "open"}
    assert store.parity.counts(NOON).compared == 1
    assert store.history.drop_older(NOON + DAY) == 0
