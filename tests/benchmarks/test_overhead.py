from __future__ import annotations

import pytest

from benchmarks.overhead import inside_server_ms


def test_attempts_are_not_overhead() -> None:
    reply = {
        "submitted_at": "2026-03-01T12:00:00.100000+00:00",
        "finished_at": "2026-03-01T12:00:00.600000+00:00",
        "attempts": [{"wall_s": 0.25}, {"wall_s": 0.2}],
    }
    assert inside_server_ms(reply) == pytest.approx(500 - 250 - 200)
