"""The calls themselves: versions, types, the catalog, logs, progress, what HTTP and TLS add."""

from __future__ import annotations

import datetime as dt
import socket
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.catalog.snapshot import Relation, RelationKind
from gateway.cli.client import Client as GatewayClient
from gateway.cli.client import pinning, running_address
from gateway.cli.main import app
from gateway.drivers.hs2 import metadata
from gateway.drivers.hs2.protocol import rowset
from gateway.drivers.hs2.protocol.messages import (
    ColumnsRequest,
    ExecuteRequest,
    FetchReply,
    FetchRequest,
    InfoReply,
    InfoRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    SchemasRequest,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
    TablesRequest,
)
from gateway.drivers.hs2.protocol.messages import OperationType as Kind
from gateway.drivers.jdbc import describe
from gateway.errors import AuthenticationFailed
from gateway.security.authentication import Anonymous, Login, UsersFile, UsersFileInvalid, is_loopback, user_line
from gateway.server.serve import driver_server, own_server, tls_context
from gateway.server.startup import CertificateInvalid
from gateway.settings import AuthenticationSettings, Hs2Settings, ServerSettings, TlsSettings
from metastore.records import QueryState
from selector.types import Kind as TypeKind
from sql.tables import Column
from tests.gateway.drivers.hs2.conftest import EVERY_TYPE, MANY_ROWS, MOMENTS, Drivers
from tests.gateway.drivers.hs2.wire import Client, call_bytes, reply_of, success_of
from tests.waiting import wait_until

ttypes = pytest.importorskip("TCLIService.ttypes", reason="needs the extra hive")
serialization = pytest.importorskip("thrift.TSerialization")

ODD_TYPES = pa.record_batch(
    {
        "byte": pa.array([0, 255, None], pa.uint8()),
        "word": pa.array([0, 2**16 - 1, None], pa.uint16()),
        "long": pa.array([0, 2**32 - 1, None], pa.uint32()),
        "huge": pa.array([0, 2**64 - 1, None], pa.uint64()),
        "half": pa.array([0.5, -2.0, None], pa.float16()),
        "large": pa.array(["ä", "", None], pa.large_string()),
        "view": pa.array(["a view of a text that is long", "", None], pa.string_view()),
        "words": pa.array(["a", "b", None]).dictionary_encode(),
        "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "zoned": pa.array(MOMENTS, pa.timestamp("us", "Europe/Berlin")),
        "second": pa.array([dt.datetime(2020, 1, 1), dt.datetime(1969, 12, 31, 23), None], pa.timestamp("s")),
        "nano": pa.array([1, 1_500_000_000, None], pa.timestamp("ns")),
        "day": pa.array([0, 86_400_000, None], pa.date64()),
        "noon": pa.array([dt.time(12), dt.time(0, 0, 0, 1), None]),
        "wait": pa.array([dt.timedelta(seconds=1), dt.timedelta(days=-1), None]),
        "none": pa.nulls(3),
        "round": pa.array([Decimal("1E+3"), Decimal("-2E+3"), None], pa.decimal128(5, -3)),
        "wide": pa.array([Decimal("0.00"), Decimal("-0.01"), None], pa.decimal256(50, 2)),
        "wider": pa.array([Decimal("0E-8"), Decimal("-0.00000001"), None], pa.decimal256(50, 8)),
    }
)
ODD_TEXTS: dict[str, list[Any]] = {
    "byte": [0, 255, None],
    "word": [0, 2**16 - 1, None],
    "long": [0, 2**32 - 1, None],
    "huge": ["0", str(2**64 - 1), None],
    "half": [0.5, -2.0, None],
    "large": ["ä", "", None],
    "view": ["a view of a text that is long", "", None],
    "words": ["a", "b", None],
    "fixed": [b"ab", b"cd", None],
    "zoned": ["2020-02-29 01:02:03.456789", "1970-01-01 00:00:00", None],
    "second": ["2020-01-01 00:00:00", "1969-12-31 23:00:00", None],
    "nano": ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01.5", None],
    "day": ["1970-01-01", "1970-01-02", None],
    "noon": ["12:00:00.000000", "00:00:00.000001", None],
    "wait": ["0 00:00:01.000000000", "-1 00:00:00.000000000", None],
    "none": [None, None, None],
    "round": ["1000", "-2000", None],
    "wide": ["0.00", "-0.01", None],
    "wider": ["0.00000000", "-0.00000001", None],
}


