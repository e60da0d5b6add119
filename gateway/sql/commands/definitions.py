"""Statements that change what the catalog says of tables, views and databases, as values; no rows are written.

And what a PARTITION clause asks, in whatever statement it stands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engines.protocol import Column
from metastore.discovery.inspection import DEFAULT_PARTITION
from metastore.records import NOT_ANNOTATED, Annotations, Partition, Position

Test = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """What a PARTITION clause asks of one column. value: None is NULL. position: of the column's name."""

    column: str
    test: Test
    value: int | str | None
    position: Position

    @property
    def is_equality(self) -> bool:
        """Whether it asks for one value."""
        return self.test is operator.eq

    def holds(self, partition: Partition) -> bool:
        """Tell whether a partition is meant; no comparison with a value holds for NULL."""
        text = partition.values[self.column]
        if self.value is None:
            return self.test(text, DEFAULT_PARTITION)
        return text != DEFAULT_PARTITION and self.test(int(text) if isinstance(self.value, int) else text, self.value)


class OwnedKind(StrEnum):
    """What has an owner and a name; the value is the word for it."""

    TABLE = "table"
    VIEW = "view"
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """Files that lie somewhere become a table.

    format: None to find out. columns: none to find out; those of partition_columns are among them, where their types
    are told. options: how to read text.
    """

    table: str
    location: str
    format: str | None = None
    columns: tuple[Column, ...] = ()
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    annotations: Annotations = NOT_ANNOTATED
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """A table or a view gets another full name, perhaps of another database."""

    kind: OwnedKind
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """What is said of something. column: of it, whose comment it is. comment: "" takes it away."""

    kind: OwnedKind
    name: str
    comment: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Properties that are told, beside those told before. rows: of the table, where ``numRows`` is among them."""

    kind: OwnedKind
    name: str
    properties: Mapping[str, str]
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """Properties that are no more told. if_exists: one that is not there is no mistake."""

    kind: OwnedKind
    name: str
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions that a table is to know. partitions: a value of each partition column, None for NULL."""

    table: str
    partitions: tuple[Mapping[str, str | None], ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AnalyzeTables:
    """Statistics of several tables, one after the other. scan: False looks at their files alone."""

    tables: tuple[str, ...]
    scan: bool = True


Definition = RegisterTable | Rename | SetComment | SetProperties | UnsetProperties | AddPartitions
DEFINITIONS = (RegisterTable, Rename, SetComment, SetProperties, UnsetProperties, AddPartitions)
