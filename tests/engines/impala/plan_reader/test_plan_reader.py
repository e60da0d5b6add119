"""Impala's EXPLAIN texts of every level, as golden files in its format: what is read out of them, and what breaks."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.impala import plan_reader as impala
from engines.impala.memory_model import estimate
from selector.cardinality.tree import estimate_rows
from selector.plan import (
    Distribution,
    FilesRead,
    JoinType,
    Operator,
    Placement,
    PlanColumn,
    Resources,
    TableShape,
)
from tests.engines.impala.plan_reader.printed import GOLDEN, drawn, node_of, plan_of, text_of

NAMES = ("minimal", "verbose", "parallel", "nested", "calcite", "caches")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

SALES = TableShape("sales", {"id": "bigint", "book_id": "bigint", "amount": "double", "year": "int"}, 6_000_000)
BOOKS = TableShape("books", {"id": "bigint", "price": "double", "title": "string", "category": "string"}, 10_000)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_read_as_the_golden_tree(name: str) -> None:
    assert drawn(plan_of(name)) == (GOLDEN / f"impala_{name}.tree").read_text(encoding="utf-8")


def test_a_minimal_plan_says_little_and_that_is_unknown_not_zero() -> None:
    plan = plan_of("minimal")

    join = node_of(plan, "02")
    assert join.join_type is JoinType.LEFT
    assert [child.identifier for child in join.children] == ["00", "03"]  # probe side first
    assert join.cardinality is None
    assert join.resources is None
    assert plan.reservation_bytes is None


def test_the_header_and_the_resources_are_read_in_their_units() -> None:
    plan = plan_of("verbose")

    assert plan.reservation_bytes == pytest.approx(28.63 * MIB)
    assert plan.estimate_bytes == 241 * MIB
    assert node_of(plan, "02").resources == Resources(44, 1.94 * MIB, 1.94 * MIB, 64 * KIB)
    assert node_of(plan, "04").resources == Resources(28, 420, 0, None)


def test_cardinalities_of_filters_history_and_missing_statistics() -> None:
    plan = plan_of("verbose")

    assert node_of(plan, "03").cardinality == 40
    assert node_of(plan, "00").cardinality == 1_200_000
    assert node_of(plan, "01").cardinality is None


@pytest.mark.parametrize("written", ["cardinality=123(from HBO)", "cardinality=123 (from HBO)", "cardinality=123"])
def test_a_cardinality_from_history_is_one(written: str) -> None:
    plan = impala.read(f"00:SCAN HDFS [shop.books]\n   row-size=28B {written}\n")

    assert plan.root.cardinality == 123


def test_predicates_are_split_outside_of_brackets_and_quotes() -> None:
    plan = plan_of("verbose")

    assert node_of(plan, "01").predicates == ("b.price < CAST(20 AS DOUBLE)", "b.title LIKE 'a, b%'")
    assert node_of(plan, "00").predicates == ("s.`year` = CAST(2024 AS INT)",)  # decides which files are read
    assert node_of(plan, "02").predicates == (
        "s.note != concat(b.title, ', or so') OR (s.amount > 1 AND b.id IN (1, 2))",
    )
    assert node_of(plan, "07").predicates == ("sum(s.amount) > 100",)


def test_keys_come_from_the_tables_of_their_aliases() -> None:
    plan = plan_of("verbose")

    assert node_of(plan, "02").join_keys == (
        (PlanColumn("book_id", table="shop.sales"), PlanColumn("id", table="shop.books")),
    )
    assert node_of(plan, "07").group_keys == (PlanColumn("category", table="shop.books"),)


def test_the_catalog_gives_names_and_types() -> None:
    plan = plan_of("verbose", SALES, BOOKS)

    assert node_of(plan, "02").join_keys == (
        (PlanColumn("book_id", "bigint", "sales"), PlanColumn("id", "bigint", "books")),
    )
    assert node_of(plan, "01").table == "books"
    assert {column.name for column in node_of(plan, "01").columns} == {"id", "price", "title", "category"}


def test_bare_names_are_told_apart_by_the_catalog() -> None:
    join = node_of(plan_of("parallel", SALES, BOOKS), "05")

    assert join.join_keys == ((PlanColumn("book_id", "bigint", "sales"), PlanColumn("id", "bigint", "books")),)


def test_a_bare_name_of_two_tables_has_no_table() -> None:
    text = (
        "02:HASH JOIN [INNER JOIN]\n|  hash predicates: id = book_id\n|\n|--01:SCAN HDFS [shop.sales]\n|\n"
        "04:HASH JOIN [INNER JOIN]\n|  hash predicates: a.x = b.y\n|\n|--05:SCAN HDFS [shop.books]\n|\n"
        "00:SCAN HDFS [shop.sales]\n"
    )

    keys = impala.read(text, (SALES, BOOKS)).root.join_keys

    assert keys == ((PlanColumn("id"), PlanColumn("book_id", "bigint", "sales")),)


def test_a_second_phase_keeps_the_first_ones_keys() -> None:
    text = (
        "03:AGGREGATE [FINALIZE]\n|  output: sum:merge(amount)\n|  group by: v.book\n|\n"
        "02:EXCHANGE [HASH(v.book)]\n|\n"
        "01:AGGREGATE [STREAMING]\n|  output: sum(amount)\n|  group by: s.book_id\n|\n"
        "00:SCAN HDFS [shop.sales s]\n"
    )

    plan = impala.read(text, (SALES,))

    assert plan.root.group_keys == (PlanColumn("book_id", "bigint", "sales"),)


def test_several_groupings_leave_a_note() -> None:
    text = (
        "01:AGGREGATE [FINALIZE]\n|  Class 0\n|    output: count(*)\n|    group by: a, NULL\n|  Class 1\n"
        "|    output: count(*)\n|    group by: a, b\n|\n00:SCAN HDFS [shop.sales]\n"
    )

    plan = impala.read(text)

    assert [key.name for key in plan.root.group_keys] == ["a", "b"]
    assert plan.notes == ("line 1: 2 groupings at once; the finest one is taken",)


def test_a_join_takes_the_resources_and_the_place_of_its_table() -> None:
    join = node_of(plan_of("parallel"), "05")

    assert join.distribution is Distribution.PARTITIONED
    assert join.placement == Placement("F00", hosts=3, instances=12)
    assert join.build_placement == Placement("F05", hosts=3, instances=12)
    assert join.resources == Resources(12, 1.94 * MIB, 1.94 * MIB, 64 * KIB)
    assert join.join_type is JoinType.SEMI


def test_a_fragment_goes_on_below_the_branch_of_another() -> None:
    plan = plan_of("parallel")

    assert node_of(plan, "01").placement == Placement("F00", hosts=3, instances=12)
    assert node_of(plan, "04").placement == Placement("F02", hosts=1, instances=1)
    assert Placement("F03", hosts=4, instances=6).instances_per_host == 2


def test_branches_of_a_union_are_in_the_statements_order() -> None:
    union = node_of(plan_of("parallel"), "00")

    assert [child.label for child in union.children] == ["LIMIT", "EMPTYSET", "HASH JOIN"]
    assert union.children[1].operator is Operator.EMPTY


def test_files_and_their_largest_range() -> None:
    scan = node_of(plan_of("verbose"), "00")

    assert scan.files == FilesRead(count=12, bytes=1.5 * GIB, range_bytes=6 * GIB * 250_000 / 6e6, range_rows=250_000)


def test_a_top_n_keeps_its_offset_and_a_limit_becomes_a_node() -> None:
    plan = plan_of("verbose")

    top = node_of(plan, "04")
    assert (top.operator, top.limit, top.offset) == (Operator.TOP_N, 10, 5)
    limit = plan.root.children[0]
    assert (limit.operator, limit.limit, limit.children[0].identifier) == (Operator.LIMIT, 10, "08")


def test_what_is_not_known_becomes_other_and_a_note() -> None:
    plan = plan_of("nested")

    assert node_of(plan, "09").operator is Operator.OTHER
    assert plan.notes == ("line 27: not understood: 'novel detail without a colon or an equals sign'",)


def test_predicates_of_nested_elements_are_not_the_tables() -> None:
    assert node_of(plan_of("nested"), "00").predicates == ("!empty(c.orders)",)


def test_a_cross_join_with_a_condition_is_an_inner_one() -> None:
    text = (
        "02:NESTED LOOP JOIN [CROSS JOIN]\n|  predicates: a.x < b.y\n|\n|--01:SCAN HDFS [t b]\n|\n00:SCAN HDFS [t a]\n"
    )

    assert impala.read(text).root.join_type is JoinType.INNER


def test_a_scan_of_hbase_that_finds_nothing_is_empty() -> None:
    plan = impala.read("PLAN-ROOT SINK\n|\nempty scan node\n   row-size=107B cardinality=1\n")

    assert plan.root.children[0].operator is Operator.EMPTY


def test_a_box_of_the_shell_is_taken_off() -> None:
    lines = text_of("minimal").splitlines()
    width = max(map(len, lines))
    edge = f"+-{'-' * width}-+"
    boxed = "\n".join([edge, f"| {'Explain String':{width}} |", edge, *(f"| {line:{width}} |" for line in lines), edge])

    assert drawn(impala.read(boxed)) == drawn(plan_of("minimal"))


def test_a_statement_in_the_header_is_no_plan() -> None:
    text = f"Analyzed query: SELECT\nUNION ALL\n12 AS x\n{text_of('minimal')}"

    assert drawn(impala.read(text)) == drawn(plan_of("minimal"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "line 1"),
        ("\n\n  SELECT 1 FROM shop.books", "line 3"),
        ("PLAN-ROOT SINK\n|\n", "line 1"),
        ('[{"name": "HASH_JOIN", "children": []}]', "line 1"),
        ("\n".join(f"{number:02}:SELECT\n|" for number in range(200)), "line 243"),
    ],
    ids=["empty", "sql", "sink only", "duckdb", "too deep"],
)
def test_what_is_no_plan_says_so_and_where(text: str, line: str) -> None:
    with pytest.raises(impala.UnreadablePlan, match=rf"^{line}: "):
        impala.read(text)


def test_a_join_that_lost_its_build_side_is_no_join() -> None:
    plan = impala.read("02:HASH JOIN [INNER JOIN]\n|  hash predicates: a = b\n|\n00:SCAN HDFS [t]\n")

    assert plan.root.operator is Operator.OTHER
    assert plan.notes == ("line 1: HASH JOIN with 1 inputs instead of 2",)


def test_notes_do_not_pile_up() -> None:
    text = "00:SCAN HDFS [t]\n" + "\n".join(f"   oddity number {number}" for number in range(500))

    assert len(impala.read(text).notes) == 20


TEXTS = [text_of(name) for name in (*NAMES, "fragments")]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Cut a plan, shuffle it, take lines out or double them, or overwrite characters."""
    text = draw(st.sampled_from(TEXTS))
    lines = text.splitlines()
    position = st.integers(0, len(lines) - 1)
    match draw(st.sampled_from(["cut", "shuffle", "lines", "characters", "numbers"])):
        case "cut":
            return text[draw(st.integers(0, 200)) : draw(st.integers(0, len(text)))]
        case "shuffle":
            return "\n".join(draw(st.permutations(lines)))
        case "lines":
            for place, source in draw(st.lists(st.tuples(position, position), max_size=20)):
                lines[place] = "" if place == source else lines[source]
            return "\n".join(lines)
        case "numbers":
            number = draw(st.sampled_from(["0", "9" * 400, "-1", "1e99", "NaN", "²"]))
            digits = draw(st.sampled_from("0123456789"))
            return text.replace(digits, number)
        case _:
            characters = list(text)
            for place, new in draw(
                st.lists(st.tuples(st.integers(0, len(characters) - 1), st.characters()), max_size=40)
            ):
                characters[place] = new
            return "".join(characters)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_damaged_plan_is_read_or_refused_and_never_breaks_what_follows(text: str) -> None:
    try:
        plan = impala.read(text, (SALES, BOOKS))
    except impala.UnreadablePlan as refused:
        assert str(refused).startswith("line ")
        return
    assert plan.dialect == impala.DIALECT
    memory = estimate(estimate_rows(plan, {}, (SALES, BOOKS)), plan, {})
    assert memory.peak_bytes is None or memory.peak_bytes >= 0
