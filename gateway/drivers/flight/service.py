"""Flight SQL's calls, each with its request in and its reply out; errors leave as those of ``failures.MAPPED``.

A client learns of rows once the statement has ended, with their count, or once no other engine's rows can replace them:
then it reads them while the statement runs. A ticket is a statement's handle, or a question about the catalog.

It is long because each call of the protocol has a method.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from gateway.catalog.snapshot import CatalogView
from gateway.drivers.flight import data, metadata, parameters, sql_info
from gateway.drivers.flight.known_texts import KnownTexts
from gateway.drivers.flight.messages import (
    SESSION_CLOSED,
    CancelStatus,
    DescriptorType,
    Malformed,
    OptionError,
    pack,
    read,
    unpack,
)
from gateway.drivers.flight.parameters import NULL, Template
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    ActionType,
    CancelFlightInfoRequest,
    CancelFlightInfoResult,
    CloseSessionResult,
    FlightData,
    FlightDescriptor,
    FlightEndpoint,
    FlightInfo,
    GetSessionOptionsResult,
    PollInfo,
    PutResult,
    Result,
    SchemaResult,
    SetSessionOptionsRequest,
    SetSessionOptionsResult,
    Ticket,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionCancelQueryResult,
    ActionCreatePreparedStatementResult,
    DoPutPreparedStatementResult,
    DoPutUpdateResult,
    TicketStatementQuery,
)
from gateway.drivers.flight.sessions import FlightSession, Prepared, Sessions
from gateway.drivers.handles import Handles
from gateway.drivers.operations import StatementOperation
from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import NotFinished, NotOffered, QueryFailed, SessionError, SessionFull
from gateway.execution.coordinator import Coordinator
from gateway.execution.spooling.downloads import Downloads
from gateway.execution.spooling.results import Spool
from gateway.security.authentication import Login
from gateway.security.identity.authenticator import Authenticator
from gateway.security.principals import Principal
from gateway.statements.command import Command
from gateway.statements.session import LONG_POLL_S, Limits, Session, expire_idle
from gateway.statements.statement import Run
from metastore.records import QueryState
from sql.errors import UnknownDatabase

FRESH_S = 5.0  # age of rows from a command's preparation, up to which its first execution returns them
UNKNOWN_COUNT = -1
DATABASE_OPTION = "schema"  # ADBC's and JDBC's word for the database of a session
CATALOG_OPTION = "catalog"
PARAMETER_NAME = "parameter_{}"
ACTIONS = {
    "CreatePreparedStatement": "Prepares a statement; its parameters are ?.",
    "ClosePreparedStatement": "Forgets a prepared statement.",
    "CancelFlightInfo": "Cancels a statement.",
    "CancelQuery": "Cancels a statement; CancelFlightInfo is its newer form.",
    "SetSessionOptions": "Changes settings of the session.",
    "GetSessionOptions": "Returns settings of the session.",
    "CloseSession": "Ends the session with all that it holds.",
}

Gone = Callable[[Callable[[], None]], None]


@dataclass(slots=True)
class Call:
    """One call."""

    session: FlightSession
    when_gone: Gone
    """Registers a function to call once the call is over, or its client is gone."""
    headers: Callable[[], Mapping[str, str]] = dict
    """Returns the headers that routing rules use."""
    query_id: str | None = None
    """Id of the statement that the call runs, once it has one."""

    @property
    def principal(self) -> Principal:
        """User who calls."""
        return self.session.session.principal

    @property
    def user(self) -> str:
        """Account of the user who calls."""
        return self.principal.account


class FlightService:
    """The service behind the port. Thread-safe."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        catalog: CatalogView,
        spool: Spool,
        authenticator: Authenticator,
        limits: Limits,
        held_bytes: int,
        handles: Handles,
        shared: SharedSessions | None,
        downloads: Downloads,
        headers_of: Callable[[Mapping[str, str]], Mapping[str, str]],
        deadline_s: float,
    ) -> None:
        """Build it.

        held_bytes: largest size of one session's finished results.
        headers_of: returns the headers that routing rules use.
        shared: sessions that other gateways may continue; None: there are no others.
        """
        self._coordinator = coordinator
        self._catalog = catalog
        self._spool = spool
        self._authenticator = authenticator
        self._deadline_s = deadline_s
        self._idle_s = limits.idle_s
        self._stopping = threading.Event()
        self.sessions = Sessions(
            limits,
            authenticator.current,
            handles,
            held_bytes=held_bytes,
            shared=shared,
            continued=self._new_session,
            statement=self._continued,
        )
        self.downloads = downloads
        self.headers_of = headers_of
        self.statement_bytes = coordinator.parser_limits.statement_bytes
        self._texts = KnownTexts(coordinator.parser_limits)

    def start(self) -> None:
        """Begin to close idle sessions, and to end stalled downloads."""
        expire_idle(self.sessions.close_idle, self._stopping, name="flight session expiry")
        expire_idle(self.downloads.drop_stalled, self._stopping, name="flight download expiry")

    def stop(self) -> None:
        """Close every session."""
        self._stopping.set()
        self.sessions.leave()

    # ------------------------------------------------------------------ sessions

    def log_in(self, login: Login) -> FlightSession:
        """Begin a session, which is not idle until ``end_wait``. Raises AuthenticationFailed, TooManySessions."""
        return self.open_session(self._authenticator.authenticate(login))

    def session_of_login(self, login: Login, token: str) -> FlightSession:
        """Return the session of a token if it is of the user who logs in with this call, or begin one.

        It is not idle until ``end_wait``. Raises AuthenticationFailed, IdentityProviderUnavailable, TooManySessions.
        """
        user = self._authenticator.authenticate(login)
        session = self.sessions.claim(token)
        if session is None:
            return self.open_session(user)
        if session.session.principal.account != user.account:
            session.session.end_wait()
            return self.open_session(user)
        self.sessions.renew(session, user)
        self.sessions.require_current(session)
        return session

    def takes_token(self, token: str) -> bool:
        """Tell whether a user's bearer token is checked; without that it is ignored."""
        return self._authenticator.takes_token(token)

    def open_session_of(self, account: str, address: str) -> FlightSession:
        """Begin a session of a user who has logged in at another gateway.

        Raises AuthenticationFailed, TooManySessions.
        """
        return self.open_session(self._authenticator.of_account(account, address))

    def open_session(self, user: Principal) -> FlightSession:
        """Begin a session of a user who has logged in. Raises TooManySessions."""
        return self.sessions.open(self._new_session(user))

    def _new_session(self, user: Principal) -> Session:
        return Session(user, deadline_s=self._deadline_s, limits=self._coordinator.parser_limits)

    def _continued(self, query_id: str, user: str) -> StatementOperation | None:
        """Return a user's statement whose gateway is gone; None: there is none. user: its account."""
        run, _ = self._coordinator.continued(query_id) or (None, False)
        if run is None:
            return None
        owner = Principal(run.record.user, authenticated=run.record.authenticated)
        return StatementOperation(run, self._coordinator, self._spool) if owner.account == user else None

    # ------------------------------------------------------------------ statements and questions

    def get_flight_info(self, request: bytes, call: Call) -> Any:
        """Run a statement until it has rows, or read a question, and return the ticket of the rows."""
        descriptor, name, command = _command(request)
        question = self._question(name, command)
        if question is not None:
            return _info(descriptor, question.schema, descriptor.cmd)
        handle, operation = self._started(name, command, call)
        try:
            self._wait_for_rows(operation, call)
        except (QueryFailed, NotFinished):
            self.sessions.release(handle)
            raise
        return self._rows_info(descriptor, handle, operation)

    def poll_flight_info(self, request: bytes, call: Call) -> Any:
        """Start a statement, or return the state of a started one; the reply comes after a change, or soon.

        If its rows can be read before its end, the reply also has the descriptor for the next call.
        """
        descriptor, name, command = _command(request)
        if name == "TicketStatementQuery":
            handle = command.statement_handle
            operation = self.sessions.operation(handle, call.user)
        else:
            handle, operation = self._started(name, command, call)
        rows_were_announced = operation.has_early_rows and name == "TicketStatementQuery"
        change: Future[Any] = operation.done if rows_were_announced else operation.ready
        concurrent.futures.wait([change], timeout=LONG_POLL_S)
        if operation.done.done():
            operation.require_finished()
            return PollInfo(info=self._rows_info(descriptor, handle, operation), progress=1.0)
        again = FlightDescriptor(type=DescriptorType.COMMAND, cmd=_ticket(handle))
        if operation.has_early_rows:
            return PollInfo(info=self._rows_info(descriptor, handle, operation), flight_descriptor=again)
        unknown = FlightInfo(total_records=UNKNOWN_COUNT, total_bytes=UNKNOWN_COUNT, app_metadata=handle)
        return PollInfo(info=unknown, flight_descriptor=again)

    def get_schema(self, request: bytes, call: Call) -> Any:
        """Return the columns of a statement that does not run, or of a question's answer."""
        _, name, command = _command(request)
        question = self._question(name, command)
        if question is not None:
            schema = question.schema
        elif name == "CommandPreparedStatementQuery":
            schema = self.sessions.prepared(command.prepared_statement_handle, call.user).schema
        else:
            schema, first = self._described(self._template(_query(name, command), call), call)
            if first is not None:
                self.sessions.release(first[0])
        if schema is None:
            raise NotOffered("The columns of the statement are not known before it runs; execute it.")
        return SchemaResult(schema=schema.serialize().to_pybytes())

    def do_get(self, request: bytes, call: Call) -> Iterator[bytes]:
        """Return rows."""
        name, command = unpack(read(Ticket, request).ticket)
        question = self._question(name, command)
        if question is not None:
            snapshot = self._catalog.shown_to(call.session.session.principal)
            return data.encoded_table(question.answer(snapshot.databases, snapshot.relations_for(call.session.session)))
        if name != "TicketStatementQuery":
            raise Malformed(f"{name} is not a ticket.")
        operation = self.sessions.operation(command.statement_handle, call.user)
        operation.require_here()
        operation.require_rows()
        call.query_id = operation.run.id
        rows = self._rows(operation, call.session.session.principal.quota_key)
        self.sessions.note_read(command.statement_handle)
        return rows

    def do_put(self, requests: Iterator[bytes], call: Call) -> Any:
        """Run a statement and return the number of written rows, or bind the parameters of a prepared one."""
        first = read(FlightData, next(requests, b""))
        name, command = unpack(first.flight_descriptor.cmd)
        if name == "CommandStatementUpdate":
            handle, operation = self._submitted(_query(name, command), call)
            return self._updated(handle, operation, call)
        if name == "CommandStatementIngest":
            raise NotOffered("Bulk ingestion is not supported; use INSERT INTO t SELECT ..., or register files.")
        if name not in ("CommandPreparedStatementUpdate", "CommandPreparedStatementQuery"):
            raise Malformed(f"{name} cannot be put.")
        prepared = self.sessions.prepared(command.prepared_statement_handle, call.user)
        self._bind(prepared, chain([first], (read(FlightData, request) for request in requests)))
        if name == "CommandPreparedStatementUpdate":
            handle, operation = self._submitted(prepared.template.filled(prepared.values), call)
            return self._updated(handle, operation, call)
        bound = DoPutPreparedStatementResult(prepared_statement_handle=command.prepared_statement_handle)
        return PutResult(app_metadata=bound.SerializeToString())

    # ------------------------------------------------------------------ actions

    def do_action(self, request: bytes, call: Call) -> list[Any]:
        """Carry out an action; returns its results."""
        action = read(Action, request)
        match action.type:
            case "CreatePreparedStatement":
                return [self._prepare(_expected("ActionCreatePreparedStatementRequest", action.body), call)]
            case "ClosePreparedStatement":
                closed = _expected("ActionClosePreparedStatementRequest", action.body)
                self.sessions.unprepare(closed.prepared_statement_handle, call.user)
                return []
            case "CancelFlightInfo":
                status = self._cancel(read(CancelFlightInfoRequest, action.body).info, call)
                return [_result(CancelFlightInfoResult(status=status))]
            case "CancelQuery":
                info = read(FlightInfo, _expected("ActionCancelQueryRequest", action.body).info)
                return [_packed_result(ActionCancelQueryResult(result=self._cancel(info, call)))]
            case "SetSessionOptions":
                return [_result(self._set_options(read(SetSessionOptionsRequest, action.body), call.session.session))]
            case "GetSessionOptions":
                return [_result(_options(call.session.session))]
            case "CloseSession":
                self.sessions.close_everywhere(call.session)
                return [_result(CloseSessionResult(status=SESSION_CLOSED))]
        raise NotOffered(f"There is no action {action.type[:80]}.")

    def list_actions(self) -> list[Any]:
        """Return all actions."""
        return [ActionType(type=name, description=text) for name, text in ACTIONS.items()]

    def _prepare(self, request: Any, call: Call) -> Any:
        template = self._template(_query("ActionCreatePreparedStatementRequest", request), call)
        schema, first = self._described(template, call)
        prepared = Prepared(template, schema, first and first[0], time.monotonic() + FRESH_S)
        handle = self.sessions.prepare(call.session, prepared)
        unknown = pa.schema(
            [(PARAMETER_NAME.format(number), pa.null()) for number in range(1, len(template.places) + 1)]
        )
        return _packed_result(
            ActionCreatePreparedStatementResult(
                prepared_statement_handle=handle,
                dataset_schema=schema.serialize().to_pybytes() if schema is not None else b"",
                parameter_schema=unknown.serialize().to_pybytes(),
            )
        )

    def _cancel(self, info: Any, call: Call) -> CancelStatus:
        """Cancel the statement of a FlightInfo; returns the progress."""
        handles = [info.app_metadata] if info.app_metadata else []
        for endpoint in info.endpoint:
            name, ticket = unpack(endpoint.ticket.ticket)
            if name != "TicketStatementQuery":
                return CancelStatus.NOT_CANCELLABLE
            handles.append(ticket.statement_handle)
        if not handles:
            raise Malformed("The FlightInfo names no statement.")
        operations = [self.sessions.operation(handle, call.user) for handle in handles]
        if all(operation.done.done() for operation in operations):
            for handle in handles:
                self.sessions.release(handle)
            return CancelStatus.CANCELLED
        for operation in operations:
            operation.cancel()
        return CancelStatus.CANCELLING

    # ------------------------------------------------------------------ help

    def _set_options(self, request: Any, session: Session) -> Any:
        """Change settings; the reply names those that are refused."""
        reply = SetSessionOptionsResult()
        for name, option in request.session_options.items():
            kind = option.WhichOneof("option_value")
            value = getattr(option, kind) if kind is not None else None
            try:
                if value is None:
                    session.reset(name)
                elif name == DATABASE_OPTION:
                    session.use(self._catalog.require_database(str(value), session.principal, of_now=True))
                elif name == CATALOG_OPTION or kind == "string_list_value":
                    reply.errors[name].value = OptionError.INVALID_VALUE
                else:
                    session.set(name, str(value).lower() if isinstance(value, bool) else str(value))
            except SessionFull:
                reply.errors[name].value = OptionError.ERROR
            except (SessionError, UnknownDatabase):
                exists = session.get(name) is not None or name == DATABASE_OPTION
                reply.errors[name].value = OptionError.INVALID_VALUE if exists else OptionError.INVALID_NAME
        return reply

    def _question(self, name: str, command: Any) -> metadata.Question | None:
        if name == "CommandGetSqlInfo":
            table = sql_info.sql_info(
                frozenset(command.info), idle_s=self._idle_s, statement_bytes=self.statement_bytes
            )
            return metadata.Question(sql_info.SCHEMA, lambda *_: table)
        return metadata.question(name, command)

    def _started(self, name: str, command: Any, call: Call) -> tuple[bytes, StatementOperation]:
        """Start the statement of a command; returns it with its handle."""
        if name == "CommandPreparedStatementQuery":
            prepared = self.sessions.prepared(command.prepared_statement_handle, call.user)
            started = self.sessions.take_first(prepared)
            if started is not None and time.monotonic() > prepared.fresh_until_s:
                self.sessions.release(started[0])
                started = None
            if started is None:
                started = self._submitted(prepared.template.filled(prepared.values), call, with_values=True)
            prepared.last = started[0]
            return started
        return self._submitted(_query(name, command), call)

    def _submitted(self, sql: str, call: Call, *, with_values: bool = False) -> tuple[bytes, StatementOperation]:
        statement = call.session.session.statement(sql, with_values=with_values, headers=call.headers())
        run = self._coordinator.start(statement)
        call.query_id = run.id
        call.when_gone(partial(self._stop_reading, run))
        run.require_accepted()
        self._coordinator.require_on_record(run)
        operation = StatementOperation(run, self._coordinator, self._spool)
        return self.sessions.hold(call.session, operation), operation

    def _stop_reading(self, run: Run) -> None:
        """Cancel a statement whose client left before it was read: nobody knows its handle."""
        if not run.accepted.done():
            self._coordinator.cancel(run.id)

    def _wait(self, operation: StatementOperation, call: Call) -> None:
        """Wait for a statement's end; cancel it if the client leaves. Raises QueryFailed."""
        call.when_gone(operation.cancel)
        concurrent.futures.wait([operation.done])
        operation.require_finished()

    def _wait_for_rows(self, operation: StatementOperation, call: Call) -> None:
        """Wait for a statement's rows; cancel it if the client leaves. Raises QueryFailed."""
        answered = threading.Event()
        call.when_gone(lambda: None if answered.is_set() else operation.cancel())
        concurrent.futures.wait([operation.ready])
        operation.require_rows()
        answered.set()

    def _rows_info(self, descriptor: Any, handle: bytes, operation: StatementOperation) -> Any:
        """Return the ticket of rows, with their number once the statement has ended."""
        with operation.rows.open() as reader:
            schema = reader.schema
        info = _info(descriptor, schema, _ticket(handle))
        info.app_metadata = handle
        record = operation.run.record
        if record.state is QueryState.FINISHED:
            info.total_records = record.rows or 0
            info.total_bytes = record.result_bytes or UNKNOWN_COUNT
        return info

    def _updated(self, handle: bytes, operation: StatementOperation, call: Call) -> Any:
        """Wait for a statement's end, and return the number of rows that it wrote, if it writes."""
        try:
            self._wait(operation, call)
            written = operation.rows_written()
        finally:
            self.sessions.release(handle)
        count = UNKNOWN_COUNT if written is None else written
        return PutResult(app_metadata=DoPutUpdateResult(record_count=count).SerializeToString())

    def _rows(self, operation: StatementOperation, user: str) -> Iterator[bytes]:
        with self.downloads.place(user), operation.rows.open() as result:
            yield from data.encoded(result, self.downloads.waited_for(result, user))

    def _template(self, sql: str, call: Call) -> Template:
        statement = call.session.session.statement(sql)
        read_it = partial(self._coordinator.read, statement.principal)
        template: Template = self._texts.read(parameters.template, statement.sql, statement.dialect, read_it)
        return template

    def _bind(self, prepared: Prepared, messages: Iterable[Any]) -> None:
        rows = data.decoded(messages, largest_bytes=self.statement_bytes)
        if rows.num_columns or prepared.template.places:
            prepared.values = parameters.literals(rows, prepared.template.dialect)

    def _described(
        self, template: Template, call: Call
    ) -> tuple[pa.Schema | None, tuple[bytes, StatementOperation] | None]:
        """Return a statement's columns and, if it ran for them, its rows. None: it changes something, and did not run.

        Columns are known only from a run. A query runs with LIMIT 0 for them, once while its tables stay the same; the
        work is done when it is executed, under the time limit of that call. A command that only reads runs once for
        both.
        """
        session = call.session.session
        sql = template.filled([NULL] * len(template.places))
        statement = session.statement(sql, with_values=True)
        meant = self._coordinator.classify(statement)
        if isinstance(meant, Command) and not meant.is_reading:
            return None, None
        columns = self._texts.columns(meant)
        if columns is not None:
            return columns, None
        is_command = isinstance(meant, Command)
        if not is_command:
            read_it = partial(self._coordinator.read, statement.principal)
            sql = self._texts.read(parameters.without_rows, sql, template.dialect, read_it)
        handle, operation = self._submitted(sql, call, with_values=True)
        keeps_rows = False
        try:
            self._wait(operation, call)
            with self._spool.open(operation.run.id) as reader:
                schema = reader.schema
            keeps_rows = is_command
            self._texts.keep_columns(meant, sql, schema)
        except (QueryFailed, NotFinished):
            if not template.places:
                raise
            return None, None  # some statements do not take NULL in place of every value
        finally:
            if not keeps_rows:
                self.sessions.release(handle)
        return schema, (handle, operation) if keeps_rows else None


