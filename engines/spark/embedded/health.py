"""The embedded server's health: what is left of statements that ended, how full its heap is, whether it answers at all.

A thread that matches a regular expression, or computes any other row of hours, cannot be interrupted. So a server on
which something goes on running for a statement that has ended is started again, and so is one whose heap stays full
and one that no longer answers. What is left of a statement holds a core or two; as long as others have some, the
server is started again between statements. Those that run on it all the same are lost, and whoever sent them runs them
again.
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
"""Planned and answered without a task: one that waits behind those of others would show nothing."""

COLLECT = "SELECT reflect('java.lang.System', 'gc')"
OWN_DEADLINE_S = 60.0
_LEFT = "something that cannot be interrupted still runs for a statement that has ended"


@dataclass(frozen=True, slots=True)
class HealthThresholds:
    """When to look, and what is too much.

    look_every_s: at what runs after statements that were ended, for suspect_for_s. lingers_s: a rest that runs this
    long stays. spare_s: how long that may go on beside others, who have a core at least; meanwhile the server is
    started again as soon as no statement runs, and others are kept out for that once in drain_again_s. heap_every_s:
    at the heap; full_share of it is too much to be in use once all garbage is gone, and looked at again after
    full_again_s. probe_after_s: without a statement that ended well; probes: that may fail. drain_s: for others to end
    before a server is started again.
    """

    look_every_s: float = 2.0
    suspect_for_s: float = 60.0
    lingers_s: float = 12.0
    spare_s: float = 600.0
    drain_again_s: float = 120.0
    heap_every_s: float = 10.0
    full_share: float = 0.6
    full_again_s: float = 300.0
    probe_after_s: float = 30.0
    probes: int = 2
    drain_s: float = 20.0


class HealthWatch:
    """Looks after one server, in a thread of its own. Thread-safe.

    run: runs one of our own statements past the gate; raises EngineError.
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
        self._ended: dict[str, float] = {}  # tags of statements that were ended, until when they are suspect
        self._left: dict[str, float] = {}  # what is left of them, since when
        self._next_drain_s = 0.0
        self._served_at_s = time.monotonic()
        self._heap: Heap | None = None
        self._collected_at_s = time.monotonic()
        self._next_heap_s = 0.0
        self._not_full_before_s = 0.0
        self._failed_probes = 0

    def start(self) -> None:
        """Begin, once."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="spark-health", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def suspect(self, tag: str) -> None:
        """Note that the statement with this tag was ended before its end: something may be left of it."""
        with self._lock:
            self._ended[tag] = time.monotonic() + self._thresholds.suspect_for_s

    def served(self) -> None:
        """Note that a statement came to its own end: the server works."""
        self._served_at_s = time.monotonic()
        self._failed_probes = 0

    @property
    def answers(self) -> bool:
        """Whether the server answered the last statement that was to show it."""
        return self._failed_probes == 0

    def describe(self) -> str:
        """Return what is known, in a line."""
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
            if web_ui is None:  # it does not run: what was known was about another one
                self._forget()
                continue
            try:
                self._look_for_leftovers(web_ui)
                self._look_at_heap(web_ui)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                _log.debug("Spark's web UI does not answer, or not as it should: %s", error)
            self._probe()

    def _suspects(self) -> set[str]:
        """Return the tags of statements of which something may be left."""
        now_s = time.monotonic()
        with self._lock:
            self._ended = {tag: until_s for tag, until_s in self._ended.items() if until_s > now_s or self._left}
            return set(self._ended)

    def _look_for_leftovers(self, web_ui: WebUi) -> None:
        suspects = self._suspects()
        if not suspects:
            return
        threads = web_ui.threads()
        left = {name for name, tags in threads.orphans.items() if not tags or suspects & set(map(tag_of, tags))}
        left |= {f"statement {place}" for place in range(threads.statements - self._gate.inside)}
        now_s = time.monotonic()
        self._left = {name: self._left.get(name, now_s) for name in left}
        stuck = [since_s for since_s in self._left.values() if now_s - since_s > self._thresholds.lingers_s]
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
        """Once no statement runs, collect the heap; start the server again if that does not help."""
        with self._gate.closed(wait_s=self._thresholds.drain_s) as empty:
            if not empty:
                return  # what is in use may be theirs
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
        """Run a statement where nothing else shows that statements are answered."""
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
        """Start the server again once no statement runs, or after a while. only_between: not under one."""
        with self._gate.closed(wait_s=self._thresholds.drain_s) as empty:
            if only_between and not empty:
                _log.info("Spark is not started again yet, for statements run: %s", reason)
                return
            self._server.restart(reason)
        self._forget()

    def _forget(self) -> None:
        """Forget what was known about a server that is gone."""
        with self._lock:
            self._ended = {}
        self._left, self._heap, self._failed_probes = {}, None, 0
        self._served_at_s, self._next_drain_s = time.monotonic(), 0.0
