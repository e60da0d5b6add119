"""What is true of a table, as DuckDB counts it in the same files, and how far statistics are from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.statistics import TEXT_KEY_BYTES, ColumnStatistics, Histogram, Key, TableStatistics
from sql.tables import Column, TableSource

CLOSE = 1e-9  # relative: an average of whole numbers, added up in another order


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column, exactly. minimum, maximum: on its number line, or text; lengths: bytes of strings."""

    nulls: int
    ndv: int
    minimum: float | str | None
    maximum: float | str | None
    average_length: float | None
    maximum_length: int | None


@dataclass(frozen=True, slots=True)
class ColumnErrors:
    """How far one column's statistics are off.

    rank_percent: the largest error of any end point's stored shares, None without a histogram. common_percent: the
    largest error of a common value's count, of the column's rows, None without any. ndv_percent: None where all rows
    are NULL. inexact: other fields that are not what they should be.
    """

    column: str
    rank_percent: float | None
    common_percent: float | None
    ndv_percent: float | None
    inexact: tuple[str, ...]


class Truth:
    """Asks DuckDB about tables; what a table is comes as SQL, such as ``read_parquet('books/*.parquet')``."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._facts: dict[str, tuple[int, dict[str, ColumnFacts]]] = {}

    def errors(self, relation: str, columns: Sequence[Column], found: TableStatistics) -> list[ColumnErrors]:
        """Hold a table's statistics against the truth; a wrong number of rows counts with every column."""
        rows, facts = self.facts(relation, columns)
        wrong = () if found.rows == rows else ("rows",)
        return [
            ColumnErrors(
                column.name,
                *self._placed_percent(relation, column, found.columns[column.name]),
                ndv_percent=_ndv_percent(found.columns[column.name], facts[column.name]),
                inexact=wrong + _inexact(found.columns[column.name], facts[column.name]),
            )
            for column in columns
        ]

    def errors_of_analyze(self, relation: str, columns: Sequence[Column], found: TableStatistics) -> list[ColumnErrors]:
        """Hold what ANALYZE found against the truth: end points by their place, as they come without shares."""
        _, facts = self.facts(relation, columns)
        errors = []
        for column in columns:
            histogram = found.columns[column.name].histogram
            errors.append(
                ColumnErrors(
                    column.name,
                    None if histogram is None else self.place_percent(relation, column, histogram),
                    common_percent=None,
                    ndv_percent=_ndv_percent(found.columns[column.name], facts[column.name]),
                    inexact=(),
                )
            )
        return errors

    def facts(self, relation: str, columns: Sequence[Column]) -> tuple[int, dict[str, ColumnFacts]]:
        """Return the rows of a table and what is true of its columns; counted once."""
        if relation not in self._facts:
            self._facts[relation] = self._count(relation, columns)
        return self._facts[relation]

    def _count(self, relation: str, columns: Sequence[Column]) -> tuple[int, dict[str, ColumnFacts]]:
        asked = ["count(*)"]
        for column in columns:
            name, text = column.name, column.data_type == "string"
            place = name if text else _key(column)
            lengths = [f"avg(strlen({name}))", f"max(strlen({name}))"] if text else ["NULL", "NULL"]
            asked += [
                f"count(*) - count({name})",
                f"count(DISTINCT {name})",
                f"min({place})",
                f"max({place})",
                *lengths,
            ]
        (rows, *answers), *_ = self._connection.sql(f"SELECT {', '.join(asked)} FROM {relation}").fetchall()
        width = len(answers) // len(columns)
        return rows, {
            column.name: ColumnFacts(*answers[width * ordinal : width * (ordinal + 1)])
            for ordinal, column in enumerate(columns)
        }

    def _placed_percent(
        self, relation: str, column: Column, found: ColumnStatistics
    ) -> tuple[float | None, float | None]:
        """Return the largest error of the end points' shares, and of the common values' counts."""
        ends = [] if found.histogram is None else found.histogram.endpoints.tolist()
        common = [] if found.common is None else found.common.values.tolist()
        if not ends and not common:
            return None, None
        below, up_to, rows = self._ranks(relation, column, [*ends, *common])
        below_end, up_to_end = below[: len(ends)] / rows, up_to[: len(ends)] / rows
        rank = counts = None
        if found.histogram is not None:
            assert found.histogram.below is not None
            assert found.histogram.up_to is not None
            off = np.maximum(np.abs(found.histogram.below - below_end), np.abs(found.histogram.up_to - up_to_end))
            rank = 100.0 * float(off.max())
        if found.common is not None and common:
            held = (up_to - below)[len(ends) :]
            counts = 100.0 * float(np.abs(found.common.rows - held).max()) / rows
        return rank, counts

    def place_percent(self, relation: str, column: Column, histogram: Histogram) -> float:
        """Return how far the n-th end point is from where n heights end, at most: of a histogram without shares.

        A popular value covers many ranks; an end point is right if its rank is one of them.
        """
        below, up_to, rows = self._ranks(relation, column, histogram.endpoints.tolist())
        ranks = np.linspace(0.0, rows, histogram.endpoints.size)
        return 100.0 * float(np.maximum(below - ranks, ranks - up_to).clip(min=0.0).max()) / rows

    def cumulative(self, relation: str, column: str) -> tuple[list[float], NDArray[np.int64]]:
        """Return a column's different values in order, and how many rows are below each, with all rows at the end."""
        found = self._connection.sql(
            f"SELECT {column}, count(*) FROM {relation} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY 1"
        ).fetchall()
        return [value for value, _ in found], np.cumsum([0, *(rows for _, rows in found)])

    def _ranks(
        self, relation: str, column: Column, places: Sequence[Key]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the rows below, and up to, each place on a column's line, and all rows that are not NULL."""
        line = pa.binary() if column.data_type == "string" else pa.float64()
        asked = pa.table({"ordinal": range(len(places)), "place": pa.array(places, line)})
        self._connection.register("asked", asked)
        ranked = self._connection.sql(
            f"""
            WITH line AS (
                SELECT place, sum(n) AS n, bool_or(wanted) AS wanted FROM (
                    SELECT {_key(column)} AS place, 1 AS n, false AS wanted FROM {relation}
                    WHERE {column.name} IS NOT NULL
                    UNION ALL SELECT DISTINCT place, 0, true FROM asked
                ) GROUP BY place
            ), ranked AS (
                SELECT place, n, wanted, sum(n) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS up_to,
                    sum(n) OVER () AS total FROM line
            )
            SELECT (up_to - n)::BIGINT AS below, up_to::BIGINT AS up_to, total::BIGINT AS total
            FROM asked JOIN ranked USING (place) WHERE wanted ORDER BY ordinal
            """
        ).fetchnumpy()
        return ranked["below"], ranked["up_to"], int(ranked["total"][0])


def parquet(source: TableSource) -> str:
    """Write a Parquet table in DuckDB's SQL."""
    return f"read_parquet('{source.location}/**/*.parquet', hive_partitioning = true)"


def _key(column: Column) -> str:
    """Write a column's place on its line in DuckDB's SQL."""
    if column.data_type == "string":
        return f"encode({column.name})[1:{TEXT_KEY_BYTES}]"
    if column.data_type == "date":
        return f"({column.name} - DATE '1970-01-01')::DOUBLE"
    return f"{column.name}::DOUBLE"


def _ndv_percent(found: ColumnStatistics, facts: ColumnFacts) -> float | None:
    return 100.0 * abs(found.ndv - facts.ndv) / facts.ndv if facts.ndv else None


def _inexact(found: ColumnStatistics, facts: ColumnFacts) -> tuple[str, ...]:
    same = {
        "nulls": found.nulls == facts.nulls,
        "minimum": found.minimum == facts.minimum,
        "maximum": found.maximum == facts.maximum,
        "average_length": _close(found.average_length, facts.average_length),
        "maximum_length": found.maximum_length == facts.maximum_length,
    }
    return tuple(name for name, right in same.items() if not right)


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else abs(a - b) <= CLOSE * abs(b)
