"""The lists of known failures: well-formed, of suites that exist, and as docs/clients/suites.md tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import known
from tests.clients.environment import ROOT
from tests.clients.known import Cause, KnownFailure, Outcome
from tests.clients.suites import CHECKS, SUITES, Suite

PAGE = ROOT / "docs" / "clients" / "suites.md"
LISTED = KnownFailure("test_a.py::test_b", Cause.CLIENT, "it is wrong")


def test_every_list_is_of_a_suite() -> None:
    assert {path.stem for path in known.FOLDER.glob("*.toml")} <= {suite.name for suite in SUITES}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_list_is_well_formed_and_told(suite: Suite) -> None:
    section = f"\n## {suite.name}\n"
    page = PAGE.read_text(encoding="utf-8")
    assert section in page
    told = page.partition(section)[2].partition("\n## ")[0]
    assert [line for line in told.splitlines(keepends=True) if line.startswith("| `")] == known.markdown(
        suite.name
    ).splitlines(keepends=True)


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite.source is None], ids=lambda suite: suite.name)
def test_a_suite_of_ours_has_its_files(suite: Suite) -> None:
    assert all((CHECKS / file).exists() for file in suite.files)


@pytest.mark.parametrize("test, reason", [("no test", "why"), ("a.py::b", " "), ("a.py::b", "two\nlines")])
def test_a_row_without_a_test_or_a_reason_is_refused(test: str, reason: str) -> None:
    with pytest.raises(ValueError):
        KnownFailure(test, Cause.ENGINE, reason)


def test_a_test_named_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = '[[failure]]\ntest = "a.py::b"\ncause = "engine"\nreason = "why"\n'
    (tmp_path / "twice.toml").write_text(row * 2, encoding="utf-8")
    monkeypatch.setattr(known, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="twice"):
        known.read("twice")


def test_only_what_the_list_says_may_fail() -> None:
    assert (
        known.unexpected([LISTED], [Outcome(LISTED.test, "failed", "x"), Outcome("test_a.py::c", "passed", "")]) == []
    )
    assert known.unexpected([], [Outcome("test_a.py::c", "failed", "x")]) == ["test_a.py::c failed: x"]
    assert known.unexpected([LISTED], [Outcome(LISTED.test, "passed", "")]) == [
        "test_a.py::test_b is listed as failing, but passed"
    ]
    assert known.unexpected([LISTED], []) == ["test_a.py::test_b is listed as failing, but did not run"]
