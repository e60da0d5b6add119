"""The lines about a statement that has finished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.cli.shell.results import show_failures, summary
from gateway.cli.shell.session import Display
from gateway.cli.statements.running import Output

REPLY: dict[str, Any] = {
    "id": "20261123_182054_bee4732427",
    "engine": "spark",
    "columns": [{"name": "a", "type": "int"}],
    "rows": [[1], [2]],
    "row_count": 1_200,
    "truncated": True,
    "submitted_at": "2026-11-23T18:20:54+00:00",
    "finished_at": "2026-11-23T18:20:55.500000+00:00",
    "decision": None,
}
WHERE = "on spark (query 20261123_182054_bee4732427)"


def test_a_line_tells_rows_seconds_engine_and_id() -> None:
    assert summary(REPLY, Display()) == rf"2 of 1,200 rows (\rows N shows more) in 1.50 s {WHERE}"
    assert summary(REPLY, Display(output=Output.CSV)) == f"1,200 rows in 1.50 s {WHERE}"
    assert summary({**REPLY, "row_count": 1, "truncated": False}, replace(Display(), timing=False)) == f"1 row {WHERE}"
    assert summary({**REPLY, "columns": [], "truncated": False}, Display()) == f"done in 1.50 s {WHERE}"


def test_a_failover_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"engine": "duckdb", "failure": "MEMORY_EXCEEDED", "message": "out of memory", "wall_s": 0.31}
    show_failures([failed, {"engine": "spark", "failure": None, "message": None, "wall_s": 1.0}])
    assert capsys.readouterr().err == "duckdb failed after 0.31 s: out of memory\n"
