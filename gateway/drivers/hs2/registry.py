"""Sessions and operations by HiveServer2's handles.

A handle is valid only with its secret, for the user who opened the session and, on a connection that stays open, on
that connection. To cancel, another connection of that user is enough, as impala-shell does. Anybody else gets the error
that there is no such handle.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.drivers.handles import Handles
from gateway.drivers.hs2.errors import InvalidHandle
from gateway.drivers.hs2.operations import Identifier, Operation, QueryOperation
from gateway.drivers.hs2.protocol.messages import OperationHandle, SessionHandle
from gateway.drivers.sessions import DriverSession, SessionStore
from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import TooManyOperations
from gateway.security.principals import Principal
from gateway.statements.session import Limits, Session

LARGEST_OPERATIONS = 1_000  # of one session
ABANDONED_S = 8.0  # time in which a client that left may come back to its operation
REMEMBERED_OPERATIONS = 16  # closed ones of one session: impyla asks for their profile only then

NO_SESSION = "There is no such session: it was closed, was idle for too long, or belongs to another user."
NO_OPERATION = "There is no such operation: it was closed, or it belongs to another user."


@dataclass(slots=True)
class Peer:
    """The caller of a call."""

    address: str
    user: Principal | None = None
    """None: the transport has no login."""
    connection: object | None = None
    """None: each call has a connection of its own."""
    agent: str = ""
    """User agent, over HTTP."""
    headers: Callable[[], Mapping[str, str]] = dict
    """Returns the headers that routing rules use, over HTTP."""
    established: bool = False
    """It has opened a session."""
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Resources of its reply, until that is sent."""
    afterwards: Callable[[], None] | None = None
    """Work that can be done after the reply."""


@dataclass(slots=True, eq=False, kw_only=True)
class Hs2Session(DriverSession[Operation]):
    """A driver's session. Its operations are by their public number."""

    identifier: Identifier
    peer: Peer
    """Caller that opened it."""
    version: int
    """Version of the protocol, V1 = 0."""
    dialect_is_open: bool = False
    """The first statement decides about the client's dialect."""
    is_impala_shell: bool = False
    answers: dict[tuple[bytes, bool], bytes] = field(default_factory=dict)
    """Status replies of finished operations, by number and secret, and with or without progress."""
    abandoned: dict[bytes, float] = field(default_factory=dict)
    """Times at which clients left that waited for an operation, by its number."""
    closed: deque[Operation] = field(default_factory=lambda: deque(maxlen=REMEMBERED_OPERATIONS))
    """Operations that were closed last."""

    def more(self) -> Mapping[str, Any]:
        """Return as JSON what another gateway needs beside its settings."""
        return {
            "version": self.version,
            "dialect_is_open": self.dialect_is_open,
            "is_impala_shell": self.is_impala_shell,
            "has_login": self.peer.user is not None,
        }

    def belongs_to(self, peer: Peer, *, any_connection: bool = False) -> bool:
        """Tell whether a caller opened it. any_connection: any connection of the same user counts."""
        same_user = (peer.user and peer.user.account) == (self.peer.user and self.peer.user.account)
        return same_user and (any_connection or peer.connection is self.peer.connection)

    def released(self, handle: bytes, operation: Operation) -> None:
        """Remember a closed query for a while."""
        if isinstance(operation, QueryOperation):
            self.closed.append(operation)
        for with_progress in (False, True):
            self.answers.pop((handle + operation.identifier.secret, with_progress), None)
        self.abandoned.pop(handle, None)


