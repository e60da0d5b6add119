"""Files with more columns, or longer types, than a table may have are refused by the name of the limit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.discovery.inspection import InspectionFailed, inspect
from sql.bounds import LONGEST_TYPE, MOST_COLUMNS
from sql.tables import Column, InvalidTable, TableSource

TOO_MANY = MOST_COLUMNS + 1


def avro(path: Path, count: int) -> None:
    fields = [{"name": f"c{number}", "type": "int"} for number in range(count)]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "wide", "fields": fields}, [])


def parquet(path: Path, count: int) -> None:
    pq.write_table(pa.table({f"c{number}": pa.array([], pa.int8()) for number in range(count)}), path)


WRITE_ORC = """
import sys
import pyarrow as pa
import pyarrow.orc as orc

orc.write_table(pa.table({f"c{number}": pa.array([], pa.int8()) for number in range(int(sys.argv[2]))}), sys.argv[1])
"""


def orc(path: Path, count: int) -> None:
    """Write it in another process: the writer keeps so much address space that this one could not fork any more."""
    subprocess.run([sys.executable, "-c", WRITE_ORC, str(path), str(count)], check=True)


def csv(path: Path, count: int) -> None:
    path.write_text(",".join(f"c{number}" for number in range(count)) + "\n" + ",".join("1" * count) + "\n")


@pytest.mark.parametrize("write", [avro, parquet, orc, csv])
def test_more_columns_than_a_table_may_have(tmp_path: Path, write: Callable[[Path, int], None]) -> None:
    write(tmp_path / f"part-0.{write.__name__}", TOO_MANY)
    with pytest.raises(InspectionFailed, match=f"{TOO_MANY:,} columns, and a table has {MOST_COLUMNS:,} at most"):
        inspect("wide", tmp_path)


def test_columns_of_several_files_count_together(tmp_path: Path) -> None:
    half = MOST_COLUMNS // 2 + 1
    for number in range(2):
        columns = {f"c{number}_{place}": pa.array([], pa.int8()) for place in range(half)}
        pq.write_table(pa.table(columns), tmp_path / f"part-{number}.parquet")
    with pytest.raises(InspectionFailed, match="columns, and a table has"):
        inspect("wide", tmp_path)


def test_a_type_that_is_longer_than_types_are() -> None:
    fields = ",".join(f"a{number}:int" for number in range(LONGEST_TYPE // 8))
    with pytest.raises(InvalidTable, match="type of the column s has more than"):
        Column("s", f"struct<{fields}>")


def test_all_types_together_are_bounded() -> None:
    columns = [Column(f"{number:0>250}", "decimal(38,10)") for number in range(MOST_COLUMNS)]
    with pytest.raises(InvalidTable, match="names and types"):
        TableSource("wide", "/wide", "parquet", tuple(columns))
