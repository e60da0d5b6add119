"""Laws of joins: of their order, of their kinds, and of tables that add nothing."""

from __future__ import annotations

import math
from itertools import pairwise

from selector.memory.pipeline import walk
from selector.plan import JoinType
from tests.selector.cardinality.metamorphic.laws import BOTH, DIRECT, WRITTEN, at_most, equal, law
from tests.selector.cardinality.metamorphic.queries import (
    Estimate,
    Group,
    Join,
    Query,
    Read,
    on,
    tree_as_written,
    tree_by_duckdb,
)
from tests.selector.cardinality.metamorphic.statements import JOINED_BY, Draw, named
from tests.selector.cardinality.metamorphic.worlds import COLUMNS, PAIRS, UNIQUE, World

NO_ROW = 1e-3


@law(fails=BOTH)
def test_a_unique_and_complete_key_adds_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """Every row with a key meets one row of a table that holds each key once: k of d, k and m together of e."""
    whole, columns = draw.one_of(((UNIQUE, ("k",)), (PAIRS, ("k", "m"))))
    read, kind, frame = draw.read(1), draw.one_of((JoinType.INNER, JoinType.SEMI, JoinType.LEFT)), draw.frame(most=2)
    present = read.where(*(f"{named(column)} IS NOT NULL" for column in columns))
    found = rows(world, frame(Join(read, Read(whole, 2), on(1, 2, *columns), kind)))
    equal(found, rows(world, frame(read if kind is JoinType.LEFT else present)))
    equal(rows(world, Join(present, Read(whole, 2), on(1, 2, *columns), JoinType.ANTI)), 0.0, rows=NO_ROW)


@law(fails=BOTH)
def test_the_sides_of_a_join_may_be_exchanged(rows: Estimate, world: World, draw: Draw) -> None:
    """A join b is b join a; a left join b is b right join a; a full join b is b full join a."""
    (left, right), columns = draw.pair(), draw.one_of(JOINED_BY)
    further = draw.frame(most=2, to=2)(right)
    inner, left_join, full = JoinType.INNER, JoinType.LEFT, JoinType.FULL
    kind, other = draw.one_of(((inner, inner), (left_join, JoinType.RIGHT), (full, full)))
    found = rows(world, Join(left, further, on(1, 2, *columns), kind))
    equal(rows(world, Join(further, left, on(2, 1, *columns), other)), found)


@law(WRITTEN)
def test_the_order_of_joins_says_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """A tree of inner joins has the same rows, whichever join is made first."""
    members = [draw.read(number) for number in range(draw.number(3, 5))]
    edges = [(at, draw.number(0, at - 1), draw.one_of(JOINED_BY)) for at in range(1, len(members))]

    def joined(order: list[tuple[int, int, tuple[str, ...]]]) -> Query:
        groups: dict[int, Query] = dict(enumerate(members))
        group_of = {number: number for number in groups}
        for a, b, columns in order:
            first, second = group_of[a], group_of[b]
            groups[first] = Join(groups[first], groups.pop(second), on(a, b, *columns))
            group_of = {number: first if group == second else group for number, group in group_of.items()}
        (found,) = groups.values()
        return found

    first = draw.some(edges)
    other = [*first, *(edge for edge in edges if edge not in first)]
    equal(rows(world, joined(other)), rows(world, joined(edges)))


@law(fails=BOTH)
def test_a_left_join_keeps_the_left_side(rows: Estimate, world: World, draw: Draw) -> None:
    """It has at least the left side's rows, at least the inner join's and at most both together."""
    (first, right), columns = draw.pair(most=2), draw.one_of(JOINED_BY)
    left = draw.frame(most=2)(first)
    kept, inner = rows(world, left), rows(world, Join(left, right, on(1, 2, *columns)))
    found = rows(world, Join(left, right, on(1, 2, *columns), JoinType.LEFT))
    at_most(kept, found)
    at_most(inner, found)
    at_most(found, inner + kept)


@law(fails=BOTH)
def test_an_outer_join_is_what_meets_and_what_does_not(rows: Estimate, world: World, draw: Draw) -> None:
    """LEFT is INNER and the left rows that meet none; FULL is LEFT and RIGHT without counting INNER twice."""
    sides, keys = draw.pair(most=2), on(1, 2, *draw.one_of(JOINED_BY))
    kinds = (JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.FULL, JoinType.ANTI)
    inner, left, right, full, alone = (rows(world, Join(*sides, keys, kind)) for kind in kinds)
    equal(left, inner + alone)
    equal(full, left + right - inner)


@law(fails=BOTH)
def test_rows_meet_another_one_or_do_not(rows: Estimate, world: World, draw: Draw) -> None:
    """SEMI and ANTI are the left side together, and SEMI is at most INNER."""
    (first, right), keys = draw.pair(most=2), on(1, 2, *draw.one_of(JOINED_BY))
    left = draw.frame(most=2)(first)
    kinds = (JoinType.SEMI, JoinType.ANTI, JoinType.INNER)
    met, alone, inner = (rows(world, Join(left, right, keys, kind)) for kind in kinds)
    equal(met + alone, rows(world, left))
    at_most(met, inner)


@law(DIRECT)
def test_a_semi_join_is_the_same_from_the_right(rows: Estimate, world: World, draw: Draw) -> None:
    """Engines build either side: SEMI is RIGHT SEMI with the sides exchanged, and so with ANTI."""
    (left, right), columns = draw.pair(), draw.one_of(JOINED_BY)
    for kind, other in ((JoinType.SEMI, JoinType.RIGHT_SEMI), (JoinType.ANTI, JoinType.RIGHT_ANTI)):
        found = rows(world, Join(left, right, on(1, 2, *columns), kind))
        equal(rows(world, Join(right, left, on(2, 1, *columns), other)), found)


@law()
def test_groups_are_no_more_than_rows(rows: Estimate, world: World, draw: Draw) -> None:
    """A grouping has at most its input's rows, and a further key never lowers the number of groups."""
    first, keys = draw.read(1), draw.some(COLUMNS, most=3)
    below = draw.frame(most=2)(first)
    found = [rows(world, Group(below, tuple((1, key) for key in keys[: n + 1]))) for n in range(len(keys))]
    at_most(max(found), rows(world, below))
    for fewer, more in pairwise(found):
        at_most(fewer, more)


@law(DIRECT)
def test_estimates_are_numbers_with_bounds(rows: Estimate, world: World, draw: Draw) -> None:
    """Of any query, every node's rows are finite and not negative, and its upper bound is not below them."""
    query = draw.query()
    rows(world, query)
    for tree in (tree_as_written(world, query), tree_by_duckdb(world, query)):
        for _, node in walk(tree):
            assert node.rows is not None
            assert node.upper is not None
            assert 0.0 <= node.rows < math.inf
            at_most(node.rows, node.upper)
