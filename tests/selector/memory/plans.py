"""Tables, and plans over them, that tests of DuckDB's memory share."""

from __future__ import annotations

import numpy as np

from selector.cardinality.tree import EstimatedNode
from selector.plan import JoinType, Operator, PlanColumn, PlanNode
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import ColumnStatistics, TableStatistics

ROWS = 4_000_000
SPAN = 1e12  # of keys: too far apart for an array of them
BOOK_ID = PlanColumn("book_id", "bigint", "transactions", 1)
QUANTITY = PlanColumn("quantity", "int", "transactions", 1)
ID = PlanColumn("id", "bigint", "books", 2)
TITLE = PlanColumn("title", "string", "books", 2)
TITLES = ["short", "a title that is far too long to lie in its row"]


def column(name: str, data_type: str, **more: object) -> ColumnStatistics:
    return ColumnStatistics(name, data_type, nulls=0, ndv=ROWS, **more)  # type: ignore[arg-type]


def sample(**columns: list[float] | list[str]) -> RowSample:
    held = {
        name: SampleColumn.of(
            np.array(values, dtype=object if isinstance(values[0], str) else np.float64), np.zeros(len(values), bool)
        )
        for name, values in columns.items()
    }
    return RowSample(max(len(values) for values in columns.values()), 0.01, held)


STATISTICS = {
    "transactions": TableStatistics(
        "transactions",
        1,
        rows=10_000_000,
        bytes=160_000_000,
        columns={"book_id": column("book_id", "bigint"), "quantity": column("quantity", "int")},
        row_group_rows=122_880,
    ),
    "books": TableStatistics(
        "books",
        1,
        rows=ROWS,
        bytes=100_000_000,
        columns={
            "id": column("id", "bigint", minimum=0.0, maximum=SPAN),
            "title": column("title", "string", average_length=25.0, maximum_length=60),
        },
        row_group_rows=122_880,
        sample=sample(title=TITLES),
    ),
}


def node(operator: Operator, rows: float | None, *children: EstimatedNode, **more: object) -> EstimatedNode:
    plan = PlanNode(operator, str(operator), tuple(child.node for child in children), cardinality=rows, **more)  # type: ignore[arg-type]
    return EstimatedNode(plan, rows, "given", children)


def scan(table: str, rows: float | None, *columns: PlanColumn) -> EstimatedNode:
    return node(Operator.SCAN, rows, columns=columns, scanned=columns, table=table, scan=columns[0].scan)


def join(build_rows: float | None, *payload: PlanColumn, kind: JoinType = JoinType.INNER) -> EstimatedNode:
    probe, build = scan("transactions", 10_000_000, BOOK_ID), scan("books", build_rows, ID, *payload)
    columns = (*probe.node.columns, *build.node.columns)
    keys = ((BOOK_ID, ID),)
    return node(Operator.HASH_JOIN, 1_000, probe, build, columns=columns, join_type=kind, join_keys=keys)
