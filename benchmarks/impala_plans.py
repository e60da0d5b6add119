"""Claim: every plan that Impala prints can be read, and its planner's memory estimates follow from what it prints.

Plans come from a folder of files, one each, named *.plan or plan.txt, or from a folder of Impala's planner tests, whose
sections hold them (its repository has them in testdata/workloads/functional-planner). A join that prints its inputs
(cardinality and row size of its build side) and its own estimate is costed anew by the planner's formula; distinct
keys, which Impala does not print, are taken from the join's cardinality. Most joins of small tables stand on the
formula's floor, the smallest reservation; those above it are counted for themselves. The agreement of aggregates is
shown, not claimed: the distinct values that Impala multiplies are not printed.

Whether the tree is the one that was printed is seen in what must come out of it: every node has the rows that the text
gives it, and an exchange those of what it receives.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    planned_rows,
    planned_threads,
)
from benchmarks.impala_tests import PrintedPlan, plans_of_tests
from selector.explain import impala
from selector.explain.impala.outline import byte_size
from selector.plan import Operator, Plan, PlanNode

TOLERANCE = 0.02
PARSED_PERCENT = 100.0
WITHIN_PERCENT = 97.0
PLAN_NAMES = ("*.plan", "plan.txt")
SHOWN = 10  # plans that could not be read, and joins that came out otherwise
FOLDERS = 12  # that have a row of their own
_ROWS = re.compile(r"\brow-size=\S+ cardinality=\d")

PlansOption = Annotated[Path | None, typer.Option(help="Folder of plans; folders below it count.", exists=True)]
TestsOption = Annotated[Path | None, typer.Option(help="Folder of Impala's .test files, likewise.", exists=True)]
HostOption = Annotated[
    str | None,
    typer.Option(help="Memory of a host, like 50GB, where operators that can spill are planned to stay within it."),
]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan that was read. planner: of Impala's, which made it."""

    printed: PrintedPlan
    planner: impala.Planner
    plan: Plan

    def rows_known(self) -> tuple[int, int]:
        """Return the nodes that have rows, and the lines that print some."""
        nodes = sum(n.identifier is not None and n.cardinality is not None for _, n in self.plan.root.walk())
        return nodes, len(_ROWS.findall(self.printed.text))

    def exchanges_consistent(self) -> tuple[int, int]:
        """Return the exchanges that hand on as many rows as their input has, and those where both are known."""
        pairs = [
            (planned_rows(node), planned_rows(node.children[0]))
            for _, node in self.plan.root.walk()
            if node.operator is Operator.EXCHANGE
        ]
        known = [pair for pair in pairs if None not in pair]
        return sum(ours == theirs for ours, theirs in known), len(known)


@dataclass(frozen=True, slots=True)
class Recosted:
    """A node's memory by our formula beside what Impala printed. floor_bytes: its reservation, which is the least."""

    source: ReadPlan
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


