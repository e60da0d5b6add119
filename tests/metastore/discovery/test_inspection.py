from __future__ import annotations

import datetime as dt
import gzip
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from engines.arrow_types import spark_type
from engines.files.listing import FileMark, InspectionFailed, data_files
from metastore.discovery.inspection import inspect
from metastore.records import Inspection, Partition
from sql.tables import Column

ROWS = 10
INT_MAX = 2**31 - 1


def _write(folder: Path, name: str = "part-0.parquet", rows: int = ROWS, **columns: pa.Array) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    pq.write_table(pa.table(columns or {"id": pa.array(range(rows))}), path, row_group_size=4)
    return path


def _columns(found: Inspection) -> dict[str, str]:
    return {column.name: column.data_type for column in found.source.columns}


def test_a_parquet_folder(tmp_path: Path) -> None:
    first, second = _write(tmp_path), _write(tmp_path / "deeper", rows=3)
    found = inspect("t", tmp_path)
    assert (found.source.name, found.source.location, found.source.format) == ("t", str(tmp_path), "parquet")
    assert _columns(found) == {"id": "bigint"}
    assert (found.files, found.rows) == (2, ROWS + 3)
    assert found.bytes == first.stat().st_size + second.stat().st_size
    assert found.partitions == ()


def test_one_file_is_a_table_too(tmp_path: Path) -> None:
    path = _write(tmp_path)
    found = inspect("t", path.as_uri())
    assert (found.source.location, found.files, found.rows) == (str(path), 1, ROWS)


@pytest.mark.parametrize(
    ("arrow", "spark"),
    [
        (pa.int8(), "tinyint"),
        (pa.int32(), "int"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float32(), "float"),
        (pa.decimal128(38, 10), "decimal(38,10)"),
        (pa.timestamp("us", tz="UTC"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.date32(), "date"),
        (pa.bool_(), "boolean"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.binary(16), "binary"),
        (pa.list_(pa.int32()), "array<int>"),
        (pa.map_(pa.string(), pa.decimal128(5, 2)), "map<string,decimal(5,2)>"),
        (
            pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()))]),
            "struct<a:bigint,b:array<string>>",
        ),
    ],
)
def test_types_are_named_as_in_spark(arrow: pa.DataType, spark: str) -> None:
    assert spark_type(arrow) == spark


def test_types_survive_parquet(tmp_path: Path) -> None:
    now = dt.datetime(2026, 3, 1)
    columns = {
        "decimal(10,2)": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "date": pa.array([now.date()]),
        "timestamp": pa.array([now], pa.timestamp("us", tz="UTC")),
        "timestamp_ntz": pa.array([now], pa.timestamp("us")),
        "array<string>": pa.array([["a"]]),
    }
    _write(tmp_path / "types", **{f"c{n}": values for n, values in enumerate(columns.values())})
    assert list(_columns(inspect("t", tmp_path / "types")).values()) == list(columns)
    int96 = pa.table({"t": pa.array([now], pa.timestamp("ns"))})
    pq.write_table(int96, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert _columns(inspect("t", tmp_path / "a.parquet")) == {"t": "timestamp"}


def test_partition_folders_become_columns(tmp_path: Path) -> None:
    for year, country, files in ((2024, "de", 1), (2025, "a%2Fb", 2)):
        for number in range(files):
            _write(tmp_path / f"year={year}" / f"country={country}", f"{number}.parquet")
    found = inspect("t", tmp_path)
    assert _columns(found) == {"id": "bigint", "year": "int", "country": "string"}
    assert found.source.partition_columns == ("year", "country")
    size = (tmp_path / "year=2024" / "country=de" / "0.parquet").stat().st_size
    assert found.partitions == (
        Partition("year=2024/country=de", {"year": "2024", "country": "de"}, 1, size),
        Partition("year=2025/country=a%2Fb", {"year": "2025", "country": "a/b"}, 2, 2 * size),
    )


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        (["1", "__HIVE_DEFAULT_PARTITION__"], "int"),
        (["-7", str(INT_MAX)], "int"),
        (["1", str(INT_MAX + 1)], "bigint"),
        (["1", "one"], "string"),
        (["2024-01-01"], "string"),
        ([str(2**63)], "string"),
        (["__HIVE_DEFAULT_PARTITION__"], "string"),
    ],
)
def test_types_of_partition_columns(tmp_path: Path, values: list[str], data_type: str) -> None:
    for value in values:
        _write(tmp_path / f"p={value}")
    assert _columns(inspect("t", tmp_path))["p"] == data_type


