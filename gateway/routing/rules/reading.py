"""From a file's bytes to rules, or to everything that is wrong with them, each with its place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway.routing.rules.positions import Path, positions
from gateway.routing.rules.rules import Estimate, Match, RoutingRule, RuleSet
from gateway.sql.names import did_you_mean
from metastore.records import Position

LARGEST_BYTES = 256 << 10
MOST_DOTS = 100  # in one line: a key of many parts takes the parser memory by their square
MOST_PROBLEMS = 20
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_PARTS: Mapping[str, type[BaseModel]] = {"rule": RoutingRule, "match": Match, "estimate": Estimate}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. position: in the file, None where it is no one place."""

    message: str
    position: Position | None = None

    def __str__(self) -> str:
        where = f"line {self.position.line}, column {self.position.column}: " if self.position else ""
        return f"{where}{self.message}"


class RulesInvalid(Exception):
    """What a file says are no rules. problems: what is wrong with it, at least one."""

    def __init__(self, problems: Collection[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def read_rules(content: bytes, engines: Collection[str]) -> RuleSet:
    """Read rules. engines: names that they can have. Raises RulesInvalid, whatever the bytes are."""
    text = _decoded(content)
    document = _parsed(text)
    try:
        places = positions(text)
    except RecursionError:
        places = {}
    try:
        rules = RuleSet.model_validate(document)
    except ValidationError as error:
        found = [_problem(each, places) for each in error.errors(include_url=False)[:MOST_PROBLEMS]]
        raise RulesInvalid(sorted(found, key=_place)) from error
    wrong = sorted(_unknown(rules, engines, places), key=_place)
    if wrong:
        raise RulesInvalid(wrong[:MOST_PROBLEMS])
    return rules


def _decoded(content: bytes) -> str:
    if len(content) > LARGEST_BYTES:
        raise RulesInvalid([Problem(f"the file is larger than {LARGEST_BYTES >> 10} KiB")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise RulesInvalid([Problem("the file is not in UTF-8", Position(line, column))]) from error
    text = text.replace("\r\n", "\n")
    for number, each in enumerate(text.split("\n"), start=1):
        if each.count(".") > MOST_DOTS:
            message = f"a line has at most {MOST_DOTS} dots; write a long list on several lines"
            raise RulesInvalid([Problem(message, Position(number, 1))])
    return text


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise RulesInvalid([Problem("brackets are nested too deep")]) from error
    except ValueError as error:  # TOMLDecodeError is one, and a number of thousands of digits is another
        told = str(error)
        place = _PLACE.search(told[-80:])
        end = Position(text.count("\n") + 1, len(text) - text.rfind("\n"))
        at = Position(int(place[1]), int(place[2])) if place else end
        raise RulesInvalid([Problem(f"this is no TOML: {told.partition(' (at ')[0]}", at)]) from error


def _problem(error: Any, places: Mapping[Path, Position]) -> Problem:
    """Return what is wrong with one value, with the nearest names where there is none of its name."""
    path = tuple(part for part in error["loc"] if part != "[key]")
    named = [str(part) for part in path if isinstance(part, str)]
    position = _nearest(path, places)
    if error["type"] == "extra_forbidden":
        holder = next((_PARTS[name] for name in reversed(named[:-1]) if name in _PARTS), RuleSet)
        near = did_you_mean(named[-1][:100], holder.model_fields)
        return Problem(f"there is no key {named[-1][:100]}{near}", position)
    if error["type"] == "missing":
        return Problem(f"the rule has no {named[-1]}", position)
    key = next(iter(named[-1:]), "")
    told = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "it has to be")
    told = told.replace("tuple", "list").partition(" or instance of")[0].replace("dictionary", "table")
    return Problem(told if key in ("", "rule") else f"{key[:100]}: {told}", position)


def _unknown(rules: RuleSet, engines: Collection[str], places: Mapping[Path, Position]) -> Iterator[Problem]:
    """Yield names that nothing has, and those that two rules have."""
    for group in rules.groups:
        if group in RuleSet().known_groups:
            path: Path = ("groups", group)
            yield Problem(f"the group {group} is a role: all who have it are in it", _nearest(path, places))
    seen: set[str] = set()
    for number, rule in enumerate(rules.rule):
        here: Path = ("rule", number)
        if rule.name in seen:
            yield Problem(f"there are two rules '{rule.name}'", _nearest((*here, "name"), places))
        seen.add(rule.name)
        for group in rule.match.group:
            if group not in rules.known_groups:
                told = f"there is no group {group}{did_you_mean(group, rules.known_groups)}"
                yield Problem(told, _nearest((*here, "match", "group"), places))
        named: list[tuple[Path, str]] = [(("match", key), name) for key, name in rule.match.engines]
        if (demand := rule.demand) is not None:
            named += [((demand.action.value,), name) for name in demand.engines]
        for path, name in named:
            if name not in engines:
                told = f"there is no engine {name}{did_you_mean(name, engines)}"
                yield Problem(told, _nearest((*here, *path), places))


def _nearest(path: Path, places: Mapping[Path, Position]) -> Position | None:
    """Return the place of a key, or of what it is within."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path)


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.position.line, problem.position.column) if problem.position else (0, 0)
