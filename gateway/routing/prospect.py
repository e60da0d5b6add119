"""Estimate of a statement on one engine before it is priced, or the reason why it cannot run there."""

from __future__ import annotations

from dataclasses import dataclass

from engines.compiled import CompiledStatement
from engines.errors import NoEquivalent, UnsupportedFeature
from gateway.routing.engines import EngineEntry
from selector.estimate import UNKNOWN, MemoryEstimate
from sql.statement import CheckedStatement

SHOWN_PATTERN = 60


@dataclass(frozen=True, slots=True)
class Prospect:
    """Expectation of a statement on one engine.

    estimate: memory that it needs.
    unsupported: reason why the engine cannot run the statement; None: it can.
    no_equivalent: part of the statement that would mean something else there; None: no part.
    """

    estimate: MemoryEstimate = UNKNOWN
    unsupported: str | None = None
    no_equivalent: str | None = None


def of_dependable(entry: EngineEntry, statement: CompiledStatement) -> Prospect:
    """Return the prospect of a dependable engine: only whether its writer supports the statement."""
    try:
        statement.sql(entry.engine.writer)
    except NoEquivalent as error:
        return Prospect(no_equivalent=error.message)
    except UnsupportedFeature as error:
        return Prospect(unsupported=error.message)
    return Prospect()


def unsafe_pattern(entry: EngineEntry, statement: CheckedStatement | CompiledStatement) -> str | None:
    """Return why a statement's regular expressions keep it from an engine; None where they do not."""
    pattern = statement.explosive_pattern() if entry.engine.backtracks else None
    if pattern is None:
        return None
    return (
        f"the regular expression '{pattern[:SHOWN_PATTERN]}' can match one text in so many ways that it might never "
        "end there; repeat no group that holds another repetition of the same characters."
    )
