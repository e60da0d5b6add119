"""What Impala's planners of today print beside those of old: Calcite's names, fragments, caches, shared expressions."""

from __future__ import annotations

import pytest

from engines.impala import plan_reader as impala
from engines.impala.plan_reader.outline import MAXIMUM_DEPTH, Outline, metric
from engines.impala.plan_reader.planner import is_classic
from selector.cardinality.tree import estimate_rows
from selector.plan import Operator, Placement, PlanColumn, Resources, TableShape
from tests.engines.impala.plan_reader.printed import GOLDEN, drawn, node_of, plan_of, text_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BOOK, SALE = PlanColumn("id", table="shop.books"), PlanColumn("book_id", table="shop.sales")

READERS = """\
PLAN-ROOT SINK
|
07:EXCHANGE [UNPARTITIONED]
|
05:HASH JOIN [INNER JOIN, BROADCAST]
|  hash predicates: add(id, 1) = id
|  row-size=32B cardinality=5
|
|--06:EXCHANGE [BROADCAST]
|  |
|  04:CTE CONSUMER [rich]
|  |  row-size=23B cardinality=5
|  |
|  08:CTE PRODUCER [rich]
|  |  row-size=23B cardinality=5
|  |
|  09:CTE CONSUMER [all]
|  |  row-size=23B cardinality=25
|  |
|  01:CTE PRODUCER [all]
|  |  row-size=23B cardinality=25
|  |
|  02:SCAN HDFS [shop.books]
|     predicates: shop.books.id IS NOT NULL
|     row-size=23B cardinality=25
|
03:CTE CONSUMER [rich]
|  row-size=23B cardinality=5
|
08:CTE PRODUCER [rich]
|  row-size=23B cardinality=5
|
09:CTE CONSUMER [all]
|  row-size=23B cardinality=25
|
01:CTE PRODUCER [all]
|  row-size=23B cardinality=25
|
02:SCAN HDFS [shop.books]
   predicates: shop.books.id IS NOT NULL
   row-size=23B cardinality=25

LOCAL MULTI SINK [FRAGMENT=F04, EXCHANGE=08, rich]
|
08:CTE PRODUCER [rich]
|  row-size=23B cardinality=5
|
09:CTE CONSUMER [all]
|  row-size=23B cardinality=25
|
01:CTE PRODUCER [all]
|  row-size=23B cardinality=25
|
02:SCAN HDFS [shop.books]
   predicates: shop.books.id IS NOT NULL
   row-size=23B cardinality=25

LOCAL MULTI SINK [FRAGMENT=F02, EXCHANGE=01, all]
|
01:CTE PRODUCER [all]
|  row-size=23B cardinality=25
|
02:SCAN HDFS [shop.books]
   predicates: shop.books.id IS NOT NULL
   row-size=23B cardinality=25
"""
OF_READERS = """\
materialize all
  CTE PRODUCER
    SCAN HDFS
  materialize rich
    CTE PRODUCER
      CTE CONSUMER all
    PLAN-ROOT SINK
      EXCHANGE
        HASH JOIN
          CTE CONSUMER rich
          EXCHANGE
            CTE CONSUMER rich
"""


def test_fragments_of_their_own_are_the_tree_that_other_levels_draw() -> None:
    plan = plan_of("fragments")

    assert drawn(plan) == (GOLDEN / "impala_parallel.tree").read_text(encoding="utf-8")
    assert plan.notes == ()
    assert plan.reservation_bytes == 40 * MIB


def test_a_join_takes_the_table_of_another_fragment() -> None:
    join = node_of(plan_of("fragments"), "05")

    assert join.resources == Resources(12, 1.94 * MIB, 1.94 * MIB, 64 * KIB)
    assert join.build_placement == Placement("F05", hosts=3, instances=12)


def test_what_a_processor_costs_is_no_cardinality() -> None:
    assert plan_of("fragments").root.cardinality is None


def test_one_fragment_of_its_own_is_a_plan() -> None:
    plan = impala.read(
        "F00:PLAN FRAGMENT [UNPARTITIONED] hosts=1 instances=1\nPer-Host Resources: mem-estimate=36.00MB\n"
        "  PLAN-ROOT SINK\n  |  output exprs: id\n  |\n  00:SCAN KUDU [shop.books, LEADER-only]\n"
        "     kudu predicates: id = 7\n     tuple-ids=0 row-size=124B cardinality=1\n     in pipelines: 00(GETNEXT)"
    )

    assert drawn(plan) == "- other PLAN-ROOT SINK F00/1\n  00 scan SCAN KUDU shop.books rows=1 F00/1\n"
    assert node_of(plan, "00").predicates == ("id = 7",)


