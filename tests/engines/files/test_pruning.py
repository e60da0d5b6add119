"""Files that are left out hold no row of an answer: random tables in both formats, and random conditions."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.transforms import DayTransform, IdentityTransform

from engines.files.bounds_statistics import bounds_statistics
from engines.files.manifest import Manifest, SnapshotFile, read_manifest
from engines.files.pruning import Bounds, pruned
from engines.files.ranges import ColumnRange, ranges_of
from metastore.lake.place import TablePlace
from metastore.lake.resolution import PinnedState, pin_location
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import LAKE_FORMATS, Column, Snapshot, TableSource
from tests.lake_tables import catalog_at

FILES, ROWS = 40, 12
SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("i", pa.int32()),
        ("b", pa.int64()),
        ("m", pa.decimal128(38, 4)),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("f", pa.float64()),
    ]
)
COLUMNS = tuple(
    Column(name, kind)
    for name, kind in zip(
        SCHEMA.names, ("string", "int", "bigint", "decimal(38,4)", "date", "timestamp", "string", "double"), strict=True
    )
)
TABLE = TableSource("t", "/t", "delta", COLUMNS)
MOMENT = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
LONG = "wide ü text that formats cut "


def rows_of(chance: random.Random) -> pa.Table:
    at = chance.randrange(-50, 50)

    def some(value: object) -> object:
        return None if chance.random() < 0.1 else value

    values = [
        {
            "p": f"p{at % 5}" if at % 7 else None,
            "i": some(at + chance.randrange(5)),
            "b": some((at << 40) + chance.randrange(5)),
            "m": some(Decimal(at * 10_000 + chance.randrange(50_000)).scaleb(-4)),
            "d": some(dt.date(1970, 1, 1) + dt.timedelta(days=at * 100 + chance.randrange(50))),
            "t": some(MOMENT + dt.timedelta(days=at, microseconds=chance.randrange(9**9))),
            "s": some(f"{LONG * chance.randrange(3)}{chr(200 + at)}{chance.randrange(9)}"),
            "f": some(chance.choice([float("nan"), at + 0.5])),
        }
        for _ in range(ROWS)
    ]
    return pa.Table.from_pylist(values, SCHEMA)


@pytest.fixture(scope="module", params=LAKE_FORMATS)
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PinnedState:
    folder = tmp_path_factory.mktemp(request.param)
    chance = random.Random(7)  # noqa: S311
    if request.param == "delta":
        for _ in range(FILES):
            write_deltalake(folder / "t", rows_of(chance), mode="append", partition_by=["p"])
        return pin_location("delta", TablePlace(str(folder / "t")), None, folder / "m")
    table = catalog_at(folder).create_table("db.t", SCHEMA)
    with table.update_spec() as update:
        update.add_field("p", IdentityTransform()).add_field("t", DayTransform(), "day")
    for _ in range(FILES // 4):
        table.append(rows_of(chance))
    return pin_location("iceberg", TablePlace(table.location()), None, folder / "m")


def checked(condition: str) -> CheckedStatement:
    return check(f"SELECT * FROM t WHERE {condition}", "spark", catalog={"t": TABLE}, limits=ParserLimits())


def random_condition(chance: random.Random) -> str:
    at = chance.randrange(-60, 60)
    value = {
        "p": f"'p{at % 6}'",
        "i": chance.choice([str(at), f"{at}.5"]),
        "b": str(at << 40),
        "m": chance.choice([f"{at}.25", str(at), f"{'9' * 34}"]),
        "d": chance.choice(["", "DATE "]) + f"'{dt.date(1970, 1, 1) + dt.timedelta(days=at * 100)}'",
        "t": f"TIMESTAMP '{dt.datetime(2000, 1, 1) + dt.timedelta(days=at, seconds=at)}'",
        "s": f"'{LONG * chance.randrange(3)}{chr(200 + at)}'",
    }
    column = chance.choice(list(value))
    match chance.randrange(5):
        case 0:
            return f"{column} {chance.choice(['=', '<', '<=', '>', '>='])} {value[column]}"
        case 1:
            return f"{value[column]} {chance.choice(['=', '<', '<=', '>', '>='])} {column}"
        case 2:
            return f"{column} BETWEEN {value[column]} AND {value[column]}"
        case 3:
            return f"{column} IN ({value[column]}, {value[column]})"
        case _:
            return f"{random_condition(chance)} AND {random_condition(chance)}"


def test_no_row_is_lost(state: PinnedState) -> None:
    chance = random.Random(11)  # noqa: S311
    everything = read_manifest(state.snapshot.manifest)
    tables = {file.path: pq.read_table(file.path) for file in everything.files}
    left_out = 0
    duckdb.execute("SET TimeZone = 'UTC'")
    for _ in range(150):
        condition = random_condition(chance)
        readings = ranges_of(checked(condition).tree, [TABLE])["t"]
        kept = read_manifest(pruned(state.snapshot.manifest, readings, least_files=1))
        paths = {file.path for file in kept.files}
        assert paths <= {file.path for file in everything.files}
        for file in everything.files:
            if file.path not in paths:
                left_out += 1
                rows = tables[file.path]  # noqa: F841 - the query's
                columns = ", ".join(f"'{value}' AS {name}" for name, value in file.constants.items() if value)
                unknown = ", ".join(f"NULL AS {name}" for name, value in file.constants.items() if value is None)
                both = ", ".join(part for part in ("*", columns, unknown) if part)
                counting = f"SELECT count(*) FROM (SELECT {both} FROM rows) WHERE {condition}"
                assert duckdb.execute(counting).fetchone() == (0,), (condition, file.path)
    assert left_out > 50 * len(everything.files)


def test_a_column_named_as_a_field_of_another_one(tmp_path: Path) -> None:
    for number in range(3):
        rows = pa.table({"a": [{"b": number}], "a.b": [10 - number], "c": [{"d": number}]})
        write_deltalake(tmp_path / "t", rows, mode="append")
    manifest = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m").snapshot.manifest
    for name, value, files in (("a.b", 9, 1), ("a.b", 1, 0), ("c.d", 1, 3)):
        readings = ((ColumnRange(name, Decimal(value), Decimal(value)),),)
        assert len(read_manifest(pruned(manifest, readings, least_files=1)).files) == files


@pytest.mark.parametrize(
    "condition",
    [
        "f > 1",
        "i = 1 OR d = '2020-01-01'",
        "NOT i = 1",
        "i <=> 1",
        "i + 1 = 2",
        "i = '1'",
        "s = 1",
        "i IS NULL",
        "d = current_date()",
        "d = TIMESTAMP '2020-01-01 00:00:00'",
        "i IN (SELECT i FROM t WHERE true)",
        "i = 1e0",
    ],
)
def test_what_is_not_certain_leaves_all_files(condition: str) -> None:
    assert not ranges_of(checked(condition).tree, [TABLE])


@pytest.mark.parametrize(
    ("sql", "ranges"),
    [
        ("SELECT 1 FROM t a, u b WHERE a.i = 1 AND b.k = 2", {"t": [("i", 1, 1)], "u": [("k", 2, 2)]}),
        ("SELECT 1 FROM t, u WHERE k = 2 AND p = 'x'", {"t": [("p", "x", "x")], "u": [("k", 2, 2)]}),
        ("SELECT 1 FROM t, u WHERE i = 2", {}),  # both have it
        ("SELECT 1 FROM t LEFT JOIN u ON t.i = u.i AND u.k = 1", {}),
        ("SELECT 1 FROM t JOIN u ON t.i = u.i AND u.k > 1", {"u": [("k", 1, None)]}),
        ("SELECT 1 FROM t LEFT JOIN u ON t.i = u.i WHERE u.k < 9", {"u": [("k", None, 9)]}),
        ("SELECT 1 FROM (SELECT * FROM t WHERE i > 3) AS x WHERE x.i = 5", {"t": [("i", 3, None)]}),
        ("SELECT 1 FROM t WHERE i = 1 UNION ALL SELECT 1 FROM t", {}),
        (
            "SELECT 1 FROM t WHERE i = 1 AND EXISTS (SELECT 1 FROM u WHERE u.k = 4 AND u.i = t.i)",
            {"t": [("i", 1, 1)], "u": [("k", 4, 4)]},
        ),
        ("SELECT 1 FROM u WHERE u.v = 'x'", {"u": [("v", "x", "x")]}),
        ("SELECT 1 FROM t AS x(i, p, b, m, d, t, s, f) WHERE x.i = 1", {}),
        ("SELECT 1 FROM t JOIN u AS x(k, i) ON t.i = x.k AND x.i = 1 AND t.b > 2", {"t": [("b", 2, None)]}),
        ("WITH u AS (SELECT * FROM t WHERE i = 1) SELECT * FROM u WHERE u.b = 2", {"t": [("i", 1, 1)]}),
    ],
)
def test_each_use_of_a_table_counts(sql: str, ranges: dict[str, list[tuple[str, object, object]]]) -> None:
    other = TableSource("u", "/u", "delta", (Column("i", "int"), Column("k", "int"), Column("v", "varchar(3)")))
    tables = {"t": TABLE, "u": other}
    statement = check(sql, "spark", catalog=tables, limits=ParserLimits())
    found = ranges_of(statement.tree, statement.tables)
    expected = {name: (tuple(ColumnRange(*one) for one in some),) for name, some in ranges.items()}  # type: ignore[arg-type]
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "damaged", "value"),
    [
        (pa.int32(), b"", 5),
        (pa.int32(), b"\xff" * 8, 5),
        (pa.int64(), b"\x01" * 9, 5),
        (pa.int64(), b"\x01", 5),
        (pa.date32(), b"\x01" * 12, dt.date(2000, 1, 1)),
        (pa.timestamp("us"), b"", dt.datetime(2000, 1, 1)),
        (pa.decimal128(4, 2), b"\x7f" * 16, Decimal(5)),
        (pa.decimal128(4, 2), b"\x7f" * 40, Decimal(5)),
        (pa.decimal128(4, 2), b"", Decimal(5)),
        (pa.string(), b"\xff", "a"),
    ],
)
def test_damaged_bounds_leave_no_file_out(tmp_path: Path, kind: pa.DataType, damaged: bytes, value: Any) -> None:
    manifest = tmp_path / "m.arrow"
    files = tuple(SnapshotFile(f"/{name}", 1, 5, {}) for name in "ab")
    bounds = Bounds(pa.array([damaged] * 2, pa.binary()), pa.array([damaged] * 2, pa.binary()), kind)
    Manifest((), files, {"c": replace(bounds, nulls=pa.array([0, 0], pa.int64()))}).write(manifest)
    kept = read_manifest(pruned(str(manifest), [(ColumnRange("c", value, value),)], least_files=1))
    assert [file.path for file in kept.files] == ["/a", "/b"]
    source = TableSource("t", "/t", "iceberg", (Column("c", "int"),))
    statistics = bounds_statistics(replace(source, snapshot=Snapshot("1", str(manifest), 10, "/t", 2, 2)))
    assert statistics is not None
    assert (statistics.rows, statistics.columns) == (10, {})
