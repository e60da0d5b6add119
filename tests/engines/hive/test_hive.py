"""The Hive adapter against the real Spark Thrift Server: every way in, and what it does when the server dies."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyhive.exc import OperationalError  # type: ignore[import-untyped]

from engines.errors import (
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
)
from engines.hive.engine import HiveEngine
from engines.hive.transport import Access, Auth
from engines.protocol import Engine, Lease
from tests.engines.conformance import (
    SLOW_SPARK_SQL,
    SOON_S,
    Conformance,
    Warehouse,
    ask,
)
from tests.engines.thrift_server import LOOPBACK, PASSWORD, USER, WAYS, ThriftServer, thrift_server

__all__ = ["thrift_server"]

pytestmark = pytest.mark.spark

WRONG = "a wrong password"
HTTP = "cliservice"
QUICK_S = 5.0
FREED_WITHIN_S = 40.0


def access_to(way: str, server: ThriftServer, password: str = PASSWORD) -> Access:
    """Return what a way in asks for."""
    settings = WAYS[way]
    auth = Auth(settings["hive.server2.authentication"])
    return Access(
        auth,
        user=USER,
        password=password if auth in (Auth.LDAP, Auth.CUSTOM) else None,
        http_path=HTTP if "hive.server2.transport.mode" in settings else None,
        tls="hive.server2.use.SSL" in settings,
        ca_file=str(server.folder / "certificate.pem"),
    )


class _Mortal:
    """A server that comes back on the same port after it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = ThriftServer(folder, ["sasl"])
        self._next: Future[ThriftServer] | None = None
        self._starts = ThreadPoolExecutor(1)
        self.port = self._server.ports["sasl"]

    def kill(self) -> None:
        """Kill the server; another one starts in its place."""
        self._server.kill()
        self._next = self._starts.submit(ThriftServer, self._folder, ["sasl"], self._server.ports)

    def settle(self) -> None:
        """Wait for the server that took the place of a killed one."""
        if self._next is not None:
            self._server.stop()
            self._server, self._next = self._next.result(), None

    def stop(self) -> None:
        """End it for good."""
        self.settle()
        self._starts.shutdown()
        self._server.stop()


