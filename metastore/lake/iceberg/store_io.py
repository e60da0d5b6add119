"""Files of Iceberg tables for pyiceberg, by the gateway's own file systems: one way to each kind of store."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, PyArrowLocalFileSystem

from metastore.lake.place import local_path
from metastore.lake.values import LakeUnreadable
from metastore.objects.credentials import of_properties
from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.store import FILE_PROPERTIES, is_remote, key_of


class StoreIO(PyArrowFileIO):
    """Reader and writer of files.

    properties: of pyiceberg, as tables show them.
    store_of: function that returns the store of a location in an object store; None: there is none.
    """

    def __init__(self, properties: dict[str, str], store_of: Callable[[str], ObjectStore | None]) -> None:
        super().__init__(properties)
        self._store_of = store_of

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read. Raises LakeUnreadable."""
        return self._file(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write. Raises LakeUnreadable."""
        return self._file(location)

    def delete(self, location: object) -> None:
        """Delete a file. Raises LakeUnreadable, OSError."""
        file = self._file(str(getattr(location, "location", location)))
        file._filesystem.delete_file(file._path)

    def _file(self, location: str) -> PyArrowFile:
        store = self._store_of(location) if is_remote(location) else None
        if store is not None:
            return PyArrowFile(location, key_of(location), store.filesystem)
        if "://" in location and not location.startswith("file:"):
            raise LakeUnreadable(f"its file {location:.200} is in no store of the settings")
        return PyArrowFile(location, local_path(location), PyArrowLocalFileSystem())


class CatalogIO(StoreIO):
    """Reader and writer of a catalog's files. properties: of the catalog and of what it gives with a table."""

    def __init__(self, properties: dict[str, str]) -> None:
        file_properties = {key: value for key, value in properties.items() if key.startswith(FILE_PROPERTIES)}
        super().__init__(file_properties, lambda location: of_properties(location, file_properties))
