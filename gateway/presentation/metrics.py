"""Metrics of leases, waits, caches and stages, in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.catalog.lake.object_files import ObjectUsage
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.usage import WAIT_BOUNDS_S
from gateway.routing.admission.values import AdmissionState
from gateway.statements.caching import CacheUsage
from gateway.statements.stages import BOUNDS_S, Stage, StageSum

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample: TypeAlias = tuple[str, dict[str, str], float]
"""Suffix of the metric's name, labels, value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, kind and meaning, as the reference lists them."""

    name: str
    kind: str
    help: str


ENGINE_BYTES = Metric("fusion_engine_leased_bytes", "gauge", "Memory that is leased of an engine.")
ENGINE_CAPACITY = Metric("fusion_engine_capacity_bytes", "gauge", "Memory that can be leased of an engine.")
ENGINE_SLOTS = Metric("fusion_engine_leased_slots", "gauge", "Slots of an engine that are in use.")
ENGINE_WAITING = Metric("fusion_engine_waiting", "gauge", "Statements that wait for an engine.")
POOL_BYTES = Metric("fusion_pool_leased_bytes", "gauge", "Memory that is leased in a pool, over all engines.")
POOL_SLOTS = Metric("fusion_pool_leased_slots", "gauge", "Slots that are in use in a pool, over all engines.")
POOL_WAITING = Metric("fusion_pool_waiting", "gauge", "Statements that wait in a pool.")
WAITS = Metric("fusion_lease_wait_seconds", "histogram", "Waits for leases that were given, by engine and pool.")
REFUSALS = Metric("fusion_lease_refusals_total", "counter", "Leases that were refused, by engine, pool and code.")
CACHE_BYTES = Metric("fusion_cache_bytes", "gauge", "Bytes of all cached results.")
CACHE_LIMIT = Metric("fusion_cache_limit_bytes", "gauge", "Bytes that cached results may take.")
CACHE_ENTRIES = Metric("fusion_cache_results", "gauge", "Results that are cached.")
CACHE_HITS = Metric("fusion_cache_hits_total", "counter", "Queries that were answered from the cache.")
CACHE_MISSES = Metric("fusion_cache_misses_total", "counter", "Queries that might have been, and ran.")
CACHE_GONE = Metric("fusion_cache_removals_total", "counter", "Results that went: `outdated`, or `evicted` for others.")
STAGES = Metric("fusion_statement_stage_seconds", "histogram", "What each stage of statements took.")
STAGES_CPU = Metric(
    "fusion_statement_stage_cpu_seconds_total", "counter", "CPU time of it, in the thread that the statement lives in."
)
OBJECT_REQUESTS = Metric("fusion_object_requests_total", "counter", "Requests for data files in object stores.")
OBJECT_FETCHED = Metric("fusion_object_fetched_bytes_total", "counter", "Bytes that these brought.")
OBJECT_BYTES = Metric("fusion_object_copies_bytes", "gauge", "Bytes of copies of objects on this machine.")
OBJECT_LIMIT = Metric("fusion_object_copies_limit_bytes", "gauge", "Bytes that these may take.")
METRICS = (
    *(ENGINE_BYTES, ENGINE_CAPACITY, ENGINE_SLOTS, ENGINE_WAITING),
    *(POOL_BYTES, POOL_SLOTS, POOL_WAITING, WAITS, REFUSALS),
    *(CACHE_BYTES, CACHE_LIMIT, CACHE_ENTRIES, CACHE_HITS, CACHE_MISSES, CACHE_GONE),
    *(STAGES, STAGES_CPU),
    *(OBJECT_REQUESTS, OBJECT_FETCHED, OBJECT_BYTES, OBJECT_LIMIT),
)


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Counters of one process."""

    cached: CacheUsage
    stages: Mapping[Stage, StageSum]
    objects: ObjectUsage
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that name the process, where there are several."""


