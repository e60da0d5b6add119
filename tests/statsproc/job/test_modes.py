"""What an incremental job, a sample, a few columns and join keys do to the statistics in force."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from metastore.discovery.inspection import DEFAULT_PARTITION
from metastore.records import Mode
from selector.join_keys import ColumnRef, KeyPair, KeyStatistics, chance_of
from selector.statistics import TableStatistics
from sql.tables import Column
from statsproc.job.build import MOST_ADDITIONS
from statsproc.sketches.distinct import KEPT
from statsproc.sketches.histogram import POINTS
from statsproc.sketches.join_keys import FEW_ROWS
from statsproc.sketches.table_summary import decode
from tests.statsproc.runs import NOON, Runs
from tests.statsproc.truth import RANK_ERROR, Truth, check_column, check_histogram, line

PART_ROWS = 20_000


def _rows(seed: int, rows: int = PART_ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": random.integers(0, 1 << 40, rows),
            "price": pa.array(random.lognormal(3.0, 1.0, rows).round(2), mask=random.random(rows) < 0.1),
            "quantity": random.zipf(1.5, rows).clip(max=100).astype(np.int32),
            "name": [f"n{n}" for n in random.integers(0, 3000, rows)],
        }
    )


def _check(found: TableStatistics, tables: list[pa.Table]) -> None:
    """Compare with the rows themselves, within what one full computation may be off."""
    whole = pa.concat_tables(tables)
    assert found.rows == whole.num_rows
    for name in whole.column_names:
        values = whole.column(name).to_pylist()
        check_column(
            found.columns[name], line([value.encode() if isinstance(value, str) else value for value in values])
        )


def _untouchable(folder: Path) -> None:
    """Put garbage into files without a trace in size and time: who reads them fails."""
    for path in folder.rglob("*.parquet"):
        stat = path.stat()
        path.write_bytes(b"\xee" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _stored(runs: Runs) -> dict[str, tuple[bytes, int]]:
    return {part.folder: (part.summary, part.rows) for part in runs.store.statistics.parts("t")}


# ---------------------------------------------------------------------- incremental


@pytest.mark.spark
def test_the_life_of_a_partitioned_table(runs: Runs) -> None:
    tables = {day: _rows(day) for day in range(4)}
    for day, table in tables.items():
        runs.write("t", table, f"day={day}/a.parquet")
    runs.register("t")
    _check(runs.incremental("t"), list(tables.values()))  # the first one reads everything

    _untouchable(runs.folder / "t")  # from here on only new files can be read
    again = runs.incremental("t")
    assert again.version == 2
    _check(again, list(tables.values()))

    tables[4] = _rows(4)
    runs.write("t", tables[4], "day=4/a.parquet")
    _check(runs.incremental("t"), list(tables.values()))

    more = _rows(5)
    runs.write("t", more, "day=2/b.parquet")
    found = runs.incremental("t")
    _check(found, [*tables.values(), more])
    days = [float(day) for day in tables for _ in range(PART_ROWS * (2 if day == 2 else 1))]
    check_column(found.columns["day"], line(days))

    for path in (runs.folder / "t" / "day=0").iterdir():
        path.unlink()
    (runs.folder / "t" / "day=0").rmdir()
    del tables[0]
    found = runs.incremental("t")
    _check(found, [*tables.values(), more])
    assert found.columns["day"].ndv == 4
    assert [part.folder for part in runs.store.statistics.part_marks("t")] == ["day=1", "day=2", "day=3", "day=4"]

    tables[1] = _rows(6)
    runs.write("t", tables[1], "day=1/a.parquet")  # changed in place
    _check(runs.incremental("t"), [*tables.values(), more])

    tables[2] = _rows(7)
    runs.write("t", tables[2], "day=2/a.parquet")  # one changed, one went: the partition is read anew
    (runs.folder / "t" / "day=2" / "b.parquet").unlink()
    found = runs.incremental("t")
    _check(found, list(tables.values()))
    assert (found.files, found.bytes) == (4, sum(f.stat().st_size for f in (runs.folder / "t").rglob("*.parquet")))
    assert found.row_group_rows == PART_ROWS


@pytest.mark.spark
def test_merged_statistics_are_as_good_as_a_full_computation(runs: Runs) -> None:
    tables = [_rows(day, 3_000) for day in range(24)]
    for day, table in enumerate(tables[:12]):
        runs.write("t", table, f"day={day}/a.parquet")
    runs.register("t")
    runs.statistics("t")
    for day in range(12, 24):
        runs.write("t", tables[day], f"day={day}/a.parquet")
    merged = runs.incremental("t")
    _check(merged, tables)
    full = runs.statistics("t")
    for name, column in full.columns.items():
        other = merged.columns[name]
        assert (other.nulls, other.minimum, other.maximum) == (column.nulls, column.minimum, column.maximum)
        assert other.ndv == pytest.approx(column.ndv, rel=1e-9)
        assert (other.average_length, other.maximum_length) == (column.average_length, column.maximum_length)
    assert (merged.rows, merged.bytes, merged.files) == (full.rows, full.bytes, full.files)


@pytest.mark.spark
def test_an_incremental_job_that_is_confined(runs: Runs) -> None:
    for day in range(3):
        runs.write("t", _rows(day, 1000), f"day={day}/a.parquet")
    runs.register("t")
    first = runs.incremental("t", partitions=("day=1",))
    assert [part.folder for part in runs.store.statistics.part_marks("t")] == ["day=1"]
    assert first.share == pytest.approx(1 / 3, rel=0.02)  # by bytes: the others were never read
    assert first.rows == pytest.approx(3000, rel=0.02)
    assert first.notes == (f"{first.share:.1%} of the table was read; counts are scaled up from it",)
    runs.run("t", mode=Mode.INCREMENTAL, partitions=("day=7",))
    assert runs.errors == {"t": "t has no partition day=7"}
    assert runs.current("t").version == first.version
    runs.incremental("t")
    for day in (0, 2):
        runs.write("t", _rows(day + 10, 500), f"day={day}/b.parquet")
    second = runs.incremental("t", partitions=("day=2",))
    assert (second.rows, second.share, second.notes) == (3500, 1.0, ())
    assert runs.incremental("t").rows == 4000


@pytest.mark.spark
@pytest.mark.parametrize("format", ["csv", "json", "orc"])
def test_incremental_in_other_formats(runs: Runs, format: str) -> None:
    def write(day: int) -> None:
        rows = runs.spark.range(day * 1000, day * 1000 + 1000).selectExpr("id AS n", "concat('s', id % 7) AS s")
        rows.coalesce(1).write.format(format).save(str(runs.folder / "t" / f"day={day}"))

    for day in range(2):
        write(day)
    columns = [Column("n", "bigint"), Column("s", "string")]
    runs.register("t", columns=columns, format=format)
    runs.statistics("t")
    write(2)
    found = runs.incremental("t")
    check_column(found.columns["n"], line([float(n) for n in range(3000)]))
    check_column(found.columns["s"], line([b"s%d" % (n % 7) for n in range(3000)]))
    check_column(found.columns["day"], line([float(n // 1000) for n in range(3000)]))


@pytest.mark.spark
def test_a_partition_that_was_added_to_often_is_read_anew(runs: Runs) -> None:
    """Each addition makes its summary a little less exact; the other partition stays as it is."""
    tables = [_rows(0, 100)]
    runs.write("t", tables[0], "day=0/a.parquet")
    runs.write("t", tables[0], "day=1/0.parquet")
    runs.register("t")
    runs.statistics("t")
    _untouchable(runs.folder / "t" / "day=0")
    for number in range(1, MOST_ADDITIONS + 2):
        tables.append(_rows(number, 100))
        runs.write("t", tables[-1], f"day=1/{number}.parquet")
        found = runs.incremental("t")
        additions = [decode(part.summary).additions for part in runs.store.statistics.parts("t")]
        assert additions == [0, number if number <= MOST_ADDITIONS else 0]
    _check(found, [tables[0], *tables])


# ---------------------------------------------------------------------- folders that hold values


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_columns_in_folder_names(runs: Runs, format: str) -> None:
    days = ["2024-02-29", "1969-12-31", DEFAULT_PARTITION]
    words = {"a b": "a b", "x%3Dy%2Fz": "x=y/z", "é": "é", "100%25": "100%"}
    rows = 0
    truth: dict[str, list[object]] = {"number": [], "day": [], "moment": [], "word": [], "amount": []}
    for number, (day, (folder, word)) in enumerate((day, item) for day in days for item in words.items()):
        some = number + 1
        place = f"number={number}/day={day}/moment=2024-01-01 00%3A00%3A0{number % 10}/word={folder}/amount={number}.50"
        path = runs.folder / "t" / place
        path.mkdir(parents=True)
        if format == "csv":
            (path / "a.csv").write_text("".join(f"{n}\n" for n in range(rows, rows + some)))
        else:
            runs.write("t", pa.table({"n": range(rows, rows + some)}), f"{place}/a.parquet")
        rows += some
        truth["number"] += [float(number)] * some
        truth["day"] += [None if day == DEFAULT_PARTITION else float(np.datetime64(day).astype(int))] * some
        moment = np.datetime64(f"2024-01-01T00:00:0{number % 10}", "us")
        truth["moment"] += [float(moment.astype(int))] * some
        truth["word"] += [word.encode()] * some
        truth["amount"] += [number + 0.5] * some
    columns = [
        Column("n", "bigint"), Column("number", "int"), Column("day", "date"), Column("moment", "timestamp"),
        Column("word", "string"), Column("amount", "decimal(10,2)"),
    ]  # fmt: skip
    runs.register("t", columns=columns, format=format)
    found = runs.statistics("t")
    assert found.rows == rows
    check_column(found.columns["n"], line([float(n) for n in range(rows)]))
    for name, values in truth.items():
        check_column(found.columns[name], line(values))
    assert found.sample is not None
    assert sorted(found.sample.columns["word"].rows) == sorted(word.decode() for word in truth["word"])  # type: ignore[attr-defined]
    assert found.sample.columns["day"].nulls.sum() == sum(day is None for day in truth["day"])


# ---------------------------------------------------------------------- a share, a few columns


@pytest.mark.spark
def test_a_sample(runs: Runs) -> None:
    tables = [_rows(seed) for seed in range(10)]
    for number, table in enumerate(tables):
        runs.write("t", table, f"{number}.parquet", row_group_size=2_000)
    runs.register("t")
    found = runs.statistics("t", Mode.SAMPLE, share=0.2)
    rows = 10 * PART_ROWS
    assert found.share == pytest.approx(0.2, abs=0.01)
    assert found.rows == rows
    assert found.notes == ("20.0% of the table was read; counts are scaled up from it",)
    whole = pa.concat_tables(tables)
    price = found.columns["price"]
    nulls = whole.column("price").null_count
    assert price.nulls == pytest.approx(nulls, rel=0.05)
    ordered = np.sort(np.array(whole.column("price").drop_null()))
    check_histogram(price, ordered, rank_error=0.015)
    assert found.columns["id"].ndv == pytest.approx(rows, rel=0.1)
    assert found.columns["name"].ndv == 3000
    assert found.columns["quantity"].common is not None
    top = found.columns["quantity"].common
    assert top.rows[0] == pytest.approx(np.count_nonzero(np.array(whole.column("quantity")) == 1), rel=0.03)
    assert found.sample is not None
    assert found.sample.share == pytest.approx(found.sample.rows / rows, rel=0.05)
    assert runs.store.statistics.parts("t") == ()  # nothing that an incremental job could go on from
    assert runs.incremental("t").share == 1.0


@pytest.mark.spark
def test_a_sample_of_text_is_one_of_files(runs: Runs) -> None:
    (runs.folder / "t").mkdir()
    for number in range(20):
        (runs.folder / "t" / f"{number}.csv").write_text("".join(f"{number * 100 + n},x\n" for n in range(100, 200)))
    runs.register("t")
    found = runs.statistics("t", Mode.SAMPLE, share=0.25)
    assert found.share == pytest.approx(8 / 20, abs=0.01)  # a quarter would be five files: at least eight are read
    assert found.rows == pytest.approx(2000, rel=0.02)


@pytest.mark.spark
def test_a_sample_knows_all_partitions(runs: Runs) -> None:
    """Their values stand in the folders' names, though only some folders are read."""
    days, share = 40, 0.25
    for day in range(days):
        runs.write("t", pa.table({"n": range(day * 100, day * 100 + 100)}), f"day={day}/a.parquet")
    runs.register("t")
    found = runs.statistics("t", Mode.SAMPLE, share=share)
    assert found.share == pytest.approx(share)
    day_column = found.columns["day"]
    assert (day_column.ndv, day_column.nulls, day_column.minimum, day_column.maximum) == (days, 0, 0.0, days - 1.0)
    assert day_column.histogram is not None
    assert day_column.histogram.share_below(days / 2) == pytest.approx(0.5, abs=0.01)
    assert found.columns["n"].ndv == days * 100  # each read once, and all of them unique: not only those in its range


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "options"),
    [(Mode.SAMPLE, {"share": 0.5}), (Mode.FULL, {"columns": ("price",)})],
    ids=["sample", "columns"],
)
def test_what_reads_a_part_only_keeps_the_stored_summaries(runs: Runs, mode: Mode, options: dict[str, object]) -> None:
    tables = [_rows(day, 1000) for day in range(10)]
    for day, table in enumerate(tables[:9]):
        runs.write("t", table, f"day={day}/a.parquet")
    runs.register("t")
    runs.statistics("t")
    stored = _stored(runs)
    assert len(stored) == 9
    runs.statistics("t", mode, **options)
    assert _stored(runs) == stored
    _untouchable(runs.folder / "t")
    runs.write("t", tables[9], "day=9/a.parquet")
    _check(runs.incremental("t"), tables)