@pytest.mark.parametrize(
    "sink",
    ["DATASTREAM SINK [FRAGMENT=F00, EXCHANGE=77, RANDOM]", "DATASTREAM SINK", "JOIN BUILD", "MERGE SINK"],
)
def test_a_fragment_that_nothing_reads_is_kept_below_the_root_and_noted(sink: str) -> None:
    plan = impala.read(
        "F00:PLAN FRAGMENT [UNPARTITIONED] hosts=1 instances=1\n  PLAN-ROOT SINK\n  |\n"
        "  00:EXCHANGE [UNPARTITIONED]\n\n"
        f"F01:PLAN FRAGMENT [RANDOM] hosts=3 instances=3\n  {sink}\n  |\n  01:SCAN HDFS [shop.books]\n"
    )

    assert plan.notes[0] == "line 7: hangs on nothing"
    assert node_of(plan, "01").placement == Placement("F01", hosts=3, instances=3)


def test_a_fragment_is_not_read_by_one_below_it() -> None:
    """Its rows would go in a circle."""
    plan = impala.read(
        "F00:PLAN FRAGMENT [UNPARTITIONED] hosts=1 instances=1\n  PLAN-ROOT SINK\n  |\n  00:SCAN HDFS [t]\n\n"
        "F01:PLAN FRAGMENT [RANDOM] hosts=1 instances=1\n  DATASTREAM SINK [FRAGMENT=F01, EXCHANGE=01, RANDOM]\n"
        "  01:EXCHANGE [RANDOM]\n"
    )

    assert [node.identifier for _, node in plan.root.walk()] == [None, "00", "01"]


def test_a_table_is_not_probed_where_it_is_built() -> None:
    plan = impala.read(
        "F00:PLAN FRAGMENT [RANDOM] hosts=1 instances=1\n  00:SCAN HDFS [t]\n\n"
        "F01:PLAN FRAGMENT [RANDOM] hosts=1 instances=1\n  JOIN BUILD\n  |  join-table-id=18\n  |  hash-table-id=18\n"
    )

    assert plan.notes[0] == "line 5: hangs on nothing"


def test_fragments_are_not_stacked_beyond_reason() -> None:
    fragments = (
        f"F{number}:PLAN FRAGMENT [RANDOM] hosts=1 instances=1\n"
        f"  DATASTREAM SINK [FRAGMENT=F{number - 1}, EXCHANGE={number - 1:03}, RANDOM]\n"
        f"  {number:03}:EXCHANGE [RANDOM]\n"
        for number in range(MAXIMUM_DEPTH + 2)
    )

    with pytest.raises(impala.UnreadablePlan, match=rf"nested deeper than {MAXIMUM_DEPTH} levels"):
        impala.read("\n".join(fragments))


def test_kept_expressions_count_as_levels() -> None:
    sinks = (
        f"LOCAL MULTI SINK [FRAGMENT=F02, EXCHANGE=01, n{number}]\n|\n01:CTE PRODUCER [n{number}]\n|\n"
        "02:SCAN HDFS [t]\n"
        for number in range(MAXIMUM_DEPTH)
    )

    with pytest.raises(impala.UnreadablePlan, match="nested deeper than"):
        impala.read("\n".join(["PLAN-ROOT SINK\n|\n03:CTE CONSUMER [n7]\n", *sinks]))


@pytest.mark.parametrize(("written", "rows"), [("1.61G", 1.61e9), ("1.61B", 1.61e9), ("2.25T", 2.25e12), ("7", 7)])
def test_thousands_of_millions_have_two_letters(written: str, rows: float) -> None:
    """The planner's is G, that of the report of a run B."""
    assert metric(written) == rows


def test_rows_by_the_thousand_millions_are_known_with_and_without_filters() -> None:
    join, scan = node_of(plan_of("calcite"), "10"), node_of(plan_of("caches"), "00")

    assert (join.cardinality, scan.cardinality) == (1.5e9, 1.61e9)


@pytest.mark.parametrize(
    ("name", "classic"),
    [("minimal", True), ("parallel", False), ("fragments", False), ("caches", True), ("calcite", False)],
)
def test_the_classic_front_end_is_told_from_a_plan(name: str, classic: bool) -> None:
    assert is_classic(Outline.of(text_of(name))) is classic


