"""Settings of a session for partitions that are written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sql.dialects.names import HIVES


class Overwrite(StrEnum):
    """Which partitions the rows of an INSERT OVERWRITE take the place of."""

    STATIC = "static"
    """All that have the values which the statement names; all there are, where it names none."""

    DYNAMIC = "dynamic"
    """Of these, only those that rows are written to."""


OVERWRITES = dict.fromkeys(HIVES, Overwrite.DYNAMIC)  # by dialect; static in all others, as in Spark


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Settings with which a session's statements write partitions."""

    overwrite: Overwrite | None = None
    """None leaves it to the statement's dialect."""
    dynamic: bool = True
    """A query may say which partitions its rows go to."""
    strict: bool = False
    """At least one partition column has a value in the statement."""


AS_THE_DIALECT_HAS_IT = PartitionSettings()
