"""The structs of HiveServer2's interface, with our names; numbers and types are the protocol's.

Several calls share a struct: a request with a session alone, a reply with a status alone, a reply with an operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gateway.drivers.hs2.protocol.thrift import (
    BINARY,
    BOOL,
    DOUBLE,
    ENCODED,
    I16,
    I32,
    I64,
    TEXT,
    Struct,
    field,
    list_of,
    map_of,
    struct_of,
)

NEWEST_VERSION = 9  # V10; versions count from V1 = 0
FIRST_COLUMNAR_VERSION = 5  # V6


class StatusCode(IntEnum):
    """Result of a call."""

    SUCCESS = 0
    ERROR = 3
    INVALID_HANDLE = 4


class OperationState(IntEnum):
    """State of an operation."""

    RUNNING = 1
    FINISHED = 2
    CANCELED = 3
    ERROR = 5
    PENDING = 7


class OperationType(IntEnum):
    """Kind of an operation."""

    EXECUTE_STATEMENT = 0
    GET_TYPE_INFO = 1
    GET_CATALOGS = 2
    GET_SCHEMAS = 3
    GET_TABLES = 4
    GET_TABLE_TYPES = 5
    GET_COLUMNS = 6
    GET_FUNCTIONS = 7
    UNKNOWN = 8


class FetchOrientation(IntEnum):
    """Position from which rows are fetched."""

    NEXT = 0
    FIRST = 4


class FetchType(IntEnum):
    """Part of an operation that is fetched."""

    ROWS = 0
    LOG = 1


class JobStatus(IntEnum):
    """Progress of an operation."""

    IN_PROGRESS = 0
    COMPLETE = 1


# ---------------------------------------------------------------------- parts


@dataclass(slots=True)
class Status(Struct):
    """Result of a call. info_messages: an exception in Hive's own form; drivers parse it as one."""

    code: int = field(1, I32, int(StatusCode.SUCCESS))
    info_messages: list[str] | None = field(2, list_of(TEXT))
    sqlstate: str | None = field(3, TEXT)
    error_code: int | None = field(4, I32)
    message: str | None = field(5, TEXT)


@dataclass(slots=True)
class HandleIdentifier(Struct):
    """Identity of a handle."""

    guid: bytes | None = field(1, BINARY)
    secret: bytes | None = field(2, BINARY)


@dataclass(slots=True)
class SessionHandle(Struct):
    """Handle of a session."""

    identifier: HandleIdentifier | None = field(1, struct_of(HandleIdentifier))


@dataclass(slots=True)
class OperationHandle(Struct):
    """Handle of an operation."""

    identifier: HandleIdentifier | None = field(1, struct_of(HandleIdentifier))
    kind: int | None = field(2, I32)
    has_result_set: bool | None = field(3, BOOL)


@dataclass(slots=True)
class TypeQualifierValue(Struct):
    """A number or a text that qualifies a type."""

    number: int | None = field(1, I32)
    text: str | None = field(2, TEXT)


@dataclass(slots=True)
class TypeQualifiers(Struct):
    """A decimal's precision and scale."""

    qualifiers: dict[str, TypeQualifierValue] | None = field(1, map_of(TEXT, struct_of(TypeQualifierValue)))


@dataclass(slots=True)
class PrimitiveType(Struct):
    """One type; nested ones, too, as in Hive."""

    type_id: int | None = field(1, I32)
    qualifiers: TypeQualifiers | None = field(2, struct_of(TypeQualifiers))


@dataclass(slots=True)
class TypeEntry(Struct):
    """A part of a type."""

    primitive: PrimitiveType | None = field(1, struct_of(PrimitiveType))


@dataclass(slots=True)
class TypeDescription(Struct):
    """A type as its parts."""

    entries: list[TypeEntry] | None = field(1, list_of(struct_of(TypeEntry)))


@dataclass(slots=True)
class ColumnDescription(Struct):
    """A column of a result. position: from one."""

    name: str | None = field(1, TEXT)
    type: TypeDescription | None = field(2, struct_of(TypeDescription))
    position: int | None = field(3, I32)
    comment: str | None = field(4, TEXT)


@dataclass(slots=True)
class TableSchema(Struct):
    """The columns of a result."""

    columns: list[ColumnDescription] | None = field(1, list_of(struct_of(ColumnDescription)))


@dataclass(slots=True)
class InfoValue(Struct):
    """An answer of GetInfo: one of these."""

    text: str | None = field(1, TEXT)
    small: int | None = field(2, I16)
    bitmask: int | None = field(3, I32)
    length: int | None = field(6, I64)


@dataclass(slots=True)
class Progress(Struct):
    """A table of progress that Beeline draws: nine columns, or its formatting fails."""

    headings: list[str] | None = field(1, list_of(TEXT))
    rows: list[list[str]] | None = field(2, list_of(list_of(TEXT)))
    share: float | None = field(3, DOUBLE)
    status: int | None = field(4, I32)
    footer: str | None = field(5, TEXT)
    started_ms: int | None = field(6, I64)


