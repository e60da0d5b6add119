"""The one listing: which files a folder's table has, and which folders are refused, with what reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.files.lake_formats import lake_table_around
from engines.files.listing import InspectionFailed, data_files, partition_names


def _tree(root: Path, *paths: str) -> Path:
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    return root


def _listed(root: Path) -> list[tuple[str, str, dict[str, str]]]:
    return [(file.path.relative_to(root).as_posix(), file.folder, dict(file.values)) for file in data_files(root)]


def test_hidden_and_temporary_names_do_not_count(tmp_path: Path) -> None:
    _tree(tmp_path, "a", "_SUCCESS", ".crc", "b._COPYING_", "c._COPYING_/d", "_temporary/e", ".f/g", "h.tmp")
    assert [path for path, _, _ in _listed(tmp_path)] == ["a", "h.tmp"]


def test_sub_folders_that_are_no_partitions_are_a_part_of_the_table(tmp_path: Path) -> None:
    _tree(tmp_path, "2024/01/02/a", "b", "HIVE_UNION_SUBDIR_1/c")
    assert _listed(tmp_path) == [("2024/01/02/a", "", {}), ("HIVE_UNION_SUBDIR_1/c", "", {}), ("b", "", {})]


def test_sub_folders_below_a_partition_belong_to_it(tmp_path: Path) -> None:
    _tree(tmp_path, "y=1/a", "y=1/HIVE_UNION_SUBDIR_1/b", "y=a%2Fb/c", "y=1/_x/d")
    assert _listed(tmp_path) == [
        ("y=1/HIVE_UNION_SUBDIR_1/b", "y=1", {"y": "1"}),
        ("y=1/a", "y=1", {"y": "1"}),
        ("y=a%2Fb/c", "y=a%2Fb", {"y": "a/b"}),
    ]


def test_a_partition_column_may_begin_with_an_underscore(tmp_path: Path) -> None:
    _tree(tmp_path, "_p=1/a")
    assert _listed(tmp_path) == [("_p=1/a", "_p=1", {"_p": "1"})]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("d=/a", "'d=' without a value"),
        ("=1/a", "'=1' without a name"),
        ("x/d=1/a", "d=1 below x, which is not a partition folder"),
        ("d=1/x/e=2/a", "e=2 below x, which is not a partition folder"),
        ("d=1/D=2/a", "two partition folders of the column D"),
        ("d=%C3%A9/a", "only ASCII characters are escaped"),
        ("d=a\\b/a", "no backslash"),
    ],
)
def test_folders_that_engines_read_differently_are_refused(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(InspectionFailed, match=reason.replace("\\", r"\\")):
        data_files(_tree(tmp_path, path))


def test_files_at_different_levels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InspectionFailed, match=r"d=\.\.\. and none"):
        partition_names(data_files(_tree(tmp_path, "d=1/a", "x")), tmp_path)


LAKES = {
    "Delta Lake": "_delta_log/00000000000000000000.json",
    "Apache Hudi": ".hoodie/hoodie.properties",
    "Apache Iceberg": "metadata/v1.metadata.json",
    "Apache Paimon": "schema/schema-0",
    "Hive ACID": "delta_0000001_0000001_0000/bucket_00000",
}


@pytest.mark.parametrize(("lake", "sign"), LAKES.items())
@pytest.mark.parametrize("below", ["", "lake/sales/", "p=1/"])
def test_a_table_of_a_lake_format_is_refused_by_its_name(tmp_path: Path, lake: str, sign: str, below: str) -> None:
    _tree(tmp_path, "a.parquet", f"{below}{sign}", f"{below}data/b.parquet")
    with pytest.raises(InspectionFailed, match=f"is a table of {lake}") as refusal:
        data_files(tmp_path)
    remedy = "register that folder" if lake in ("Delta Lake", "Apache Iceberg") else "Leave the folder as it is"
    assert remedy in str(refusal.value)
    assert not any(word in str(refusal.value).lower() for word in ("move", "delete ", "remove", "write it again"))


@pytest.mark.parametrize(("lake", "sign"), LAKES.items())
def test_a_part_of_a_lake_table_is_told_from_the_folders_around_it(tmp_path: Path, lake: str, sign: str) -> None:
    _tree(tmp_path, f"lake/t/{sign}", "lake/t/data/p=1/b.parquet", "lake/other/c.parquet")
    for part in ("data", "data/p=1", "data/p=1/b.parquet", "to_come"):
        found = lake_table_around(tmp_path / "lake/t" / part, up_to=lambda folder: folder == tmp_path)
        assert found is not None
        assert (found[0], found[1].name) == (tmp_path / "lake/t", lake)
    assert lake_table_around(tmp_path / "lake/other", up_to=lambda folder: folder == tmp_path) is None
    inside = lake_table_around(tmp_path / "lake/t/data/p=1", up_to=lambda folder: folder.name == "data")
    assert inside is None  # nobody may look further up


@pytest.mark.parametrize("path", ["delta_20240101/a", "base_1/a", "metadata/schema.json", "schema/orders", "delta/a"])
def test_folders_that_only_look_like_a_lake_format_are_read(tmp_path: Path, path: str) -> None:
    assert len(data_files(_tree(tmp_path, path))) == 1
