"""Recent runs, found by what ran: the same as a look at all of them."""

from __future__ import annotations

import random
from collections import deque

from selector.forecast.history import Expectation, PastRun, WorkloadKey
from selector.forecast.recent import RecentRuns

MOST = 20


def test_what_is_found_is_what_a_look_at_all_runs_finds() -> None:
    chance = random.Random(11)  # noqa: S311 - of a test
    recent, plain = RecentRuns(MOST), deque[PastRun](maxlen=MOST)
    for number in range(500):
        fingerprint = chance.randrange(12)
        subject = WorkloadKey(f"f{fingerprint}", f"t{fingerprint % 4}")
        run = PastRun("duckdb", subject, Expectation(1), False, number, None)
        oldest = plain[0] if len(plain) == MOST else None
        plain.append(run)
        assert recent.add(run) is oldest
        assert list(recent) == list(plain) and len(recent) == len(plain)
        newest = dict[str, PastRun]()
        for one in reversed(plain):
            newest.setdefault(one.subject.fingerprint, one)
        assert list(recent.newest_of_each()) == list(newest.values())
        for subject in {one.subject for one in plain}:
            assert list(recent.of_statement(subject)) == [one for one in plain if one.subject == subject]
            siblings = [one for one in newest.values() if one.subject.template == subject.template]
            assert recent.newest_of_template(subject.template) == siblings
    assert recent.of_statement(WorkloadKey("f99", "t0")) == ()