# ---------------------------------------------------------------------- requests


@dataclass(slots=True)
class OpenSessionRequest(Struct):
    """Begin a session."""

    version: int = field(1, I32, NEWEST_VERSION)
    username: str | None = field(2, TEXT)
    password: str | None = field(3, TEXT)
    configuration: dict[str, str] | None = field(4, map_of(TEXT, TEXT))


@dataclass(slots=True)
class SessionRequest(Struct):
    """A request with a session alone."""

    session: SessionHandle | None = field(1, struct_of(SessionHandle))


@dataclass(slots=True)
class InfoRequest(SessionRequest):
    """Ask for a property of the server."""

    info: int | None = field(2, I32)


@dataclass(slots=True)
class ExecuteRequest(SessionRequest):
    """Run a statement. timeout_s: None: the client's protocol has no such field; 0: no limit."""

    statement: str = field(2, TEXT, "")
    overlay: dict[str, str] | None = field(3, map_of(TEXT, TEXT))
    run_async: bool = field(4, BOOL, False)
    timeout_s: int | None = field(5, I64)


@dataclass(slots=True)
class SchemasRequest(SessionRequest):
    """Ask for databases whose names match."""

    catalog: str | None = field(2, TEXT)
    schema: str | None = field(3, TEXT)


@dataclass(slots=True)
class TablesRequest(SchemasRequest):
    """Ask for tables whose names match."""

    table: str | None = field(4, TEXT)
    types: list[str] | None = field(5, list_of(TEXT))


@dataclass(slots=True)
class ColumnsRequest(SchemasRequest):
    """Ask for columns whose names match."""

    table: str | None = field(4, TEXT)
    column: str | None = field(5, TEXT)


@dataclass(slots=True)
class FunctionsRequest(SchemasRequest):
    """Ask for functions whose names match."""

    function: str | None = field(4, TEXT)


@dataclass(slots=True)
class OperationRequest(Struct):
    """A request with an operation alone."""

    operation: OperationHandle | None = field(1, struct_of(OperationHandle))


@dataclass(slots=True)
class StatusRequest(OperationRequest):
    """Ask for the state of an operation."""

    with_progress: bool = field(2, BOOL, False)


@dataclass(slots=True)
class FetchRequest(OperationRequest):
    """Ask for rows, or for lines of the log."""

    orientation: int = field(2, I32, int(FetchOrientation.NEXT))
    max_rows: int = field(3, I64, 1_000)
    kind: int = field(4, I16, int(FetchType.ROWS))


# ---------------------------------------------------------------------- replies


@dataclass(slots=True)
class Reply(Struct):
    """A reply with a status alone, and the base of all others."""

    status: Status = field(1, struct_of(Status), factory=Status)


@dataclass(slots=True)
class OpenSessionReply(Reply):
    """A session has begun."""

    version: int = field(2, I32, NEWEST_VERSION)
    session: SessionHandle | None = field(3, struct_of(SessionHandle))
    configuration: dict[str, str] | None = field(4, map_of(TEXT, TEXT))


@dataclass(slots=True)
class InfoReply(Reply):
    """A property of the server; drivers need a value even beside an error."""

    value: InfoValue = field(2, struct_of(InfoValue), factory=lambda: InfoValue(text=""))


@dataclass(slots=True)
class OperationReply(Reply):
    """An operation has begun."""

    operation: OperationHandle | None = field(2, struct_of(OperationHandle))


@dataclass(slots=True)
class StatusReply(Reply):
    """State of an operation. Times are in ms since the epoch. rows_written: None: the statement does not write."""

    state: int | None = field(2, I32)
    sqlstate: str | None = field(3, TEXT)
    error_code: int | None = field(4, I32)
    message: str | None = field(5, TEXT)
    task_status: str | None = field(6, TEXT)
    started_ms: int | None = field(7, I64)
    completed_ms: int | None = field(8, I64)
    has_result_set: bool | None = field(9, BOOL)
    progress: Progress | None = field(10, struct_of(Progress))
    rows_written: int | None = field(11, I64)


@dataclass(slots=True)
class MetadataReply(Reply):
    """The columns of an operation's result."""

    schema: TableSchema | None = field(2, struct_of(TableSchema))


@dataclass(slots=True)
class FetchReply(Reply):
    """Rows. rows: a TRowSet as ``rowset`` encodes it."""

    has_more_rows: bool | None = field(2, BOOL)
    rows: bytes | None = field(3, ENCODED)


@dataclass(slots=True)
class LogReply(Reply):
    """Impala's: the log as one text."""

    log: str | None = field(2, TEXT)


@dataclass(slots=True)
class TokenReply(Reply):
    """A delegation token; the gateway has none."""

    token: str | None = field(2, TEXT)


@dataclass(slots=True)
class Refusal(Struct):
    """Thrift's own reply to an invalid call. kind: 1 is an unknown method, 7 a protocol error."""

    message: str | None = field(1, TEXT)
    kind: int | None = field(2, I32)
