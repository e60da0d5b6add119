"""Words that were private language here: standard terms of the field stand in their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("gateway", "selector", "sql", "statsproc", "metastore", "engines", "benchmarks", "docs", "deploy")
TEXTS = [
    file
    for room in ROOMS
    for file in sorted((ROOT / room).rglob("*"))
    if file.suffix in (".py", ".html", ".md", ".toml") and file.parent.name != "adr"
] + [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]

RETIRED = {
    r"AlreadyThere": "AlreadyExists",
    r"_require_honest": "_require_unchanged_tables",
    r"Asker|FairPlaces": "Requester, FairSlots",
    r"CannotSay": "NotEvaluable",
    r"Fleet|fleet": "engine registry",
    r"insist|insist_on_insert": "retry, retry_insert",
    r"lessons?": "misestimates",
    r"our job": "computed here",
    r"outlook": "what_if",
    r"partings?": "divergences",
    r"parts from": "differs from",
    r"Slots held": "slots in use",
    r"strays?|StrayJobs": "orphaned jobs",
    r"NotPortable|not_portable|not portable": "NoEquivalent, no equivalent",
    r"Surroundings": "EngineContext",
    r"survivors": "expected_distinct",
    r"takes no work|takes work": "is not available, is available",
    r"Tries|verdict": "FailoverPlan, data_error",
    r"WrongData": "DataError",
}


@pytest.mark.parametrize("words", RETIRED)
def test_a_word_that_was_retired_does_not_come_back(words: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in TEXTS
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"\b(?:{words})\b", line)
    ]
    assert not found, f"say {RETIRED[words]}"
