"""UPDATE, DELETE and MERGE of lake tables: a real Spark writes, and a real DuckDB reads what was written at once."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from engines.duckdb.engine import DuckDBEngine
from engines.files.manifest import read_manifest
from engines.spark.engine import SparkConnectEngine
from gateway.security.principals import Principal, Role
from gateway.statements.session import Session
from metastore.lake.resolution import pin
from metastore.records import QueryState
from sql.errors import AccessDenied, NotAllowed
from sql.tables import LAKE_FORMATS
from tests.gateway.house import House, opened

pytestmark = pytest.mark.spark

ODD = "x y/ü%[1]{*}?=:'"  # a partition's value, much of which folders' names cannot hold
ANN, BEN = (Principal(name, Role.WRITER, authenticated=True) for name in ("ann", "ben"))
Row = tuple[int | None, int | None, str | None]
Truth = bool | None


def affected(house: House, sql: str, **fields: Any) -> int | None:
    rows = house.done(sql, **fields)
    count: int | None = rows[0]["num_affected_rows"]
    return count


def files(house: House, table: str) -> set[str]:
    """Return the data files of a table's newest snapshot."""
    registered = house.gateway.metastore.catalog.get(table)
    assert registered is not None
    state = pin(registered.source, None, house.location(table).parents[1] / "manifests")
    return {file.path for file in read_manifest(state.snapshot.manifest).files}


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_only_files_with_rows_to_be_changed_are_written_anew(house: House, format: str) -> None:
    table = f"parts_{format}"
    house.done(f"CREATE TABLE {table} (id INT, n BIGINT, p STRING) USING {format} PARTITIONED BY (p)")
    house.done(
        f"INSERT INTO {table} VALUES (1, 10, '{ODD.replace(chr(39), chr(39) * 2)}'), (2, 20, 'b'), (3, NULL, NULL)"
    )
    house.done(f"INSERT INTO {table} VALUES (4, 40, 'b')")
    before = files(house, table)
    assert affected(house, f"UPDATE {table} SET n = n + 1 WHERE id = 1") == 1
    assert len(before - files(house, table)) == 1
    assert affected(house, f"UPDATE {table} SET p = 'b', n = 31 WHERE n IS NULL") == 1  # goes to another partition
    assert affected(house, f"DELETE FROM {table} WHERE id = 4") == 1
    assert house.both(f"SELECT id, n, p FROM {table} ORDER BY id") == [
        {"id": 1, "n": 11, "p": ODD},
        {"id": 2, "n": 20, "p": "b"},
        {"id": 3, "n": 31, "p": "b"},
    ]
    after = files(house, table)
    assert affected(house, f"UPDATE {table} SET n = 0 WHERE n > 100 OR n = NULL") == 0
    assert files(house, table) == after
    found = house.gateway.metastore.catalog.get(table)
    assert found is not None
    assert found.rows == 3
    assert affected(house, f"DELETE FROM {table}") == 3
    assert house.done(f"SELECT * FROM {table}") == []
    house.done(f"CREATE TABLE whole_{format} USING {format} AS SELECT 1 AS id")
    for sql in ("DELETE FROM", "DELETE FROM", "UPDATE"):
        assert affected(house, f"{sql} whole_{format}{' SET id = 2' if sql == 'UPDATE' else ''}") in (0, 1)
        assert house.both(f"SELECT * FROM whole_{format}") == []
    house.done(f"INSERT INTO whole_{format} VALUES (1), (2)")
    assert affected(house, f"DELETE FROM whole_{format} WHERE id > 0") == 2
    assert house.both(f"SELECT * FROM whole_{format}") == []


def test_types_stay_and_what_does_not_fit_is_an_error(house: House) -> None:
    house.done(
        "CREATE TABLE typed USING delta AS SELECT 1 AS id, CAST(1 AS TINYINT) AS small, "
        "CAST(2.50 AS DECIMAL(10,2)) AS price, DATE'1969-12-31' AS day, 'Ünï' AS title, "
        "TIMESTAMP'2020-01-01 00:00:00' AS at, array(1, 2) AS many"
    )
    house.done("UPDATE typed SET price = price * 2, title = 5, day = '2024-02-29', at = now(), many = array(small)")
    (row,) = house.both("SELECT id, small, price, day, title FROM typed")
    assert row == {"id": 1, "small": 1, "price": Decimal("5.00"), "day": dt.date(2024, 2, 29), "title": "5"}
    before = files(house, "typed")
    for value in ("1000", "'no'", "1 / 0"):
        assert house.failed(f"UPDATE typed SET small = {value}") == "STATEMENT_ERROR"
    for dialect in ("hive", "impala"):
        assert house.failed("UPDATE typed SET small = 1000", dialect=dialect) == "STATEMENT_ERROR"
    assert (
        affected(house, "UPDATE typed SET small = 1 / (id - 1) WHERE id <> 1") == 0
    )  # not looked at where it is not set
    assert files(house, "typed") == before
    assert list(house.location("typed").parent.glob("*-rows-*")) == []


