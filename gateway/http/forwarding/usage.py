"""Counters of all processes, collected by the one whose metrics are read."""

from __future__ import annotations

import contextlib
from dataclasses import astuple

from engines.machine.sharing import Caller, HostGone
from gateway.http.services import Services
from gateway.presentation.metrics import ProcessUsage
from gateway.statements.caching import CacheUsage
from gateway.statements.processes import CALLS_DOOR

USAGE = "usage"
"""Name of the call between processes."""


def own_usage(gateway: Services) -> ProcessUsage:
    """Return the counters of this process."""
    labels = {} if gateway.processes is None else {"process": str(gateway.processes.number)}
    return ProcessUsage(
        cached=gateway.coordinator.cached.usage(),
        stages=gateway.coordinator.stages.sums(),
        objects=gateway.objects.usage(),
        queries=gateway.ended.totals.sums(),
        parity=gateway.coordinator.parity.outcomes(),
        sessions={protocol: count() for protocol, count in gateway.session_counts.items()},
        engines={entry.name: entry.engine.status() for entry in gateway.engines.values()},
        labels=labels,
    )


def usages(gateway: Services) -> list[ProcessUsage]:
    """Return the counters of all living processes."""
    collected = [own_usage(gateway)]
    processes = gateway.processes
    if processes is not None:
        for number in {*range(processes.count)} - {processes.number}:
            with contextlib.suppress(HostGone):
                collected.append(Caller(processes.path(CALLS_DOOR, number)).call(USAGE))
    return sorted(collected, key=lambda usage: usage.labels.get("process", ""))


def cached_in_all(gateway: Services) -> CacheUsage:
    """Return the use of all processes' caches together."""
    counters = [astuple(usage.cached) for usage in usages(gateway)]
    return CacheUsage(*map(sum, zip(*counters, strict=True)))
