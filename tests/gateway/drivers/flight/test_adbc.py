"""ADBC's own driver against a gateway over a real DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.gateway.conftest import BOOKS, TRANSACTIONS
from tests.gateway.drivers.flight.conftest import Served, told

MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 123456, tzinfo=dt.UTC)
ROWS = 1_000_000
EVERY_TYPE = {
    "flag": pa.array([True, None, False]),
    "tiny": pa.array([-(2**7), None, 2**7 - 1], pa.int8()),
    "small": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
    "whole": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
    "big": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "single": pa.array([1.5, None, float("inf")], pa.float32()),
    "double": pa.array([-1e300, None, 0.1], pa.float64()),
    "money": pa.array([Decimal("-1234.50"), None, Decimal("0.01")], pa.decimal128(10, 2)),
    "wide": pa.array([Decimal("9" * 38), None, Decimal(-1)], pa.decimal128(38, 0)),
    "text": pa.array(["", None, "Ünï 💡\n'\\"]),
    "octets": pa.array([b"", None, b"\x00\xff"], pa.binary()),
    "day": pa.array([dt.date(1583, 1, 1), None, dt.date(9999, 12, 31)]),
    "moment": pa.array([MOMENT, None, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC")),
    "local": pa.array([MOMENT.replace(tzinfo=None), None, dt.datetime(1900, 1, 1)], pa.timestamp("us")),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "pair": pa.array(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.string())])
    ),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
}
NO_LITERAL = ("octets", "list", "pair", "map")  # that DuckDB reads as Spark does
BOOK_COLUMNS = ["id", "isbn", "category", "publish_date", "publisher", "price"]


@pytest.fixture(scope="module")
def every_type(duckdb: Served, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Register a table with a column of each type."""
    table = pa.table(EVERY_TYPE)
    folder = tmp_path_factory.mktemp("tables") / "every_type"
    folder.mkdir()
    pq.write_table(table, folder / "part-0.parquet")
    duckdb.add_table("every_type", folder)
    return table


# ---------------------------------------------------------------------- rows


def test_every_type_and_null_arrives_as_it_is(cursor: adbc.Cursor, every_type: pa.Table) -> None:
    cursor.execute("SELECT * FROM every_type")

    found = cursor.fetch_arrow_table()

    assert [field.type for field in found.schema] == [field.type for field in every_type.schema]
    assert found.to_pylist() == every_type.to_pylist()