def test_a_merge_as_dbt_writes_it(house: House) -> None:
    house.done("CREATE TABLE history (id INT, kind STRING, valid_to TIMESTAMP) USING iceberg")
    house.done("INSERT INTO history VALUES (1, 'a', NULL), (2, 'b', NULL), (3, 'c', TIMESTAMP'2020-01-01 00:00:00')")
    session = Session(ANN, deadline_s=60)
    house.done(
        "CREATE TEMPORARY VIEW changes AS SELECT * FROM (VALUES (1, 'a', 'update'), (3, 'c', 'update'), "
        "(4, 'd', 'insert'), (5, 'e', 'none')) AS v(id, kind, change)",
        session=session,
    )
    merge = (
        "/* {} */ merge into history as d\n using (SELECT *, current_timestamp() AS valid_to FROM changes) as s\n"
        " on s.id = d.id when matched and d.valid_to is null and s.change in ('update', 'delete')\n"
        " then update set valid_to = s.valid_to\n when not matched and s.change = 'insert'\n then insert *\n;"
    )
    counts = {"num_affected_rows": 2, "num_updated_rows": 1, "num_deleted_rows": 0, "num_inserted_rows": 1}
    assert house.done(merge, session=session) == [counts]
    rows = house.both(
        "SELECT id, kind, valid_to IS NULL AS open, year(valid_to) > 2020 AS now FROM history ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows] == [
        (1, "a", False, True),
        (2, "b", True, None),
        (3, "c", False, False),
        (4, "d", False, True),
    ]


