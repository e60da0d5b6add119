"""Reading of an engine's plan and estimation of its memory, in a planner process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engines.cost_model import model_of
from gateway.planning.regular_expressions import search
from selector.estimate import UNKNOWN, MemoryEstimate
from selector.join_keys import KeyPair
from selector.plan import TableShape, UnreadablePlan
from selector.query_text import Wording
from selector.statistics import TableStatistics


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Plan of a statement on a fast engine, as text.

    text: output of the engine's EXPLAIN.
    cost_model: name of the module of the engine's cost model.
    threads, hosts: resources that the statement would run on.
    """

    text: str
    cost_model: str
    threads: int
    hosts: int


def estimate(
    plan: EnginePlan,
    shapes: Sequence[TableShape],
    joined: Iterable[KeyPair],
    references: Mapping[str, int],
    wording: Wording,
    *builds: TableStatistics,
) -> MemoryEstimate:
    """Return the estimate of a plan. shapes, builds: of the statement's tables; those without statistics: no build."""
    from selector.cardinality.predicates.patterns import use_search
    from selector.cardinality.tree import estimate_rows  # which planners need, and gateways do not

    use_search(search)
    statistics = {build.table: build for build in builds}
    model = model_of(plan.cost_model)
    try:
        read = model.read(plan.text, shapes, joined, references, wording)
    except UnreadablePlan:
        return UNKNOWN
    tree = estimate_rows(read, statistics, shapes)
    return model.price(tree, read, statistics, threads=plan.threads, hosts=plan.hosts)