def values_of(column: Any) -> list[Any]:
    """Return a column's values as its own null bits say."""
    (filled,) = (value for value in vars(column).values() if value is not None)
    nulls = int.from_bytes(filled.nulls, "little")
    return [None if nulls >> row & 1 else value for row, value in enumerate(filled.values)]


def value_of(cell: Any) -> Any:
    (filled,) = (value for value in vars(cell).values() if value is not None)
    return filled.value


def columns_of(encoded: bytes) -> list[list[Any]]:
    return [values_of(column) for column in serialization.deserialize(ttypes.TRowSet(), encoded).columns]


def rows_of(encoded: bytes) -> list[list[Any]]:
    return [
        [value_of(cell) for cell in row.colVals] for row in serialization.deserialize(ttypes.TRowSet(), encoded).rows
    ]


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize(("offset", "length"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_odd_types_and_slices(offset: int, length: int) -> None:
    piece = ODD_TYPES.slice(offset, length)
    expected = {name: texts[offset : offset + length] for name, texts in ODD_TEXTS.items()}
    columns = columns_of(rowset.encode(piece, offset=offset, columnar=True))
    assert dict(zip(ODD_TYPES.schema.names, columns, strict=True)) == expected
    rows = rows_of(rowset.encode(piece.drop_columns(["fixed"]), offset=offset, columnar=False))
    del expected["fixed"]
    assert rows == [list(row) for row in zip(*expected.values(), strict=True)]


def test_nulls_end_with_the_last_one() -> None:
    """PyHive looks at each bit, whether there is a NULL or not."""
    batch = pa.record_batch({"some": [None, *range(8), None, *range(90)], "none": range(100)})
    some, none = serialization.deserialize(ttypes.TRowSet(), rowset.encode(batch, offset=0, columnar=True)).columns
    assert (some.i64Val.nulls, none.i64Val.nulls) == (b"\x01\x02", b"\x00")


def test_impala_shell_gets_a_bit_for_each_row() -> None:
    """On Python 2 it looks for each row's bit, whether it was sent or not."""
    batch = pa.record_batch({"some": [None, *range(8), None, *range(90)], "none": range(100)})
    encoded = rowset.encode(batch, offset=0, columnar=True, whole_nulls=True)
    some, none = serialization.deserialize(ttypes.TRowSet(), encoded).columns
    assert (some.i64Val.nulls, none.i64Val.nulls) == (b"\x01\x02" + bytes(11), bytes(13))
    assert columns_of(encoded) == [column.to_pylist() for column in batch.columns]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_values_inside_of_others_are_written_as_outside_of_them(at: int) -> None:
    """Python has no date past the year 9999, nor a timestamp without its zone."""
    days = pa.array([0, 2_932_897, None], pa.int32()).cast(pa.date32())
    moments = pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC"))
    lists = pa.ListArray.from_arrays([0, None, 2, 3], days)
    maps = pa.MapArray.from_arrays([0, None, 1, 2], ["a", "b"], moments[:2])
    parts = pa.StructArray.from_arrays([lists, moments], ["days", "at"], mask=pa.array([False, False, True]))
    pairs = pa.array([[1, None], None, [2, 3]], pa.list_(pa.int8(), 2))
    batch = pa.record_batch({"days": days, "lists": lists, "maps": maps, "parts": parts, "pairs": pairs})
    expected = [
        ["1970-01-01", "+10000-01-01", None],
        ['["1970-01-01","+10000-01-01"]', None, "[null]"],
        ['{"a":"1970-01-01 00:00:00"}', None, '{"b":"1970-01-01 00:00:01.5"}'],
        [
            '{"days":["1970-01-01","+10000-01-01"],"at":"1970-01-01 00:00:00"}',
            '{"days":null,"at":"1970-01-01 00:00:01.5"}',
            None,
        ],
        ["[1,null]", None, "[2,3]"],
    ]
    written = rowset.encode(batch.slice(at, 2), offset=at, columnar=True)
    assert columns_of(written) == [column[at : at + 2] for column in expected]


def test_rows_carry_where_they_begin() -> None:
    assert (
        serialization.deserialize(ttypes.TRowSet(), rowset.encode(EVERY_TYPE, offset=7, columnar=True)).startRowOffset
        == 7
    )


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_the_protocol(drivers: Drivers, version: int) -> None:
    with Client(drivers) as client:
        opened = client.ask("OpenSession", OpenSessionRequest(version, "joe"), OpenSessionReply)
        assert opened.version == version
        asked = ExecuteRequest(opened.session, "SELECT 'many rows'")
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        client.send(call_bytes("FetchResults", FetchRequest(operation, 0, 3)))
        reply = serialization.deserialize(ttypes.TFetchResultsResp(), success_of(client.frame()))
        assert reply.hasMoreRows
        if version >= 5:
            assert values_of(reply.results.columns[1]) == ["row 0", "row 1", "row 2"]
            assert reply.results.rows == []
        else:
            assert [[value_of(cell) for cell in row.colVals] for row in reply.results.rows][2] == [2, "row 2"]


def test_a_client_from_the_future_speaks_our_newest_version(drivers: Drivers) -> None:
    with Client(drivers) as client:
        assert client.ask("OpenSession", OpenSessionRequest(99), OpenSessionReply).version == 9
        assert client.ask("OpenSession", OpenSessionRequest(-5), OpenSessionReply).version == 0


def test_rows_can_be_fetched_again_from_the_first(drivers: Drivers) -> None:
    with Client(drivers) as client:
        operation = client.ask(
            "ExecuteStatement", ExecuteRequest(client.open_session(), "SELECT 1"), OperationReply
        ).operation
        for orientation, more in ((0, False), (0, False), (4, False)):
            reply = client.ask("FetchResults", FetchRequest(operation, orientation, 100), FetchReply)
            assert (reply.status.code, reply.has_more_rows) == (StatusCode.SUCCESS, more)
        assert client.ask("FetchResults", FetchRequest(operation, 1, 100), FetchReply).status.code == StatusCode.ERROR


def test_a_reply_is_bounded_whatever_a_client_asks_for(drivers: Drivers) -> None:
    with Client(drivers) as client:
        asked = ExecuteRequest(client.open_session(), "SELECT 'many rows'")
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        client.send(call_bytes("FetchResults", FetchRequest(operation, 0, 2**62)))
        assert len(client.frame()) < 16 << 20


# ---------------------------------------------------------------------- operations


def test_progress_has_what_beeline_draws(drivers: Drivers) -> None:
    with Client(drivers) as client:
        asked = ExecuteRequest(client.open_session(), "SELECT 'forever'", None, True)
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        told = client.ask("GetOperationStatus", StatusRequest(operation, True), StatusReply)
        assert told.state == 1
        assert told.progress is not None
        assert told.progress.headings is not None
        assert len(told.progress.headings) == 9
        (bar,) = told.progress.rows or []
        assert bar[:3] == ["duckdb", "1", "RUNNING"]


def test_facts_about_the_server(drivers: Drivers) -> None:
    with Client(drivers) as client:
        session = client.open_session()
        names = [client.ask("GetInfo", InfoRequest(session, fact), InfoReply).value.text for fact in (17, 47)]
        assert names == ["Fusion SQL Gateway", "joe"]
        assert client.ask("GetInfo", InfoRequest(session, 4_711), InfoReply).status.code == StatusCode.ERROR


def test_keys_are_none(drivers: Drivers) -> None:
    with Client(drivers) as client:
        session = client.open_session()
        for method in ("GetPrimaryKeys", "GetCrossReference"):
            started = client.ask(method, SessionRequest(session), OperationReply)
            assert started.operation is not None
            assert started.operation.kind == Kind.UNKNOWN
            reply = client.ask("FetchResults", FetchRequest(started.operation), FetchReply)
            assert (reply.status.code, reply.has_more_rows) == (StatusCode.SUCCESS, False)


def test_the_gateway_drains(serve: Callable[..., Drivers]) -> None:
    """What runs may end; what is new is refused; after that every connection is closed."""
    drivers = serve(hs2=Hs2Settings(port=0, drain_s=1.0))
    with Client(drivers) as client:
        session = client.open_session()
        asked = ExecuteRequest(session, "SELECT 'forever'", None, True)
        client.ask("ExecuteStatement", asked, OperationReply)
        draining = threading.Thread(target=drivers.gateway.hs2.drain, kwargs={"grace_s": 1.0})
        begun = time.monotonic()
        draining.start()
        time.sleep(0.1)
        refused = client.ask("ExecuteStatement", asked, OperationReply).status
        assert (refused.code, refused.sqlstate) == (StatusCode.ERROR, "57P01")
        draining.join()
        assert time.monotonic() - begun >= 1.0
        assert drivers.gateway.hs2.registry.count() == 0
        wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)


# ---------------------------------------------------------------------- the catalog

SHOP = [
    Relation(
        "default",
        "books",
        RelationKind.TABLE,
        (Column("id", "bigint"), Column("price", "decimal(10,2)"), Column("a_b", "string")),
    ),
    Relation("default", "sales", RelationKind.VIEW, (Column("at", "timestamp_ntz"), Column("tags", "array<string>"))),
]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["books", "sales"]),
        ("", ["books", "sales"]),
        ("%", ["books", "sales"]),
        ("*", ["books", "sales"]),
        (".*", ["books", "sales"]),
        ("B%", ["books"]),
        ("_ales", ["sales"]),
        ("\\_ales", []),
        ("b.oks", []),
        ("(", []),
        ("%o%s%", ["books"]),
        ("%s%b%", []),
        ("%%_o%%s", ["books"]),
        ("b%s", ["books"]),
        ("b%books", []),
        ("s%s", ["sales"]),
        ("%" * 200_000, ["books", "sales"]),
        ("_" * 200_000, []),
    ],
)
def test_patterns(pattern: str | None, names: list[str]) -> None:
    assert metadata.tables(TablesRequest(table=pattern), SHOP)["TABLE_NAME"].to_pylist() == names


