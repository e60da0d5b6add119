"""HiveServer2 as the dependable engine: Hive itself, or Spark SQL behind Spark Thrift Server or Kyuubi."""

from __future__ import annotations

import functools
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import pyarrow as pa

from engines.errors import (
    DeadlineExceeded,
    EngineError,
    EngineFault,
    EngineUnavailable,
    StatementCancelled,
)
from engines.hive.columns import converted, sent_type, type_of
from engines.hive.errors import hive_errors, of_text
from engines.hive.pool import SessionPool
from engines.hive.session import CANCELLED, FINISHED, RUNNING, TIMED_OUT, Operation, Session
from engines.hive.transport import Access, Address
from engines.hive.views import named_in, view_statements
from engines.parser_settings import HIVE_AS_WRITTEN, SPARK_AS_WRITTEN
from engines.protocol import EXPLAIN_S, EngineKind, EngineStatus, Lease, Snapshots, Watch, never, unwatched
from engines.running_statement import RunningStatement, StatementResult
from engines.spark_sql.session_settings import CAREFUL_SETTINGS, FORMATS, SESSION_SETTINGS
from selector.quoting import spark_name
from selector.types import Group, Kind, names_of
from sql.tables import TableSource, in_two_parts, with_names

FETCH_ROWS = 10_000

