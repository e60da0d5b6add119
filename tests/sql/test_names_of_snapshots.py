"""Snapshots of lake tables in statements."""

from __future__ import annotations

import pytest

from sql.errors import NotAllowed, SnapshotNeeded, SyntaxInvalid, UnknownTable
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, Snapshot, TableSource, View

LAKE = TableSource("orders", "/data/orders", "delta", (Column("id", "bigint"),))
FILES = TableSource("files", "/data/files", "parquet", (Column("id", "bigint"),))
ICE = TableSource("ice", "/data/ice", "iceberg", (Column("id", "bigint"),))
OF_A_CATALOG = TableSource("lake.sales.orders", "/data/sales", "iceberg", (Column("id", "bigint"),))
TABLES = {table.name: table for table in (LAKE, FILES, ICE, OF_A_CATALOG)}


def wanted(sql: str, dialect: str = "spark") -> tuple[str, str, str]:
    with pytest.raises(SnapshotNeeded) as needed:
        check(sql, dialect, catalog=TABLES, limits=ParserLimits())
    return needed.value.table, needed.value.at, needed.value.value


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
@pytest.mark.parametrize("before", ["", "FOR "])
def test_versions_and_moments(dialect: str, before: str) -> None:
    for word in ("VERSION", "SYSTEM_VERSION"):
        assert wanted(f"SELECT id FROM orders {before}{word} AS OF 3", dialect) == ("orders", "version", "3")
    for word in ("TIMESTAMP", "SYSTEM_TIME"):
        moment = wanted(f"SELECT id FROM orders {before}{word} AS OF '1970-01-02 00:00:01.5' AS o", dialect)
        assert moment == ("orders", "timestamp", "86401500")


def test_a_resolved_snapshot_is_a_table_of_its_own() -> None:
    older = TableSource(
        "orders@version:3",
        LAKE.location,
        "delta",
        (Column("old_id", "int"),),
        snapshot=Snapshot("3", "/m", 7, LAKE.location, 1, 70),
    )
    sql = "SELECT o.old_id, orders.id FROM orders VERSION AS OF 3 AS o JOIN orders ON o.old_id = orders.id"
    checked = check(sql, "spark", catalog={**TABLES, older.name: older}, limits=ParserLimits())
    assert sorted(table.name for table in checked.tables) == ["orders", "orders@version:3"]


@pytest.mark.parametrize(
    ("name", "table", "value"),
    [
        ("ice.snapshots", "ice", "snapshots"),
        ("default.ice.Files", "ice", "files"),
        ("spark_catalog.default.ice.refs", "ice", "refs"),
        ("lake.sales.orders.history", "lake.sales.orders", "history"),
    ],
)
def test_names_behind_an_iceberg_table_are_of_its_metadata(name: str, table: str, value: str) -> None:
    assert wanted(f"SELECT * FROM {name}") == (table, "metadata", value)
    assert wanted(f"SELECT o.a FROM orders JOIN {name} AS o ON orders.id = o.a") == (table, "metadata", value)


def test_a_real_table_comes_before_one_of_the_metadata() -> None:
    files = TableSource("ice.files", "/data/f", "parquet", (Column("id", "bigint"),))
    checked = check("SELECT * FROM ice.files", "spark", catalog={**TABLES, "ice.files": files}, limits=ParserLimits())
    assert [table.name for table in checked.tables] == ["ice.files"]


def test_a_view_comes_before_one_of_the_metadata_also_within_views() -> None:
    views = {
        "ice.files": View("ice.files", "SELECT 1 AS id", "spark", (Column("id", "int"),)),
        "outer_one": View("outer_one", "SELECT id FROM ice.files", "spark", (Column("id", "int"),)),
    }
    checked = check("SELECT * FROM outer_one", "spark", catalog=TABLES, views=views, limits=ParserLimits())
    assert not checked.tables


@pytest.mark.parametrize("name", ["orders.snapshots", "files.files", "ice.nothing", "a.b.c.d.e.snapshots"])
def test_other_names_behind_a_table_mean_nothing(name: str) -> None:
    with pytest.raises(UnknownTable):
        check(f"SELECT * FROM {name}", "spark", catalog=TABLES, limits=ParserLimits())


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT id FROM files VERSION AS OF 3", NotAllowed),
        ("SELECT id FROM orders VERSION AS OF id", NotAllowed),
        ("SELECT id FROM orders VERSION AS OF (SELECT 3)", NotAllowed),
        ("SELECT id FROM orders FOR VERSION BETWEEN 1 AND 3", NotAllowed),
        ("SELECT id FROM orders TIMESTAMP AS OF 'soon'", SyntaxInvalid),
    ],
)
def test_what_is_no_snapshot(sql: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check(sql, "spark", catalog=TABLES, limits=ParserLimits())


def test_aliases_may_be_called_so() -> None:
    check(
        "SELECT version.id, timestamp.id FROM orders version JOIN files timestamp ON version.id = timestamp.id",
        "spark",
        catalog=TABLES,
        limits=ParserLimits(),
    )