def test_no_pattern_takes_long() -> None:
    """What an expression would try again and again in other places is tried once."""
    longest = Relation("default", "a" * 255, RelationKind.TABLE, (Column("id", "bigint"),))
    begun = time.process_time()
    for pattern in ("%" * 30 + "b", "%a" * 30 + "b", "%a_" * 100 + "%b%"):
        assert metadata.tables(TablesRequest(table=pattern), [longest]).num_rows == 0
    assert time.process_time() - begun < 1.0


def test_tables_of_another_kind_or_database_are_none() -> None:
    assert metadata.tables(TablesRequest(types=["VIEW"]), SHOP)["TABLE_NAME"].to_pylist() == ["sales"]
    assert metadata.tables(TablesRequest(types=["SYSTEM TABLE"]), SHOP).num_rows == 0
    assert metadata.tables(TablesRequest(types=["view", "table"]), SHOP)["TABLE_TYPE"].to_pylist() == ["TABLE", "VIEW"]
    assert metadata.tables(TablesRequest(schema="other"), SHOP).num_rows == 0
    assert metadata.schemas(SchemasRequest(schema="def%"), ("default", "sales")).to_pylist() == [
        {"TABLE_SCHEM": "default", "TABLE_CATALOG": ""}
    ]


def test_columns() -> None:
    found = metadata.columns(ColumnsRequest(table="books", column="a\\_b"), SHOP).to_pylist()
    assert [(row["COLUMN_NAME"], row["ORDINAL_POSITION"], row["DATA_TYPE"]) for row in found] == [("a_b", 3, 12)]
    everything = metadata.columns(ColumnsRequest(), SHOP).to_pylist()
    assert [row["TYPE_NAME"] for row in everything] == [
        *("BIGINT", "DECIMAL(10,2)", "STRING", "TIMESTAMP", "ARRAY<STRING>")
    ]
    price = everything[1]
    assert (price["COLUMN_SIZE"], price["DECIMAL_DIGITS"], price["NUM_PREC_RADIX"]) == (10, 2, 10)


