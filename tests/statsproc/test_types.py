"""All of Spark's atomic types, from the writers that a warehouse meets, against what Spark SQL and DuckDB read."""

from __future__ import annotations

import datetime as dt
import gzip
import resource
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc as pa_orc
import pytest

from sql.tables import Column
from statsproc.sketches.table_summary import LEAST
from tests.statsproc.runs import Runs
from tests.statsproc.truth import Truth, check_column, check_histogram, line, truths_of

ROWS = 6_000
FOREIGN_ROWS = 3_000

# Every seventh row is NULL everywhere; k is a permutation, so that nothing is in order.
_EVERYTHING = """
SELECT
  CASE WHEN n % 7 > 0 THEN k % 3 = 0 END AS flag,
  CASE WHEN n % 7 > 0 THEN cast(k % 256 - 128 AS tinyint) END AS tiny,
  CASE WHEN n % 7 > 0 THEN cast(k * 10 - 32768 AS smallint) END AS small,
  CASE WHEN n % 7 > 0 THEN cast(k * 700001 - 2147483648 AS int) END AS number,
  CASE WHEN n % 7 > 0 THEN k * 1500000000000000 - 9223372036854775807 END AS big,
  CASE WHEN n % 7 > 0 THEN CASE k % 50 WHEN 0 THEN float('NaN') WHEN 1 THEN float('inf') WHEN 2 THEN float('-inf')
    WHEN 3 THEN float(-0.0) WHEN 4 THEN float(0) ELSE float(k / 8 - 300) END END AS single,
  CASE WHEN n % 7 > 0 THEN CASE k % 50 WHEN 0 THEN double('NaN') WHEN 1 THEN double('inf') WHEN 2 THEN double('-inf')
    WHEN 3 THEN double('-0.0') WHEN 4 THEN 0D ELSE exp(k / 200D) - 1e6D END END AS real,
  CASE WHEN n % 7 > 0 THEN cast(k * 3.07 - 9000 AS decimal(9,2)) END AS cents,
  CASE WHEN n % 7 > 0 THEN cast(k * 10000000000.1234 - 3e13 AS decimal(18,4)) END AS sums,
  CASE WHEN n % 7 > 0 THEN cast(k - 3000 AS decimal(38,0))
    * cast('16666666666666666666666666666666666' AS decimal(38,0)) END AS widest,
  CASE WHEN n % 7 > 0 THEN cast((k - 3000) * 1234567.0123456789 AS decimal(38,10)) END AS wide,
  CASE WHEN n % 7 > 0 THEN date_add(DATE'1970-01-01', cast(k * 150 - 719000 AS int)) END AS day,
  CASE WHEN n % 7 > 0 THEN timestamp_micros(k * 12345678901 - 30000000000000) END AS moment,
  CASE WHEN n % 7 > 0 THEN cast(timestamp_micros(k * 12345678901 - 30000000000000) AS timestamp_ntz) END AS clock,
  CASE WHEN n % 7 > 0 THEN concat('name ', k % 900, elt(1 + k % 3, 'é', '😀', '')) END AS name,
  CASE WHEN n % 7 > 0 THEN cast(concat('v', k % 40) AS varchar(20)) END AS short,
  CASE WHEN n % 7 > 0 THEN cast(concat('c', k % 5) AS char(5)) END AS fixed,
  CASE WHEN n % 7 > 0 THEN cast(unhex(right(concat('00', hex(k % 256)), 2)) AS binary) END AS bytes,
  cast(NULL AS int) AS nothing,
  cast(NULL AS string) AS nowhere,
  'one' AS one,
  7 AS seven
FROM (SELECT id AS n, (id * 4001) % {rows} AS k FROM range({rows}))
"""


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_types_as_spark_writes_them(runs: Runs, format: str) -> None:
    rows = runs.spark.sql(_EVERYTHING.format(rows=ROWS)).repartition(3)
    rows.write.format(format).save(str(runs.folder / "t"))
    runs.register("t")
    found = runs.statistics("t")
    there = runs.spark.read.format(format).load(str(runs.folder / "t"))
    assert (found.rows, found.files, found.share, found.notes) == (ROWS, 3, 1.0, ())
    assert list(found.columns) == there.columns
    for name, truth in truths_of(there).items():
        check_column(found.columns[name], truth)


# ---------------------------------------------------------------------- other writers