def _command(request: bytes) -> tuple[Any, str, Any]:
    """Return a descriptor, the name of its command, and the command. Raises Malformed."""
    descriptor = read(FlightDescriptor, request)
    if descriptor.type != DescriptorType.COMMAND:
        raise Malformed("The descriptor has no command.")
    return descriptor, *unpack(descriptor.cmd)


def _query(name: str, command: Any) -> str:
    """Return the text of a statement. Raises NotOffered, Malformed."""
    if name == "CommandStatementSubstraitPlan":
        raise NotOffered("Substrait plans are not supported; send SQL.")
    if not hasattr(command, "query"):
        raise Malformed(f"{name} is not a statement.")
    if command.HasField("transaction_id"):
        raise NotOffered("Transactions are not supported.")
    text: str = command.query
    return text


def _expected(name: str, body: bytes) -> Any:
    actual, message = unpack(body)
    if actual != name:
        raise Malformed(f"{actual} does not belong to this action.")
    return message


def _info(descriptor: Any, schema: pa.Schema, ticket: bytes) -> Any:
    return FlightInfo(
        schema=schema.serialize().to_pybytes(),
        flight_descriptor=descriptor,
        endpoint=[FlightEndpoint(ticket=Ticket(ticket=ticket))],
        total_records=UNKNOWN_COUNT,
        total_bytes=UNKNOWN_COUNT,
    )


def _ticket(handle: bytes) -> bytes:
    return pack(TicketStatementQuery(statement_handle=handle))


def _result(message: Any) -> Any:
    return Result(body=message.SerializeToString())


def _packed_result(message: Any) -> Any:
    return Result(body=pack(message))


def _options(session: Session) -> Any:
    """Return settings, with the database."""
    reply = GetSessionOptionsResult()
    for name, value in (*session.settings().items(), (DATABASE_OPTION, session.database)):
        reply.session_options[name].string_value = value
    return reply
