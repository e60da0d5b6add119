"""Metrics of queries, leases, waits, caches and stages, in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from engines.protocol import EngineStatus
from gateway.catalog.lake.object_files import ObjectUsage
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.usage import WAIT_BOUNDS_S
from gateway.routing.admission.values import AdmissionState
from gateway.statements.caching import CacheUsage
from gateway.statements.stages import BOUNDS_S, Stage, StageSum
from gateway.statements.totals import Histogram, QuerySums

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample: TypeAlias = tuple[str, dict[str, str], float]
"""Suffix of the metric's name, labels, value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, kind and meaning, as the reference lists them."""

    name: str
    kind: str
    help: str


QUERIES = Metric("fusion_queries_total", "counter", "Ended queries, by engine, state, and first reason or error.")
QUERY_SECONDS = Metric("fusion_query_seconds", "histogram", "Seconds from submission to the end, by engine.")
ATTEMPT_FAILURES = Metric("fusion_attempt_failures_total", "counter", "Failed attempts, by engine and error code.")
FAILOVERS = Metric("fusion_failovers_total", "counter", "Attempts after a failed one, by both attempts' engines.")
PEAK_RATIOS = Metric("fusion_peak_ratio", "histogram", "Measured through expected peak, by engine.")
PEAK_BOUNDS = Metric("fusion_peak_bounds_total", "counter", "Peaks `within` and above the estimate's upper bound.")
SPENT = Metric("fusion_engine_seconds_total", "counter", "Seconds that attempts used an engine.")
ALONE = Metric(
    "fusion_dependable_alone_seconds_total", "counter", "The same of the dependable engine alone: measured or forecast."
)
PARITY = Metric(
    "fusion_parity_total", "counter", "Answers `compared` with the dependable engine's, `different`, or left out."
)
STATISTICS_AGE = Metric("fusion_statistics_age_seconds", "gauge", "Age of a table's statistics.")
SESSIONS = Metric("fusion_sessions", "gauge", "Open sessions of drivers, by protocol.")
ENGINE_STARTS = Metric("fusion_engine_process_starts_total", "counter", "Starts of an engine's worker processes.")
ENGINE_UP = Metric("fusion_engine_up", "gauge", "1 where an engine is available, 0 where it is not.")
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
    *(QUERIES, QUERY_SECONDS, ATTEMPT_FAILURES, FAILOVERS, PEAK_RATIOS, PEAK_BOUNDS, SPENT, ALONE),
    *(PARITY, STATISTICS_AGE, SESSIONS, ENGINE_STARTS, ENGINE_UP),
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
    queries: QuerySums
    parity: Mapping[str, int]
    """Outcomes of comparisons of answers."""
    sessions: Mapping[str, int]
    """Open sessions by protocol."""
    engines: Mapping[str, EngineStatus]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that name the process, where there are several."""


def metrics_text(
    admission: Admission, usages: Sequence[ProcessUsage], statistics_ages: Mapping[str, float] = {}
) -> str:
    """Return all metrics as they are now. usages: one for each process. statistics_ages: in seconds, by table."""
    samples: dict[Metric, Iterable[Sample]] = {
        STATISTICS_AGE: [("", {"table": table}, age_s) for table, age_s in sorted(statistics_ages.items())],
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
        **_of_queries(usage.queries),
        PARITY: [("", {"outcome": outcome}, count) for outcome, count in usage.parity.items()],
        SESSIONS: [("", {"protocol": protocol}, count) for protocol, count in usage.sessions.items()],
        ENGINE_STARTS: [
            ("", {"engine": name}, status.starts) for name, status in usage.engines.items() if status.starts is not None
        ],
        ENGINE_UP: [("", {"engine": name}, int(status.alive)) for name, status in usage.engines.items()],
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


def _of_queries(sums: QuerySums) -> dict[Metric, list[Sample]]:
    def histograms(by_engine: Mapping[str, Histogram]) -> list[Sample]:
        return [
            sample
            for engine, counted in by_engine.items()
            for sample in _histogram({"engine": engine}, counted.bounds, counted.up_to, counted.total)
        ]

    return {
        QUERIES: [
            ("", {"engine": engine, "state": state, "reason": reason}, count)
            for (engine, state, reason), count in sums.ended.items()
        ],
        QUERY_SECONDS: histograms(sums.seconds),
        ATTEMPT_FAILURES: [("", {"engine": engine, "code": code}, n) for (engine, code), n in sums.failures.items()],
        FAILOVERS: [("", {"from": failed, "to": took_over}, n) for (failed, took_over), n in sums.failovers.items()],
        PEAK_RATIOS: histograms(sums.ratios),
        PEAK_BOUNDS: [
            ("", {"engine": engine, "within": str(within).lower()}, n) for (engine, within), n in sums.bounds.items()
        ],
        SPENT: [("", {"engine": engine}, seconds) for engine, seconds in sums.spent_s.items()],
        ALONE: [("", {"basis": basis}, seconds) for basis, seconds in sums.alone_s.items()],
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


def _histogram(labels: dict[str, str], bounds: Sequence[float], up_to: Sequence[int], total: float) -> Iterator[Sample]:
    """Yield the samples of a histogram. up_to: counts between each bound and the one before."""
    for bound, count in zip(bounds, itertools.accumulate(up_to), strict=True):
        yield "_bucket", labels | {"le": "+Inf" if math.isinf(bound) else f"{bound:g}"}, count
    yield "_sum", labels, total
    yield "_count", labels, sum(up_to)


def _line(name: str, suffix: str, labels: dict[str, str], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    written = f"{number:.10g}" if isinstance(number, float) else f"{number}"
    return f"{name}{suffix}{{{pairs}}} {written}" if pairs else f"{name}{suffix} {written}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
