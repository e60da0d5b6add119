"""Statements that are short, or at least allowed, and take long to plan: refused in time, and in nobody's way."""

from __future__ import annotations

import cProfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import httpx
import pytest

from engines.scripted import ScriptedEngine
from gateway.commands.classification import Text, classify
from gateway.commands.registry import FAMILIES
from gateway.commands.statement_reader import engines_of
from sql.errors import SqlError, StatementTooComplex
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource, View
from tests.attacks.doors import Door, Refused, Served

BOOKS = {"books": TableSource("books", "/nowhere", "parquet", columns=(Column("id", "int"), Column("title", "string")))}
DATABASES = ("default",)
ENGINES = engines_of([ScriptedEngine()])
MOST_GROWTH = 2.6  # of the functions called for twice the text; what is quadratic calls four times as many
MOST_GROWTH_OF_DEPTH = 4.5  # brackets nest 200 deep at most, so that squares of it do no harm, and powers of two would
DEEPEST = 160
FEWEST_CALLS = 1_000
PROMPT_S = 20.0  # on a machine that has much else to do


def doubling(steps: int) -> str:
    steps_of = [f"c{i} AS (SELECT a.id FROM c{i - 1} a JOIN c{i - 1} b ON a.id = b.id)" for i in range(1, steps + 1)]
    return f"WITH c0 AS (SELECT id FROM books), {', '.join(steps_of)} SELECT count(*) FROM c{steps}"


def nested(levels: int) -> str:
    return "SELECT max(id) FROM books WHERE id < (" * levels + "SELECT max(id) FROM books" + ")" * levels


def around(opening: str, inner: str, closing: str) -> Callable[[int], str]:
    return lambda levels: f"SELECT {opening * levels}{inner}{closing * levels} AS x FROM books"


def listed(
    each: Callable[[int], str], between: str = ", ", before: str = "SELECT ", after: str = " FROM books"
) -> Callable[[int], str]:
    return lambda count: before + between.join(each(i) for i in range(count)) + after


SHAPES: Mapping[str, tuple[Callable[[int], str], int]] = {  # by name: text of a size, and the largest size tried
    "nested scalar queries": (nested, 160),
    "nested EXISTS": (
        lambda n: "SELECT 1 FROM books WHERE " + "EXISTS (SELECT 1 FROM books WHERE " * n + "id = 1" + ")" * n,
        160,
    ),
    "nested queries": (lambda n: "SELECT * FROM (" * n + "SELECT id FROM books" + ") AS q" * n, 160),
    "nested CASE": (around("CASE WHEN id = 1 THEN ", "1", " ELSE 0 END"), 160),
    "nested calls": (around("abs(", "id", ")"), 160),
    "nested brackets": (around("(", "id", ")"), 160),
    "nested lambdas": (around("transform(array(1), x -> ", "1", ")"), 80),
    "nested casts": (around("CAST(", "id", " AS int)"), 160),
    "nested NOT": (around("NOT (", "id = 1", ")"), 160),
    "nested types": (lambda n: f"SELECT CAST(NULL AS {'array<' * n}int{'>' * n}) AS x", 40),
    "nested WITH": (
        lambda n: (
            "".join(f"WITH c{i} AS (" for i in range(n))
            + "SELECT id FROM books"
            + "".join(f") SELECT id FROM c{i}" for i in reversed(range(n)))
        ),
        80,
    ),
    "expressions": (listed(lambda i: f"id * {i} + 1 AS s{i}"), 400),
    "windows": (listed(lambda i: f"sum(id + {i}) OVER (PARTITION BY id % {i + 2}) AS s{i}"), 300),
    "aggregates": (listed(lambda i: f"sum(id + {i}) AS s{i}"), 400),
    "WHEN": (listed(lambda i: f"WHEN id = {i} THEN {i}", " ", "SELECT CASE ", " END AS x FROM books"), 400),
    "IN": (listed(str, ", ", "SELECT id FROM books WHERE id IN (", ")"), 2_000),
    "UNION ALL": (listed(lambda i: "SELECT id FROM books", " UNION ALL ", "", ""), 160),
    "joins": (listed(lambda i: f"books b{i}", ", ", "SELECT b0.id FROM ", ""), 160),
    "conjuncts": (listed(lambda i: f"(id = {i} OR id = {i + 1})", " AND ", "SELECT id FROM books WHERE ", ""), 300),
    "sums": (listed(lambda i: "id", " + ", "SELECT ", " AS x FROM books"), 300),
    "concatenations": (listed(lambda i: "title", " || ", "SELECT ", " AS x FROM books"), 300),
    "LATERAL VIEW": (
        listed(lambda i: f"LATERAL VIEW explode(array(1)) t{i} AS x{i}", " ", "SELECT id FROM books ", ""),
        80,
    ),
    "CUBE": (listed(lambda i: f"id + {i}", ", ", "SELECT count(*) AS n FROM books GROUP BY CUBE(", ")"), 160),
    "aliases of aliases": (listed(lambda i: f"a{i - 1} + a{i - 1} AS a{i}" if i else "id + 1 AS a0"), 40),
    "chains of CTEs": (
        listed(
            lambda i: f"c{i} AS (SELECT id FROM {f'c{i - 1}' if i else 'books'})", ", ", "WITH ", " SELECT id FROM c3"
        ),
        160,
    ),
}


