"""Sessions and operations by HiveServer2's handles.

A handle counts only with its secret, from the user who opened the session and, on a connection that stays open, from
that connection; only to cancel, another one of that user will do, which is how impala-shell cancels. Whoever lacks one
of these learns no more than that there is no such handle.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gateway.drivers.hs2.errors import InvalidHandle
from gateway.drivers.hs2.operations import Identifier, Operation
from gateway.drivers.hs2.protocol.messages import HandleIdentifier, OperationHandle, SessionHandle
from gateway.drivers.sessions import DriverSession, SessionStore
from gateway.errors import TooManyOperations
from gateway.security.principals import Principal
from gateway.statements.processes import owner_of_mark
from gateway.statements.session import Limits, Session
from gateway.statements.statement import ID_BYTES, MARK_AT

LARGEST_OPERATIONS = 1_000  # of one session
ABANDONED_S = 8.0  # for which an operation waits for its client to come back
REMEMBERED_OPERATIONS = 16  # of one session, after they were closed: impyla asks for their profile only then

NO_SESSION = "There is no such session; it was closed, it was idle for too long, or it is not yours."
NO_OPERATION = "There is no such operation; it was closed, or it is not yours."


def owner_of(told: HandleIdentifier | None) -> int | None:
    """Return which of several processes made a handle; None of one that none can have made."""
    guid = told.guid if told is not None else None
    return owner_of_mark(guid[MARK_AT]) if guid is not None and len(guid) == ID_BYTES else None


@dataclass(slots=True)
class Peer:
    """Who calls. user: None where the transport asked for no login; connection: None where each call has its own.

    established: it has opened a session. held: what its reply takes until it is sent. afterwards: what may be done once
    it is. agent: over HTTP, what it calls itself. headers: over HTTP, gives those that routing rules look at.
    """

    address: str
    user: Principal | None = None
    connection: object | None = None
    agent: str = ""
    headers: Callable[[], Mapping[str, str]] = dict
    established: bool = False
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    afterwards: Callable[[], None] | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Hs2Session(DriverSession[Operation]):
    """A driver's session. version: of the protocol, from V1 = 0. peer: who opened it.

    tells_dialect: its first statement is going to tell what its client speaks.
    operations: by their public number. closed: some that were. answers: of operations that
    have finished, by number and secret, and whether with their progress.
    abandoned: when the client left that waited for an operation, by the operation's number.
    """

    identifier: Identifier
    peer: Peer
    version: int
    tells_dialect: bool = False
    is_impala_shell: bool = False
    answers: dict[tuple[bytes, bool], bytes] = field(default_factory=dict)
    abandoned: dict[bytes, float] = field(default_factory=dict)
    closed: deque[Operation] = field(default_factory=lambda: deque(maxlen=REMEMBERED_OPERATIONS))

    def belongs_to(self, peer: Peer, *, any_connection: bool = False) -> bool:
        """Tell whether a caller is the one who opened it. any_connection: that of the same user counts, too."""
        same_user = (peer.user and peer.user.account) == (self.peer.user and self.peer.user.account)
        return same_user and (any_connection or peer.connection is self.peer.connection)

    def released(self, handle: bytes, operation: Operation) -> None:
        """Keep an operation that was a query for a while, and nothing else of it."""
        if operation.run is not None:
            self.closed.append(operation)
        for with_progress in (False, True):
            self.answers.pop((handle + operation.identifier.secret, with_progress), None)
        self.abandoned.pop(handle, None)


class Registry(SessionStore[Hs2Session, Operation]):
    """All sessions and operations. Thread-safe.

    current: returns a user as it is now, or raises AuthenticationFailed.
    """

    def __init__(self, limits: Limits, current: Callable[[Principal], Principal]) -> None:
        super().__init__(limits, current, ended=lambda: InvalidHandle(NO_SESSION))

    def open(self, session: Session, peer: Peer, version: int, *, tells_dialect: bool = False) -> Hs2Session:
        """Add a session; where there is no room, one that nobody seems to use gives way. Raises TooManySessions."""
        identifier = Identifier()
        opened = Hs2Session(
            session=session,
            key=identifier.guid,
            identifier=identifier,
            peer=peer,
            version=version,
            tells_dialect=tells_dialect,
        )
        self._add(opened, lambda: self._spare(session.principal, lambda each: each.peer.connection is None))
        peer.established = True
        return opened

    def session(self, handle: SessionHandle | None, peer: Peer) -> Hs2Session:
        """Return the session of a handle. Raises InvalidHandle."""
        told = handle.identifier if handle else None
        found = self._session(told.guid) if told and told.guid else None
        if found is None or told is None or not found.identifier.fits(told) or not found.belongs_to(peer):
            raise InvalidHandle(NO_SESSION)
        self.require_current(found)
        found.session.touch()
        return found

    def add(self, session: Hs2Session, operation: Operation) -> None:
        """Add an operation to its session. Raises InvalidHandle where that was closed meanwhile, TooManyOperations."""

        def make_room() -> list[Operation]:
            if len(session.operations) >= LARGEST_OPERATIONS:
                raise TooManyOperations(f"A session has {LARGEST_OPERATIONS:,} operations at most; close some.")
            return []

        self._hold(session, operation.identifier.guid, operation, make_room)

    def operation(
        self, handle: OperationHandle | None, peer: Peer, *, any_connection: bool = False
    ) -> tuple[Hs2Session, Operation]:
        """Return the operation of a handle, and its session. Raises InvalidHandle."""
        told = handle.identifier if handle else None
        held = self._held(told.guid) if told and told.guid else None
        if held is None or told is None:
            raise InvalidHandle(NO_OPERATION)
        session, found = held
        if not found.identifier.fits(told) or not session.belongs_to(peer, any_connection=any_connection):
            raise InvalidHandle(NO_OPERATION)
        self.require_current(session)
        session.session.touch()
        session.abandoned.pop(found.identifier.guid, None)
        return session, found

    def keep_answer(self, session: Hs2Session, operation: Operation, answer: bytes, *, with_progress: bool) -> None:
        """Keep the answer to a question about an operation that will be asked again, and answered alike."""
        with self._lock:
            if operation.identifier.guid in session.operations:
                session.answers[operation.identifier.guid + operation.identifier.secret, with_progress] = answer

    def kept_answer(
        self, guid: bytes, secret: bytes, peer: Peer, user: Principal | None = None, *, with_progress: bool
    ) -> bytes | None:
        """Return the answer that was kept, None where there is none, or none for this caller.

        user: the caller as it was let in earlier, which is still so where the session is that very user's.
        """
        session = self._owners.get(guid)
        if session is None or not session.belongs_to(peer) or not self.is_current(session):
            return None
        if user is not None and user != session.session.principal:
            return None
        answer = session.answers.get((guid + secret, with_progress))
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

    def close_operation(self, operation: Operation) -> None:
        """Forget an operation, and end it."""
        self.release(operation.identifier.guid)

    def close_idle(self) -> None:
        """Close operations that nobody came back to, and sessions as every store does."""
        with self._lock:
            lost = [operation for session in self._sessions.values() for operation in _lost(session)]
        for operation in lost:
            self.close_operation(operation)
        super().close_idle()

    def close_connection(self, connection: object) -> None:
        """Close the sessions of a connection that is gone."""
        for session in self._all():
            if session.peer.connection is connection:
                self.close(session)


def _lost(session: Hs2Session) -> Iterator[Operation]:
    """Yield operations whose client left and did not come back; while a client waits in the session, none is."""
    now = time.monotonic()
    for guid, since in list(session.abandoned.items()):
        if session.session.idle_s == 0.0:
            session.abandoned[guid] = now
        elif since < now - ABANDONED_S and guid in session.operations:
            yield session.operations[guid]