def test_the_type_of_a_partition_column_can_be_told(tmp_path: Path) -> None:
    _write(tmp_path / "p=2024-01-01")
    found = inspect("t", tmp_path, columns=[Column("id", "bigint"), Column("p", "date")])
    assert _columns(found) == {"id": "bigint", "p": "date"}
    assert found.source.partition_columns == ("p",)


@pytest.mark.parametrize(
    ("text", "delimiter", "header", "columns"),
    [
        ("id,name\n1,ann\n2,\n", ",", "true", {"id": "bigint", "name": "string"}),
        ("1|1.5|2024-01-02|x\n2||2024-01-03|y\n", "|", "false",
         {"_c0": "bigint", "_c1": "double", "_c2": "date", "_c3": "string"}),
        ("a\tb\ntrue\t2024-01-02 03:04:05\n", "\t", "true", {"a": "boolean", "b": "timestamp"}),
        ('name;note\n"x;y";"a ""b"""\n', ";", "true", {"name": "string", "note": "string"}),
        ("first,last\nann,lee\nbob,ray\n", ",", "true", {"first": "string", "last": "string"}),
        ("12\n13\n", ",", "false", {"_c0": "bigint"}),
    ],
)  # fmt: skip
def test_text_is_judged_by_its_start(
    tmp_path: Path, text: str, delimiter: str, header: str, columns: dict[str, str]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    found = inspect("t", tmp_path)
    assert found.source.options == {"delimiter": delimiter, "header": header}
    assert _columns(found) == columns
    assert (found.source.format, found.rows) == ("csv", None)


def test_text_with_columns_that_are_given(tmp_path: Path) -> None:
    folder = tmp_path / "day=2024-01-01"
    folder.mkdir()
    (folder / "a.txt").write_text("1|x\n")
    columns = (Column("id", "int"), Column("name", "string"), Column("day", "date"))
    found = inspect("t", tmp_path, columns=columns, options={"sep": "|", "header": "false"})
    assert (found.source.columns, found.source.partition_columns) == (columns, ("day",))
    assert found.source.options == {"delimiter": "|", "header": "false"}
    assert inspect("t", tmp_path, columns=columns).source == found.source
    with pytest.raises(InspectionFailed, match="2 fields a line, but 1 columns"):
        inspect("t", folder, columns=columns[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pathGlobFilter": "x"},
            "pathGlobFilter is not an option of a csv table: .*allowed are delimiter, sep, header",
        ),
        ({"delimiter": "|", "nullValue": "-"}, "nullValue is not an option of a csv table"),
        ({"header": "yes"}, "true or false, not 'yes'"),
        ({"sep": "||"}, "one ASCII character"),
        ({"delimiter": "\n"}, "one ASCII character"),
    ],
)
def test_options_of_text_are_those_that_all_engines_know(tmp_path: Path, options: dict[str, str], message: str) -> None:
    (tmp_path / "a.csv").write_text("id|n\n1|2\n")
    with pytest.raises(InspectionFailed, match=message):
        inspect("t", tmp_path, options=options)


@pytest.mark.parametrize(
    ("name", "content", "option"),
    [
        ("a.jsonl", b'{"id": 1}\n', "delimiter"),
        ("a.avro", b"Obj\x01", "avroSchemaUrl"),
        ("a.orc", b"ORC", "mergeSchema"),
    ],
)
def test_other_formats_have_no_options(tmp_path: Path, name: str, content: bytes, option: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InspectionFailed, match=f"{option} is not an option of a .* table: .*allowed are (none|mixed_columns)"
    ):
        inspect("t", tmp_path, options={option: "/etc/hostname"})


