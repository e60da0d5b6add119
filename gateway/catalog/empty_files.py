"""Files without rows, which say by themselves what columns a table has: an engine that asks its files finds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from engines.arrow_types import arrow_type
from sql.tables import Column


def write_empty_file(folder: Path, query_id: str, format: str, columns: Sequence[Column]) -> str | None:
    """Write a file with these columns and no rows, and return its name; None where Arrow has no such file.

    query_id: of the statement that has it written; no two files have the same. Raises OSError.
    """
    name = f"empty-{query_id}.{format}"
    rows = pa.schema([(column.name, arrow_type(column.type)) for column in columns]).empty_table()
    try:
        if format == "orc":
            pa_orc.write_table(rows, folder / name)
        else:
            pq.write_table(rows, folder / name)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):  # a type that the format lacks
        (folder / name).unlink(missing_ok=True)
        return None
    return name
