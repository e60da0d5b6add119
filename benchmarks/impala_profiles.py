"""Claim: from a run's true cardinalities, our peak per host is nearer to the measured one than Impala's own estimate.

DIR holds one folder per run: plan.txt, execsummary.txt and meta.json (the profile's "Estimated Per-Host Mem" and "Per
Node Peak Memory Usage"), or one text profile per run as Impala writes it, named *profile*. Each node of the plan gets
the rows that the run's summary counted; the model that costs plans before they run does the rest. Impala's figure is
the sum of all its fragments' estimates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.accuracy import mape, percentage_errors
from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table
from selector.cardinality.tree import EstimatedNode
from selector.explain import impala
from selector.explain.impala.outline import byte_size, metric
from selector.memory.impala import estimate
from selector.plan import Plan, PlanNode
from selector.wording import mebibytes

MEDIAN_PERCENT = 30.0
PEAKS, ESTIMATED = "Per Node Peak Memory Usage", "Estimated Per-Host Mem"
_SIZE = re.compile(r"\((\d+(?:\.\d+)?) ?([KMGTP]?B)\)")
_OPERATOR = re.compile(r"[| -]*(\d+):")
_FENCE = re.compile(r"^-{4,}\s*$", re.MULTILINE)
_SUMMARY = re.compile(r"^\s*ExecSummary:.*\n((?:.*\S.*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. rows: by the identifier of the plan's node; peak_bytes: of the fullest host."""

    name: str
    plan: Plan
    rows: Mapping[str, float]
    peak_bytes: float
    impala_bytes: float


def run(
    profiles: Annotated[Path, typer.Option(help="Folder of profiles.", exists=True, file_okay=False)],
    operators: Annotated[bool, typer.Option(help="Print every operator's bytes, too.")] = False,
) -> Claim:
    """Compare peaks from true cardinalities with measured ones."""
    runs = list(_runs(profiles))
    if not runs:
        raise RunFailed(f"no run with a plan, a summary and a measured peak in {profiles}")
    print(conditions(profiles=len(runs)))
    ours: list[float] = []
    covered = 0
    for found in runs:
        memory = estimate(_measured(found.plan.root, found.rows), found.plan, {})
        if memory.peak_bytes is None or memory.upper_bytes is None:
            raise RunFailed(f"{found.name}: a plan with rows for every node has no estimate")
        ours.append(memory.peak_bytes)
        covered += found.peak_bytes <= memory.upper_bytes
        if operators:
            lines = (
                [f"{'  ' * o.depth}{o.operator}", f"{o.rows:,.0f}", mebibytes(o.held_bytes)] for o in memory.operators
            )
            show_table(found.name, ("operator", "rows", "bytes"), list(lines))
    peaks, theirs = [found.peak_bytes for found in runs], [found.impala_bytes for found in runs]
    errors, impala_errors = percentage_errors(ours, peaks), percentage_errors(theirs, peaks)
    rows = [
        [
            found.name,
            mebibytes(round(found.peak_bytes)),
            mebibytes(round(peak)),
            f"{error:.1f}",
            mebibytes(round(found.impala_bytes)),
            f"{impala_error:.1f}",
        ]
        for found, peak, error, impala_error in zip(runs, ours, errors, impala_errors, strict=True)
    ]
    show_table("Peak of the fullest host", ("run", "measured", "ours", "off %", "Impala's", "off %"), rows)
    figures = {
        "profiles": len(runs),
        "median_percent": float(np.median(errors)),
        "mape_percent": mape(ours, peaks),
        "worst_percent": float(errors.max()),
        "upper_covers_percent": 100.0 * covered / len(runs),
        "impala_median_percent": float(np.median(impala_errors)),
        "impala_mape_percent": mape(theirs, peaks),
    }
    return Claim("impala_profiles", figures, {"median_percent": at_most(MEDIAN_PERCENT)})


def _runs(folder: Path) -> Iterator[Run]:
    """Yield the runs of a folder; one that lacks something is named and left out."""
    for path in sorted(folder.iterdir()):
        if (path / "plan.txt").is_file() and (path / "execsummary.txt").is_file() and (path / "meta.json").is_file():
            texts = [(path / name).read_text(encoding="utf-8") for name in ("plan.txt", "execsummary.txt", "meta.json")]
            plan, summary, meta = texts[0], texts[1], {str(k): str(v) for k, v in json.loads(texts[2]).items()}
        elif path.is_file() and "profile" in path.name and path.suffix in ("", ".txt", ".log"):
            plan, summary, meta = _sections(path.read_text(encoding="utf-8", errors="replace"))
        else:
            continue
        peaks = [byte_size("".join(size)) or 0.0 for size in _SIZE.findall(meta.get(PEAKS, ""))]
        estimated = meta.get(ESTIMATED, "")
        rows = _rows(summary)
        if not peaks or not max(peaks) or not estimated.isdecimal() or not rows:
            print(f"left out: {path.name} has no plan with measured peaks and rows")
            continue
        try:
            yield Run(path.name, impala.read(plan), rows, max(peaks), float(estimated))
        except impala.UnreadablePlan as error:
            print(f"left out: the plan of {path.name}: {error}")


def _sections(profile: str) -> tuple[str, str, dict[str, str]]:
    """Return plan, summary and headings of one query's text profile."""
    fenced = _FENCE.split(profile)
    plan = next((part for part in fenced if "PLAN FRAGMENT" in part), "")
    summary = _SUMMARY.search(profile)
    headings = {
        name: found.group(1).strip()
        for name in (PEAKS, ESTIMATED)
        if (found := re.search(rf"^\s*{name}:(.*)$", profile, re.MULTILINE)) is not None
    }
    return plan, summary.group(1) if summary else "", headings


def _rows(summary: str) -> dict[str, float]:
    """Return the rows that came out of each node, from the columns of a run's summary."""
    lines = summary.splitlines()
    head = next((line for line in lines if "Max Time" in line and "#Rows" in line), None)
    if head is None:
        return {}
    begin, end = head.index("Max Time") + len("Max Time"), head.index("#Rows") + len("#Rows")
    counted = {}
    for line in lines:
        node = _OPERATOR.match(line)
        count = metric(line[begin:end].strip()) if node else None
        if node is not None and count is not None:
            counted[node.group(1)] = count
    return counted


def _measured(node: PlanNode, rows: Mapping[str, float]) -> EstimatedNode:
    """Return a plan's tree with the rows of a run; a node that the summary leaves out hands on its first input's."""
    children = tuple(_measured(child, rows) for child in node.children)
    handed_on = children[0].rows if children else 0.0
    return EstimatedNode(node, rows.get(node.identifier or "", handed_on), 1.0, "measured", children)


if __name__ == "__main__":
    run_command(run)
