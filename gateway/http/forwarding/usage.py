"""Counters of all processes of a home folder, collected by the one whose metrics are read."""

from __future__ import annotations

import contextlib
from dataclasses import astuple

from engines.machine.sharing import Caller, HostGone
from gateway.http.services import Services
from gateway.presentation.metrics import ProcessUsage
from gateway.statements.caching import CacheUsage

USAGE = "usage"
"""Name of the call between processes."""


def own_usage(gateway: Services) -> ProcessUsage:
    """Return the counters of this process."""
    labels = {} if gateway.siblings is None else {"process": str(gateway.siblings.number)}
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
    for path in gateway.siblings.other_sockets() if gateway.siblings is not None else ():
        with contextlib.suppress(HostGone):
            collected.append(Caller(path).call(USAGE))
    return sorted(collected, key=lambda usage: usage.labels.get("process", ""))


def cached_in_all(gateway: Services) -> CacheUsage:
    """Return the use of all processes' caches together."""
    counters = [astuple(usage.cached) for usage in usages(gateway)]
    return CacheUsage(*map(sum, zip(*counters, strict=True)))
