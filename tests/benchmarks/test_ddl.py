from __future__ import annotations

import pytest

from benchmarks.claim import Claim
from benchmarks.ddl import TARGET_MS, Round, figures_of


def test_what_a_select_takes_longer_is_of_medians() -> None:
    done = [
        Round(10.0, 50.0, 30.0, 10.0, 900.0, 800.0, 7.0),
        Round(20.0, 120.0, 40.0, 20.0, 901.0, 801.0, 8.0),
        Round(90.0, 990.0, 50.0, 5.0, 902.0, 802.0, 9.0),
    ]
    figures, targets = figures_of(done, [5.0, 6.0])
    assert figures["quiet.p50_ms"] == pytest.approx(5.5)
    assert (figures["before.p50_ms"], figures["before.max_ms"]) == (20.0, 90.0)
    assert [figures[f"after_{what}.more_ms"] for what in ("create", "insert", "drop")] == [100.0, 20.0, -10.0]
    assert figures["drop_table.p50_ms"] == 8.0
    assert Claim("ddl", figures, targets).holds
    figures["after_drop.more_ms"] = TARGET_MS + 0.1
    assert not Claim("ddl", figures, targets).holds
