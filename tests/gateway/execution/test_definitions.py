"""What statements make and change, over a real DuckDB that reads it; what Spark writes is in test_altered_tables.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import Principal, Role
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import load
from gateway.statements.statement import Statement
from metastore.records import CatalogTable, QueryRecord, QueryState
from sql.errors import NotAllowed, SqlError

LIMIT = 256 << 20


class House:
    """A gateway over DuckDB alone: what needs Spark fails here."""

    def __init__(self, gateway: Gateway, roots: Path) -> None:
        self.gateway = gateway
        self.roots = roots

    def ended(self, sql: str, **fields: Any) -> QueryRecord:
        return self.gateway.coordinator.submit(Statement(sql=sql, **fields)).done.result(timeout=60)

    def rows(self, sql: str, **fields: Any) -> list[tuple[Any, ...]]:
        record = self.ended(sql, **fields)
        assert record.state is QueryState.FINISHED, record.error
        page = self.gateway.spool.page(record.id, max_rows=1_000)
        return [tuple(row.values()) for row in pa.Table.from_batches(page.batches, page.schema).to_pylist()]

    def refused(self, sql: str, **fields: Any) -> SqlError:
        with pytest.raises(SqlError) as caught:
            self.ended(sql, **fields)
        return caught.value

    def failed(self, sql: str, **fields: Any) -> str:
        record = self.ended(sql, **fields)
        assert record.error is not None
        return record.error.code

    def table(self, name: str) -> CatalogTable:
        found = self.gateway.metastore.catalog.get(name)
        assert found is not None
        return found

    def files(self, name: str, **columns: list[Any]) -> Path:
        """Put a Parquet file into a folder of its own within the roots."""
        folder = self.roots / name
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), folder / "1.parquet")
        return folder


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine) -> Iterator[House]:
    roots = tmp_path / "roots"
    roots.mkdir()
    entries = [EngineEntry(duckdb, limit_bytes=LIMIT)]
    settings = load(tmp_path / "home", catalog={"roots": [str(roots)]})
    gateway = wiring.assemble(settings, EngineRegistry(entries))
    gateway.catalog.current()
    yield House(gateway, roots)
    gateway.coordinator.stop(grace_s=10)
    gateway.planners.close()
    gateway.metastore.close()


def test_an_empty_table_needs_no_dependable_engine(house: House) -> None:
    house.rows("CREATE TABLE t (id BIGINT COMMENT 'its number', n VARCHAR(9)) COMMENT 'all' TBLPROPERTIES ('a' = 'b')")
    assert house.rows("SELECT id, n FROM t") == []
    told = house.table("t").annotations
    assert (told.comment, told.columns, told.properties) == ("all", {"id": "its number"}, {"a": "b"})
    assert house.rows("DROP TABLE t") == [(0,)]


@pytest.mark.parametrize("kind", ["CHAR(9)", "ARRAY<VARCHAR(3)>", "STRUCT<a: CHAR(2)>"])
def test_lengths_that_nobody_would_check_are_refused(house: House, kind: str) -> None:
    with pytest.raises(NotAllowed, match=r"are not kept here: use VARCHAR\(n\) or STRING"):
        house.rows(f"CREATE TABLE t (n {kind})")
    house.rows("CREATE TABLE t (n VARCHAR(9))")
    house.rows("ALTER TABLE t ADD COLUMNS (m VARCHAR(2))")
    assert [column.declared_type for column in house.table("t").source.columns] == ["varchar(9)", "varchar(2)"]
    assert [row[:2] for row in house.rows("DESCRIBE t")] == [("n", "varchar(9)"), ("m", "varchar(2)")]


def test_a_table_like_another_one(house: House) -> None:
    house.rows("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p) STORED AS ORC")
    house.rows("CREATE TABLE u LIKE t")
    house.rows("CREATE TABLE w LIKE t STORED AS PARQUET COMMENT 'w'")
    assert house.table("u").source.format == "orc"
    assert house.table("w").source.format == "parquet"
    for name in ("u", "w"):
        found = house.table(name).source
        assert [(c.name, c.data_type) for c in found.columns] == [("id", "bigint"), ("p", "int")]
        assert found.partition_columns == ("p",)


def test_a_table_that_is_replaced_is_empty_and_keeps_its_owner(house: House) -> None:
    house.rows("CREATE TABLE t (a INT) TBLPROPERTIES ('k' = 'old')")
    first = house.table("t").source.location
    house.rows("CREATE OR REPLACE TABLE t (b STRING)")
    assert house.table("t").source.location != first
    assert house.rows("SELECT b FROM t") == []
    assert house.table("t").annotations.properties == {}
    assert Path(first).is_dir()  # for whoever reads it still
    house.rows("CREATE OR REPLACE TABLE fresh (b STRING)")
    assert house.refused("CREATE OR REPLACE TABLE IF NOT EXISTS t (b STRING)").code == "NOT_ALLOWED"
    house.rows("CREATE VIEW v AS SELECT b FROM t")
    assert house.refused("CREATE OR REPLACE TABLE v (b STRING)").code == "TABLE_EXISTS"


def test_a_table_over_files_that_lie_somewhere(house: House) -> None:
    folder = house.files("towns", town=["Ulm"], people=pa.array([126_000], pa.int64()))
    house.rows(f"CREATE TABLE default.towns (`town` STRING, `people` BIGINT)\n STORED AS PARQUET\n LOCATION '{folder}'")
    assert house.rows("SELECT * FROM towns") == [("Ulm", 126_000)]
    house.rows(f"CREATE EXTERNAL TABLE IF NOT EXISTS towns (x INT) LOCATION '{folder}'")
    house.rows(f"CREATE EXTERNAL TABLE found LOCATION 'file://{folder}' TBLPROPERTIES ('a' = 'b')")
    assert [c.name for c in house.table("found").source.columns] == ["town", "people"]
    house.rows("DROP TABLE found")
    assert list(folder.iterdir())
    house.rows(f"CREATE EXTERNAL TABLE none (a INT, p INT) PARTITIONED BY (p) LOCATION '{house.roots}/new/none'")
    assert (house.roots / "new" / "none").is_dir()
    assert house.table("none").source.partition_columns == ("p",)
    house.rows("REFRESH none")
    assert house.failed(f"CREATE EXTERNAL TABLE w (a INT, q INT) PARTITIONED BY (q) LOCATION '{folder}'") == (
        "TABLE_UNREADABLE"
    )


@pytest.mark.parametrize(
    ("clauses", "code", "says"),
    [
        ("LOCATION '/etc'", "NOT_ALLOWED", "system"),
        ("LOCATION '/var/tmp/ddl-of-nobody'", "NOT_ALLOWED", "catalog.roots"),
        ("LOCATION 's3://bucket/t'", "NOT_ALLOWED", "stores.NAME.prefix"),
        ("LOCATION 'hdfs://host/t'", "TABLE_UNREADABLE", "not on this machine"),
        ("LOCATION 'relative'", "TABLE_UNREADABLE", "absolute"),
        ("LOCATION '" + "/y" * 5_000 + "'", "TABLE_UNREADABLE", "characters"),
        ("LOCATION '{roots}/a\nb'", "TABLE_UNREADABLE", "control character"),
        ("LOCATION '{roots}/../home'", "NOT_ALLOWED", "own folders"),
    ],
)
def test_places_are_judged_as_those_of_other_tables(house: House, clauses: str, code: str, says: str) -> None:
    record = house.ended(f"CREATE EXTERNAL TABLE x (a INT) STORED AS PARQUET {clauses.format(roots=house.roots)}")
    assert record.error is not None
    assert record.error.code == code
    assert says in record.error.message
    assert house.gateway.metastore.catalog.get("x") is None
    assert list(house.roots.iterdir()) == []


def test_text_of_others(house: House) -> None:
    folder = house.roots / "text"
    folder.mkdir()
    (folder / "1.csv").write_text('id|name\n1|"a|b"\n2|\n', encoding="ascii")
    house.rows(
        "CREATE EXTERNAL TABLE t (id INT, name STRING) ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' "
        f"LINES TERMINATED BY '\\n' STORED AS TEXTFILE LOCATION '{folder}' "
        "TBLPROPERTIES ('skip.header.line.count' = '1')"
    )
    assert house.rows("SELECT id, name FROM t ORDER BY id") == [(1, "a|b"), (2, None)]
    house.rows(f"CREATE TABLE u (id INT, name STRING) USING csv OPTIONS (path '{folder}', sep '|', header true)")
    assert house.rows("SELECT id FROM u ORDER BY id") == [(1,), (2,)]
    serde = "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde' WITH SERDEPROPERTIES ('separatorChar' = '|')"
    house.rows(f"CREATE EXTERNAL TABLE s (id STRING, name STRING) {serde} LOCATION '{folder}'")
    assert house.table("s").source.options["delimiter"] == "|"
    for clause in ("ESCAPED BY '\\\\'", "COLLECTION ITEMS TERMINATED BY ','", "NULL DEFINED AS 'x'"):
        sql = f"CREATE EXTERNAL TABLE x (a INT) ROW FORMAT DELIMITED {clause} LOCATION '{folder}'"
        assert house.refused(sql).code == "NOT_ALLOWED"
    assert "LOCATION" in str(house.refused("CREATE TABLE x (a INT) STORED AS TEXTFILE"))


def test_comments_and_properties(house: House) -> None:
    house.rows("CREATE DATABASE d")
    house.rows("CREATE TABLE d.t (Id INT, p INT) PARTITIONED BY (p)")
    house.rows("CREATE VIEW v (a COMMENT 'first') COMMENT 'a view' TBLPROPERTIES ('x' = 'y') AS SELECT 1")
    house.rows("COMMENT ON TABLE d.t IS 'ü\\'s'")
    house.rows("COMMENT ON COLUMN d.t.id IS 'the id'")
    house.rows("ALTER TABLE d.t CHANGE COLUMN p p INT COMMENT 'part'")
    house.rows("ALTER TABLE d.t SET TBLPROPERTIES ('a' = '1', 'b' = '2')")
    house.rows("ALTER TABLE d.t UNSET TBLPROPERTIES IF EXISTS ('a', 'nothing')")
    told = house.table("d.t").annotations
    assert (told.comment, told.columns, told.properties) == ("ü's", {"Id": "the id", "p": "part"}, {"b": "2"})
    house.rows("ALTER TABLE d.t ALTER COLUMN p COMMENT ''")
    house.rows("COMMENT ON TABLE d.t IS NULL")
    told = house.table("d.t").annotations
    assert (told.comment, told.columns) == ("", {"Id": "the id"})
    house.rows("ALTER VIEW v SET TBLPROPERTIES ('z' = '1')")
    house.rows("ALTER VIEW v AS SELECT 2 AS a, 3 AS b")
    (view,) = house.gateway.metastore.views.list()
    assert (view.annotations.comment, view.annotations.properties) == ("a view", {"x": "y", "z": "1"})
    assert house.rows("SELECT * FROM v") == [(2, 3)]
    house.rows("COMMENT ON DATABASE d IS 'all'")
    house.rows("ALTER DATABASE d SET DBPROPERTIES ('k' = 'v')")
    database = {each.name: each for each in house.gateway.metastore.databases.list()}["d"]
    assert (database.comment, database.properties) == ("all", {"k": "v"})
    assert house.failed("ALTER TABLE d.t UNSET TBLPROPERTIES ('nothing')") == "UNKNOWN_PROPERTY"


def test_a_table_under_another_name(house: House) -> None:
    house.rows("CREATE DATABASE d")
    folder = house.files("a", id=pa.array([1, 2], pa.int64()))
    house.rows(f"CREATE EXTERNAL TABLE a LOCATION '{folder}'")
    house.rows("ALTER TABLE a SET TBLPROPERTIES ('numRows' = '2')")
    house.rows("ALTER TABLE a SET COLUMN STATS id ('numDVs' = '2')")
    house.rows("ALTER TABLE a RENAME TO d.b")
    assert house.rows("SELECT id FROM d.b ORDER BY id") == [(1,), (2,)]
    assert house.refused("SELECT id FROM a").code == "UNKNOWN_TABLE"
    build = house.gateway.metastore.statistics.current("d.b")
    assert build is not None
    assert build.columns["id"].ndv == 2
    house.rows("CREATE VIEW v AS SELECT id FROM d.b")
    house.rows("ALTER VIEW v RENAME TO d.w")
    assert len(house.rows("SELECT id FROM d.w")) == 2
    house.rows("ALTER TABLE d.w RENAME TO v")  # as Hive's users say it of views, too
    assert house.refused("ALTER TABLE d.b RENAME TO v").code == "TABLE_EXISTS"
    assert house.refused("ALTER TABLE d.b RENAME TO nowhere.v").code == "UNKNOWN_DATABASE"


def test_added_columns_are_null_in_older_files(house: House) -> None:
    folder = house.files("a", id=pa.array([1], pa.int64()))
    house.rows(f"CREATE EXTERNAL TABLE a LOCATION '{folder}'")
    house.rows("ALTER TABLE a ADD COLUMNS (note STRING COMMENT 'new', n DECIMAL(9,2))")
    assert house.rows("SELECT id, note, n FROM a") == [(1, None, None)]
    assert house.rows("SELECT count(*) FROM a WHERE note IS NULL") == [(1,)]
    assert house.table("a").annotations.columns == {"note": "new"}
    house.rows("ALTER TABLE a ADD COLUMN IF NOT EXISTS note STRING")
    assert house.refused("ALTER TABLE a ADD COLUMNS (ID INT)").code == "NOT_ALLOWED"
    assert house.rows("SELECT * FROM a") == [(1, None, None)]
    house.rows("REFRESH a")
    assert [c.name for c in house.table("a").source.columns] == ["id", "note", "n"]


def test_statements_that_are_other_ones_here(house: House) -> None:
    folder = house.files("a", id=pa.array([1], pa.int64()))
    house.rows(f"CREATE EXTERNAL TABLE a LOCATION '{folder}'")
    for sql in ("MSCK REPAIR TABLE a SYNC PARTITIONS", "ALTER TABLE a RECOVER PARTITIONS"):
        assert house.rows(sql) == [("Refreshed 1 table(s).",)]
    assert house.rows("ANALYZE TABLE a COMPUTE STATISTICS NOSCAN") == [("Refreshed 1 table(s).",)]
    assert house.rows("ANALYZE TABLES COMPUTE STATISTICS NOSCAN") == [("Updated 1 table(s).",)]
    for sql in ("CACHE TABLE a", "CACHE LAZY TABLE a OPTIONS ('storageLevel' 'DISK_ONLY')"):
        assert house.rows(sql) == [("The files of a are on this machine.",)]
    assert house.refused("CACHE TABLE a OPTIONS ('columns' = 'id, x')").code == "UNKNOWN_COLUMN"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("CACHE TABLE t AS SELECT 1", "CREATE TABLE"),
        ("UNCACHE TABLE IF EXISTS a", "gives room"),
        ("LOCK TABLE a SHARED", "take turns"),
        ("ALTER TABLE t CHANGE id id STRING", "stays"),
        ("ALTER TABLE t CHANGE id other INT", "stays"),
        ("ALTER TABLE t ALTER COLUMN id TYPE BIGINT", "CREATE OR REPLACE TABLE"),
        ("ALTER TABLE t RENAME COLUMN id TO other", "CREATE OR REPLACE TABLE"),
        ("ALTER TABLE t DROP COLUMN id", "CREATE OR REPLACE TABLE"),
        ("ALTER TABLE t REPLACE COLUMNS (a INT)", "CREATE OR REPLACE TABLE"),
        ("ALTER TABLE t SET LOCATION '/x'", "files stay"),
        ("CREATE TABLE x (a INT NOT NULL)", "constraints"),
        ("CREATE TABLE x (a INT) CLUSTERED BY (a) INTO 4 BUCKETS", "buckets"),
        ("CREATE EXTERNAL TABLE x (a INT)", "needs a LOCATION"),
        ("DROP TABLE v", "is a view"),
        ("DROP TABLE IF EXISTS v", "is a view"),
        ("DROP VIEW t", "is a table"),
    ],
)
def test_what_is_refused_says_what_to_do(house: House, sql: str, says: str) -> None:
    house.rows("CREATE TABLE t (id INT)")
    house.rows("CREATE VIEW v AS SELECT 1 AS a")
    error = house.refused(sql)
    assert says in str(error)
    assert error.position is not None


def test_impala_drops_only_what_is_of_the_kind(house: House) -> None:
    house.rows("CREATE TABLE t (id INT)")
    house.rows("CREATE VIEW v AS SELECT 1 AS a")
    house.rows("DROP TABLE IF EXISTS v", dialect="impala")
    house.rows("DROP VIEW IF EXISTS t", dialect="impala")
    assert house.rows("SHOW TABLES") == [("t",), ("v",)]


def test_impalas_clients_are_told_in_words(house: House) -> None:
    def told(sql: str) -> list[tuple[Any, ...]]:
        return house.rows(sql, dialect="impala")

    assert told("CREATE TABLE t (id INT)") == [("Table has been created.",)]
    assert told("CREATE VIEW v AS SELECT 1 AS a") == [("View has been created.",)]
    assert told("ALTER TABLE t RENAME TO u") == [("Renaming was successful.",)]
    assert told("ALTER TABLE u ADD COLUMNS (b INT)") == [("New column(s) have been added to the table.",)]
    assert told("CREATE DATABASE d") == [("Database has been created.",)]
    assert told("DROP DATABASE d") == [("Database has been dropped.",)]
    assert told("TRUNCATE TABLE u") == [("Table has been truncated.",)]
    assert told("DROP TABLE u") == [("Table has been dropped.",)]
    assert told("DROP TABLE IF EXISTS u") == [("Table does not exist.",)]
    assert told("DROP VIEW v") == [("View has been dropped.",)]


def own(house: House, name: str, *files: str) -> Path:
    """Make a table of the gateway's with files in it, as an engine would have written them. Returns its folder."""
    folder = Path(house.table(name).source.location)
    for at, path in enumerate(files):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([at], pa.int32())}), folder / path)
    house.rows(f"REFRESH {name}")
    return folder


