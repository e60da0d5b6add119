"""Several coordinators: statements take turns over those that answer; one that does not is left alone for a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from engines.errors import EngineBusy, EngineError, EngineUnavailable, UserRefused
from engines.impala.connection import Access, Address, Connection
from engines.impala.errors import impala_errors

log = logging.getLogger(__name__)

REST_S = 5.0  # after the first failure in a row; twice as long after each further one
LONGEST_REST_S = 60.0
IDLE_S = 60.0
IDLE_CONNECTIONS = 8  # that one coordinator keeps open for the next statements


class Coordinator:
    """One impalad, its idle connections and its breaker. Thread-safe."""

    def __init__(self, address: Address, access: Access) -> None:
        self.address = address
        self._access = access
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._failures = 0
        self._rests_until_s = 0.0
        self._closed = False
        self.answers: bool | None = None
        """It answered when it was asked last; None: it was not asked yet."""
        self.last_failure = ""

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def resting(self) -> bool:
        """Tell whether statements go elsewhere for now."""
        with self._lock:
            return time.monotonic() < self._rests_until_s

    def connect(self, *, fresh: bool = False) -> tuple[Connection, bool]:
        """Return a connection, and whether it was used before. fresh: never one that was. Raises EngineUnavailable."""
        while not fresh and (idle := self._pop()) is not None:
            if time.monotonic() - idle.idle_since_s < IDLE_S:
                return idle, True
            idle.close()
        try:
            with impala_errors():
                return Connection(self.address, self._access), False
        except EngineError as error:
            refused = EngineUnavailable(f"{self} did not open a session: {error.message}")
            self.failed(refused)
            raise refused from None

    def connect_as(self, user: str) -> Connection:
        """Return a new session that acts for a user. Raises UserRefused, EngineUnavailable."""
        try:
            with impala_errors():
                return Connection(self.address, self._access, user)
        except (EngineBusy, EngineUnavailable) as error:
            refused = EngineUnavailable(f"{self} did not open a session: {error.message}")
            self.failed(refused)
            raise refused from None
        except EngineError as error:  # of this user, so that others go on with the coordinator
            raise UserRefused(f"Impala opened no session for the user {user}: {error.message}") from None

    def give_back(self, connection: Connection) -> None:
        """Keep a healthy connection for the next statement; one that acts for a user is closed."""
        if connection.user is not None:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def check(self) -> None:
        """Open a session of its own and close it again; whoever does not answer is left alone, or still is."""
        try:
            connection, _ = self.connect(fresh=True)
        except EngineUnavailable:
            return
        connection.close()
        self.succeeded()

    def succeeded(self) -> None:
        """Note that it works."""
        with self._lock:
            self._failures, self._rests_until_s = 0, 0.0
            self.answers = True

    def failed(self, error: EngineError) -> None:
        """Note that it could not be reached or was lost; its idle connections are worth nothing any more."""
        with self._lock:
            rest_s = min(LONGEST_REST_S, REST_S * 2.0**self._failures)
            self._failures += 1
            self.answers = False
            self._rests_until_s = time.monotonic() + rest_s
            self.last_failure = error.message
            idle, self._idle = self._idle, []
        log.warning("Impala's coordinator %s is left alone for %.0f s: %s", self, rest_s, error.message)
        for connection in idle:
            connection.break_off()
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and those that come back later."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _pop(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


class Coordinators:
    """All coordinators of one Impala, and a thread that looks after them. check_s: between two looks."""

    def __init__(self, addresses: Sequence[Address], access: Access, *, check_s: float) -> None:
        self.all = tuple(Coordinator(address, access) for address in addresses)
        self._lock = threading.Lock()
        self._turn = 0
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._look_after, args=(check_s,), name="impala-health", daemon=True)
        self._watch.start()

    def in_turn(self) -> tuple[Coordinator, ...]:
        """Return those that answer, the next one in turn first. Raises EngineUnavailable where none does."""
        if self._closed.is_set():
            raise EngineUnavailable("Impala's adapter was closed.")
        with self._lock:
            self._turn = (self._turn + 1) % len(self.all)
            turned = self.all[self._turn :] + self.all[: self._turn]
        awake = tuple(coordinator for coordinator in turned if not coordinator.resting)
        if not awake:
            raise EngineUnavailable(f"No coordinator of Impala answers: {self.all[0].last_failure}")
        return awake

    def describe(self) -> tuple[int, str]:
        """Return how many answer or were not asked yet, and one line about them.

        One that did not answer counts as silent until it does, also once its rest is over.
        """
        silent = [coordinator for coordinator in self.all if coordinator.answers is False]
        unasked = sum(coordinator.answers is None for coordinator in self.all)
        able = len(self.all) - len(silent)
        detail = f"{able - unasked} of {len(self.all)} coordinators answer"
        if unasked:
            detail += f", {unasked} not asked yet"
        return able, f"{detail}; {silent[0]}: {silent[0].last_failure}" if silent else detail

    @property
    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._closed.set()
        for coordinator in self.all:
            coordinator.close()

    def _look_after(self, check_s: float) -> None:
        while not self._closed.is_set():
            for coordinator in self.all:
                if not self._closed.is_set():
                    coordinator.check()
            self._closed.wait(check_s)