def test_types_that_hive_does_not_have_are_texts() -> None:
    for name in ("time(6)", "interval day", ""):
        assert describe(name) == TypeKind.STRING.row.driver


# ---------------------------------------------------------------------- HTTP, logins, TLS

LOCAL, REMOTE = "127.0.0.1", "192.0.2.1"


def test_http_takes_thrift_only(drivers: Drivers) -> None:
    address = f"http://{drivers.host}:{drivers.http_port}/cliservice"
    call = call_bytes("OpenSession", OpenSessionRequest())
    thrift = {"Content-Type": "application/x-thrift"}
    assert httpx.post(address, content=call).status_code == 415
    assert httpx.post(address, content=b"noise", headers=thrift).status_code == 400
    assert httpx.post(address, content=bytes(2 << 20), headers=thrift).status_code == 413
    for path in ("", "/"):
        answered = httpx.post(address + path, content=call, headers=thrift)
        assert reply_of(answered.content, OpenSessionReply).session is not None


def test_sessions_over_http_belong_to_their_user(drivers: Drivers) -> None:
    address = f"http://{drivers.host}:{drivers.http_port}/cliservice"

    def ask(method: str, request: Any, user: str | None) -> bytes:
        login = (user, "any") if user else None
        headers = {"Content-Type": "application/x-thrift"}
        return httpx.post(address, content=call_bytes(method, request), headers=headers, auth=login).content

    session = reply_of(ask("OpenSession", OpenSessionRequest(), "joe"), OpenSessionReply).session
    request = SessionRequest(session)
    for user, code in (("joe", 0), ("ann", 4), (None, 4)):
        assert reply_of(ask("GetCatalogs", request, user), OperationReply).status.code == code