@pytest.mark.e2e
def test_a_million_rows_arrive_in_order(duckdb: Served, cursor: adbc.Cursor, tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64())}), folder / "part-0.parquet")
    duckdb.add_table("numbers", folder)

    cursor.execute("SELECT id, CAST(id AS STRING) AS text, id * 0.5D AS half FROM numbers ORDER BY id")
    total = at = 0
    for batch in cursor.fetch_record_batch():
        ids = batch.column("id")
        assert ids[0].as_py() == at
        at += batch.num_rows
        total += pc.sum(ids).as_py()

    assert cursor.rowcount in (-1, ROWS)
    assert (at, total) == (ROWS, ROWS * (ROWS - 1) // 2)


def test_a_cursor_is_pep_249s(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT id, isbn FROM books ORDER BY id")

    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["id", "isbn"]
    assert cursor.fetchone() == (1, "978-0000000001")
    assert cursor.fetchmany(2) == [(2, "978-0000000002"), (3, "978-0000000003")]
    assert len(cursor.fetchall()) == BOOKS - 3
    assert cursor.fetchone() is None


def test_no_rows_have_columns_all_the_same(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT id, isbn FROM books WHERE id < 0")

    assert cursor.fetch_arrow_table().schema.names == ["id", "isbn"]


def test_cursors_of_one_connection_and_of_many_do_not_disturb_each_other(duckdb: Served) -> None:
    found: dict[int, list[Any]] = {}

    def ask(connection: adbc.Connection, number: int) -> None:
        with closing(connection.cursor()) as cursor:
            for _ in range(3):
                cursor.execute(f"SELECT id FROM books WHERE id % 4 = {number % 4} ORDER BY id")
                found[number] = cursor.fetchall()

    connections = [duckdb.connect() for _ in range(2)]
    threads = [threading.Thread(target=ask, args=(connections[number // 4], number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()

    assert found == {number: [(book,) for book in range(1, BOOKS + 1) if book % 4 == number % 4] for number in range(8)}


# ---------------------------------------------------------------------- statements that fail


def test_an_error_is_the_message_that_we_wrote(cursor: adbc.Cursor) -> None:
    with pytest.raises(adbc_driver_manager.ProgrammingError) as caught:
        cursor.execute("SELECT idd FROM books")

    assert "There is no column idd" in str(caught.value)
    assert "(line 1, column 8)" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert caught.value.status_code == adbc_driver_manager.AdbcStatusCode.INVALID_ARGUMENT
    assert told(caught.value) == {"fusion-code": "UNKNOWN_COLUMN", "fusion-sqlstate": "42S22"}


@pytest.mark.parametrize(
    ("sql", "kind", "code"),
    [
        ("SELECT * FROM nowhere", adbc_driver_manager.AdbcStatusCode.NOT_FOUND, "UNKNOWN_TABLE"),
        ("SELECT 1 +", adbc_driver_manager.AdbcStatusCode.INVALID_ARGUMENT, "SYNTAX_ERROR"),
        ("COPY books TO 'x'", adbc_driver_manager.AdbcStatusCode.INVALID_ARGUMENT, "NOT_ALLOWED"),
        ("SET fusion.nothing = 1", adbc_driver_manager.AdbcStatusCode.INVALID_ARGUMENT, "INVALID_SETTING"),
        ("SELECT '💡' FROM " + "x" * 5_000, adbc_driver_manager.AdbcStatusCode.NOT_FOUND, "UNKNOWN_TABLE"),
    ],
)
def test_kinds_of_errors(cursor: adbc.Cursor, sql: str, kind: int, code: str) -> None:
    with pytest.raises(adbc_driver_manager.Error) as caught:
        cursor.execute(sql)

    assert caught.value.status_code == kind
    assert told(caught.value)["fusion-code"] == code


# ---------------------------------------------------------------------- parameters


@pytest.mark.parametrize("name", [name for name in EVERY_TYPE if name not in NO_LITERAL])
def test_a_parameter_is_the_value_that_was_bound(cursor: adbc.Cursor, every_type: pa.Table, name: str) -> None:
    for value in EVERY_TYPE[name].drop_null():
        if value.as_py() == float("inf"):
            continue
        parameters = pa.record_batch([pa.array([value.as_py()], value.type)], names=["0"])

        cursor.execute(f"SELECT {name} FROM every_type WHERE {name} = ?", parameters)

        assert cursor.fetchall() == [(value.as_py(),)]


def test_nothing_is_a_parameter_too(cursor: adbc.Cursor, every_type: pa.Table) -> None:
    cursor.execute("SELECT count(*) AS found FROM every_type WHERE text <=> ?", (None,))

    assert cursor.fetchall() == [(1,)]


def test_parameters_stand_in_order_and_nowhere_else(cursor: adbc.Cursor) -> None:
    sql = "SELECT '?' AS sign, 10-? AS rest, ? AS text /* ? */ FROM books WHERE id IN (?, ?) ORDER BY id LIMIT ? -- ?"

    cursor.execute(sql, (-5, "it's \\ ?", 7, 8, 1))

    assert cursor.fetchall() == [("?", 15, "it's \\ ?")]


def test_a_prepared_statement_runs_again_with_other_values(cursor: adbc.Cursor) -> None:
    schema = cursor.adbc_prepare("SELECT isbn FROM books WHERE id = ?")
    assert schema == pa.schema([("parameter_1", pa.null())])

    for book in (1, 2, 1):
        cursor.execute("SELECT isbn FROM books WHERE id = ?", (book,))
        assert cursor.fetchall() == [(f"978-{book:010d}",)]


def test_a_statement_tells_its_columns(cursor: adbc.Cursor) -> None:
    assert cursor.adbc_execute_schema("SELECT id, price FROM books WHERE id = 1") == pa.schema(
        [("id", pa.int64()), ("price", pa.float64())]
    )


def test_columns_are_those_of_the_table_that_there_is(
    duckdb: Served, connection: adbc.Connection, tmp_path: Path
) -> None:
    for number, names in enumerate((["a"], ["a", "b"], ["b"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        pq.write_table(pa.table({name: [number] for name in names}), folder / "part.parquet")
        duckdb.add_table("changing", folder)
        for _ in range(2):
            with closing(connection.cursor()) as cursor:
                assert cursor.adbc_execute_schema("SELECT * FROM changing").names == names


def test_wrong_parameters_are_told(cursor: adbc.Cursor) -> None:
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="statement: 2, values sent: 1"):
        cursor.execute("SELECT id FROM books WHERE id = ? OR id = ?", (1,))
    with pytest.raises(adbc_driver_manager.ProgrammingError, match=r"statement: 1, values sent: 0"):
        cursor.execute("SELECT id FROM books WHERE id = ?")
    nested = pa.record_batch([pa.array([[1]])], names=["0"])
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="cannot have Arrow's type list"):
        cursor.execute("SELECT id FROM books WHERE id = ?", nested)
    many = pa.record_batch([pa.array([1, 2])], names=["0"])
    with pytest.raises(adbc_driver_manager.NotSupportedError, match="one row of parameters, and 2 were sent"):
        cursor.execute("SELECT id FROM books WHERE id = ?", many)


def test_a_value_cannot_become_more_than_a_value(cursor: adbc.Cursor) -> None:
    attack = "x' OR '1' = '1"

    cursor.execute("SELECT count(*) AS found FROM books WHERE isbn = ?", (attack,))

    assert cursor.fetchall() == [(0,)]


# ---------------------------------------------------------------------- the catalog


def test_objects(connection: adbc.Connection) -> None:
    found = connection.adbc_get_objects(table_name_filter="books").read_all().to_pylist()

    (catalog,) = found
    (schema,) = catalog["catalog_db_schemas"]
    (table,) = schema["db_schema_tables"]
    assert (catalog["catalog_name"], schema["db_schema_name"]) == ("", "default")
    assert (table["table_name"], table["table_type"]) == ("books", "TABLE")
    assert [column["column_name"] for column in table["table_columns"]] == BOOK_COLUMNS
    assert [column["xdbc_type_name"] for column in table["table_columns"]] == [
        *("BIGINT", "STRING", "STRING", "DATE", "STRING", "DOUBLE")
    ]
    assert table["table_constraints"] == []


def test_objects_by_depth_and_filter(connection: adbc.Connection) -> None:
    def tables(**asked: Any) -> list[str]:
        rows = connection.adbc_get_objects(depth="tables", **asked).read_all().to_pylist()
        schemas = [schema for row in rows for schema in row["catalog_db_schemas"]]
        return sorted(table["table_name"] for schema in schemas for table in schema["db_schema_tables"])

    assert {"books", "transactions"} <= set(tables())
    assert tables(table_name_filter="trans%") == ["transactions"]
    assert tables(table_name_filter="book_") == ["books"]
    assert tables(db_schema_filter="nothing") == []
    assert tables(table_types_filter=["VIEW"]) == []
    with closing(connection.cursor()) as cursor:
        cursor.execute("CREATE TEMPORARY VIEW recent AS SELECT id FROM books")
    assert tables(table_types_filter=["VIEW"]) == ["recent"]
    assert connection.adbc_get_table_schema("recent").names == ["id"]


def test_a_tables_schema_is_that_of_its_rows(
    connection: adbc.Connection, cursor: adbc.Cursor, every_type: pa.Table
) -> None:
    schema = connection.adbc_get_table_schema("every_type")
    cursor.execute("SELECT * FROM every_type")

    assert schema.remove_metadata().equals(cursor.fetch_arrow_table().schema.remove_metadata())
    assert schema.field("money").metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"DECIMAL(10,2)"
    assert schema.field("money").metadata[b"ARROW:FLIGHT:SQL:SCALE"] == b"2"
    with pytest.raises(adbc_driver_manager.ProgrammingError):
        connection.adbc_get_table_schema("nowhere")


def test_kinds_of_tables_and_facts(connection: adbc.Connection) -> None:
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert connection.adbc_get_info()["vendor_name"] == "Fusion SQL Gateway"
    assert connection.adbc_current_db_schema == "default"


# ---------------------------------------------------------------------- sessions


def test_settings_belong_to_the_connection(duckdb: Served) -> None:
    with closing(duckdb.connect()) as one, closing(duckdb.connect()) as other:
        with closing(one.cursor()) as cursor:
            cursor.execute("SET fusion.dialect = impala")
            assert cursor.fetchall() == []
            cursor.execute("SELECT strleft('abc', 2) AS s")
            assert cursor.fetchall() == [("ab",)]
        with closing(other.cursor()) as cursor:
            with pytest.raises(adbc_driver_manager.ProgrammingError):
                cursor.execute("SELECT strleft('abc', 2) AS s")
            cursor.execute("USE default")


def test_settings_are_options_of_the_connection(connection: adbc.Connection, cursor: adbc.Cursor) -> None:
    raw = connection.adbc_connection
    raw.set_options(**{"adbc.flight.sql.session.option.fusion.timeout_s": "17"})
    connection.adbc_current_db_schema = "default"

    assert json.loads(raw.get_option("adbc.flight.sql.session.options"))["fusion.timeout_s"] == "17"
    cursor.execute("SET fusion.timeout_s")
    assert cursor.fetchall() == [("fusion.timeout_s", "17", "REGULAR")]
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="invalid value"):
        raw.set_options(**{"adbc.flight.sql.session.option.fusion.timeout_s": "soon"})
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="invalid name"):
        raw.set_options(**{"adbc.flight.sql.session.option.fusion.nothing": "1"})
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="invalid value"):
        connection.adbc_current_db_schema = "nowhere"


def test_commands_answer_with_rows(cursor: adbc.Cursor) -> None:
    cursor.execute("SHOW TABLES LIKE 'book*'")
    assert cursor.fetchall() == [("books",)]
    cursor.execute("DESCRIBE books")
    assert [row[0] for row in cursor.fetchall()] == BOOK_COLUMNS


def test_a_join_runs_where_its_estimate_fits(duckdb: Served, cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT count(*) AS sold FROM books b JOIN transactions t ON b.id = t.book_id")

    assert cursor.fetchall() == [(TRANSACTIONS,)]
