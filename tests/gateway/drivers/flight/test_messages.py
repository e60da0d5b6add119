"""Flight's messages beside Arrow's own reading of them, and what is no message."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.flight as arrow_flight
import pytest

from gateway.drivers.flight.messages import FLIGHT_SQL, DescriptorType, Malformed, pack, read, unpack
from gateway.drivers.flight.protocol.flight_pb2 import (
    FlightDescriptor,
    FlightEndpoint,
    FlightInfo,
    SessionOptionValue,
    Ticket,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandGetTables, CommandStatementQuery

SCHEMA = pa.schema([("a", pa.int64())])
BESIDE_ARROWS = f"""
from google.protobuf import descriptor_pb2, descriptor_pool
others = descriptor_pb2.FileDescriptorProto(name="FlightSql.proto", package="{FLIGHT_SQL}")
others.message_type.add(name="CommandStatementQuery")
descriptor_pool.Default().AddSerializedFile(others.SerializeToString())
from gateway.drivers.flight.messages import pack, unpack
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery
print(unpack(pack(CommandStatementQuery(query="SELECT 1")))[1].query)
"""


def test_arrow_reads_what_is_written_here() -> None:
    descriptor = FlightDescriptor(type=DescriptorType.COMMAND, cmd=b"command")
    info = FlightInfo(
        schema=SCHEMA.serialize().to_pybytes(),
        flight_descriptor=descriptor,
        endpoint=[FlightEndpoint(ticket=Ticket(ticket=b"ticket"))],
        total_records=7,
        total_bytes=-1,
    )

    found = arrow_flight.FlightInfo.deserialize(info.SerializeToString())

    assert found.schema == SCHEMA
    assert found.descriptor.command == b"command"
    assert [endpoint.ticket.ticket for endpoint in found.endpoints] == [b"ticket"]
    assert (found.total_records, found.total_bytes) == (7, -1)
    assert read(FlightInfo, found.serialize()) == info


def test_an_envelope_names_the_kind_as_arrow_does() -> None:
    data = pack(CommandStatementQuery(query="SELECT 1"))
    assert b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery" in data
    name, command = unpack(data)
    assert (name, command.query, command.HasField("transaction_id")) == ("CommandStatementQuery", "SELECT 1", False)


def test_what_was_not_said_is_not_there() -> None:
    _, empty = unpack(pack(CommandGetTables(table_name_filter_pattern="")))
    assert empty.HasField("table_name_filter_pattern") and not empty.HasField("catalog")
    assert SessionOptionValue().WhichOneof("option_value") is None
    assert SessionOptionValue(bool_value=False).WhichOneof("option_value") == "bool_value"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff", "not a message of Flight SQL"),
        (pack(CommandStatementQuery()).replace(b"protocol.sql", b"protocol.tab"), "not a message of Flight SQL"),
        (pack(CommandStatementQuery()).replace(b"StatementQuery", b"StatementXXXXX"), "CommandStatementXXXXX is not"),
        (pack(CommandStatementQuery(query="abc")).replace(b"abc", b"\xff\xff\xff"), "not a CommandStatementQuery"),
    ],
)
def test_other_bytes_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        unpack(data)


def test_another_library_of_the_process_may_bring_arrows_messages() -> None:
    found = subprocess.run([sys.executable, "-c", BESIDE_ARROWS], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "SELECT 1"