def run(plans: PlansOption = None, tests: TestsOption = None, host_memory: HostOption = None) -> Claim:
    """Read every plan in a folder and cost its joins and aggregates anew."""
    host_bytes = math.inf if host_memory is None else byte_size(host_memory)
    if host_bytes is None:
        raise RunFailed(f"{host_memory} is no size; write one like 50GB")
    printed = [*_plans_of_files(plans), *(plans_of_tests(tests) if tests else ())]
    if not printed:
        raise RunFailed(f"no {', '.join(PLAN_NAMES)} in {plans}, no plan in .test files in {tests}")
    print(conditions(plans=len(printed)))
    read, unread, seconds = _read(printed)
    for plan, error in unread[:SHOWN]:
        print(f"not read: {plan.name}: {error}")
    joins = _recost(
        read,
        Operator.HASH_JOIN,
        lambda node, threads: planned_join_bytes(node, threads=threads, host_bytes=host_bytes),
    )
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
    _show_by("folder", printed, read, joins, lambda found: found.printed.folder)
    _show_by("planner", [found.printed for found in read], read, joins, lambda found: str(found.planner))
    for join in [join for join in joins if not join.agrees][:SHOWN]:
        ours, theirs = (f"{count / (1 << 20):.2f} MiB" for count in (join.ours_bytes, join.printed_bytes))
        print(f"otherwise: {join.source.printed.name} {join.node.identifier}: {ours}, printed {theirs}")
    notes = Counter(note.partition(": ")[2] for found in read for note in found.plan.notes)
    others = Counter(n.label for f in read for _, n in f.plan.root.walk() if n.operator is Operator.OTHER)
    print(f"plans with notes: {sum(bool(found.plan.notes) for found in read)}; most often: {notes.most_common(3)}")
    print(f"nodes without an operator of their own: {dict(others.most_common())}")
    print(f"plans read: {len(read)}/{len(printed)}")
    figures = {
        "plans": len(printed),
        "parsed": len(read),
        "parsed_percent": 100.0 * len(read) / len(printed),
        "ms_per_plan": float(np.median(seconds)) * 1e3,
        "ms_per_plan_p99": float(np.percentile(seconds, 99)) * 1e3,
        "rows_known_percent": _of(found.rows_known() for found in read),
        "exchanges_consistent_percent": _of(found.exchanges_consistent() for found in read),
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


def _plans_of_files(folder: Path | None) -> Iterator[PrintedPlan]:
    """Yield the plans of files that hold one each."""
    if folder is None:
        return
    for file in sorted({file for name in PLAN_NAMES for file in folder.rglob(name)}):
        inside = file.relative_to(folder)
        yield PrintedPlan(str(inside), str(inside.parent), file.read_text(encoding="utf-8", errors="replace"))


def _read(printed: Sequence[PrintedPlan]) -> tuple[list[ReadPlan], list[tuple[PrintedPlan, str]], list[float]]:
    """Return the plans, what could not be read and why, and the seconds of each."""
    read, unread, seconds = [], [], []
    for source in printed:
        began = time.perf_counter()
        try:
            plan = impala.read(source.text)
        except impala.UnreadablePlan as error:
            unread.append((source, str(error)))
            continue
        finally:
            seconds.append(time.perf_counter() - began)
        read.append(ReadPlan(source, impala.planner_of(source.text), plan))
    return read, unread, seconds


def _recost(
    read: Sequence[ReadPlan], operator: Operator, formula: Callable[[PlanNode, int | None], float | None]
) -> list[Recosted]:
    """Return the nodes of an operator whose estimate is printed. formula: of a node, and of how many share a table."""
    found = []
    for source in read:
        threads = None if source.planner.costed else planned_threads(source.plan)
        for _, node in source.plan.root.walk():
            printed = node.resources.estimate_bytes if node.resources else None
            ours = formula(node, threads) if node.operator is operator and printed is not None else None
            if ours is not None and printed is not None and node.resources:
                found.append(Recosted(source, node, ours, printed, node.resources.reservation_bytes or 0.0))
    return found


def _show_by(
    what: str,
    printed: Sequence[PrintedPlan],
    read: Sequence[ReadPlan],
    joins: Sequence[Recosted],
    key: Callable[[ReadPlan], str],
) -> None:
    """Print both figures by where plans come from or by what made them; the smallest groups are one."""
    of_plan = {id(found.printed): key(found) for found in read}
    largest = [name for name, _ in Counter(of_plan.values()).most_common(FOLDERS)]
    shown = {name: name if name in largest else "others" for name in of_plan.values()}
    plans = Counter(shown.get(of_plan.get(id(source), source.folder), "others") for source in printed)
    done = Counter(shown[name] for name in of_plan.values())
    of_group: dict[str, list[Recosted]] = {}
    for join in joins:
        of_group.setdefault(shown[key(join.source)], []).append(join)
    rows = []
    for name in sorted(plans):
        found = of_group.get(name, [])
        agree = f"{sum(join.agrees for join in found)}/{len(found)}"
        percent = f"{100.0 * done[name] / plans[name]:.1f}"
        rows.append([name, f"{done[name]}/{plans[name]}", percent, agree, f"{_percent(found):.1f}"])
    show_table(f"By {what}", (what, "plans read", "percent", "hash joins agree", "percent"), rows)


def _percent(recosted: Sequence[Recosted]) -> float:
    """Return the share that agrees; of nothing, all of it."""
    return 100.0 * sum(r.agrees for r in recosted) / len(recosted) if recosted else 100.0


def _of(pairs: Iterable[tuple[int, int]]) -> float:
    """Return the percentage of the first of each pair in the second; of nothing, all of it."""
    counted = list(pairs)
    whole = sum(all_of for _, all_of in counted)
    return 100.0 * sum(good for good, _ in counted) / whole if whole else 100.0


if __name__ == "__main__":
    run_command(run)
