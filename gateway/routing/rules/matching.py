"""Matching of rules: the first rule whose conditions all hold.

Conditions are looked at from the cheapest to the dearest; engines are asked for plans only by a rule all of whose other
conditions hold, and only if it has one on the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.routing.rules.patterns import matches, matches_table
from gateway.routing.rules.rules import Estimate, Match, RoutingRule, RuleSet
from gateway.routing.rules.subject import EngineExpectation, Subject
from gateway.routing.rules.times import DAYS
from gateway.security.access.rules import GROUP

Groups = Mapping[str, Sequence[str]]


def first_match(rules: RuleSet, subject: Subject) -> RoutingRule | None:
    """Return the rule that decides about a statement, None where none says anything. Raises what ``expected`` does."""
    return next((rule for rule in rules.rule if _holds(rule.match, subject, rules.groups)), None)


def _holds(match: Match, subject: Subject, groups: Groups) -> bool:
    return (
        not match.kinds.isdisjoint(subject.kinds)
        and (match.authenticated is None or match.authenticated is subject.authenticated)
        and _some(match.user, (subject.user,))
        and (not match.group or any(_is_in(group, subject, groups) for group in match.group))
        and _some(match.pool, (subject.pool,))
        and _some(match.tag, subject.tags)
        and all(_some(wanted, _header(subject, name)) for name, wanted in match.header.items())
        and _some(match.table, subject.tables, matches_table)
        and _is_time(match, subject)
        and _are_engines(match, subject)
        and (match.estimate is None or _is_estimated(match.estimate, subject.expected()))
    )


def _some(patterns: Sequence[str], texts: Sequence[str], matching: Callable[[str, str], bool] = matches) -> bool:
    """Tell whether a pattern matches a text, where there are patterns at all."""
    return not patterns or any(matching(pattern, text) for text in texts for pattern in patterns)


def _is_in(group: str, subject: Subject, groups: Groups) -> bool:
    if group in groups:
        return any(_is_member(member, subject) for member in groups[group])
    return group == subject.role


def _is_member(member: str, subject: Subject) -> bool:
    """Tell whether a member of a group, a user or (``group:...``) a group of a source of identity, is the sender."""
    if member.startswith(GROUP):
        return any(matches(member, f"{GROUP}{name}") for name in subject.groups)
    return matches(member, subject.user)


def _header(subject: Subject, name: str) -> tuple[str, ...]:
    return (subject.headers[name],) if name in subject.headers else ()


def _is_time(match: Match, subject: Subject) -> bool:
    if not match.time and not match.days:
        return True
    moment = subject.moment.astimezone(match.zone)
    begun = [span.began(moment) for span in match.time] or [moment.date()]
    return any(day is not None and (not match.days or DAYS[day.weekday()] in match.days) for day in begun)


def _are_engines(match: Match, subject: Subject) -> bool:
    return (
        all(subject.states(name).down for name in match.down)
        and not any(subject.states(name).down for name in match.up)
        and all(subject.states(name).busy for name in match.busy)
        and all(subject.states(name).wait_s > longest_s for name, longest_s in match.waiting_above.items())
    )


def _is_estimated(condition: Estimate, expected: Mapping[str, EngineExpectation]) -> bool:
    if condition.engine is not None:
        expectation = expected.get(condition.engine)
    else:
        expectation = next((candidate for candidate in expected.values() if candidate.peak_bytes is not None), None)
    peak_bytes = expectation.peak_bytes if expectation is not None else None
    if condition.unknown is not None and condition.unknown is not (peak_bytes is None):
        return False
    return _is_between(peak_bytes, condition.peak_above, condition.peak_below) and _is_between(
        expectation.seconds if expectation is not None and peak_bytes is not None else None,
        condition.seconds_above,
        condition.seconds_below,
    )


def _is_between(value: float | None, above: float | None, below: float | None) -> bool:
    """Tell whether a value is between two; of one that is not known, only where nothing is asked of it."""
    if value is None:
        return above is None and below is None
    return (above is None or value > above) and (below is None or value < below)
