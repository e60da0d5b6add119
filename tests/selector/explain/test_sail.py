"""Sail's EXPLAIN COST as a Plan."""

from __future__ import annotations

import pytest

from selector.explain.sail import read
from selector.plan import JoinType, Operator, TableShape, UnreadablePlan

BOOKS = TableShape("books", {"id": "bigint", "title": "string", "price": "decimal(7,2)", "sold": "date"})
SALES = TableShape("sales", {"book": "bigint", "pieces": "int"})

JOIN = """== Optimized Logical Plan ==
whatever stands here

== Physical Plan ==
ProjectionExec: expr=[#9@0 as title, #10@1 as n], statistics=[Rows=Inexact(7), Bytes=Absent, [(Col[0]:)]]
  AggregateExec: mode=FinalPartitioned, gby=[#1@0 as #1], aggr=[sum(s.#5)], statistics=[Rows=Inexact(7)]
    RepartitionExec: partitioning=Hash([#1@0], 2), input_partitions=2, statistics=[Rows=Inexact(9)]
      AggregateExec: mode=Partial, gby=[#1@0 as #1], aggr=[sum(s.#5)], statistics=[Rows=Inexact(9)]
        HashJoinExec: mode=CollectLeft, join_type=Right, on=[(#0@0, #4@0)], projection=[#1@1, #5@3], statistics=[Rows=Inexact(90)]
          FilterExec: title@1 = it's [a, b AND sold@2 >= 2020-01-01 AND price@3 < 5.50, projection=[id@0, title@1], statistics=[Rows=Inexact(40)]
            DataSourceExec: table="books", projection=[id, title, sold, price], file_type=parquet, statistics=[Rows=Exact(100)]
          DataSourceExec: table="sales", projection=[book@0 as #4, pieces@1 as #5], file_type=parquet, statistics=[Rows=Exact(1000)]
"""  # noqa: E501 - as Sail prints it


def test_columns_are_followed_by_their_places_to_the_tables_that_they_are_of() -> None:
    plan = read(JOIN, [BOOKS, SALES])
    nodes = [node for _, node in plan.root.walk()]
    project, aggregate, join, sales, chosen, books = nodes
    assert [node.operator for node in nodes] == [
        Operator.PROJECT,
        Operator.AGGREGATE,
        Operator.HASH_JOIN,
        Operator.SCAN,
        Operator.FILTER,
        Operator.SCAN,
    ]
    assert [(key.table, key.name) for key in aggregate.group_keys] == [("books", "title")]
    assert [(a.table, a.name, b.table, b.name) for a, b in join.join_keys] == [("sales", "book", "books", "id")]
    assert join.join_type is JoinType.LEFT  # all rows of the probe side
    assert [column.name for column in join.columns] == ["title", "pieces"]
    assert (sales.cardinality, books.cardinality, project.cardinality) == (1000.0, 100.0, 7.0)
    assert chosen.predicates == ("`title` = 'it\\'s [a, b'", "`sold` >= DATE '2020-01-01'", "`price` < 5.50")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no plan",
        "== Physical Plan ==",
        "== Physical Plan ==\nFilterExec: a\n      ProjectionExec: expr=[]",
        '== Physical Plan ==\nDataSourceExec: table="strangers", projection=[]',
        '== Physical Plan ==\nDataSourceExec: table=books"',
        "== Physical Plan ==\nHashJoinExec: join_type=Sideways, on=[]",
        "== Physical Plan ==\n" + "\n".join("  " * depth + "FilterExec: x" for depth in range(2_000)),
        "== Physical Plan ==\n" + "x" * 5_000_000,
    ],
)
def test_what_is_no_plan_is_told(text: str) -> None:
    with pytest.raises(UnreadablePlan):
        read(text, [BOOKS])