def test_a_client_that_leaves_http_takes_its_query_along(drivers: Drivers) -> None:
    address = f"http://{drivers.host}:{drivers.http_port}/cliservice"
    headers = {"Content-Type": "application/x-thrift"}
    opened = httpx.post(address, content=call_bytes("OpenSession", OpenSessionRequest()), headers=headers)
    asked = ExecuteRequest(reply_of(opened.content, OpenSessionReply).session, "SELECT 'forever'")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(address, content=call_bytes("ExecuteStatement", asked), headers=headers, timeout=0.5)
    wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)


def test_one_login_for_every_interface(serve: Callable[..., Drivers], tmp_path_factory: pytest.TempPathFactory) -> None:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text(user_line("joe", "right"), encoding="utf-8")
    drivers = serve(authentication=AuthenticationSettings(users_file=users, anonymous=Anonymous.NEVER))
    address = f"http://{drivers.host}:{drivers.http_port}"
    assert httpx.get(f"{address}/livez").status_code == 200
    for path in ("/v1/queries", "/dashboard", "/v1/tables"):
        refused = httpx.get(f"{address}{path}")
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        assert refused.json()["error"]["code"] == "AUTHENTICATION_FAILED"
        assert httpx.get(f"{address}{path}", auth=("joe", "wrong")).status_code == 401
        assert httpx.get(f"{address}{path}", auth=("joe", "right")).is_success
    assert httpx.post(f"{address}/cliservice", content=b"").status_code == 401
    reply = httpx.post(f"{address}/v1/queries", json={"sql": "SELECT 1"}, timeout=60, auth=("joe", "right"))
    assert drivers.last_query().user == "joe", reply.text


