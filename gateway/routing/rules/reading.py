"""Parsing of a rules file: rules, or all errors in it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway.routing.rules.rules import Estimate, Match, RoutingRule, RuleSet
from sql.names import did_you_mean

_PARTS: Mapping[str, type[BaseModel]] = {"rule": RoutingRule, "match": Match, "estimate": Estimate}

Path = Sequence[str | int]
"""Keys that lead to a value; an entry of a list is a number."""


class RulesInvalid(Exception):
    """The file holds no rules. problems: messages, at least one; each names the key that it is about."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_rules(content: bytes, engines: Collection[str]) -> RuleSet:
    """Read rules. engines: names that they can have. Raises RulesInvalid, whatever the bytes are."""
    document = _parsed(content)
    try:
        rules = RuleSet.model_validate(document)
    except ValidationError as error:
        raise RulesInvalid([_problem(detail, document) for detail in error.errors(include_url=False)]) from error
    if problems := list(_unknown(rules, engines)):
        raise RulesInvalid(problems)
    return rules


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and TOMLDecodeError are ValueErrors
        raise RulesInvalid([f"the file is no TOML: {error}"]) from error


def _problem(detail: Any, document: Mapping[str, Any]) -> str:
    """Say what is wrong with one value, with the nearest names where there is none of its name."""
    path = tuple(part for part in detail["loc"] if part != "[key]")
    named = [part for part in path if isinstance(part, str)]
    if detail["type"] == "extra_forbidden":
        holder = next((_PARTS[name] for name in reversed(named[:-1]) if name in _PARTS), RuleSet)
        return f"{_place(path, document)}there is no such key{did_you_mean(named[-1], holder.model_fields)}"
    if detail["type"] == "missing":
        return f"{_place(path[:-1], document)}the rule has no {named[-1]}"
    message = str(detail["msg"]).removeprefix("Value error, ").replace("Input should be", "it has to be")
    message = message.replace("tuple", "list").partition(" or instance of")[0].replace("dictionary", "table")
    return f"{_place(path, document)}{message}"


def _unknown(rules: RuleSet, engines: Collection[str]) -> Iterator[str]:
    """Yield messages about names that nothing has, and about those that two rules have."""
    for group in rules.groups:
        if group in RuleSet().known_groups:
            yield f"groups.{group}: {group} is a role: all who have it are in it"
    seen: set[str] = set()
    for rule in rules.rule:
        if rule.name in seen:
            yield f"there are two rules '{rule.name}'"
        seen.add(rule.name)
        for group in rule.match.group:
            if group not in rules.known_groups:
                near = did_you_mean(group, rules.known_groups)
                yield f"rule '{rule.name}': match.group: there is no group {group}{near}"
        named = [(f"match.{key}", name) for key, name in rule.match.engines]
        if (demand := rule.demand) is not None:
            named += [(demand.action.value, name) for name in demand.engines]
        for key, name in named:
            if name not in engines:
                yield f"rule '{rule.name}': {key}: there is no engine {name}{did_you_mean(name, engines)}"


def _place(path: Path, document: Mapping[str, Any]) -> str:
    """Return the beginning of a message about a key: ``rule 'etl': match.table: ``; without a name ``rule 2: ``."""
    match path:
        case ["rule", int(number), *keys]:
            rule = document["rule"][number]
            name = rule.get("name") if isinstance(rule, dict) else None
            parts = [f"rule '{name}'" if isinstance(name, str) else f"rule {number + 1}", ".".join(map(str, keys))]
        case _:
            parts = [".".join(map(str, path))]
    return "".join(f"{part}: " for part in parts if part)
