"""Checks of a table's files against its definition before a statement reads them: files change without the catalog.

What is registered was inspected then. Files that came later may be of a lake format by now, lie in other partition
folders, or hold a column in a type that engines would each convert in their own way. What is found is remembered until
a file or folder of the table changes, and a file that was looked into is not opened again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engines.files.listing import DataFile, InspectionFailed, data_files, partition_names
from gateway.catalog.file_stamps import FileStamps, files_at
from metastore.discovery.inspector import require_fitting
from sql.errors import TableUnreadable
from sql.tables import TableSource


@dataclass(frozen=True, slots=True)
class _Checked:
    """Files of a table that were checked against its definition.

    source: definition of the table.
    as_they_were: stamps of all files; None: a change within the clock's resolution could not be seen.
    fitting: files that fit the definition.
    is_own: the gateway wrote the files.
    """

    source: TableSource
    as_they_were: FileStamps | None = None
    fitting: frozenset[tuple[str, int, int]] = frozenset()
    is_own: bool = False


class ReadableFiles:
    """Checks of tables' files. Thread-safe.

    is_own: predicate: the gateway wrote a table's files.
    may_be_empty: predicate: a table may have no files.
    """

    def __init__(self, *, is_own: Callable[[TableSource], bool], may_be_empty: Callable[[TableSource], bool]) -> None:
        self._is_own = is_own
        self._may_be_empty = may_be_empty
        self._checked: dict[str, _Checked] = {}
        self._lock = threading.Lock()

    def require(self, table: TableSource) -> None:
        """Require that all engines can read a table's files, with the same result. Raises TableUnreadable."""
        with self._lock:
            checked = self._checked.get(table.location)
        if checked is None or checked.source != table:
            checked = _Checked(table, is_own=self._is_own(table))
            self._keep(checked)
        if checked.is_own or (checked.as_they_were is not None and checked.as_they_were.are_unchanged()):
            return
        as_they_are = files_at((table.location,))
        try:
            fitting = self._fitting(table, checked)
        except InspectionFailed as failure:
            raise TableUnreadable(f"{table.name} cannot be read: {_without_place(failure, table)}.") from failure
        self._keep(_Checked(table, as_they_are, fitting))

    def _keep(self, checked: _Checked) -> None:
        with self._lock:
            self._checked[checked.source.location] = checked

    def _fitting(self, table: TableSource, checked: _Checked) -> frozenset[tuple[str, int, int]]:
        """Return the table's files, all of which fit. Raises InspectionFailed."""
        root = Path(table.location)
        if not root.exists():
            raise InspectionFailed("its files are gone; put them back, or drop the table")
        files = tuple(file for file in data_files(root) if file.bytes)
        if not files and not self._may_be_empty(table):
            raise InspectionFailed(
                "its files are gone, and its columns were those of its files; put them back and REFRESH the table, "
                "or drop it"
            )
        folders = partition_names(files, root)
        if files and [name.lower() for name in folders] != [name.lower() for name in table.partition_columns]:
            raise InspectionFailed(
                f"its partition folders are {', '.join(folders) or 'none'} now, not "
                f"{', '.join(table.partition_columns) or 'none'}; REFRESH the table"
            )
        marks = {_mark(file): file.path for file in files}
        new = [path for mark, path in marks.items() if mark not in checked.fitting]
        if new:
            require_fitting(table, new)
        return frozenset(marks)


def _mark(file: DataFile) -> tuple[str, int, int]:
    return str(file.path), file.bytes, file.modified_ns


def _without_place(failure: InspectionFailed, table: TableSource) -> str:
    return str(failure).replace(table.location, table.name)
