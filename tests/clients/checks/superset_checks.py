"""Superset itself, over its REST interface, with hive:// and impala:// databases as its documentation writes them."""

from __future__ import annotations

import datetime as dt
import functools
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from asking import ask

FOLDER = Path(os.environ["CLIENTS_FOLDER"])
PORT = os.environ["CLIENTS_PORT"]
URIS = {
    "hive": f"hive://joe@127.0.0.1:{PORT}/default",
    "impala": f"impala://127.0.0.1:{PORT}/default?auth_mechanism=PLAIN&user=joe&password=any",
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "hive": {"connect_args": {"configuration": {"fusion.dialect": "hive"}}},
    "impala": {},
}
TABLES = {"hive": "sales", "impala": "sales_again"}
LAKE = "lake.shop"
LAKE_TABLES = {"hive": "orders", "impala": "orders_again"}
UPLOADED = "town,people\nUlm,126000\nGera,93000\n"
GRAINS = {
    "PT1H": "hour",
    "P1D": "day",
    "P1W": "week",
    "P1M": "month",
    "P3M": "quarter",
    "P1Y": "year",
}
INSTALLED_WITHIN_S = 300

pytestmark = pytest.mark.parametrize("kind", URIS)
Call = Callable[..., Any]


@functools.cache
def superset() -> Call:
    """Set Superset up in the suite's folder; returns a function that calls its interface and gives the reply's JSON."""
    config = FOLDER / "superset_config.py"
    config.write_text(
        f"""SECRET_KEY = "clients of the gateway"
SQLALCHEMY_DATABASE_URI = "sqlite:///{FOLDER / "superset.db"}"
WTF_CSRF_ENABLED = TALISMAN_ENABLED = PREVENT_UNSAFE_DB_CONNECTIONS = RATELIMIT_ENABLED = False
UPLOAD_FOLDER = "{FOLDER}/"
DB_POLL_INTERVAL_SECONDS = {{"hive": 0.1, "impala": 0.1}}
""",
        encoding="utf-8",
    )
    os.environ["SUPERSET_CONFIG_PATH"] = str(config)
    admin = "fab create-admin --username admin --firstname A --lastname B --email a@b.example --password secret"
    for command in ("db upgrade", "init", admin):
        done = subprocess.run(
            ["superset", *command.split()], capture_output=True, text=True, timeout=INSTALLED_WITHIN_S
        )
        assert done.returncode == 0, done.stderr[-1500:]
    from superset.app import create_app

    client = create_app().test_client()
    login = {"username": "admin", "password": "secret", "provider": "db", "refresh": False}
    token = client.post("/api/v1/security/login", json=login).get_json()["access_token"]

    def call(method: str, path: str, **more: Any) -> Any:
        reply = client.open(path, method=method, headers={"Authorization": f"Bearer {token}"}, **more)
        body = reply.get_json(silent=True)
        assert reply.status_code < 300, f"{reply.status_code} of {path}: {body}"
        return body

    return call


@functools.cache
def database(kind: str) -> int:
    """Register a database; returns its number."""
    asked = {
        "database_name": kind,
        "sqlalchemy_uri": URIS[kind],
        "expose_in_sqllab": True,
        "allow_ctas": True,
        "allow_cvas": True,
        "allow_dml": True,
        "allow_file_upload": True,
        "extra": json.dumps({"schemas_allowed_for_file_upload": ["default"], "engine_params": PARAMETERS[kind]}),
    }
    return int(superset()("POST", "/api/v1/database/", json=asked)["id"])


@functools.cache
def dataset(kind: str, schema: str) -> int:
    """Make a dataset of a table of sales; returns its number."""
    asked = {"database": database(kind), "schema": schema, "table_name": tables_of(schema)[kind]}
    return int(superset()("POST", "/api/v1/dataset/", json=asked)["id"])


def tables_of(schema: str) -> dict[str, str]:
    return LAKE_TABLES if schema == LAKE else TABLES


def rison(value: str) -> str:
    return quote(value, safe="")


def lab(kind: str, sql: str, **more: Any) -> Any:
    """Run a statement in SQL Lab, as its editor does."""
    asked = {"database_id": database(kind), "schema": "default", "sql": sql, "runAsync": False, "queryLimit": 1000}
    return superset()("POST", "/api/v1/sqllab/execute/", json=asked | {"client_id": os.urandom(5).hex()} | more)