def test_compressed_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,n\n1,2\n"))
    assert _columns(inspect("t", tmp_path)) == {"id": "bigint", "n": "bigint"}


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "at": "2024-01-02T03:04:05", "tags": ["x"], "o": {"a": 1.5}}\n')
    found = inspect("t", tmp_path)
    assert _columns(found) == {"id": "bigint", "at": "string", "tags": "array<string>", "o": "struct<a:double>"}
    assert found.source.format == "json"


def test_orc(tmp_path: Path) -> None:
    orc.write_table(pa.table({"id": pa.array(range(ROWS))}), tmp_path / "a.orc")
    found = inspect("t", tmp_path)
    assert (found.source.format, found.rows, _columns(found)) == ("orc", ROWS, {"id": "bigint"})


def _write_avro(path: Path, *fields: Any, rows: tuple[dict[str, Any], ...] = (), codec: str = "deflate") -> Path:
    schema = {"type": "record", "name": "shop.Book", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as content:
        fastavro.writer(content, schema, rows, codec=codec)
    return path


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
SIZE = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "float"}, {"name": "y", "type": ["null", "int"]}],
}


@pytest.mark.parametrize(
    ("avro", "spark"),
    [
        (["null", "boolean"], "boolean"),
        (["int", "null"], "int"),
        ("long", "bigint"),
        ("float", "float"),
        ({"type": "double"}, "double"),
        ("bytes", "binary"),
        ({"type": "fixed", "name": "Hash", "size": 16}, "binary"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (SIZE, "string"),
        ("null", "void"),
        ({"type": "int", "logicalType": "date"}, "date"),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "time-micros"}, "bigint"),
        (["null", DECIMAL], "decimal(38,10)"),
        ({"type": "fixed", "name": "Money", "size": 8, "logicalType": "decimal", "precision": 18}, "decimal(18,0)"),
        (["null", "int", "long"], "bigint"),
        (["double", "float"], "double"),
        (["int", "null", "string"], "struct<member0:int,member1:string>"),
        ({"type": "array", "items": ["null", POINT]}, "array<struct<x:float,y:int>>"),
        ({"type": "map", "values": SIZE}, "map<string,string>"),
    ],
)  # fmt: skip
def test_avro_types_are_named_as_spark_reads_them(tmp_path: Path, avro: Any, spark: str) -> None:
    _write_avro(tmp_path / "a.avro", ("c", avro))
    assert _columns(inspect("t", tmp_path)) == {"c": spark}


def test_avro_names_that_are_used_again(tmp_path: Path) -> None:
    fields = (("a", POINT), ("b", ["null", "Point"]), ("c", {"type": "array", "items": "shop.Point"}))
    _write_avro(tmp_path / "a.avro", *fields)
    point = "struct<x:float,y:int>"
    assert _columns(inspect("t", tmp_path)) == {"a": point, "b": point, "c": f"array<{point}>"}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_avro_in_partitions(tmp_path: Path, codec: str) -> None:
    rows = ({"id": 1}, {"id": 2})
    _write_avro(tmp_path / "year=2024" / "a.avro", ("id", "long"), rows=rows, codec=codec)
    _write_avro(tmp_path / "year=2025" / "part-0", ("id", "long"), ("name", ["null", "string"]), codec=codec)
    found = inspect("t", tmp_path)
    assert (found.source.format, found.rows, found.files) == ("avro", None, 2)
    assert _columns(found) == {"id": "bigint", "name": "string", "year": "int"}


