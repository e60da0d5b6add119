from __future__ import annotations

import pytest

from benchmarks.estimate_speed import AXES, MOST_SIGNS, Statements, bar, growth
from selector.plan import Operator


def test_growth_is_the_power_between_the_two_largest() -> None:
    assert growth({1: 5.0, 2: 7.0, 4: 28.0}) == pytest.approx(2.0)
    assert growth({10: 3.0, 100: 30.0}) == pytest.approx(1.0)


def test_bars_end_with_the_line() -> None:
    assert (bar(1.0), len(bar(1e6)), bar(1e6)[-1]) == ("##", MOST_SIGNS, ">")


@pytest.mark.parametrize("name", ["star", "chain", "one_key"])
@pytest.mark.parametrize("joins", [1, 4])
def test_statements_have_as_many_joins_as_they_say(name: str, joins: int) -> None:
    nodes = [node for _, node in getattr(Statements(1), name)(joins).walk()]
    scans = [node for node in nodes if node.operator is Operator.SCAN]
    assert sum(node.operator is Operator.HASH_JOIN for node in nodes) == joins
    assert len({node.scan for node in scans}) == joins + 1


@pytest.mark.parametrize("name", [name for name, (unit, _) in AXES.items() if unit != "joins"])
def test_no_two_statements_name_the_same_constants(name: str) -> None:
    statements = Statements(1)
    found = [getattr(statements, name)(10) for _ in range(2)]
    texts = [{text for _, node in plan.walk() for text in node.predicates} for plan in found]
    assert texts[0]
    assert texts[0].isdisjoint(texts[1]) or name == "conditions"