@pytest.mark.spark
def test_statistics_of_a_few_columns(runs: Runs) -> None:
    runs.write("t", _rows(1, 1000))
    runs.write("u", _rows(1, 1000))
    runs.register("t")
    runs.register("u")
    runs.store.keys.learn([KeyPair.of(ColumnRef("t", "id"), ColumnRef("u", "id"))], source="declared", at=NOON)
    runs.run("t", "u")
    first = runs.current("t")
    assert set(first.keys) == {"id"}
    other = _rows(2, 3000)
    runs.write("t", other)
    found = runs.statistics("t", columns=("PRICE", "name"))
    assert (found.rows, list(found.columns)) == (3000, ["id", "price", "quantity", "name"])
    price = line(other.column("price").to_pylist())
    check_column(found.columns["price"], price)
    assert found.columns["id"].ndv == first.columns["id"].ndv
    assert set(found.keys) == {"id"}
    runs.run("t", columns=("nobody",))
    assert runs.errors["t"] == "t has no column nobody: it has id, name, price, quantity"
    assert runs.current("t").version == found.version
    _check(runs.incremental("t"), [other])


# ---------------------------------------------------------------------- join keys


def _check_keys(found: TableStatistics, column: str, values: Sequence[int | None]) -> None:
    key = found.keys[column]
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    bins = key.bins.of(known)
    np.testing.assert_array_equal(key.rows, np.bincount(bins, minlength=key.bins.count))
    for at in range(key.bins.count):
        inside = known[bins == at]
        different, held = np.unique(inside, return_counts=True)
        assert key.ndv[at] == different.size
        assert key.largest[at] == (held.max() if held.size else 0)