def chart(kind: str, schema: str = "default", **query: Any) -> list[dict[str, Any]]:
    """Return the rows of a chart's query."""
    asked = {
        "datasource": {"id": dataset(kind, schema), "type": "table"},
        "force": True,
        "result_format": "json",
        "result_type": "full",
        "queries": [{"metrics": ["count"], "row_limit": 1000, **query}],
    }
    (result,) = superset()("POST", "/api/v1/chart/data", json=asked)["result"]
    assert not result["error"], result["error"]
    rows: list[dict[str, Any]] = result["data"]
    return rows


def test_connection(kind: str) -> None:
    superset()("POST", "/api/v1/database/test_connection/", json={"sqlalchemy_uri": URIS[kind], "database_name": "x"})


def test_schemas(kind: str) -> None:
    assert "default" in superset()("GET", f"/api/v1/database/{database(kind)}/schemas/")["result"]


def test_the_table_picker(kind: str) -> None:
    reply = superset()("GET", f"/api/v1/database/{database(kind)}/tables/?q={rison('(schema_name:default)')}")
    assert {"sales", "sales_of_may"} <= {row["value"] for row in reply["result"]}


def test_views_are_told_from_tables(kind: str) -> None:
    reply = superset()("GET", f"/api/v1/database/{database(kind)}/tables/?q={rison('(schema_name:default)')}")
    types = {row["value"]: row["type"] for row in reply["result"]}
    assert types["sales"] == "table"
    assert types["sales_of_may"] == "view"


def test_columns_of_a_table(kind: str) -> None:
    reply = superset()("GET", f"/api/v1/database/{database(kind)}/table_metadata/?name=sales&schema=default")
    types = {column["name"]: str(column["type"]).upper() for column in reply["columns"]}
    assert list(types) == ["place", "amount", "day", "moment"]
    assert types["moment"].startswith("TIMESTAMP") or types["moment"] == "DATETIME"
    assert types["day"] == "DATE"
    assert types["amount"].startswith("DECIMAL")
    assert "sales" in reply["selectStar"]


def test_temporal_columns_of_a_dataset(kind: str) -> None:
    columns = superset()("GET", f"/api/v1/dataset/{dataset(kind, 'default')}")["result"]["columns"]
    assert {column["column_name"] for column in columns if column["is_dttm"]} == {"day", "moment"}


@pytest.mark.parametrize("grain", GRAINS)
def test_a_time_grain_is_as_sparks(kind: str, grain: str) -> None:
    axis = {"timeGrain": grain, "columnType": "BASE_AXIS", "sqlExpression": "moment", "label": "m"}
    rows = chart(kind, columns=[axis | {"expressionType": "SQL"}], extras={"time_grain_sqla": grain})
    truncated = f"date_trunc('{GRAINS[grain]}', moment)"
    if kind == "impala" and grain == "P1W":  # its TRUNC(x, 'WW') counts weeks from the year's first day
        truncated = "timestampadd(DAY, 7 * floor((dayofyear(moment) - 1) / 7), date_trunc('year', moment))"
    if kind == "hive" and grain == "P1W":  # it goes back 7 - from_unixtime(.., 'u') days, from a Monday six
        truncated = "date_trunc('day', timestampadd(DAY, weekday(moment) - 6, moment))"
    text = f"date_format({truncated}, 'yyyy-MM-dd HH:mm:ss')"
    expected = ask(f"SELECT {text} AS m, count(*) FROM sales GROUP BY 1 ORDER BY 1", engine="spark")
    assert sorted([written(row["m"]), row["count"]] for row in rows) == expected


