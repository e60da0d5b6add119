"""Claim: every plan that Impala prints can be read, and its planner's memory estimates follow from what it prints.

DIR holds plans as files, one each, named *.plan or plan.txt. A join that prints its inputs (cardinality and row size
of its build side) and its own estimate is costed anew by the planner's formula; distinct keys, which Impala does not
print, are taken from the join's cardinality. Most joins of small tables stand on the formula's floor, the smallest
reservation; those above it are counted for themselves. The agreement of aggregates is shown, not claimed: the distinct
values that Impala multiplies are not printed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.claim import Claim, RunFailed, at_least, conditions, run_command, show_table
from benchmarks.impala_planner import (
    planned_aggregate_bytes,
    planned_join_bytes,
    planned_nested_loop_bytes,
    planned_threads,
)
from selector.explain import impala
from selector.plan import Operator, Plan, PlanNode

TOLERANCE = 0.02
PARSED_PERCENT = 100.0
WITHIN_PERCENT = 97.0
PLAN_NAMES = ("*.plan", "plan.txt")
SHOWN = 10  # plans that could not be read, and joins that came out otherwise

PlansOption = Annotated[Path, typer.Option(help="Folder of plans; folders below it count.", exists=True)]


@dataclass(frozen=True, slots=True)
class Recosted:
    """A node's memory by our formula beside what Impala printed. floor_bytes: its reservation, which is the least."""

    file: Path
    node: PlanNode
    ours_bytes: float
    printed_bytes: float
    floor_bytes: float

    @property
    def agrees(self) -> bool:
        """Tell whether the two are within the tolerance."""
        return abs(self.ours_bytes - self.printed_bytes) <= TOLERANCE * self.printed_bytes

    @property
    def above_floor(self) -> bool:
        """Tell whether the data decided and not the smallest reservation."""
        return max(self.ours_bytes, self.printed_bytes) > self.floor_bytes


def run(plans: PlansOption) -> Claim:
    """Read every plan in a folder and cost its joins and aggregates anew."""
    files = sorted({file for name in PLAN_NAMES for file in plans.rglob(name)})
    if not files:
        raise RunFailed(f"no {' or '.join(PLAN_NAMES)} in {plans}")
    print(conditions(plans=len(files)))
    read, unread, seconds = _read(files)
    for file, error in unread[:SHOWN]:
        print(f"not read: {file.relative_to(plans)}: {error}")
    joins = _recost(read, Operator.HASH_JOIN, lambda node, threads: planned_join_bytes(node, threads=threads))
    loops = _recost(read, Operator.NESTED_LOOP_JOIN, lambda node, _: planned_nested_loop_bytes(node))
    aggregates = _recost(read, Operator.AGGREGATE, lambda node, _: planned_aggregate_bytes(node))
    groups = {
        "hash joins": joins,
        "hash joins above their floor": [join for join in joins if join.above_floor],
        "nested loop joins": loops,
        "aggregates": aggregates,
    }
    rows = [
        [name, f"{sum(r.agrees for r in found)}/{len(found)}", f"{_percent(found):.1f}"]
        for name, found in groups.items()
    ]
    show_table(f"Within {TOLERANCE:.0%} of the printed mem-estimate", ("node", "agree", "percent"), rows)
    for join in [join for join in joins if not join.agrees][:SHOWN]:
        ours, printed = (f"{count / (1 << 20):.2f} MiB" for count in (join.ours_bytes, join.printed_bytes))
        print(f"otherwise: {join.file.relative_to(plans)} {join.node.identifier}: {ours}, printed {printed}")
    notes = Counter(note.partition(": ")[2] for _, plan in read for note in plan.notes)
    others = Counter(n.label for _, plan in read for _, n in plan.root.walk() if n.operator is Operator.OTHER)
    print(f"plans with notes: {sum(bool(plan.notes) for _, plan in read)}; most often: {notes.most_common(3)}")
    print(f"nodes without an operator of their own: {dict(others.most_common())}")
    print(f"plans read: {len(read)}/{len(files)}")
    figures = {
        "plans": len(files),
        "parsed": len(read),
        "parsed_percent": 100.0 * len(read) / len(files),
        "ms_per_plan": float(np.median(seconds)) * 1e3,
        "ms_per_plan_p99": float(np.percentile(seconds, 99)) * 1e3,
        "joins": len(joins),
        "joins_within_2_percent": _percent(joins),
        "joins_above_floor": len(groups["hash joins above their floor"]),
        "joins_above_floor_within_2_percent": _percent(groups["hash joins above their floor"]),
        "aggregates_within_2_percent": _percent(aggregates),
    }
    targets = {"parsed_percent": at_least(PARSED_PERCENT)}
    if joins:
        targets["joins_within_2_percent"] = at_least(WITHIN_PERCENT)
    return Claim("impala_plans", figures, targets)


def _read(files: Sequence[Path]) -> tuple[list[tuple[Path, Plan]], list[tuple[Path, str]], list[float]]:
    """Return the plans, what could not be read and why, and the seconds of each."""
    read, unread, seconds = [], [], []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        began = time.perf_counter()
        try:
            plan = impala.read(text)
        except impala.UnreadablePlan as error:
            unread.append((file, str(error)))
            continue
        finally:
            seconds.append(time.perf_counter() - began)
        read.append((file, plan))
    return read, unread, seconds


def _recost(
    read: Sequence[tuple[Path, Plan]], operator: Operator, formula: Callable[[PlanNode, int], float | None]
) -> list[Recosted]:
    found = []
    for file, plan in read:
        threads = planned_threads(plan)
        for _, node in plan.root.walk():
            printed = node.resources.estimate_bytes if node.resources else None
            ours = formula(node, threads) if node.operator is operator and printed is not None else None
            if ours is not None and printed is not None and node.resources:
                found.append(Recosted(file, node, ours, printed, node.resources.reservation_bytes or 0.0))
    return found


def _percent(recosted: Sequence[Recosted]) -> float:
    """Return the share that agrees; of nothing, all of it."""
    return 100.0 * sum(r.agrees for r in recosted) / len(recosted) if recosted else 100.0


if __name__ == "__main__":
    run_command(run)