def _check_sample(key: KeyStatistics, values: Sequence[int | None], parts: NDArray[np.int_]) -> None:
    """Of each key that is in its sample all rows are there, with the folder that they lie in; NULL is not in it."""
    assert key.sample is not None
    rows = key.sample.rows
    assert set(rows.columns) == {"customer", "kind", "day", "part"}
    found = rows.columns["customer"].rows.astype(float)
    assert not rows.columns["customer"].nulls.any()
    there = np.unique(found)
    line = np.array([np.nan if value is None else value for value in values])
    chosen = np.isin(line, there)
    assert sorted(zip(found, rows.columns["part"].rows, strict=True)) == sorted(
        zip(line[chosen], parts[chosen].astype(float), strict=True)
    )
    light = there[~key.bins.alone[key.bins.of(there)]]
    assert (chance_of(light) < key.sample.share).all()
    popular = np.unique(line[~np.isnan(line)], return_counts=True)
    for place, held in zip(*popular, strict=True):
        if key.bins.alone[key.bins.of(np.array([place]))[0]]:
            assert (place in there) == (held <= FEW_ROWS)
        else:
            assert (place in there) == (chance_of(np.array([place]))[0] < key.sample.share)


@pytest.mark.spark
def test_join_keys_share_their_bins(runs: Runs) -> None:
    random = np.random.default_rng(1)
    customers = list(range(2_000))
    sales: list[int | None] = [None if n % 50 == 0 else int(n) for n in random.zipf(1.4, 30_000).clip(max=1999)]
    kinds = [f"k{(n or 0) % 5}" for n in sales]
    runs.write("customers", pa.table({"id": pa.array(customers, pa.int32())}))
    table = pa.table({"customer": sales, "kind": kinds, "day": random.integers(0, 300, len(sales))})
    for part in range(3):
        runs.write("sales", table.slice(part * 10_000, 10_000), f"part={part}/a.parquet")
    for name in ("customers", "sales"):
        runs.register(name)
    pair = KeyPair.of(ColumnRef("customers", "id"), ColumnRef("sales", "customer"))
    assert runs.store.keys.learn([pair], source="workload", at=NOON) == 1
    runs.run("customers", "sales")
    assert runs.errors == {}
    buyers, bought = runs.current("customers").keys["id"], runs.current("sales").keys["customer"]
    assert (buyers.bins.group, buyers.bins.version) == (bought.bins.group, bought.bins.version) == ("customers.id", 1)
    np.testing.assert_array_equal(buyers.bins.starts, bought.bins.starts)
    _check_keys(runs.current("customers"), "id", customers)
    _check_keys(runs.current("sales"), "customer", sales)
    joined = float(np.sum(buyers.rows * bought.rows / np.maximum(np.maximum(buyers.ndv, bought.ndv), 1)))
    assert joined == pytest.approx(sum(n is not None for n in sales), rel=0.001)
    assert buyers.sample is None  # the table's own sample has all rows
    assert bought.sample is not None
    _check_sample(bought, sales, np.repeat([0, 1, 2], 10_000))

    more = [5] * 1_000
    new = pa.table({"customer": more, "kind": ["k0"] * 1_000, "day": [1] * 1_000})
    runs.write("sales", new, "part=3/a.parquet")
    later = runs.incremental("sales").keys["customer"]
    assert later.bins.version == 1
    _check_keys(runs.current("sales"), "customer", [*sales, *more])
    _check_sample(later, [*sales, *more], np.append(np.repeat([0, 1, 2], 10_000), [3] * len(more)))
    assert runs.current("sales").notes == ()

    # A new pair: an incremental job goes on with the cut that it has, a full one learns it.
    runs.store.keys.learn(
        [KeyPair.of(ColumnRef("customers", "id"), ColumnRef("sales", "day"))], source="history", at=NOON
    )
    assert set(runs.incremental("sales").keys) == {"customer"}
    runs.run("customers", "sales")
    assert set(runs.current("sales").keys) == {"customer", "day"}
    assert {key.bins.version for key in runs.current("sales").keys.values()} == {2}
    _check_keys(runs.current("sales"), "customer", [*sales, *more])


