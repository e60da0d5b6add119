"""Laws of what a filter keeps, of a table alone and below joins."""

from __future__ import annotations

from tests.selector.cardinality.metamorphic.laws import BOTH, at_most, equal, law, sums_to
from tests.selector.cardinality.metamorphic.queries import Estimate, Query, Read
from tests.selector.cardinality.metamorphic.statements import Draw, Frame, named
from tests.selector.cardinality.metamorphic.worlds import COLUMNS, WITHOUT_NULLS, World


@law()
def test_what_another_predicate_implies_changes_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """P and (P or Q) is P, as is P twice, and a range with a wider one."""
    read, column, frame = draw.read(1, most=1), draw.one_of(COLUMNS), draw.frame()
    name = named(column)
    a, b, c, d = draw.constants(read.table, column, 4)
    given, implied = draw.one_of(
        (
            (f"{name} = {b}", f"{name} = {b}"),
            (f"{name} = {b}", f"{name} IN ({a}, {b}, {d})"),
            (f"{name} = {b}", f"{name} BETWEEN {a} AND {c}"),
            (f"{name} IN ({b}, {c})", f"{name} >= {a}"),
            (f"{name} BETWEEN {b} AND {c}", f"{name} <= {d}"),
            (f"{name} < {b}", f"{name} < {c}"),
            (f"{name} < {b}", f"({name} < {b} OR {name} = {d})"),
        )
    )
    equal(rows(world, frame(read.where(given, implied))), rows(world, frame(read.where(given))))


@law()
def test_no_null_passes_a_comparison(rows: Estimate, world: World, draw: Draw) -> None:
    """A comparison implies IS NOT NULL."""
    read, column, frame = draw.read(1, most=1), draw.one_of(COLUMNS), draw.frame()
    compared = read.where(draw.condition(read.table, column))
    equal(rows(world, frame(compared.where(f"{named(column)} IS NOT NULL"))), rows(world, frame(compared)))


@law()
def test_a_column_without_nulls_is_not_null(rows: Estimate, world: World, draw: Draw) -> None:
    """IS NOT NULL on a column without NULLs changes nothing, and IS NULL leaves nothing."""
    read, frame, name = draw.read(1), draw.frame(), named(WITHOUT_NULLS)
    equal(rows(world, frame(read.where(f"{name} IS NOT NULL"))), rows(world, frame(read)))
    equal(rows(world, read.where(f"{name} IS NULL")), 0.0)


@law(fails=BOTH)
def test_parts_of_a_range_are_the_range(rows: Estimate, world: World, draw: Draw) -> None:
    """What lies in [a, b) and what lies in [b, c) is what lies in [a, c)."""
    table, column, frame = draw.table(), draw.one_of(COLUMNS), draw.frame()
    a, b, c = draw.constants(table, column, 3)
    name = named(column)

    def between(low: str, high: str) -> float:
        return rows(world, frame(Read(table, 1, (f"{name} >= {low}", f"{name} < {high}"))))

    sums_to((between(a, b), between(b, c)), between(a, c), world=world, share=meets(rows, world, table, frame))


@law(fails=BOTH)
def test_a_column_has_a_value_or_none(rows: Estimate, world: World, draw: Draw) -> None:
    """What a predicate keeps, what its negation keeps and the NULLs are all rows."""
    table, column, frame = draw.table(), draw.one_of(COLUMNS), draw.frame()
    predicate = draw.condition(table, column)
    parts = (predicate, f"NOT ({predicate})", f"{named(column)} IS NULL")
    found = [rows(world, frame(Read(table, 1, (part,)))) for part in parts]
    sums_to(found, rows(world, frame(Read(table, 1))), world=world, share=meets(rows, world, table, frame))


def meets(rows: Estimate, world: World, table: str, frame: Frame) -> float:
    """Return the rows that one of a table's becomes in a join."""
    query: Query = Read(table, 1)
    return rows(world, frame(query)) / rows(world, query)


@law(fails=BOTH)
def test_a_further_predicate_never_raises(rows: Estimate, world: World, draw: Draw) -> None:
    """P and Q keeps no more than P, below any inner joins."""
    read, frame = draw.read(1), draw.frame()
    at_most(rows(world, frame(read.where(draw.predicate(read.table)))), rows(world, frame(read)))


@law(fails=BOTH)
def test_a_wider_predicate_never_lowers(rows: Estimate, world: World, draw: Draw) -> None:
    """A longer list and a wider range keep no less."""
    read, column, frame = draw.read(1, most=1), draw.one_of(COLUMNS), draw.frame()
    name = named(column)
    a, b, c, d = draw.constants(read.table, column, 4)
    narrow, wide = draw.one_of(
        (
            (f"{name} = {b}", f"{name} IN ({b}, {c})"),
            (f"{name} IN ({a}, {c})", f"{name} IN ({a}, {b}, {c}, {d})"),
            (f"{name} = {b}", f"{name} BETWEEN {a} AND {c}"),
            (f"{name} BETWEEN {b} AND {c}", f"{name} BETWEEN {a} AND {d}"),
            (f"{name} > {c}", f"{name} >= {b}"),
            (f"{name} < {b}", f"({name} < {c} OR {name} IS NULL)"),
            (f"{name} NOT IN ({a}, {b})", f"{name} <> {a}"),
        )
    )
    at_most(rows(world, frame(read.where(narrow))), rows(world, frame(read.where(wide))))


@law()
def test_the_order_of_predicates_says_nothing(rows: Estimate, world: World, draw: Draw) -> None:
    """P and Q is Q and P."""
    table = draw.table()
    some = [draw.predicate(table) for _ in range(draw.number(2, 4))]
    frame = draw.frame()
    found = rows(world, frame(Read(table, 1, tuple(reversed(some)))))
    equal(found, rows(world, frame(Read(table, 1, tuple(some)))))