def test_files_with_different_schemas(tmp_path: Path) -> None:
    _write_avro(tmp_path / "avro" / "a.avro", ("id", "long"))
    _write_avro(tmp_path / "avro" / "b.avro", ("id", "string"))
    _write(tmp_path / "parquet", "a.parquet")
    _write(tmp_path / "parquet", "b.parquet", id=pa.array(["x"]))
    for format in ("avro", "parquet"):
        what = rf"disagree about column id: bigint in a\.{format}, string in b\.{format}"
        with pytest.raises(InspectionFailed, match=what):
            inspect("t", tmp_path / format)


def test_avro_that_is_no_table(tmp_path: Path) -> None:
    nodes = [{"name": "next", "type": ["null", "Node"]}]
    endless = {"type": "record", "name": "Node", "fields": nodes}
    _write_avro(tmp_path / "endless" / "a.avro", ("first", endless))
    with pytest.raises(InspectionFailed, match=r"^a.avro has a record that holds itself: shop.Node"):
        inspect("t", tmp_path / "endless")
    with (tmp_path / "longs.avro").open("wb") as content:
        fastavro.writer(content, "long", [1, 2])
    with pytest.raises(InspectionFailed, match=r"^longs.avro holds single values instead of records"):
        inspect("t", tmp_path / "longs.avro")


def test_broken_avro_headers(tmp_path: Path) -> None:
    whole = _write_avro(tmp_path / "whole.avro", ("id", "long")).read_bytes()
    broken = (
        b"",
        whole[:4],
        whole[:60],
        b"PAR1" + whole,
        whole.replace(b'"long"', b'"lung"'),
        whole[:4] + b"\xff" * 30,
    )
    for n, content in enumerate(broken):
        (tmp_path / f"{n}.avro").write_bytes(content)
        with pytest.raises(InspectionFailed, match=rf"^{n}.avro is not a readable Avro file"):
            inspect("t", tmp_path / f"{n}.avro")


def test_marks_tell_files_apart(tmp_path: Path) -> None:
    path = _write(tmp_path / "year=2024" / "deeper")
    (file,) = data_files(tmp_path)
    stat = path.stat()
    assert file.mark(tmp_path) == FileMark("year=2024/deeper/part-0.parquet", stat.st_size, stat.st_mtime_ns)
    (alone,) = data_files(path)
    assert alone.mark(path) == FileMark("part-0.parquet", stat.st_size, stat.st_mtime_ns)
    os.utime(path, ns=(0, stat.st_mtime_ns + 1))
    assert data_files(tmp_path)[0].mark(tmp_path) != file.mark(tmp_path)


def test_links_to_files_count_and_links_to_folders_do_not(tmp_path: Path) -> None:
    table = tmp_path / "t"
    target = _write(table / "_kept")
    (table / "p=1").mkdir()
    (table / "p=1" / "linked.parquet").symlink_to(target)
    (table / "folder").symlink_to(_write(tmp_path / "elsewhere").parent)
    (table / "nowhere").symlink_to(tmp_path / "nothing")
    (tmp_path / "same").symlink_to(table)
    for root in (table, tmp_path / "same"):
        assert [file.path for file in data_files(root)] == [root / "p=1" / "linked.parquet"]
        assert inspect("t", root).rows == ROWS


def test_a_link_to_a_file_outside_the_table_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t"
    _write(table)
    (tmp_path / "secret.parquet").write_text("not yours")
    (table / "deeper").mkdir()
    (table / "deeper" / "hop.parquet").symlink_to(table / "_hop")
    (table / "_hop").symlink_to("../secret.parquet")
    (tmp_path / "same").symlink_to(table)
    for root in (table, tmp_path / "same"):
        with pytest.raises(InspectionFailed, match=f"{root}/deeper/hop.parquet is a link that leads out"):
            inspect("t", root)
    (table / "deeper" / "hop.parquet").unlink()
    assert inspect("t", table).files == 1


def test_a_table_of_many_columns_and_folders(tmp_path: Path) -> None:
    columns, folders = 2000, 20
    names = {f"c{n}": pa.array([n]) for n in range(columns)}
    for n in range(folders):
        _write(tmp_path / f"p={n}", **names)
    found = inspect("t", tmp_path)
    assert (len(found.source.columns), len(found.partitions), found.rows) == (columns + 1, folders, folders)