@pytest.mark.parametrize(
    ("anonymous", "open_to"),
    [(Anonymous.NEVER, []), (Anonymous.LOOPBACK, [LOCAL]), (Anonymous.EVERYWHERE, [LOCAL, REMOTE])],
)
def test_who_may_come_without_a_login(anonymous: Anonymous, open_to: list[str]) -> None:
    authenticator = UsersFile(None, anonymous=anonymous)
    for address in (LOCAL, REMOTE):
        login = Login("joe", "any", address)
        if address in open_to:
            assert authenticator.authenticate(login).name == "joe"
        else:
            with pytest.raises(AuthenticationFailed, match="is wrong"):
                authenticator.authenticate(login)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("::1", True), ("::ffff:127.0.0.1", True), ("testclient", False), ("", False), ("::ffff:192.0.2.1", False)],
)
def test_addresses_of_this_machine(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_name_of_the_file_always_needs_its_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(user_line("joe", "right"), encoding="utf-8")
    authenticator = UsersFile(file, anonymous=Anonymous.EVERYWHERE)
    assert authenticator.authenticate(Login("ann", None, "")).name == "ann"
    assert authenticator.authenticate(Login("joe", "right", "")).name == "joe"
    with pytest.raises(AuthenticationFailed, match="are required"):
        authenticator.authenticate(Login("joe", None, ""))
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        authenticator.authenticate(Login("joe", "left", ""))
    file.write_text(user_line("joe", "a new and longer one") + "\n" + user_line("ann", "x"), encoding="utf-8")
    assert authenticator.authenticate(Login("joe", "a new and longer one", "")).name == "joe"
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        authenticator.authenticate(Login("ann", "y", ""))
    file.write_text("nonsense", encoding="utf-8")  # those of before stay
    assert authenticator.authenticate(Login("joe", "a new and longer one", "")).name == "joe"


def test_a_line_of_the_users_file_is_made(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["password", "joe"], input="right\nright\n")
    assert made.exit_code == 0
    (tmp_path / "users").write_text(made.stdout, encoding="utf-8")
    authenticator = UsersFile(tmp_path / "users", anonymous=Anonymous.NEVER)
    assert authenticator.authenticate(Login("joe", "right", "")).name == "joe"
    assert CliRunner().invoke(app, ["password", "a:b"], input="x\nx\n").exit_code == 1


def test_a_users_file_that_cannot_be_read_stops_the_gateway(tmp_path: Path) -> None:
    for file in (tmp_path / "none", tmp_path):
        with pytest.raises(UsersFileInvalid, match=str(file)):
            UsersFile(file, anonymous=Anonymous.NEVER)


def test_drivers_speak_tls_where_there_is_a_certificate(drivers: Drivers, certificate: TlsSettings) -> None:
    dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = driver_server(listening, drivers.gateway, tls_context(certificate))
    server.start()
    try:
        host, port = server.address
        options = {"use_ssl": True, "ca_cert": str(certificate.certificate), "auth_mechanism": "PLAIN"}
        connection = dbapi.connect(host, port, user="joe", password="any", **options)
        cursor = connection.cursor()
        cursor.execute("SELECT 'many rows'")
        assert len(cursor.fetchall()) == MANY_ROWS
        cursor.close()
        connection.close()
        with Client(Drivers(drivers.gateway, server, 0), user=None) as plain:
            plain.socket.sendall(b"\x01\x00\x00\x00\x05PLAIN")
            assert plain.is_closed()
    finally:
        server.stop()


def test_http_is_https_where_there_is_a_certificate(tmp_path: Path, certificate: TlsSettings) -> None:
    engines = {"duckdb": DuckDBSettings(enabled=False), "spark": SparkSettings(enabled=False)}
    settings = settings_module.load(tmp_path, tls=certificate, server=ServerSettings(port=0), **engines)
    with own_server(settings) as url:
        assert url.startswith("https://127.0.0.1:")
        assert running_address(tmp_path) == url
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/livez")
        with GatewayClient(url, verify=pinning(certificate.certificate)) as client:
            assert client.get("/v1/tables") == {"tables": []}


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("nonsense", encoding="utf-8")
    with pytest.raises(CertificateInvalid, match=r"server\.pem"):
        tls_context(TlsSettings(certificate=tmp_path / "server.pem"))
