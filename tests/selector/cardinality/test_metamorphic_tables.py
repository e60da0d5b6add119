"""Laws of tables: what they are called, and how their rows are stored, says nothing about how many come out."""

from __future__ import annotations

from tests.selector.cardinality.metamorphic.laws import BOTH, WRITTEN, equal, law, sums_to
from tests.selector.cardinality.metamorphic.queries import Estimate, Join, Read, UnionAll, on
from tests.selector.cardinality.metamorphic.statements import JOINED_BY, Draw, named
from tests.selector.cardinality.metamorphic.worlds import COLUMNS, World, parted, renamed, scaled

TIMES = 3


@law()
def test_names_say_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """Tables that bear each other's names, and columns with others, have the same estimates."""
    query = draw.query()
    equal(rows(renamed(world), query), rows(world, query))


@law(fails=BOTH)
def test_a_union_of_filtered_parts_is_the_whole(rows: Estimate, world: World, draw: Draw) -> None:
    """What a predicate keeps and what it does not, put together, is the table, also below joins."""
    table, column, frame = draw.table(), draw.one_of(COLUMNS), draw.frame(most=2)
    predicate = draw.condition(table, column)
    parts = UnionAll(
        (
            Read(table, 1, (predicate,)),
            Read(table, 2, (f"NOT ({predicate})",)),
            Read(table, 3, (f"{named(column)} IS NULL",)),
        )
    )
    whole = rows(world, frame(Read(table, 1)))
    share = len(parts.members) * whole / rows(world, Read(table, 1))
    sums_to([rows(world, frame(parts))], whole, world=world, share=share)


@law(WRITTEN, whole=True)
def test_a_union_of_stored_parts_is_the_whole(rows: Estimate, world: World, draw: Draw) -> None:
    """A table whose rows are two tables has the same rows, filtered and joined."""
    known = parted(world, "a", by=draw.one_of(("rows", "k")))
    predicates = tuple(draw.condition("a", draw.one_of(COLUMNS)) for _ in range(draw.number(0, 1)))
    frame = draw.frame(most=2)
    parts = UnionAll((Read("p", 1, predicates), Read("q", 2, predicates)))
    equal(rows(known, frame(parts)), rows(known, frame(Read("a", 1, predicates))))


@law(WRITTEN, whole=True)
def test_rows_that_come_many_times_do_so_everywhere(rows: Estimate, world: World, draw: Draw) -> None:
    """A table that holds every row several times gives so many times the rows, of itself and of joins."""
    known = scaled(world, "a", TIMES)
    read = Read("a", 1, tuple(draw.condition("a", draw.one_of(COLUMNS)) for _ in range(draw.number(0, 2))))
    other, columns = draw.read(2), draw.one_of(JOINED_BY)
    equal(rows(known, read), TIMES * rows(world, read))
    if other.table != "a":
        join = Join(read, other, on(1, 2, *columns))
        equal(rows(known, join), TIMES * rows(world, join))