def _foreign() -> dict[str, tuple[pa.Array, Truth]]:
    """Give columns as pyarrow writes them, and where their values lie on the line of the type in the catalog."""
    base = [None if n % 7 == 0 else (n * 4001) % FOREIGN_ROWS for n in range(FOREIGN_ROWS)]

    def column(arrow: pa.DataType, make: Callable[[int], Any], place: Callable[[int], Any]) -> tuple[pa.Array, Truth]:
        return (
            pa.array([None if k is None else make(k) for k in base]).cast(arrow),
            line([None if k is None else place(k) for k in base]),
        )

    def text(k: int) -> str:
        return f"text {k % 1200} 🚀"

    def stamp(unit: str, zone: str | None, per_second: int) -> tuple[pa.Array, Truth]:
        ticks = pa.array([None if k is None else (k - 1500) * 7 * per_second for k in base], pa.int64())
        micros = [None if k is None else (k - 1500) * 7_000_000 for k in base]
        return ticks.cast(pa.timestamp(unit, tz=zone)), line(micros)

    def encoded(k: int) -> bytes:
        return text(k).encode()

    return {
        "u8": column(pa.uint8(), lambda k: k % 256, lambda k: k % 256),
        "u16": column(pa.uint16(), lambda k: k * 20, lambda k: k * 20),
        "u32": column(pa.uint32(), lambda k: k * 1_400_000, lambda k: k * 1_400_000),
        "u64": (
            pa.array([None if k is None else 2**64 - 1 - k for k in base], pa.uint64()),
            line([None if k is None else 2**64 - 1 - k for k in base]),
        ),
        "d32": column(pa.decimal32(9, 2), lambda k: Decimal(k - 1500).scaleb(-2), lambda k: float(k - 1500) / 100),
        "d64": column(pa.decimal64(18, 3), lambda k: Decimal(k * 10**10).scaleb(-3), lambda k: k * 10**10 / 1000),
        "d256": column(pa.decimal256(38, 5), lambda k: Decimal(k * 10**30).scaleb(-5), lambda k: k * 10**30 / 10**5),
        "seconds": column(pa.time64("us"), lambda k: dt.time(k // 3600, k // 60 % 60, k % 60), lambda k: k * 10**6),
        "nanos_of_day": (
            pa.array([None if k is None else k * 1_000_003_000 for k in base], pa.int64()).cast(pa.time64("ns")),
            line([None if k is None else k * 1_000_003 for k in base]),
        ),
        "ms": stamp("ms", None, 1000),
        "day64": column(pa.date64(), lambda k: dt.date(1900, 1, 1) + dt.timedelta(k), lambda k: k - 25567.0),
        "large": column(pa.large_string(), text, encoded),
        "view": column(pa.string_view(), text, encoded),
        "dictionary": column(pa.dictionary(pa.int32(), pa.string()), text, encoded),
        "bytes16": column(pa.binary(16), lambda k: k.to_bytes(16, "big"), lambda k: k.to_bytes(16, "big")),
        "binary_view": column(pa.binary_view(), lambda k: k.to_bytes(3, "big"), lambda k: k.to_bytes(3, "big")),
        "void": (pa.nulls(FOREIGN_ROWS), line([None] * FOREIGN_ROWS)),
    }


@pytest.mark.spark
def test_types_as_arrow_writes_them(runs: Runs) -> None:
    columns = _foreign()
    runs.write("t", pa.table({name: array for name, (array, _) in columns.items()}), row_group_size=1100)
    runs.register("t")
    found = runs.statistics("t")
    assert (found.rows, found.row_group_rows, set(found.columns)) == (FOREIGN_ROWS, 1100, set(columns))
    for name, column in found.columns.items():
        check_column(column, columns[name][1])


@pytest.mark.spark
def test_int96_and_what_duckdb_writes(runs: Runs) -> None:
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(1582, 10, 4, 1),
        dt.datetime(1969, 12, 31, 23),
        dt.datetime(9999, 12, 31),
    ]
    micros = [(moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for moment in moments]
    early = runs.spark.createDataFrame([(n,) for n in micros], "n bigint").selectExpr("timestamp_micros(n) AS t")
    runs.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    runs.spark.conf.set("spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED")
    early.coalesce(1).write.parquet(str(runs.folder / "int96"))
    runs.spark.conf.unset("spark.sql.parquet.outputTimestampType")
    runs.spark.conf.unset("spark.sql.parquet.int96RebaseModeInWrite")
    (runs.folder / "duck").mkdir()
    with duckdb.connect() as duck:
        duck.execute(
            "CREATE TABLE made AS SELECT i::HUGEINT AS huge, i::UBIGINT AS u64, (i / 7)::DECIMAL(38,9) AS wide, "
            "TIMESTAMP '1500-01-01' + INTERVAL (i) HOUR AS t, DATE '1400-01-01' + i::INT AS d, uuid() AS id, "
            "'k' || i % 30 AS k, TIME '00:00:01' + INTERVAL (i) SECOND AS clock FROM range(3000) r(i)"
        )
        duck.execute("COPY made TO '" + str(runs.folder / "duck" / "a.parquet") + "' (FORMAT parquet)")
        truth = duck.execute(
            "SELECT i.huge::DOUBLE, i.u64::DOUBLE, i.wide::DOUBLE, epoch_us(i.t)::DOUBLE, "
            "(i.d - DATE '1970-01-01')::DOUBLE, NULL, i.k, epoch_us(i.clock)::DOUBLE FROM made i"
        ).fetchall()
    for name in ("int96", "duck"):
        runs.register(name)
    runs.run("int96", "duck")
    assert runs.errors == {}
    check_column(runs.current("int96").columns["t"], line([float(n) for n in micros]))
    duck_columns = runs.current("duck").columns
    for at, name in enumerate(("huge", "u64", "wide", "t", "d", "id", "k", "clock")):
        values = [row[at].encode() if isinstance(row[at], str) else row[at] for row in truth]
        if name == "id":
            assert (duck_columns[name].ndv, duck_columns[name].nulls) == (3000, 0)
        else:
            check_column(duck_columns[name], line(values))


@pytest.mark.spark
def test_dates_and_times_far_away(runs: Runs) -> None:
    """Spark reads what is before 1582 from ORC by the old calendar, and Arrow's times in ORC end in 2262."""
    days = ["0001-01-01", "0900-02-28", "1582-10-04", "1582-10-15", "1969-12-31", "9999-12-31"]
    rows = runs.spark.createDataFrame([(day,) for day in days], "d string").selectExpr(
        "cast(d AS date) AS d", "cast(d AS timestamp) AS t"
    )
    for format in ("parquet", "orc"):
        rows.coalesce(1).write.format(format).save(str(runs.folder / format))
        runs.register(format)
        found = runs.statistics(format)
        there = runs.spark.read.format(format).load(str(runs.folder / format))
        for name, truth in truths_of(there).items():
            check_column(found.columns[name], truth)
    assert runs.current("orc").columns["t"].minimum == runs.current("parquet").columns["t"].minimum


@pytest.mark.spark
def test_orc_in_many_stripes_as_arrow_writes_it(runs: Runs) -> None:
    rows = 200_000
    numbers = np.random.default_rng(5).integers(0, 1 << 40, rows)
    names = [f"n{n % 5000}" for n in range(rows)]
    (runs.folder / "t").mkdir()
    path = runs.folder / "t" / "a.orc"
    pa_orc.write_table(pa.table({"a.b": numbers, "a": names}), path, stripe_size=1 << 20, compression="uncompressed")
    assert pa_orc.ORCFile(path).nstripes > 1
    runs.register("t")
    found = runs.statistics("t")
    assert found.rows == rows
    check_column(found.columns["a.b"], line(numbers.tolist()))
    check_column(found.columns["a"], line([name.encode() for name in names]))


# ---------------------------------------------------------------------- shapes


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "json"])
@pytest.mark.parametrize("values", [[], [5], [5, 5, 5], [None, None], [None, 7, None]])
def test_few_rows(runs: Runs, format: str, values: list[int | None]) -> None:
    rows = runs.spark.createDataFrame(
        [(value, None if value is None else str(value)) for value in values], "n int, s string"
    )
    rows.coalesce(1).write.format(format).save(str(runs.folder / "t"))
    runs.register("t", columns=[Column("n", "int"), Column("s", "string")], format=format)
    found = runs.statistics("t")
    assert (found.rows, list(found.columns)) == (len(values), ["n", "s"])
    for name, truth in truths_of(rows).items():
        check_column(found.columns[name], truth)


