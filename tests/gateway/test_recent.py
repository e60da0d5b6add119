"""Of a full dictionary the entry goes that was used longest ago."""

from __future__ import annotations

from gateway.recent import Recent


def test_what_was_used_longest_ago_goes() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"], recent["b"] = 1, 2
    assert recent.get("a") == 1
    recent["c"] = 3
    assert list(recent.items()) == [("a", 1), ("c", 3)]
    recent["a"] = 4
    recent["d"] = 5
    assert dict(recent) == {"a": 4, "d": 5}
    assert (recent.get("b"), recent.get("b", 9)) == (None, 9)
