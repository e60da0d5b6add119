"""Commits of rows: made once, whole, and on top of what they rest on."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from engines.files.manifest import Manifest, read_manifest
from metastore.lake import writing
from metastore.lake.delta import writing as delta_writing
from metastore.lake.iceberg import folder_catalog
from metastore.lake.iceberg import writing as iceberg_writing
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin
from metastore.lake.values import LakeCommit, Replaced
from sql.errors import NotAllowed, TableChangedConcurrently
from sql.tables import LAKE_FORMATS, Column, PartitionBy, TableSource
from tests.lake_tables import catalog_at

VALUES = ("a", "x y/ü%=", "1", None)
COLUMNS = (Column("id", "bigint"), Column("p", "string"))


@pytest.fixture(params=LAKE_FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> TableSource:
    source = TableSource("t", str(tmp_path / "t"), request.param, COLUMNS)
    (tmp_path / "t").mkdir()
    writing.create(source, (PartitionBy("p"),), {})
    return source


def staged(folder: Path, ids: Sequence[int | None], p: str | None = "a") -> str:
    path = folder / f"{len(list(folder.glob('*.parquet')))}.parquet"
    pq.write_table(pa.table({"P": pa.array([p] * len(ids), pa.string()), "ID": pa.array(ids, pa.int64())}), path)
    return str(path)


def manifest(table: TableSource, folder: Path) -> tuple[str, Manifest]:
    snapshot = pin(table, None, folder / "manifests").snapshot
    return snapshot.id, read_manifest(snapshot.manifest)


def test_a_commit_is_made_once(table: TableSource, tmp_path: Path) -> None:
    change = LakeCommit("q1", "INSERT", (staged(tmp_path, [1, 2]),))
    first = writing.commit(table, change)
    assert writing.commit(table, change) == first
    assert manifest(table, tmp_path)[1].rows == 2


@pytest.mark.parametrize("writers", [6])
def test_rows_of_writers_at_once_are_all_there(table: TableSource, tmp_path: Path, writers: int) -> None:
    files = [staged(tmp_path, [number]) for number in range(writers)]
    threads = [
        threading.Thread(target=writing.commit, args=(table, LakeCommit(f"q{number}", "INSERT", (files[number],))))
        for number in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manifest(table, tmp_path)[1].rows == writers


def test_files_that_others_replaced_are_a_conflict(table: TableSource, tmp_path: Path) -> None:
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    base, before = manifest(table, tmp_path)
    paths = {file.path: file.deleted_rows for file in before.files}
    writing.commit(table, LakeCommit("q2", "INSERT", (staged(tmp_path, [2]),), Replaced.EVERYTHING))
    with pytest.raises(TableChangedConcurrently):
        writing.commit(table, LakeCommit("q3", "UPDATE", (staged(tmp_path, [3]),), Replaced.FILES, paths, base))
    assert manifest(table, tmp_path)[1].rows == 1


def test_rows_that_others_added_are_a_conflict_where_a_change_rests_on_all(table: TableSource, tmp_path: Path) -> None:
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    base, before = manifest(table, tmp_path)
    paths = {file.path: file.deleted_rows for file in before.files}
    writing.commit(table, LakeCommit("q2", "INSERT", (staged(tmp_path, [2], "b"),)))
    files = (staged(tmp_path, [3]),)
    with pytest.raises(TableChangedConcurrently):
        writing.commit(table, LakeCommit("q3", "MERGE", files, Replaced.FILES, paths, base, is_alone=True))
    writing.commit(table, LakeCommit("q4", "UPDATE", files, Replaced.FILES, paths, base))
    assert manifest(table, tmp_path)[1].rows == 2


@pytest.mark.parametrize("replaced", [Replaced.FILES, Replaced.PARTITIONS])
@pytest.mark.parametrize("value", ["x y/ü%[1]{*}?=:#&+;%2F", None, "a"])
def test_files_of_any_partition_are_replaced(
    table: TableSource, tmp_path: Path, value: str | None, replaced: Replaced
) -> None:
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1, 2], value), staged(tmp_path, [3], "other"))))
    base, before = manifest(table, tmp_path)
    paths = {file.path: file.deleted_rows for file in before.files if ids(file.path) == [1, 2]}
    assert len(paths) == 1
    named = paths if replaced is Replaced.FILES else {}
    writing.commit(table, LakeCommit("q2", "UPDATE", (staged(tmp_path, [4], value),), replaced, named, base))
    _, after = manifest(table, tmp_path)
    assert sorted(ids(file.path) for file in after.files) == [[3], [4]]


def test_paths_are_spelled_as_delta_rs_does(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    table = DeltaTable(tmp_path / "t")
    names = [f"{character}.parquet" for character in (*map(chr, range(32, 127)), "ü", "漢", "/x") if character != "/"]
    actions: list[AddAction | RemoveAction] = [AddAction(name, 1, {}, 1, True, "{}") for name in names]
    table.create_write_transaction(actions, "append", table.schema())
    log = (tmp_path / "t" / "_delta_log" / f"{1:020}.json").read_text(encoding="utf-8")
    entries = [json.loads(line) for line in log.splitlines()]
    assert [entry["add"]["path"] for entry in entries if "add" in entry] == list(map(delta_writing.encoded, names))


@pytest.mark.parametrize("spelled", ["ü.parquet", "p%3Dx.parquet"])
def test_files_that_delta_rs_would_spell_in_another_way_are_not_replaced(tmp_path: Path, spelled: str) -> None:
    """A removal of another spelling removes nothing, and the rows would be there twice."""
    table = TableSource("t", str(tmp_path / "t"), "delta", COLUMNS[:1])
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    (written,) = (tmp_path / "t").glob("*.parquet")
    written.rename(tmp_path / "t" / unquote(spelled))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text(encoding="utf-8").replace(written.name, spelled), encoding="utf-8")
    base, before = manifest(table, tmp_path)
    paths = {file.path: 0 for file in before.files}
    with pytest.raises(NotAllowed, match="spells the path"):
        writing.commit(table, LakeCommit("q1", "UPDATE", (staged(tmp_path, [3]),), Replaced.FILES, paths, base))
    assert manifest(table, tmp_path)[1].rows == 1


def ids(path: str) -> list[int]:
    numbers: list[int] = pq.ParquetFile(path).read()["id"].to_pylist()
    return numbers


def test_a_commit_that_fails_leaves_no_files(table: TableSource, tmp_path: Path) -> None:
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    before = {path for path in (tmp_path / "t").rglob("*.parquet")}
    with pytest.raises(TableChangedConcurrently):
        gone = {str(tmp_path / "t" / "gone.parquet"): 0}
        writing.commit(table, LakeCommit("q2", "UPDATE", (staged(tmp_path, [2]),), Replaced.FILES, gone, "x"))
    assert {path for path in (tmp_path / "t").rglob("*.parquet")} == before


@pytest.mark.parametrize("seed", range(3))
def test_commits_at_random_do_what_a_model_does(table: TableSource, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    model: dict[int, str | None] = {}
    numbers = itertools.count()
    for step in range(25):
        base, before = manifest(table, tmp_path)
        new = {next(numbers): chance.choice(VALUES) for _ in range(chance.randint(0, 5))}
        files = tuple(staged(tmp_path, [number], value) for number, value in new.items())
        replaced = chance.choice(list(Replaced))
        named = [file for file in before.files if chance.random() < 0.5] if replaced is Replaced.FILES else []
        match replaced:
            case Replaced.EVERYTHING:
                model = {}
            case Replaced.PARTITIONS:
                model = {number: value for number, value in model.items() if value not in new.values()}
            case Replaced.FILES:
                gone = {number for file in named for number in ids(file.path)}
                model = {number: value for number, value in model.items() if number not in gone}
        model |= new
        paths = {file.path: file.deleted_rows for file in named}
        writing.commit(table, LakeCommit(f"q{step}", "X", files, replaced, paths, base, chance.random() < 0.5))
        _, after = manifest(table, tmp_path)
        assert sorted(number for file in after.files for number in ids(file.path)) == sorted(model), (step, replaced)
        if table.format == "delta":
            rows = DeltaTable(table.location).to_pyarrow_table().to_pylist()
        else:
            rows = folder_catalog.FolderCatalog(TablePlace(table.location)).table().scan().to_arrow().to_pylist()
        assert {row["id"]: row["p"] for row in rows} == model


def test_a_try_that_was_killed_does_not_stop_the_next_one(table: TableSource, tmp_path: Path) -> None:
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    shutil.copytree(tmp_path / "t", tmp_path / "left")
    shutil.move(tmp_path / "left", tmp_path / "t" / "fusion-q2")  # as of a process that wrote files and no commit
    writing.commit(table, LakeCommit("q2", "INSERT", (staged(tmp_path, [2]),), Replaced.PARTITIONS))
    assert [ids(file.path) for file in manifest(table, tmp_path)[1].files] == [[2]]


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_partition_columns_are_spelled_as_the_columns(tmp_path: Path, format: str) -> None:
    table = TableSource("t", str(tmp_path / "t"), format, COLUMNS)
    with pytest.raises(NotAllowed, match="no column q"):
        writing.create(table, (PartitionBy("q"),), {})
    writing.create(table, (PartitionBy("P"),), {})
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]), staged(tmp_path, [2], "b"))))
    assert len(manifest(table, tmp_path)[1].files) == 2


@pytest.mark.parametrize(
    ("type", "transform"),
    [
        ("int", "day"),
        ("string", "year"),
        ("date", "hour"),
        ("boolean", "bucket[4]"),
        ("double", "bucket[4]"),
        ("double", "truncate[2]"),
        ("binary", "truncate[2]"),
        ("timestamp", "truncate[2]"),
        ("array<int>", "identity"),
        ("struct<a:int>", "identity"),
        ("map<string,int>", "void"),
    ],
)
def test_partitions_that_no_row_could_have_are_refused(tmp_path: Path, type: str, transform: str) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", (Column("c", type),))
    with pytest.raises(NotAllowed, match=r"of the column c, which has the type .*, makes no partitions"):
        writing.create(table, (PartitionBy("c", transform),), {})
    assert not (tmp_path / "t").exists()


def test_two_partitions_of_one_column_are_refused(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    for transforms in (("identity", "bucket[4]"), ("truncate[1]", "truncate[2]"), ("identity", "identity")):
        with pytest.raises(NotAllowed, match="made of the column p twice"):
            writing.create(table, [PartitionBy("p", transform) for transform in transforms], {})


@pytest.mark.parametrize("type", ["double", "float"])
@pytest.mark.parametrize("value", [float("nan"), -0.0])
def test_partitions_of_floats_that_pyiceberg_mixes_up_are_refused(tmp_path: Path, type: str, value: float) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", (Column("c", type),))
    writing.create(table, (PartitionBy("c"),), {})
    for number, values in enumerate(([1.5, 0.0, None, float("-inf")], [value, 0.0])):
        stored = pa.array(values, pa.float64() if type == "double" else pa.float32())
        pq.write_table(pa.table({"c": stored}), tmp_path / f"{number}.parquet")
    writing.commit(table, LakeCommit("q0", "INSERT", (str(tmp_path / "0.parquet"),)))
    with pytest.raises(NotAllowed, match=r"its partition column c would have NaN or -0\.0"):
        writing.commit(table, LakeCommit("q1", "INSERT", (str(tmp_path / "1.parquet"),)))
    assert manifest(table, tmp_path)[1].rows == 4


def test_dynamic_partitions_of_a_table_without_any_are_all_rows(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    writing.create(table, (), {})
    writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    writing.commit(table, LakeCommit("q2", "INSERT", (), Replaced.PARTITIONS))
    assert manifest(table, tmp_path)[1].rows == 0


def test_rows_that_fail_late_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    writing.create(table, (), {})
    monkeypatch.setattr(iceberg_writing, "CHUNK_BYTES", 1)
    (tmp_path / "late.parquet").write_bytes(b"no Parquet")
    change = LakeCommit("q1", "INSERT", (staged(tmp_path, [1]), str(tmp_path / "late.parquet")))
    with pytest.raises(NotAllowed):
        writing.commit(table, change)
    assert list((tmp_path / "t").rglob("*.parquet")) == []


def test_a_decimal_partition_that_delta_rs_writes_wrong_is_refused(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "delta", (Column("id", "bigint"), Column("d", "decimal(5,2)")))
    (tmp_path / "t").mkdir()
    writing.create(table, (PartitionBy("d"),), {})
    for number, (value, is_written) in enumerate({"0.05": True, "1.50": True, "-1.05": False}.items()):
        rows = pa.table({"id": [number], "d": pa.array([Decimal(value)], pa.decimal128(5, 2))})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        change = LakeCommit(f"q{number}", "INSERT", (str(tmp_path / f"{number}.parquet"),))
        if is_written:
            writing.commit(table, change)
        else:
            with pytest.raises(NotAllowed, match="negative partitions of d"):
                writing.commit(table, change)
    values = {file.constants["d"] for file in manifest(table, tmp_path)[1].files}
    assert values == {"0.05", "1.50"}


@pytest.mark.parametrize(
    ("inner", "values"),
    [
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), [{"x": 1}, {"x": None}]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [[1], None, [None]]),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [[("k", 1)], [("k", None)]]),
    ],
)
def test_a_null_within_a_column_that_takes_none_is_refused(tmp_path: Path, inner: pa.DataType, values: Any) -> None:
    schema = pa.schema([pa.field("v", inner)])
    write_deltalake(tmp_path / "t", pa.table({"v": pa.array([values[0]], inner)}, schema=schema))
    table = TableSource("t", str(tmp_path / "t"), "delta", (Column("v", "string"),))
    loose = {"struct": pa.struct([("x", pa.int64())]), "list": pa.list_(pa.int64())}
    kind = loose.get(str(inner)[:4].replace("stru", "struct"), pa.map_(pa.string(), pa.int64()))
    for number, value in enumerate(values):
        pq.write_table(pa.table({"v": pa.array([value], kind)}), tmp_path / f"{number}.parquet")
        change = LakeCommit(f"q{number}", "INSERT", (str(tmp_path / f"{number}.parquet"),))
        if number < len(values) - 1:
            writing.commit(table, change)
        else:
            with pytest.raises(NotAllowed, match="does not take NULL"):
                writing.commit(table, change)


@pytest.mark.parametrize("rule", ["delta.generationExpression", "CURRENT_DEFAULT"])
def test_a_column_that_writers_compute_is_refused(tmp_path: Path, rule: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": pa.array([1], pa.int64()), "p": ["a"]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    text = log.read_text(encoding="utf-8")
    changed = text.replace('\\"metadata\\":{}', '\\"metadata\\":{\\"' + rule + '\\":\\"1\\"}', 1)
    assert changed != text
    log.write_text(changed, encoding="utf-8")
    table = TableSource("t", str(tmp_path / "t"), "delta", COLUMNS)
    with pytest.raises(NotAllowed, match="id has"):
        writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))


def test_a_table_of_a_catalog_is_not_committed_behind_its_back(tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path / "w")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", pa.schema([("id", pa.int64()), ("p", pa.string())]))
    table = TableSource("t", made.location().removeprefix("file://"), "iceberg", COLUMNS)
    with pytest.raises(NotAllowed, match="written by a catalog"):
        writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))


def test_a_folder_that_delta_rs_takes_for_another_one_is_refused(tmp_path: Path) -> None:
    for name in ("a b", "a%20b"):
        (tmp_path / name).mkdir()
    writing.create(TableSource("t", str(tmp_path / "a b"), "delta", COLUMNS), (), {})
    table = TableSource("t", str(tmp_path / "a%20b"), "delta", COLUMNS)
    with pytest.raises(NotAllowed, match="rename the folder"):
        writing.create(table, (), {})
    shutil.copytree(tmp_path / "a b", tmp_path / "a%20b", dirs_exist_ok=True)
    with pytest.raises(NotAllowed, match="rename the folder"):
        writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    assert len(list((tmp_path / "a b" / "_delta_log").iterdir())) == 1


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    (tmp_path / "t").mkdir()
    writing.create(table, (), {})
    metadata = tmp_path / "t" / "metadata" / "v1.metadata.json"
    content = json.loads(metadata.read_text())
    content["properties"]["write.data.path"] = str(tmp_path / "elsewhere")
    metadata.write_text(json.dumps(content))
    with pytest.raises(NotAllowed, match="outside the table's folder"):
        writing.commit(table, LakeCommit("q1", "INSERT", (staged(tmp_path, [1]),)))
    assert not (tmp_path / "elsewhere").exists()


def test_a_type_that_lake_tables_do_not_have_is_refused(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "delta", (Column("v", "string", collation="utf8_lcase"),))
    with pytest.raises(NotAllowed, match="the column v has"):
        writing.create(table, (), {})


def test_a_format_version_that_is_not_written_is_refused(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    with pytest.raises(NotAllowed, match="format version is 3"):
        writing.create(table, (), {"format-version": "3"})


def test_two_commits_of_one_version_cannot_both_be_made(tmp_path: Path) -> None:
    table = TableSource("t", str(tmp_path / "t"), "iceberg", COLUMNS)
    (tmp_path / "t").mkdir()
    writing.create(table, (), {})
    with pytest.raises(TableChangedConcurrently):
        writing.create(table, (), {})
    assert folder_catalog.FolderCatalog(TablePlace(table.location)).table().metadata.snapshots == []
