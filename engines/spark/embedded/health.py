"""The embedded server's health: leftovers of ended statements, a full heap, a server that does not answer.

A thread that matches a regular expression, or computes any other row for hours, cannot be interrupted. So a server is
restarted if something still runs for a statement that has ended, if its heap stays full, or if it does not answer.
A leftover holds a core or two; while other cores are free, the server is restarted between statements. Statements that
run on it anyway are lost, and the gateway runs them again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from engines.errors import EngineError
from engines.spark.embedded.gate import Gate
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.embedded.web_ui import Heap, WebUi, tag_of

_log = logging.getLogger(__name__)

MIB = 1024 * 1024
PROBE = "SELECT one FROM VALUES (1) AS probe(one) LIMIT 1"
"""Planned and answered without a task, as a task could wait behind those of others."""

COLLECT = "SELECT reflect('java.lang.System', 'gc')"
OWN_DEADLINE_S = 60.0
_LEFT = "something that cannot be interrupted still runs for a statement that has ended"


@dataclass(frozen=True, slots=True)
class HealthThresholds:
    """Intervals and limits of the health checks."""

    look_every_s: float = 2.0
    """Interval of the checks for leftovers."""
    suspect_for_s: float = 60.0
    """Time after a statement was ended in which it is checked for leftovers."""
    lingers_s: float = 12.0
    """A leftover that runs so long will not end."""
    spare_s: float = 600.0
    """Longest time of a leftover beside other statements; meanwhile, the server is restarted once no statement runs."""
    drain_again_s: float = 120.0
    """Interval in which statements are kept out, to restart the server because of a leftover."""
    heap_every_s: float = 10.0
    """Interval of the checks of the heap."""
    full_share: float = 0.6
    """Share of the heap in use after a collection at which it counts as full."""
    full_again_s: float = 300.0
    """Interval in which a full heap is handled again."""
    probe_after_s: float = 30.0
    """Time without a successful statement after which a probe is sent."""
    probes: int = 2
    """Failed probes after which the server is restarted."""
    drain_s: float = 20.0
    """Limit of the wait for statements to end before a restart."""


class HealthWatch:
    """Watches one server in its own thread. Thread-safe.

    run: runs a statement of the gateway without the gate; raises EngineError.
    """

    def __init__(
        self,
        server: SparkConnectServer,
        gate: Gate,
        run: Callable[[str], object],
        *,
        thresholds: HealthThresholds | None = None,
    ) -> None:
        self._server = server
        self._gate = gate
        self._run = run
        self._thresholds = thresholds or HealthThresholds()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._started = False
        self._ended: dict[str, float] = {}  # tags of ended statements, until when they are checked
        self._leftovers: dict[str, float] = {}  # since when
        self._next_drain_s = 0.0
        self._served_at_s = time.monotonic()
        self._heap: Heap | None = None
        self._collected_at_s = time.monotonic()
        self._next_heap_s = 0.0
        self._not_full_before_s = 0.0
        self._failed_probes = 0

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="spark-health", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def suspect(self, tag: str) -> None:
        """Check for leftovers of the statement with this tag, which was ended while it ran."""
        with self._lock:
            self._ended[tag] = time.monotonic() + self._thresholds.suspect_for_s

    def served(self) -> None:
        """Record that a statement succeeded: the server works."""
        self._served_at_s = time.monotonic()
        self._failed_probes = 0

    @property
    def answers(self) -> bool:
        """True if the server answered the last probe."""
        return self._failed_probes == 0

    def describe(self) -> str:
        """Return the state in one line."""
        if not self.answers:
            return f"no answer to a statement for {time.monotonic() - self._served_at_s:.0f} s"
        heap = self._heap
        if heap is None:
            return "running"
        ago_s = time.monotonic() - self._collected_at_s
        return (
            f"running; heap {heap.used_bytes // MIB} of {heap.max_bytes // MIB} MiB in use, {heap.live_bytes // MIB} "
            f"after the last collection; {heap.full_collections} full ones, the last seen {ago_s:.0f} s ago"
        )

    def _watch(self) -> None:
        while not self._stop.wait(self._thresholds.look_every_s):
            for tag in self._server.take_lost():
                self.suspect(tag)
            web_ui = self._server.web_ui()
            if web_ui is None:  # it does not run: the collected state was another server's
                self._forget()
                continue
            try:
                self._look_for_leftovers(web_ui)
                self._look_at_heap(web_ui)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                _log.debug("Spark's web UI does not answer, or not as it should: %s", error)
            self._probe()

    def _suspects(self) -> set[str]:
        """Return the tags of statements that may have leftovers."""
        now_s = time.monotonic()
        with self._lock:
            self._ended = {tag: until_s for tag, until_s in self._ended.items() if until_s > now_s or self._leftovers}
            return set(self._ended)

    def _look_for_leftovers(self, web_ui: WebUi) -> None:
        suspects = self._suspects()
        if not suspects:
            return
        threads = web_ui.threads()
        names = {name for name, tags in threads.orphans.items() if not tags or suspects & set(map(tag_of, tags))}
        names |= {f"statement {place}" for place in range(threads.statements - self._gate.inside)}
        now_s = time.monotonic()
        self._leftovers = {name: self._leftovers.get(name, now_s) for name in names}
        stuck = [since_s for since_s in self._leftovers.values() if now_s - since_s > self._thresholds.lingers_s]
        if not stuck:
            self._next_drain_s = 0.0
        elif len(stuck) >= self._server.settings.cores:
            self._restart(f"{_LEFT}, on all cores")
        elif now_s - min(stuck) > self._thresholds.lingers_s + self._thresholds.spare_s:
            self._restart(_LEFT)
        elif not self._gate.inside or now_s > self._next_drain_s:
            self._restart(_LEFT, only_between=True)
            self._next_drain_s = time.monotonic() + self._thresholds.drain_again_s

    def _look_at_heap(self, web_ui: WebUi) -> None:
        now_s = time.monotonic()
        if now_s < self._next_heap_s:
            return
        self._next_heap_s = now_s + self._thresholds.heap_every_s
        heap = web_ui.heap()
        if self._heap is None or heap.full_collections != self._heap.full_collections:
            self._collected_at_s = now_s
        self._heap = heap
        if self._is_full(heap) and now_s > self._not_full_before_s:
            self._not_full_before_s = now_s + self._thresholds.full_again_s
            self._make_room(web_ui)

    def _make_room(self, web_ui: WebUi) -> None:
        """Collect the heap once no statement runs; restart the server if it stays full."""
        with self._gate.closed(wait_s=self._thresholds.drain_s) as empty:
            if not empty:
                return  # running statements may use the heap
            try:
                self._run(COLLECT)
            except EngineError as error:
                _log.warning("Spark's heap could not be collected: %s", error.message)
                return
            heap = web_ui.heap()
            if self._is_full(heap):
                self._server.restart(f"{heap.live_bytes // MIB} MiB of its heap are kept though no statement runs")

    def _is_full(self, heap: Heap) -> bool:
        return heap.live_bytes > self._thresholds.full_share * heap.max_bytes

    def _probe(self) -> None:
        """Run a probe if no statement succeeded for a while."""
        busy = self._gate.inside or self._suspects()
        if not busy:
            self._served_at_s = time.monotonic()  # nobody waits
        if time.monotonic() - self._served_at_s < self._thresholds.probe_after_s * (1 + self._failed_probes):
            return
        try:
            self._run(PROBE)
        except EngineError as error:
            self._failed_probes += 1
            _log.warning("Spark did not answer a statement: %s", error.message)
            if self._failed_probes >= self._thresholds.probes:
                self._restart("it does not answer statements")
        else:
            self.served()

    def _restart(self, reason: str, *, only_between: bool = False) -> None:
        """Restart the server once no statement runs, or after a while. only_between: never under a statement."""
        with self._gate.closed(wait_s=self._thresholds.drain_s) as empty:
            if only_between and not empty:
                _log.info("Spark is not restarted yet, as statements are running: %s", reason)
                return
            self._server.restart(reason)
        self._forget()

    def _forget(self) -> None:
        """Reset the state after a server is gone."""
        with self._lock:
            self._ended = {}
        self._leftovers, self._heap, self._failed_probes = {}, None, 0
        self._served_at_s, self._next_drain_s = time.monotonic(), 0.0
