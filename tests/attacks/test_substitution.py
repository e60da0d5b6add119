"""No server puts anything into a text before it parses it: what is written as text stays text, on every engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from engines.errors import EngineError, EngineUnavailable
from engines.protocol import Engine, Lease
from engines.spark.embedded.server import MIB, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.settings import load
from tests.attacks.doors import Door, Refused, Served

pytestmark = pytest.mark.spark

VARIABLES = (
    *(
        "${env:HOME}",
        "${env:PATH}",
        "${system:java.version}",
        "${x}",
        "${spark:spark.app.name}",
        "${sparkconf:spark.home}",
    ),
    *("${hivevar:x}", "${hiveconf:hive.variable.substitute}", "${hiveconf:spark.sql.ansi.enabled}", "${'].`}"),
)


def shell(marker: Path) -> str:
    """Return a query in which a substitution across quotes would bare a command that makes a file."""
    script = f"(select transform(1) using 'touch {marker}' as (o string))"
    return f"select map('k', named_struct('x', 1))['${{'].`}}'] as q, o from {script} -- `"


def texts(variables: tuple[str, ...]) -> tuple[str, str]:
    """Return queries that give texts back, whatever else is done with them in the query: as texts, and as names."""
    written = ", ".join(f"'{each}' as `{each}`" for each in variables)
    names = ", ".join(f"`{each.replace('`', '``')}`" for each in variables)
    return f"select {written} /* ${{env:HOME}} */", f"select {names} from (select {written}) as t"


def plain(variables: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(variable for variable in variables if "'" not in variable)


def ask(engine: Engine, sql: str) -> list[dict[str, object]]:
    """Return the rows of an answer."""
    with engine.execute(sql, query_id="text", lease=Lease(memory_bytes=MIB), deadline_s=120.0) as rows:
        return [row for batch in rows for row in batch.to_pylist()]


def answers_at_last(engine: Engine) -> None:
    """Wait until a server that was just started has opened its first session, which takes long."""
    give_up_s = time.monotonic() + 120.0
    while True:
        try:
            ask(engine, "select 1 as a")
        except EngineUnavailable as error:
            if "timed out" in error.message and time.monotonic() < give_up_s:
                continue
        return


# ---------------------------------------------------------------------- through every door


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_text_stays_what_it_is(door: Door, engine: str, spark_gateway: Served) -> None:
    written = ", ".join(f"'{each}' as a{at}" for at, each in enumerate(plain(VARIABLES)))
    assert spark_gateway.ask(door, f"select {written}", engine=engine, dialect="impala") == [plain(VARIABLES)]


@pytest.mark.parametrize("dialect", ["spark", "hive"])
def test_a_variable_that_nobody_set_is_refused(door: Door, dialect: str, duckdb_gateway: Served) -> None:
    own = "${hiveconf:hive.variable.substitute}"  # the gateway has this setting
    assert duckdb_gateway.ask(door, f"select '{own}' as a", dialect=dialect) == [("true",)]
    for variable in plain(VARIABLES):
        if variable == own:
            continue
        with pytest.raises(Refused, match="variable") as caught:
            duckdb_gateway.ask(door, f"select '{variable}' as a", dialect=dialect)
        assert (caught.value.code or "UNKNOWN_VARIABLE", caught.value.sqlstate or "42000") == (
            "UNKNOWN_VARIABLE",
            "42000",
        )


def test_variables_are_those_of_the_session(door: Door, duckdb_gateway: Served) -> None:
    settings = {"hivevar:column": "price", "limit": "3", "hivevar:env:HOME": "x"}
    sql = (
        "select count(${hivevar:column}) as n, '${limit}' as a /* ${nobody} */ from books where id <= ${hiveconf:limit}"
    )
    refused = "select '${env:HOME}' as a"
    if door is Door.HTTP:
        with duckdb_gateway.http() as client:
            body = {"wait_s": 60, "settings": settings}
            assert client.post("/v1/queries", json={**body, "sql": sql}).json()["rows"] == [[3, "3"]]
            assert (
                client.post("/v1/queries", json={**body, "sql": refused}).json()["error"]["code"] == "UNKNOWN_VARIABLE"
            )
            again = client.post("/v1/explain", json={"sql": sql}).json()["error"]
            assert (again["code"], again["position"]) == ("UNKNOWN_VARIABLE", {"line": 1, "column": 14})
        return
    with closing(duckdb_gateway.connect(door)) as connection, closing(connection.cursor()) as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET {name} = {value}")
        cursor.execute(sql)
        assert [tuple(row) for row in cursor.fetchall()] == [(3, "3")]
        with pytest.raises(Exception, match="no value from the environment"):
            cursor.execute(refused)
        cursor.execute("SET hive.variable.substitute = false")
        cursor.execute(refused)
        assert [tuple(row) for row in cursor.fetchall()] == [("${env:HOME}",)]


def test_no_shell_is_bared(door: Door, spark_gateway: Served, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for engine in ("spark", "auto"):
        with pytest.raises(Refused):
            spark_gateway.ask(door, shell(marker), engine=engine)
    assert not marker.exists()


def test_bound_parameters_stay_what_they_are(spark_gateway: Served, tmp_path: Path) -> None:
    for value in (*VARIABLES, shell(tmp_path / "marker")):
        found = spark_gateway.ask(Door.FLIGHT, "select ? as a, ? as b", parameters=[value, "${"], engine="spark")
        assert found == [(value, "${")]
    assert not (tmp_path / "marker").exists()


def test_what_is_written_stays_what_it_is(door: Door, spark_gateway: Served) -> None:
    """The writer's path: rows of a query go through Spark into files."""
    table = f"written_{door.name.lower()}"
    spark_gateway.ask(door, f"create table {table} as select '${{env:HOME}}' as a", dialect="impala")
    found = spark_gateway.ask(door, f"select a from {table}", engine="duckdb")
    spark_gateway.ask(door, f"drop table {table}")
    assert found == [("${env:HOME}",)]


