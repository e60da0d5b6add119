"""HiveServer2's calls, each with its request in and its reply out; errors leave as those of ``failures.MAPPED``.

A call that has to wait for a query returns a ``PendingReply`` instead of a reply, so that each transport waits in its
own way: a connection's thread, which watches its client meanwhile, or the HTTP server without a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from gateway.catalog.snapshot import CatalogView
from gateway.commands.classification import is_query
from gateway.drivers.handles import Handles
from gateway.drivers.hs2 import metadata, timeline
from gateway.drivers.hs2.clients import dialect_at_first, dialect_at_opening
from gateway.drivers.hs2.elsewhere import form
from gateway.drivers.hs2.elsewhere.cancel import cancelled_at
from gateway.drivers.hs2.errors import errors_in, message_in
from gateway.drivers.hs2.operations import Identifier, Operation, QueryOperation, ReadAhead, TableOperation
from gateway.drivers.hs2.protocol import messages, rowset, types
from gateway.drivers.hs2.protocol.messages import (
    FIRST_COLUMNAR_VERSION,
    NEWEST_VERSION,
    FetchOrientation,
    FetchType,
    OperationState,
)
from gateway.drivers.hs2.protocol.thrift import Struct, encode
from gateway.drivers.hs2.registry import Hs2Session, Peer, Registry, identifier_in
from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import GatewayStopped, InvalidSetting, NotFinished, NotOffered, TooManyDownloads, sqlstate
from gateway.execution.coordinator import STOPPING, Coordinator
from gateway.execution.spooling.downloads import NO_ROOM, ROOM_POLL_S, Downloads
from gateway.execution.spooling.results import Spool
from gateway.presentation.waits import Waits
from gateway.security.authentication import Login
from gateway.security.identity.authenticator import Acceptor, Authenticator
from gateway.security.principals import Principal
from gateway.statements.session import LONG_POLL_S, Limits, Session, expire_idle
from gateway.statements.statement import query_of
from metastore.records import QueryState
from sql.dialects.names import IMPALA, SPARK
from sql.parsing import MESSAGE_OVERHEAD_BYTES

FETCH_ROWS, DEFAULT_FETCH_ROWS = 10_000, "1000"  # of JDBC's driver: size that we set, and its own default
STATES: Mapping[QueryState, OperationState] = {
    QueryState.QUEUED: OperationState.PENDING,
    QueryState.RUNNING: OperationState.RUNNING,
    QueryState.FINISHED: OperationState.FINISHED,
    QueryState.FAILED: OperationState.ERROR,
    QueryState.CANCELLED: OperationState.CANCELED,
}
READING_S = 1.0  # longest wait for errors in a query's text, before its handle is returned
ROOM_WAIT_S = 2.0  # longest wait of a call until other clients have read their wide rows
LOG_SCHEMA = pa.schema([("operation_log", pa.string())])
FETCH_SIZE_KEY = "hive.server2.thrift.resultset.default.fetch.size"
HIVECONF = "set:hiveconf:"
PROXY_USER_KEYS = ("hive.server2.proxy.user", "impala.doas.user")
PREFIXES = (HIVECONF, "set:")  # other settings keep their prefix: hivevar:x
R = TypeVar("R", bound=Struct | bytes)
NO_TOKENS = "Delegation tokens are not supported; log in with a user name and a password."


@dataclass(frozen=True, slots=True)
class PendingReply(Generic[R]):
    """A reply that waits."""

    done: Future[Any]
    """Completes when the reply can be made."""
    finish: Callable[[], R]
    """Makes the reply; called once."""
    abandon: Callable[[], None]
    """Called instead of ``finish`` where the client is gone."""
    timeout_s: float | None = None
    """Time after which the reply is made in any case; None: no limit."""


Soon: TypeAlias = R | PendingReply[R]


class Service:
    """The service behind every transport. Thread-safe.

    dialect: default dialect of clients; None: detected from their calls.
    shared: sessions that other gateways may continue; None: there are no others.
    qop: protection of connections after a login with a Kerberos ticket.
    """

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        waits: Waits,
        catalog: CatalogView,
        spool: Spool,
        downloads: Downloads,
        authenticator: Authenticator,
        limits: Limits,
        deadline_s: float,
        handles: Handles,
        dialect: str | None = None,
        page_url: str = "",
        shared: SharedSessions | None = None,
        qop: str = "auth",
    ) -> None:
        self.qop = qop
        self._coordinator = coordinator
        self._waits = waits
        self._catalog = catalog
        self._spool = spool
        self.downloads = downloads
        self._authenticator = authenticator
        self._deadline_s = deadline_s
        self._dialect = dialect
        self._stopping = threading.Event()
        self.handles = handles
        self.registry = Registry(
            limits,
            authenticator.current,
            handles,
            shared=shared,
            continued=partial(self._new_session, dialect=SPARK),
            statement=self._continued,
        )
        self._read_ahead = ReadAhead()
        self.page_url = page_url
        self.statement_bytes = coordinator.parser_limits.statement_bytes
        self.largest_message = self.statement_bytes + MESSAGE_OVERHEAD_BYTES

    def start(self) -> None:
        """Begin to close idle sessions."""
        expire_idle(self.registry.close_idle, self._stopping, name="session expiry")

    def drain(self, *, grace_s: float) -> None:
        """Accept nothing new, wait for running operations for a while, then close every session."""
        self._stopping.set()
        until = time.monotonic() + grace_s
        while time.monotonic() < until and self.registry.running():
            time.sleep(0.05)
        self.registry.leave()

    @property
    def tickets(self) -> Acceptor | None:
        """Check of Kerberos tickets; None: they are not taken."""
        return self._authenticator.tickets

    def login(self, login: Login) -> Principal:
        """Return a user. Raises AuthenticationFailed."""
        return self._authenticator.authenticate(login)

    # ------------------------------------------------------------------ sessions

    def open_session(self, request: messages.OpenSessionRequest, peer: Peer) -> messages.OpenSessionReply:
        """Begin a session."""
        self._require_running()
        if peer.user is None:
            user = self.login(Login(request.username, request.password, peer.address))
        else:
            user = self._authenticator.current(peer.user)
        dialect = self._dialect or dialect_at_opening(request, peer.agent)
        session = self._new_session(user, dialect=dialect or SPARK)
        for name, value in (request.configuration or {}).items():
            if name == "use:database":
                session.use(self._catalog.require_database(value.strip("`"), user, of_now=True))
            else:
                _configure(session, name, value)
        fetch_rows = (request.configuration or {}).get(HIVECONF + FETCH_SIZE_KEY, DEFAULT_FETCH_ROWS)
        version = min(max(request.version, 0), NEWEST_VERSION)
        opened = self.registry.open(session, peer, version, dialect_is_open=dialect is None)
        return messages.OpenSessionReply(
            version=version,
            session=messages.SessionHandle(opened.identifier.message()),
            configuration={FETCH_SIZE_KEY: str(FETCH_ROWS) if fetch_rows == DEFAULT_FETCH_ROWS else fetch_rows},
        )

    def close_session(self, request: messages.SessionRequest, peer: Peer) -> messages.Reply:
        """End a session with all its operations."""
        self.registry.close_everywhere(self._session(request, peer))
        return messages.Reply()

    def get_info(self, request: messages.InfoRequest, peer: Peer) -> messages.InfoReply:
        """Return a property of the server."""
        session = self._session(request, peer)
        value = metadata.properties(session.session.user, self.statement_bytes).get(request.info or 0)
        if value is None:
            raise NotOffered(f"The gateway has no property with the number {request.info}.")
        return messages.InfoReply(value=value)

    def refuse_token(self, request: messages.SessionRequest, peer: Peer) -> messages.TokenReply:
        """Refuse to make, cancel or renew a delegation token."""
        self._session(request, peer)
        raise NotOffered(NO_TOKENS)

    # ------------------------------------------------------------------ statements

    def execute(self, request: messages.ExecuteRequest, peer: Peer) -> Soon[messages.OperationReply]:
        """Run a statement; without run_async the reply waits for its rows, or its end.

        With run_async, the reply waits until the statement is read, so that it has the errors of its text. If reading a
        query takes long, the reply comes before, so that the client can cancel it.
        """
        self._require_running()
        session = self._session(request, peer)
        if session.dialect_is_open:
            session.dialect_is_open = False
            session.session.presume_dialect(dialect_at_first(request))
        overlay, timeout_s = request.overlay or {}, max(0.0, float(request.timeout_s or 0))
        headers = peer.headers()
        statement = session.session.statement(request.statement, overlay=overlay, timeout_s=timeout_s, headers=headers)
        run = self._coordinator.start(statement)
        identifier = Identifier.of(self.handles, form.number_of(run.id, session))
        operation = QueryOperation(identifier, run, self._coordinator, self._spool, self._waits)
        self.registry.add(session, operation)
        early = request.run_async and is_query(statement.sql)  # whose handle may promise rows before it is read

        def started() -> messages.OperationReply:
            with errors_in(session.session.dialect), ExitStack() as undo:
                undo.callback(self.registry.close_operation, operation)
                if run.accepted.done():
                    run.require_accepted()
                elif not early:  # the client has stopped waiting
                    operation.require_finished()
                if not request.run_async:
                    operation.require_rows()
                self._coordinator.require_on_record(run)
                undo.pop_all()
            return _started(operation)

        awaited: Future[Any] = run.accepted if request.run_async else run.ready
        abandon = partial(self.registry.close_operation, operation)
        return _pending(session, awaited, started, abandon, READING_S if early else None)

    def get_status(self, request: messages.StatusRequest, peer: Peer) -> Soon[messages.StatusReply]:
        """Return the state of an operation; while it runs, the reply waits a little for its rows, or its end."""
        session, operation = self.registry.operation(request.operation, peer)

        def answer() -> messages.StatusReply:
            return self._status(session, operation, with_progress=request.with_progress)

        ready = operation.ready
        return answer() if ready.done() else self._waiting(session, operation, ready, answer, LONG_POLL_S)

    def _status(self, session: Hs2Session, operation: Operation, *, with_progress: bool) -> messages.StatusReply:
        if not isinstance(operation, QueryOperation):
            return messages.StatusReply(state=OperationState.FINISHED, has_result_set=True)
        run, record = operation.run, operation.run.record
        is_closing = run.state.ended and not run.done.done()  # the end is shown once the run is closed
        state = OperationState.RUNNING if is_closing else STATES[record.state if run.done.done() else run.state]
        is_early = state == OperationState.RUNNING and operation.has_early_rows
        reply = messages.StatusReply(
            state=OperationState.FINISHED if is_early else state,  # drivers fetch rows from then on
            started_ms=int(record.submitted_at.timestamp() * 1_000),
            completed_ms=int(record.finished_at.timestamp() * 1_000) if record.finished_at else None,
            has_result_set=operation.has_result_set,
            progress=timeline.progress(run) if with_progress else None,
            rows_written=operation.rows_written(),
        )
        if record.error is not None:
            reply.message = message_in(session.session.dialect, record.error)
            reply.sqlstate = sqlstate(record.error)
            reply.error_code = 0
        if state == OperationState.FINISHED:
            self.registry.keep_answer(session, operation, encode(reply), with_progress=with_progress)
        return reply

    def cancel(self, request: messages.OperationRequest, peer: Peer) -> messages.Reply:
        """Cancel an operation; its handle stays. It may be of another connection, and of another gateway."""
        identifier = identifier_in(request.operation)
        owner = self.handles.owner(identifier.guid, identifier.secret) if identifier and peer.connection else None
        if owner is None or not cancelled_at(owner, request, peer):
            self.registry.operation(request.operation, peer, any_connection=True)[1].cancel()
        return messages.Reply()

    def close_operation(self, request: messages.OperationRequest, peer: Peer) -> messages.Reply:
        """Close an operation."""
        self.registry.close_operation(self.registry.operation(request.operation, peer)[1])
        return messages.Reply()

    # ------------------------------------------------------------------ results

    def get_result_metadata(self, request: messages.OperationRequest, peer: Peer) -> Soon[messages.MetadataReply]:
        """Return the columns of a result; the reply waits for its rows."""
        session, operation = self.registry.operation(request.operation, peer)
        operation.require_here()

        def answer() -> messages.MetadataReply:
            operation.require_rows()
            of_impala = session.session.dialect == IMPALA  # its drivers decode nested values from texts only
            schema = types.table_schema(operation.cursor.schema(), session.version, nested_as_texts=of_impala)
            return messages.MetadataReply(schema=schema)

        ready = operation.ready
        return answer() if ready.done() else self._waiting(session, operation, ready, answer)

    def fetch(self, request: messages.FetchRequest, peer: Peer) -> Soon[messages.FetchReply]:
        """Return rows, or lines of the log; the reply waits for the next rows, or the end of the operation."""
        session, operation = self.registry.operation(request.operation, peer)
        columnar = session.version >= FIRST_COLUMNAR_VERSION
        if request.orientation not in (FetchOrientation.NEXT, FetchOrientation.FIRST):
            raise NotOffered("Rows can be fetched forward, or again from the first one.")
        rewind = request.orientation == FetchOrientation.FIRST
        if request.kind == FetchType.LOG:
            lines = pa.record_batch({LOG_SCHEMA.names[0]: pa.array(operation.log_lines(rewind=rewind), pa.string())})
            return messages.FetchReply(has_more_rows=False, rows=rowset.encode(lines, offset=0, columnar=columnar))

        operation.require_here()
        cursor = operation.cursor

        def write(*, rewind: bool, admit: Callable[[int], None]) -> messages.FetchReply:
            offset, batch = cursor.next(max(0, request.max_rows), rewind=rewind, admit=admit)
            if not batch.num_rows and request.max_rows > 0 and not cursor.has_ended:
                raise NotFinished("The next rows are still to come.")  # drivers take an empty reply for the end
            total = operation.run.record.rows if isinstance(operation, QueryOperation) else None
            more = bool(batch.num_rows) if total is None else offset + batch.num_rows < total
            rows = rowset.encode(
                batch,
                offset=offset,
                columnar=columnar,
                whole_nulls=session.is_impala_shell,
                nested_json=session.session.nested_json,
            )
            return messages.FetchReply(has_more_rows=more, rows=rows)

        def answer() -> messages.FetchReply:
            operation.require_rows()
            ready = self._read_ahead.take(cursor, (request.max_rows, session.session.nested_json, rewind))
            goes_on = ready is not None or (cursor.offset > 0 and not rewind)
            reply = ready or write(rewind=rewind, admit=lambda wide: self._make_room(session, peer, wide))
            if goes_on and reply.has_more_rows and operation.done.done():  # a client that fetched twice goes on
                next_fetch = request.max_rows, session.session.nested_json, False
                write_more = partial(write, rewind=False, admit=_refuse_wide)
                peer.afterwards = partial(self._read_ahead.prepare, cursor, next_fetch, write_more)
            return reply

        next_rows = operation.rows_after(0 if rewind else cursor.position)
        return answer() if next_rows.done() else self._waiting(session, operation, next_rows, answer)

    # ------------------------------------------------------------------ the catalog

    def answer(
        self, question: metadata.Question, request: messages.SessionRequest, peer: Peer
    ) -> messages.OperationReply:
        """Answer a question about the catalog."""
        session = self._session(request, peer)
        identifier = Identifier.of(self.handles)
        operation = TableOperation(identifier, question.kind, question.answer(request, self._catalog, session.session))
        self.registry.add(session, operation)
        return _started(operation)

    # ------------------------------------------------------------------ help

    def _waiting(
        self,
        session: Hs2Session,
        operation: Operation,
        awaited: Future[None],
        answer: Callable[[], R],
        timeout_s: float | None = None,
    ) -> PendingReply[R]:
        """Let a client wait. If it leaves, the operation stays for a while: the client may come back."""
        abandon = partial(self.registry.abandon, session, operation)
        return _pending(session, awaited, answer, abandon, timeout_s)

    def _make_room(self, session: Hs2Session, peer: Peer, wide_bytes: int) -> None:
        """Reserve memory for a wide row until its reply is sent. Raises TooManyDownloads."""
        until_s = time.monotonic() + ROOM_WAIT_S
        while (give_back := self.downloads.make_room(session.session.principal.quota_key, wide_bytes)) is None:
            if time.monotonic() > until_s:
                raise TooManyDownloads(NO_ROOM)
            time.sleep(ROOM_POLL_S)
        peer.held.callback(give_back)

    def _session(self, request: messages.SessionRequest, peer: Peer) -> Hs2Session:
        return self.registry.session(request.session, peer)

    def _new_session(self, user: Principal, *, dialect: str) -> Session:
        limits = self._coordinator.parser_limits
        return Session(user, deadline_s=self._deadline_s, limits=limits, dialect=dialect, of_hive=True)

    def _continued(self, identifier: Identifier, peer: Peer) -> tuple[Hs2Session, QueryOperation] | None:
        """Return a statement whose gateway is gone, in a session of its own that has its form."""
        run, rows_gone = self._coordinator.continued(query_of(identifier.guid)) or (None, False)
        if run is None or (peer.user is not None) is not form.has_login(identifier):
            return None
        record = run.record
        user = peer.user or self._authenticator.present(record.user, record.authenticated, peer.address)
        if user.account != Principal(record.user, authenticated=record.authenticated).account:
            return None
        session = form.session_of(identifier, self._new_session(user, dialect=SPARK), peer)
        operation = QueryOperation(identifier, run, self._coordinator, self._spool, self._waits, rows_gone=rows_gone)
        return session, operation

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise GatewayStopped(STOPPING)


def _pending(
    session: Hs2Session,
    done: Future[Any],
    finish: Callable[[], R],
    abandon: Callable[[], None],
    timeout_s: float | None = None,
) -> PendingReply[R]:
    """Let a client wait for an operation; its session is not idle meanwhile."""
    session.session.begin_wait()

    def finished() -> R:
        try:
            return finish()
        finally:
            session.session.end_wait()

    def abandoned() -> None:
        session.session.end_wait()
        abandon()

    return PendingReply(done, finished, abandoned, timeout_s)


def _refuse_wide(wide_bytes: int) -> None:
    """Raise TooManyDownloads: a wide row is not read ahead."""
    raise TooManyDownloads(NO_ROOM)


def _started(operation: Operation) -> messages.OperationReply:
    handle = messages.OperationHandle(operation.identifier.message(), operation.kind, operation.has_result_set)
    return messages.OperationReply(operation=handle)


def _configure(session: Session, name: str, value: str) -> None:
    """Apply one entry of a driver's configuration."""
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    own = name.removeprefix(prefix)
    if own in PROXY_USER_KEYS:
        if value != session.user:
            raise InvalidSetting(f"{session.user} cannot act for {value}: impersonation is not supported.")
    else:
        session.open_with(own, value)
