"""Laws of predicates on columns that are joined: columns that are equal have one domain, wherever it is told."""

from __future__ import annotations

from selector.plan import JoinType
from tests.selector.cardinality.metamorphic.laws import BOTH, WRITTEN, equal, law
from tests.selector.cardinality.metamorphic.queries import Estimate, Join, Query, Read, on
from tests.selector.cardinality.metamorphic.statements import JOINED_BY, Draw, named
from tests.selector.cardinality.metamorphic.worlds import KEYS, World

LEFT, RIGHT, EACH = (True, False), (False, True), (True, True)  # where a predicate is told


def told(predicate: str, where: tuple[bool, bool], sides: tuple[Read, Read], columns: tuple[str, ...]) -> Join:
    """Join two readings, of which some have a predicate."""
    left, right = (side.where(predicate) if there else side for side, there in zip(sides, where, strict=True))
    return Join(left, right, on(left.number, right.number, *columns))


@law(fails=BOTH)
def test_a_predicate_on_a_key_holds_on_both_sides(rows: Estimate, world: World, draw: Draw) -> None:
    """``k = v``, IN and ranges keep the same pairs, told of the left key, of the right one or of both.

    The join may have the other key, too, and the sides other predicates; one table may stand on both sides.
    """
    sides, columns = draw.pair(), draw.one_of(JOINED_BY)
    predicate, frame = draw.condition(sides[0].table, draw.one_of(columns)), draw.frame(most=2)
    expected = rows(world, frame(told(predicate, EACH, sides, columns)))
    for where in (LEFT, RIGHT):
        equal(rows(world, frame(told(predicate, where, sides, columns))), expected)


@law(fails=BOTH)
def test_a_predicate_on_a_key_goes_along_a_chain(rows: Estimate, world: World, draw: Draw) -> None:
    """Of columns that are all equal any may be the one of which it is told."""
    key, members = draw.one_of(KEYS), [draw.read(number, most=1) for number in (1, 2, 3)]
    predicate = draw.condition(members[0].table, key)

    def chain(places: list[int]) -> Query:
        first, *others = (one.where(predicate) if at in places else one for at, one in enumerate(members))
        query: Query = first
        for other in others:
            query = Join(query, other, on(other.number - 1, other.number, key))
        return query

    everywhere = list(range(len(members)))
    equal(rows(world, chain(draw.some(everywhere))), rows(world, chain(everywhere)))


@law(fails=BOTH)
def test_a_predicate_on_a_key_goes_into_a_kept_side(rows: Estimate, world: World, draw: Draw) -> None:
    """LEFT, SEMI and ANTI joins: rows of the right side that the left's predicate excludes meet nothing anyway."""
    (left, right), columns = draw.pair(), draw.one_of(JOINED_BY)
    predicate = draw.condition(left.table, draw.one_of(columns))
    kind, keys = draw.one_of((JoinType.LEFT, JoinType.SEMI, JoinType.ANTI)), on(1, 2, *columns)
    once = rows(world, Join(left.where(predicate), right, keys, kind))
    equal(once, rows(world, Join(left.where(predicate), right.where(predicate), keys, kind)))


@law(fails=BOTH)
def test_keys_that_meet_are_not_null(rows: Estimate, world: World, draw: Draw) -> None:
    """IS NOT NULL on an inner join's keys changes nothing."""
    sides, columns, where = draw.pair(), draw.one_of(JOINED_BY), draw.one_of((LEFT, RIGHT, EACH))
    present, frame = f"{named(draw.one_of(columns))} IS NOT NULL", draw.frame(most=1)
    expected = rows(world, frame(Join(*sides, on(1, 2, *columns))))
    equal(rows(world, frame(told(present, where, sides, columns))), expected)


@law(WRITTEN)
def test_equalities_that_others_imply_change_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """Of a = b, b = c and a = c any two are enough, and one of them twice is no more than once."""
    a, b, c = (draw.read(number, most=1) for number in (1, 2, 3))
    key = draw.one_of(KEYS)
    first, to_a, to_b = Join(a, b, on(1, 2, key)), on(1, 3, key), on(2, 3, key)
    expected = rows(world, Join(first, c, to_b))
    for equalities in (to_a, (*to_b, *to_a), (*to_b, *to_b)):
        equal(rows(world, Join(first, c, equalities)), expected)


@law()
def test_a_contradiction_leaves_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """Two different constants for columns that are equal leave no row."""
    (left, right), key = draw.pair(most=0), draw.one_of(KEYS)
    low, *_, high = draw.constants(left.table, key, 4)
    sides = (left.where(f"{named(key)} = {low}"), right.where(f"{named(key)} > {high}"))
    equal(rows(world, Join(*sides, on(1, 2, key))), 0.0, rows=1e-3)