TEXTS = {
    "a long literal": f"SELECT '{'x' * 900_000}' AS x",
    "spaces": f"SELECT 1 AS x{' ' * 900_000}FROM books",
    "spaces at the end": f"SELECT 1 AS x{' ' * 900_000}-- x",
    "comments": f"SELECT 1 AS x {'/* x */ ' * 50_000} FROM books",
    "a view behind spaces": f"CREATE VIEW v AS SELECT 1 AS x{' ' * 900_000}-- x",
    "semicolons behind a view": f"CREATE VIEW v AS SELECT 1 AS x{' ;' * 40_000}-- x",
    "quotes": f"SELECT '{chr(39) * 400_000}' AS x",
    "digits": f"SELECT {'1' * 100_000} AS x",
    "a long pattern": f"SELECT id FROM books WHERE title LIKE '{'%a' * 100_000}b'",
}


def read(sql: str) -> None:
    with suppress(SqlError):
        classify(Text(sql, "spark", ParserLimits()), BOOKS, {}, DATABASES, ENGINES, FAMILIES)


def calls_for(sql: str) -> int:
    """Return how many functions are called to read a statement: a measure that no other load disturbs."""
    counting = cProfile.Profile()
    counting.runcall(read, sql)
    return sum(entry.callcount for entry in counting.getstats())


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_takes_time_in_proportion_to_the_text(shape: str) -> None:
    text, largest = SHAPES[shape]
    calls_for(text(2))  # what is kept from then on
    growth = calls_for(text(largest)) / max(FEWEST_CALLS, calls_for(text(largest // 2)))
    assert growth < (MOST_GROWTH_OF_DEPTH if largest <= DEEPEST else MOST_GROWTH)


@pytest.mark.parametrize("shape", TEXTS)
def test_long_texts_are_read_at_once(shape: str) -> None:
    begun = time.process_time()
    read(TEXTS[shape])
    assert time.process_time() - begun < PROMPT_S


def test_a_chain_that_doubles_is_refused_at_every_door(door: Door, duckdb_gateway: Served) -> None:
    begun = time.monotonic()
    with pytest.raises(Refused, match="expanded, the statement reads more than 2,000 tables") as caught:
        duckdb_gateway.ask(door, doubling(24))
    assert caught.value.code in ("STATEMENT_TOO_COMPLEX", None)
    assert time.monotonic() - begun < PROMPT_S


def test_a_chain_that_is_short_runs(door: Door, duckdb_gateway: Served) -> None:
    assert duckdb_gateway.ask(
        door, "WITH c0 AS (SELECT 1 AS id), c1 AS (SELECT a.id FROM c0 a JOIN c0 b ON a.id = b.id) SELECT id FROM c1"
    ) == [(1,)]


def test_a_chain_of_views_that_doubles_is_refused() -> None:
    columns = (Column("id", "int"),)
    views = {"v0": View("v0", "SELECT id FROM books", "spark", columns)}
    for i in range(1, 15):
        sql = f"SELECT a.id FROM v{i - 1} a JOIN v{i - 1} b ON a.id = b.id"
        views[f"v{i}"] = View(f"v{i}", sql, "spark", columns)
    with pytest.raises(SqlError) as caught:
        classify(Text("SELECT id FROM v14", "spark", ParserLimits()), BOOKS, views, DATABASES, ENGINES, FAMILIES)
    assert caught.value.code in ("STATEMENT_TOO_COMPLEX", "STATEMENT_TOO_DEEP")


def test_a_large_view_that_is_named_often_is_refused() -> None:
    names = [f"column_{i}" for i in range(1_400)]
    sql = f"SELECT {', '.join(f'id + {i} AS {name}' for i, name in enumerate(names))} FROM books"
    views = {"large": View("large", sql, "spark", tuple(Column(name, "int") for name in names))}
    text = f"SELECT l0.column_0 FROM {', '.join(f'large AS l{i}' for i in range(40))}"
    with pytest.raises(StatementTooComplex):
        classify(Text(text, "spark", ParserLimits()), BOOKS, views, DATABASES, ENGINES, FAMILIES)


@pytest.fixture
def attacked(duckdb_gateway: Served, request: pytest.FixtureRequest) -> Iterator[Served]:
    """Have another user's clients do their worst meanwhile."""
    ended = threading.Event()

    def attack(number: int) -> None:
        with duckdb_gateway.http("mallory") as client:
            while not ended.is_set():
                with suppress(httpx.HTTPError):
                    client.post("/v1/explain", json={"sql": request.param(number)})
                number += 3

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(3)]
    for attacker in attackers:
        attacker.start()
    yield duckdb_gateway
    ended.set()
    for attacker in attackers:
        attacker.join()


WORST = {
    "folding": lambda n: f"SELECT md5(repeat('x', {60_000_000 + n})) AS m, count(*) AS n FROM books",
    "windows": lambda n: SHAPES["windows"][0](2_000) + f" WHERE 1 < {n}",
}


@pytest.mark.parametrize(
    "attacked",
    [
        pytest.param(WORST["folding"], id="folding"),
        pytest.param(WORST["windows"], id="windows", marks=pytest.mark.thorough),  # it is planned for a minute
    ],
    indirect=True,
)
def test_others_are_answered_meanwhile(attacked: Served) -> None:
    time.sleep(1.0)  # until it is under way
    with attacked.http("ann") as client:
        waits = []
        for _ in range(8):
            begun = time.monotonic()
            assert client.get("/livez").status_code == 200
            lives_s = time.monotonic() - begun
            reply = client.post("/v1/queries", json={"sql": "SELECT 1 AS one", "wait_s": 60})
            assert reply.json()["rows"] == [[1]]
            waits.append((lives_s, time.monotonic() - begun))
    assert sorted(lives_s for lives_s, _ in waits)[4] < PROMPT_S / 2
    assert sorted(answer_s for _, answer_s in waits)[4] < PROMPT_S
