"""Commits of an Iceberg table in a folder, as Iceberg's Hadoop catalog makes them.

The metadata file of the next version, ``v4.metadata.json``, is made by one step that fails where it exists already.
Tables whose metadata files have other names belong to a catalog, which alone may commit to them.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from metastore.lake.iceberg.reading import PlaceIO, newest_metadata
from metastore.lake.place import TablePlace
from metastore.lake.values import LakeConflict, LakeUnwritable

_VERSION = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "version-hint.text"
NEWEST_WRITTEN = 2
"""Newest format version that pyiceberg 0.12 writes."""


class WritablePlaceIO(PlaceIO):
    """Reader and writer of files of one table."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a new file. Raises LakeUnreadable for one outside the table's folder."""
        return super().new_output(self._checked(location))

    def delete(self, location: object) -> None:
        """Delete a file. Raises LakeUnreadable for one outside the table's folder, OSError."""
        super().delete(self._checked(str(getattr(location, "location", location))))


class FolderCatalog(NoopCatalog):
    """Catalog of the one table in a folder."""

    def __init__(self, place: TablePlace) -> None:
        super().__init__("folder")
        self._place = place
        self._folder = Path(place.folder)
        self._io = WritablePlaceIO(place)

    def table(self) -> Table:
        """Return the table at its newest version. Raises LakeUnreadable, LakeUnwritable."""
        self._require_folder()
        metadata = newest_metadata(self._place)
        if _VERSION.fullmatch(Path(metadata).name) is None:
            raise LakeUnwritable(
                f"its metadata {Path(metadata).name} was written by a catalog, which alone may commit: write through "
                "that one"
            )
        table = Table(("folder", "table"), self._read(metadata), metadata, self._io, self)
        require_version(table.format_version)
        return table

    def create(self, metadata: TableMetadata) -> None:
        """Write the first version of a table. Raises LakeConflict if there is one."""
        self._require_folder()
        self._write(1, metadata)

    def _require_folder(self) -> None:
        """Refuse object stores, in which a folder's next version cannot be made by one step. Raises LakeUnwritable."""
        if self._place.store is not None:
            raise LakeUnwritable(
                "an Iceberg table in an object store is written through a catalog: add it to one, or take Delta"
            )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit on top of the version that the table was read at. Raises LakeConflict if there is a newer one."""
        match = _VERSION.fullmatch(Path(table.metadata_location).name)
        assert match is not None
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        path = self._write(int(match[1]) + 1, metadata)
        return CommitTableResponse(metadata=metadata, metadata_location=str(path))

    def _read(self, location: str) -> TableMetadata:
        return FromInputFile.table_metadata(self._io.new_input(location))

    def _write(self, version: int, metadata: TableMetadata) -> Path:
        folder = self._folder / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"v{version}.metadata.json"
        part = folder / f"{uuid.uuid4()}.part"
        try:
            _write_durably(part, metadata.model_dump_json(exclude_none=True))
            versions = (_VERSION.fullmatch(path.name) for path in folder.iterdir())
            if version in {int(match[1]) for match in versions if match is not None}:
                raise LakeConflict(f"others have committed version {version}")
            try:
                os.link(part, path)  # fails where another writer was faster
            except FileExistsError as error:
                raise LakeConflict(f"others have committed version {version}") from error
            hint = folder / f"{uuid.uuid4()}.hint"
            hint.write_text(str(version), encoding="ascii")
            hint.replace(folder / _HINT)
        finally:
            part.unlink(missing_ok=True)
        return path


def require_version(version: int) -> None:
    """Refuse format versions that pyiceberg does not write. Raises LakeUnwritable."""
    if version > NEWEST_WRITTEN:
        raise LakeUnwritable(
            f"its format version is {version}, and pyiceberg writes up to {NEWEST_WRITTEN}: use its own writer"
        )


def _write_durably(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def snapshot_of(table: Table, key: str, value: str) -> str | None:
    """Return the id of the snapshot that notes a value; None: none of the table's does."""
    for snapshot in reversed(table.snapshots()):
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(key) == value:
            return str(snapshot.snapshot_id)
    return None
