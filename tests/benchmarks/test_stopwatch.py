from __future__ import annotations

import time

import pytest

from benchmarks.stopwatch import Stopwatch

NAP_S = 0.05


class Kitchen:
    def cook(self) -> str:
        time.sleep(NAP_S)
        self.wash()
        return "dinner"

    def wash(self) -> None:
        time.sleep(NAP_S)


def test_a_stage_takes_what_no_stage_inside_it_takes() -> None:
    kitchen, stopwatch = Kitchen(), Stopwatch()
    begun = time.perf_counter()
    with stopwatch.watching([(kitchen, "cook", "cooking"), (Kitchen, "wash", "washing")]):
        assert kitchen.cook() == "dinner"
    elapsed_s = time.perf_counter() - begun
    assert stopwatch.seconds["cooking"] >= NAP_S
    assert stopwatch.seconds["washing"] >= NAP_S
    assert sum(stopwatch.seconds.values()) <= elapsed_s


def test_nothing_is_watched_afterwards() -> None:
    kitchen, stopwatch, wash = Kitchen(), Stopwatch(), Kitchen.wash
    with pytest.raises(LookupError), stopwatch.watching([(kitchen, "cook", "cooking"), (Kitchen, "wash", "washing")]):
        raise LookupError
    kitchen.cook()
    assert (stopwatch.seconds, vars(kitchen), Kitchen.wash) == ({}, {}, wash)