def test_rows_go_and_the_table_stays(house: House) -> None:
    house.rows("CREATE TABLE t (id INT)")
    folder = own(house, "t", "1.parquet", "2.parquet")
    assert len(house.rows("SELECT id FROM t")) == 2
    house.rows("TRUNCATE TABLE t")
    assert house.rows("SELECT id FROM t") == []
    assert [path.suffix for path in folder.iterdir()] == [".parquet"]
    house.rows("TRUNCATE TABLE IF EXISTS nothing")
    assert house.refused("TRUNCATE TABLE nothing").code == "UNKNOWN_TABLE"
    theirs = house.files("theirs", id=[1])
    house.rows(f"CREATE EXTERNAL TABLE theirs LOCATION '{theirs}'")
    assert house.failed("TRUNCATE TABLE theirs") == "NOT_ALLOWED"
    assert house.rows("SELECT id FROM theirs") == [(1,)]


def test_partitions_go(house: House) -> None:
    house.rows("CREATE TABLE t (id INT, y INT, r STRING) PARTITIONED BY (y, r)")
    own(house, "t", "y=1/r=a/1.parquet", "y=1/r=b/1.parquet", "y=2/r=a/1.parquet")
    assert len(house.rows("SELECT id FROM t")) == 3
    house.rows("ALTER TABLE t DROP PARTITION (y = 1, r = 'b'), PARTITION (y > 1) PURGE")
    assert house.rows("SELECT y, r FROM t") == [(1, "a")]
    assert house.failed("ALTER TABLE t DROP PARTITION (y = 7)") == "UNKNOWN_PARTITION"
    house.rows("ALTER TABLE t DROP IF EXISTS PARTITION (y = 7)")
    house.rows("ALTER TABLE t ADD PARTITION (y = 7, r = 'x')")
    assert house.refused("ALTER TABLE t ADD PARTITION (y = 7)").code == "NOT_ALLOWED"
    assert house.failed("ALTER TABLE t ADD PARTITION (y = 1, r = 'a')") == "PARTITION_EXISTS"
    house.rows("ALTER TABLE t ADD IF NOT EXISTS PARTITION (y = 1, r = 'a') PARTITION (y = 1, r = 'c')")
    house.rows("TRUNCATE TABLE t PARTITION (y = 1)")
    assert house.table("t").partitions == ()


def test_each_change_is_the_owners(house: House) -> None:
    anna, bob = (Principal(name, Role.WRITER, authenticated=True) for name in ("anna", "bob"))
    house.rows("CREATE TABLE t (id INT)", principal=anna)
    house.rows("CREATE VIEW v AS SELECT 1 AS a", principal=anna)
    for sql in (
        "CREATE OR REPLACE TABLE t (id INT)",
        "ALTER TABLE t ADD COLUMNS (b INT)",
        "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE t UNSET TBLPROPERTIES ('a')",
        "COMMENT ON TABLE t IS 'mine'",
        "COMMENT ON COLUMN t.id IS 'mine'",
        "TRUNCATE TABLE t",
        "ALTER VIEW v AS SELECT 2 AS a",
        "ALTER VIEW v SET TBLPROPERTIES ('a' = 'b')",
        "ALTER VIEW v RENAME TO w",
        "ALTER TABLE t RENAME TO u",
    ):
        assert house.refused(sql, principal=bob).code == "ACCESS_DENIED", sql
        house.rows(sql, principal=anna)
    assert house.table("u").owner == "anna"
