"""The tests of other people's suites that are known to fail, each with its reason."""

from __future__ import annotations

import enum
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "known"


class Cause(enum.StrEnum):
    """Whose failure it is."""

    CLIENT = "client"
    """The client's, or its test's: it fails against any server."""
    ENGINE = "engine"
    """Of an engine that the gateway is not: Hive's planner, Impala's memory."""
    ENVIRONMENT = "environment"
    """Of what stands around the server: a service to restart, a login server."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A test that fails, and why."""

    test: str
    cause: Cause
    reason: str

    def __post_init__(self) -> None:
        if "::" not in self.test:
            raise ValueError(f"{self.test!r} is no test: FILE.py::CLASS::NAME")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"{self.test} needs a reason, in one line")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended. detail: the last lines of what was said; empty for one that passed."""

    test: str
    state: str  # passed, failed, skipped
    detail: str


def read(suite: str) -> tuple[KnownFailure, ...]:
    """Return a suite's known failures, in the order of their file; none where there is no file.

    Raises ValueError where the file is not well-formed or names a test twice.
    """
    path = FOLDER / f"{suite}.toml"
    if not path.exists():
        return ()
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["failure"]
    known = tuple(KnownFailure(row["test"], Cause(row["cause"]), row["reason"]) for row in rows)
    tests = [failure.test for failure in known]
    if len(set(tests)) < len(tests):
        raise ValueError(f"{path.name} names a test twice")
    return known


def read_outcomes(file: Path) -> list[Outcome]:
    """Return how each test ended, from what inside/in_their_pytest.py wrote; of several failures of one, the first."""
    ended: dict[str, Outcome] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["test"] not in ended or ended[row["test"]].state != "failed":
            ended[row["test"]] = Outcome(row["test"], row["state"], row["detail"])
    return list(ended.values())


def unexpected(known: Iterable[KnownFailure], outcomes: Iterable[Outcome]) -> list[str]:
    """Return in words what went otherwise than the list says: failures, and listed tests that did not fail."""
    listed = {failure.test for failure in known}
    states = {outcome.test: outcome for outcome in outcomes}
    return [
        *(
            f"{test} failed: {one.detail}"
            for test, one in states.items()
            if one.state == "failed" and test not in listed
        ),
        *(
            f"{test} is listed as failing, but {states[test].state if test in states else 'did not run'}"
            for test in sorted(listed)
            if test not in states or states[test].state != "failed"
        ),
    ]


def markdown(suite: str) -> str:
    """Return the rows of a table of a suite's known failures, for docs/clients/suites.md."""
    return "".join(f"| `{one.test}` | {one.cause} | {one.reason} |\n" for one in read(suite))
