from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from statsproc.spark.session import SparkUnavailable, open_session

HIDDEN = "not-for-everyones-eyes"


@pytest.fixture
def nobody() -> str:
    """Give the address of a server that is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"sc://127.0.0.1:{probe.getsockname()[1]}"


def _refused(folder: Path, remote: str | None = None) -> str:
    with pytest.raises(SparkUnavailable) as failure, open_session(folder, remote=remote):
        pass
    return str(failure.value)


def test_a_server_that_does_not_answer(nobody: str, tmp_path: Path) -> None:
    message = _refused(tmp_path, f"{nobody}/;token={HIDDEN}")
    assert message.startswith(f"no Spark Connect server answers at {nobody}: ")
    assert HIDDEN not in message


@pytest.mark.parametrize("remote", ["sc://", "localhost", "sc://127.0.0.1:port"])
def test_what_is_no_address(remote: str, tmp_path: Path) -> None:
    assert _refused(tmp_path, remote).startswith("no Spark Connect server answers at ")


def test_spark_s_own_variable_tells_the_address(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", nobody)
    assert f"at {nobody}: " in _refused(tmp_path)
    assert "at sc://127.0.0.1:1: " in _refused(tmp_path, "sc://127.0.0.1:1")


def test_spark_submit_tells_the_address(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_REMOTE_INIT_CONF_LEN", "2")
    monkeypatch.setenv("PYSPARK_REMOTE_INIT_CONF_0", json.dumps({"spark.remote": nobody}))
    monkeypatch.setenv("PYSPARK_REMOTE_INIT_CONF_1", json.dumps({"spark.app.name": "x"}))
    assert f"at {nobody}: " in _refused(tmp_path)


@pytest.mark.spark
def test_a_master_that_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "statsproc", "generate", "--scale", "1e-6", "--out", str(tmp_path)]
    done = subprocess.run([*command, "--master", "nonsense"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: Spark did not start on nonsense: .*Master must .*\n", done.stderr), done.stderr