@pytest.mark.spark
def test_a_table_that_outgrows_its_sample_has_rows_chosen_by_its_keys(runs: Runs) -> None:
    random = np.random.default_rng(2)
    values: list[int | None] = [None if n % 9 == 0 else int(n) for n in random.integers(0, 8_000, 35_000)]
    table = pa.table({"customer": values, "kind": [f"k{n}" for n in range(len(values))], "day": range(len(values))})
    runs.write("sales", table.slice(0, 5_000), "part=0/a.parquet")
    runs.register("sales")
    pairs = [(ColumnRef("sales", name), ColumnRef("sales", name)) for name in ("customer", "day")]
    runs.store.keys.learn([KeyPair.of(*pairs[0]), KeyPair.together(pairs)], source="workload", at=NOON)
    small = runs.statistics("sales")
    assert small.sample is not None
    assert (small.sample.rows, small.sample.share) == (5_000, 1.0)
    assert set(small.keys) == {"customer", "customer,day"}
    assert [key.sample for key in small.keys.values()] == [None, None]
    runs.write("sales", table.slice(5_000), "part=1/a.parquet")
    large = runs.incremental("sales")
    assert large.sample is not None
    assert large.sample.share < 1.0
    _check_sample(large.keys["customer"], values, np.repeat([0, 1], [5_000, 30_000]))
    both = large.keys["customer,day"]
    assert both.rows.sum() == sum(value is not None for value in values)
    assert both.sample is not None
    days = both.sample.rows.columns["day"].rows.astype(int)
    assert [values[day] for day in days] == both.sample.rows.columns["customer"].rows.tolist()
    assert days.size == pytest.approx(both.sample.share * both.rows.sum(), abs=5 * np.sqrt(days.size))


