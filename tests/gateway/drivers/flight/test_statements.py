"""What becomes of a statement, over scripted engines and with real clients: failover, cancels, polls, writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import grpc
import pyarrow as pa
import pyarrow.flight as arrow_flight
import pytest

from engines.errors import StatementError
from engines.protocol import EngineKind
from engines.scripted import Pause, Script
from gateway.drivers.flight import data, messages, service
from gateway.drivers.flight.protocol.flight_pb2 import (
    CancelFlightInfoRequest,
    CancelFlightInfoResult,
    FlightDescriptor,
    FlightInfo,
    PollInfo,
)
from gateway.drivers.flight.protocol.flight_sql_pb2 import (
    ActionCancelQueryRequest,
    CommandStatementQuery,
)
from gateway.drivers.flight.service import FRESH_S
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server.wiring import assemble
from gateway.settings import load
from metastore.records import QueryState
from tests.clock import set_clock
from tests.gateway.drivers.flight.conftest import ENDS_WITHIN_S, Served, eventually, flight_port, told
from tests.gateway.scripted_gateway import PLAN, SMALL, TOO_BIG, WRITTEN, WritingEngine

SLOW = "SELECT 'slow' AS answer"


def states(served: Served) -> list[QueryState]:
    return [record.state for record in served.gateway.metastore.queries.search(limit=20)]


@pytest.fixture
def cursor(scripted: Served) -> Iterator[adbc.Cursor]:
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as opened:
        yield opened


@pytest.fixture
def slow(scripted: Served) -> Served:
    """Return the same gateway, where SLOW never ends by itself."""
    for engine in (scripted.fast, scripted.dependable):
        engine.script("slow", Script(steps=(Pause.UNTIL_ENDED,), plan=PLAN))
    return scripted


def test_a_failover_in_the_middle_of_a_query_is_one_query_to_the_client(scripted: Served, cursor: adbc.Cursor) -> None:
    cursor.execute(TOO_BIG)

    assert cursor.fetchall() == [(42,), (43,)]
    record, _described = scripted.gateway.metastore.queries.search(limit=20)
    assert [(attempt.engine, attempt.failure) for attempt in record.attempts] == [
        ("duckdb", "MEMORY_EXCEEDED"),
        ("spark", None),
    ]


def test_an_error_while_it_runs_names_the_query(scripted: Served, cursor: adbc.Cursor) -> None:
    scripted.fast.script("wrong", Script(steps=(StatementError("1 / 0 has no value."),), plan=PLAN))

    with pytest.raises(adbc_driver_manager.ProgrammingError, match=r"1 / 0 has no value\.") as caught:
        cursor.execute("SELECT 'wrong' AS answer")

    (record,) = scripted.gateway.metastore.queries.search(limit=20)
    assert told(caught.value) == {
        "fusion-code": "STATEMENT_ERROR",
        "fusion-sqlstate": "42000",
        "fusion-query-id": record.id,
    }


def test_what_is_prepared_runs_when_it_is_executed(scripted: Served, cursor: adbc.Cursor) -> None:
    cursor.execute(SMALL)
    assert cursor.fetchall() == [(42,), (43,)]
    described, *ran = [asked.sql for asked in scripted.fast.asked]
    assert (described.endswith("LIMIT 0"), len(ran)) == (True, 1)

    cursor.execute(SMALL)  # the driver keeps it prepared
    assert cursor.fetchall() == [(42,), (43,)]
    assert len(scripted.fast.asked) == 3


def test_what_is_prepared_again_is_not_run_for_its_columns(scripted: Served) -> None:
    for _ in range(2):
        with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(SMALL)
            assert cursor.fetchall() == [(42,), (43,)]
    described, *ran = [asked.sql for asked in scripted.fast.asked]
    assert (described.endswith("LIMIT 0"), len(ran)) == (True, 2)


def test_a_command_that_was_prepared_long_ago_runs_anew(
    scripted: Served, cursor: adbc.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor.adbc_prepare("SHOW TABLES")
    now_s = time.monotonic() + 2 * FRESH_S
    with monkeypatch.context() as patched:
        set_clock(patched, service, lambda: now_s)
        cursor.execute("SHOW TABLES")

    assert len(scripted.gateway.metastore.queries.search(limit=5)) == 2


def test_a_cancel_ends_the_query(slow: Served, cursor: adbc.Cursor) -> None:
    failed: list[Exception] = []

    def run() -> None:
        try:
            cursor.execute(SLOW)
        except adbc_driver_manager.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: bool(slow.fast.asked), "the statement did not start")
    cursor.adbc_cancel()
    thread.join(ENDS_WITHIN_S)

    assert isinstance(failed[0], adbc_driver_manager.OperationalError)
    assert "CANCELLED" in str(failed[0])
    eventually(lambda: states(slow) == [QueryState.CANCELLED], "the query runs on")
    assert slow.fast.open_results == 0


def test_a_client_that_goes_away_ends_its_query(slow: Served) -> None:
    channel = grpc.insecure_channel(slow.server.address)
    call = channel.unary_unary("/arrow.flight.protocol.FlightService/GetFlightInfo")
    command = messages.pack(CommandStatementQuery(query=SLOW))
    pending = call.future(FlightDescriptor(type=2, cmd=command).SerializeToString())
    eventually(lambda: bool(slow.fast.asked), "the statement did not start")
    assert not pending.done()

    channel.close()

    eventually(lambda: states(slow) == [QueryState.CANCELLED], "the query runs on")


def test_a_deadline_of_the_client_ends_its_query(slow: Served) -> None:
    with closing(slow.connect(**{"adbc.flight.sql.rpc.timeout_seconds.query": "0.5"})) as connection:
        statement = adbc_driver_manager.AdbcStatement(connection.adbc_connection)
        statement.set_sql_query(SLOW)
        with closing(statement), pytest.raises(adbc_driver_manager.OperationalError, match="TIMEOUT"):
            statement.execute_query()

    eventually(lambda: states(slow) == [QueryState.CANCELLED], "the query runs on")


def test_closing_a_connection_forgets_its_results(scripted: Served) -> None:
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(SMALL)
        assert len(scripted.gateway.spool.query_ids()) == 1

    assert scripted.gateway.spool.query_ids() == frozenset()


def test_a_statement_can_be_polled_for(scripted: Served) -> None:
    """ADBC calls it incremental execution."""
    begin = threading.Event()
    rows = pa.RecordBatch.from_pydict({"answer": [1]})
    scripted.fast.script("later", Script(steps=(begin, rows), plan=PLAN))
    threading.Timer(0.7, begin.set).start()
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.adbc_statement.set_options(**{"adbc.statement.exec.incremental": "true"})
        partitions, schema = cursor.adbc_execute_partitions("SELECT 'later' AS answer")

        assert schema == rows.schema
        cursor.adbc_read_partition(partitions[0])
        assert cursor.fetchall() == [(1,)]


def test_another_client_of_the_same_user_reads_a_partition(scripted: Served) -> None:
    with closing(scripted.connect()) as one, closing(one.cursor()) as cursor:
        partitions, _ = cursor.adbc_execute_partitions(SMALL)
        with closing(scripted.connect()) as other, closing(other.cursor()) as reader:
            reader.adbc_read_partition(partitions[0])
            assert reader.fetchall() == [(42,), (43,)]


class RawClient:
    """Calls by hand, with a session of its own."""

    def __init__(self, served: Served) -> None:
        self._client = arrow_flight.connect(f"grpc://{served.server.address}")
        self.token = self._client.authenticate_basic_token("tester", "")
        self.options = arrow_flight.FlightCallOptions(headers=[self.token])

    def info(self, command: Any) -> arrow_flight.FlightInfo:
        descriptor = arrow_flight.FlightDescriptor.for_command(messages.pack(command))
        return self._client.get_flight_info(descriptor, self.options)

    def rows(self, ticket: arrow_flight.Ticket) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.do_get(ticket, self.options).read_all().to_pylist()
        return found

    def act(self, action: str, body: bytes) -> list[bytes]:
        results = self._client.do_action(arrow_flight.Action(action, body), self.options)
        return [result.body.to_pybytes() for result in results]

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def raw(scripted: Served) -> Iterator[RawClient]:
    with closing(RawClient(scripted)) as client:
        yield client


def test_arrows_own_client_is_told_columns_and_count_before_the_rows(raw: RawClient) -> None:
    info = raw.info(CommandStatementQuery(query=SMALL))

    assert info.schema == pa.schema([("answer", pa.int64())])
    assert info.total_records == 2
    assert raw.rows(info.endpoints[0].ticket) == [{"answer": 42}, {"answer": 43}]


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_query_that_is_polled_for_can_be_cancelled(slow: Served, raw: RawClient, action: str) -> None:
    with grpc.insecure_channel(slow.server.address) as channel:
        poll = channel.unary_unary("/arrow.flight.protocol.FlightService/PollFlightInfo")
        command = messages.pack(CommandStatementQuery(query=SLOW))
        name, value = (part.decode() for part in raw.token)
        descriptor = FlightDescriptor(type=2, cmd=command)
        reply = poll(descriptor.SerializeToString(), metadata=((name, value),))
    info = messages.read(PollInfo, reply).info
    if action == "CancelFlightInfo":
        (body,) = raw.act(action, CancelFlightInfoRequest(info=info).SerializeToString())
        status = messages.read(CancelFlightInfoResult, body).status
    else:
        asked = ActionCancelQueryRequest(info=info.SerializeToString())
        (body,) = raw.act(action, messages.pack(asked))
        status = messages.unpack(body)[1].result

    assert status == messages.CancelStatus.CANCELLING
    eventually(lambda: states(slow) == [QueryState.CANCELLED], "the query runs on")


def test_cancelling_what_has_ended_forgets_it(scripted: Served, raw: RawClient) -> None:
    info = raw.info(CommandStatementQuery(query=SMALL))
    asked = CancelFlightInfoRequest(info=messages.read(FlightInfo, info.serialize()))

    (body,) = raw.act("CancelFlightInfo", asked.SerializeToString())

    assert messages.read(CancelFlightInfoResult, body).status == messages.CancelStatus.CANCELLED
    with pytest.raises(KeyError, match="no such result"):
        raw.rows(info.endpoints[0].ticket)


def test_actions_are_listed(scripted: Served) -> None:
    with arrow_flight.connect(f"grpc://{scripted.server.address}") as client:
        assert {"CreatePreparedStatement", "CancelFlightInfo"} <= {action.type for action in client.list_actions()}
        assert list(client.list_flights()) == []


# ---------------------------------------------------------------------- what goes over the wire


def test_batches_that_are_too_large_for_a_message_are_cut(scripted: Served, cursor: adbc.Cursor) -> None:
    wide = pa.RecordBatch.from_pydict({"id": range(60), "text": ["x" * (300 << 10)] * 60})
    scripted.fast.script("wide", Script(steps=(wide,), plan=PLAN))

    cursor.execute("SELECT 'wide' AS answer")
    batches = list(cursor.fetch_record_batch())

    assert len(batches) > 1
    assert max(pa.ipc.get_record_batch_size(batch) for batch in batches) <= data.LARGEST_BODY
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([wide]))


def test_dictionaries_are_written_out(scripted: Served, cursor: adbc.Cursor) -> None:
    words = pa.array(["a", None, "b"] * 300_000).dictionary_encode()
    big = pa.RecordBatch.from_arrays([words, pa.array(range(len(words)))], names=["word", "id"])
    scripted.fast.script("words", Script(steps=(big, big.slice(1, 4)), plan=PLAN))

    cursor.execute("SELECT 'words' AS answer")

    found = cursor.fetch_arrow_table()
    expected = pa.Table.from_batches([big, big.slice(1, 4)])
    assert found.schema.field("word").type == pa.string()
    assert found.num_rows == expected.num_rows
    assert found.slice(found.num_rows - 4).to_pylist() == expected.slice(expected.num_rows - 4).to_pylist()
    assert found.slice(800_000, 3).to_pylist() == expected.slice(800_000, 3).to_pylist()


def test_a_client_that_reads_a_part_leaves_no_file_open(scripted: Served) -> None:
    many = [pa.RecordBatch.from_pydict({"id": range(50_000)})] * 200
    scripted.fast.script("many", Script(steps=tuple(many), plan=PLAN))
    with closing(scripted.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 'many' AS answer")
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows > 0
        spooled = next(iter(scripted.gateway.spool.query_ids()))
        assert open_files(spooled) > 0

    eventually(lambda: open_files(spooled) == 0, "the result's file stays open")


def open_files(part: str) -> int:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return sum(part in link for link in links)


# ---------------------------------------------------------------------- writes


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Served]:
    """Serve a gateway whose dependable engine writes."""
    engine = WritingEngine("spark", kind=EngineKind.DEPENDABLE)
    engine.script("select", Script(steps=(WRITTEN.to_batches()[0],)))
    gateway = assemble(load(tmp_path / "home"), EngineRegistry([EngineEntry(engine)]))
    gateway.start()
    try:
        with flight_port(gateway) as server:
            yield Served(gateway, server)
    finally:
        gateway.close()


def test_writes_tell_how_many_rows_they_wrote(writing: Served) -> None:
    with closing(writing.connect()) as connection, closing(connection.cursor()) as cursor:
        statement = cursor.adbc_statement
        statement.set_sql_query("CREATE TABLE answers AS SELECT 1 AS answer")
        assert statement.execute_update() == WRITTEN.num_rows
        statement.set_sql_query("INSERT INTO answers SELECT ? AS answer")
        statement.prepare()
        cursor.execute("INSERT INTO answers SELECT ? AS answer", (4,))
        assert cursor.fetchall() == [(WRITTEN.num_rows,)]
        statement.set_sql_query("SET fusion.timeout_s = 3")
        assert statement.execute_update() == -1
        assert connection.adbc_get_table_schema("answers").field("answer").type == pa.int32()

    assert writing.gateway.spool.query_ids() == frozenset()


def test_a_write_is_not_done_when_it_is_prepared(writing: Served) -> None:
    with closing(writing.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.adbc_prepare("CREATE TABLE answers AS SELECT 1 AS answer")
        assert writing.gateway.metastore.catalog.list() == ()
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="no table answers"):
            cursor.execute("INSERT INTO answers SELECT 1 AS answer")


def test_what_is_not_here_is_told(writing: Served) -> None:
    with closing(writing.connect()) as connection, closing(connection.cursor()) as cursor:
        with pytest.raises(adbc_driver_manager.NotSupportedError, match="INSERT INTO"):
            cursor.adbc_ingest("answers", WRITTEN)
        with pytest.raises(adbc_driver_manager.NotSupportedError, match="Substrait"):
            statement = adbc_driver_manager.AdbcStatement(connection.adbc_connection)
            with closing(statement):
                statement.set_substrait_plan(b"plan")
                statement.execute_query()