class Registry(SessionStore[Hs2Session, Operation]):
    """All sessions and operations. Thread-safe.

    current, shared: see ``SessionStore``.
    continued: returns a session of a gateway that is gone, with its settings still to be restored.
    statement: returns a statement of a gateway that is gone, with a session that has its form; None: there is none.
    """

    def __init__(
        self,
        limits: Limits,
        current: Callable[[Principal], Principal],
        handles: Handles,
        *,
        shared: SharedSessions | None = None,
        continued: Callable[[Principal], Session],
        statement: Callable[[Identifier, Peer], tuple[Hs2Session, QueryOperation] | None],
    ) -> None:
        super().__init__(limits, current, ended=lambda: InvalidHandle(NO_SESSION), shared=shared)
        self._handles = handles
        self._continued = continued
        self._statement = statement

    def open(self, session: Session, peer: Peer, version: int, *, dialect_is_open: bool = False) -> Hs2Session:
        """Add a session; where there is no room, an idle one is closed. Raises TooManySessions, SQLAlchemyError."""
        identifier = Identifier.of(self._handles)
        opened = Hs2Session(
            session=session,
            key=identifier.guid,
            identifier=identifier,
            peer=peer,
            version=version,
            dialect_is_open=dialect_is_open,
        )
        self._add(opened, lambda: self._spare(session.principal, lambda other: other.peer.connection is None))
        if peer.connection is None:
            try:
                self.share(opened)
            except BaseException:
                self._drop(opened)
                raise
        peer.established = True
        return opened

    def session(self, handle: SessionHandle | None, peer: Peer) -> Hs2Session:
        """Return the session of a handle. Raises InvalidHandle."""
        identifier = identifier_in(handle)
        session = self._session(identifier.guid) if identifier is not None else None
        if identifier is not None and self._is_orphan(identifier, peer):
            session = self._guest(identifier, session, peer)
        if session is None or not session.identifier.matches(identifier) or not session.belongs_to(peer):
            raise InvalidHandle(NO_SESSION)
        self.renew(session, peer.user)
        self.require_current(session)
        session.session.touch()
        return session

    def _is_orphan(self, identifier: Identifier, peer: Peer) -> bool:
        """Tell whether a handle is of a gateway that is gone, and may be continued here."""
        is_shared = self._shared is not None and peer.connection is None
        return is_shared and self._handles.is_orphan(identifier.guid, identifier.secret)

    def _guest(self, identifier: Identifier, session: Hs2Session | None, peer: Peer) -> Hs2Session | None:
        """Return a session whose gateway is gone, as it is now; None: it has ended."""
        assert self._shared is not None
        saved = self._shared.find(identifier.guid)
        if saved is None:
            if session is not None:
                self._drop(session)
            return None
        user, more = saved
        if session is None:
            guest = Hs2Session(
                session=self._continued(user),
                key=identifier.guid,
                identifier=identifier,
                peer=Peer(peer.address, user if more["has_login"] else None),
                version=more["version"],
                is_guest=True,
            )
            self._have_shared(guest)
            session = self._add(guest, lambda: self._spare(user, lambda other: other.peer.connection is None))
        session.dialect_is_open, session.is_impala_shell = more["dialect_is_open"], more["is_impala_shell"]
        session.session.restore(more["session"])
        return session

    def _is_guest(self, session: Hs2Session) -> bool:
        return session.is_guest or (session.is_shared and not self._handles.is_ours(session.identifier.secret))

    def _hold_statement(self, session: Hs2Session, operation: QueryOperation) -> tuple[Hs2Session, Operation]:
        """Hold a statement of a gateway that is gone, in a session of its own: its rows go on where they were left."""
        guid = operation.identifier.guid
        session.is_guest = True
        holder = self._add(session, lambda: None)
        with self._lock:
            held = holder.operations.setdefault(guid, operation)
            self._owners[guid] = holder
        return holder, held

    def add(self, session: Hs2Session, operation: Operation) -> None:
        """Add an operation to its session. Raises InvalidHandle where that was closed meanwhile, TooManyOperations."""

        def make_room() -> list[Operation]:
            if len(session.operations) >= LARGEST_OPERATIONS:
                raise TooManyOperations(
                    f"The session has {LARGEST_OPERATIONS:,} operations already; close some of them."
                )
            return []

        self._hold(session, operation.identifier.guid, operation, make_room)

    def operation(
        self, handle: OperationHandle | None, peer: Peer, *, any_connection: bool = False
    ) -> tuple[Hs2Session, Operation]:
        """Return the operation of a handle, and its session. Raises InvalidHandle."""
        identifier = identifier_in(handle)
        held = self._held(identifier.guid) if identifier is not None else None
        is_lost = held is None or (isinstance(held[1], QueryOperation) and held[1].run.is_lost)
        if is_lost and identifier is not None and self._is_orphan(identifier, peer):
            continued = self._statement(identifier, peer)
            if continued is not None:
                is_here = not continued[1].run.is_lost
                held = self._hold_statement(*continued) if is_here else continued
        if held is None:
            raise InvalidHandle(NO_OPERATION)
        session, operation = held
        if not operation.identifier.matches(identifier) or not session.belongs_to(peer, any_connection=any_connection):
            raise InvalidHandle(NO_OPERATION)
        self.renew(session, peer.user)
        self.require_current(session)
        session.session.touch()
        session.abandoned.pop(operation.identifier.guid, None)
        return session, operation

    def keep_answer(self, session: Hs2Session, operation: Operation, answer: bytes, *, with_progress: bool) -> None:
        """Keep the status reply of a finished operation for the next calls."""
        with self._lock:
            if operation.identifier.guid in session.operations:
                session.answers[operation.identifier.guid + operation.identifier.secret, with_progress] = answer

    def kept_answer(
        self, guid: bytes, secret: bytes, peer: Peer, user: Principal | None = None, *, with_progress: bool
    ) -> bytes | None:
        """Return a kept status reply; None: there is none for this caller.

        user: user who logged in earlier on this connection; the session must be theirs.
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
        """Note that a client left while it waited; the operation is closed soon unless the client comes back."""
        with self._lock:
            if operation.identifier.guid in session.operations:
                session.abandoned[operation.identifier.guid] = time.monotonic()

    def ended_operation(
        self, handle: OperationHandle | None, session_handle: SessionHandle | None, peer: Peer
    ) -> Operation:
        """Return the operation of a handle, even if it was closed a short time ago. Raises InvalidHandle."""
        identifier = identifier_in(handle)
        session = self.session(session_handle, peer)
        with self._lock:
            for operation in (*session.operations.values(), *session.closed):
                if operation.identifier.matches(identifier):
                    return operation
        return self.operation(handle, peer)[1]

    def close_operation(self, operation: Operation) -> None:
        """Close an operation."""
        self.release(operation.identifier.guid)

    def close_idle(self) -> None:
        """Close abandoned operations, and sessions as every store does."""
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


def identifier_in(handle: SessionHandle | OperationHandle | None) -> Identifier | None:
    """Return the identity that a client sends; None: it is incomplete."""
    sent = handle.identifier if handle is not None else None
    if sent is None or sent.guid is None or sent.secret is None:
        return None
    return Identifier(sent.guid, sent.secret)


def _lost(session: Hs2Session) -> Iterator[Operation]:
    """Yield abandoned operations; none while a client of the session waits."""
    now = time.monotonic()
    for guid, since in list(session.abandoned.items()):
        if session.session.idle_s == 0.0:
            session.abandoned[guid] = now
        elif since < now - ABANDONED_S and guid in session.operations:
            yield session.operations[guid]
