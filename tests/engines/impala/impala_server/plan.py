"""DuckDB's operator trees in the layout of Impala's EXPLAIN, summary and profile: one host, one instance of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from impala._thrift_gen.ExecStats.ttypes import (  # type: ignore[import-untyped]
    TExecStats,
    TExecSummary,
    TPlanNodeExecSummary,
)

from tests.engines.impala.impala_server.texts import HOST, size
from tests.engines.impala.impala_server.warehouse import Table

MIB = 1 << 20
SCANS = ("READ_PARQUET", "TABLE_SCAN", "ARROW_SCAN", "PANDAS_SCAN", "SEQ_SCAN")
_LABELS = {
    "HASH_JOIN": "HASH JOIN",
    "PIECEWISE_MERGE_JOIN": "HASH JOIN",
    "NESTED_LOOP_JOIN": "NESTED LOOP JOIN",
    "BLOCKWISE_NL_JOIN": "NESTED LOOP JOIN",
    "CROSS_PRODUCT": "NESTED LOOP JOIN",
    "HASH_GROUP_BY": "AGGREGATE",
    "PERFECT_HASH_GROUP_BY": "AGGREGATE",
    "UNGROUPED_AGGREGATE": "AGGREGATE",
    "ORDER_BY": "SORT",
    "TOP_N": "TOP-N",
    "UNION": "UNION",
    "FILTER": "SELECT",
    "WINDOW": "ANALYTIC",
    "STREAMING_WINDOW": "ANALYTIC",
}
_RESERVED = {"HASH JOIN": 2 * MIB, "AGGREGATE": 2 * MIB, "SORT": 12 * MIB, "SCAN HDFS": MIB, "ANALYTIC": 4 * MIB}
_EXPECTED = {**_RESERVED, "AGGREGATE": 10 * MIB, "SCAN HDFS": 16 * MIB, "NESTED LOOP JOIN": MIB}


@dataclass(slots=True, eq=False)
class Node:
    """One operator. rows: expected; counted: what came out of it, after a run."""

    label: str
    detail: str
    lines: list[str]
    rows: int
    counted: int
    children: list[Node] = field(default_factory=list)
    number: int = 0
    table: Table | None = None

    def walk(self) -> Iterator[Node]:
        """Yield a node before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def title(self) -> str:
        """Number and label."""
        return f"{self.number:02d}:{self.label}"


def tree_of(measured: Mapping[str, Any], tables: Sequence[Table], database: str) -> Node | None:
    """Return the operators that Impala would name; what it does without (projections, limits) is left out."""
    roots = list(_nodes(measured, tables, database))
    if not roots:
        return None
    for number, node in enumerate(reversed(list(roots[0].walk()))):
        node.number = number
    return roots[0]


def explained(plan: str) -> Mapping[str, Any]:
    """Return the root of EXPLAIN (FORMAT JSON)."""
    root: Mapping[str, Any] = json.loads(plan)[0]
    return root


def profiled(profile: str) -> tuple[Mapping[str, Any], int]:
    """Return the root and the peak in bytes of a profile."""
    told = json.loads(profile)
    operators = told.get("operator") or [{"type": "EMPTY", "children": []}]
    return operators[0], int(told.get("system", {}).get("peak_buffer_memory", 0))


def explain_lines(root: Node | None, sql: str) -> list[str]:
    """Return the plan at the EXTENDED level."""
    nodes = list(root.walk()) if root else []
    reserved = sum(_RESERVED.get(node.label, 0) for node in nodes) + 4 * MIB
    expected = sum(_EXPECTED.get(node.label, 0) for node in nodes) + 4 * MIB
    resources = f"mem-estimate={_bytes(expected)} mem-reservation={_bytes(reserved)} thread-reservation=2"
    head = [
        f"Max Per-Host Resource Reservation: Memory={_bytes(reserved)} Threads=2",
        f"Per-Host Resource Estimates: Memory={_bytes(max(expected, 10 * MIB))}",
        f"Analyzed query: {sql}",
        "",
        "F00:PLAN FRAGMENT [UNPARTITIONED] hosts=1 instances=1",
        f"|  Per-Host Resources: {resources}",
        "PLAN-ROOT SINK",
        "|  mem-estimate=4.00MB mem-reservation=4.00MB spill-buffer=2.00MB thread-reservation=0",
        "|",
    ]
    return head + (_drawn(root, "") if root else ["00:UNION", "   constant-operands=1"])


