"""Rows on their way into a lake table: Parquet files that an engine writes into a folder of the gateway's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from engines.files.listing import data_files
from gateway.catalog.own_folders import OwnFolders

FORMAT = "parquet"


@contextmanager
def staging_folder(folders: OwnFolders, table: str, query_id: str) -> Iterator[Path]:
    """Give the path of a folder, which an engine makes; it is deleted at the end, or when the gateway starts again."""
    folder = folders.reserve(f"{table}-rows", query_id)
    try:
        yield folder
    finally:
        folders.delete(str(folder))


def files_in(folder: Path) -> tuple[str, ...]:
    """Return the paths of the files in a folder that an engine wrote into; none where it wrote no rows."""
    return tuple(str(file.path) for file in data_files(folder)) if folder.is_dir() else ()


def rows_in(files: Sequence[str]) -> int:
    """Return how many rows files hold."""
    return sum(pq.read_metadata(file).num_rows for file in files)
