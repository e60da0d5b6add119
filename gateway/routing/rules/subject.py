"""Subject of a routing rule: one statement, its sender, its time, and the state of the engines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.security.principals import ANONYMOUS
from gateway.statements.command import Kind
from gateway.statements.statement import Statement


@dataclass(frozen=True, slots=True)
class EngineState:
    """Current state of an engine. busy: no slot is free. wait_s: expected seconds until one is."""

    down: bool = False
    busy: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineExpectation:
    """Expected resources of a statement on a fast engine. peak_bytes: None: it could not be estimated."""

    peak_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """One statement as rules see it.

    user: authenticated user name; without a users file, the name that the client sent.
    role: role of the user.
    groups: of the user at an identity provider or in a directory.
    tags, headers, pool: values from the client; headers by lower-case name.
    kinds: kinds of the statement; a CREATE TABLE ... AS has two.
    tables: full names of the tables that it reads or changes; for a view, its tables.
    moment: time of the decision, with a time zone.
    states: state of an engine, by name.
    expected: expectations by fast engine, in configured order; called only if a rule depends on them, as it runs
        EXPLAIN.
    """

    user: str = ""
    role: str = ""
    authenticated: bool = False
    groups: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    kinds: frozenset[Kind] = frozenset()
    tables: tuple[str, ...] = ()
    moment: dt.datetime = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    states: Callable[[str], EngineState] = lambda _: EngineState()
    expected: Callable[[], Mapping[str, EngineExpectation]] = lambda: {}


def subject_of(
    statement: Statement,
    *,
    kinds: frozenset[Kind],
    tables: tuple[str, ...],
    states: Callable[[str], EngineState],
    expected: Callable[[], Mapping[str, EngineExpectation]],
    has_users: bool,
) -> Subject:
    """Return a statement as rules see it. has_users: names can be proved, so that those that are only told are none."""
    presumed = statement.presumed
    who = presumed.principal if presumed is not None else statement.principal
    moment = presumed.moment if presumed is not None else None
    return Subject(
        user=who.name if who.authenticated or not has_users else ANONYMOUS,
        role=who.role.value,
        authenticated=who.authenticated,
        groups=who.groups,
        tags=statement.tags,
        headers=statement.headers,
        pool=statement.pool,
        kinds=kinds,
        tables=tables,
        moment=moment or dt.datetime.now(dt.UTC),
        states=states,
        expected=expected,
    )