def metrics_text(admission: Admission, usages: Sequence[ProcessUsage]) -> str:
    """Return all metrics as they are now. usages: one for each process."""
    samples: dict[Metric, Iterable[Sample]] = {
        **_gauges(admission.describe()),
        WAITS: [
            sample
            for (engine, pool), counts in sorted(admission.waited().items())
            for sample in _histogram({"engine": engine, "pool": pool}, WAIT_BOUNDS_S, counts.up_to, counts.total_s)
        ],
        REFUSALS: [
            ("", {"engine": engine, "pool": pool, "code": code}, count)
            for (engine, pool, code), count in sorted(admission.refusals().items())
        ],
    }
    by_process = [(_of_process(usage), usage.labels) for usage in usages]
    for metric in by_process[0][0]:
        samples[metric] = [
            (suffix, {**process_labels, **labels}, number)
            for process_samples, process_labels in by_process
            for suffix, labels, number in process_samples[metric]
        ]
    lines: list[str] = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [_line(metric.name, *sample) for sample in samples[metric]]
    return "\n".join(lines) + "\n"


def _of_process(usage: ProcessUsage) -> dict[Metric, list[Sample]]:
    cached = usage.cached
    return {
        CACHE_BYTES: [("", {}, cached.bytes)],
        CACHE_LIMIT: [("", {}, cached.limit_bytes)],
        CACHE_ENTRIES: [("", {}, cached.entries)],
        CACHE_HITS: [("", {}, cached.hits)],
        CACHE_MISSES: [("", {}, cached.misses)],
        CACHE_GONE: [("", {"why": "outdated"}, cached.outdated), ("", {"why": "evicted"}, cached.evicted)],
        STAGES: [
            sample
            for stage, total in usage.stages.items()
            for sample in _histogram({"stage": stage}, BOUNDS_S, total.up_to, total.wall_s)
        ],
        STAGES_CPU: [("", {"stage": stage}, total.cpu_s) for stage, total in usage.stages.items()],
        OBJECT_REQUESTS: [("", {}, usage.objects.requests)],
        OBJECT_FETCHED: [("", {}, usage.objects.fetched_bytes)],
        OBJECT_BYTES: [("", {}, usage.objects.bytes)],
        OBJECT_LIMIT: [("", {}, usage.objects.limit_bytes)],
    }


def _gauges(state: AdmissionState) -> dict[Metric, list[Sample]]:
    engines = [({"engine": engine.budget.name}, engine) for engine in state.engines]
    pools = [({"pool": pool.pool.name}, pool) for pool in state.pools]
    return {
        ENGINE_BYTES: [("", labels, engine.bytes_held) for labels, engine in engines],
        ENGINE_CAPACITY: [
            ("", labels, capacity)
            for labels, engine in engines
            if (capacity := engine.budget.capacity_bytes) is not None
        ],
        ENGINE_SLOTS: [("", labels, engine.slots_held) for labels, engine in engines],
        ENGINE_WAITING: [("", labels, engine.waiting) for labels, engine in engines],
        POOL_BYTES: [("", labels, pool.bytes_held) for labels, pool in pools],
        POOL_SLOTS: [("", labels, pool.slots_held) for labels, pool in pools],
        POOL_WAITING: [("", labels, pool.waiting) for labels, pool in pools],
    }


def _histogram(
    labels: dict[str, str], bounds_s: Sequence[float], up_to: Sequence[int], total_s: float
) -> Iterator[Sample]:
    """Yield the samples of a histogram. up_to: counts between each bound and the one before."""
    for bound_s, count in zip(bounds_s, itertools.accumulate(up_to), strict=True):
        yield "_bucket", labels | {"le": "+Inf" if math.isinf(bound_s) else f"{bound_s:g}"}, count
    yield "_sum", labels, total_s
    yield "_count", labels, sum(up_to)


def _line(name: str, suffix: str, labels: dict[str, str], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    written = f"{number:.10g}" if isinstance(number, float) else f"{number}"
    return f"{name}{suffix}{{{pairs}}} {written}" if pairs else f"{name}{suffix} {written}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
