"""The sessions and operations that drivers hold, with their limits and their end.

A handle counts only with its secret, from the user who opened the session and, on a connection that stays open, from
that connection; only to cancel, another one of that user will do, which is how impala-shell cancels. Whoever lacks one
of these learns no more than that there is no such handle.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gateway.drivers.hs2.errors import InvalidHandle
from gateway.drivers.hs2.operations import Identifier, Operation
from gateway.drivers.hs2.protocol.messages import OperationHandle, SessionHandle
from gateway.errors import AuthenticationFailed, TooManyOperations, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session, require_room

LARGEST_OPERATIONS = 1_000  # of one session
ABANDONED_S = 8.0  # for which an operation waits for its client to come back
SPARE_S = 10.0  # after which a silent session gives way to another one of its user's
REMEMBERED_OPERATIONS = 16  # of one session, after they were closed: impyla asks for their profile only then

NO_SESSION = "There is no such session; it was closed, it was idle for too long, or it is not yours."
NO_OPERATION = "There is no such operation; it was closed, or it is not yours."


@dataclass(slots=True)
class Peer:
    """Who calls. user: None where the transport asked for no login; connection: None where each call has its own.

    established: it has opened a session. held: what its reply takes until it is sent.
    """

    address: str
    user: Principal | None = None
    connection: object | None = None
    established: bool = False
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


@dataclass(slots=True, eq=False)
class Hs2Session:
    """A driver's session. version: of the protocol, from V1 = 0. peer: who opened it.

    operations: by their public number. closed: some that were. answers: by an operation's number and secret.
    abandoned: when the client left that waited for an operation, by the operation's number.
    """

    session: Session
    peer: Peer
    version: int
    is_impala_shell: bool = False
    identifier: Identifier = field(default_factory=Identifier)
    operations: dict[bytes, Operation] = field(default_factory=dict)
    answers: dict[bytes, bytes] = field(default_factory=dict)
    abandoned: dict[bytes, float] = field(default_factory=dict)
    closed: deque[Operation] = field(default_factory=lambda: deque(maxlen=REMEMBERED_OPERATIONS))

    def belongs_to(self, peer: Peer, *, any_connection: bool = False) -> bool:
        """Tell whether a caller is the one who opened it. any_connection: that of the same user counts, too."""
        same_user = (peer.user and peer.user.account) == (self.peer.user and self.peer.user.account)
        return same_user and (any_connection or peer.connection is self.peer.connection)


class Registry:
    """All sessions and operations. Thread-safe.

    current: returns a user as it is now, or raises AuthenticationFailed.
    """

    def __init__(self, limits: Limits, current: Callable[[Principal], Principal]) -> None:
        self._limits = limits
        self._current = current
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Hs2Session] = {}
        self._by_operation: dict[bytes, Hs2Session] = {}

    def open(self, session: Session, peer: Peer, version: int) -> Hs2Session:
        """Add a session; where there is no room, one that nobody seems to use gives way. Raises TooManySessions."""
        opened = Hs2Session(session, peer, version)
        spare = None
        with self._lock:
            try:
                require_room((each.session for each in self._sessions.values()), session.principal, self._limits)
            except TooManySessions:
                spare = self._spare(session.principal)
                if spare is None:
                    raise
                del self._sessions[spare.identifier.guid]
            self._sessions[opened.identifier.guid] = opened
        if spare is not None:
            self.close_session(spare)
        peer.established = True
        return opened

    def _spare(self, user: Principal) -> Hs2Session | None:
        """Return the session of a user that is silent for longest, has nothing running, and no connection to end it."""
        spare = [
            each
            for each in self._sessions.values()
            if each.session.principal.account == user.account
            and each.peer.connection is None
            and each.session.idle_s > SPARE_S
            and all(operation.done.done() for operation in each.operations.values())
        ]
        return max(spare, key=lambda each: each.session.idle_s, default=None)

    def session(self, handle: SessionHandle | None, peer: Peer) -> Hs2Session:
        """Return the session of a handle. Raises InvalidHandle."""
        told = handle.identifier if handle else None
        with self._lock:
            found = self._sessions.get(told.guid) if told and told.guid else None
        if found is None or told is None or not found.identifier.fits(told) or not found.belongs_to(peer):
            raise InvalidHandle(NO_SESSION)
        self._require_current(found)
        found.session.touch()
        return found

    def _require_current(self, session: Hs2Session) -> None:
        """Take note of what a session's user may do now. Raises AuthenticationFailed, where it ends the session."""
        try:
            session.session.principal = self._current(session.session.principal)
        except AuthenticationFailed:
            self.close_session(session)
            raise

    def _is_current(self, session: Hs2Session) -> bool:
        try:
            self._current(session.session.principal)
        except AuthenticationFailed:
            return False
        return True

    def add(self, session: Hs2Session, operation: Operation) -> None:
        """Add an operation to its session. Raises InvalidHandle where the session was closed meanwhile."""
        with self._lock:
            is_open = session.identifier.guid in self._sessions
            full = len(session.operations) >= LARGEST_OPERATIONS
            if is_open and not full:
                session.operations[operation.identifier.guid] = operation
                self._by_operation[operation.identifier.guid] = session
                return
        operation.close()
        if not is_open:
            raise InvalidHandle(NO_SESSION)
        raise TooManyOperations(f"A session has {LARGEST_OPERATIONS:,} operations at most; close some.")

    def operation(
        self, handle: OperationHandle | None, peer: Peer, *, any_connection: bool = False
    ) -> tuple[Hs2Session, Operation]:
        """Return the operation of a handle, and its session. Raises InvalidHandle."""
        told = handle.identifier if handle else None
        with self._lock:
            session = self._by_operation.get(told.guid) if told and told.guid else None
            found = session.operations.get(told.guid) if session and told and told.guid else None
        if session is None or found is None or told is None:
            raise InvalidHandle(NO_OPERATION)
        if not found.identifier.fits(told) or not session.belongs_to(peer, any_connection=any_connection):
            raise InvalidHandle(NO_OPERATION)
        self._require_current(session)
        session.session.touch()
        session.abandoned.pop(found.identifier.guid, None)
        return session, found

    def keep_answer(self, session: Hs2Session, operation: Operation, answer: bytes) -> None:
        """Keep the answer to a question about an operation that will be asked again, and answered alike."""
        session.answers[operation.identifier.guid + operation.identifier.secret] = answer

    def kept_answer(self, guid: bytes, secret: bytes, peer: Peer) -> bytes | None:
        """Return the answer that was kept, None where there is none, or none for this caller."""
        session = self._by_operation.get(guid)
        if session is None or not session.belongs_to(peer) or not self._is_current(session):
            return None
        answer = session.answers.get(guid + secret)
        if answer is not None:
            session.session.touch()
            session.abandoned.pop(guid, None)
        return answer

    def abandon(self, session: Hs2Session, operation: Operation) -> None:
        """Note that the client left that waited for an operation; it ends soon, unless somebody asks for it again."""
        with self._lock:
            if operation.identifier.guid in session.operations:
                session.abandoned[operation.identifier.guid] = time.monotonic()

    def ended_operation(
        self, handle: OperationHandle | None, session_handle: SessionHandle | None, peer: Peer
    ) -> Operation:
        """Return the operation of a handle, even if it was closed a short time ago. Raises InvalidHandle."""
        told = handle.identifier if handle else None
        session = self.session(session_handle, peer)
        with self._lock:
            for each in (*session.operations.values(), *session.closed):
                if told is not None and each.identifier.guid == told.guid and each.identifier.fits(told):
                    return each
        raise InvalidHandle(NO_OPERATION)

    def close_operation(self, session: Hs2Session, operation: Operation) -> None:
        """Forget an operation, and end it."""
        with self._lock:
            if session.operations.pop(operation.identifier.guid, None) is not None and operation.run is not None:
                session.closed.append(operation)
            self._by_operation.pop(operation.identifier.guid, None)
            session.answers.pop(operation.identifier.guid + operation.identifier.secret, None)
            session.abandoned.pop(operation.identifier.guid, None)
        operation.close()

    def close_session(self, session: Hs2Session) -> None:
        """Forget a session with all that it has under way."""
        with self._lock:
            self._sessions.pop(session.identifier.guid, None)
            operations = list(session.operations.values())
            session.operations.clear()
            for operation in operations:
                self._by_operation.pop(operation.identifier.guid, None)
        for operation in operations:
            operation.close()

    def close_idle(self) -> None:
        """Close sessions that are idle for too long or whose user is gone, and operations that nobody came back to."""
        with self._lock:
            idle = [
                each
                for each in self._sessions.values()
                if each.session.idle_s > self._limits.idle_s or not self._is_current(each)
            ]
            lost = [(session, operation) for session in self._sessions.values() for operation in _lost(session)]
        for session, operation in lost:
            self.close_operation(session, operation)
        for session in idle:
            self.close_session(session)

    def close_all(self, connection: object | None = None) -> None:
        """Close the sessions of a connection that is gone, or all of them."""
        with self._lock:
            chosen = [each for each in self._sessions.values() if connection in (None, each.peer.connection)]
        for session in chosen:
            self.close_session(session)

    def running(self) -> int:
        """Return how many operations have not ended."""
        with self._lock:
            sessions = list(self._sessions.values())
            return sum(not operation.done.done() for each in sessions for operation in each.operations.values())

    def count(self) -> int:
        """Return how many sessions are open."""
        with self._lock:
            return len(self._sessions)


def _lost(session: Hs2Session) -> Iterator[Operation]:
    """Yield operations whose client left and did not come back; while a client waits in the session, none is."""
    now = time.monotonic()
    for guid, since in list(session.abandoned.items()):
        if session.session.idle_s == 0.0:
            session.abandoned[guid] = now
        elif since < now - ABANDONED_S and guid in session.operations:
            yield session.operations[guid]
