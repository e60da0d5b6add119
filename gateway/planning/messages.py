"""What a gateway and its planners' processes tell each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a function ended, or that it begins: a process that is lost before is no fault of the function."""

    BEGUN = "begun"
    DONE = "done"  # with its result
    FAILED = "failed"  # with one of EXPECTED
    TOO_LONG = "too long"
    TOO_LARGE = "too large"
    DEFECT = "defect"  # with a traceback


@dataclass(frozen=True, slots=True)
class Kept:
    """Stands for a value that the process was given before."""

    key: int


@dataclass(frozen=True, slots=True)
class Keep:
    """A value that functions are going to be given several times."""

    key: int
    value: object


@dataclass(frozen=True, slots=True)
class Succeed:
    """A mapping that differs a little from one that the process was given before, and takes its place.

    key, before: of the two. changed: what is new or another one. gone: keys of what the new one does not have.
    """

    key: int
    before: int
    changed: Mapping[Any, object]
    gone: Sequence[object]


@dataclass(frozen=True, slots=True)
class ForgetAll:
    """Keep nothing any more."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a module and its arguments. cpu_s: seconds of processor time that it may take."""

    function: Callable[..., object]
    arguments: Sequence[object]
    cpu_s: float
