"""How the embedded server fails to start. Java is a script here; ``test_spark.py`` starts a real one."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from engines.errors import EngineUnavailable
from engines.protocol import Lease
from engines.spark.embedded.java import JavaNotFound, find_java_home
from engines.spark.embedded.server import MIB, RESTART_DELAYS_S, ServerSettings, ServerState, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from tests.engines.processes import ends_within
from tests.waiting import wait_until

SOON_S = 20.0

DYING_JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
echo 'Error: could not reserve enough space for the heap at /secret/place/libjvm.so' >&2
echo '	at org.apache.spark.Main(Main.java:1)' >&2
exit 1
"""
HANGING_JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
case "$*" in *launcher.Main*) printf '\\nsleep\\000600\\000'; exit 0;; esac
"""

RECORDING_JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
echo "$*" >> "$0.told"
exit 1
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the file of the Java that this machine has."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(DYING_JAVA, encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    find_java_home.cache_clear()
    yield java
    find_java_home.cache_clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SparkConnectServer]:
    server = SparkConnectServer(ServerSettings(work_folder=tmp_path / "spark", start_timeout_s=2.0))
    yield server
    server.stop()


def test_not_started_yet_counts_as_alive(server: SparkConnectServer) -> None:
    status = SparkConnectEngine(server).status()
    assert status.alive
    assert "not started" in status.detail
    assert server.pid is None


def test_says_why_it_did_not_start(server: SparkConnectServer, java: Path) -> None:
    with pytest.raises(EngineUnavailable, match="could not reserve enough space") as caught:
        server.start()
    assert "/secret" not in caught.value.message
    assert "org.apache" not in caught.value.message
    assert server.status()[0] is ServerState.FAILED


def test_a_folder_that_cannot_be_made_fails_the_start(tmp_path: Path, java: Path) -> None:
    (tmp_path / "in the way").write_text("a file", encoding="ascii")
    server = SparkConnectServer(ServerSettings(work_folder=tmp_path / "in the way" / "spark"))
    with pytest.raises(EngineUnavailable, match="did not start: Not a directory"):
        server.begin().result(timeout=SOON_S)
    assert server.status()[0] is ServerState.FAILED
    assert server.may_start()  # it is tried again
    server.stop()


def test_without_java_it_says_what_to_install(server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(more: Collection[str]) -> dict[str, str]:
        raise JavaNotFound("Spark needs Java: install one")

    monkeypatch.setattr("engines.spark.embedded.server.spark_environment", nothing)
    with pytest.raises(EngineUnavailable, match="install one"):
        server.start()


def test_failing_starts_back_off(server: SparkConnectServer, java: Path) -> None:
    tries = 0
    give_up_s = time.monotonic() + SOON_S
    while "next start in" not in server.status()[1] or server.may_start():
        assert time.monotonic() < give_up_s
        with pytest.raises(EngineUnavailable):
            server.start()
        tries += 1
    assert tries == sum(delay <= 2.0 for delay in RESTART_DELAYS_S)
    started_s = time.monotonic()
    with pytest.raises(EngineUnavailable, match="next start in"):
        server.start()
    assert time.monotonic() - started_s < 5.0
    status = SparkConnectEngine(server).status()
    assert not status.alive
    assert "could not reserve" in status.detail


def test_server_that_never_answers_is_given_up(server: SparkConnectServer, java: Path) -> None:
    java.write_text(HANGING_JAVA, encoding="utf-8")
    with pytest.raises(EngineUnavailable, match="within 2 s"):
        server.start()
    pid = int((server.settings.work_folder / "server.pid").read_text())
    assert ends_within(pid, SOON_S)


def test_statement_waiting_for_the_start_can_be_ended(tmp_path: Path, java: Path) -> None:
    java.write_text(HANGING_JAVA, encoding="utf-8")
    engine = SparkConnectEngine(SparkConnectServer(ServerSettings(work_folder=tmp_path / "spark")))
    with pytest.raises(Exception, match=r"did not end within 0\.5 s"):
        engine.execute("SELECT 1", query_id="a", lease=Lease(memory_bytes=MIB), deadline_s=0.5)
    assert engine.status().detail == "starting"
    engine.close()


def test_stopped_server_does_not_start_again(server: SparkConnectServer) -> None:
    server.stop()
    server.stop()
    with pytest.raises(EngineUnavailable, match="stopped"):
        server.start()


def told(java: Path, settings: ServerSettings) -> str:
    """Return the command that Spark's launcher is given for a server."""
    java.write_text(RECORDING_JAVA, encoding="utf-8")
    server = SparkConnectServer(settings)
    with pytest.raises(EngineUnavailable):
        server.start()
    server.stop()
    return java.with_name("java.told").read_text(encoding="utf-8").splitlines()[0]


