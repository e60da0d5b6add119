"""HiveServer2's calls, each with its request in and its reply out; errors leave as those of ``failures.MAPPED``.

A call that has to wait for a query returns a ``PendingReply`` instead of a reply, so that each transport waits in its
own way: a connection's thread while it watches whether the client is still there, the HTTP server without a thread.

It is long because there is one method per call of the protocol.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from engines.machine.sharing import Caller, HostGone
from gateway import PRODUCT
from gateway.catalog.snapshot import CatalogView, Relation
from gateway.drivers.hs2 import metadata, timeline
from gateway.drivers.hs2.clients import dialect_at_first, dialect_at_opening
from gateway.drivers.hs2.errors import InvalidHandle, message_in, told_in
from gateway.drivers.hs2.operations import Operation, QueryOperation, ReadAhead, TableOperation
from gateway.drivers.hs2.protocol import messages, rowset, types
from gateway.drivers.hs2.protocol.messages import (
    FIRST_COLUMNAR_VERSION,
    NEWEST_VERSION,
    FetchOrientation,
    FetchType,
    OperationState,
)
from gateway.drivers.hs2.protocol.messages import OperationType as Kind
from gateway.drivers.hs2.protocol.thrift import Struct, encode
from gateway.drivers.hs2.registry import NO_OPERATION, Hs2Session, Peer, Registry, owner_of
from gateway.errors import GatewayStopped, InvalidSetting, NotFinished, NotOffered, TooManyDownloads, sqlstate
from gateway.execution.coordinator import STOPPING, Coordinator
from gateway.execution.spooling.downloads import NO_ROOM, ROOM_POLL_S, Downloads
from gateway.execution.spooling.results import Spool
from gateway.presentation.waits import Waits
from gateway.security.authentication import Authenticator, Login
from gateway.security.principals import Principal
from gateway.sql.commands.parsing.command_parsing import is_query
from gateway.sql.dialects.names import IMPALA, SPARK
from gateway.statements.processes import CALLS_DOOR, Processes
from gateway.statements.session import LONG_POLL_S, Limits, Session, expire_idle
from metastore.records import QueryState

FETCH_ROWS, USUAL_FETCH_ROWS = 10_000, "1000"  # that JDBC's driver is told to ask for, and would without being told
STATES: Mapping[QueryState, OperationState] = {
    QueryState.QUEUED: OperationState.PENDING,
    QueryState.RUNNING: OperationState.RUNNING,
    QueryState.FINISHED: OperationState.FINISHED,
    QueryState.FAILED: OperationState.ERROR,
    QueryState.CANCELLED: OperationState.CANCELED,
}
READING_S = 1.0  # that a handle of a query waits for what may be wrong with its text
ROOM_WAIT_S = 2.0  # that a call waits for others to read their wide rows
LOG_SCHEMA = pa.schema([("operation_log", pa.string())])
FETCH_SIZE_KEY = "hive.server2.thrift.resultset.default.fetch.size"
HIVECONF = "set:hiveconf:"
PROXY_USER_KEYS = ("hive.server2.proxy.user", "impala.doas.user")
CANCEL = "hs2.cancel"  # as processes call each other
PREFIXES = (HIVECONF, "set:")  # what else is set keeps its kind: hivevar:x
R = TypeVar("R", bound=Struct | bytes)
NO_TOKENS = "Delegation tokens are not issued here; log in with a user name and a password."


@dataclass(frozen=True, slots=True)
class PendingReply(Generic[R]):
    """A reply that waits. done: completes once it can be given; timeout_s: after which it is given anyway.

    finish: makes the reply; is called once. abandon: is called instead where the client is gone.
    """

    done: Future[Any]
    finish: Callable[[], R]
    abandon: Callable[[], None]
    timeout_s: float | None = None


Soon: TypeAlias = R | PendingReply[R]


class Service:
    """The service behind every transport. Thread-safe.

    dialect: that clients speak unless they set one; None where what they send tells it. processes: those that share
    the port, where there are several.
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
        dialect: str | None = None,
        page_url: str = "",
        processes: Processes | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._waits = waits
        self._catalog = catalog
        self._spool = spool
        self.downloads = downloads
        self._authenticator = authenticator
        self._deadline_s = deadline_s
        self._dialect = dialect
        self._stopping = threading.Event()
        self.registry = Registry(limits, authenticator.current)
        self._read_ahead = ReadAhead()
        self.page_url = page_url
        self._processes = processes
        self.statement_bytes = coordinator.parser_limits.statement_bytes

    def start(self) -> None:
        """Begin to close idle sessions."""
        expire_idle(self.registry.close_idle, self._stopping, name="session expiry")

    def drain(self, *, grace_s: float) -> None:
        """Take nothing new, let what runs end for a while, then close every session."""
        self._stopping.set()
        until = time.monotonic() + grace_s
        while time.monotonic() < until and self.registry.running():
            time.sleep(0.05)
        self.registry.close_all()

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
        limits = self._coordinator.parser_limits
        session = Session(user, deadline_s=self._deadline_s, limits=limits, dialect=dialect or SPARK, of_hive=True)
        for name, value in (request.configuration or {}).items():
            if name == "use:database":
                session.use(self._catalog.current().require_database(value.strip("`")))
            else:
                _configure(session, name, value)
        asked = (request.configuration or {}).get(HIVECONF + FETCH_SIZE_KEY, USUAL_FETCH_ROWS)
        chosen = min(max(request.version, 0), NEWEST_VERSION)
        opened = self.registry.open(session, peer, chosen, tells_dialect=dialect is None)
        return messages.OpenSessionReply(
            version=chosen,
            session=messages.SessionHandle(opened.identifier.message()),
            configuration={FETCH_SIZE_KEY: str(FETCH_ROWS) if asked == USUAL_FETCH_ROWS else asked},
        )

    def close_session(self, request: messages.SessionRequest, peer: Peer) -> messages.Reply:
        """End a session with all that it has under way."""
        self.registry.close(self._session(request, peer))
        return messages.Reply()

    def get_info(self, request: messages.InfoRequest, peer: Peer) -> messages.InfoReply:
        """Return one fact about the server."""
        session = self._session(request, peer)
        value = _info(session, self.statement_bytes).get(request.info or 0)
        if value is None:
            raise NotOffered(f"The gateway does not know the fact {request.info} about itself.")
        return messages.InfoReply(value=value)

    def refuse_token(self, request: messages.SessionRequest, peer: Peer) -> messages.TokenReply:
        """Refuse to make, cancel or renew a delegation token."""
        self._session(request, peer)
        raise NotOffered(NO_TOKENS)

    # ------------------------------------------------------------------ statements

    def execute(self, request: messages.ExecuteRequest, peer: Peer) -> Soon[messages.OperationReply]:
        """Run a statement; without run_async the reply waits for its rows, or its end.

        With it, the reply waits until the statement is read, so that it tells what is wrong; of a query that takes long
        to read, it comes before, so that the client can cancel it.
        """
        self._require_running()
        session = self._session(request, peer)
        if session.tells_dialect:
            session.tells_dialect = False
            session.session.presume_dialect(dialect_at_first(request))
        overlay, timeout_s = request.overlay or {}, max(0.0, float(request.timeout_s or 0))
        headers = peer.headers()
        statement = session.session.statement(request.statement, overlay=overlay, timeout_s=timeout_s, headers=headers)
        run = self._coordinator.start(statement)
        operation = QueryOperation(run, self._coordinator, self._spool, self._waits)
        self.registry.add(session, operation)
        early = request.run_async and is_query(statement.sql)  # its handle says that there are rows, and is right

        def started() -> messages.OperationReply:
            with told_in(session.session.dialect), ExitStack() as undo:
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
        """Return how an operation is; while it runs, the reply waits a little for its rows, or its end."""
        session, operation = self.registry.operation(request.operation, peer)

        def answer() -> messages.StatusReply:
            return self._status(session, operation, with_progress=request.with_progress)

        ready = operation.ready
        return answer() if ready.done() else self._waiting(session, operation, ready, answer, LONG_POLL_S)

    def _status(self, session: Hs2Session, operation: Operation, *, with_progress: bool) -> messages.StatusReply:
        run = operation.run
        if run is None:
            return messages.StatusReply(state=OperationState.FINISHED, has_result_set=True)
        record = run.record
        state = STATES[record.state if run.done.done() else _alive(run.state)]
        is_early = state == OperationState.RUNNING and operation.has_early_rows
        reply = messages.StatusReply(
            state=OperationState.FINISHED if is_early else state,  # to drivers it means that rows can be fetched
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
        """End an operation early; its handle stays. A connection of another process may have it."""
        told = request.operation.identifier if request.operation is not None else None
        owner = self._processes.other(owner_of(told)) if self._processes is not None else None
        if self._processes is None or owner is None or told is None:
            self.registry.operation(request.operation, peer, any_connection=True)[1].cancel()
            return messages.Reply()
        try:
            Caller(self._processes.path(CALLS_DOOR, owner)).call(CANCEL, told.guid, told.secret, peer.user)
        except HostGone:
            raise InvalidHandle(NO_OPERATION) from None
        return messages.Reply()

    def cancel_here(self, guid: bytes, secret: bytes | None, user: Principal | None) -> None:
        """End an operation early for a user of another process's connection. Raises InvalidHandle."""
        handle = messages.OperationHandle(messages.HandleIdentifier(guid, secret))
        self.registry.operation(handle, Peer("", user), any_connection=True)[1].cancel()

    def close_operation(self, request: messages.OperationRequest, peer: Peer) -> messages.Reply:
        """End an operation, and forget it."""
        self.registry.close_operation(self.registry.operation(request.operation, peer)[1])
        return messages.Reply()

    # ------------------------------------------------------------------ results

    def get_result_metadata(self, request: messages.OperationRequest, peer: Peer) -> Soon[messages.MetadataReply]:
        """Return a result's columns; before there are rows, the reply waits for them."""
        session, operation = self.registry.operation(request.operation, peer)

        def answer() -> messages.MetadataReply:
            operation.require_rows()
            of_impala = session.session.dialect == IMPALA  # whose drivers decode texts, but no others
            schema = types.table_schema(operation.cursor.schema(), session.version, nested_as_texts=of_impala)
            return messages.MetadataReply(schema=schema)

        ready = operation.ready
        return answer() if ready.done() else self._waiting(session, operation, ready, answer)

    def fetch(self, request: messages.FetchRequest, peer: Peer) -> Soon[messages.FetchReply]:
        """Return rows, or lines of the log; the reply waits until there are rows, or the operation has ended."""
        session, operation = self.registry.operation(request.operation, peer)
        columnar = session.version >= FIRST_COLUMNAR_VERSION
        if request.orientation not in (FetchOrientation.NEXT, FetchOrientation.FIRST):
            raise NotOffered("Rows can be fetched from where they were left, or from the first one.")
        rewind = request.orientation == FetchOrientation.FIRST
        if request.kind == FetchType.LOG:
            lines = pa.record_batch({LOG_SCHEMA.names[0]: pa.array(operation.log_lines(rewind=rewind), pa.string())})
            return messages.FetchReply(has_more_rows=False, rows=rowset.encode(lines, offset=0, columnar=columnar))

        cursor = operation.cursor

        def write(*, rewind: bool, admit: Callable[[int], None]) -> messages.FetchReply:
            offset, batch = cursor.next(max(0, request.max_rows), rewind=rewind, admit=admit)
            if not batch.num_rows and request.max_rows > 0 and not cursor.has_ended:
                raise NotFinished("The next rows are still to come.")  # no rows would mean that there are no more
            run = operation.run
            total = run.record.rows if run is not None else None
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
            if goes_on and reply.has_more_rows and operation.done.done():  # who has asked twice is going to ask again
                asked = request.max_rows, session.session.nested_json, False
                write_more = partial(write, rewind=False, admit=_refuse_wide)
                peer.afterwards = partial(self._read_ahead.make, cursor, asked, write_more)
            return reply

        come = operation.rows_after(0 if rewind else cursor.position)
        return answer() if come.done() else self._waiting(session, operation, come, answer)

    # ------------------------------------------------------------------ the catalog

    def get_type_info(self, request: messages.SessionRequest, peer: Peer) -> messages.OperationReply:
        """Return the types of columns."""
        return self._table(request, peer, Kind.GET_TYPE_INFO, lambda _: metadata.type_info())

    def get_catalogs(self, request: messages.SessionRequest, peer: Peer) -> messages.OperationReply:
        """Return catalogs, of which there are none."""
        return self._table(request, peer, Kind.GET_CATALOGS, lambda _: metadata.catalogs())

    def get_schemas(self, request: messages.SchemasRequest, peer: Peer) -> messages.OperationReply:
        """Return databases."""
        return self._table(
            request, peer, Kind.GET_SCHEMAS, lambda _: metadata.schemas(request, self._catalog.current().databases)
        )

    def get_tables(self, request: messages.TablesRequest, peer: Peer) -> messages.OperationReply:
        """Return tables and views."""
        return self._table(
            request, peer, Kind.GET_TABLES, lambda session: metadata.tables(request, self._relations(session))
        )

    def get_table_types(self, request: messages.SessionRequest, peer: Peer) -> messages.OperationReply:
        """Return kinds of tables."""
        return self._table(request, peer, Kind.GET_TABLE_TYPES, lambda _: metadata.table_types())

    def get_columns(self, request: messages.ColumnsRequest, peer: Peer) -> messages.OperationReply:
        """Return columns of tables and views."""
        return self._table(
            request, peer, Kind.GET_COLUMNS, lambda session: metadata.columns(request, self._relations(session))
        )

    def get_functions(self, request: messages.FunctionsRequest, peer: Peer) -> messages.OperationReply:
        """Return functions."""
        return self._table(request, peer, Kind.GET_FUNCTIONS, lambda _: metadata.functions(request))

    def get_primary_keys(self, request: messages.SessionRequest, peer: Peer) -> messages.OperationReply:
        """Return primary keys, which files do not have."""
        return self._table(request, peer, Kind.UNKNOWN, lambda _: metadata.PRIMARY_KEYS.empty_table())

    def get_cross_reference(self, request: messages.SessionRequest, peer: Peer) -> messages.OperationReply:
        """Return foreign keys, which files do not have."""
        return self._table(request, peer, Kind.UNKNOWN, lambda _: metadata.CROSS_REFERENCE.empty_table())

    # ------------------------------------------------------------------ help

    def _table(
        self, request: _OfSession, peer: Peer, kind: Kind, make: Callable[[Session], pa.Table]
    ) -> messages.OperationReply:
        session = self._session(request, peer)
        operation = TableOperation(kind, make(session.session))
        self.registry.add(session, operation)
        return _started(operation)

    def _waiting(
        self,
        session: Hs2Session,
        operation: Operation,
        awaited: Future[None],
        answer: Callable[[], R],
        timeout_s: float | None = None,
    ) -> PendingReply[R]:
        """Let a client wait that may come back after it has gone: only the answer is given up, not the operation."""
        abandon = partial(self.registry.abandon, session, operation)
        return _pending(session, awaited, answer, abandon, timeout_s)

    def _make_room(self, session: Hs2Session, peer: Peer, wide_bytes: int) -> None:
        """Take room for a wide row until its reply is sent. Raises TooManyDownloads."""
        until_s = time.monotonic() + ROOM_WAIT_S
        while (give_back := self.downloads.make_room(session.session.principal.quota_key, wide_bytes)) is None:
            if time.monotonic() > until_s:
                raise TooManyDownloads(NO_ROOM)
            time.sleep(ROOM_POLL_S)
        peer.held.callback(give_back)

    def _relations(self, session: Session) -> Sequence[Relation]:
        return self._catalog.current().relations_for(session)

    def _session(self, request: _OfSession, peer: Peer) -> Hs2Session:
        return self.registry.session(request.session, peer)

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise GatewayStopped(STOPPING)


_OfSession = (
    messages.SessionRequest
    | messages.InfoRequest
    | messages.ExecuteRequest
    | messages.SchemasRequest
    | messages.TablesRequest
    | messages.ColumnsRequest
    | messages.FunctionsRequest
)


def _pending(
    session: Hs2Session,
    done: Future[Any],
    finish: Callable[[], R],
    abandon: Callable[[], None],
    timeout_s: float | None = None,
) -> PendingReply[R]:
    """Let a session's client wait for an operation; meanwhile the session is not idle."""
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
    """Raise TooManyDownloads: a wide row is read once its client waits for it."""
    raise TooManyDownloads(NO_ROOM)


def _started(operation: Operation) -> messages.OperationReply:
    handle = messages.OperationHandle(operation.identifier.message(), operation.kind, operation.has_result_set)
    return messages.OperationReply(operation=handle)


def _configure(session: Session, name: str, value: str) -> None:
    """Take one entry of a driver's configuration: its prefix says what it is."""
    prefix = next((each for each in PREFIXES if name.startswith(each)), "")
    own = name.removeprefix(prefix)
    if own in PROXY_USER_KEYS:
        if value != session.user:
            raise InvalidSetting(f"{session.user} cannot act for {value}.")
    else:
        session.open_with(own, value)


def _alive(state: QueryState) -> QueryState:
    """Return the state of what is not let go of yet: its end is told once it is."""
    return QueryState.RUNNING if state.ended else state


def _info(session: Hs2Session, statement_bytes: int) -> Mapping[int, messages.InfoValue]:
    """Return facts by the protocol's numbers of them; zero is no limit."""
    texts = {
        2: PRODUCT,  # CLI_DATA_SOURCE_NAME
        13: PRODUCT,  # CLI_SERVER_NAME
        14: "\\",  # CLI_SEARCH_PATTERN_ESCAPE
        17: PRODUCT,  # CLI_DBMS_NAME
        18: version("fusion-sql-gateway"),  # CLI_DBMS_VER
        19: "Y",  # CLI_ACCESSIBLE_TABLES
        20: "N",  # CLI_ACCESSIBLE_PROCEDURES
        25: "N",  # CLI_DATA_SOURCE_READ_ONLY
        29: "`",  # CLI_IDENTIFIER_QUOTE_CHAR
        47: session.session.user,  # CLI_USER_NAME
        73: "N",  # CLI_INTEGRITY
        90: "N",  # CLI_ORDER_BY_COLUMNS_IN_SELECT
        94: "",  # CLI_SPECIAL_CHARACTERS
        10_003: "N",  # CLI_CATALOG_NAME
        10_004: "UTF-8",  # CLI_COLLATION_SEQ
    }
    lengths = {
        **dict.fromkeys((0, 1, 30, 31, 32, 34, 35, 97, 98, 99, 100, 101, 102, 104, 106, 107, 10_005), 0),
        105: statement_bytes,  # CLI_MAX_STATEMENT_LEN
    }
    return {number: messages.InfoValue(text=text) for number, text in texts.items()} | {
        number: messages.InfoValue(length=length) for number, length in lengths.items()
    }