def written(moment: Any) -> str:
    """Return a time as text: charts have texts as they came, and times as milliseconds."""
    if isinstance(moment, str):
        return moment
    return dt.datetime.fromtimestamp(moment / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def test_a_filter_by_time(kind: str) -> None:
    times = {"granularity": "moment", "time_range": "2024-05-01 : 2024-06-01"}
    (row,) = chart(kind, columns=[], **times)
    (expected,) = ask(
        "SELECT count(*) FROM sales WHERE moment >= TIMESTAMP'2024-05-01' AND moment < TIMESTAMP'2024-06-01'"
    )
    assert row["count"] == expected[0] > 0


def test_sql_lab(kind: str) -> None:
    reply = lab(kind, "SELECT place, sum(amount) AS total FROM sales GROUP BY place ORDER BY place")
    assert [row["place"] for row in reply["data"]] == ["Gera", "Ulm"]
    assert [column["column_name"] for column in reply["columns"]] == ["place", "total"]


def test_sql_lab_says_what_is_wrong(kind: str) -> None:
    with pytest.raises(AssertionError, match="place"):
        lab(kind, "SELECT plaice FROM sales")


def test_create_table_as(kind: str) -> None:
    name = f"made_by_{kind}"
    lab(kind, "SELECT place, amount FROM sales", select_as_cta=True, ctas_method="TABLE", tmp_table_name=name)
    assert ask(f"SELECT count(*) FROM {name}") == ask("SELECT count(*) FROM sales")


def test_create_view_as(kind: str) -> None:
    name = f"seen_by_{kind}"
    lab(kind, "SELECT place, amount FROM sales", select_as_cta=True, ctas_method="VIEW", tmp_table_name=name)
    assert ask(f"SELECT count(*) FROM {name}") == ask("SELECT count(*) FROM sales")


def test_upload_of_csv(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "hive":  # Superset puts the file where Hive finds it, on S3; here into a folder of the gateway's roots
        from superset.db_engine_specs import hive

        def put(filename: str, upload_prefix: str, table: Any) -> str:
            folder = Path(os.environ["CLIENTS_DATA"]) / "uploaded"
            folder.mkdir()
            shutil.copy(filename, folder / "part.parquet")
            return str(folder)

        monkeypatch.setattr(hive, "upload_to_s3", put)
    name = f"towns_{kind}"
    fields = {"type": "csv", "table_name": name, "schema": "default", "already_exists": "fail"}
    file = (io.BytesIO(UPLOADED.encode()), "towns.csv")
    superset()("POST", f"/api/v1/database/{database(kind)}/upload/", data=fields | {"file": file})
    assert ask(f"SELECT town, people FROM {name} ORDER BY town") == [["Gera", 93000], ["Ulm", 126000]]


def test_a_saved_chart(kind: str) -> None:
    settings = {"viz_type": "table", "query_mode": "aggregate", "groupby": ["place"], "metrics": ["count"]}
    query = {"columns": ["place"], "metrics": ["count"], "orderby": [["count", False]], "row_limit": 10}
    source = {"id": dataset(kind, "default"), "type": "table"}
    context = {"datasource": source, "queries": [query], "result_format": "json", "result_type": "full"}
    asked = {
        "slice_name": f"places, {kind}",
        "viz_type": "table",
        "datasource_id": dataset(kind, "default"),
        "datasource_type": "table",
        "params": json.dumps(settings),
        "query_context": json.dumps(context),
    }
    number = superset()("POST", "/api/v1/chart/", json=asked)["id"]
    (result,) = superset()("GET", f"/api/v1/chart/{number}/data/")["result"]
    assert {row["place"]: row["count"] for row in result["data"]} == {"Gera": 2, "Ulm": 4}


def test_names_of_three_parts_are_picked(kind: str) -> None:
    assert LAKE in superset()("GET", f"/api/v1/database/{database(kind)}/schemas/")["result"]
    reply = superset()("GET", f"/api/v1/database/{database(kind)}/tables/?q={rison(f'(schema_name:{LAKE})')}")
    assert {row["value"] for row in reply["result"]} == {"orders", "orders_again"}
    columns = superset()("GET", f"/api/v1/database/{database(kind)}/table_metadata/?name=orders&schema={LAKE}")
    assert [column["name"] for column in columns["columns"]] == ["place", "amount", "day", "moment"]


def test_what_the_picker_writes_for_names_of_three_parts_runs(kind: str) -> None:
    columns = superset()("GET", f"/api/v1/database/{database(kind)}/table_metadata/?name=orders&schema={LAKE}")
    assert len(lab(kind, columns["selectStar"])["data"]) == 6


def test_sql_lab_begins_in_the_schema_of_its_picker(kind: str) -> None:
    assert len(lab(kind, "SELECT * FROM orders", schema=LAKE)["data"]) == 6


def test_a_chart_of_names_of_three_parts(kind: str) -> None:
    axis = {"timeGrain": "P1Y", "columnType": "BASE_AXIS", "sqlExpression": "moment", "label": "m"}
    query: dict[str, Any] = {
        "columns": ["place", axis | {"expressionType": "SQL"}],
        "metrics": ["count", {"expressionType": "SIMPLE", "column": {"column_name": "amount"}, "aggregate": "SUM"}],
        "filters": [{"col": "place", "op": "IN", "val": ["Ulm", "Bonn"]}],
        "extras": {"time_grain_sqla": "P1Y"},
        "orderby": [["count", False]],
    }
    assert chart(kind, LAKE, **query) == chart(kind, **query) != []
