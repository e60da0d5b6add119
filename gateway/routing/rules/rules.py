"""Rules as checked values.

The first rule whose conditions all hold decides; those behind it are not looked at, and where none holds, prices decide
as they do without rules. A rule that names no kind of statement is not about what drivers and tools send by themselves.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FiniteFloat,
    NonNegativeFloat,
    PlainValidator,
    model_validator,
)

from engines.adapter import Size
from gateway.routing.rules.times import Span, days_of
from gateway.security.principals import Role
from gateway.statements.command import USUAL, Kind
from selector.decision import Demand, RuleAction
from sql.names import did_you_mean

SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty is needed")
    if not value.isprintable():
        raise ValueError("a text has only signs that can be printed")
    return value


def _several(read: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...]]:
    """Return a parser of one value or a list of values."""

    def read_all(value: object) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise ValueError("the list is empty: leave the key out, or name something")
        return tuple(read(item) for item in values)

    return read_all


def _kind(value: object) -> Kind:
    text = _text(value).lower()
    if text not in list(Kind):
        raise ValueError(f"there is no kind {text}{did_you_mean(text, list(Kind))}")
    return Kind(text)


def _days(value: object) -> tuple[str, ...]:
    return tuple(day for text in _several(_text)(value) for day in days_of(text))


def _zone(value: object) -> zoneinfo.ZoneInfo:
    name = _text(value)
    try:
        return zoneinfo.ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        near = did_you_mean(name, zoneinfo.available_timezones())
        raise ValueError(f"there is no time zone {name}{near}") from error


def _header(name: str) -> str:
    if name.lower() in SECRET_HEADERS:
        raise ValueError(f"the header {name} is secret; rules do not look at it")
    return name.lower()


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Name = Annotated[str, AfterValidator(_text)]
Names = Annotated[tuple[str, ...], PlainValidator(_several(_text))]
Seconds = Annotated[NonNegativeFloat, FiniteFloat]


class _Part(BaseModel):
    """Base of what a file says: nothing else than its fields, of exactly their types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class Estimate(_Part):
    """Condition on the estimate of a fast engine; without an engine, of the first that has an estimate.

    Where its peak could not be estimated, only ``unknown`` can hold.
    """

    engine: Name | None = None
    peak_above: Size | None = None
    peak_below: Size | None = None
    seconds_above: Seconds | None = None
    seconds_below: Seconds | None = None
    unknown: bool | None = None

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if self.model_fields_set <= {"engine"}:
            conditions = ", ".join(name for name in type(self).model_fields if name != "engine")
            raise ValueError(f"an estimate is compared with something: {conditions}")
        return self


class Match(_Part):
    """Conditions of a rule: all that are set must hold. Of a list, one entry must match.

    user, group, pool, tag, header, table: patterns with ``*``.
    time, days: hours and days, in ``zone``.
    down, up, busy: engines that all must be in this state.
    waiting_above: by engine, seconds until a slot is expected to be free.
    """

    user: Names = ()
    group: Names = ()
    authenticated: bool | None = None
    tag: Names = ()
    header: dict[Annotated[Name, AfterValidator(_header)], Names] = {}
    pool: Names = ()
    table: Names = ()
    kind: Annotated[tuple[Kind, ...], PlainValidator(_several(_kind))] = ()
    time: Annotated[tuple[Span, ...], PlainValidator(_several(lambda value: Span.read(_text(value))))] = ()
    days: Annotated[tuple[str, ...], PlainValidator(_days)] = ()
    zone: Annotated[zoneinfo.ZoneInfo, PlainValidator(_zone)] = zoneinfo.ZoneInfo("UTC")
    down: Names = ()
    up: Names = ()
    busy: Names = ()
    waiting_above: dict[Name, Seconds] = {}
    estimate: Estimate | None = None

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of statements that it is about."""
        return frozenset(self.kind) or USUAL

    @property
    def claims(self) -> tuple[str, ...]:
        """Conditions on values that a client may set freely."""
        return tuple(name for name in ("tag", "header", "pool") if getattr(self, name))

    @property
    def is_everything(self) -> bool:
        """Tell whether every statement of its kinds meets it."""
        return self.model_fields_set <= {"kind", "zone"}

    @property
    def engines(self) -> Iterator[tuple[str, str]]:
        """Each engine that a condition names, with the name of the condition."""
        for key in ("down", "up", "busy", "waiting_above"):
            yield from ((key, name) for name in getattr(self, key))
        if self.estimate is not None and self.estimate.engine is not None:
            yield "estimate", self.estimate.engine


class RoutingRule(_Part):
    """One rule: its conditions and one action. deny: error message for the client."""

    name: Name
    match: Match = Match()
    allow: Names = ()
    prefer: Names = ()
    pin: Name | None = None
    strict: Name | None = None
    deny: Annotated[str, AfterValidator(_text)] | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        actions = [name for name in (*RuleAction, "deny") if name in self.model_fields_set]
        if len(actions) != 1:
            problem = f"says {' and '.join(actions)}" if actions else "says nothing"
            raise ValueError(f"the rule {problem}; it needs one of {', '.join((*RuleAction, 'deny'))}")
        return self

    @property
    def demand(self) -> Demand | None:
        """Demand on the ranking; None: the rule denies."""
        for action in RuleAction:
            value: tuple[str, ...] | str | None = getattr(self, action.value)
            if value:
                return Demand(self.name, action, (value,) if isinstance(value, str) else value)
        return None

    @property
    def restricts(self) -> bool:
        """Tell whether the rule forbids something that a statement might do without it."""
        return bool(self.deny or self.allow or self.strict)

    def described(self) -> Mapping[str, Any]:
        """Return it as the file has it, with values in their usual forms."""
        return self.model_dump(mode="python", exclude_unset=True)


class RuleSet(_Part):
    """All rules, in order.

    groups: users and ``group:...`` of a source of identity, by group; each role is also a group of its users.
    """

    groups: dict[Name, Names] = {}
    rule: Annotated[tuple[RoutingRule, ...], BeforeValidator(_tuple)] = ()

    @property
    def headers(self) -> frozenset[str]:
        """Names of the headers that some rule looks at, in lower case."""
        return frozenset(name for rule in self.rule for name in rule.match.header)

    @property
    def known_groups(self) -> frozenset[str]:
        """Names that a condition on groups can have."""
        return frozenset(self.groups) | {role.value for role in Role}

    def warnings(self) -> Iterator[str]:
        """Yield warnings about valid rules that are probably mistakes."""
        for number, rule in enumerate(self.rule):
            claims, before = rule.match.claims, self.rule[:number]
            if rule.restricts and claims:
                yield (
                    f"'{rule.name}' restricts by what a client says of itself ({', '.join(claims)}): "
                    "who does not say it is not bound."
                )
            if over := next((earlier for earlier in before if _covers(earlier, rule)), None):
                yield f"'{rule.name}' is never reached: '{over.name}' before it meets every such statement."
            for earlier in before if rule.restricts else ():
                if earlier.match.claims and not earlier.deny and earlier.match.kinds & rule.match.kinds:
                    yield (
                        f"'{earlier.name}' stands before '{rule.name}' and matches what a client says of itself "
                        f"({', '.join(earlier.match.claims)}): who says it gets past '{rule.name}'."
                    )
                    break


def _covers(earlier: RoutingRule, later: RoutingRule) -> bool:
    return earlier.match.is_everything and later.match.kinds <= earlier.match.kinds
