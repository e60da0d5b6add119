"""Rights of a statement's user, as the passes over its tree ask for them.

``parts.py`` puts them into the tree, in the place of each table and view; ``fencing.py`` keeps the errors of a
statement from telling of rows that were filtered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sql.names import base_name
from sql.tables import Column

Relation = TypeVar("Relation")


@dataclass(frozen=True, slots=True)
class Restriction:
    """Part of a table or view that a user may see."""

    columns: tuple[str, ...]
    """Names of the columns that the user may read, in the relation's order; none: the user may read nothing of it."""
    filters: tuple[str, ...] = ()
    """Conditions in Spark's SQL; the user sees rows that fulfil all of them."""
    masks: Mapping[str, str] = field(default_factory=dict)
    """Expressions in Spark's SQL, by the name of the column whose value they replace."""
    is_invalid: bool = False
    """A rule is about a column that there is not: nothing may be read."""


class Access(Protocol):
    """Rights of one user."""

    @property
    def name(self) -> str:
        """Name of the user, for messages."""

    @property
    def user(self) -> str | None:
        """Name that the user has proved; None: none."""

    def sees(self, relation: str) -> bool:
        """Tell whether the user may know that a table or view exists. relation: full name."""

    def restriction(self, relation: str, columns: Sequence[Column], lender: str | None = None) -> Restriction | None:
        """Return the part of a table or view that the user may see; None: all of it.

        lender: owner of the view whose query names the relation; None: no view does, or nobody owns it.
        """


def is_own_name(relation: str) -> bool:
    """Tell whether a name is that of a session's own view, or of a query of ours: no rule is about it."""
    return relation.startswith(".")


class Visible(Mapping[str, Relation]):
    """Relations of which a user may know, by full name. everything: all that exist."""

    def __init__(self, everything: Mapping[str, Relation], access: Access) -> None:
        self.everything = everything
        self.access = access

    def __getitem__(self, name: str) -> Relation:
        relation = self.everything[name]
        if not self.access.sees(base_name(name)):
            raise KeyError(name)
        return relation

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.everything if self.access.sees(base_name(name)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def visible(relations: Mapping[str, Relation], access: Access | None) -> Mapping[str, Relation]:
    """Return the relations of which a user may know; without rights to obey, all of them."""
    return relations if access is None or isinstance(relations, Visible) else Visible(relations, access)


def everything(relations: Mapping[str, Relation]) -> Mapping[str, Relation]:
    """Return all relations, of a mapping that ``visible`` made."""
    return relations.everything if isinstance(relations, Visible) else relations


def shown_columns(relation: str, columns: Sequence[Column], access: Access | None) -> Sequence[Column]:
    """Return the columns of a relation that a user may read."""
    restriction = access.restriction(base_name(relation), columns) if access is not None else None
    if restriction is None:
        return columns
    return tuple(column for column in columns if column.name in restriction.columns)
