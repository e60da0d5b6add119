"""Sail's memory, as its pool counts it: what DataFusion's operators hold, and what of it is alive together.

Rows are Arrow's, in batches. A hash join keeps its build side and a table of hashes and places; an aggregate its
groups, once for each part and once for all; a sort its rows and room to sort and merge them. Scans do not count. The
constants are fitted to the least limits with which 22 statements ran, over a million rows, on two threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from selector.cardinality.tree import EstimatedNode
from selector.estimate import UNKNOWN, MemoryEstimate, Uncertainty, whole_bytes
from selector.memory.column_widths import row_of
from selector.memory.pipeline import Peak, gathered, joined, operator_of, streamed, walk
from selector.plan import JoinType, Operator, PlanColumn
from selector.statistics import TableStatistics
from selector.types import WHOLE

HASH_ENTRY_BYTES = 16.0  # a hash and a place
LOAD_FACTOR = 7 / 8  # of DataFusion's hash tables, whose capacity is a power of two
NEXT_BYTES = 4.0  # chains of a join's rows
WHOLE_KEY_BYTES = 15.0  # of a join's row that is found by one whole number, chains included
STATE_BYTES = 8.0  # of one aggregate in one group
SORT_COPIES = 2.0  # a batch that is sorted stands beside what was sorted of it
BASE_BYTES = 1.0 * (1 << 20)  # batches under way, exchanges
PARTS = 1.7  # an aggregate of each part, and one of all of them
DISTINCT_SHARE = 0.8  # of rows that are groups: from there on the parts hand on rows as they are

UNCERTAIN = Uncertainty("sail", bias=0.0, deviation=0.5, deviation_below=0.8)


def estimate(
    tree: EstimatedNode,
    statistics: Mapping[str, TableStatistics],
    *,
    notes: tuple[str, ...] = (),
) -> MemoryEstimate:
    """Return expected peak and upper bound of a plan."""
    if any(part.rows is None for _, part in walk(tree)):
        return replace(UNKNOWN, gaps=tree.all_gaps())
    held: dict[int, float] = {}
    peak_bytes = _peak(tree, statistics, held).peak_bytes + BASE_BYTES
    parts = list(walk(tree))
    operators = tuple(operator_of(part, depth, held.get(id(part), 0.0)) for depth, part in parts)
    largest = max(range(len(parts)), key=lambda place: operators[place].held_bytes)
    return MemoryEstimate(
        whole_bytes(peak_bytes),
        whole_bytes(UNCERTAIN.upper_bytes(peak_bytes)),
        max(0.01, tree.confidence),
        operators,
        (*tree.all_gaps(), *notes),
        largest,
        uncertainty=UNCERTAIN,
    )


def _peak(part: EstimatedNode, statistics: Mapping[str, TableStatistics], held: dict[int, float]) -> Peak:
    below = [_peak(child, statistics, held) for child in part.children]
    node, rows = part.node, part.rows or 0.0
    match node.operator:
        case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
            build = part.children[1]
            built = build.rows or 0.0
            own = built * _row_bytes(build.node.columns, statistics)
            if node.operator is Operator.HASH_JOIN:
                keys = [key for _, key in node.join_keys]
                is_whole = len(keys) == 1 and keys[0].data_type in WHOLE
                own += WHOLE_KEY_BYTES * built if is_whole else _table_bytes(built) + NEXT_BYTES * built
            if node.join_type in (JoinType.RIGHT, JoinType.FULL, JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI):
                own += built / 8  # which rows met any
            held[id(part)] = own
            return joined(own, *below)
        case Operator.AGGREGATE if node.group_keys:
            states = STATE_BYTES * (len(node.columns) - len(node.group_keys))
            parts = 1.0 if rows >= DISTINCT_SHARE * (part.children[0].rows or 0.0) else PARTS
            own = parts * (rows * (_row_bytes(node.group_keys, statistics) + states) + _table_bytes(rows))
        case Operator.SORT:
            own = SORT_COPIES * rows * _row_bytes(node.columns, statistics)
        case Operator.TOP_N:
            own = SORT_COPIES * min(rows, float(node.limit or rows)) * _row_bytes(node.columns, statistics)
        case Operator.WINDOW if node.label == "WindowAggExec":
            own = rows * _row_bytes(node.columns, statistics)
        case _:
            return streamed(0.0, below)
    held[id(part)] = own
    return gathered(own, below[0])


def _row_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    row = row_of(columns, statistics)
    return row.fixed_bytes + row.heap_bytes + len(columns) / 8  # and whether each is NULL


def _table_bytes(rows: float) -> float:
    """Return the bytes of a hash table, which has a power of two of places."""
    places = 4.0
    while places * LOAD_FACTOR < rows:
        places *= 2
    return places * (HASH_ENTRY_BYTES + 1)
