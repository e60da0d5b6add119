"""Regular expressions that take a matcher which backtracks for ever: kept from Spark and Hive, answered by DuckDB."""

from __future__ import annotations

import time

import pytest

from sql.limits.patterns import explodes
from sql.parsing import ParserLimits
from sql.statement import check
from tests.attacks.doors import Door, Refused, Served
from tests.gateway.conftest import BOOKS

EVIL = "((a+)+)+b"
REPLACED = f"regexp_replace(concat(category, repeat('a', 60)), '{EVIL}', 'x')"
SQL = f"SELECT count(*) AS n FROM books WHERE {REPLACED} IS NOT NULL"
REASON = "might never end there"

EXPLODING = (
    *(EVIL, "(a+)+", "(a|a)*b", "(a|aa)+$", r"(\w|\d)+", "(.*)*", r"(\w+\s?)*$", "(a*)*", "(a?a?)*b", "((a?|b?)c)*d"),
    *("(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?i)(a|A)+", "(a{1,30}){30}", "([a-zA-Z0-9]+)*@", "(?=(a+)+b)a"),
    *("(?:a|a(?:b|b))+", "(a|b|ab)*c", "(?<n>a+)+", r"(\Qa\E+)+", r"(\p{L}|a)*", r"(a|\x61)+", "(?:(?:a)+)+", "(.|a)*"),
    *("(?!(?:x|x)+$)y", "(a|b)*(c|c)+", "(" * 60 + "a" + "+)" * 60, "(a{2,}){2,}", "([a-c]|[b-d])+x"),
)
HARMLESS = (
    *("a+b", "([^,]*,)*", r"(\d+\.)+\d", "(foo|bar)*", r"(\w+\s)+", r"(\d{1,3}[- ]?){3}", r"^\d{3}-\d{4}$", ""),
    *(r"[a-z]{1,64}(\.[a-z]{2,})+", ".*foo.*bar.*", "https?://([^/]+)/(.*)", "(a|b|c)+", r"(?i)^select\s+"),
    *(r"[\w.+-]+@[\w-]+\.[\w.]+", r"(\d{3},?){50}", r"\s*,\s*", "(?:[A-Z][a-z]+ ?)+", "(a|bc)*", r"[^\]]+"),
    *(r"(?:\[[^\]]*\])*", "(ab|ac)*", r"^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.|$)){4}", "|".join(["word"] * 400)),
)


@pytest.mark.parametrize("pattern", EXPLODING)
def test_patterns_that_explode_are_seen(pattern: str) -> None:
    assert explodes(pattern)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_harmless_patterns_are_left_alone(pattern: str) -> None:
    assert not explodes(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(" + "|".join(["[a-z]x"] * 290) + ")*", "(" + "a?" * 290 + ")*", "(" * 1_900, "[a-z&&[b-z]]*" * 100, "a*" * 900],
)
def test_the_check_itself_does_not_explode(pattern: str) -> None:
    begun = time.perf_counter()
    explodes(pattern)
    assert time.perf_counter() - begun < 20.0


@pytest.mark.parametrize(
    "expression",
    [
        f"regexp_replace(x, '{EVIL}', 'x')",
        f"x RLIKE '{EVIL}'",
        "regexp_like(x, concat('((a+)', '+)+b'))",
        "split(x, '((a+)' || '+)+b')",
        f"str_to_map(x, ',', '{EVIL}')",
        f"regexp_extract_all(x, '{EVIL}', 1)",
    ],
)
def test_every_function_with_a_pattern_is_looked_at(expression: str) -> None:
    statement = check(
        f"SELECT {expression} AS y FROM (SELECT 'a' AS x) AS t", "spark", catalog={}, limits=ParserLimits()
    )
    assert statement.explosive_pattern() == EVIL


def test_duckdb_answers_what_spark_must_not_see(door: Door, duckdb_gateway: Served) -> None:
    assert duckdb_gateway.ask(door, SQL) == [(BOOKS,)]


@pytest.mark.spark
def test_spark_never_sees_them(door: Door, spark_gateway: Served) -> None:
    with pytest.raises(Refused, match=REASON):
        spark_gateway.ask(door, SQL, engine="spark")
    assert spark_gateway.ask(door, SQL) == [(BOOKS,)]  # where it cannot explode, whatever its memory may be
    with pytest.raises(Refused, match=REASON):
        spark_gateway.ask(door, f"CREATE TABLE never AS {SQL}")


@pytest.mark.spark
def test_bound_patterns_are_seen_too(spark_gateway: Served) -> None:
    with pytest.raises(Refused, match=REASON):
        spark_gateway.ask(
            Door.FLIGHT, "SELECT count(*) AS n FROM books WHERE category RLIKE ?", parameters=[EVIL], engine="spark"
        )
