"""Lake formats, recognised by names in a folder. Their files alone are not their rows.

Deleted and replaced rows are still in the data files. So a location above a table of a lake format or below it is
refused, and at its folder it is read by its log (``metastore/lake/``), or refused where that is not supported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_Names = Sequence[str]


@dataclass(frozen=True, slots=True)
class LakeFormat:
    """A lake format.

    sign: name that shows the folder of a table.
    held_in: sub-folder with that name; "": the table's own folder.
    format: of the tables that it may be registered as; "": it is not read.
    """

    name: str
    sign: re.Pattern[str]
    held_in: str = ""
    format: str = ""

    def refusal(self, table: Path) -> str:
        """Return the reason why a location in, above or below the table's folder cannot be registered."""
        if self.format:
            return f"{table} is a table of {self.name}: register that folder, neither a part of it nor one around it"
        return (
            f"{table} is a table of {self.name}: its files also hold rows that were deleted or replaced, and only "
            f"{self.name}'s own log tells which. Leave the folder as it is, write the rows into plain Parquet files "
            f"elsewhere with an engine that reads {self.name}, and register those"
        )


LAKE_FORMATS = (
    LakeFormat("Delta Lake", re.compile(r"_delta_log"), format="delta"),
    LakeFormat("Apache Hudi", re.compile(r"\.hoodie")),
    LakeFormat(
        "Apache Iceberg", re.compile(r".+\.metadata\.json|version-hint\.text"), held_in="metadata", format="iceberg"
    ),
    LakeFormat("Apache Paimon", re.compile(r"schema-\d+"), held_in="schema"),
    LakeFormat("Hive ACID", re.compile(r"base_\d{7}(_v\d+)?|(delete_)?delta_\d{7}_\d{7}(_.*)?")),
)


def lake_format(folder: Path, names: _Names) -> LakeFormat | None:
    """Return the format of a table in a folder; None: there is none. names: of all entries of the folder."""
    for lake in LAKE_FORMATS:
        candidates: Iterable[str] = names
        if lake.held_in:
            candidates = _names_in(folder / lake.held_in) if lake.held_in in names else ()
        if any(map(lake.sign.fullmatch, candidates)):
            return lake
    return None


def lake_table_around(place: Path, *, up_to: Callable[[Path], bool]) -> tuple[Path, LakeFormat] | None:
    """Return the lake table whose folder contains a location; None: there is none.

    up_to: returns True for the outermost folder to search.
    """
    for folder in place.parents:
        lake = lake_format(folder, _names_in(folder))
        if lake is not None:
            return folder, lake
        if up_to(folder):
            return None
    return None


def _names_in(folder: Path) -> _Names:
    """Return the names in a folder; none if it cannot be read, or is not a folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return ()
