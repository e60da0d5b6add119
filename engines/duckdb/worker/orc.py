"""A table's ORC files as something that DuckDB can scan: it has no reader of its own, but it reads what Arrow reads.

Columns and filters are pushed down into Arrow's scan. What Arrow would read otherwise than Spark, days before 1582 and
times that nanoseconds do not reach, is found in the files' tails and left to the dependable engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.orc as pa_orc

from engines.arrow_types import arrow_type
from engines.errors import UnsupportedFeature
from engines.files.listing import DataFile
from engines.files.orc_tail import read_tail
from selector.types import Group, Kind, names_of
from sql.tables import TableSource

_IN_FOLDERS = (*names_of(Group.WHOLE, Group.DATE), Kind.STRING)


def dataset_of(source: TableSource, files: Sequence[DataFile]) -> pa_dataset.Dataset:
    """Return a dataset over a table's files. Raises UnsupportedFeature for what Arrow does not read as Spark does."""
    partitioning = None
    try:
        schemas = [_schema_of(source, file) for file in files]
        pa.unify_schemas(schemas)
    except (pa.ArrowException, OSError) as error:
        raise UnsupportedFeature(f"Arrow cannot read the ORC files of {source.name}.") from error
    if source.partition_columns:
        types = {column.name: column.type for column in source.columns}
        for name in source.partition_columns:
            if types[name].kind not in _IN_FOLDERS:
                raise UnsupportedFeature(f"{source.name} is in folders of a {types[name]}.")
        schemas.append(pa.schema([(name, arrow_type(types[name])) for name in source.partition_columns]))
        partitioning = pa_dataset.partitioning(schemas[-1], flavor="hive")
    return pa_dataset.dataset(
        [str(file.path) for file in files],
        schema=pa.unify_schemas(schemas),
        format="orc",
        partitioning=partitioning,
        partition_base_dir=source.location,
    )


def _schema_of(source: TableSource, file: DataFile) -> pa.Schema:
    reader = pa_orc.ORCFile(file.path)
    if read_tail(reader.reader.serialized_file_tail()).other_times:
        raise UnsupportedFeature(f"{source.name} holds days before 1582 or times that only Spark reads from ORC.")
    return reader.schema
