"""Tables that jobs write: Parquet in row groups of one size, in folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_ROWS = 122_880  # as DuckDB's own: its scan buffers grow with the row group


def write_parquet(rows: DataFrame, folder: Path) -> None:
    """Write Parquet files, one per part."""
    writer = rows.write.option("parquet.block.row.count.limit", ROW_GROUP_ROWS)
    writer.parquet(str(folder), compression="snappy")


@contextmanager
def published(target: Path) -> Iterator[Path]:
    """Give a hidden sibling to write into; it takes the target's place at the end, or vanishes on an error.

    A target that is there already is moved aside first and comes back if the change fails. Readers see the old
    folder, for a moment none, then the new one: a folder cannot be exchanged in one step.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex[:8]
    draft = target.with_name(f".{target.name}.{token}.draft")
    aside = target.with_name(f".{target.name}.{token}.old")
    try:
        yield draft
        if target.exists():
            target.rename(aside)
        try:
            draft.rename(target)
        except OSError:
            if aside.exists():
                aside.rename(target)
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
