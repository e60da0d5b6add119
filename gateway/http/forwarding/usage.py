"""What each process counts by itself, asked for by the one whose metrics are read."""

from __future__ import annotations

import contextlib
from dataclasses import astuple

from engines.machine.sharing import Caller, HostGone
from gateway.http.services import Services
from gateway.presentation.metrics import ProcessUsage
from gateway.statements.caching import CacheUsage
from gateway.statements.processes import CALLS_DOOR

USAGE = "usage"
"""By which processes ask each other."""


def own_usage(gateway: Services) -> ProcessUsage:
    """Return what this process counted."""
    labels = {} if gateway.processes is None else {"process": str(gateway.processes.number)}
    return ProcessUsage(gateway.coordinator.cached.usage(), gateway.coordinator.stages.sums(), labels)


def usages(gateway: Services) -> list[ProcessUsage]:
    """Return what each process counted, but of those that are gone."""
    found = [own_usage(gateway)]
    processes = gateway.processes
    if processes is not None:
        for number in {*range(processes.count)} - {processes.number}:
            with contextlib.suppress(HostGone):
                found.append(Caller(processes.path(CALLS_DOOR, number)).call(USAGE))
    return sorted(found, key=lambda each: each.labels.get("process", ""))


def cached_in_all(gateway: Services) -> CacheUsage:
    """Return how the caches of all processes were used, together."""
    told = [astuple(each.cached) for each in usages(gateway)]
    return CacheUsage(*(sum(column) for column in zip(*told, strict=True)))