@pytest.fixture(scope="module")
def mortal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Mortal]:
    server = _Mortal(tmp_path_factory.mktemp("mortal"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def over_sasl(thrift_server: ThriftServer) -> Iterator[HiveEngine]:
    engine = HiveEngine([(LOOPBACK, thrift_server.ports["sasl"])], access_to("sasl", thrift_server))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def over_http(thrift_server: ThriftServer) -> Iterator[HiveEngine]:
    engine = HiveEngine(
        [(LOOPBACK, thrift_server.ports["http"])], access_to("http", thrift_server), name="http", whole_results=True
    )
    yield engine
    engine.close()


class TestHiveOverSasl(Conformance):
    """A socket with SASL; a result's tasks run while its rows are read."""

    slow_sql = SLOW_SPARK_SQL

    @pytest.fixture
    def engine(self, over_sasl: HiveEngine) -> Engine:
        return over_sasl

    @pytest.fixture
    def spare_engine(self, thrift_server: ThriftServer) -> Iterator[Engine]:
        engine = HiveEngine([(LOOPBACK, thrift_server.ports["nosasl"])], access_to("nosasl", thrift_server))
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self, mortal_server: _Mortal) -> Iterator[tuple[Engine, Callable[[], None]]]:
        mortal_server.settle()
        engine = HiveEngine([(LOOPBACK, mortal_server.port)])
        yield engine, mortal_server.kill
        engine.close()

    @pytest.fixture
    def stranger(self, thrift_server: ThriftServer) -> Iterator[Engine]:
        engine = HiveEngine([(LOOPBACK, thrift_server.ports["ldap"])], access_to("ldap", thrift_server, WRONG))
        yield engine
        engine.close()


@pytest.mark.thorough
class TestHiveOverHttp(Conformance):
    """HTTP; a result is whole in the server before its first row is read."""

    slow_sql = SLOW_SPARK_SQL

    @pytest.fixture
    def engine(self, over_http: HiveEngine) -> Engine:
        return over_http

    @pytest.fixture
    def spare_engine(self, thrift_server: ThriftServer) -> Iterator[Engine]:
        engine = HiveEngine([(LOOPBACK, thrift_server.ports["http"])], access_to("http", thrift_server))
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        pytest.skip("the same server was killed under the other transport")

    @pytest.fixture
    def stranger(self, thrift_server: ThriftServer) -> Iterator[Engine]:
        way = "http ldap"
        engine = HiveEngine([(LOOPBACK, thrift_server.ports[way])], access_to(way, thrift_server, WRONG))
        yield engine
        engine.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in(way: str, thrift_server: ThriftServer) -> None:
    if way not in thrift_server.ports:
        pytest.skip("making a certificate needs openssl")
    engine = HiveEngine([(LOOPBACK, thrift_server.ports[way])], access_to(way, thrift_server))
    assert ask(engine, "SELECT 1 AS one, 'Ünï' AS text").to_pylist() == [{"one": 1, "text": "Ünï"}]
    with pytest.raises(StatementError):
        ask(engine, "SELECT no_such_column")
    assert ask(engine, "SELECT 2 AS two").to_pylist() == [{"two": 2}]
    engine.close()


@pytest.mark.parametrize("way", ["tls", "https"])
def test_certificate_of_a_stranger(way: str, thrift_server: ThriftServer) -> None:
    if way not in thrift_server.ports:
        pytest.skip("making a certificate needs openssl")
    known = access_to(way, thrift_server)
    engine = HiveEngine([(LOOPBACK, thrift_server.ports[way])], replace(known, ca_file=None))
    with pytest.raises(EngineUnavailable, match="certificate verify failed"):
        ask(engine, "SELECT 1 AS one")
    engine.close()
    trusting = HiveEngine([(LOOPBACK, thrift_server.ports[way])], replace(known, ca_file=None, verify=False))
    assert ask(trusting, "SELECT 1 AS one").num_rows == 1
    trusting.close()


@pytest.mark.parametrize(("way", "auth"), [("sasl", Auth.NOSASL), ("nosasl", Auth.NONE)])
def test_other_transport_than_the_servers(way: str, auth: Auth, thrift_server: ThriftServer) -> None:
    engine = HiveEngine([(LOOPBACK, thrift_server.ports[way])], Access(auth))
    with pytest.raises(EngineUnavailable, match="lost or refused"):
        ask(engine, "SELECT 1 AS one")
    engine.close()


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELEC 1", StatementError),
        ("SELECT no_such_column FROM kinds", StatementError),
        ("SELECT 1 / (id - id) FROM kinds", StatementError),
        ("SELECT CAST(name AS INT) FROM kinds", StatementError),
        ("SELECT RAISE_ERROR('OutOfMemoryError') FROM kinds", StatementError),
        ("SELECT (SELECT id FROM kinds) AS one", StatementError),
        ("SELECT ELEMENT_AT(ARRAY(id), 7) FROM kinds", StatementError),
        ("SELECT * FROM parquet.`/srv/data`", StatementError),
        ("SELECT SIZE(SEQUENCE(1, 2000000000)) AS n", MemoryExceeded),
    ],
)
def test_errors_of_either_transport(
    sql: str, kind: type[EngineError], over_sasl: HiveEngine, over_http: HiveEngine, warehouse: Warehouse
) -> None:
    for engine in (over_sasl, over_http):
        engine.use_tables([warehouse.table("kinds")])
        with pytest.raises(EngineError) as caught:
            ask(engine, sql)
        assert type(caught.value) is kind, caught.value.message
        assert "org.apache" not in caught.value.message
        assert "/srv" not in caught.value.message
        assert ask(engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]


