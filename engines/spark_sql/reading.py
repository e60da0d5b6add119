"""Options with which Spark reads the same files of a table as the other engines, and every row of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from selector.quoting import spark_name
from selector.types import FLOATING
from sql.tables import Column, TableSource

_WITH_BOUNDS = ("parquet", "orc")  # formats with minimum and maximum of a column in their files
_IN_PATTERNS = re.compile(r"([{}\[\]*?\\])")


def literal_path(path: str) -> str:
    """Return a path as Spark's reader takes it for that file alone: it reads names of files as patterns."""
    return _IN_PATTERNS.sub(r"\\\1", path)


def read_options(source: TableSource) -> Mapping[str, str]:
    """Return the options of Spark's reader. Sub-folders that are not partitions are a part of the table."""
    if source.partition_columns:  # Spark itself looks into sub-folders of partitions
        return source.options
    return {**source.options, "recursiveFileLookup": "true"}


def read_column(source: TableSource, column: Column) -> str:
    """Return the expression that reads a column, with its name.

    Many writers leave NaN out of minimum and maximum, and treat -0.0 as smaller than 0.0; Spark then skips row groups
    with such rows. ``nanvl(x, x)`` is x, but Spark does not compare it with minimum and maximum.
    """
    name = spark_name(column.name)
    if column.data_type in FLOATING and source.format in _WITH_BOUNDS and column.name not in source.partition_columns:
        return f"nanvl({name}, {name}) AS {name}"
    if column.collation:  # readers of files ignore it
        return f"collate({name}, '{column.collation}') AS {name}"
    return name
