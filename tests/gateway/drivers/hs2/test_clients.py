"""What a driver speaks, told by what it sends; what it and the gateway's owner set overrules it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from gateway.drivers.hs2.clients import dialect_at_first, dialect_at_opening
from gateway.drivers.hs2.protocol.messages import NEWEST_VERSION, ExecuteRequest, OpenSessionRequest
from gateway.settings import Hs2Settings
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.test_impyla import WAYS, connect

V6 = 5
IMPYLAS_AGENT, PYHIVES_AGENT = "Python/ImpylaHttpClient (superset)", "Python/THttpClient (impala.py)"


@pytest.mark.parametrize(
    ("version", "password", "configuration", "agent", "dialect"),
    [
        (V6, None, None, "", "impala"),  # impala-shell, impyla
        (V6, None, {"mem_limit": "1g"}, "", None),  # impyla's cursors with a configuration
        (V6, None, {}, "", None),  # PyHive
        (V6, None, {"use:database": "default"}, "", "spark"),  # JDBC of Hive 0.13
        (V6, None, {"set:hiveconf:a": "b"}, "", "spark"),
        (V6, "any", None, "", "spark"),  # Go's driver
        (NEWEST_VERSION, None, None, "", "spark"),
        (NEWEST_VERSION, None, {"impala.doas.user": "joe"}, "", "impala"),
        (V6, None, {}, IMPYLAS_AGENT, "impala"),
        (V6, None, {}, PYHIVES_AGENT, None),
    ],
)
def test_the_opening_of_a_session_tells(
    version: int, password: str | None, configuration: dict[str, str] | None, agent: str, dialect: str | None
) -> None:
    assert dialect_at_opening(OpenSessionRequest(version, "joe", password, configuration), agent) == dialect


@pytest.mark.parametrize(("timeout_s", "dialect"), [(None, "impala"), (0, "spark"), (7, "spark")])
def test_the_first_statement_tells(timeout_s: int | None, dialect: str) -> None:
    assert dialect_at_first(ExecuteRequest(statement="SELECT 1", timeout_s=timeout_s)) == dialect


def dialect_of(cursor: Any) -> str:
    cursor.execute("SET fusion.dialect")
    ((_, dialect, _),) = cursor.fetchall()
    return str(dialect)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("configuration", [None, {"mem_limit": "1g", "fetch_rows_timeout_ms": "7"}])
def test_impyla_speaks_impala(drivers: Drivers, way: str, configuration: Mapping[str, str] | None) -> None:
    with (
        closing(connect(drivers, way)) as connection,
        closing(connection.cursor(configuration=configuration)) as cursor,
    ):
        assert dialect_of(cursor) == "impala"
        cursor.execute("RESET")
        assert dialect_of(cursor) == "impala"
        cursor.execute("SET fusion.dialect = Spark")
        assert dialect_of(cursor) == "Spark"
        cursor.execute("SELECT 1")
        assert drivers.last_query().dialect == "spark"
    told = {"fusion.dialect": "hive"}
    with closing(connect(drivers, way)) as connection, closing(connection.cursor(configuration=told)) as cursor:
        assert dialect_of(cursor) == "hive"


def test_pyhive_speaks_spark_until_it_says_otherwise(drivers: Drivers) -> None:
    hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
    with closing(hive.connect(drivers.host, port=drivers.port, username="joe")) as connection:
        assert dialect_of(connection.cursor()) == "spark"
    told = {"fusion.dialect": "hive"}
    with closing(hive.connect(drivers.host, port=drivers.port, username="joe", configuration=told)) as connection:
        assert dialect_of(connection.cursor()) == "hive"


@pytest.mark.parametrize("way", ["NOSASL", "http"])
def test_the_setting_of_the_port_overrules_what_clients_tell(serve: Callable[..., Drivers], way: str) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, dialect="HIVE"))
    with closing(connect(drivers, way)) as connection, closing(connection.cursor()) as cursor:
        assert dialect_of(cursor) == "hive"
        cursor.execute("SET fusion.dialect = impala")
        assert dialect_of(cursor) == "impala"


def test_a_port_has_a_dialect_that_there_is() -> None:
    with pytest.raises(ValueError, match=r"one of spark, hive, impala($|\W)"):
        Hs2Settings(dialect="klingon")
