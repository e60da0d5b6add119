"""Every value of ``extreme_values`` through every door: HTTP, records, the command, HiveServer2, Flight SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway.cli.main import app
from gateway.drivers.hs2.protocol import rowset
from gateway.drivers.hs2.protocol.messages import ExecuteRequest, FetchReply, FetchRequest, OperationReply
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from tests.gateway.conftest import BY_MEMORY, SLOW, settings_for
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import Drivers, driving
from tests.gateway.drivers.hs2.test_protocol import columns_of, rows_of
from tests.gateway.drivers.hs2.wire import Client
from tests.gateway.extreme_values import EXTREMES, Extreme, all_in_one_row, documented
from tests.gateway.scripted_gateway import PLAN

adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="needs ADBC's driver")
dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")

SQL = "SELECT 'extremes' AS e"
DOCS = Path(__file__).parents[3] / "docs" / "clients" / "values.md"
IDS = [f"{extreme.kind} {extreme.sql[:40]}" for extreme in EXTREMES]


@dataclass(frozen=True, slots=True)
class House:
    """A gateway with all its doors, whose engine answers with every value. url: of its queries over HTTP."""

    drivers: Drivers
    flight: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.drivers.http_port}"

    def query(self) -> Any:
        reply = httpx.post(f"{self.url}/v1/queries", json={"sql": SQL, "wait_s": 60}, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def result(self, **parameters: Any) -> bytes:
        query_id = self.query()["id"]
        reply = httpx.get(f"{self.url}/v1/queries/{query_id}/result", params=parameters, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.content


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    engine = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE, slots=8)
    batch = all_in_one_row()
    engine.script("limit 0", Script(steps=(batch.slice(0, 0),), plan=PLAN))
    engine.script("extremes", Script(steps=(batch,), plan=PLAN))
    settings = settings_for(tmp_path_factory.mktemp("home"), routing=BY_MEMORY)
    gateway = wiring.assemble(settings, EngineRegistry([EngineEntry(engine, speed=SLOW)]))
    with driving(gateway) as drivers, flight_port(gateway) as port:
        yield House(drivers, port.address)


def test_json_has_the_documented_values(house: House) -> None:
    wanted = [json.dumps(extreme.json) for extreme in EXTREMES]  # as texts: -0.0 is not 0.0

    reply = house.query()
    record = httpx.get(f"{house.url}/v1/queries/{reply['id']}", timeout=60).json()
    whole = json.loads(house.result(format="json"))

    for rows in (reply["rows"], record["rows"], whole["rows"]):
        assert [json.dumps(value) for value in rows[0]] == wanted


def test_a_repeated_statement_is_answered_from_the_cache_with_the_same_values(house: House) -> None:
    first, second = house.query(), house.query()

    assert (second["cache"] if "cache" in second else "hit") == "hit"
    assert json.dumps(first["rows"]) == json.dumps(second["rows"])


def test_csv_has_the_documented_fields(house: House) -> None:
    text = house.result(format="csv").decode()

    _, _, row = text.partition("\n")
    assert row == ",".join(extreme.csv for extreme in EXTREMES) + "\n"


def test_csv_for_spreadsheets_leaves_numbers_alone(house: House) -> None:
    text = house.result(format="csv", guard=True).decode()

    assert '"-Infinity"' in text
    assert f'"-0.{"0" * 37}1"' in text
    assert '"\'+10000-01-01"' in text
    assert '"\'-0001-01-28"' in text


def test_arrow_has_the_engines_values(house: House) -> None:
    with pa.ipc.open_stream(house.result(format="arrow")) as reader:
        table = reader.read_all()

    table.validate(full=True)
    _assert_same(table)


def test_flight_sql_has_the_engines_values(house: House) -> None:
    with (
        closing(adbc.connect(f"grpc://{house.flight}", autocommit=True)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        cursor.execute(SQL)
        table = cursor.fetch_arrow_table()

    table.validate(full=True)
    _assert_same(table)


def _assert_same(table: pa.Table) -> None:
    for extreme, column in zip(EXTREMES, table.columns, strict=True):
        assert column.type == extreme.value.type
        assert str(column.chunk(0)) == str(extreme.value), extreme.sql  # NaN is not equal to itself


@pytest.mark.parametrize("extreme", EXTREMES, ids=IDS)
def test_hiveserver2_has_the_documented_value(extreme: Extreme) -> None:
    batch = pa.record_batch({"x": extreme.value})
    ((column,),) = columns_of(rowset.encode(batch, offset=0, columnar=True))
    wanted = extreme.hive
    assert repr(column) == repr(wanted)

    ((cell,),) = (
        rows_of(rowset.encode(batch, offset=0, columnar=False)) if not isinstance(wanted, bytes) else ((wanted,),)
    )
    assert repr(cell) == repr(wanted)


def test_hiveserver2_sends_them_over_its_port(house: House) -> None:
    with Client(house.drivers) as client:
        session = client.open_session()
        operation = client.ask("ExecuteStatement", ExecuteRequest(session, SQL), OperationReply).operation
        status = client.ask("FetchResults", FetchRequest(operation, 0, 10), FetchReply).status

    assert status.message is None


@pytest.mark.parametrize("over_http", [False, True], ids=["binary", "http"])
def test_a_driver_reads_what_it_can_hold(house: House, over_http: bool) -> None:
    port = house.drivers.http_port if over_http else house.drivers.port
    login = {"auth_mechanism": "PLAIN", "user": "joe", "password": "any"}
    how = {"use_http_transport": True, "http_path": "cliservice"} if over_http else {}
    readable = [n for n, extreme in enumerate(EXTREMES) if extreme.kind not in ("date", "timestamp", "timestamp_ntz")]
    with (
        closing(dbapi.connect("127.0.0.1", port, **login, **how)) as connection,
        closing(connection.cursor(convert_types=False)) as cursor,
    ):
        cursor.execute(SQL)
        (row,) = cursor.fetchall()

    assert [repr(row[n]) for n in readable] == [repr(EXTREMES[n].hive) for n in readable]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_the_command_prints_them(house: House, form: str) -> None:
    done = CliRunner().invoke(app, ["query", SQL, "--url", house.url, "--format", form])

    assert done.exit_code == 0, done.output
    assert "-5877641-06-23" in done.stdout or form == "table"


def test_the_docs_list_them() -> None:
    assert documented() in DOCS.read_text(encoding="utf-8")