def test_no_secret_is_in_the_environment_of_a_child(spark_gateway: Served) -> None:
    spark_gateway.ask(Door.HTTP, "select 1 as a", engine="spark")
    seen: list[tuple[list[str], dict[str, str]]] = []
    for child in spark_gateway.process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that ended meanwhile, or a zombie: it has no environment any more
            seen.append((child.cmdline(), child.environ()))
    assert any("SparkConnectServer" in argument for command, _ in seen for argument in command)
    for _, names in seen:
        assert not [name for name in names if name.startswith("FUSION_") or "TOKEN" in name or "SECRET" in name]


# ---------------------------------------------------------------------- on every engine


@pytest.fixture(params=["embedded", "remote"])
def server(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Give Spark as the gateway reaches it."""
    if request.param == "embedded":
        yield request.getfixturevalue("spark_engine")
        return
    embedded: SparkConnectServer = request.getfixturevalue("spark_server")
    engine = SparkConnectEngine(embedded.start(), name="remote")
    yield engine
    engine.close()


def test_an_engine_puts_nothing_into_texts(server: Engine, tmp_path: Path) -> None:
    require_plain_texts(server, tmp_path)


def require_plain_texts(server: Engine, folder: Path) -> None:
    """Require of an engine that speaks Spark's SQL that it puts nothing into texts."""
    server.use_tables([])
    answers_at_last(server)
    for sql in texts(plain(VARIABLES)):
        assert ask(server, sql) == [{each: each for each in plain(VARIABLES)}]
    with pytest.raises(EngineError):
        ask(server, shell(folder / "marker"))
    assert not (folder / "marker").exists()
    assert "Project" in server.explain("select '${env:HOME}' as a")
    assert "${env:HOME}" in server.explain("select '${env:HOME}' as a")


def test_settings_that_change_how_texts_are_read_are_refused(tmp_path: Path) -> None:
    for setting in ("spark.sql.variable.substitute", "hive.variable.substitute"):
        with pytest.raises(ValueError, match=f"{setting} must be false"):
            load(tmp_path, spark={"configuration": {setting: "true"}})
        load(tmp_path, spark={"configuration": {setting: "FALSE"}})
