"""SQLAlchemy's Inspector and pandas, over PyHive's and impyla's dialects."""

from __future__ import annotations

import functools
import os
from typing import Any

import pandas
import pytest
import sqlalchemy
from asking import ask

PORT = os.environ["CLIENTS_PORT"]
URIS = {
    "hive": f"hive://joe@127.0.0.1:{PORT}/default",
    "impala": f"impala://127.0.0.1:{PORT}/default?auth_mechanism=PLAIN&user=joe&password=any",
}
pytestmark = pytest.mark.parametrize("kind", URIS)


@functools.cache
def engine(kind: str) -> Any:
    return sqlalchemy.create_engine(URIS[kind])


def inspector(kind: str) -> Any:
    return sqlalchemy.inspect(engine(kind))


def test_schemas(kind: str) -> None:
    assert "default" in inspector(kind).get_schema_names()


@pytest.mark.parametrize("schema", [None, "default"])
def test_tables(kind: str, schema: str | None) -> None:
    assert {"sales", "sales_of_may"} <= set(inspector(kind).get_table_names(schema=schema))


def test_has_table(kind: str) -> None:
    assert inspector(kind).has_table("sales")
    assert not inspector(kind).has_table("nowhere")


def test_columns(kind: str) -> None:
    columns = {column["name"]: str(column["type"]).upper() for column in inspector(kind).get_columns("sales")}
    assert list(columns) == ["place", "amount", "day", "moment"]
    assert columns["amount"].startswith("DECIMAL")
    assert columns["moment"].startswith("TIMESTAMP")


def test_columns_of_a_view(kind: str) -> None:
    assert [column["name"] for column in inspector(kind).get_columns("sales_of_may", schema="default")] == [
        "place",
        "amount",
    ]


def test_keys_and_indexes(kind: str) -> None:
    found = inspector(kind)
    assert found.get_foreign_keys("sales") == []
    assert found.get_indexes("sales") == []
    assert not (found.get_pk_constraint("sales") or {}).get("constrained_columns")


def test_reflected_select(kind: str) -> None:
    table = sqlalchemy.Table("sales", sqlalchemy.MetaData(), autoload_with=engine(kind))
    with engine(kind).connect() as connection:
        rows = connection.execute(sqlalchemy.select(table.c.place).where(table.c.place != "Gera").distinct()).fetchall()
    assert [row[0] for row in rows] == ["Ulm"]


def test_another_schema(kind: str) -> None:
    with engine(kind).connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA IF NOT EXISTS other_{kind}"))
        connection.execute(sqlalchemy.text(f"CREATE TABLE other_{kind}.t AS SELECT 1 AS a"))
    assert inspector(kind).get_table_names(schema=f"other_{kind}") == ["t"]
    assert [column["name"] for column in inspector(kind).get_columns("t", schema=f"other_{kind}")] == ["a"]


def test_pandas_reads(kind: str) -> None:
    with engine(kind).connect() as connection:
        frame = pandas.read_sql(
            sqlalchemy.text("SELECT place, count(*) AS n FROM sales GROUP BY place ORDER BY place"), connection
        )
    assert frame["n"].tolist() == [2, 4]


@pytest.mark.parametrize("if_exists", ["fail", "append", "replace"])
def test_pandas_writes(kind: str, if_exists: Any) -> None:
    frame = pandas.DataFrame({"n": [1, 2], "x": [0.5, None], "t": ["grüße", None]})
    name = f"frame_{kind}"
    if if_exists == "fail":
        ask(f"DROP TABLE IF EXISTS {name}")
    with engine(kind).connect() as connection:
        frame.to_sql(name, connection, index=False, if_exists=if_exists, method="multi")
    rows = ask(f"SELECT count(*), count(x), max(t) FROM {name}")
    assert rows == [[4, 2, "grüße"] if if_exists == "append" else [2, 1, "grüße"]]
