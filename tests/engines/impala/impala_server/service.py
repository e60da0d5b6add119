"""Impala's HiveServer2 service: sessions, operations, and the statements that are no queries."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from impala._thrift_gen.ImpalaService import ImpalaHiveServer2Service as service  # type: ignore[import-untyped]
from impala._thrift_gen.ImpalaService import ttypes as i
from impala._thrift_gen.TCLIService import ttypes as t  # type: ignore[import-untyped]

from tests.engines.impala.impala_server import plan, texts
from tests.engines.impala.impala_server.operation import Fault, Operation, table_schema
from tests.engines.impala.impala_server.query import Query, QueryFailed
from tests.engines.impala.impala_server.warehouse import AnalysisError, Table, Warehouse

VERSION = "impalad version 4.5.0-RELEASE RELEASE (build 0000000)"
OPTIONS = {
    "MEM_LIMIT": "0",
    "MT_DOP": "0",
    "REQUEST_POOL": "",
    "EXEC_TIME_LIMIT_S": "0",
    "EXPLAIN_LEVEL": "STANDARD",
    "FETCH_ROWS_TIMEOUT_MS": "10000",
    "TIMEZONE": "",
    "CLIENT_IDENTIFIER": "",
    "SYNC_DDL": "0",
    "PARQUET_FALLBACK_SCHEMA_RESOLUTION": "POSITION",
    "ORC_SCHEMA_RESOLUTION": "POSITION",
    "COMPRESSION_CODEC": "",
    "EXPAND_COMPLEX_TYPES": "0",
}
"""Query options that this server knows, with their defaults; others are refused as Impala refuses them."""

KEPT_PROFILES = 20
_OK = t.TStatus(t.TStatusCode.SUCCESS_STATUS)
_PART = r"(?:`((?:[^`]|``)+)`|(\w+))"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})?"


@dataclass(slots=True)
class Session:
    """One client's session."""

    guid: bytes
    user: str
    database: str
    options: dict[str, str]
    operations: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement as it arrived, for tests to look at."""

    sql: str
    options: Mapping[str, str]
    database: str
    user: str


class ImpalaService(service.Iface):  # type: ignore[misc]
    """Answers calls; one object for all connections."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.may_act_for: set[str] = set()  # users, as authorized_proxy_user_config has them
        self.sessions: dict[bytes, Session] = {}
        self.operations: dict[bytes, Operation] = {}
        self._ended: dict[bytes, Operation] = {}  # whose profiles can still be asked for
        self._lock = threading.Lock()
        self._commands: tuple[tuple[str, Callable[[Session, re.Match[str]], pa.Table]], ...] = (
            (rf"USE {_PART}$", self._use),
            (r"SET(?:\s+ALL)?$", self._show_options),
            (r"SET\s+(\w+)\s*=\s*(.*)$", self._set),
            (rf"CREATE (?:DATABASE|SCHEMA)(?: IF NOT EXISTS)? {_PART}", self._create_database),
            (r"CREATE EXTERNAL TABLE\b", self._create_table),
            (rf"DROP TABLE IF EXISTS {_NAME}$", self._drop_table),
            (rf"(?:REFRESH|INVALIDATE METADATA) {_NAME}$", self._refresh),
            (rf"ALTER TABLE {_NAME} RECOVER PARTITIONS$", self._refresh),
            (rf"DESCRIBE(?: FORMATTED)? {_NAME}$", self._describe),
            (rf"SHOW TABLE STATS {_NAME}$", self._table_stats),
            (r"SHOW DATABASES$", lambda session, _: _rows(name=self.warehouse.databases())),
            (r"SHOW TABLES(?: IN (\w+))?$", self._show_tables),
        )

    # ------------------------------------------------------------------ sessions

    def OpenSession(self, req: Any) -> Any:
        configuration = {key.upper(): value for key, value in (req.configuration or {}).items()}
        database = configuration.pop("USE:DATABASE", "default")
        user, acting_for = req.username or "", configuration.pop("IMPALA.DOAS.USER", None)
        if acting_for is not None and acting_for not in self.may_act_for:
            text = f"User '{user}' is not authorized to delegate to '{acting_for}'."
            return t.TOpenSessionResp(_failed(text), t.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6)
        session = Session(uuid.uuid4().bytes, acting_for or user, database.lower(), dict(OPTIONS))
        try:
            session.options |= _known(configuration)
        except QueryFailed as error:
            return t.TOpenSessionResp(_failed(str(error)), t.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6)
        with self._lock:
            self.sessions[session.guid] = session
        handle = t.TSessionHandle(t.THandleIdentifier(session.guid, uuid.uuid4().bytes))
        version = min(req.client_protocol, t.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6)
        return t.TOpenSessionResp(_OK, version, handle, session.options)

    def CloseSession(self, req: Any) -> Any:
        with self._lock:
            session = self.sessions.pop(req.sessionHandle.sessionId.guid, None)
        if session is None:
            return t.TCloseSessionResp(_failed("Invalid session id: 0000000000000000:0000000000000000"))
        for guid in list(session.operations):
            self._forget(guid)
        return t.TCloseSessionResp(_OK)

    def GetInfo(self, req: Any) -> Any:
        values = {t.TGetInfoType.CLI_SERVER_NAME: "Impala", t.TGetInfoType.CLI_DBMS_NAME: "Impala"}
        value = t.TGetInfoValue(stringValue=values.get(req.infoType, VERSION))
        known = req.sessionHandle.sessionId.guid in self.sessions
        return t.TGetInfoResp(_OK if known else _failed("Invalid session id: 0:0"), value)

    def PingImpalaHS2Service(self, req: Any) -> Any:
        known = req.sessionHandle.sessionId.guid in self.sessions
        status = _OK if known else _failed("Invalid session id: 0:0")
        return i.TPingImpalaHS2ServiceResp(status, VERSION, "127.0.0.1:25000", timestamp=int(time.time()))

    # ------------------------------------------------------------------ statements

    def ExecuteStatement(self, req: Any) -> Any:
        session = self.sessions.get(req.sessionHandle.sessionId.guid)
        if session is None:
            return t.TExecuteStatementResp(_failed("Invalid session id: 0000000000000000:0000000000000000"))
        try:
            operation = self._start(session, req.statement.strip().rstrip(";"), req.confOverlay or {})
        except (QueryFailed, AnalysisError) as error:
            return t.TExecuteStatementResp(_failed(str(error)))
        with self._lock:
            self.operations[operation.guid] = operation
            session.operations.add(operation.guid)
        return t.TExecuteStatementResp(_OK, operation.handle)

    def _start(self, session: Session, sql: str, overlay: Mapping[str, str]) -> Operation:
        options = {**session.options, **_known({key.upper(): value for key, value in overlay.items()})}
        self.asked.append(Asked(sql, options, session.database, session.user))
        explained = re.match(r"EXPLAIN\s+", sql, re.IGNORECASE)
        fault = None if explained else self._fault(sql)
        if fault is not None and fault.phase == "plan":
            raise QueryFailed(fault.text)
        for pattern, command in self._commands:
            found = re.match(pattern, sql, re.IGNORECASE | re.DOTALL)
            if found:
                return Operation(None, sql, options, rows=command(session, found))
        query = Query(
            str(uuid.uuid4()), sql[explained.end() :] if explained else sql, session.database, options, self.warehouse
        )
        try:
            query.analyze()
            if explained:
                lines = query.explain()
                query.close()
                return Operation(None, sql, options, rows=_rows(**{"Explain String": lines}))
        except QueryFailed:
            query.close()
            raise
        operation = Operation(query, sql, options, fault=fault)
        query.id = operation.id
        return operation

    def _fault(self, sql: str) -> Fault | None:
        with self._lock:
            found = next((fault for fault in self.faults if fault.part in sql), None)
            if found is not None:
                self.faults.remove(found)
            return found

    # ------------------------------------------------------------------ operations

    def GetOperationStatus(self, req: Any) -> Any:
        operation = self._find(req)
        if operation is None:
            return t.TGetOperationStatusResp(_unknown())
        return t.TGetOperationStatusResp(
            _OK, operation.state, errorMessage=operation.error or None, hasResultSet=operation.handle.hasResultSet
        )

    def GetResultSetMetadata(self, req: Any) -> Any:
        operation = self._find(req)
        if operation is None:
            return t.TGetResultSetMetadataResp(_unknown())
        try:
            return t.TGetResultSetMetadataResp(_OK, table_schema(operation.wait_for_schema()))
        except QueryFailed as error:
            return t.TGetResultSetMetadataResp(_failed(str(error)))

    def FetchResults(self, req: Any) -> Any:
        operation = self._find(req)
        if operation is None:
            return t.TFetchResultsResp(_unknown())
        try:
            rows, more = operation.fetch(req.maxRows)
        except QueryFailed as error:
            return t.TFetchResultsResp(_failed(str(error)))
        return t.TFetchResultsResp(_OK, more, rows)

    def CancelOperation(self, req: Any) -> Any:
        operation = self._find(req)
        if operation is None:
            return t.TCancelOperationResp(_unknown())
        operation.stop(texts.CANCELLED)
        return t.TCancelOperationResp(_OK)

    def CloseOperation(self, req: Any) -> Any:
        return t.TCloseOperationResp(_OK if self._forget(req.operationHandle.operationId.guid) else _unknown())

    def CloseImpalaOperation(self, req: Any) -> Any:
        return i.TCloseImpalaOperationResp(_OK if self._forget(req.operationHandle.operationId.guid) else _unknown())

    def GetLog(self, req: Any) -> Any:
        return t.TGetLogResp(_OK, "")

    def GetRuntimeProfile(self, req: Any) -> Any:
        operation = self._find(req) or self._ended.get(req.operationHandle.operationId.guid)
        if operation is None:
            return i.TGetRuntimeProfileResp(_unknown())
        return i.TGetRuntimeProfileResp(_OK, operation.profile())

    def GetExecSummary(self, req: Any) -> Any:
        operation = self._find(req) or self._ended.get(req.operationHandle.operationId.guid)
        if operation is None:
            return i.TGetExecSummaryResp(_unknown())
        query = operation.query
        return i.TGetExecSummaryResp(
            _OK, plan.summary_of(query.root if query else None, (query and query.peak_bytes) or 0)
        )

    def _find(self, req: Any) -> Operation | None:
        return self.operations.get(req.operationHandle.operationId.guid)

    def _forget(self, guid: bytes) -> bool:
        with self._lock:
            operation = self.operations.pop(guid, None)
            for session in self.sessions.values():
                session.operations.discard(guid)
            if operation is not None:
                self._ended[guid] = operation
                for oldest in list(self._ended)[:-KEPT_PROFILES]:
                    del self._ended[oldest]
        if operation is not None:
            operation.close()
        return operation is not None

    # ------------------------------------------------------------------ statements that are no queries

    def _use(self, session: Session, found: re.Match[str]) -> pa.Table:
        database = _part(found, 1)
        self.warehouse.tables(database)
        session.database = database.lower()
        return _NOTHING

    def _show_options(self, session: Session, found: re.Match[str]) -> pa.Table:
        names = list(session.options)
        return _rows(option=names, value=[session.options[name] for name in names], level=["REGULAR"] * len(names))

    def _set(self, session: Session, found: re.Match[str]) -> pa.Table:
        session.options |= _known({found.group(1).upper(): found.group(2).strip("\"' ")})
        return _NOTHING

    def _create_database(self, session: Session, found: re.Match[str]) -> pa.Table:
        self.warehouse.make_database(_part(found, 1))
        return _rows(summary=["Database has been created."])

    def _create_table(self, session: Session, found: re.Match[str]) -> pa.Table:
        self.warehouse.create(found.string, session.database)
        return _rows(summary=["Table has been created."])

    def _drop_table(self, session: Session, found: re.Match[str]) -> pa.Table:
        database, name = _qualified(found, session)
        self.warehouse.drop(database, name)
        return _rows(summary=["Table has been dropped."])

    def _refresh(self, session: Session, found: re.Match[str]) -> pa.Table:
        self._table(session, found).list_files()
        return _NOTHING

    def _describe(self, session: Session, found: re.Match[str]) -> pa.Table:
        table = self.warehouse.find(*_qualified(found, session), otherwise="Could not resolve path")
        cells = [(name, kind.lower(), "") for name, kind in {**table.columns, **table.partition_columns}.items()]
        if "FORMATTED" in found.group().upper():
            cells = [("# col_name            ", "data_type           ", "comment             "), *cells]
            cells += [("Location:           ", table.location, ""), ("Table Parameters:", "", "")]
            cells += [("", f"{key:<20}", f"{value:<20}") for key, value in table.properties.items()]
        return _rows(name=[c[0] for c in cells], type=[c[1] for c in cells], comment=[c[2] for c in cells])

    def _table_stats(self, session: Session, found: re.Match[str]) -> pa.Table:
        table = self._table(session, found)
        counts = pa.array([len(table.files)], pa.int64())
        parted = {name: ["Total"] for name in table.partition_columns}
        return pa.table(
            {**parted, "#Rows": pa.array([-1], pa.int64()), "#Files": counts, "Size": [texts.size(table.bytes)]}
        )

    def _show_tables(self, session: Session, found: re.Match[str]) -> pa.Table:
        return _rows(name=sorted(self.warehouse.tables(found.group(1) or session.database)))

    def _table(self, session: Session, found: re.Match[str]) -> Table:
        return self.warehouse.find(*_qualified(found, session))


def _known(options: Mapping[str, str]) -> dict[str, str]:
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise QueryFailed(f"Invalid query option: {unknown}")
    return dict(options)


def _part(found: re.Match[str], place: int) -> str:
    quoted = found.group(place)
    return quoted.replace("``", "`") if quoted is not None else found.group(place + 1) or ""


def _qualified(found: re.Match[str], session: Session) -> tuple[str, str]:
    first, second = _part(found, 1), _part(found, 3)
    return (first, second) if second else (session.database, first)


def _rows(**columns: list[str]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


_NOTHING = pa.table({})


def _failed(text: str) -> Any:
    return t.TStatus(t.TStatusCode.ERROR_STATUS, [], "HY000", None, text)


def _unknown() -> Any:
    return _failed("Invalid or unknown query handle: 0:0.")
