"""Routing rules in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.presentation.formatting import memory
from gateway.routing.rules.rules import Estimate, RoutingRule
from gateway.routing.rules.times import Span
from selector.decision import RuleAction
from selector.wording import seconds_of


def says(rule: RoutingRule) -> str:
    """Return the effect of a rule on statements that match it."""
    if rule.deny is not None:
        return f"deny: {rule.deny}"
    demand = rule.demand
    assert demand is not None  # a rule says one thing
    between = ", then " if demand.action is RuleAction.PREFER else ", "
    return f"{demand.action}: {between.join(demand.engines)}"


def conditions(rule: RoutingRule) -> Iterator[str]:
    """Yield the conditions of a rule, one a line."""
    match = rule.match
    for name in sorted(match.model_fields_set - {"zone", "estimate", "header", "waiting_above"}):
        value = getattr(match, name)
        yield f"{name}: {' or '.join(map(_text, value)) if isinstance(value, tuple) else _text(value)}"
    if match.time or match.days:
        yield f"zone: {match.zone.key}"
    for header, values in match.header.items():
        yield f"header {header}: {' or '.join(values)}"
    for engine, longest_s in match.waiting_above.items():
        yield f"waiting for {engine} above {seconds_of(longest_s)}"
    if match.estimate is not None:
        yield from _estimate(match.estimate)


def _estimate(estimate: Estimate) -> Iterator[str]:
    where = f" on {estimate.engine}" if estimate.engine is not None else ""
    for name, written in (("peak", memory), ("seconds", seconds_of)):
        for side in ("above", "below"):
            value = getattr(estimate, f"{name}_{side}")
            if value is not None:
                yield f"estimate{where}: {name} {side} {written(value)}"
    if estimate.unknown is not None:
        yield f"estimate{where}: {'unknown' if estimate.unknown else 'known'}"


def _text(value: Any) -> str:
    match value:
        case Span():
            return f"{value.begin:%H:%M}-{value.end:%H:%M}"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
