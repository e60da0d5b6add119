"""Random files of rules and statements: what is explained is what is done, and another reading of the rules agrees.

The reference reads the file as TOML gives it, with regular expressions for patterns and minutes for times.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import tomllib
import zoneinfo
from collections import Counter
from collections.abc import Callable
from typing import Any

from engines.protocol import EngineStatus
from gateway.errors import NoEngineAvailable
from gateway.routing.rules.reading import read_rules
from gateway.security.principals import Principal, Role
from gateway.statements.statement import Presumed, Statement
from metastore.records import QueryState
from selector.decision import NoEngine
from sql.errors import RuleDenied, RuleForbidsEngine
from tests.gateway.routing.rules.conftest import ENGINES, FAST, Build, Ruled

FILES = 1_000
SEED = 20261123
USERS = ("ann", "bob", "carl", "etl_1")
TAGS = ("etl", "adhoc", "nightly.load")
SQLS = {
    "SELECT id FROM books WHERE price < 10": ("books", "select"),
    "SELECT id FROM books": ("books", "select"),
    "SELECT id FROM transactions": ("transactions", "select"),
    "SHOW TABLES": ("", "show"),
    "DESCRIBE books": ("books", "show"),
    "COMPUTE STATS books": ("books", "statistics"),
}
RUN = tuple(sql for sql, (_, kind) in SQLS.items() if kind != "statistics")  # a job would take seconds
GROUPS = {"analysts": ["ann", "b*"], "nobody": ["zoe"]}
UP, DOWN = EngineStatus(alive=True, detail="up"), EngineStatus(alive=False, detail="down")


# ---------------------------------------------------------------------- random files


def some(chance: random.Random, names: tuple[str, ...]) -> Any:
    """Return one name, a pattern, or a list of some."""
    chosen = chance.sample(names, chance.randint(1, min(2, len(names))))
    patterns = [each if chance.random() < 0.7 else each[: chance.randint(0, len(each))] + "*" for each in chosen]
    return patterns[0] if len(patterns) == 1 and chance.random() < 0.5 else patterns


def random_match(chance: random.Random) -> dict[str, Any]:
    hours = f"{chance.randint(0, 23):02}:{chance.choice(('00', '30'))}"
    choices: dict[str, Callable[[], Any]] = {
        "user": lambda: some(chance, USERS),
        "group": lambda: chance.choice(("analysts", "nobody", "reader", ["writer", "analysts"])),
        "authenticated": lambda: chance.random() < 0.5,
        "tag": lambda: some(chance, TAGS),
        "header": lambda: {"X-App": some(chance, ("airflow", "dbt/1"))},
        "pool": lambda: some(chance, ("batch", "live")),
        "table": lambda: some(chance, ("books", "default.transactions", "*.books", "hr.*")),
        "kind": lambda: chance.choice(("select", "show", ["select", "statistics"], "write")),
        "time": lambda: f"{hours}-{chance.choice(('24:00', '06:15', '12:00'))}",
        "days": lambda: chance.choice(("mon-fri", "sat-mon", ["sun", "wed"])),
        "down": lambda: chance.choice(ENGINES),
        "up": lambda: chance.sample(ENGINES, 2),
        "estimate": lambda: chance.choice(
            ({"peak_above": 1}, {"peak_above": "1 TiB"}, {"peak_below": "1 TiB"}, {"unknown": True}, {"unknown": False})
        ),
    }
    match: dict[str, Any] = {
        name: choices[name]() for name in chance.sample(sorted(choices), chance.choice((0, 1, 1, 2)))
    }
    if {"time", "days"} & match.keys():
        match["zone"] = chance.choice(("UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"))
    return match


def random_file(chance: random.Random) -> str:
    told = "[groups]\n" + "".join(f"{name} = {json.dumps(members)}\n" for name, members in GROUPS.items())
    for number in range(chance.randint(1, 5)):
        action = chance.choice(("allow", "prefer", "pin", "strict", "deny"))
        engines = chance.sample(ENGINES, chance.randint(1, 3))
        says = {"deny": "Not now.", "pin": engines[0], "strict": engines[0]}.get(action, engines)
        told += (
            f'[[rule]]\nname = "rule {number}"\nmatch = {inline(random_match(chance))}\n{action} = {json.dumps(says)}\n'
        )
    return told


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {inline(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def random_statement(chance: random.Random, sqls: tuple[str, ...]) -> Statement:
    begun = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
    role = chance.choice((Role.READER, Role.WRITER, Role.ADMIN))
    who = Principal(chance.choice(USERS), role, authenticated=chance.random() < 0.3)
    return Statement(
        chance.choice(sqls),
        engine=chance.choice(("auto", "auto", "auto", *ENGINES)),
        principal=who,
        tags=tuple(chance.sample(TAGS, chance.randint(0, 2))),
        headers=chance.choice(({}, {"x-app": "airflow"}, {"x-app": "dbt/1"})),
        pool=chance.choice(("", "batch", "live")),
        presumed=Presumed(who, begun + dt.timedelta(minutes=chance.randint(0, 7 * 24 * 60))),
    )


# ---------------------------------------------------------------------- the reference


def met_by_reference(
    file: str, statement: Statement, down: set[str], peaks: dict[str, int | None]
) -> dict[str, Any] | None:
    """Return the first rule that a statement meets, as the file has it."""
    document = tomllib.loads(file)
    for rule in document["rule"]:
        if all(holds(name, wanted, rule["match"], statement, down, peaks) for name, wanted in rule["match"].items()):
            kind = SQLS[statement.sql][1]
            if "kind" in rule["match"] or kind in ("select", "write", "ddl", "statistics"):
                return dict(rule)
    return None


def like(wanted: Any, *texts: str) -> bool:
    patterns = wanted if isinstance(wanted, list) else [wanted]
    forms = [re.compile(".*".join(map(re.escape, each.split("*"))), re.DOTALL) for each in patterns]
    return any(form.fullmatch(text) for form in forms for text in texts)


def holds(
    name: str, wanted: Any, match: dict[str, Any], statement: Statement, down: set[str], peaks: dict[str, int | None]
) -> bool:
    who = statement.principal
    table, kind = SQLS[statement.sql]
    listed = wanted if isinstance(wanted, list) else [wanted]
    match name:
        case "zone":
            return True
        case "user":
            return like(wanted, who.name)
        case "group":
            return any(like(GROUPS[each], who.name) if each in GROUPS else who.role == each for each in listed)
        case "authenticated":
            return bool(wanted) == who.authenticated
        case "tag":
            return like(wanted, *statement.tags)
        case "header":
            return "x-app" in statement.headers and like(wanted["X-App"], statement.headers["x-app"])
        case "pool":
            return like(wanted, statement.pool)
        case "table":
            full = [each if "." in each or each == "*" else f"default.{each}" for each in listed]
            return bool(table) and like(full, f"default.{table}")
        case "kind":
            return kind in listed
        case "time" | "days":
            return is_time(match, statement)
        case "down":
            return set(listed) <= down
        case "up":
            return not set(listed) & down
        case "estimate":
            peak = peaks.get(statement.sql)
            if "unknown" in wanted:
                return bool(wanted["unknown"]) == (peak is None)
            return peak is not None and wanted != {"peak_above": "1 TiB"}
    raise AssertionError(name)


def is_time(match: dict[str, Any], statement: Statement) -> bool:
    """Tell whether it is time: by minutes, on the day itself or on the one before it."""
    assert statement.presumed is not None
    assert statement.presumed.moment is not None
    here = statement.presumed.moment.astimezone(zoneinfo.ZoneInfo(match.get("zone", "UTC")))
    minute = 60 * here.hour + here.minute
    begin, end = [60 * int(part[:2]) + int(part[3:]) for part in match.get("time", "00:00-24:00").split("-")]
    end += 24 * 60 if end <= begin else 0
    named = {"mon-fri": {0, 1, 2, 3, 4}, "sat-mon": {5, 6, 0}, None: set(range(7))}
    days = match.get("days")
    wanted = {6, 2} if isinstance(days, list) else named[days]
    return any(begin <= minute + 24 * 60 * ago < end and (here.weekday() - ago) % 7 in wanted for ago in (0, 1))


def check_against_rule(rule: dict[str, Any] | None, statement: Statement, down: set[str], outcome: Any) -> None:
    """Hold what came of a statement against what its rule says. outcome: a ranking, or the code of an error."""
    engine, is_query = statement.pinned, SQLS[statement.sql][1] == "select"
    only = None if rule is None else rule.get("allow") or ([rule["strict"]] if "strict" in rule else None)
    if rule is not None and "deny" in rule:
        assert outcome == RuleDenied.code
    elif not is_query:
        assert outcome is None
    elif engine is not None and only is not None and engine not in only:
        assert outcome == RuleForbidsEngine.code
    elif engine is not None:
        assert outcome == (NoEngineAvailable.code if engine in down else (engine,))
    elif only is not None:
        assert outcome == NoEngineAvailable.code if set(only) <= down else set(outcome) <= set(only) - down
    elif set(ENGINES) == down:
        assert outcome == NoEngineAvailable.code
    elif rule is not None:
        first = [name for name in [rule["pin"]] if name not in down] if "pin" in rule else []
        assert list(outcome[: len(first)]) == first
        wished = [name for name in rule.get("prefer", ()) if name not in down and name not in FAST]
        assert [name for name in outcome if name in wished] == wished


# ---------------------------------------------------------------------- a thousand files


def test_what_is_explained_is_what_is_done_and_what_another_reading_says(ruled: Build) -> None:
    house = ruled()
    peaks = {}
    for sql in (each for each, (_, kind) in SQLS.items() if kind == "select"):
        peaks[sql] = house.gateway.coordinator.explain(Statement(sql))[1].estimate.peak_bytes
    seen: Counter[str] = Counter()
    for number in range(FILES):
        chance = random.Random(SEED + number)  # noqa: S311 - it is no secret
        file, statement = random_file(chance), random_statement(chance, RUN)
        down = set(chance.sample(ENGINES, chance.choice((0, 0, 1, 2))))
        for name, engine in house.engines.items():
            engine.reported_status = DOWN if name in down else UP
        house.write(file)
        assert house.gateway.router.rules.state().problems == (), file
        rule = met_by_reference(file, statement, down, peaks)
        told = explained(house, statement)
        record = house.ended(statement)
        decision = record.decision
        done = record.error.code if record.error else decision.ranking if decision else None
        if SQLS[statement.sql][1] == "select":
            assert told == done, file
            if decision is not None:
                assert decision.matched == (rule["name"] if rule else None), (file, statement)
                assert {each.engine for each in record.attempts} <= set(decision.ranking)
                assert decision.strict is (statement.pinned is not None or bool(rule and "strict" in rule))
        check_against_rule(rule, statement, down, done)
        seen[
            (next(name for name in ("allow", "prefer", "pin", "strict", "deny") if name in rule)) if rule else "none"
        ] += 1
        seen[record.state] += 1
    assert min(seen[each] for each in ("none", "allow", "prefer", "pin", "strict", "deny")) > FILES / 50, seen
    assert min(seen[each] for each in (QueryState.FINISHED, QueryState.FAILED)) > FILES / 10, seen


def explained(house: Ruled, statement: Statement) -> Any:
    """Return the ranking that a statement is told to have, or the code of what refuses it; None of a command."""
    if SQLS[statement.sql][1] != "select":
        return None
    try:
        return house.gateway.coordinator.explain(statement)[1].ranking
    except (RuleDenied, RuleForbidsEngine) as error:
        return error.code
    except NoEngine:
        return NoEngineAvailable.code


def test_every_random_file_is_one_that_can_be_read() -> None:
    for number in range(FILES):
        read_rules(random_file(random.Random(SEED + number)).encode(), ENGINES)  # noqa: S311 - it is no secret
