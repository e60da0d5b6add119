"""What Sail's plans tell of files, put into the names of the tables that they are of.

A scan names its files, by a path without its first slash and in the way of addresses ("%20"). The estimate has to know
which table that is, and nobody needs to see where it lies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from urllib.parse import unquote

from engines.protocol import TableSource

SCAN = "DataSourceExec: file_groups="
NAMED_SCAN = "DataSourceExec: table="
_FILES_END = "]]}"
_MOST_LINES = 100_000


def with_table_names(plan: str, tables: Iterable[TableSource]) -> str:
    """Return a plan's text in which scans have ``table="name"`` (JSON) instead of their files."""
    # Of a folder in another table's folder, the longest that fits is meant.
    places = sorted(((_place(table), table.name) for table in tables), key=lambda place: -len(place[0]))
    lines = plan.split("\n", _MOST_LINES)
    return "\n".join(_named(line, places) for line in lines)


def _place(table: TableSource) -> str:
    return os.path.normpath(table.location.removeprefix("file:")).strip("/")


def _named(line: str, places: Iterable[tuple[str, str]]) -> str:
    start = line.find(SCAN)
    if start < 0:
        return line
    end = line.find(_FILES_END, start)
    first = line.find("[[", start)
    if end < 0 or first < 0:
        return line
    path = unquote(line[first + 2 : end]).lstrip("/")
    name = next((name for place, name in places if _is_in(path, place)), None)
    # More groups of files than the text has room for stand behind three dots.
    tail = line[end + len(_FILES_END) :]
    return f"{line[:start]}{NAMED_SCAN}{json.dumps(name or '')}{tail}"


def _is_in(path: str, place: str) -> bool:
    return path.startswith(place) and path[len(place) : len(place) + 1] in ("/", ":", ",", "")
