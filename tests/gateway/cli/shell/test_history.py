"""The file of earlier statements."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.cli.shell.history import PrivateHistory, history_file

STATEMENT = "SELECT 'é',\n  2;"


def test_statements_of_all_runs_stay_in_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "state" / "fusion" / "history"
    first, second = PrivateHistory(file), PrivateHistory(file)
    first.store_string("SELECT 1;")
    second.store_string(STATEMENT)
    first.store_string("SELECT 3;")
    assert list(PrivateHistory(file).load_history_strings()) == ["SELECT 3;", STATEMENT, "SELECT 1;"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_becomes_private(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.touch(0o644)
    PrivateHistory(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_used_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = PrivateHistory(tmp_path / "file" / "history")
    history.store_string("SELECT 1;")
    assert list(history.load_history_strings()) == []
    problem = history.pop_problem()
    assert problem is not None
    assert "File exists" in problem and "FUSION_SHELL_HISTORY" in problem
    assert history.pop_problem() is None


def test_the_file_is_where_variables_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("FUSION_SHELL_HISTORY", raising=False)
    assert history_file() == tmp_path / ".local" / "state" / "fusion" / "history"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert history_file() == Path("/state/fusion/history")
    monkeypatch.setenv("FUSION_SHELL_HISTORY", "~/mine")
    assert history_file() == tmp_path / "mine"
