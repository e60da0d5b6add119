"""A table that somebody asks to register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sql.tables import NOT_ANNOTATED, Annotations, Column


@dataclass(frozen=True, slots=True)
class NewTable:
    """Files that are to be a table."""

    name: str
    location: str
    format: str | None = None
    """None to find out."""
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    """None to find out."""
    keys: tuple[tuple[str, str], ...] = ()
    """Pairs: a column of it, and the ``table.column`` that it refers to."""
    partition_columns: tuple[str, ...] = ()
    """Of the columns, those that the folders have; none for whichever these are."""
    annotations: Annotations = NOT_ANNOTATED
