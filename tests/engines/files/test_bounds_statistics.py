"""Statistics from the bounds in the logs of both formats, beside the rows that the tables have."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.transforms import IdentityTransform

from engines.files.bounds_statistics import bounds_statistics
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.lake.values import At, SnapshotName
from selector.statistics import ColumnStatistics, TableStatistics, as_number
from sql.tables import LAKE_FORMATS, TableSource
from tests.lake_tables import catalog_at, delete_by_vector

FILES, ROWS = 24, 200
SCHEMA = pa.schema(
    [("p", pa.string()), ("i", pa.int32()), ("b", pa.int64()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))]
)


def commits() -> list[pa.Table]:
    """Return the rows of each commit: i rises from file to file, b is anywhere, a tenth of both is NULL."""
    chance = np.random.default_rng(3)
    tables = []
    for at in range(FILES):
        i, b = at * 100 + chance.integers(0, 150, ROWS), chance.integers(-(2**40), 2**40, ROWS)
        empty = chance.random(ROWS) < 0.1
        columns = [
            pa.array([None if at == 5 else f"p{at % 4}"] * ROWS),
            pa.array(i, pa.int32(), mask=empty),
            pa.array(b, mask=empty),
            pa.array(i, pa.int32()).cast(pa.date32()),
            pa.array(b, pa.int64()).cast(pa.timestamp("us", "UTC")),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    return tables


@pytest.fixture(scope="module", params=LAKE_FORMATS)
def statistics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TableStatistics:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "delta":
        for rows in commits():
            write_deltalake(folder / "t", rows, mode="append", partition_by=["p"])
        return described("delta", TablePlace(str(folder / "t")), folder / "m")
    table = catalog_at(folder).create_table("db.t", SCHEMA)
    with table.update_spec() as update:
        update.add_field("p", IdentityTransform())
    for rows in commits():
        table.append(rows)
    return described("iceberg", TablePlace(table.location()), folder / "m")


def described(format: str, place: TablePlace, manifests: Path) -> TableStatistics:
    state = pin_location(format, place, None, manifests)
    found = bounds_statistics(TableSource("t", place.location, format, state.columns, snapshot=state.snapshot))
    assert found is not None
    return found


def everything() -> pa.Table:
    return pa.concat_tables(commits())


def test_counts_and_ends_are_those_of_the_rows(statistics: TableStatistics) -> None:
    rows = everything()
    assert (statistics.rows, statistics.files) == (len(rows), FILES)
    for name, kind in (("i", "int"), ("b", "bigint"), ("d", "date"), ("t", "timestamp")):
        column = statistics.columns[name]
        assert column.nulls == rows[name].null_count
        values = on_line(rows, name)
        millisecond = 1_000.0 if name == "t" else 0.0  # to which Delta's log cuts
        assert column.minimum == pytest.approx(values.min(), abs=millisecond)
        assert column.maximum == pytest.approx(values.max(), abs=millisecond)
        assert column.data_type == kind
        assert column.ndv >= len(np.unique(values))
        assert column.ndv <= len(values)


def test_shares_are_near_those_of_the_rows(statistics: TableStatistics) -> None:
    rows = everything()
    for name in ("i", "b", "d", "t"):
        histogram, values = statistics.columns[name].histogram, on_line(rows, name)
        assert histogram is not None
        for x in np.quantile(values, np.linspace(0.01, 0.99, 40)):
            assert histogram.share_up_to(float(x)) == pytest.approx(float(np.mean(values <= x)), abs=0.03)


def test_partition_columns_are_exact(statistics: TableStatistics) -> None:
    counts = Counter(value for value in everything()["p"].to_pylist() if value is not None)
    column = statistics.columns["p"]
    assert (column.ndv, column.nulls) == (len(counts), ROWS)
    assert column.common is not None
    assert dict(zip(column.common.values.tolist(), column.common.rows.tolist(), strict=True)) == {
        name.encode(): count for name, count in counts.items()
    }
    assert column.histogram is not None
    assert column.histogram.share_up_to(b"p1") == pytest.approx((counts["p0"] + counts["p1"]) / counts.total())
    assert (column.minimum, column.maximum) == ("p0", "p3")


def test_deleted_rows_are_left_out(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"i": pa.array([*range(90), *[None] * 10], pa.int64())}))
    delete_by_vector(tmp_path / "t", list(range(50)))
    found = described("delta", TablePlace(str(tmp_path / "t")), tmp_path / "m")
    assert found.rows == 50
    assert "i" not in found.columns  # a vector's writer leaves the bounds away


def test_a_column_without_bounds_is_left_out(tmp_path: Path) -> None:
    first_alone = {"delta.dataSkippingNumIndexedCols": "1"}
    write_deltalake(tmp_path / "t", pa.table({"i": [1, 2, 3], "j": [1, 2, 3]}), configuration=first_alone)
    found = described("delta", TablePlace(str(tmp_path / "t")), tmp_path / "m")
    assert found.rows == 3
    assert found.columns.keys() == {"i"}
    assert found.columns["i"].ndv == 3.0


def test_all_rows_are_null_or_alike(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array([None] * 4, pa.int32()), "one": pa.array([7] * 4, pa.int64())})
    write_deltalake(tmp_path / "t", rows)
    columns = described("delta", TablePlace(str(tmp_path / "t")), tmp_path / "m").columns
    assert (columns["n"].nulls, columns["n"].ndv) == (4, 0.0)
    assert (columns["one"].ndv, columns["one"].minimum, columns["one"].maximum) == (1.0, 7.0, 7.0)
    assert shares(columns["one"], 6.0, 7.0) == (0.0, 1.0)


def test_distinct_values_are_those_of_the_newest_sketch(tmp_path: Path) -> None:
    rows = pa.table({"name": ["a", "b", "b", None] * 25, "i": list(range(100)), "f": [0.5, 1.5] * 50, "z": [1] * 100})
    table = catalog_at(tmp_path).create_table("db.t", rows.schema)
    table.append(rows)
    first = table.current_snapshot()
    table.append(rows)
    second = table.current_snapshot()
    table.append(rows)
    assert first is not None
    assert second is not None
    with table.update_statistics() as update:
        update.set_statistics(sketches(second.snapshot_id, {1: "2", 2: "40", 3: "2", 4: "9", 99: "5"}))
        update.set_statistics(sketches(first.snapshot_id, {1: "7", 2: "wrong"}))
    columns = described("iceberg", TablePlace(table.location()), tmp_path / "m").columns
    assert {name: (column.ndv, column.nulls) for name, column in columns.items()} == {
        "name": (2.0, 75),
        "i": (40.0, 0),
        "f": (2.0, 0),
        "z": (1.0, 0),  # its bounds are exact
    }
    assert columns["i"].histogram is not None
    assert columns["name"].histogram is None
    earlier = SnapshotName(At.VERSION, str(first.snapshot_id))
    state = pin_location("iceberg", TablePlace(table.location()), earlier, tmp_path / "m")
    old = bounds_statistics(TableSource("t", table.location(), "iceberg", state.columns, snapshot=state.snapshot))
    assert old is not None
    assert old.columns["name"].ndv == 7.0


def sketches(snapshot: int, ndv: dict[int, str]) -> StatisticsFile:
    """Return an entry for a Puffin file as a writer adds it to a table. ndv: of columns, by their ids."""
    blobs = [
        BlobMetadata(
            type="apache-datasketches-theta-v1",
            snapshot_id=snapshot,
            sequence_number=1,
            fields=[column],
            properties={"ndv": number},
        )
        for column, number in ndv.items()
    ]
    return StatisticsFile(
        snapshot_id=snapshot,
        statistics_path="s.puffin",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=blobs,
    )


def test_the_ends_of_types_have_their_place(tmp_path: Path) -> None:
    ends = {
        "b": pa.array([-(2**63), 2**63 - 1]),
        "t": pa.array([-62_135_596_800_000_000, 253_402_300_799_999_999], pa.timestamp("us", "UTC")),
        "m": pa.array([Decimal("-9e34"), Decimal("9e34")], pa.decimal128(38, 2)),
        "d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    }
    table = catalog_at(tmp_path).create_table("db.t", pa.table(ends).schema)
    table.append(pa.table(ends))
    columns = described("iceberg", TablePlace(table.location()), tmp_path / "m").columns
    assert columns.keys() == ends.keys()
    assert (columns["b"].minimum, columns["b"].maximum) == (-(2.0**63), 2.0**63)
    assert (columns["m"].minimum, columns["m"].maximum) == (-9e34, 9e34)
    assert columns["t"].maximum == pytest.approx(253_402_300_799_999_999)
    assert all(column.ndv == 2.0 for column in columns.values())


def shares(column: ColumnStatistics, *places: float) -> tuple[float, ...]:
    assert column.histogram is not None
    return tuple(column.histogram.share_up_to(place) for place in places)


def on_line(rows: pa.Table, name: str) -> np.ndarray:
    kind = {"d": "date", "t": "timestamp"}.get(name, "bigint")
    values = (as_number(value, kind) for value in rows[name].to_pylist() if value is not None)
    return np.array([value for value in values if value is not None])