@pytest.mark.parametrize(
    ("detail", "classic"),
    [
        ("01:TOP-N [LIMIT=9]\n|  order by: a ASC, b DESC NULLS FIRST\n|\n00:SCAN HDFS [t]\n", True),
        ("01:TOP-N [LIMIT=9]\n|  order by: a ASC NULLS LAST\n|\n00:SCAN HDFS [t]\n", False),
        ("01:ANALYTIC\n|  order by: a ASC\n|\n00:SCAN HDFS [t]\n", False),
        ("00:SCAN HDFS [shop.books b, RANDOM]\n", True),
        ("00:SCAN HDFS [shop.books, RANDOM]\n", False),
        ("01:CTE CONSUMER [x]\n   row-size=1B cardinality=1\n", False),
    ],
)
def test_the_classic_front_end_is_told_by_what_calcite_never_prints(detail: str, classic: bool) -> None:
    assert is_classic(Outline.of(detail)) is classic


def test_numbered_names_of_one_table_are_its_columns() -> None:
    plan = plan_of("calcite")

    assert node_of(plan, "09").join_keys == ((BOOK, BOOK),)
    assert {BOOK, PlanColumn("price", table="shop.books")} <= set(node_of(plan, "02").columns)


def test_what_an_expression_keeps_is_known_by_its_tables() -> None:
    plan = plan_of("calcite")

    assert node_of(plan, "06").join_keys == ((SALE, BOOK),)
    assert node_of(plan, "10").join_keys == ((SALE, BOOK),)


def test_names_in_capitals_are_columns_too() -> None:
    shape = TableShape("books", {"id": "bigint", "price": "double", "category": "string"})

    assert node_of(plan_of("calcite", shape), "11").group_keys == (
        PlanColumn("category", "string", "books"),
        PlanColumn("price", "double", "books"),
    )


def test_an_alias_that_ends_in_a_number_is_not_a_numbered_table() -> None:
    text = (
        "02:HASH JOIN [INNER JOIN]\n|  hash predicates: books_1.id = s.book_id\n|\n|--01:SCAN HDFS [shop.sales s]\n|\n"
        "00:SCAN HDFS [shop.books]\n"
    )

    assert impala.read(text).root.join_keys == ((PlanColumn("books_1.id"), SALE),)


def test_a_second_phase_below_a_cache_keeps_the_first_ones_keys() -> None:
    assert node_of(plan_of("caches"), "05").group_keys == (SALE,)


def test_an_aggregate_of_groups_is_no_second_phase() -> None:
    text = (
        "02:AGGREGATE [FINALIZE]\n|  output: count(*)\n|  group by: count(*)\n|\n"
        "01:AGGREGATE [FINALIZE]\n|  output: count(*)\n|  group by: s.book_id\n|\n00:SCAN HDFS [shop.sales s]\n"
    )

    assert impala.read(text).root.group_keys == (PlanColumn("count(*)"),)


def test_groups_of_several_groupings_keep_their_keys_when_they_become_rows() -> None:
    text = (
        "02:AGGREGATE [FINALIZE]\n|  output: aggif(valid_tid(1,2) = 1, count(s.id))\n"
        "|  group by: CASE valid_tid(1,2) WHEN 1 THEN s.book_id WHEN 2 THEN s.book_id END\n|\n"
        "01:AGGREGATE [FINALIZE]\n|  Class 0\n|    output: count(s.id)\n|    group by: s.book_id\n|\n"
        "00:SCAN HDFS [shop.sales s]\n"
    )

    assert impala.read(text).root.group_keys == (SALE,)


def test_a_shared_expression_is_kept_once_and_read_by_name() -> None:
    plan = impala.read(READERS)

    lines = []
    for depth, node in plan.root.walk():
        name = "materialize" if node.operator is Operator.MATERIALIZE else node.label
        lines.append("  " * depth + " ".join(filter(None, (name, node.reference))))
    assert "\n".join(lines) + "\n" == OF_READERS
    assert plan.notes == ()
    assert node_of(plan, "05").join_keys == ((PlanColumn("add(id, 1)"), BOOK),)


def test_readers_of_a_shared_expression_have_its_rows() -> None:
    shape = TableShape("shop.books", {"id": "bigint"}, rows=1_000)

    tree = estimate_rows(impala.read(READERS), {}, (shape,))

    join = tree.children[1].children[1].children[0].children[0]
    assert [child.rows for child in join.children] == [1_000, 1_000]


def test_a_reader_without_its_expression_reads_what_stands_below_it() -> None:
    plan = impala.read("01:CTE CONSUMER [x]\n|\n00:SCAN HDFS [t]\n")

    assert [node.identifier for _, node in plan.root.walk()] == ["01", "00"]