@pytest.mark.spark
def test_a_table_whose_files_have_gone(runs: Runs) -> None:
    path = runs.write("t", pa.table({"n": [1, 2]}))
    runs.register("t")
    path.unlink()
    found = runs.statistics("t")
    assert (found.rows, found.bytes, found.files) == (0, 0, 0)
    assert (found.columns["n"].ndv, found.columns["n"].nulls, found.columns["n"].minimum) == (0.0, 0, None)
    assert runs.incremental("t").rows == 0


@pytest.mark.spark
def test_an_empty_file_does_not_hide_the_others(runs: Runs) -> None:
    """Neither in the same folder nor as a partition of its own."""
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    for number, rows in enumerate((0, 500, 0)):
        table = pa.table({"n": range(rows), "s": [f"s{n}" for n in range(rows)]}, schema=schema)
        runs.write("t", table, f"{number}.parquet")
        runs.write("p", table, f"day={number}/a.parquet")
    for name in ("t", "p"):
        runs.register(name)
        found = runs.statistics(name)
        assert found.rows == 500
        check_column(found.columns["n"], line([float(n) for n in range(500)]))
        check_column(found.columns["s"], line([b"s%d" % n for n in range(500)]))
        assert found.sample is not None
        assert set(found.sample.columns) == set(found.columns)
        assert runs.incremental(name).columns["n"].ndv == 500
    check_column(runs.current("p").columns["day"], line([1.0] * 500))


