"""START HERE for commits: a statement's rows, written by an engine, become one commit of a lake table.

The functions take values alone: the gateway runs them in processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from engines.arrow_types import arrow_type, spark_type
from metastore.lake.place import exact_name, place_of
from metastore.lake.resolution import module_of
from metastore.lake.values import LakeCommit, LakeConflict, LakeUnreadable, LakeUnwritable, TableGone, one_line
from metastore.objects.access import NO_OBJECTS, CatalogAccess, ObjectAccess
from metastore.records import Database
from sql.errors import NotAllowed, TableChangedConcurrently
from sql.tables import Column, PartitionBy, TableSource


def commit(table: TableSource, change: LakeCommit, access: ObjectAccess = NO_OBJECTS) -> str:
    """Commit to a registered table and return the id of its new snapshot.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        snapshot_id: str = module_of(table.format, "writing").commit(place_of(table, access), change)
        return snapshot_id


def committed(table: TableSource, query_id: str, access: ObjectAccess = NO_OBJECTS) -> str | None:
    """Return the snapshot that a statement has committed to a registered table; None: there is none.

    Raises NotAllowed.
    """
    with as_sql_errors(table.name, table.location):
        snapshot_id: str | None = module_of(table.format, "writing").committed(place_of(table, access), query_id)
        return snapshot_id


def create(
    table: TableSource,
    partition_by: Sequence[PartitionBy],
    properties: Mapping[str, str],
    access: ObjectAccess = NO_OBJECTS,
) -> None:
    """Make an empty table in a folder. Raises NotAllowed, TableChangedConcurrently if there is one."""
    with as_sql_errors(table.name, table.location):
        _require_types(table.columns)
        spelled = {column.name.lower(): column.name for column in table.columns}
        missing = [one.column for one in partition_by if one.column.lower() not in spelled]
        if missing:
            raise LakeUnwritable(f"it has no column {missing[0]} to be partitioned by")
        partitions = [PartitionBy(spelled[one.column.lower()], one.transform) for one in partition_by]
        module_of(table.format, "writing").create(place_of(table, access), table.columns, partitions, properties)


def add_columns(table: TableSource, columns: Sequence[Column], access: ObjectAccess = NO_OBJECTS) -> None:
    """Add columns to a registered table. Raises NotAllowed, TableChangedConcurrently."""
    with as_sql_errors(table.name, table.location):
        _require_types(columns)
        module_of(table.format, "writing").add_columns(place_of(table, access), columns)


def alter_columns(
    table: TableSource,
    new_names: Mapping[str, str],
    dropped: Sequence[str],
    widened: Sequence[Column],
    access: ObjectAccess = NO_OBJECTS,
) -> None:
    """Rename, drop or widen columns of a registered table.

    new_names: by old ones.
    widened: columns with their new types.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        _require_types(widened)
        module_of(table.format, "writing").alter_columns(place_of(table, access), new_names, dropped, widened)


def set_properties(table: TableSource, properties: Mapping[str, str | None], access: ObjectAccess = NO_OBJECTS) -> None:
    """Set properties of a registered table. None: it goes. Raises NotAllowed, TableChangedConcurrently."""
    with as_sql_errors(table.name, table.location):
        module_of(table.format, "writing").set_properties(place_of(table, access), properties)


def require_namespace(catalog: CatalogAccess, database: Database, there: bool) -> None:
    """Make a namespace of a catalog, or drop an empty one. Raises NotAllowed."""
    from metastore.lake.iceberg import catalogs  # with it come the libraries of catalogs

    try:
        namespace = exact_name(database.identifiers) or database.name.partition(".")[2]
        catalogs.require_namespace(catalog, namespace, there=there)
    except (LakeUnreadable, LakeUnwritable) as failure:
        raise NotAllowed(f"{database.name} cannot be {'made' if there else 'dropped'}: {failure}.") from failure


def drop(table: TableSource, access: ObjectAccess = NO_OBJECTS) -> None:
    """Drop a catalog's table; its files stay. Raises NotAllowed."""
    from metastore.lake.iceberg import catalogs

    with as_sql_errors(table.name, table.location), suppress(TableGone):
        catalogs.drop(place_of(table, access))


def remove(table: TableSource, access: ObjectAccess) -> None:
    """Delete all files in the folder of a table in an object store. Raises NotAllowed."""
    with as_sql_errors(table.name, table.location):
        place = place_of(table, access)
        try:
            place.filesystem.delete_dir(place.path())
        except FileNotFoundError:
            return
        except OSError as failure:
            raise LakeUnwritable(f"its object store does not answer as it should ({one_line(failure)})") from failure


@contextmanager
def as_sql_errors(name: str, location: str) -> Iterator[None]:
    """Raise errors of the client in the place of the formats', without the table's location."""
    try:
        yield
    except LakeConflict as failure:
        raise TableChangedConcurrently(
            f"Others have written to {name} meanwhile: send the statement again."
        ) from failure
    except (LakeUnwritable, LakeUnreadable) as failure:
        raise NotAllowed(f"{name} cannot be written: {str(failure).replace(location, name)}.") from failure


def _require_types(columns: Sequence[Column]) -> None:
    """Refuse types that the formats would store as another one."""
    for column in columns:
        if column.collation or spark_type(arrow_type(column.type)) != column.data_type:
            raise LakeUnwritable(f"lake tables have no type {column.type}, which the column {column.name} has")
