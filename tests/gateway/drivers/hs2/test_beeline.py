"""Beeline, and with it the JDBC driver, from the jars of pyspark: over SASL, without it, and over HTTP."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from metastore.records import QueryState
from tests.gateway.drivers.hs2.conftest import MANY_ROWS, Drivers
from tests.gateway.scripted_gateway import RAN_OUT, WRITTEN, too_big
from tests.waiting import wait_until

pyspark = pytest.importorskip("pyspark", reason="Beeline comes with pyspark")

pytestmark = [pytest.mark.e2e]
RUN_WITHIN_S = 120.0
START_WITHIN_S = 180.0


def url(drivers: Drivers, way: str) -> str:
    if way == "http":
        return f"jdbc:hive2://{drivers.host}:{drivers.http_port}/default;transportMode=http;httpPath=cliservice"
    return f"jdbc:hive2://{drivers.host}:{drivers.port}/default{';auth=noSasl' if way == 'noSasl' else ''}"


def command(address: str, *options: str) -> list[str]:
    from engines.spark.embedded.java import JavaNotFound, find_java_home

    try:
        java = find_java_home() / "bin" / "java"
    except JavaNotFound as error:
        pytest.skip(str(error))
    jars = Path(pyspark.__file__).parent / "jars"
    main = [str(java), "-Xmx256m", "-cp", f"{jars}/*", "org.apache.hive.beeline.BeeLine"]
    return [*main, "-u", address, "-n", "joe", "-p", "any", *options]


def beeline(address: str, statements: Sequence[str], *options: str) -> tuple[str, str]:
    """Run statements; returns what was printed of their rows, and all that was said beside."""
    asked = [word for statement in statements for word in ("-e", statement)]
    done = subprocess.run(
        command(address, "--outputformat=csv2", "--incremental=true", *options, *asked),
        capture_output=True,
        timeout=RUN_WITHIN_S,
    )
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def rows(printed: str) -> list[list[str]]:
    """Read CSV as Beeline writes it: prompts before the first line of a result, NUL in place of quotes."""
    return list(csv.reader(io.StringIO(re.sub(r"^(?:[. ]+> )+", "", printed, flags=re.MULTILINE)), quotechar="\0"))


@pytest.mark.parametrize("way", ["SASL", "noSasl", "http"])
def test_beeline(drivers: Drivers, way: str) -> None:
    printed, said = beeline(
        url(drivers, way), [too_big(), "SELECT 'every type'", "SET fusion.engine=spark", "SELECT 1"]
    )

    assert "Connected to: Fusion SQL Gateway" in said
    assert rows(printed)[:3] == [["answer"], ["42"], ["43"]]
    assert "of 384 MiB limit" in said
    assert f"attempt 1 on duckdb: {RAN_OUT.code}" in said
    assert "attempt 2 on spark: 2 rows" in said
    _, first, second, third = rows(printed)[3:7]
    assert first[:8] == ["true", "-128", "-32768", str(-(2**31)), str(-(2**63)), "0.5", "1.0E300", "grüße 😀"]
    assert second[9:13] == ["9999-12-31", "1970-01-01 00:00:00.0", "-0.01", "-1.0000000000"]
    assert second[13:] == ["[]", "{}", '{"x":null,"y":null}']
    assert third == ["NULL"] * len(third)
    assert rows(printed)[7:] == [["answer"], ["42"], ["43"]]
    last = drivers.last_query()
    assert (last.user, last.engine, last.requested_engine) == ("joe", "spark", "spark")


def test_an_insert_tells_how_many_rows_it_wrote(drivers: Drivers) -> None:
    asked = ["CREATE TABLE IF NOT EXISTS answers AS SELECT 1 AS answer", "INSERT INTO answers SELECT 1 AS answer"]
    _, said = beeline(url(drivers, "SASL"), [*asked, "DROP TABLE answers"])
    assert said.count(f"{WRITTEN.num_rows} rows affected") == len(asked), said


def test_an_error_is_told_in_our_words(drivers: Drivers) -> None:
    _, said = beeline(url(drivers, "SASL"), ["SELECT a FROM nowhere"])
    words = "There is no table nowhere. (line 1, column 15) [TABLE_OR_VIEW_NOT_FOUND]"
    assert f"Error: {words} (state=42S02,code=0)" in said
    _, said = beeline(url(drivers, "SASL"), ["SET fusion.engine_name=x"])
    assert "Error: There is no setting fusion.engine_name; there are fusion." in said


@pytest.mark.parametrize("way", ["SASL", pytest.param("http", marks=pytest.mark.thorough)])
def test_many_rows(drivers: Drivers, way: str) -> None:
    printed, _ = beeline(url(drivers, way), ["SELECT 'many rows'"])
    assert rows(printed) == [["n", "text"], *([str(n), f"row {n}"] for n in range(MANY_ROWS))]


def test_the_catalog(bookshop: Drivers) -> None:
    view = "CREATE TEMPORARY VIEW cheap AS SELECT id FROM books WHERE price < 10"
    asked = [
        view,
        "!tables",
        "!columns cheap",
        "!columns books",
        "!metadata getTypeInfo",
        "!primarykeys books",
        "!importedkeys books",
    ]
    printed, said = beeline(url(bookshop, "SASL"), [*asked, "SELECT count(*) AS n FROM books WHERE price < 10"])
    assert "Error" not in said, said
    shown = rows(printed)
    assert ["", "default", "books", "TABLE"] in [row[:4] for row in shown]
    assert ["", "default", "cheap", "VIEW"] in [row[:4] for row in shown]
    assert ["cheap", "id", "-5", "BIGINT"] in [row[2:6] for row in shown]
    assert ["books", "publish_date", "91", "DATE"] in [row[2:6] for row in shown]
    assert ["DECIMAL", "3", "38"] in [row[:3] for row in shown]
    assert shown[-2:] == [["n"], ["100"]]


@pytest.mark.parametrize(
    ("ended_by", "way"), [(signal.SIGINT, "SASL"), (signal.SIGKILL, "SASL"), (signal.SIGKILL, "noSasl")]
)
def test_a_statement_ends_with_its_client(drivers: Drivers, ended_by: signal.Signals, way: str) -> None:
    with subprocess.Popen(
        command(url(drivers, way), "-e", "SELECT 'forever'"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        known = {record.id for record in drivers.gateway.metastore.queries.search(limit=1_000)}

        def runs() -> bool:
            newest = drivers.gateway.metastore.queries.search(limit=1)
            return any(each.id not in known and each.state is QueryState.RUNNING for each in newest)

        try:
            wait_until(runs, within_s=START_WITHIN_S)
            os.kill(process.pid, ended_by)
            wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)
        finally:
            process.kill()
