"""Leases, waits and refusals as Prometheus reads them: its text format, version 0.0.4."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gateway.routing.admission.admission import Admission
from gateway.routing.admission.usage import WAIT_BOUNDS_S
from gateway.routing.admission.values import AdmissionState

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample: TypeAlias = tuple[str, dict[str, str], float]
"""What follows the metric's name, labels, and the value."""


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
METRICS = (
    *(ENGINE_BYTES, ENGINE_CAPACITY, ENGINE_SLOTS, ENGINE_WAITING),
    *(POOL_BYTES, POOL_SLOTS, POOL_WAITING, WAITS, REFUSALS),
)


def metrics_text(admission: Admission) -> str:
    """Return all metrics as they are now."""
    state = admission.describe()
    gauges = _gauges(state)
    samples: dict[Metric, Iterable[Sample]] = {
        **gauges,
        WAITS: _waits(admission),
        REFUSALS: [
            ("", {"engine": engine, "pool": pool, "code": code}, count)
            for (engine, pool, code), count in sorted(admission.refusals().items())
        ],
    }
    lines: list[str] = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [_line(metric.name, *sample) for sample in samples[metric]]
    return "\n".join(lines) + "\n"


def _gauges(state: AdmissionState) -> dict[Metric, list[Sample]]:
    engines = [({"engine": each.budget.name}, each) for each in state.engines]
    pools = [({"pool": each.pool.name}, each) for each in state.pools]
    return {
        ENGINE_BYTES: [("", name, each.bytes_held) for name, each in engines],
        ENGINE_CAPACITY: [
            ("", name, capacity) for name, each in engines if (capacity := each.budget.capacity_bytes) is not None
        ],
        ENGINE_SLOTS: [("", name, each.slots_held) for name, each in engines],
        ENGINE_WAITING: [("", name, each.waiting) for name, each in engines],
        POOL_BYTES: [("", name, each.bytes_held) for name, each in pools],
        POOL_SLOTS: [("", name, each.slots_held) for name, each in pools],
        POOL_WAITING: [("", name, each.waiting) for name, each in pools],
    }


def _waits(admission: Admission) -> Iterator[Sample]:
    for (engine, pool), counts in sorted(admission.waited().items()):
        labels = {"engine": engine, "pool": pool}
        for bound_s, count in zip(WAIT_BOUNDS_S, itertools.accumulate(counts.up_to), strict=True):
            yield "_bucket", labels | {"le": "+Inf" if math.isinf(bound_s) else f"{bound_s:g}"}, count
        yield "_sum", labels, counts.total_s
        yield "_count", labels, sum(counts.up_to)


def _line(name: str, ending: str, labels: dict[str, str], number: float) -> str:
    told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return (
        f"{name}{ending}{{{told}}} {number:.10g}" if isinstance(number, float) else f"{name}{ending}{{{told}}} {number}"
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
