"""impala-shell, with the commands and options of its documentation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PORT, HTTP_PORT = os.environ["CLIENTS_PORT"], os.environ["CLIENTS_HTTP_PORT"]
RUN_WITHIN_S = 120


def shell(*options: str, typed: str | None = None) -> tuple[str, str]:
    """Run the shell; returns what it printed and what it said. Raises AssertionError where it failed."""
    command = ["impala-shell", "--protocol=hs2", "-i", f"127.0.0.1:{PORT}", *options]
    done = subprocess.run(command, capture_output=True, text=True, input=typed, timeout=RUN_WITHIN_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]
    return done.stdout, done.stderr


def said(*options: str) -> str:
    return shell("-B", *options)[0].strip()


def test_query() -> None:
    assert said("-q", "select count(*) from sales") == "6"


def test_pretty_print() -> None:
    printed, words = shell("-q", "select place, count(*) as n from sales group by place order by place")
    assert printed.splitlines()[1] == "| place | n |"
    assert "Fetched 2 row(s)" in words


def test_show_databases() -> None:
    printed, _ = shell("-q", "show databases")
    assert [word.strip() for word in printed.splitlines()[1].strip("|").split("|")] == ["name", "comment"]
    assert "default" in printed


def test_show_tables() -> None:
    printed, _ = shell("-q", "show tables like 'sales*'")
    assert "| name " in printed
    assert "sales_of_may" in printed


def test_describe() -> None:
    printed, _ = shell("-q", "describe sales")
    assert [word.strip() for word in printed.splitlines()[1].strip("|").split("|")] == ["name", "type", "comment"]
    assert "decimal(10,2)" in printed
    assert "| timestamp " in printed


@pytest.mark.parametrize("kind", ["extended", "formatted"])
def test_describe_formatted(kind: str) -> None:
    printed, _ = shell("-q", f"describe {kind} sales")
    assert "# Detailed Table Information" in printed
    assert "MANAGED_TABLE" in printed or "EXTERNAL_TABLE" in printed


def test_show_create_table() -> None:
    assert "create table" in said("-q", "show create table sales").lower()


def test_show_table_stats() -> None:
    assert "#Rows" in shell("-q", "show table stats sales")[0]


def test_show_column_stats() -> None:
    assert "#Distinct Values" in shell("-q", "show column stats sales")[0]


@pytest.mark.parametrize("sql", ["show functions", "show roles", "show files in sales", "show partitions by_place"])
def test_show(sql: str) -> None:
    shell("-q", f"create table if not exists by_place (amount int) partitioned by (place string); {sql}")


def test_explain() -> None:
    assert "SCAN" in said("-q", "explain select count(*) from sales").upper()


def test_use_and_database_option() -> None:
    said("-q", "create database if not exists of_shell; use of_shell; create table if not exists t (a int)")
    assert said("-d", "of_shell", "-q", "show tables") == "t"
    assert said("-d", "of_shell", "-q", "select current_database()") == "of_shell"


def test_set_shows_options() -> None:
    assert "MEM_LIMIT" in shell("-q", "set all")[0].upper()


@pytest.mark.parametrize(
    "option", ["mem_limit=1g", "num_nodes=1", "mt_dop=4", "request_pool=etl", "sync_ddl=true", "explain_level=2"]
)
def test_set_option(option: str) -> None:
    assert said("-q", f"set {option}; select 1").endswith("1")


def test_query_option_of_the_command_line() -> None:
    assert said("-Q", "mem_limit=2g", "-q", "select 1") == "1"


def test_variables() -> None:
    assert said("--var", "town=Ulm", "-q", "select count(*) from sales where place = '${var:town}'") == "4"
    assert said("-q", "set var:town=Gera; select count(*) from sales where place = '${var:town}'").endswith("2")


def test_file(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("-- comment\nselect 1;\n/* another; */ select 2\n;\n", encoding="utf-8")
    assert said("-f", str(script)).split() == ["1", "2"]


def test_output_options(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    said(
        "--print_header",
        "--output_delimiter=,",
        "-o",
        str(target),
        "-q",
        "select place, amount from sales order by moment limit 1",
    )
    assert target.read_text(encoding="utf-8").splitlines() == ["place,amount", "Ulm,10.50"]


def test_vertical() -> None:
    assert "place: Ulm" in shell("-E", "-q", "select place from sales order by moment limit 1")[0]


def test_summary_and_profile() -> None:
    printed, _ = shell("-q", "select count(*) from sales; summary; profile")
    assert "Operator" in printed
    assert "Query Runtime Profile" in printed


def test_live_progress() -> None:
    assert "6" in shell("--live_progress", "-q", "select count(*) from sales")[0]


def test_interactive() -> None:
    printed, words = shell(typed="use default;\nshow tables;\nselect 41 + 1;\nversion;\nhistory;\nquit;\n")
    assert "42" in printed
    assert "Server version" in printed + words


def test_ddl_and_dml() -> None:
    made = "create table if not exists of_the_shell (a int, b string) stored as parquet"
    _, words = shell("-q", f"{made}; insert into of_the_shell values (1, 'x'), (2, null); select * from of_the_shell")
    assert "Modified 2 row(s)" in words
    printed, _ = shell("-q", "alter table of_the_shell add columns (c double); describe of_the_shell")
    assert "double" in printed
    shell(
        "-q",
        "alter table of_the_shell rename to of_the_shell_2; truncate table of_the_shell_2; drop table of_the_shell_2",
    )


def test_ddl_says_what_was_done() -> None:
    printed, _ = shell("-q", "create table said_so (a int); drop table said_so")
    assert "Table has been created." in printed
    assert "Table has been dropped." in printed


@pytest.mark.parametrize(
    "sql",
    ["invalidate metadata", "invalidate metadata sales", "refresh sales", "compute stats sales", "drop stats sales"],
)
def test_metadata_statements(sql: str) -> None:
    shell("-q", sql)


def test_insert_overwrite() -> None:
    made = "create table if not exists overwritten (a int)"
    shell("-q", f"{made}; insert overwrite overwritten values (1); insert overwrite table overwritten select 2")
    assert said("-q", "select a from overwritten") == "2"


def test_alter_view() -> None:
    shell("-q", "create view if not exists altered as select 1 as a; alter view altered as select 3 as a")
    assert said("-q", "select a from altered") == "3"


@pytest.mark.parametrize(
    "sql", ["select user()", "select version()", "select current_database()", "select now()", "select pid()"]
)
def test_session_functions(sql: str) -> None:
    assert said("-q", sql)


def test_null_order_and_straight_join() -> None:
    assert said("-q", "select x from (select 1 as x union all select null) t order by x").split() == ["1", "NULL"]
    assert said("-q", "select straight_join count(*) from sales a join sales_again b on a.moment = b.moment") == "6"


def test_ignore_query_failure() -> None:
    assert said("-c", "-q", "select nothing_here from sales; select 7").endswith("7")


def test_http() -> None:
    done = subprocess.run(
        [
            "impala-shell",
            "--protocol=hs2-http",
            "-i",
            f"127.0.0.1:{HTTP_PORT}",
            "-B",
            "-q",
            "select count(*) from sales",
        ],
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
    )
    assert done.stdout.strip() == "6", done.stderr[-1500:]