@pytest.mark.spark
def test_keys_learned_after_the_first_build_need_a_full_one(runs: Runs) -> None:
    for name in ("a", "b"):
        for part in range(2):
            runs.write(name, pa.table({"k": range(100), "v": range(100)}), f"part={part}/a.parquet")
        runs.register(name)
    runs.run("a", "b")
    runs.store.keys.learn([KeyPair.of(ColumnRef("a", "k"), ColumnRef("b", "k"))], source="history", at=NOON)
    runs.write("a", pa.table({"k": range(100), "v": range(100)}), "part=2/a.parquet")
    found = runs.incremental("a")
    assert found.keys == {}
    assert found.notes == ("key statistics of k need a full computation",)
    assert found.rows == 300
    full = runs.statistics("a")
    assert (set(full.keys), full.notes) == ({"k"}, ())


@pytest.mark.spark
def test_keys_that_are_strings_missing_or_null(runs: Runs) -> None:
    runs.write("a", pa.table({"k": [f"key {n % 50}" for n in range(1000)]}))
    runs.write("b", pa.table({"k": pa.array([f"key {n}" for n in range(50)]).dictionary_encode(), "n": range(50)}))
    runs.write("c", pa.table({"k": pa.nulls(20, pa.string()), "n": range(20)}))
    for name in ("a", "b", "c"):
        runs.register(name)
    runs.write("b", pa.table({"n": range(50, 60)}), "b.parquet")  # without the key
    pairs = [KeyPair.of(ColumnRef("a", "k"), ColumnRef(other, "k")) for other in ("b", "c")]
    pairs += [KeyPair.of(ColumnRef("b", "n"), ColumnRef("c", "n"))]
    runs.store.keys.learn(pairs, source="declared", at=NOON)
    runs.run("a", "b", "c")
    assert runs.errors == {}
    a, b, c = (runs.current(name).keys["k"] for name in ("a", "b", "c"))
    assert (a.rows.sum(), b.rows.sum(), c.rows.sum()) == (1000, 50, 0)
    assert (a.ndv.sum(), b.ndv.sum(), c.ndv.sum()) == (50, 50, 0)
    assert np.sum(a.rows * b.rows / np.maximum(np.maximum(a.ndv, b.ndv), 1)) == pytest.approx(1000)


def test_the_errors_that_are_stated() -> None:
    """The checks above rely on them."""
    assert RANK_ERROR == 1 / POINTS
    assert KEPT > 3_000
    assert Truth(2, [float("nan"), float("nan")]).ndv == 1
