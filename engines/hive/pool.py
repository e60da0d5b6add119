"""A pool of sessions over several servers, of which any may be gone."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from engines.errors import EngineBusy, EngineError, EngineUnavailable, UserRefused
from engines.hive.errors import hive_errors
from engines.hive.session import Session
from engines.hive.transport import Access, Address

log = logging.getLogger(__name__)

_STATUS_TIMEOUT_S = 0.5


class SessionPool:
    """Sessions on the server that answered last, or on the next one that answers. Thread-safe.

    keep: idle sessions at most.
    idle_s: time after which an idle session is closed.
    """

    def __init__(
        self, addresses: Sequence[Address], access: Access, settings: Mapping[str, str], *, keep: int, idle_s: float
    ) -> None:
        self._addresses = tuple(addresses)
        self._access = access
        self._settings = dict(settings)
        self._keep = keep
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._first = 0  # the address that answered last
        self._closed = threading.Event()
        self._closer = threading.Thread(target=self._close_idle, name="hive-sessions", daemon=True)
        self._closer.start()

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._closed.is_set()

    def take(self, tables_version: int, *, apart: Mapping[str, str] | None = None, user: str | None = None) -> Session:
        """Return a session that answers, without views of other tables. Raises EngineUnavailable, UserRefused.

        apart: extra settings of a new session, which the caller has to mark as ``broken`` in the end.
        user: user as whom a new session acts, and which serves nobody else; None: the gateway's own.
        """
        if apart is not None or user is not None:
            return self._open(tables_version, apart or {}, user)
        while (session := self._pop()) is not None:
            if session.tables_version == tables_version and session.answers():
                return session
            session.close()
        return self._open(tables_version)

    def give_back(self, session: Session) -> None:
        """Keep a healthy session for the next statement; close another one."""
        session.idle_since_s = time.monotonic()
        with self._lock:
            is_anybodys = session.user is None and not session.broken
            if is_anybodys and not self.closed and len(self._idle) < self._keep:
                self._idle.append(session)
                return
        session.close()

    def answering(self) -> tuple[bool, str]:
        """Return True if a server accepts connections, and one line about it; quick, without a session."""
        seen = ""
        for address in self._in_order():
            good, detail = answers(address)
            if good:
                return True, detail
            seen = seen or detail
        return False, seen

    def close(self) -> None:
        """Close the idle sessions, and those that are returned later; may be called twice."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _pop(self) -> Session | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _in_order(self) -> tuple[Address, ...]:
        return self._addresses[self._first :] + self._addresses[: self._first]

    def _open(self, tables_version: int, apart: Mapping[str, str] = {}, user: str | None = None) -> Session:
        if self.closed:
            raise EngineUnavailable("Hive's adapter was closed")
        refused: EngineError | None = None
        for address in self._in_order():
            try:
                with hive_errors():
                    session = Session(address, self._access, {**self._settings, **apart}, tables_version, user)
            except EngineError as error:
                if user is not None and not isinstance(error, EngineBusy | EngineUnavailable):
                    raise UserRefused(f"HiveServer2 opened no session for the user {user}: {error.message}") from None
                log.warning("HiveServer2 %s:%d opened no session: %s", *address, error.message)
                refused = refused or error
                continue
            self._first = self._addresses.index(address)
            return session
        if isinstance(refused, EngineBusy | EngineUnavailable):
            raise refused
        raise EngineUnavailable(f"HiveServer2 opened no session: {refused.message if refused else 'there is none'}")

    def _close_idle(self) -> None:
        while not self._closed.wait(self._idle_s / 4):
            oldest_s = time.monotonic() - self._idle_s
            with self._lock:
                old = [session for session in self._idle if session.idle_since_s < oldest_s]
                self._idle = [session for session in self._idle if session.idle_since_s >= oldest_s]
            for session in old:
                session.close()


def answers(address: Address) -> tuple[bool, str]:
    """Return True if a server accepts connections, and one line about it."""
    host, port = address
    try:
        socket.create_connection(address, timeout=_STATUS_TIMEOUT_S).close()
    except OSError as error:
        return False, f"{host}:{port} does not answer: {error.strerror or error}"
    return True, f"{host}:{port} answers"