NAMES = ("a.b", "a", "with space", "`quoted`", "UPPER", "ünï.cödé", "semi;colon", "percent%20", '"', "x,y")


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "orc", "json"])
def test_names_of_columns(runs: Runs, format: str) -> None:
    names = [name for name in NAMES if format == "parquet" or name not in ("x,y", "semi;colon", "`quoted`")]
    rows = runs.spark.createDataFrame(
        [tuple(range(n, n + len(names))) for n in range(40)],
        "x int" + "".join(f", x{n} int" for n in range(1, len(names))),
    ).toDF(*names)
    rows.coalesce(1).write.format(format).save(str(runs.folder / "t"))
    runs.register("t")
    found = runs.statistics("t")
    assert set(found.columns) == set(names)
    for at, name in enumerate(names):
        check_column(found.columns[name], line([float(n + at) for n in range(40)]))


@pytest.mark.spark
def test_nested_columns_are_left_out_with_a_note(runs: Runs) -> None:
    rows = runs.spark.sql(
        "SELECT id, named_struct('x', id) AS s, array(id) AS l, map(id, 'a') AS m, named_struct('id', -id) AS deep "
        "FROM range(9)"
    )
    for format in ("parquet", "orc", "json"):
        rows.coalesce(1).write.format(format).save(str(runs.folder / format))
        runs.register(format)
        found = runs.statistics(format)
        assert list(found.columns) == ["id"]
        assert [note.split()[0] for note in found.notes] == sorted(
            ["s", "l", "m", "deep"], key=["s", "l", "m", "deep"].index
        )
        check_column(found.columns["id"], line([float(n) for n in range(9)]))
    rows.select("s", "l").coalesce(1).write.parquet(str(runs.folder / "only"))
    runs.register("only")
    assert (runs.statistics("only").rows, dict(runs.current("only").columns)) == (9, {})


@pytest.mark.spark
def test_texts_that_are_awkward(runs: Runs) -> None:
    long = "long " * 2000
    texts = [
        "",
        "\0",
        "a\0",
        "a\0b",
        "a",
        "😀",
        "é",
        "e\u0301",
        long,
        long + "x",
        "x" * 256,
        "x" * 257,
        "x" * 32,
        "x" * 33,
    ]
    values = [text.encode() for text in texts] * 30
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 2, 4], np.int32)), pa.py_buffer(b"\xff\xfeok")]
    )
    runs.write("t", pa.table({"s": texts * 30}))
    runs.write("flat", pa.table({"s": [f"{n} {text}" for n in range(700) for text in texts]}))
    runs.write("broken", pa.table({"s": pa.concat_arrays([broken] * 50)}))
    for name in ("t", "flat", "broken"):
        runs.register(name)
    runs.run("t", "flat", "broken")
    assert runs.errors == {}
    check_column(runs.current("t").columns["s"], line(values))
    flat = line([f"{n} {text}".encode() for n in range(700) for text in texts])
    check_column(runs.current("flat").columns["s"], flat)
    check_column(runs.current("broken").columns["s"], line([b"\xff\xfe", b"ok"] * 50))
    sample = runs.current("t").sample
    assert sample is not None
    assert max(len(text) for text in sample.columns["s"].values) == 256