def test_columns_whose_names_others_had(house: House) -> None:
    """Spark must not take the statistics of the other column for theirs."""
    house.done("CREATE TABLE renamed (id INT, a INT, b INT, v INT) USING iceberg")
    house.done("INSERT INTO renamed VALUES (1, 1, 100, 10), (2, 2, 200, 20), (3, 3, 300, 30)")
    for old, new in (("a", "x"), ("b", "a"), ("x", "b"), ("v", "was")):
        house.done(f"ALTER TABLE renamed RENAME COLUMN {old} TO {new}")
    house.done("ALTER TABLE renamed ADD COLUMNS (v INT)")
    assert house.both("SELECT id FROM renamed WHERE a >= 200 AND v IS NULL ORDER BY id") == [{"id": 2}, {"id": 3}]
    assert affected(house, "UPDATE renamed SET v = was WHERE v IS NULL AND id = 1") == 1
    merge = (
        "MERGE INTO renamed t USING (SELECT 2 AS id) s ON t.id = s.id AND t.v IS NULL "
        "WHEN MATCHED THEN UPDATE SET v = 5 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    assert affected(house, merge) == 1
    house.done("INSERT OVERWRITE renamed (id, a, b, was, v) SELECT id, a, b, was, v FROM renamed WHERE a > 150")
    assert house.both("SELECT id, a, b, v FROM renamed ORDER BY id") == [
        {"id": 2, "a": 200, "b": 2, "v": 5},
        {"id": 3, "a": 300, "b": 3, "v": None},
    ]
    assert affected(house, "DELETE FROM renamed WHERE v IS NULL") == 1


def test_columns_are_named_with_their_table_and_database(house: House) -> None:
    house.done("CREATE TABLE named USING delta AS SELECT id, 0 AS n FROM range(5)")
    house.done("CREATE TABLE named_source USING delta AS SELECT 2L AS id")
    assert affected(house, "DELETE FROM named WHERE default.named.id = 1") == 1
    assert affected(house, "UPDATE default.named SET n = default.named.id WHERE named.id = 3") == 1
    merge = "MERGE INTO default.named USING named_source ON default.named.id = default.named_source.id"
    assert affected(house, f"{merge} WHEN MATCHED AND spark_catalog.default.named.n = 0 THEN UPDATE SET n = 9") == 1
    rows = house.both("SELECT id, n FROM named ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(0, 0), (2, 9), (3, 3), (4, 0)]


def test_a_row_that_meets_several_is_an_error(house: House) -> None:
    house.done("CREATE TABLE single USING iceberg AS SELECT 1 AS id, 0 AS n")
    using = "MERGE INTO single t USING (VALUES (1, 5), (1, 6), (2, 7), (2, 8)) AS s(id, n) ON s.id = t.id"
    before = files(house, "single")
    assert house.failed(f"{using} WHEN MATCHED THEN UPDATE SET n = s.n") == "MERGE_CARDINALITY_VIOLATION"
    assert house.failed(f"{using} WHEN MATCHED AND s.n = 5 THEN DELETE") == "MERGE_CARDINALITY_VIOLATION"
    assert files(house, "single") == before
    assert affected(house, f"{using} WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *") == 3
    assert house.both("SELECT id, n FROM single ORDER BY n") == [{"id": 2, "n": 7}, {"id": 2, "n": 8}]


def test_whose_tables_can_be_changed(house: House) -> None:
    house.done("CREATE TABLE plain AS SELECT 1 AS a")
    with pytest.raises(NotAllowed, match="USING iceberg"):
        house.ended("DELETE FROM plain")
    house.done("CREATE TABLE anns USING delta AS SELECT 1 AS a", principal=ANN)
    for sql in (
        "DELETE FROM anns",
        "UPDATE anns SET a = 2",
        "MERGE INTO anns USING plain ON 1 = 1 WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(AccessDenied):
            house.ended(sql, principal=BEN)
    assert affected(house, "DELETE FROM anns", principal=ANN) == 1


def test_no_change_is_lost(house: House, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine) -> None:
    """Four clients of two gateways count in one table, while others add rows to it."""
    clients, rounds = 4, 2
    house.done("CREATE TABLE counters USING iceberg AS SELECT 0 AS id, CAST(0 AS BIGINT) AS n")
    conflicts: list[str] = []

    def count(client: int, asked: House) -> None:
        done = 0
        while done < rounds:
            record = asked.ended("UPDATE counters SET n = n + 1 WHERE id = 0")
            if record.error is not None:
                conflicts.append(record.error.code)
            else:
                done += 1
        asked.done(f"INSERT INTO counters VALUES ({client + 1}, 0)")

    home = house.location("counters").parents[1]
    with opened(home, duckdb, spark_engine) as other, ThreadPoolExecutor(clients) as pool:
        list(pool.map(count, range(clients), [house, other] * 2))
        other.gateway.lake.close()
        other.gateway.metastore.close()
    assert set(conflicts) <= {"WRITE_CONFLICT"}
    rows = house.both("SELECT id, n FROM counters ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(0, clients * rounds), (1, 0), (2, 0), (3, 0), (4, 0)]


# ---------------------------------------------------------------------- against a model


@dataclass(frozen=True)
class Condition:
    """A condition of a row (k, v, p), in SQL and in Python; None is unknown."""

    sql: str
    of: Callable[[Row], Truth]


def _compared(value: int | None, test: Callable[[int], bool]) -> Truth:
    return None if value is None else test(value)


CONDITIONS = (
    Condition("t.v > 3", lambda row: _compared(row[1], lambda v: v > 3)),
    Condition("NOT (t.v > 3)", lambda row: _compared(row[1], lambda v: v <= 3)),
    Condition("t.k IS NULL", lambda row: row[0] is None),
    Condition("t.p = 'a'", lambda row: None if row[2] is None else row[2] == "a"),
    Condition("t.k % 2 = 0 AND t.p IS NULL", lambda row: _compared(row[0], lambda k: k % 2 == 0) and row[2] is None),
    Condition("t.k IN (SELECT k FROM odd)", lambda row: _compared(row[0], lambda k: k in (1, 3, 5))),
    Condition(
        "t.k NOT IN (SELECT k FROM odd WHERE k IS NOT NULL)",
        lambda row: _compared(row[0], lambda k: k not in (1, 3, 5)),
    ),
    Condition("EXISTS (SELECT 1 FROM odd WHERE odd.k = t.k)", lambda row: row[0] in (1, 3, 5)),
)


class Model:
    """The rows of the table as they have to be."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def update(self, test: Condition, change: Callable[[Row], Row]) -> int:
        hit = [test.of(row) is True for row in self.rows]
        self.rows = [change(row) if is_hit else row for row, is_hit in zip(self.rows, hit, strict=True)]
        return sum(hit)

    def delete(self, test: Condition) -> int:
        kept = [row for row in self.rows if test.of(row) is not True]
        gone, self.rows = len(self.rows) - len(kept), kept
        return gone

    def merge(self, source: Sequence[Row], gone: Condition) -> tuple[int, int, int] | None:
        """Return rows updated, deleted and inserted; None where a row meets several."""
        meets = [[s for s in source if s[0] is not None and s[0] == row[0]] for row in self.rows]
        if any(len(each) > 1 for each in meets):
            return None
        known = {row[0] for row in self.rows}
        kept: list[Row] = []
        updated = deleted = 0
        for row, found in zip(self.rows, meets, strict=True):
            if found and found[0][1] is not None and row[1] is not None and found[0][1] > row[1]:
                kept.append((row[0], found[0][1], found[0][2]))
                updated += 1
            elif found and found[0][2] == "b":
                deleted += 1
            elif not found and gone.of(row) is True:
                kept.append((row[0], -1, row[2]))
                updated += 1
            else:
                kept.append(row)
        new = [s for s in source if s[1] is not None and (s[0] is None or s[0] not in known)]
        self.rows = kept + new
        return updated, deleted, len(new)


def _literal(value: int | str | None, kind: str) -> str:
    return f"CAST({'NULL' if value is None else repr(value)} AS {kind})"


def _values(rows: Sequence[Row]) -> str:
    return ", ".join(f"({_literal(k, 'INT')}, {_literal(v, 'BIGINT')}, {_literal(p, 'STRING')})" for k, v, p in rows)


def _random_rows(chance: random.Random, count: int) -> list[Row]:
    return [
        (chance.choice((None, *range(8))), chance.choice((None, *range(6))), chance.choice((None, "a", "b", "ü /")))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("seed", "format", "partitioned"),
    [
        (1, "delta", True),
        (2, "iceberg", True),
        pytest.param(3, "delta", False, marks=pytest.mark.thorough),
        pytest.param(4, "iceberg", False, marks=pytest.mark.thorough),
    ],
)
def test_changes_at_random_do_what_a_model_does(house: House, seed: int, format: str, partitioned: bool) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    table = f"model_{seed}"
    partitions = "PARTITIONED BY (p)" if partitioned else ""
    house.done(f"CREATE TABLE {table} (k INT, v BIGINT, p STRING) USING {format} {partitions}")
    house.done("CREATE TABLE IF NOT EXISTS odd AS SELECT * FROM (VALUES (1), (3), (5)) AS v(k)")
    model = Model([])
    for step in range(9):
        if step % 4 == 0:
            new = _random_rows(chance, 6)
            house.done(f"INSERT INTO {table} VALUES {_values(new)}")
            model.rows += new
        test = chance.choice(CONDITIONS)
        kind = chance.choice(("update", "move", "delete", "merge", "merge"))
        if kind == "update":
            sql = f"UPDATE {table} t SET v = v + 1 WHERE {test.sql}"
            count = model.update(test, lambda row: (row[0], None if row[1] is None else row[1] + 1, row[2]))
            assert affected(house, sql) == count, sql
        elif kind == "move":
            sql = f"UPDATE {table} AS t SET p = CASE WHEN p = 'a' THEN NULL ELSE 'a' END, v = NULL WHERE {test.sql}"
            count = model.update(test, lambda row: (row[0], None, None if row[2] == "a" else "a"))
            assert affected(house, sql) == count, sql
        elif kind == "delete":
            sql = f"DELETE FROM {table} t WHERE {test.sql}"
            assert affected(house, sql) == model.delete(test), sql
        else:
            source = _random_rows(chance, 4)
            gone = chance.choice([each for each in CONDITIONS if "SELECT" not in each.sql])
            sql = (
                f"MERGE INTO {table} t USING (SELECT * FROM (VALUES {_values(source)}) AS v(k, v, p)) s ON t.k = s.k "
                "WHEN MATCHED AND s.v > t.v THEN UPDATE SET v = s.v, p = s.p WHEN MATCHED AND s.p = 'b' THEN DELETE "
                "WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT * "
                f"WHEN NOT MATCHED BY SOURCE AND {gone.sql} THEN UPDATE SET v = -1"
            )
            counts = model.merge(source, gone)
            if counts is None:
                assert house.failed(sql) == "MERGE_CARDINALITY_VIOLATION", sql
            else:
                assert list(house.done(sql)[0].values()) == [sum(counts), *counts], sql
        rows = house.done(f"SELECT k, v, p FROM {table}", engine="duckdb")
        assert Counter(tuple(row.values()) for row in rows) == Counter(model.rows), sql
    ordered = house.both(f"SELECT k, v, p FROM {table} ORDER BY k, v, p")
    assert Counter(tuple(row.values()) for row in ordered) == Counter(model.rows)
    assert house.ended("SELECT 1 AS a").state is QueryState.FINISHED
