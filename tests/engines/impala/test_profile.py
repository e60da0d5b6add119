"""What is read from profiles and summaries as Impala writes them, on lines of a real run and a summary like its own."""

from __future__ import annotations

import pytest

from engines.protocol import OperatorActual

pytest.importorskip("impala", reason="impyla is not installed: pip install fusion-sql-gateway[impala]")

from impala._thrift_gen.ExecStats.ttypes import (  # type: ignore[import-untyped]
    TExecStats,
    TExecSummary,
    TPlanNodeExecSummary,
)

from engines.impala.profile import operators, peak_bytes

MIB = 1 << 20


def node(number: int, label: str, *rows: int, children: int = 0, detail: str = "", broadcast: bool = False) -> object:
    stats = [TExecStats(cardinality=count) for count in rows]
    return TPlanNodeExecSummary(number, 0, label, detail, children, TExecStats(), stats, broadcast, len(rows))


def test_the_peak_is_that_of_the_fullest_host() -> None:
    line = "    Per Node Peak Memory Usage: impala-1:27000(102.33 MB) impala-2:27000(1.50 GB) impala-3:27000(0) "
    assert peak_bytes(f"Query (id=1:2):\n  Summary:\n{line}\n    Other: x(9.00 TB)\n") == round(1.5 * 1024 * MIB)


@pytest.mark.parametrize("profile", ["", "Query (id=1:2):\n  Summary:\n", "    Per Node Peak Memory Usage: \n"])
def test_a_profile_without_a_peak_tells_none(profile: str) -> None:
    assert peak_bytes(profile) is None


def test_operators_are_counted_over_all_instances_and_through_exchanges() -> None:
    """Two hosts join sales with books, which every host gets whole; a third fragment gathers the groups.

    Fragments follow one another in the list; an exchange's own fragment begins at the sink that it maps to.
    """
    nodes = [
        node(-1, "F02:ROOT", children=1),
        node(5, "05:EXCHANGE", 20, detail="UNPARTITIONED"),
        node(-1, "F00:EXCHANGE SENDER", children=1),
        node(3, "03:AGGREGATE", 12, 8, children=1, detail="STREAMING"),
        node(2, "02:HASH JOIN", 600, 400, children=2, detail="INNER JOIN, BROADCAST"),
        node(0, "00:SCAN HDFS", 3_000, 2_000, detail="shop.sales s"),
        node(4, "04:EXCHANGE", 50, 50, detail="BROADCAST", broadcast=True),
        node(-1, "F01:EXCHANGE SENDER", children=1),
        node(1, "01:SCAN HDFS", 50, detail="shop.books, RANDOM"),
    ]
    summary = TExecSummary(nodes=nodes, exch_to_sender_map={1: 2, 6: 7})
    assert operators(summary) == (
        OperatorActual("05:EXCHANGE", 20, 0),
        OperatorActual("03:AGGREGATE", 20, 1),
        OperatorActual("02:HASH JOIN", 1_000, 2),
        OperatorActual("00:SCAN HDFS of sales", 5_000, 3),
        OperatorActual("04:EXCHANGE", 50, 3),
        OperatorActual("01:SCAN HDFS of books", 50, 4),
    )


def test_no_summary_has_no_operators() -> None:
    assert operators(None) == ()
    assert operators(TExecSummary(nodes=None)) == ()