def summary_of(root: Node | None, peak_bytes: int) -> TExecSummary:
    """Return the operators of a run with their rows, below the sink of their only fragment."""
    nodes = list(root.walk()) if root else []
    first = _summary(-1, "F00:ROOT", "", min(1, len(nodes)), 0, 0, 4 * MIB)
    below = [
        _summary(n.number, n.title, n.detail, len(n.children), n.rows, n.counted, peak_bytes // len(nodes))
        for n in nodes
    ]
    return TExecSummary(state=1, nodes=[first, *below])


def profile_text(query_id: str, sql: str, state: str, options: Mapping[str, str], peak_bytes: int | None) -> str:
    """Return what of a runtime profile people read first."""
    lines = [
        f"Query (id={query_id}):",
        "  Summary:",
        "    Query Type: QUERY",
        f"    Query State: {state}",
        "    Impala Version: impalad version 4.5.0-RELEASE (build 0000000)",
        f"    Sql Statement: {sql}",
        f"    Query Options (set by configuration): {','.join(f'{k}={v}' for k, v in options.items())}",
    ]
    if peak_bytes is not None:
        lines += [
            f"    Per Host Min Memory Reservation: {HOST}({size(4 * MIB)})",
            f"    Per Node Peak Memory Usage: {HOST}({size(peak_bytes)}) ",
        ]
    return "\n".join(lines) + "\n"


def _nodes(measured: Mapping[str, Any], tables: Sequence[Table], database: str) -> list[Node]:
    name = str(measured.get("name") or measured.get("type", "")).strip()
    children = [node for child in measured.get("children", ()) for node in _nodes(child, tables, database)]
    told = measured.get("extra_info") or {}
    rows = int(str(told.get("Estimated Cardinality", "0")).replace("~", "") or 0)
    counted = int(measured.get("intermediate_rows", 0))
    if name in SCANS:
        table = _scanned(told, tables, rows)
        lines = [*_predicates(told.get("Filters"))]
        title = f"{database}.{table.name}" if table else "unknown"
        return [Node("SCAN HDFS", title, lines, rows, counted, [], table=table)]
    if name not in _LABELS:
        return children
    label = _LABELS[name]
    detail, lines = "", []
    if label.endswith("JOIN"):
        kind = str(told.get("Join Type", "CROSS")).replace("LEFT", "LEFT OUTER").replace("RIGHT", "RIGHT OUTER")
        detail = f"{kind} JOIN"
        lines = [f"hash predicates: {_listed(told.get('Conditions'))}"] if label == "HASH JOIN" else []
    elif label == "AGGREGATE":
        detail = "FINALIZE"
        lines = [f"output: {_listed(told.get('Aggregates'))}"]
        if told.get("Groups"):
            lines.append(f"group by: {_listed(told.get('Groups'))}")
    elif label in ("SORT", "TOP-N"):
        lines = [f"order by: {_listed(told.get('Order By'))}"]
        detail = f"LIMIT={told['Top']}" if "Top" in told else ""
    elif label == "SELECT":
        lines = _predicates(told.get("Expression"))
    return [Node(label, detail, lines, rows, counted, children)]


def _drawn(node: Node, indent: str) -> list[str]:
    """Draw a subtree: the first input stands below, the others hang on branches."""
    title = f"{node.title} [{node.detail}]" if node.detail else node.title
    bar = f"{indent}|  " if node.children else f"{indent}   "
    width = 8 * max(1, len(node.table.columns)) if node.table else 16
    lines = [indent + title]
    if node.table:
        files = len(node.table.files)
        lines += [
            f"{bar}HDFS partitions=1/1 files={files} size={_bytes(node.table.bytes)}",
            *(f"{bar}{line}" for line in node.lines),
            f"{bar}stored statistics:",
            f"{bar}  table: rows={node.table.rows} size={_bytes(node.table.bytes)}",
            f"{bar}  columns: all",
            f"{bar}extrapolated-rows=disabled max-scan-range-rows={node.table.rows}",
        ]
    else:
        lines += [f"{bar}{line}" for line in node.lines]
    reserved, expected = _RESERVED.get(node.label, 0), _EXPECTED.get(node.label, 0)
    spill = "spill-buffer=64.00KB " if node.label in ("HASH JOIN", "AGGREGATE") else ""
    resources = f"mem-estimate={_bytes(expected)} mem-reservation={_bytes(reserved)} {spill}thread-reservation=0"
    lines += [f"{bar}{resources}", f"{bar}tuple-ids={node.number} row-size={width}B cardinality={node.rows}"]
    if node.children:
        lines.append(f"{indent}|")
    for other in node.children[1:]:
        first, *rest = _drawn(other, f"{indent}|  ")
        lines += [f"{indent}|--{first[len(indent) + 3 :]}", *rest, f"{indent}|"]
    return lines + (_drawn(node.children[0], indent) if node.children else [])


def _summary(
    number: int, label: str, detail: str, children: int, rows: int, counted: int, memory: int
) -> TPlanNodeExecSummary:
    return TPlanNodeExecSummary(
        node_id=number,
        fragment_idx=0,
        label=label,
        label_detail=detail,
        num_children=children,
        estimated_stats=TExecStats(cardinality=rows, memory_used=memory),
        exec_stats=[TExecStats(latency_ns=1, cpu_time_ns=1, cardinality=counted, memory_used=memory)],
        is_broadcast=False,
        num_hosts=1,
    )


def _scanned(told: Mapping[str, Any], tables: Sequence[Table], rows: int) -> Table | None:
    """Tell which table a scan reads, by its columns and its rows: DuckDB names files' scans by nothing."""
    taken = told.get("Projections") or []
    columns = {taken} if isinstance(taken, str) else set(taken)
    fitting = [table for table in tables if columns <= {*table.columns, *table.partition_columns}]
    return min(fitting, key=lambda table: abs(table.rows - rows), default=None)


def _predicates(condition: Any) -> list[str]:
    return [f"predicates: {_listed(condition).strip('()')}"] if condition else []


def _listed(values: Any) -> str:
    return values if isinstance(values, str) else ", ".join(map(str, values or ()))


def _bytes(count: float) -> str:
    return size(count).replace(" ", "") if count >= 1024 else f"{count:.0f}B"
