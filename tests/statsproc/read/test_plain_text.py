"""Plain text that tasks read themselves, and text that is left to Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from engines.files.listing import data_files
from sql.tables import Column, TableSource
from statsproc.read import plain_text
from statsproc.read.files import FileUnusable
from statsproc.read.plain_text import NotPlain, TextPiece, pieces_of
from tests.statsproc.runs import Runs

TYPES = {"id": "bigint", "name": "string", "price": "double", "day": "date", "at": "timestamp", "sum": "decimal(9,2)"}
LINES = [f"{n}|name {n}|{n}.5|2024-01-{n % 28 + 1:02}|2024-01-01 00:00:{n % 60:02}|{n}.25" for n in range(500)]


def pieces(path: Path, kind: str = "csv", types: dict[str, str] = TYPES, **options: str) -> list[TextPiece]:
    columns = tuple(Column(name, data_type) for name, data_type in types.items())
    told = {"delimiter": "|", "header": "false", **options} if kind == "csv" else options
    source = TableSource("t", str(path), kind, columns, (), told)
    return [piece for file in data_files(path) for piece in pieces_of(source, file, "", types)]


def rows(found: list[TextPiece]) -> pa.Table:
    return pa.concat_tables([piece.chunk().table for piece in found])  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [1, 7, 40, 41, 333, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_every_line_is_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: str) -> None:
    monkeypatch.setattr(plain_text, "PIECE_BYTES", size)
    lines = LINES[:40]
    (tmp_path / "a.csv").write_text("\n".join(["|".join(TYPES), *lines]) + end)
    found = rows(pieces(tmp_path / "a.csv", header="true"))
    assert found.column("id").to_pylist() == list(range(40))
    assert found.column("name").to_pylist() == [f"name {n}" for n in range(40)]
    assert str(found.column("sum")[3]) == "3.25"


@pytest.mark.parametrize(
    "line",
    [
        '1|"quoted"|1.5|2024-01-01|2024-01-01 00:00:00|1.00',
        "1|back\\slash|1.5|2024-01-01|2024-01-01 00:00:00|1.00",
        "x|not a number|1.5|2024-01-01|2024-01-01 00:00:00|1.00",
        "1|too few",
        "1|a| 1.5|2024-01-01|2024-01-01 00:00:00|1.00",
        "1|a|1.5|01.02.2024|2024-01-01 00:00:00|1.00",
        "1|a|1.5|2024-01-01|2024-01-01T00:00:00+02:00|1.00",
        "1|a|1.5|2024-01-01|2024-01-01 00:00:00|1.005",
    ],
)
def test_what_leaves_a_choice_is_not_plain(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.csv").write_text("\n".join([*LINES, line]))
    with pytest.raises(NotPlain, match=r"a\.csv"):
        rows(pieces(tmp_path / "a.csv"))


def test_json_lines(tmp_path: Path) -> None:
    types = {"id": "bigint", "name": "string", "price": "double", "ok": "boolean"}
    (tmp_path / "a.json").write_text(
        '{"id": 1, "name": "a \\"b\\"", "price": 2, "ok": true, "more": [1]}\n{"id": null}\n'
    )
    found = rows(pieces(tmp_path / "a.json", "json", types))
    assert found.to_pylist() == [
        {"id": 1, "name": 'a "b"', "price": 2.0, "ok": True},
        {"id": None, "name": None, "price": None, "ok": None},
    ]
    times = {"day": "date", "at": "timestamp"}
    (tmp_path / "b.json").write_text('{"day": "2024-02-29", "at": "2024-02-29 01:02:03.5"}\n{"day": null}\n')
    first, second = rows(pieces(tmp_path / "b.json", "json", times)).to_pylist()
    assert (str(first["day"]), str(first["at"])) == ("2024-02-29", "2024-02-29 01:02:03.500000")
    assert second == {"day": None, "at": None}
    (tmp_path / "b.json").write_text('{"day": "29.02.2024"}')
    with pytest.raises(NotPlain):
        rows(pieces(tmp_path / "b.json", "json", times))
    for text in ('[{"id": 1}]', '{"id": "1"}', '{"id": 1.5}', "{"):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(NotPlain):
            rows(pieces(tmp_path / "a.json", "json", types))


def test_what_spark_alone_reads_has_no_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1|a")
    two = {"id": "bigint", "name": "string"}
    assert len(pieces(tmp_path / "a.csv", types=two)) == 1
    assert pieces(tmp_path / "a.csv", types={"id": "bigint", "name": "binary"}) == []
    (tmp_path / "a.csv").rename(tmp_path / "a.csv.gz")
    assert pieces(tmp_path / "a.csv.gz", types=two) == []


def test_a_file_that_changes_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1|a\n")
    found = pieces(tmp_path / "a.csv", types={"id": "bigint", "name": "string"})
    (tmp_path / "a.csv").write_text("1|a\n2|b\n")
    with pytest.raises(FileUnusable, match=r"a\.csv was changed while it was read"):
        rows(found)


@pytest.mark.spark
@pytest.mark.parametrize("odd", ["", '7|"qu|oted"|1.5\n', "x|bad|1.5\n", "8||\n"])
def test_both_readers_say_the_same(runs: Runs, odd: str) -> None:
    (runs.folder / "t").mkdir()
    text = "".join(f"{n}|name {n % 7}|{n}.5\n" for n in range(300))
    (runs.folder / "t" / "a.csv").write_text(text + odd)
    (runs.folder / "t" / "b.csv").write_text(text)
    runs.register("t")
    found = runs.statistics("t")
    source = runs.store.catalog.get("t")
    assert source is not None
    truth = runs.spark.read.format("csv").options(**source.source.options)
    told = ", ".join(f"`{column.name}` {column.data_type}" for column in source.source.columns)
    expected = truth.schema(told).load(str(runs.folder / "t"))
    assert found.rows == expected.count()
    for column in source.source.columns:
        values = [row[0] for row in expected.select(f"`{column.name}`").collect()]
        assert found.columns[column.name].nulls == sum(value is None for value in values)
        assert found.columns[column.name].ndv == len({value for value in values if value is not None})