def test_types_that_hiveserver2_sends_as_text_or_not_at_all(over_sasl: HiveEngine) -> None:
    answer = ask(
        over_sasl,
        "SELECT TIMESTAMP'2024-01-01 00:00:00.5' AS moment, TIMESTAMP_NTZ'2024-01-01 00:00:00.5' AS wall, "
        "TIME'12:00:00.000001' AS clock, NULL AS nothing, 'x' COLLATE UNICODE_CI AS folded, "
        "PARSE_JSON('{\"a\": [1]}') AS variant, INTERVAL 2 DAYS AS days, CAST(0.1 AS FLOAT) AS single, "
        "NAMED_STRUCT('at', TIMESTAMP'2024-01-01 00:00:00.123456', 'quoted', 'a\"b', 'gone', NULL) AS record",
    )
    assert [str(kind) for kind in answer.schema.types] == [
        *("timestamp[us, tz=UTC]", "timestamp[us]", "time64[us]", "null", "string"),
        *("string", "string", "float", "string"),
    ]
    row = answer.to_pylist()[0]
    assert row["clock"] == dt.time(12, 0, 0, 1)
    assert (row["folded"], json.loads(row["variant"])) == ("x", {"a": [1]})
    assert json.loads(row["record"]) == {"at": "2024-01-01T00:00:00.123456Z", "quoted": 'a"b', "gone": None}


def test_tables_of_the_servers_own_catalog(thrift_server: ThriftServer, warehouse: Warehouse) -> None:
    """Without views, and asked as a Hive is: types are those that HiveServer2 tells."""
    address = [(LOOPBACK, thrift_server.ports["nosasl"])]
    settings = {"spark.sql.variable.substitute": "false"}  # by its own name: Hive's means nothing to it
    engine = HiveEngine(address, Access(Auth.NOSASL), dialect="hive", tables="metastore", settings=settings)
    ask(engine, f"CREATE TABLE of_the_server USING parquet LOCATION '{warehouse.table('kinds').location}'")
    engine.use_tables([replace(warehouse.table("kinds"), name="of_the_server", location="/nowhere")])
    answer = ask(engine, "SELECT id, money, moment, name FROM of_the_server WHERE id < 2 ORDER BY id")
    assert [str(kind) for kind in answer.schema.types] == ["int64", "decimal128(10, 2)", "timestamp[us]", "string"]
    assert answer["moment"][0].as_py() == dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert "Scan" in engine.explain("SELECT id FROM of_the_server")
    with pytest.raises(StatementError):
        ask(engine, "SELECT id FROM kinds")
    ask(engine, "DROP TABLE of_the_server")
    engine.close()


def test_statements_run_as_their_users_and_sessions_serve_nobody_else(
    thrift_server: ThriftServer, warehouse: Warehouse
) -> None:
    engine = HiveEngine(
        [(LOOPBACK, thrift_server.ports["sasl"])], access_to("sasl", thrift_server), acts_for_users=True
    )
    engine.use_tables([warehouse.table("kinds")])
    sql = "SELECT current_user() AS name, count(*) AS n FROM kinds"
    names = []
    for number, user in enumerate(("ann", "joe", None, "ann", None)):
        lease = Lease(0)
        if user is None:
            stream = engine.execute(sql, query_id=f"s{number}", lease=lease, deadline_s=60.0)
        else:
            stream = engine.execute(sql, user=user, query_id=f"s{number}", lease=lease, deadline_s=60.0)
        with stream:
            names += pa.Table.from_batches(stream, stream.schema)["name"].to_pylist()
    assert names == ["ann", "joe", USER, "ann", USER]
    engine.close()


def test_first_server_that_answers_is_taken(thrift_server: ThriftServer) -> None:
    """One refuses, one hangs up, one answers; the next statement goes to the last one at once."""
    with socket.socket() as nobody, socket.create_server((LOOPBACK, 0)) as rude:
        nobody.bind((LOOPBACK, 0))
        met: list[object] = []

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, address = rude.accept()
                    met.append(address)
                    caller.close()

        threading.Thread(target=hang_up, daemon=True).start()
        addresses = [nobody.getsockname(), rude.getsockname(), (LOOPBACK, thrift_server.ports["sasl"])]
        engine = HiveEngine(addresses)
        assert ask(engine, "SELECT 1 AS one").num_rows == 1
        assert len(met) == 1
        assert ask(engine, "SELECT 1 AS one").num_rows == 1
        assert engine.status().detail.startswith(f"{LOOPBACK}:{thrift_server.ports['sasl']} ")
        assert len(met) == 1
        engine.close()
        rude.shutdown(socket.SHUT_RDWR)


