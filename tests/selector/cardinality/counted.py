"""Tables in memory whose statistics the job's own summaries make, and statements over them, estimated and counted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence

import duckdb
import pyarrow as pa

from benchmarks.tables import Tables, explained
from metastore.records import CatalogTable
from selector.cardinality.tree import EstimatedNode, estimate_rows
from sql.tables import Column, TableSource
from statsproc.job.in_memory import Rows, describe_rows
from statsproc.read.files import TableChunk

SPARK_TYPES = {pa.int64(): "bigint", pa.float64(): "double", pa.string(): "string", pa.date32(): "date"}


class Counted:
    """Tables, what is known of them, and a database that holds them."""

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        groups: Sequence[Collection[tuple[str, str]]] = (),
        *,
        sampled: Mapping[str, float] | float = 1.0,
        by_key: float = 0.0,
    ) -> None:
        """Compute statistics.

        groups: keys that are cut together, as (table, columns with commas between). sampled: share of the rows in the
        samples, 0.0 for none. by_key: chance of a key that its rows are chosen.
        """
        self.connection = duckdb.connect(config={"threads": 1})
        for name, rows in tables.items():
            self.connection.register("rows", rows)
            self.connection.execute(f"CREATE TABLE {name} AS FROM rows")
            self.connection.unregister("rows")
        keys = {
            name: {key: f"group {n}" for n, group in enumerate(groups) for table, key in group if table == name}
            for name in tables
        }
        asked = {
            name: Rows(
                [TableChunk(f"/{name}.parquet 0", "", rows)],
                _types(rows),
                keys[name],
                sample_share=sampled if isinstance(sampled, float) else sampled[name],
                key_share=by_key,
            )
            for name, rows in tables.items()
        }
        self.statistics = dict(describe_rows(asked).statistics)
        self._sources = {
            name: CatalogTable(
                TableSource(name, f"/{name}", "parquet", tuple(Column(*column) for column in _types(rows).items())),
                1,
                0,
                rows.num_rows,
                (),
                dt.datetime.min,
            )
            for name, rows in tables.items()
        }

    def estimated(self, sql: str) -> EstimatedNode:
        """Estimate the plan that DuckDB makes of a statement."""
        catalog = Tables(self._sources, self.statistics)
        return estimate_rows(catalog.plan(sql, explained(self.connection, sql)), self.statistics, catalog.shapes)

    def rows(self, sql: str) -> float:
        """Return the estimated rows of a statement."""
        found = self.estimated(sql)
        assert found.rows is not None
        assert found.upper is not None
        assert 0.0 <= found.rows <= found.upper * (1 + 1e-9)
        return found.rows

    def count(self, sql: str) -> int:
        """Return the rows that a statement really has."""
        ((found,),) = self.connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()
        return int(found)


def _types(rows: pa.Table) -> dict[str, str]:
    return {field.name: SPARK_TYPES[field.type] for field in rows.schema}
