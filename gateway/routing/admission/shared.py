"""One admission for several processes: the supervisor holds it (``Ledger``), the others call it (``SharedAdmission``).

Whatever a process holds is held by a connection of its own, which ends with the process, however that ends.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from engines.machine.sharing import Caller, Function, Holder
from engines.protocol import Lease, never
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.usage import History, Of, WaitCounts
from gateway.routing.admission.values import AdmissionState, EngineBudget, Leased, Pool, Request, Waiting

Ticket: TypeAlias = tuple[str, int]
"""Who asks for a lease: a process that is alive, by a name that no other one has, and a number of its own."""

LEASE = "admission.lease"
_FORWARDED = ("waiting", "congestion", "long_at", "describe", "leases", "usage", "waited", "refusals")


class DifferentBudgets(Exception):
    """A process has other engines or pools than those that share the admission already."""


class Ledger:
    """The admission that all processes share. Thread-safe; begins with the first process that tells what there is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._configuration: tuple[tuple[EngineBudget, ...], tuple[Pool, ...]] | None = None
        self._admission: Admission | None = None
        self._asking: dict[Ticket, str] = {}  # the query of each lease that is asked for or held
        self._given_up: set[Ticket] = set()

    @property
    def admission(self) -> Admission:
        """The admission, once a process has told what there is to lease."""
        assert self._admission is not None
        return self._admission

    def functions(self) -> Mapping[str, Function]:
        """Return the functions that processes may call."""
        forwarded = {f"admission.{name}": self._function_of(name) for name in _FORWARDED}
        return {"admission.configure": self._configure, "admission.give_up": self._give_up, **forwarded}

    def holders(self) -> Mapping[str, Holder]:
        """Return the resources that processes may hold."""
        return {LEASE: self._lease}

    def forget(self, process: str) -> None:
        """Have nobody wait any more for a process that has ended; what it holds ends with its connections."""
        with self._lock:
            queries = {query for (owner, _), query in self._asking.items() if owner == process}
        for query in queries:
            self.admission.wake(query)

    def _configure(self, engines: Iterable[EngineBudget], pools: Iterable[Pool]) -> None:
        configuration = tuple(engines), tuple(pools)
        with self._lock:
            if self._configuration is None:
                self._configuration, self._admission = configuration, Admission(*configuration)
            if self._configuration != configuration:
                raise DifferentBudgets("The processes of a gateway have different engines or pools.")

    def _function_of(self, name: str) -> Function:
        def ask(*arguments: Any) -> Any:
            return getattr(self.admission, name)(*arguments)

        return ask

    def _give_up(self, process: str, number: int, query_id: str) -> None:
        with self._lock:
            self._given_up.add((process, number))
        self.admission.wake(query_id)

    @contextmanager
    def _lease(
        self, has_left: Callable[[], bool], process: str, number: int, request: Request, wait_s: float
    ) -> Iterator[tuple[Lease, Mapping[str, Function]]]:
        ticket = process, number

        def given_up() -> bool:
            return ticket in self._given_up or has_left()

        with self._lock:
            self._asking[ticket] = request.query_id
        try:
            with self.admission.lease(request, wait_s=wait_s, cancelled=given_up) as grant:
                yield grant.lease, {"raise_to": grant.raise_to}
        finally:
            with self._lock:
                del self._asking[ticket]
                self._given_up.discard(ticket)


class _SharedGrant(Grant):
    """Lease that a statement of this process holds in the shared admission. Thread-safe."""

    def __init__(self, lease: Lease, call: Function) -> None:
        self._lease = lease
        self._call = call
        self._lock = threading.Lock()
        self._released = False

    @property
    def lease(self) -> Lease:
        """Resources that the statement may use now."""
        return self._lease

    def raise_to(self, total_bytes: int) -> bool:
        """See ``Grant.raise_to``."""
        with self._lock:
            if self._released or not self._call("raise_to", total_bytes):
                return False
            self._lease = replace(self._lease, memory_bytes=max(total_bytes, self._lease.memory_bytes))
            return True

    def end(self) -> None:
        """Refuse raises from now on."""
        with self._lock:
            self._released = True


class SharedAdmission(Admission):
    """The admission of several processes as one of them sees it. Thread-safe.

    process: a name that no other process has, nor had. What is leased and who waits is asked for; what there is of
    engines and pools is known here, too.
    """

    def __init__(
        self, caller: Caller, process: str, engines: Iterable[EngineBudget], pools: Iterable[Pool] = ()
    ) -> None:
        budgets, limits = tuple(engines), tuple(pools)
        super().__init__(budgets, limits)
        self._caller = caller
        self._process = process
        self._leases = itertools.count(1)
        self._asking: dict[int, tuple[str, Callable[[], bool]]] = {}
        caller.call("admission.configure", budgets, limits)

    @contextmanager
    def lease(self, request: Request, *, wait_s: float, cancelled: Callable[[], bool] = never) -> Iterator[Grant]:
        """See ``Admission.lease``."""
        number = next(self._leases)
        with self._lock:
            self._asking[number] = request.query_id, cancelled
        try:
            with self._caller.held(LEASE, self._process, number, request, wait_s) as (lease, call):
                grant = _SharedGrant(lease, call)
                try:
                    yield grant
                finally:
                    grant.end()
        finally:
            with self._lock:
                del self._asking[number]

    def wake(self, query_id: str) -> None:
        """See ``Admission.wake``."""
        with self._lock:
            asking = [(number, cancelled) for number, (query, cancelled) in self._asking.items() if query == query_id]
        for number, cancelled in asking:
            if cancelled():
                self._caller.call("admission.give_up", self._process, number, query_id)

    def waiting(self) -> tuple[Waiting, ...]:
        """See ``Admission.waiting``."""
        reply: tuple[Waiting, ...] = self._ask("waiting")
        return reply

    def congestion(self, request: Request) -> tuple[float, float]:
        """See ``Admission.congestion``."""
        reply: tuple[float, float] = self._ask("congestion", request)
        return reply

    def long_at(self, engine: str) -> int:
        """See ``Admission.long_at``."""
        reply: int = self._ask("long_at", engine)
        return reply

    def describe(self) -> AdmissionState:
        """See ``Admission.describe``."""
        reply: AdmissionState = self._ask("describe")
        return reply

    def leases(self) -> tuple[Leased, ...]:
        """See ``Admission.leases``."""
        reply: tuple[Leased, ...] = self._ask("leases")
        return reply

    def usage(self, of: Of, name: str) -> History:
        """See ``Admission.usage``."""
        reply: History = self._ask("usage", of, name)
        return reply

    def waited(self) -> dict[tuple[str, str], WaitCounts]:
        """See ``Admission.waited``."""
        reply: dict[tuple[str, str], WaitCounts] = self._ask("waited")
        return reply

    def refusals(self) -> dict[tuple[str, str, str], int]:
        """See ``Admission.refusals``."""
        reply: dict[tuple[str, str, str], int] = self._ask("refusals")
        return reply

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._caller.call(f"admission.{name}", *arguments)