def test_no_server_at_all() -> None:
    with socket.socket() as nobody:
        nobody.bind((LOOPBACK, 0))
        engine = HiveEngine([nobody.getsockname()])
        with pytest.raises(EngineUnavailable, match="lost or refused"):
            ask(engine, "SELECT 1 AS one")
        status = engine.status()
        assert not status.alive
        assert "does not answer" in status.detail
        engine.close()


def test_careful_statements_broadcast_nothing(over_sasl: HiveEngine, warehouse: Warehouse) -> None:
    over_sasl.use_tables(warehouse.tables)
    sql = "EXPLAIN SELECT /*+ BROADCAST(b) */ COUNT(*) AS n FROM kinds a JOIN kinds b ON a.id = b.id"
    plans: list[str] = []
    for careful in (False, True, False):
        lease = Lease(0, careful=careful)
        with over_sasl.execute(sql, query_id=f"plan {len(plans)}", lease=lease, deadline_s=SOON_S) as answer:
            plans.append(str(pa.Table.from_batches(answer, answer.schema)[0].to_pylist()))
    assert ["BroadcastHashJoin" in plan for plan in plans] == [True, False, True]


def test_session_that_the_server_forgot_is_replaced(over_sasl: HiveEngine) -> None:
    ask(over_sasl, "SELECT 1 AS one")
    session = over_sasl._pool.take(over_sasl._tables_version)
    with contextlib.suppress(OperationalError):  # of views whose names have blanks, which Spark cannot uncache
        session._connection.close()  # what a server does with a session that was idle for too long
    over_sasl._pool.give_back(session)
    assert ask(over_sasl, "SELECT 1 AS one").num_rows == 1


def test_idle_sessions_are_closed(thrift_server: ThriftServer) -> None:
    port = thrift_server.ports["nosasl"]

    def connections() -> int:
        return sum(held.raddr.port == port for held in psutil.Process().net_connections() if held.raddr)

    engine = HiveEngine([(LOOPBACK, port)], Access(Auth.NOSASL), idle_s=2.0)
    ask(engine, "SELECT 1 AS one")
    assert connections() == 1
    give_up_s = time.monotonic() + SOON_S
    while connections():
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    assert ask(engine, "SELECT 1 AS one").num_rows == 1
    engine.close()
    assert connections() == 0


def test_frozen_server_keeps_nobody(
    thrift_server: ThriftServer, over_sasl: HiveEngine, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits is freed at the deadline, and the server of the statement once it answers again."""
    monkeypatch.setattr("engines.running_statement.BREAK_OFF_AFTER_S", 1.0)
    over_sasl.use_tables(warehouse.tables)
    ask(over_sasl, "SELECT COUNT(*) AS n FROM kinds")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, over_sasl, SLOW_SPARK_SQL, deadline_s=4.0)
        time.sleep(2.0)
        os.kill(thrift_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(DeadlineExceeded):
                asked.result(timeout=FREED_WITHIN_S)
        finally:
            os.kill(thrift_server.pid, signal.SIGCONT)
    # The slow statement ends too: its tasks would fill both cores for hours.
    assert ask(over_sasl, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]


def test_cancel_is_quick(over_sasl: HiveEngine, over_http: HiveEngine, warehouse: Warehouse) -> None:
    for engine in (over_sasl, over_http):
        engine.use_tables(warehouse.tables)
        ask(engine, "SELECT COUNT(*) AS n FROM kinds")
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, engine, SLOW_SPARK_SQL, query_id="quick")
            time.sleep(2.0)
            started_s = time.monotonic()
            engine.cancel("quick")
            with pytest.raises(StatementCancelled):
                asked.result(timeout=SOON_S)
            assert time.monotonic() - started_s < QUICK_S


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="password"):
        Access(Auth.LDAP)
    with pytest.raises(ValueError, match="password"):
        Access(Auth.NONE, password=WRONG)
    with pytest.raises(ValueError, match="views"):
        HiveEngine([(LOOPBACK, 1)], dialect="hive")
    with pytest.raises(ValueError, match="address"):
        HiveEngine([])
    assert WRONG not in repr(Access(Auth.LDAP, password=WRONG))
