"""What Hypothesis draws over a world: constants that its columns hold, predicates, readings, and joins around one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

from selector.plan import JoinType
from tests.selector.cardinality.metamorphic.queries import Group, Join, Query, Read, on
from tests.selector.cardinality.metamorphic.worlds import COLUMNS, World

JOINED_BY = (("k",), ("m",), ("k", "m"))
LONGEST_LIST = 5
FIRST_IN_FRAME = 11  # number of the reading

T = TypeVar("T")
Frame = Callable[[Query], Query]
"""Joins other tables to a query's reading that is numbered 1."""


class Draw:
    """Draws for one example.

    apart: never the same table twice in a join of more than two. DuckDB's plan names columns without their tables, so
    that nobody could tell which of two readings is joined to the third.
    """

    def __init__(self, data: st.DataObject, world: World, *, apart: bool) -> None:
        self._data = data
        self._world = world
        self._apart = apart
        self._read: list[str] = []

    def one_of(self, options: Sequence[T]) -> T:
        """Draw one of several."""
        return self._data.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        """Draw a number, both ends included."""
        return self._data.draw(st.integers(low, high))

    def some(self, options: Sequence[T], *, most: int | None = None) -> list[T]:
        """Draw one or more of several, each at most once, in any order."""
        chosen = st.lists(st.integers(0, len(options) - 1), min_size=1, max_size=most, unique=True)
        return [options[at] for at in self._data.draw(chosen)]

    # ------------------------------------------------------------------ predicates

    def constants(self, table: str, column: str, count: int) -> list[str]:
        """Draw values that a column holds, in order; one may come several times."""
        held = values(self._world, table, column)
        places = st.lists(st.integers(0, len(held) - 1), min_size=count, max_size=count)
        return [held[place] for place in sorted(self._data.draw(places))]

    def condition(self, table: str, column: str) -> str:
        """Draw what is asked of a key: one value, some of them, a range. NULL is in none."""
        name = named(column)
        form = self.one_of(("=", "IN", "BETWEEN", ">=", "<"))
        match form:
            case "IN":
                some = self.constants(table, column, self.number(2, LONGEST_LIST))
                return f"{name} IN ({', '.join(dict.fromkeys(some))})"
            case "BETWEEN":
                low, high = self.constants(table, column, 2)
                return f"{name} BETWEEN {low} AND {high}"
            case _:
                return f"{name} {form} {self.constants(table, column, 1)[0]}"

    def predicate(self, table: str, columns: Sequence[str] = COLUMNS) -> str:
        """Draw a predicate on one of some columns."""
        column = self.one_of(columns)
        name = named(column)
        form = self.one_of(("condition", "<>", "IS NULL", "IS NOT NULL", "LIKE"))
        if form.startswith("IS "):
            return f"{name} {form}"
        (value,) = self.constants(table, column, 1)
        if form == "LIKE" and self._world.type(table, column) == "string":
            return f"{name} LIKE {value[: self.number(2, len(value) - 1)]}%'"
        return f"{name} <> {value}" if form == "<>" else self.condition(table, column)

    # ------------------------------------------------------------------ what is read

    def table(self) -> str:
        """Draw a table."""
        names = self._world.names
        left = [name for name in names if name not in self._read] if self._apart else names
        self._read.append(self.one_of(left))
        return self._read[-1]

    def read(self, number: int, *, most: int = 2) -> Read:
        """Draw a reading with at most so many predicates."""
        table = self.table()
        return Read(table, number, tuple(self.predicate(table) for _ in range(self.number(0, most))))

    def pair(self, *, most: int = 1) -> tuple[Read, Read]:
        """Draw the readings 1 and 2, which may be of one table."""
        if self.one_of((False, True)):
            left = self.read(1, most=most)
            right = Read(left.table, 2, tuple(self.predicate(left.table) for _ in range(self.number(0, most))))
            self._read += self._world.names  # no third one shall be joined
            return left, right
        return self.read(1, most=most), self.read(2, most=most)

    def frame(self, *, most: int = 3, kinds: Sequence[JoinType] = (JoinType.INNER,), to: int = 1) -> Frame:
        """Draw at most so many readings that are joined to the one numbered ``to`` or to each other."""
        steps: list[tuple[Read, int, tuple[str, ...], JoinType]] = []
        seen = [to]
        free = len(set(self._world.names) - set(self._read)) if self._apart else most
        for number in range(FIRST_IN_FRAME, FIRST_IN_FRAME + self.number(0, min(most, free))):
            kind = self.one_of(kinds)
            steps.append((self.read(number), self.one_of(seen), self.one_of(JOINED_BY), kind))
            if kind not in (JoinType.SEMI, JoinType.ANTI):
                seen.append(number)

        def frame(query: Query) -> Query:
            for read, to, columns, kind in steps:
                query = Join(query, read, on(to, read.number, *columns), kind)
            return query

        return frame

    def query(self) -> Query:
        """Draw a query of any form."""
        kinds = (JoinType.INNER, JoinType.LEFT, JoinType.FULL, JoinType.SEMI, JoinType.ANTI)
        first = self.read(1)
        joined = self.frame(kinds=kinds)(first)
        if self.one_of((False, True)):
            return Group(joined, tuple((1, key) for key in self.some(COLUMNS, most=3)))
        return joined


def named(column: str) -> str:
    """Return how a predicate names a column."""
    return f"{{{column}}}"


@lru_cache(maxsize=4_096)
def values(world: World, table: str, column: str) -> list[str]:
    """Return the different values of a column, as literals of SQL in order."""
    return world.values(table, column)
