"""Hive's JDBC driver from Python (JayDeBeApi), and Beeline with variables; their jars are pyspark's.

CLIENTS_JARS: the folder of the jars.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import jaydebeapi
import pytest

PORT = os.environ["CLIENTS_PORT"]
JARS = sorted(str(jar) for jar in Path(os.environ["CLIENTS_JARS"]).glob("*.jar"))
URL = f"jdbc:hive2://127.0.0.1:{PORT}/default"
RUN_WITHIN_S = 120


@functools.cache
def connection() -> Any:
    return jaydebeapi.connect("org.apache.hive.jdbc.HiveDriver", URL, ["joe", "any"], JARS)


def rows(result: Any) -> list[tuple[str, ...]]:
    """Read a result set of Java's as texts; NULL is `None`."""
    columns = range(1, result.getMetaData().getColumnCount() + 1)
    found = []
    while result.next():
        found.append(tuple(str(result.getString(column)) for column in columns))
    return found


def query(sql: str) -> list[tuple[Any, ...]]:
    with connection().cursor() as cursor:
        cursor.execute(sql)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_get_schema() -> None:
    assert str(connection().jconn.getSchema()) == "default"


def test_set_schema() -> None:
    with connection().cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS of_jdbc")
    connection().jconn.setSchema("of_jdbc")
    assert str(connection().jconn.getSchema()) == "of_jdbc"
    connection().jconn.setSchema("default")


def test_get_catalog() -> None:
    connection().jconn.getCatalog()


def test_metadata_of_tables() -> None:
    metadata = connection().jconn.getMetaData()
    found = rows(metadata.getTables(None, "default", "sales%", None))
    assert {row[2]: row[3] for row in found}["sales"] == "TABLE"
    assert {row[2]: row[3] for row in found}["sales_of_may"] == "VIEW"


def test_metadata_of_columns() -> None:
    metadata = connection().jconn.getMetaData()
    found = rows(metadata.getColumns(None, "default", "sales", "%"))
    assert [(row[3], row[5]) for row in found] == [
        ("place", "STRING"),
        ("amount", "DECIMAL(10,2)"),  # as Spark's server tells it
        ("day", "DATE"),
        ("moment", "TIMESTAMP"),
    ]


def test_metadata_of_schemas() -> None:
    assert "default" in {row[0] for row in rows(connection().jconn.getMetaData().getSchemas())}


def test_show_and_describe() -> None:
    assert ("sales",) in query("SHOW TABLES")
    assert ("default",) in query("SHOW DATABASES")
    assert query("DESCRIBE sales")[0][:2] == ("place", "string")
    assert "CREATE" in query("SHOW CREATE TABLE sales")[0][0]


@pytest.mark.parametrize(
    "sql", ["SELECT current_database()", "SELECT current_schema()", "SELECT current_user()", "SELECT version()"]
)
def test_session_functions(sql: str) -> None:
    (row,) = query(sql)
    assert row[0]


def beeline(*options: str) -> str:
    """Run Beeline; returns the rows that it printed, without its prompts. Raises AssertionError where it failed."""
    main = ["java", "-Xmx256m", "-cp", f"{os.environ['CLIENTS_JARS']}/*", "org.apache.hive.beeline.BeeLine"]
    command = [*main, "-u", URL, "-n", "joe", "-p", "any", "--silent=true", "--outputformat=tsv2", "--showHeader=false"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=RUN_WITHIN_S)
    assert done.returncode == 0, done.stderr[-1500:]
    return "\n".join(line.rpartition("/default> ")[2] for line in done.stdout.strip().splitlines())


def test_beeline_hivevar() -> None:
    assert beeline("--hivevar", "town=Ulm", "-e", "SELECT count(*) FROM sales WHERE place = '${town}'") == "4"
    assert beeline("--hivevar", "town=Ulm", "-e", "SELECT count(*) FROM sales WHERE place = '${hivevar:town}'") == "4"


def test_beeline_hiveconf() -> None:
    assert beeline("--hiveconf", "fusion.timeout_s=77", "-e", "SET fusion.timeout_s").split("\t")[1] == "77"
    assert (
        beeline("--hiveconf", "town=Gera", "-e", "SELECT count(*) FROM sales WHERE place = '${hiveconf:town}'") == "2"
    )


def test_beeline_set_variable() -> None:
    assert beeline("-e", "SET hivevar:town=Gera; SELECT count(*) FROM sales WHERE place = '${town}'").endswith("2")


def test_beeline_file(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "-- a comment; with a semicolon\nUSE default;\nSELECT '${x}'\nFROM sales LIMIT 1;\n!set maxwidth 200\n",
        encoding="utf-8",
    )
    assert beeline("--hivevar", "x=seven", "-f", str(script)) == "seven"


@pytest.mark.parametrize(
    "command", ["!tables", "!columns sales", "!describe sales", "!dbinfo", "!primarykeys sales", "!procedures"]
)
def test_beeline_commands(command: str) -> None:
    printed = beeline("-e", command)
    assert "Error" not in printed
    if command in ("!tables", "!columns sales", "!describe sales"):
        assert "sales" in printed
