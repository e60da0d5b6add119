"""Plans in the files of Impala's planner tests: sections of text between lines of dashes, cases between equals signs.

A section of a plan that begins with an exception says that Impala refuses the statement. A statement that explains
another one has its plan in its results, a quoted line each; some of those are patterns, and no plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLAN_SECTIONS = frozenset(("PLAN", "DISTRIBUTEDPLAN", "PARALLELPLANS"))
_WHOLE_RESULTS = frozenset(("RESULTS", "RESULTS: VERIFY_IS_EQUAL"))
_QUERY = "QUERY"
_REFUSED = re.compile(r"\s*\w*Exception: ")


@dataclass(frozen=True, slots=True)
class PrintedPlan:
    """A plan as somebody printed it. name: of its file, and where in it; folder: of the file."""

    name: str
    folder: str
    text: str


def plans_of_tests(folder: Path) -> Iterator[PrintedPlan]:
    """Yield the plans of all test files in a folder and below it."""
    for file in sorted(folder.rglob("*.test")):
        query = ""
        inside = str(file.parent.relative_to(folder))
        for line, name, text in _sections(file.read_text(encoding="utf-8", errors="replace")):
            query = text if name == _QUERY else query
            plan = text if name in PLAN_SECTIONS else _unquoted(text) if _tells_plan(name, query) else ""
            if plan.strip() and not _REFUSED.match(plan):
                yield PrintedPlan(f"{file.relative_to(folder)}:{line}", inside, plan)


def _sections(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a section's first line, its name, and what it says."""
    first, name, lines = 1, _QUERY, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        begins = _QUERY if line.startswith("====") else line[5:].strip() if line.startswith("---- ") else None
        if begins is None:
            lines.append(line)
            continue
        yield first, name, "\n".join(lines)
        first, name, lines = number + 1, begins, []
    yield first, name, "\n".join(lines)


def _tells_plan(name: str, query: str) -> bool:
    """Tell whether a section is the result of explaining a statement; comments and options may stand before it."""
    if name not in _WHOLE_RESULTS:
        return False
    said = (line.strip().lower() for line in query.splitlines())
    first = next((line for line in said if line and not line.startswith(("#", "--", "set "))), "")
    return first.split(maxsplit=1)[:1] == ["explain"]


def _unquoted(text: str) -> str:
    """Return the lines without their quotes; nothing if one of them is a pattern."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not all(line.startswith("'") and line.endswith("'") for line in lines):
        return ""
    return "\n".join(line[1:-1] for line in lines)