SETTLES_S = 1.0
"""A cancel while Spark plans stops no job, and jobs start later. They are stopped when the statement is closed, this
time after the cancel."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.005, 0.1
_CANCEL_FOR_S = 300.0
_RETRY_S = 1.0
_VARIABLE = "${hiveconf:hive.variable.substitute}"  # has a value on each server that substitutes
_QUERY = re.compile(r"\s*(\(|(SELECT|WITH|FROM|VALUES|TABLE)\b)", re.IGNORECASE)
_JSON = re.compile(rf"(?:{'|'.join(names_of(Group.NESTED))})<|{Kind.VARIANT}$")
_TEXT = re.compile(r"string collate |time\(")
_TO_JSON = "TO_JSON({}, MAP('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\"))"


class _Statement(RunningStatement):
    """A running statement with its session."""

    def __init__(self, query_id: str, deadline_s: float, tables: tuple[TableSource, ...], tables_version: int) -> None:
        super().__init__(query_id, deadline_s)
        self.tables = tables
        self.tables_version = tables_version
        self.session: Session | None = None
        self.careful = False
        self.user: str | None = None

    def use(self, session: Session) -> None:
        """Set the session. Its connection is closed if the statement does not end in time."""
        self.session = session
        self.stop_by(lambda: None, break_off=session.break_off)

    def runs(self, session: Session, operation: Operation) -> None:
        """Set the operation that the end of the statement cancels."""
        self.stop_by(
            functools.partial(self._cancel, session, operation),
            break_off=functools.partial(_abandon, session, operation),
        )

    def _cancel(self, session: Session, operation: Operation) -> None:
        try:
            with hive_errors():
                session.cancel(operation)
                if not self.finished.wait(2 * SETTLES_S):
                    session.forget_from_outside(operation)
        except EngineError:
            return  # the reader of the statement gets the same error, and reports it


class HiveEngine:
    """HiveServer2 behind the ``Engine`` protocol. Calls block; only EngineError escapes; thread-safe.

    addresses: equivalent servers.
    dialect: ``spark`` for Spark Thrift Server and Kyuubi.
    tables: ``session``: each session gets views over the catalog's files, which Spark reads; ``metastore``: the
        server's own catalog has tables of these names, in the database of ``access``.
    slots: statements at once.
    whole_results: Spark computes a whole result and holds it in its driver, instead of one task after the other while
        the rows are read.
    settings: of each session; they override the gateway's, except those for parsing.
    idle_s: time after which an idle session is closed.
    acts_for_users: statements of users run as they; the gateway's own, such as EXPLAIN, do not.
    """

    kind = EngineKind.DEPENDABLE
    backtracks = True
    cost_model: str | None = None

    def __init__(
        self,
        addresses: Sequence[Address],
        access: Access | None = None,
        *,
        name: str = "hive",
        dialect: Literal["spark", "hive"] = "spark",
        tables: Literal["session", "metastore"] = "session",
        slots: int = 4,
        whole_results: bool = False,
        settings: Mapping[str, str] | None = None,
        idle_s: float = 300.0,
        acts_for_users: bool = False,
    ) -> None:
        self.acts_for_users = acts_for_users
        if not addresses:
            raise ValueError("HiveServer2 needs an address")
        if tables == "session" and dialect != "spark":
            raise ValueError("only Spark has views over files: Hive itself needs tables from the metastore")
        self.name = name
        self.dialect = dialect
        self.writer = "engines.spark_sql.writer" if dialect == "spark" else "engines.hive.writer"
        self.slots = slots
        self.formats = FORMATS if tables == "session" else FORMATS | {"avro"}
        ours: dict[str, str] = {}
        if dialect == "spark":
            ours = {**SESSION_SETTINGS, "spark.sql.thriftServer.incrementalCollect": str(not whole_results).lower()}
        fixed = SPARK_AS_WRITTEN if dialect == "spark" else HIVE_AS_WRITTEN
        self._makes_views = tables == "session"
        of_sessions = {**ours, **(settings or {}), **fixed}
        self._pool = SessionPool(addresses, access or Access(), of_sessions, keep=slots, idle_s=idle_s)
        self._lock = threading.Lock()
        self._tables: tuple[TableSource, ...] = ()
        self._tables_version = 0
        self._running: dict[str, _Statement] = {}

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables for statements that start from now on. A server with its own catalog has them already."""
        with self._lock:
            self._tables = tuple(tables)
            self._tables_version += self._makes_views

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the text of EXPLAIN; on Spark of EXPLAIN FORMATTED."""
        statement = self._admit(f"{self.name}-{uuid.uuid4().hex}", deadline_s)
        with self._rows(statement, sql, self._start_explain) as result:
            plan = pa.Table.from_batches(result, result.schema)
        return "\n".join(line or "" for line in plan.column(0).to_pylist())

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
        user: str | None = None,
    ) -> StatementResult:
        """Run a statement until its rows can be fetched. Of the lease only ``careful`` counts: the server spills.

        user: as whom it runs, in a session of its own; None: as the gateway's own user.
        """
        statement = self._admit(query_id, deadline_s)
        statement.user = user
        statement.careful = lease.careful and self.dialect == "spark"  # Hive's tasks have separate memory
        return self._rows(statement, sql, self._start)

    def cancel(self, query_id: str) -> None:
        """End a running statement; an unknown id is not an error."""
        with self._lock:
            statement = self._running.get(query_id)
        if statement is not None:
            statement.end(StatementCancelled("The statement was cancelled"))

    def status(self) -> EngineStatus:
        """Return alive if a server accepts connections."""
        if self._pool.closed:
            return EngineStatus(alive=False, detail="closed")
        return EngineStatus(*self._pool.answering())

    def close(self) -> None:
        """End every statement and close all sessions; may be called twice."""
        self._pool.close()
        with self._lock:
            running = list(self._running.values())
        for statement in running:
            statement.end(StatementCancelled("The engine was closed"))

    def _admit(self, query_id: str, deadline_s: float) -> _Statement:
        with self._lock:
            if query_id in self._running:
                raise EngineFault(f"The statement {query_id} is already running")
            statement = _Statement(query_id, deadline_s, self._tables, self._tables_version)
            self._running[query_id] = statement
            return statement

    def _rows(self, statement: _Statement, sql: str, start: _Start) -> StatementResult:
        try:
            apart = CAREFUL_SETTINGS if statement.careful else None
            session = self._pool.take(statement.tables_version, apart=apart, user=statement.user)
            statement.use(session)
            with hive_errors():
                _require_as_written(statement, session)
                operation, schema = start(statement, session, sql)
        except EngineError as error:
            reason = statement.ended_by or error
            self._release(statement, error)
            raise reason from None

        def release(error: EngineError | None) -> None:
            _forget(session, operation)
            self._release(statement, error)

        return StatementResult(
            statement,
            schema,
            _batches(session, operation, schema),
            errors=hive_errors,
            settle=lambda error: statement.ended_by or error,
            release=release,
        )

    def _release(self, statement: _Statement, error: EngineError | None) -> None:
        """Remove a statement that ended, and keep its session for the next one. error: None: it succeeded."""
        statement.finish()
        with self._lock:
            del self._running[statement.query_id]
        session = statement.session
        if session is not None:
            session.broken |= statement.careful or isinstance(error, EngineUnavailable | EngineFault)
            self._pool.give_back(session)

    def _start(self, statement: _Statement, session: Session, sql: str) -> _Started:
        sql = self._with_tables(statement, session, sql)
        if self.dialect != "spark" or not _QUERY.match(sql):
            return _run(statement, session, sql, None)
        names, types = _described(statement, session, sql)
        schema = pa.schema([pa.field(name, sent_type(kind)) for name, kind in zip(names, types, strict=True)])
        return _run(statement, session, _as_sendable(sql, types), schema)

    def _start_explain(self, statement: _Statement, session: Session, sql: str) -> _Started:
        sql = self._with_tables(statement, session, sql)
        if self.dialect != "spark":
            return _run(statement, session, f"EXPLAIN {sql}", None)
        if _QUERY.match(sql):
            _described(statement, session, sql)  # for a wrong statement, EXPLAIN returns a row of text
        return _run(statement, session, f"EXPLAIN FORMATTED {sql}", None)

    def _with_tables(self, statement: _Statement, session: Session, sql: str) -> str:
        """Create views of the statement's tables, or return the statement with the server's own names of tables."""
        if not self._makes_views:
            return with_names(sql, {spark_name(table.name): in_two_parts(table.name) for table in statement.tables})
        for table in named_in(sql, statement.tables):
            for view in view_statements(table):
                _collected(statement, session, view)
        return sql


_Started: TypeAlias = tuple[Operation, pa.Schema]
_Start: TypeAlias = Callable[[_Statement, Session, str], _Started]


def _run(statement: _Statement, session: Session, sql: str, schema: pa.Schema | None) -> _Started:
    """Send a statement and wait until its rows can be fetched. schema: None: ask the server."""
    statement.raise_if_ended()
    operation = session.start(sql)
    try:
        statement.runs(session, operation)
        _wait(statement, session, operation)
        if schema is None:
            described = session.columns(operation)
            schema = pa.schema([pa.field(column.columnName, type_of(column)) for column in described])
    except BaseException:
        if statement.ended.is_set():
            time.sleep(SETTLES_S)
        _forget(session, operation)
        raise
    return operation, schema


def _wait(statement: _Statement, session: Session, operation: Operation) -> None:
    """Return once a statement's rows can be fetched. Raises EngineError."""
    wait_s = _FIRST_WAIT_S
    while True:
        statement.raise_if_ended()
        asked_s = time.monotonic()
        answer = session.state(operation)
        state = answer.operationState
        if state == FINISHED:
            return
        if state in CANCELLED:
            raise statement.ended_by or StatementCancelled("The statement was cancelled on the server")
        if state == TIMED_OUT:
            raise DeadlineExceeded("The statement exceeded the server's own time limit")
        if state not in RUNNING:
            raise of_text(answer.errorMessage or "", answer.sqlState)
        if time.monotonic() - asked_s < wait_s:  # this server answers at once, also without a change
            statement.ended.wait(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)


