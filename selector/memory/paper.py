"""The paper's memory model, by which the rule ``paper`` decides: Eqs. (4) and (5), summed over what lives at once.

The paper costs joins only; scan buffers are added. Grouping tables are costed by the same two equations over their
groups; sorts, windows and common table expressions hold their rows. A blocking operator lets go of what is below it
when it is done, so the peak is one over time, not a plain sum: a join holds its own table while its probe side runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from selector.cardinality.tree import EstimatedNode
from selector.estimate import whole_bytes
from selector.memory.column_widths import encoded_bytes, row_bytes
from selector.memory.pipeline import Peak, gathered, joined, materialized, streamed, walk
from selector.plan import Operator
from selector.statistics import TableStatistics

POINTER_BYTES = 8
LOAD_FACTOR = 0.75
SCAN_BUFFERS_PER_THREAD = 1  # row groups of encoded columns that a scanning thread keeps at hand
DEFAULT_ROW_GROUP_ROWS = 122_880

_GROWING_STATE = re.compile(
    r"(list|array_agg|string_agg|group_concat|listagg|median|mode|quantile|histogram|map)\w*\(|\w+\(DISTINCT ",
    re.IGNORECASE,
)


def hash_table_bytes(rows: float) -> float:
    """Eq. (4): one pointer per row, at the load factor."""
    return POINTER_BYTES * rows / LOAD_FACTOR


def hash_join_bytes(build_rows: float, tuple_bytes: float, hosts: int = 1) -> float:
    """Eq. (5): build-side bytes per host. A broadcast build side is not divided: pass hosts=1."""
    return (build_rows * tuple_bytes + hash_table_bytes(build_rows)) / hosts


def peak_bytes(tree: EstimatedNode, statistics: Mapping[str, TableStatistics], *, threads: int) -> int | None:
    """Return the peak of a plan that runs with this many scanning threads; None where rows are not known."""
    if any(part.rows is None for _, part in walk(tree)):
        return None
    return whole_bytes(_Model(statistics, threads).peak(tree).peak_bytes)


class _Model:
    def __init__(self, statistics: Mapping[str, TableStatistics], threads: int) -> None:
        self._statistics = statistics
        self._threads = threads

    def own_bytes(self, part: EstimatedNode) -> float:
        """Return what one operator holds by itself."""
        node, rows = part.node, part.rows or 0.0
        match node.operator:
            case Operator.SCAN:
                return self._scan_buffers(part)
            case Operator.HASH_JOIN:
                build = part.children[1]
                return hash_join_bytes(build.rows or 0.0, self._row_bytes(build))
            case Operator.NESTED_LOOP_JOIN:
                build = part.children[1]
                return (build.rows or 0.0) * self._row_bytes(build)
            case Operator.AGGREGATE if node.group_keys or _keeps_inputs(part):
                table = hash_join_bytes(rows, self._row_bytes(part))
                below = part.children[0]
                return table + (
                    hash_join_bytes(below.rows or 0.0, self._row_bytes(below)) if _keeps_inputs(part) else 0
                )
            case Operator.TOP_N | Operator.SORT | Operator.WINDOW:
                return rows * self._row_bytes(part)
            case Operator.MATERIALIZE:
                definition = part.children[0]
                return (definition.rows or 0.0) * self._row_bytes(definition)
            case _:
                return 0.0

    def peak(self, part: EstimatedNode) -> Peak:
        """Return a subtree's bytes over time."""
        return self._over_time(part)

    def _over_time(self, part: EstimatedNode) -> Peak:
        own = self.own_bytes(part)
        below = [self.peak(child) for child in part.children]
        match part.node.operator:
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return joined(own, probe=below[0], build=below[1])
            case Operator.AGGREGATE | Operator.SORT | Operator.WINDOW | Operator.TOP_N:
                return gathered(own, below[0])
            case Operator.MATERIALIZE:
                return materialized(own, definition=below[0], body=below[1])
            case _:
                return streamed(own, below)

    def _scan_buffers(self, part: EstimatedNode) -> float:
        table = self._statistics.get(part.node.table or "")
        group_rows = (table.row_group_rows if table else None) or DEFAULT_ROW_GROUP_ROWS
        rows = min(group_rows, table.rows) if table else group_rows
        return self._threads * SCAN_BUFFERS_PER_THREAD * rows * encoded_bytes(part.node.scanned, self._statistics)

    def _row_bytes(self, part: EstimatedNode) -> float:
        return row_bytes(part.node.columns, self._statistics)


def _keeps_inputs(part: EstimatedNode) -> bool:
    """Tell whether an aggregate's state grows with its input: lists, texts, distinct values, exact quantiles."""
    return any(_GROWING_STATE.match(column.name) for column in part.node.columns)
