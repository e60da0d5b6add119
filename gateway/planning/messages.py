"""Messages between a gateway and its planner processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MEMORY_BYTES = 1 << 30
"""Limit of the memory that a call takes, unless its pool has another one."""


class Outcome(StrEnum):
    """End of a function, or its begin: a process that is lost before it begins is no fault of the function."""

    BEGUN = "begun"
    DONE = "done"  # with its result
    FAILED = "failed"  # with one of EXPECTED
    TOO_LONG = "too long"
    TOO_LARGE = "too large"
    DEFECT = "defect"  # with a traceback


@dataclass(frozen=True, slots=True)
class SharedValue:
    """Reference to a value that the process already holds."""

    key: int


@dataclass(frozen=True, slots=True)
class ShareValue:
    """Value that several calls will refer to."""

    key: int
    value: object


@dataclass(frozen=True, slots=True)
class ReplaceMapping:
    """Replacement of a mapping that the process holds by one that differs a little.

    key: key of the new mapping.
    before: key of the mapping that it replaces.
    changed: entries that are new or have another value.
    gone: keys that the new mapping does not have.
    """

    key: int
    before: int
    changed: Mapping[Any, object]
    gone: Sequence[object]


@dataclass(frozen=True, slots=True)
class ForgetValues:
    """ShareValue nothing any more."""


@dataclass(frozen=True, slots=True)
class Call:
    """A module's function with its arguments.

    cpu_s: limit of its processor time in seconds.
    memory_bytes: limit of what it takes beyond what the process holds.
    """

    function: Callable[..., object]
    arguments: Sequence[object]
    cpu_s: float
    memory_bytes: int
