"""impala-shell, where one is on PATH: it pins a Thrift of its own, so that it lives in an environment of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess

import httpx
import pytest

from metastore.records import QueryState
from tests.gateway.drivers.hs2.conftest import WITHIN_S, Drivers
from tests.gateway.scripted_gateway import RAN_OUT, WRITTEN, too_big
from tests.waiting import wait_until

SHELL = shutil.which("impala-shell")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(SHELL is None, reason="no impala-shell on PATH (pip install impala-shell, in its own venv)"),
]
RUN_WITHIN_S = 60.0


def command(drivers: Drivers, way: str, sql: str) -> list[str]:
    port = drivers.http_port if way == "hs2-http" else drivers.port
    login = ["-l", "-u", "joe", "--auth_creds_ok_in_clear", "--ldap_password_cmd=printf any"]
    protocol = "hs2-http" if way == "hs2-http" else "hs2"
    options = ["--protocol", protocol, "-i", f"{drivers.host}:{port}", *(login if way == "ldap" else [])]
    return [str(SHELL), *options, "-B", "-q", sql]


def shell(drivers: Drivers, way: str, sql: str) -> tuple[str, str]:
    done = subprocess.run(command(drivers, way, sql), capture_output=True, text=True, timeout=RUN_WITHIN_S)
    return done.stdout, done.stderr


@pytest.mark.parametrize("way", ["hs2", "ldap", "hs2-http"])
def test_impala_shell(drivers: Drivers, way: str) -> None:
    printed, said = shell(drivers, way, f"{too_big()}; summary; profile")
    assert printed.startswith("42\n43\n")
    assert f"attempt 1 on duckdb: {RAN_OUT.code}" in said  # as a warning
    assert "01:ATTEMPT 1" in printed
    assert "02:ATTEMPT 2" in printed
    assert "of 384 MiB limit" in printed
    assert "attempt 2 on spark: 2 rows" in printed
    _, said = shell(drivers, way, "SELECT 1")
    assert "WARNINGS" not in said


@pytest.mark.parametrize("way", ["hs2", "hs2-http"])
def test_an_insert_tells_how_many_rows_it_wrote(drivers: Drivers, way: str) -> None:
    made = "CREATE TABLE IF NOT EXISTS answers AS SELECT 1 AS answer"
    _, said = shell(drivers, way, f"{made}; INSERT INTO answers SELECT 1 AS answer; SELECT 1; DROP TABLE answers")
    assert f"Modified {WRITTEN.num_rows} row(s)" in said
    assert "Fetched 2 row(s)" in said  # it went on


def test_an_error_is_told_in_our_words(drivers: Drivers) -> None:
    _, said = shell(drivers, "hs2", "SELECT a FROM nowhere")
    assert "There is no table nowhere. (line 1, column 15)" in said


def test_every_type(drivers: Drivers) -> None:
    printed, _ = shell(drivers, "hs2", "SELECT 'every type'")
    first, second, third = printed.splitlines()
    assert first.split("\t")[:8] == [
        "true",
        "-128",
        "-32768",
        str(-(2**31)),
        str(-(2**63)),
        "0.5",
        "1e+300",
        "grüße 😀",
    ]
    assert second.split("\t")[11:14] == ["-0.01", "-1.0000000000", "[]"]
    assert third.split("\t") == ["NULL"] * 16


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_a_statement_ends_with_its_client(drivers: Drivers, ended_by: signal.Signals) -> None:
    def runs() -> bool:  # before it, the shell asks for all settings
        return "forever" in drivers.last_query().sql and drivers.last_query().state is QueryState.RUNNING

    with subprocess.Popen(
        command(drivers, "hs2", "SELECT 'forever'"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ours may ignore it
    ) as process:
        wait_until(runs, within_s=RUN_WITHIN_S)
        process.send_signal(ended_by)
        within_s = RUN_WITHIN_S if ended_by is signal.SIGINT else WITHIN_S  # the shell takes its time to react
        wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED, within_s=within_s)
        process.kill()


def test_the_page_that_it_names_is_there(drivers: Drivers) -> None:
    drivers.gateway.hs2.page_url = f"http://{drivers.host}:{drivers.http_port}"
    _, said = shell(drivers, "hs2", "SELECT 1")
    (address,) = (word for word in said.split() if "query_plan" in word)
    page = httpx.get(address, follow_redirects=True)
    assert page.url.path == f"/dashboard/queries/{drivers.last_query().id}"
    assert page.status_code == 200