def _batches(session: Session, operation: Operation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows as they come."""
    while len(schema) and (columns := session.fetch(operation, FETCH_ROWS)) and len(columns[0]):
        arrays = [converted(sent, field.type) for sent, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _forget(session: Session, operation: Operation) -> None:
    try:
        with hive_errors():
            session.forget(operation)
    except EngineError:
        session.broken = True  # it will be closed with its operations


def _collected(statement: _Statement, session: Session, sql: str) -> pa.Table:
    """Run a statement of the gateway. Returns its columns."""
    operation, schema = _run(statement, session, sql, None)
    try:
        return pa.Table.from_batches(_batches(session, operation, schema), schema)
    finally:
        _forget(session, operation)


def _require_as_written(statement: _Statement, session: Session) -> None:
    """Send a new session a text with a variable: a server that substitutes variables gets no other statement."""
    if not session.proven:
        if _collected(statement, session, f"SELECT '{_VARIABLE}'").column(0).to_pylist() != [_VARIABLE]:
            raise EngineUnavailable(
                "HiveServer2 substitutes ${...} in statements, in spite of the settings of its session: set "
                "spark.sql.variable.substitute, or hive.variable.substitute, to false there"
            )
        session.proven = True


def _described(statement: _Statement, session: Session, sql: str) -> tuple[list[str], list[str]]:
    """Return names and Spark's types of a query's columns: HiveServer2's own types have less detail."""
    columns = _collected(statement, session, f"DESCRIBE QUERY {sql}")
    return columns.column(0).to_pylist(), columns.column(1).to_pylist()


def _as_sendable(sql: str, types: Sequence[str]) -> str:
    """Return the query with JSON or text for types that HiveServer2 cannot send, or not in a readable form."""
    if not any(_JSON.match(kind) or _TEXT.match(kind) for kind in types):
        return sql
    names = [f"c{position}" for position in range(len(types))]
    columns = [
        _TO_JSON.format(name) if _JSON.match(kind) else f"CAST({name} AS STRING)" if _TEXT.match(kind) else name
        for name, kind in zip(names, types, strict=True)
    ]
    return f"SELECT {', '.join(columns)} FROM ({sql}\n) AS answer({', '.join(names)})"  # noqa: S608  a checked statement


def _abandon(session: Session, operation: Operation) -> None:
    """Close the connection to a server that does not answer, and cancel the statement once it answers again."""
    session.break_off()
    give_up_s = time.monotonic() + _CANCEL_FOR_S
    while time.monotonic() < give_up_s:
        try:
            with hive_errors():
                session.cancel(operation)
            return
        except EngineUnavailable:
            time.sleep(_RETRY_S)
        except EngineError:
            return  # the server does not know it any more