def test_tasks_run_in_the_server_itself_by_default(tmp_path: Path, java: Path) -> None:
    command = told(java, ServerSettings(tmp_path, driver_memory_bytes=600 * MIB, cores=3))
    assert "--master local[3]" in command
    assert "--driver-memory 600m" in command
    assert "--executor-memory" not in command
    assert "spark.driver.bindAddress=127.0.0.1" in command
    assert "spark.sql.catalogImplementation=in-memory" in command


def test_executors_of_a_cluster_get_their_memory_and_find_the_driver(tmp_path: Path, java: Path) -> None:
    settings = ServerSettings(
        tmp_path,
        master="spark://cluster.example.com:7077",
        executor_memory_bytes=900 * MIB,
        configuration={"spark.executor.cores": "2"},
    )
    command = told(java, settings)
    assert "--master spark://cluster.example.com:7077" in command
    assert "--executor-memory 900m" in command
    assert (tmp_path / "secret.properties").read_text().splitlines()[0] == "spark.executor.cores=2"
    assert "spark.driver.bindAddress" not in command
    assert not SparkConnectServer(settings).shares_files


def test_secrets_stand_in_a_file_of_this_user_alone(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_HIVE__PASSWORD", "of the gateway")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    java.write_text(RECORDING_JAVA.replace("$*", "$* $(env)"), encoding="utf-8")
    key, value = "spark.hadoop.fs.s3a.secret.key", "a=b:c \\ #!\n\tü🔑"
    server = SparkConnectServer(ServerSettings(tmp_path, configuration={key: value}, environment=("AWS_PROFILE",)))
    with pytest.raises(EngineUnavailable):
        server.start()
    server.stop()
    seen = java.with_name("java.told").read_text(encoding="utf-8")
    file = tmp_path / "secret.properties"
    assert file.stat().st_mode & 0o777 == 0o600
    properties = dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())
    written = properties[key].encode("ascii", "backslashreplace").decode("unicode_escape")
    assert written == value
    token = properties["spark.connect.authenticate.token"]
    assert "AWS_PROFILE=lake" in seen
    for secret in (token, "a=b:c", "of the gateway", "AUTHENTICATE_TOKEN"):
        assert secret not in seen


def test_catalog_may_be_a_hive_metastore(tmp_path: Path, java: Path) -> None:
    command = told(java, ServerSettings(tmp_path, hive_metastore_uri="thrift://hive.example.com:9083"))
    assert "spark.sql.catalogImplementation=hive" in command
    assert "spark.hadoop.hive.metastore.uris=thrift://hive.example.com:9083" in command


def test_settings_check_themselves(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="512 MiB"):
        ServerSettings(tmp_path, driver_memory_bytes=100 * MIB)
    with pytest.raises(ValueError, match="executor memory"):
        ServerSettings(tmp_path, executor_memory_bytes=100 * MIB)
    with pytest.raises(ValueError, match="core"):
        ServerSettings(tmp_path, cores=0)


def test_remote_address_is_checked_and_watched() -> None:
    with pytest.raises(ValueError, match="sc://host:port"):
        SparkConnectEngine("localhost")
    engine = SparkConnectEngine("sc://127.0.0.1:1")
    wait_until(lambda: not engine.status().alive, "it is asked")
    assert "127.0.0.1:1 does not answer" in engine.status().detail
    engine.close()
