"""Laws of estimates, on what the real job computes of a generated folder; the selector's tests have many more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from metastore.database.connection import sqlite_url
from metastore.store import Metastore
from selector.plan import JoinType
from tests.selector.cardinality.metamorphic.laws import at_most, equal
from tests.selector.cardinality.metamorphic.queries import (
    Estimate,
    Group,
    Join,
    Query,
    Read,
    UnionAll,
    as_written,
    on,
    planned_by_duckdb,
)
from tests.selector.cardinality.metamorphic.worlds import World, files, world
from tests.statsproc.runs import NOON, Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GENERATED = world(16)  # keys that are strings and dates, NULLs, tables of two files
BOTH = ("k", "m")
ALIKE, NO_MORE = equal, at_most


@pytest.fixture(scope="module")
def computed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give the generated tables with the statistics of a job over their folder."""
    folder = tmp_path_factory.mktemp("generated")
    with Metastore(sqlite_url(folder / "metastore.db")) as store:
        runs = Runs(spark, store, folder)
        for name in GENERATED.names:
            for file, rows in files(name, GENERATED.stored(name), GENERATED.chunks):
                runs.write(name, rows, file)
            runs.register(name)
        store.keys.learn(GENERATED.joined, source="workload", at=NOON)
        runs.run(*GENERATED.names)
        assert runs.errors == {}
        statistics = {name: runs.current(name) for name in GENERATED.names}
        yield replace(GENERATED, title="computed", statistics=statistics)


def value(table: str, column: str, place: float) -> str:
    """Return a value of a column, by its place in their order, 0..1."""
    held = GENERATED.values(table, column)
    return held[int(place * (len(held) - 1))]


A, B, C = Read("a", 1), Read("b", 2), Read("c", 3)
KEY, OTHER_KEY = (f"{{k}} = {value('a', 'k', place)}" for place in (0.5, 0.0))
SOME_M = f"{{m}} IN ({value('b', 'm', 0.0)}, {value('b', 'm', 0.5)})"
LOW, HIGH, ALL_X = f"{{x}} < {value('a', 'x', 0.4)}", f"{{x}} >= {value('a', 'x', 0.4)}", "{x} IS NOT NULL"
RED, NOT_RED, NO_WORD = "{s} = 'red'", "{s} <> 'red'", "{s} IS NULL"
A_B, A_B_C = Join(A, B, on(1, 2, "k")), Join(Join(A, B, on(1, 2, "k")), C, on(2, 3, "m"))

LAWS: dict[str, tuple[Callable[[float, float], None], list[Query], list[Query]]] = {
    "implied": (ALIKE, [A.where(RED, "{s} IN ('red', 'blue')", "{s} IS NOT NULL")], [A.where(RED)]),
    "told on the left": (
        ALIKE,
        [Join(A.where(KEY), B, on(1, 2, "k"))],
        [Join(A.where(KEY), B.where(KEY), on(1, 2, "k"))],
    ),
    "told on the right": (
        ALIKE,
        [Join(A, B.where(SOME_M), on(1, 2, *BOTH))],
        [Join(A.where(SOME_M), B, on(1, 2, *BOTH))],
    ),
    "complete": (ALIKE, [Join(A_B, Read("d", 4), on(1, 4, "k"))], [A_B]),
    "complete pairs": (
        ALIKE,
        [Join(A, Read("e", 4), on(1, 4, *BOTH))],
        [A.where("{k} IS NOT NULL", "{m} IS NOT NULL")],
    ),
    "parts": (ALIKE, [A.where(LOW), A.where(HIGH)], [A]),
    "parts below a join": (ALIKE, [Join(A.where(LOW), B, on(1, 2, "k")), Join(A.where(HIGH), B, on(1, 2, "k"))], [A_B]),
    "conjunct": (NO_MORE, [Join(A.where(RED, LOW), B, on(1, 2, "k"))], [Join(A.where(RED), B, on(1, 2, "k"))]),
    "wider": (
        NO_MORE,
        [Join(A.where(KEY), B, on(1, 2, "k"))],
        [Join(A.where(f"({KEY} OR {OTHER_KEY})"), B, on(1, 2, "k"))],
    ),
    "not null": (ALIKE, [Join(A.where(ALL_X), B, on(1, 2, "k"))], [A_B]),
    "order": (ALIKE, [A_B_C], [Join(A, Join(C, B, on(3, 2, "m")), on(1, 2, "k"))]),
    "union": (ALIKE, [UnionAll((A.where(RED), Read("a", 7, (NOT_RED,)), Read("a", 8, (NO_WORD,))))], [A]),
    "left": (NO_MORE, [A], [Join(A, B, on(1, 2, "k"), JoinType.LEFT)]),
    "semi and anti": (ALIKE, [Join(A, B, on(1, 2, "k"), kind) for kind in (JoinType.SEMI, JoinType.ANTI)], [A]),
    "groups": (NO_MORE, [Group(A_B, ((1, "s"), (2, "v")))], [A_B]),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("way", [as_written, planned_by_duckdb], ids=lambda way: str(way.__name__))
def test_a_law_holds_for_what_the_job_computes(computed: World, way: Estimate, name: str) -> None:
    holds, some, others = LAWS[name]
    holds(sum(way(computed, query) for query in some), sum(way(computed, query) for query in others))


@pytest.mark.parametrize("name", LAWS)
def test_the_job_computes_what_the_laws_are_checked_on(computed: World, name: str) -> None:
    _, some, others = LAWS[name]
    for query in (*some, *others):
        equal(as_written(computed, query), as_written(GENERATED, query))