def test_names_without_a_suffix_are_told_by_their_content(tmp_path: Path) -> None:
    _write(tmp_path, "000000_0")
    assert inspect("t", tmp_path).source.format == "parquet"


def test_a_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(InspectionFailed, match="holds no data files"):
        inspect("t", tmp_path)


def test_mixed_formats(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "notes.csv").write_text("a,b\n")
    with pytest.raises(InspectionFailed, match=r"mixes formats: csv \(notes.csv\) and parquet \(part-0.parquet\)"):
        inspect("t", tmp_path)


def test_a_broken_parquet_file_is_named_without_its_folder(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InspectionFailed, match=r"^broken.parquet is not a readable Parquet file") as raised:
        inspect("t", tmp_path)
    assert str(tmp_path) not in str(raised.value)


def test_a_column_that_some_files_or_all_of_them_lack(tmp_path: Path) -> None:
    _write(tmp_path, "a.parquet")
    assert inspect("t", tmp_path).source.options == {}
    declared = [Column("ID", "bigint"), Column("extra", "string")]
    assert inspect("t", tmp_path, columns=declared).source.options == {"mixed_columns": "true"}
    _write(tmp_path, "b.parquet", id=pa.array([1]), extra=pa.array(["x"]))
    found = inspect("t", tmp_path)
    assert _columns(found) == {"id": "bigint", "extra": "string"}
    assert found.source.options == {"mixed_columns": "true"}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_two_types_the_wider_one_is_the_tables(tmp_path: Path, order: tuple[str, str]) -> None:
    _write(tmp_path, f"{order[0]}.parquet", n=pa.array([1], pa.int32()), d=pa.array([Decimal(1)], pa.decimal128(9, 2)))
    _write(tmp_path, f"{order[1]}.parquet", n=pa.array([1.5]), d=pa.array([Decimal(1)], pa.decimal128(12, 3)))
    assert _columns(inspect("t", tmp_path)) == {"n": "double", "d": "decimal(12,3)"}


@pytest.mark.parametrize("ending", ["parquet", "orc"])
def test_declared_columns_must_fit_the_files(tmp_path: Path, ending: str) -> None:
    table = pa.table({"id": [1], "x": [2.7]})
    (orc if ending == "orc" else pq).write_table(table, tmp_path / f"a.{ending}")
    with pytest.raises(InspectionFailed, match=rf"a\.{ending} holds the column x as double, .* as bigint"):
        inspect("t", tmp_path, columns=[Column("id", "bigint"), Column("X", "bigint")])
    assert inspect("t", tmp_path, columns=[Column("id", "decimal(20,0)")]).declared


def test_a_type_that_spark_cannot_read_is_refused_unless_its_column_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, id=pa.array([1]), t=pa.array([1], pa.timestamp("ns")))
    with pytest.raises(InspectionFailed, match="holds a TIMESTAMP in nanoseconds in the column t"):
        inspect("t", tmp_path)
    assert _columns(inspect("t", tmp_path, columns=[Column("id", "bigint")])) == {"id": "bigint"}


def test_no_reason_asks_to_move_or_rewrite_what_is_there(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"no Parquet, but long enough to be one")
    (tmp_path / "c.orc").write_bytes(b"ORC")
    (tmp_path / "metadata").mkdir()
    for format in (None, "parquet", "orc", "avro"):
        with pytest.raises(InspectionFailed) as refusal:
            inspect("t", tmp_path, format=format)
        assert "move" not in str(refusal.value)
        assert "write it again" not in str(refusal.value)


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_empty_text_needs_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InspectionFailed, match="is empty: give the table's columns"):
        inspect("t", tmp_path)
    assert inspect("t", tmp_path, columns=[Column("id", "int")]).source.columns == (Column("id", "int"),)
