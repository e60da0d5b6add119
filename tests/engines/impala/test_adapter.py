"""The Impala adapter: coordinators, logins, query options, errors on demand, tables that are kept in line, actuals.

It is long because each is asked of a server that answers as Impala does.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
    UserRefused,
)
from engines.protocol import Lease
from sql.tables import Column, TableSource

pytest.importorskip("impala", reason="impyla is not installed: pip install fusion-sql-gateway[impala]")
pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.impala import coordinators as coordinators_module
from engines.impala import memory_model as impala_memory
from engines.impala import plan_reader as impala_explain
from engines.impala.connection import Access, Auth
from engines.impala.engine import ImpalaEngine
from engines.impala.tables import create, name_in_impala, renamed
from selector.cardinality.tree import estimate_rows
from selector.plan import Operator, TableShape
from sql.tables import with_names
from tests.engines.impala.impala_server import ImpalaServer

MIB = 1 << 20
LEASE = Lease(memory_bytes=256 * MIB)
ACCESS = Access(database="fusion", timeout_s=20.0)
NEVER_S = 3600.0
LOGIN = {"ana": "s3cret"}
ROWS = 1_000
GROUPS = 20
JOIN = (
    "SELECT b.category, SUM(s.quantity) AS q FROM `sales` AS s JOIN `books` AS b ON s.book_id = b.id "
    "WHERE b.price > 500 GROUP BY b.category ORDER BY q DESC LIMIT 3"
)
SLOW = (
    "SELECT COUNT(*) AS n FROM books a CROSS JOIN books b CROSS JOIN books c CROSS JOIN books d "
    "WHERE a.id * d.id % 7 = b.id"
)

Build = Callable[..., ImpalaEngine]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("impala")
    ids = range(ROWS)
    books = {
        "id": pa.array(ids, pa.int64()),
        "category": [f"category {i % GROUPS}" for i in ids],
        "price": [float(i) for i in ids],
    }
    sales = {
        "book_id": pa.array([i % ROWS for i in range(5 * ROWS)], pa.int64()),
        "quantity": pa.array([1] * 5 * ROWS, pa.int32()),
    }
    for name, columns in (("books", books), ("sales", sales)):
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "part.parquet")
    return folder


@pytest.fixture
def tables(folder: Path) -> list[TableSource]:
    books = (Column("id", "bigint"), Column("category", "string"), Column("price", "double"))
    sales = (Column("book_id", "bigint"), Column("quantity", "int"))
    return [
        TableSource("books", str(folder / "books"), "parquet", books),
        TableSource("sales", str(folder / "sales"), "parquet", sales),
    ]


@pytest.fixture
def server() -> Iterator[ImpalaServer]:
    with ImpalaServer() as server:
        yield server


@pytest.fixture
def build(server: ImpalaServer, tables: list[TableSource]) -> Iterator[Build]:
    """Make engines; each knows the tables, and is closed at the end of the test."""
    built: list[ImpalaEngine] = []

    def build(*servers: ImpalaServer, access: Access = ACCESS, **options: object) -> ImpalaEngine:
        addresses = [each.address for each in servers or (server,)]
        engine = ImpalaEngine(addresses, access, **{"refresh_s": NEVER_S, "check_s": NEVER_S, **options})  # type: ignore[arg-type]
        engine.use_tables(tables)
        built.append(engine)
        return engine

    yield build
    for engine in built:
        engine.close()


def ask(
    engine: ImpalaEngine, sql: str, *, lease: Lease = LEASE, query_id: str = "q", deadline_s: float = 60.0
) -> pa.Table:
    with engine.execute(sql, query_id=query_id, lease=lease, deadline_s=deadline_s) as result:
        return pa.Table.from_batches(list(result), result.schema)


def asked(server: ImpalaServer, start: str) -> list[str]:
    return [each.sql for each in server.service.asked if each.sql.startswith(start)]


# ---------------------------------------------------------------------- options


def test_a_statement_runs_with_its_lease_and_options(server: ImpalaServer, build: Build) -> None:
    engine = build(mt_dop=4, request_pool="root.fusion", options={"COMPRESSION_CODEC": "zstd"})
    ask(engine, "SELECT id FROM books", query_id="query-7", deadline_s=12.5)

    last = server.service.asked[-1]
    assert (last.sql, last.database, last.user) == ("SELECT id FROM books", "fusion", "fusion")
    wanted = {
        "MEM_LIMIT": str(LEASE.memory_bytes),
        "EXEC_TIME_LIMIT_S": "13",
        "MT_DOP": "4",
        "REQUEST_POOL": "root.fusion",
        "COMPRESSION_CODEC": "zstd",
        "TIMEZONE": "UTC",
        "CLIENT_IDENTIFIER": "fusion-sql-gateway query-7",
    }
    assert {name: last.options[name] for name in wanted} == wanted


def test_explain_asks_for_the_extended_plan_of_the_same_threads(server: ImpalaServer, build: Build) -> None:
    build(mt_dop=3).explain("SELECT id FROM books")
    last = server.service.asked[-1]
    assert last.sql == "EXPLAIN SELECT id FROM books"
    assert (last.options["EXPLAIN_LEVEL"], last.options["MT_DOP"]) == ("2", "3")


def test_an_option_that_impala_does_not_know_is_told(build: Build) -> None:
    with pytest.raises(StatementError, match="Invalid query option: NO_SUCH_OPTION"):
        ask(build(options={"NO_SUCH_OPTION": "1"}), "SELECT 1 AS one")


def test_the_plan_is_one_that_the_selector_costs(build: Build) -> None:
    shapes = [
        TableShape("books", {"id": "bigint", "category": "string", "price": "double"}, ROWS),
        TableShape("sales", {"book_id": "bigint", "quantity": "int"}, 5 * ROWS),
    ]
    plan = impala_explain.read(build().explain(JOIN), shapes)
    found = [node.operator for _, node in plan.root.walk()]
    assert found[1:] == [Operator.TOP_N, Operator.AGGREGATE, Operator.HASH_JOIN, Operator.SCAN, Operator.SCAN]
    assert {node.table for _, node in plan.root.walk() if node.table} == {"books", "sales"}
    estimate = impala_memory.estimate(estimate_rows(plan, {}, shapes), plan, {})
    assert estimate.peak_bytes is not None
    assert plan.reservation_bytes is not None
    assert estimate.peak_bytes >= plan.reservation_bytes


# ---------------------------------------------------------------------- results


def test_a_run_tells_its_peak_and_the_rows_of_every_operator(build: Build) -> None:
    with build().execute(JOIN, query_id="q", lease=LEASE, deadline_s=60.0) as result:
        assert sum(batch.num_rows for batch in result) == 3
    actuals = result.actuals
    assert actuals.peak_bytes is not None
    assert 0 < actuals.peak_bytes <= LEASE.memory_bytes
    told = {operator.name.partition(":")[2]: (operator.rows, operator.depth) for operator in actuals.operators}
    expensive = ROWS - 501
    assert told["TOP-N"] == (3, 0)
    assert told["AGGREGATE"] == (GROUPS, 1)
    assert told["HASH JOIN"] == (5 * expensive, 2)
    assert told["SCAN HDFS of sales"] == (5 * expensive, 3)  # the join's build side filters the scan as it runs
    assert told["SCAN HDFS of books"] == (expensive, 3)


def test_results_that_are_not_read_to_their_end_have_no_actuals(build: Build) -> None:
    with build().execute("SELECT id FROM books", query_id="q", lease=LEASE, deadline_s=60.0) as result:
        next(result)
    assert result.actuals.peak_bytes is None
    assert result.actuals.operators == ()


def test_nothing_is_left_on_the_server(server: ImpalaServer, build: Build) -> None:
    engine = build()
    ask(engine, "SELECT id FROM books")
    with engine.execute("SELECT book_id FROM sales", query_id="q", lease=LEASE, deadline_s=60.0) as result:
        next(result)
    with pytest.raises(StatementError):
        ask(engine, "SELECT nothing FROM books")
    assert server.service.operations == {}
    engine.close()
    assert server.service.sessions == {}


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("phase", ["plan", "run", "fetch"])
def test_texts_are_classified_in_every_phase(server: ImpalaServer, build: Build, phase: str) -> None:
    engine = build()
    for text, kind in (
        ("Memory limit exceeded: Could not allocate", MemoryExceeded),
        ("Rejected query from pool default-pool: queue full, limit=200, num_queued=200.", EngineBusy),
        ("Admission for query exceeded timeout 60000ms in pool p. Queued reason: Not enough memory", EngineBusy),
        ("Failed due to unreachable impalad(s): impala-2:27000", EngineUnavailable),
        ("Query 1:2 expired due to execution time limit of 1s000ms", DeadlineExceeded),
        ("Query 1:2 terminated due to scan bytes limit of 10.00 GB", StatementError),
        ("UDF ERROR: Cannot divide decimal by zero", StatementError),
        ("AnalysisException: default.f() unknown for database default. It has 0 functions.", UnsupportedFeature),
        ("Cancelled", StatementCancelled),
        ("Something new", EngineFault),
    ):
        server.fail("FROM books", text, phase=phase)
        with pytest.raises(EngineError) as caught:
            ask(engine, "SELECT id FROM books")
        assert type(caught.value) is kind, text
        assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [ROWS]


def test_a_real_memory_error_tells_its_peak(build: Build) -> None:
    small = Lease(memory_bytes=24 * MIB)
    grouped = "SELECT a.id, b.id AS other, COUNT(*) AS n FROM books a CROSS JOIN books b GROUP BY a.id, b.id"
    with pytest.raises(MemoryExceeded, match="Memory limit exceeded") as caught:
        ask(build(), f"SELECT MAX(n) AS n FROM ({grouped}) AS g", lease=small)
    assert caught.value.peak_bytes == small.memory_bytes


def test_a_deadline_ends_a_statement(build: Build) -> None:
    engine = build()
    with pytest.raises(DeadlineExceeded, match=r"within 0\.5 s"):
        ask(engine, SLOW, deadline_s=0.5)


# ---------------------------------------------------------------------- coordinators


def test_statements_take_turns_over_the_coordinators(server: ImpalaServer, build: Build) -> None:
    with ImpalaServer() as other:
        engine = build(server, other)
        for _ in range(6):
            ask(engine, "SELECT 1 AS one")
        counts = [len(asked(each, "SELECT 1")) for each in (server, other)]
    assert counts == [3, 3]


def test_a_coordinator_that_is_gone_costs_no_statement(server: ImpalaServer, build: Build) -> None:
    other = ImpalaServer()
    engine = build(server, other)
    other.stop()
    for _ in range(4):
        assert ask(engine, "SELECT 1 AS one")["one"].to_pylist() == [1]
    status = engine.status()
    assert status.alive
    assert status.detail.startswith("1 of 2 coordinators answer; ")


def test_without_any_coordinator_the_engine_is_down_and_comes_back_by_itself(build: Build) -> None:
    first = ImpalaServer()
    engine = build(first, check_s=0.1)
    first.stop()
    with pytest.raises(EngineUnavailable):
        ask(engine, "SELECT 1 AS one")
    assert not engine.status().alive
    begun_s = time.monotonic()
    with pytest.raises(EngineUnavailable, match="No coordinator of Impala answers"):
        ask(engine, "SELECT 1 AS one")
    assert time.monotonic() - begun_s < 5.0
    with ImpalaServer(port=first.port):
        give_up_s = time.monotonic() + coordinators_module.REST_S  # a look finds it before its rest is over
        while not engine.status().alive:
            assert time.monotonic() < give_up_s
            time.sleep(0.02)
        assert ask(engine, "SELECT 1 AS one")["one"].to_pylist() == [1]


def test_a_coordinator_that_is_lost_during_a_statement(server: ImpalaServer, build: Build) -> None:
    with ImpalaServer(warehouse=server.service.warehouse) as other:
        engine = build(other, server)  # the second one has the first turn
        threading.Timer(0.5, server.stop).start()
        with pytest.raises(EngineUnavailable, match="lost or refused"):
            ask(engine, SLOW)
        assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [ROWS]
        assert asked(other, "SELECT COUNT")
        assert engine.status().detail.startswith("1 of 2 ")


def test_a_connection_that_died_while_idle_is_replaced(server: ImpalaServer, build: Build) -> None:
    engine = build()
    ask(engine, "SELECT 1 AS one")
    server.drop_connections()
    assert ask(engine, "SELECT 1 AS one")["one"].to_pylist() == [1]
    assert engine.status().detail == "1 of 1 coordinators answer"


def test_a_session_that_the_server_forgot_is_replaced(server: ImpalaServer, build: Build) -> None:
    engine = build()
    ask(engine, "SELECT 1 AS one")
    server.service.sessions.clear()
    assert ask(engine, "SELECT 1 AS one")["one"].to_pylist() == [1]


# ---------------------------------------------------------------------- logins


@pytest.mark.parametrize("auth", [Auth.PLAIN, Auth.LDAP])
@pytest.mark.parametrize("http", [False, True], ids=["binary", "http"])
def test_logins_with_a_password(build: Build, auth: Auth, http: bool) -> None:
    with ImpalaServer(passwords=LOGIN) as server:
        address = ("127.0.0.1", server.http_port) if http else server.address
        path = "cliservice" if http else None
        for password, comes_in in (("s3cret", True), ("wrong", False)):
            access = Access(auth=auth, user="ana", password=password, http_path=path, timeout_s=20.0)
            engine = ImpalaEngine([address], access)
            if comes_in:
                assert ask(engine, "SELECT 1 AS one")["one"].to_pylist() == [1]
                assert server.service.asked[-1].user == "ana"
            else:
                with pytest.raises(EngineUnavailable) as caught:
                    ask(engine, "SELECT 1 AS one")
                assert password not in caught.value.message
            engine.close()


@pytest.mark.filterwarnings("ignore:kerberos module not installed")
def test_kerberos_without_its_library_or_ticket_is_told(server: ImpalaServer, build: Build) -> None:
    engine = build(access=Access(auth=Auth.GSSAPI, timeout_s=20.0))
    with pytest.raises(EngineUnavailable, match=r"did not open a session: .*"):
        ask(engine, "SELECT 1 AS one")


@pytest.mark.parametrize("http", [False, True], ids=["binary", "http"])
def test_tls_verifies_the_coordinator(tmp_path: Path, http: bool) -> None:
    pytest.importorskip("pyspark")  # whose server's tests make keys, too
    from tests.engines.thrift_server import make_keys

    if not make_keys(tmp_path):
        pytest.skip("no openssl on PATH")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with ImpalaServer(context=context) as server:
        address = ("127.0.0.1", server.http_port if http else server.port)
        path = "cliservice" if http else None
        trusting = ImpalaEngine([address], Access(tls=True, ca_file=str(certificate), http_path=path, timeout_s=20.0))
        assert ask(trusting, "SELECT 1 AS one")["one"].to_pylist() == [1]
        trusting.close()
        strict = ImpalaEngine([address], Access(tls=True, http_path=path, timeout_s=20.0))
        with pytest.raises(EngineUnavailable, match=r"(?i)certificate|could not connect"):
            ask(strict, "SELECT 1 AS one")
        strict.close()


def test_passwords_are_not_shown() -> None:
    assert "s3cret" not in repr(Access(auth=Auth.LDAP, user="ana", password="s3cret"))


# ---------------------------------------------------------------------- tables


def test_tables_are_declared_when_a_statement_names_them(server: ImpalaServer, build: Build) -> None:
    engine = build()
    assert asked(server, "CREATE") == []
    ask(engine, "SELECT id FROM books")
    ask(engine, "SELECT id FROM books")
    assert [sql.split(" (")[0] for sql in asked(server, "CREATE")] == [
        "CREATE DATABASE IF NOT EXISTS `fusion`",
        "CREATE EXTERNAL TABLE IF NOT EXISTS `fusion`.`books`",
    ]


def test_a_new_engine_finds_what_an_earlier_one_declared(server: ImpalaServer, build: Build) -> None:
    ask(build(), "SELECT id FROM books")
    before = len(asked(server, "CREATE EXTERNAL"))
    ask(build(), "SELECT id FROM books")
    assert len(asked(server, "CREATE EXTERNAL")) == before


def test_a_changed_table_is_declared_anew(server: ImpalaServer, build: Build, tables: list[TableSource]) -> None:
    ask(build(), "SELECT id FROM books")
    other = build()
    other.use_tables([TableSource("books", tables[0].location, "parquet", (Column("id", "int"),))])
    assert ask(other, "SELECT * FROM books WHERE id = 3").to_pylist() == [{"id": 3}]
    assert asked(server, "DROP TABLE") == ["DROP TABLE IF EXISTS `fusion`.`books`"]


def test_tables_of_other_people_are_used_and_left_alone(
    server: ImpalaServer, build: Build, tables: list[TableSource], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": pa.array([41, 42], pa.int64())}), tmp_path / "theirs.parquet")
    server.service.warehouse.make_database("fusion")
    declared = f"(`id` BIGINT) STORED AS PARQUET LOCATION '{tmp_path}' TBLPROPERTIES ('owner'='ana')"
    theirs = f"CREATE EXTERNAL TABLE `books` {declared}"
    server.service.warehouse.create(theirs, "fusion")

    engine = build()
    assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [2]
    engine.use_tables([tables[1]])
    ask(engine, "SELECT COUNT(*) AS n FROM sales")
    assert "books" in server.service.warehouse.tables("fusion")
    assert asked(server, "DROP") == []


def test_new_files_are_seen_after_a_change_of_the_catalog(build: Build, tmp_path: Path) -> None:
    def write(name: str, ids: list[int]) -> None:
        (tmp_path / "grows" / f"day={ids[0]}").mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / "grows" / f"day={ids[0]}" / name)

    columns = (Column("id", "bigint"), Column("day", "int"))
    write("a.parquet", [1])
    engine = build()
    tables = [TableSource("grows", str(tmp_path / "grows"), "parquet", columns, partition_columns=("day",))]
    engine.use_tables(tables)
    count = "SELECT COUNT(*) AS n FROM grows"
    assert ask(engine, count)["n"].to_pylist() == [1]
    write("b.parquet", [2, 3])
    assert ask(engine, count)["n"].to_pylist() == [1]  # Impala keeps its lists of files
    engine.use_tables(tables)  # as after each change of the gateway's catalog, writes among them
    assert ask(engine, count)["n"].to_pylist() == [3]


def test_columns_are_found_by_name(build: Build, tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": pa.array([2], pa.int64()), "a": pa.array([1], pa.int64())}), tmp_path / "x.parquet")
    engine = build()
    engine.use_tables([TableSource("x", str(tmp_path), "parquet", (Column("a", "bigint"), Column("b", "bigint")))])
    assert ask(engine, "SELECT a, b FROM x").to_pylist() == [{"a": 1, "b": 2}]


def test_nested_columns_are_part_of_a_star(server: ImpalaServer, build: Build, tmp_path: Path) -> None:
    pq.write_table(pa.table({"list_": pa.array([[1, None]], pa.list_(pa.int32()))}), tmp_path / "x.parquet")
    engine = build()
    engine.use_tables([TableSource("x", str(tmp_path), "parquet", (Column("list_", "array<int>"),))])
    assert ask(engine, "SELECT * FROM x").to_pylist() == [{"list_": "[1,null]"}]
    assert server.service.asked[-1].options["EXPAND_COMPLEX_TYPES"] == "1"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (TableSource("t", "/t", "csv", (Column("id", "bigint"),)), "reads no csv"),
        (TableSource("t", "/t", "parquet", (Column("v", "variant"),)), "no column of type variant"),
    ],
)
def test_what_impala_cannot_read_is_not_declared(source: TableSource, why: str) -> None:
    with pytest.raises(UnsupportedFeature, match=why):
        create(source, "fusion")


def test_a_table_that_impala_refuses_is_a_reason_to_run_elsewhere(server: ImpalaServer, build: Build) -> None:
    server.fail(
        "CREATE EXTERNAL",
        "AuthorizationException: User 'fusion' does not have privileges to execute 'CREATE' on: fusion.books",
        phase="plan",
    )
    engine = build()
    with pytest.raises(UnsupportedFeature, match="did not take the table books"):
        ask(engine, "SELECT id FROM books")
    assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [ROWS]


def test_a_table_that_somebody_dropped_is_declared_again(server: ImpalaServer, build: Build) -> None:
    engine = build(refresh_s=0.0)
    ask(engine, "SELECT id FROM books")
    server.service.warehouse.drop("fusion", "books")
    assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [ROWS]


def test_a_table_that_impala_does_not_let_go_harms_no_other_statement(
    server: ImpalaServer, build: Build, tables: list[TableSource]
) -> None:
    engine = build()
    ask(engine, "SELECT id FROM books")
    refusal = "AuthorizationException: User 'fusion' does not have privileges to execute 'DROP' on: fusion.books"
    server.fail("DROP TABLE", refusal, phase="plan")
    engine.use_tables([tables[1]])
    for _ in range(2):
        ask(engine, "SELECT COUNT(*) AS n FROM sales")
    assert asked(server, "DROP TABLE") == ["DROP TABLE IF EXISTS `fusion`.`books`"]


def test_a_table_whose_files_impala_does_not_list_is_a_reason_to_run_elsewhere(
    server: ImpalaServer, build: Build
) -> None:
    refusal = "AuthorizationException: User 'fusion' does not have privileges to execute 'REFRESH' on: fusion.books"
    server.fail("REFRESH", refusal, phase="plan", times=2)
    engine = build()
    with pytest.raises(UnsupportedFeature, match="does not list the files of the table books"):
        ask(engine, "SELECT id FROM books")
    assert ask(engine, "SELECT COUNT(*) AS n FROM books")["n"].to_pylist() == [ROWS]


def test_names_that_impala_does_not_take_are_written_otherwise() -> None:
    odd = TableSource("odd-name", "/t", "parquet", (Column("id", "bigint"),))
    known = name_in_impala("odd-name")
    assert known.startswith("odd_name_")
    assert name_in_impala("Plain_1") == "plain_1"
    assert name_in_impala("odd name") != known
    sql = "SELECT '`odd-name`' AS a, \"`odd-name`\" AS b FROM `odd-name` AS `odd-name`"
    assert (
        with_names(sql, renamed([odd])) == f"SELECT '`odd-name`' AS a, \"`odd-name`\" AS b FROM `{known}` AS `{known}`"
    )
    assert with_names("SELECT '`odd-name`'", {}) == "SELECT '`odd-name`'"


def test_tables_of_other_databases_are_in_databases_of_the_same_name() -> None:
    orders = TableSource("sales.orders", "/t", "parquet", (Column("id", "bigint"),))
    sql = "SELECT `orders`.`id`, '`sales.orders`' AS a FROM `sales.orders` AS `orders`"
    assert with_names(sql, renamed([orders])) == (
        "SELECT `orders`.`id`, '`sales.orders`' AS a FROM `sales`.`orders` AS `orders`"
    )
    assert create(orders, "fusion").startswith("CREATE EXTERNAL TABLE IF NOT EXISTS `sales`.`orders` ")


def test_locations_are_quoted() -> None:
    source = TableSource("t", "/data/it's here", "parquet", (Column("a`b", "bigint"),))
    assert "LOCATION '/data/it\\'s here'" in create(source, "fusion")
    assert "(`a``b` BIGINT)" in create(source, "fusion")


# ---------------------------------------------------------------------- users


def test_statements_run_as_their_users_and_sessions_serve_nobody_else(
    server: ImpalaServer, tables: list[TableSource]
) -> None:
    server.service.may_act_for |= {"ann", "joe"}
    engine = ImpalaEngine([server.address], ACCESS, acts_for_users=True, check_s=NEVER_S)
    engine.use_tables(tables)
    sql = "SELECT COUNT(*) AS n FROM books"
    try:
        engine.explain(sql)
        for number, user in enumerate(("ann", "joe", "ann", None)):
            begun = len(server.service.asked)
            if user is None:
                stream = engine.execute(sql, query_id=f"s{number}", lease=LEASE, deadline_s=60.0)
            else:
                stream = engine.execute(sql, user=user, query_id=f"s{number}", lease=LEASE, deadline_s=60.0)
            with stream:
                assert pa.Table.from_batches(stream, stream.schema)["n"].to_pylist() == [ROWS]
            users = {asked.user for asked in server.service.asked[begun:] if asked.sql.startswith("SELECT")}
            assert users == {user or ACCESS.user}
        own = [asked for asked in server.service.asked if not asked.sql.startswith("SELECT")]
        assert {asked.user for asked in own} == {ACCESS.user}  # plans and declarations of tables
        assert {session.user for session in server.service.sessions.values()} == {ACCESS.user}
    finally:
        engine.close()


def test_a_user_for_whom_the_gateway_may_not_act_is_refused_alone(
    server: ImpalaServer, tables: list[TableSource]
) -> None:
    engine = ImpalaEngine([server.address], ACCESS, acts_for_users=True, check_s=NEVER_S)
    engine.use_tables(tables)
    sql = "SELECT COUNT(*) AS n FROM books"
    try:
        with pytest.raises(UserRefused, match=r"no session for the user eve: .*not authorized to delegate"):
            engine.execute(sql, user="eve", query_id="eve", lease=LEASE, deadline_s=60.0)
        with engine.execute(sql, query_id="own", lease=LEASE, deadline_s=60.0) as stream:  # the coordinator goes on
            assert pa.Table.from_batches(stream, stream.schema)["n"].to_pylist() == [ROWS]
    finally:
        engine.close()
