"""Flight's and Flight SQL's messages, as protobuf classes that are made when this module is read.

https://arrow.apache.org/docs/format/Flight.html, https://arrow.apache.org/docs/format/FlightSql.html; only what the
gateway reads or writes is here. Enumerations are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

FLIGHT = "arrow.flight.protocol"
FLIGHT_SQL = f"{FLIGHT}.sql"

# Fields are written ``number type name``. Behind the type: ? may be missing, * any number, | one of those so marked;
# before it: string> is a map.
_FLIGHT: Mapping[str, str] = {
    "Empty": "",
    "HandshakeRequest": "1 uint64 protocol_version, 2 bytes payload",
    "HandshakeResponse": "1 uint64 protocol_version, 2 bytes payload",
    "FlightDescriptor": "1 int32 type, 2 bytes cmd, 3 string* path",
    "Ticket": "1 bytes ticket",
    "FlightEndpoint": "1 Ticket ticket, 4 bytes app_metadata",
    "FlightInfo": "1 bytes schema, 2 FlightDescriptor flight_descriptor, 3 FlightEndpoint* endpoint, "
    "4 int64 total_records, 5 int64 total_bytes, 6 bool ordered, 7 bytes app_metadata",
    "PollInfo": "1 FlightInfo info, 2 FlightDescriptor flight_descriptor, 3 double? progress",
    "SchemaResult": "1 bytes schema",
    "FlightData": "1 FlightDescriptor flight_descriptor, 2 bytes data_header, 3 bytes app_metadata, "
    "1000 bytes data_body",
    "PutResult": "1 bytes app_metadata",
    "Action": "1 string type, 2 bytes body",
    "ActionType": "1 string type, 2 string description",
    "Result": "1 bytes body",
    "CancelFlightInfoRequest": "1 FlightInfo info",
    "CancelFlightInfoResult": "1 int32 status",
    "SessionOptionStrings": "1 string* values",
    "SessionOptionValue": "1 string| string_value, 2 bool| bool_value, 3 sfixed64| int64_value, "
    "4 double| double_value, 5 SessionOptionStrings| string_list_value",
    "SetSessionOptionsRequest": "1 string>SessionOptionValue session_options",
    "SetSessionOptionsError": "1 int32 value",
    "SetSessionOptionsResult": "1 string>SetSessionOptionsError errors",
    "GetSessionOptionsResult": "1 string>SessionOptionValue session_options",
    "CloseSessionResult": "1 int32 status",
}
_KEYS = "1 string? catalog, 2 string? db_schema, 3 string table"
_FLIGHT_SQL: Mapping[str, str] = {
    "CommandGetSqlInfo": "1 uint32* info",
    "CommandGetXdbcTypeInfo": "1 int32? data_type",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "1 string? catalog, 2 string? db_schema_filter_pattern",
    "CommandGetTables": "1 string? catalog, 2 string? db_schema_filter_pattern, 3 string? table_name_filter_pattern, "
    "4 string* table_types, 5 bool include_schema",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": "1 string? pk_catalog, 2 string? pk_db_schema, 3 string pk_table, "
    "4 string? fk_catalog, 5 string? fk_db_schema, 6 string fk_table",
    "CommandStatementQuery": "1 string query, 2 bytes? transaction_id",
    "CommandStatementUpdate": "1 string query, 2 bytes? transaction_id",
    "CommandStatementSubstraitPlan": "",
    "CommandStatementIngest": "2 string table",
    "CommandPreparedStatementQuery": "1 bytes prepared_statement_handle",
    "CommandPreparedStatementUpdate": "1 bytes prepared_statement_handle",
    "TicketStatementQuery": "1 bytes statement_handle",
    "DoPutUpdateResult": "1 int64 record_count",
    "DoPutPreparedStatementResult": "1 bytes? prepared_statement_handle",
    "ActionCreatePreparedStatementRequest": "1 string query, 2 bytes? transaction_id",
    "ActionCreatePreparedStatementResult": "1 bytes prepared_statement_handle, 2 bytes dataset_schema, "
    "3 bytes parameter_schema",
    "ActionClosePreparedStatementRequest": "1 bytes prepared_statement_handle",
    "ActionCancelQueryRequest": "1 bytes info",
    "ActionCancelQueryResult": "1 int32 result",
}
_SCALARS: Mapping[str, int] = {
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "sfixed64": descriptor_pb2.FieldDescriptorProto.TYPE_SFIXED64,
}
_CHOICE = "choice"


class Malformed(Exception):
    """Bytes that are no message, or not the one that belongs there."""


class DescriptorType(IntEnum):
    """What a FlightDescriptor describes."""

    COMMAND = 2


class CancelStatus(IntEnum):
    """How far a cancellation is."""

    CANCELLED = 1
    CANCELLING = 2
    NOT_CANCELLABLE = 3


class OptionError(IntEnum):
    """Why a session's option was not set."""

    INVALID_NAME = 1
    INVALID_VALUE = 2
    ERROR = 3


SESSION_CLOSED = 1


def _described(package: str, messages: Mapping[str, str]) -> descriptor_pb2.FileDescriptorProto:
    """Write messages down as protobuf describes them itself."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", ") if fields else ():
            number, kind, field_name = field.split()
            _add_field(message, package, int(number), kind, field_name)
    return file


def _add_field(message: Any, package: str, number: int, kind: str, name: str) -> None:
    field = message.field.add(name=name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.startswith("string>"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, 1, "string", "key")
        _add_field(entry, package, 2, kind.removeprefix("string>"), "value")
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
        return
    mark = kind[-1] if kind[-1] in "?*|" else ""
    kind = kind.removesuffix(mark)
    if mark == "*":
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    elif mark == "?":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    elif mark == "|":
        field.oneof_index = 0
        if not message.oneof_decl:
            message.oneof_decl.add(name=_CHOICE)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


_POOL = descriptor_pool.DescriptorPool()  # our own: another library of the process may bring the same names
_CLASSES: dict[str, Any] = {}
for _package, _messages in ((FLIGHT, _FLIGHT), (FLIGHT_SQL, _FLIGHT_SQL)):
    _POOL.AddSerializedFile(_described(_package, _messages).SerializeToString())
    for _name in _messages:
        _CLASSES[_name] = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_package}.{_name}"))


def make(name: str, **fields: Any) -> Any:
    """Return a message."""
    return _CLASSES[name](**fields)


def read(name: str, data: bytes) -> Any:
    """Return the message in bytes. Raises Malformed."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise Malformed(f"These bytes are no {name}.") from error


def pack(message: Any) -> bytes:
    """Return a message of Flight SQL in the envelope that names its kind."""
    envelope = AnyMessage()
    envelope.Pack(message)
    data: bytes = envelope.SerializeToString()
    return data


def unpack(data: bytes) -> tuple[str, Any]:
    """Return the kind of a message of Flight SQL, and the message out of its envelope. Raises Malformed."""
    try:
        envelope = AnyMessage.FromString(data)
    except DecodeError as error:
        raise Malformed("These bytes are no message of Flight SQL.") from error
    package, _, name = envelope.type_url.rpartition("/")[2].rpartition(".")
    if package != FLIGHT_SQL:
        raise Malformed("These bytes are no message of Flight SQL.")
    if name not in _FLIGHT_SQL:
        raise Malformed(f"{name[:80]} is not known here.")
    return name, read(name, envelope.value)


def choice(message: Any) -> str | None:
    """Return which of a message's fields is set, of those of which one is."""
    chosen: str | None = message.WhichOneof(_CHOICE)
    return chosen
