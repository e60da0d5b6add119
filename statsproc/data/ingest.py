r"""Delimited text into Parquet, without losing a line: what does not fit is put aside with the reason.

The text: one row a line; fields may stand in double quotes, in which a quote is doubled and the delimiter is
text (RFC 4180, but for line breaks in quotes); an empty field is NULL, "" is an empty string. Everything is an
expression of Spark SQL, so no row passes through Python.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engines.files.listing import data_files
from metastore.discovery.inspection import inspect
from selector.types import Group, Kind, decimal_digits, names_of
from sql.tables import Column, InvalidTable
from statsproc.data.parquet_output import published, write_parquet
from statsproc.spark.session import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_CHARACTERS = 60  # of a value, in a reason

_SCALARS = names_of(Group.BOOLEAN, Group.WHOLE, Group.FLOATING, Group.DATE, Group.MOMENT)
_SCALAR_TYPE = re.compile("|".join((*_SCALARS, Kind.STRING, r"decimal\(\d+,\d+\)")))


class IngestFailed(Exception):
    """Nothing was written; the message says why."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """Counts of the lines: rows_in = rows_out + rows_quarantined. quarantine: folder of these; None: none."""

    rows_in: int
    rows_out: int
    rows_quarantined: int
    quarantine: Path | None


def parse_columns(text: str) -> tuple[Column, ...]:
    """Read ``id bigint, price decimal(10,2)``."""
    columns = []
    for part in re.split(r",(?![^(]*\))", text):
        name, _, kind = part.strip().partition(" ")
        data_type = re.sub(r"\s", "", kind.lower())
        if not name or not _SCALAR_TYPE.fullmatch(data_type):
            raise IngestFailed(f"{part.strip()!r} is not a column: write a name and a type, such as 'id bigint'")
        try:
            columns.append(Column(name, data_type))
        except InvalidTable as failure:
            raise IngestFailed(f"{part.strip()!r} is not a column: {failure}") from failure
    if len({column.name.lower() for column in columns}) < len(columns):
        raise IngestFailed("two columns have the same name: give each its own")
    return tuple(columns)


def quarantine_folder(target: Path) -> Path:
    """Return where the lines that do not fit go: a folder beside the table."""
    return target.with_name(f"{target.name}.quarantine")


def ingest(
    spark: SparkSession,
    source: Path,
    target: Path,
    columns: Sequence[Column],
    *,
    delimiter: str = "|",
    header: bool = False,
) -> Ingested:
    """Write a folder or file of text as a Parquet table, whole or not at all.

    Lines that do not fit are written as JSON (``line``, ``reason``, ``file``) beside the table. header: each
    file's first line names the columns.
    """
    if len(delimiter) != 1 or delimiter in '"\n\r':
        raise IngestFailed(f"{delimiter!r} cannot be a delimiter: give one character")
    target = target.absolute()
    files = data_files(source.absolute()) if source.exists() else ()
    if not files:
        raise IngestFailed(f"{source} holds no files to read")
    judged = _judge(_lines(spark, source, [file.path for file in files], header=header), columns, delimiter)
    aside = quarantine_folder(target)
    with published(target) as draft, spark_errors():
        rows_in, quarantined = _write_good(judged, columns, draft)
        rows_out = inspect(target.name, draft, format="parquet").rows or 0
        if rows_in != rows_out + quarantined:
            raise IngestFailed(
                f"{rows_in} rows were read, but {rows_out} written and {quarantined} put aside: "
                "did the text change meanwhile?"
            )
        if quarantined:
            with published(aside) as aside_draft:
                judged.where("reason IS NOT NULL").select("line", "reason", "file").write.json(str(aside_draft))
        else:
            shutil.rmtree(aside, ignore_errors=True)
    return Ingested(rows_in, rows_out, quarantined, aside if quarantined else None)


def _lines(spark: SparkSession, source: Path, files: Sequence[Path], *, header: bool) -> DataFrame:
    lines = spark.read.text(str(source.absolute())).selectExpr("value AS line", "_metadata.file_name AS file")
    if not header:
        return lines
    from pyspark.sql import functions as sf

    return lines.where(~sf.col("line").isin(sorted({_first_line(file) for file in files})))


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as text:
        return text.readline().rstrip("\r\n")


def _judge(lines: DataFrame, columns: Sequence[Column], delimiter: str) -> DataFrame:
    """Split every line and say what is wrong with it: ``reason`` is NULL where nothing is."""
    d = re.escape(delimiter)
    fields_of = (
        f"CASE WHEN instr(line, '\"') = 0 THEN split(line, {_sql(d)}, -1) "
        f"ELSE regexp_extract_all(concat({_sql(delimiter)}, line), {_sql(_field(d))}, 1) END"
    )
    well_formed = f"(instr(line, '\"') = 0 OR concat({_sql(delimiter)}, line) RLIKE {_sql(f'^(?:{_field(d)})*+$')})"
    split = lines.selectExpr("line", "file", f"{well_formed} AS well_formed", f"{fields_of} AS fields")
    texts = split.selectExpr(
        "line",
        "file",
        "well_formed",
        "size(fields) AS width",
        *(f"{_field_text(ordinal)} AS text_{ordinal}" for ordinal in range(len(columns))),
    )
    reasons = [
        "CASE WHEN NOT is_valid_utf8(line) THEN 'not UTF-8 text' END",
        "CASE WHEN NOT well_formed THEN 'a quote is not closed, or text follows a closed one' END",
        f"CASE WHEN width <> {len(columns)} THEN concat('expected {len(columns)} fields, found ', width) END",
        *(_misfit(ordinal, column) for ordinal, column in enumerate(columns)),
    ]
    return texts.selectExpr("*", f"coalesce({', '.join(reasons)}) AS reason").selectExpr(
        "make_valid_utf8(line) AS line",
        "file",
        "reason",
        *(f"text_{ordinal}" for ordinal in range(len(columns))),
    )


def _write_good(judged: DataFrame, columns: Sequence[Column], folder: Path) -> tuple[int, int]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    counts = Observation()
    good = (
        judged.observe(counts, sf.count(sf.lit(1)).alias("rows_in"), sf.count("reason").alias("quarantined"))
        .where("reason IS NULL")
        .selectExpr(*(f"{_typed(ordinal, column)} AS {_name(column)}" for ordinal, column in enumerate(columns)))
    )
    write_parquet(good, folder)
    return int(counts.get["rows_in"]), int(counts.get["quarantined"])


def _field(delimiter: str) -> str:
    """Write the expression of one field with the delimiter before it; possessive, so that it never backtracks."""
    return rf'{delimiter}("(?:[^"]|"")*+"(?={delimiter}|$)|(?!")[^{delimiter}]*+)'


def _field_text(ordinal: int) -> str:
    raw = f"get(fields, {ordinal})"
    unquoted = f"replace(substr({raw}, 2, length({raw}) - 2), '\"\"', '\"')"
    return f"CASE WHEN startswith({raw}, '\"') THEN {unquoted} WHEN {raw} = '' THEN NULL ELSE {raw} END"


def _typed(ordinal: int, column: Column) -> str:
    text = f"text_{ordinal}"
    return text if column.data_type == "string" else f"try_cast({text} AS {column.data_type})"


def _misfit(ordinal: int, column: Column) -> str:
    text = f"text_{ordinal}"
    wrong = f"{text} IS NOT NULL AND {_typed(ordinal, column)} IS NULL"
    digits = decimal_digits(column.data_type)
    if digits is not None:  # a cast would round in silence
        too_fine = _sql(rf"\.\d{{{digits[1]}}}\d*[1-9]")
        wrong = f"({wrong}) OR {text} RLIKE {too_fine}"
    message = _sql(f"column {column.name}: expected {column.data_type}, found ")
    return f"CASE WHEN {wrong} THEN concat({message}, '\"', left({text}, {SHOWN_CHARACTERS}), '\"') END"


def _name(column: Column) -> str:
    return "`" + column.name.replace("`", "``") + "`"


def _sql(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
