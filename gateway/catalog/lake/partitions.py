"""Partitions of lake tables. They are in no folders that the catalog could list: the newest snapshot has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engines.files.manifest import Manifest, read_manifest
from metastore.records import CatalogTable, Partition

if TYPE_CHECKING:
    from gateway.catalog.registration import Registration
    from gateway.planning.fairness import Requester


def with_partitions(table: CatalogTable, registration: Registration, requester: Requester) -> CatalogTable:
    """Return a table with its partitions as they are now. Raises as ``Registration.pinned`` does."""
    if not table.source.is_lake or not table.source.partition_columns:
        return table
    (pinned,) = registration.pinned((table.source,), requester)
    assert pinned.snapshot is not None
    return replace(table, partitions=_partitions(read_manifest(pinned.snapshot.manifest)))


def _partitions(manifest: Manifest) -> tuple[Partition, ...]:
    """Return the partitions of a snapshot by name."""
    partitions = [
        Partition(files[0].folder, files[0].partition, len(files), sum(file.bytes for file in files))
        for _, files in manifest.by_constants()
    ]
    return tuple(sorted(partitions, key=lambda partition: partition.path))