@pytest.mark.spark
def test_files_that_differ(runs: Runs) -> None:
    """A column that a file lacks is NULL there; narrower types widen; case does not matter."""
    runs.write(
        "t", pa.table({"n": pa.array(range(100)), "x": pa.array([1.0, 2.0] * 50), "late": ["v"] * 100}), "a.parquet"
    )
    runs.register("t")
    runs.write(
        "t", pa.table({"N": pa.array(range(50, 150), pa.int32()), "x": pa.array([2] * 100, pa.int32())}), "b.parquet"
    )
    found = runs.statistics("t")
    check_column(found.columns["n"], line([float(n) for n in [*range(100), *range(50, 150)]]))
    check_column(found.columns["x"], line([1.0, 2.0] * 50 + [2.0] * 100))
    check_column(found.columns["late"], line([b"v"] * 100 + [None] * 100))


@pytest.mark.spark
def test_two_thousand_columns(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    columns, rows, files = 2_000, 3_000, 2
    random = np.random.default_rng(2)
    tables = [pa.table({f"c{n}": random.integers(0, n + 1, rows) for n in range(columns)}) for _ in range(files)]
    for number, table in enumerate(tables):
        runs.write("t", table, f"{number}.parquet")
    runs.register("t")
    began = time.monotonic()
    found = runs.statistics("t")
    seconds = time.monotonic() - began
    with capsys.disabled():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        part = len(runs.store.statistics.parts("t")[0].summary) >> 20
        print(f"\n2,000 columns, {files} files of {rows:,} rows: {seconds:.1f} s, {peak:,} MB driver, {part} MB kept")
    assert (len(found.columns), found.rows) == (columns, files * rows)
    whole = pa.concat_tables(tables)
    for name in ("c0", "c1", "c100", "c400"):  # as good as any; those with more values keep fewer points
        check_column(found.columns[name], line([float(value) for value in whole.column(name).to_pylist()]))
    assert found.columns["c1999"].ndv == pytest.approx(len(whole.column("c1999").unique()), rel=0.15)
    ordered = np.sort(np.array(whole.column("c1999"), dtype=np.float64))
    check_histogram(found.columns["c1999"], ordered, rank_error=1 / LEAST)
    assert seconds < 120


# ---------------------------------------------------------------------- text, and Spark's other formats


@pytest.mark.spark
def test_delimited_text(runs: Runs) -> None:
    (runs.folder / "t").mkdir()
    (runs.folder / "t" / "a.txt").write_text("1|x|\n2||1.5\n3|yy|2.5\n")
    with gzip.open(runs.folder / "t" / "b.txt.gz", "wt") as text:
        text.write("4|zé|2.5\n")
    runs.register("t")
    found = runs.statistics("t")
    assert (found.rows, found.row_group_rows, found.files) == (4, None, 2)
    number, word, amount = found.columns.values()
    check_column(number, line([1.0, 2.0, 3.0, 4.0]))
    check_column(word, line([b"x", None, b"yy", "zé".encode()]))
    check_column(amount, line([None, 1.5, 2.5, 2.5]))


@pytest.mark.spark
def test_json_and_places_with_awkward_names(runs: Runs) -> None:
    name = "a (b) %20 + é;$x#"
    (runs.folder / name).mkdir()
    (runs.folder / name / "x (1)&=.json").write_text(
        '{"n": 1, "s": "é", "o": {"x": 1}}\n{"n": 2}\n{"s": "t", "n": null}\n'
    )
    runs.register(name)
    found = runs.statistics(name)
    check_column(found.columns["n"], line([1.0, 2.0, None]))
    check_column(found.columns["s"], line(["é".encode(), None, b"t"]))
    assert found.notes == ("o has no statistics: struct columns are not summarised",)


@pytest.mark.spark
def test_avro_where_spark_has_it_not(runs: Runs) -> None:
    """Spark's own distribution leaves its Avro module out; the job says so and names the table."""
    (runs.folder / "t").mkdir()
    with (runs.folder / "t" / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}, [{"n": 1}])
    runs.register("t")
    runs.run("t")
    assert "AVRO" in runs.errors["t"].upper()
