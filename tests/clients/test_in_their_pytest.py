"""The plug-in that runs in clients' environments: how tests ended, and where localhost:10000 leads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.clients import known
from tests.clients.__main__ import INSIDE

SUITE = """
import socket, unittest, pytest

def test_passes():
    pass

def test_fails():
    assert "it" == "is wrong"

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_fails_at_its_end(broken):
    pass

class TestConnection(unittest.TestCase):
    def test_redirected(self):
        with socket.create_connection(("localhost", 10000), timeout=5) as client:
            assert client.recv(5) == b"hello"
"""


def test_outcomes_are_told_and_port_10000_leads_to_the_gateway(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    told = tmp_path / "outcomes"
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        variables = {
            "CLIENTS_OUTCOMES": str(told),
            "CLIENTS_PORT": str(gateway.getsockname()[1]),
            "PYTHONPATH": str(INSIDE),
        }
        options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "in_their_pytest", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
        with subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL) as suite:
            gateway.settimeout(30)
            client, _ = gateway.accept()
            with client:
                client.sendall(b"hello")
                suite.wait(30)
    outcomes = {outcome.test: outcome for outcome in known.read_outcomes(told)}
    assert {test.removeprefix("test_suite.py::"): outcome.state for test, outcome in outcomes.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_is_skipped": "skipped",
        "test_fails_at_its_end": "failed",
        "TestConnection::test_redirected": "passed",
    }
    assert "is wrong" in outcomes["test_suite.py::test_fails"].detail
    assert "not today" in outcomes["test_suite.py::test_is_skipped"].detail
    assert "at the end" in outcomes["test_suite.py::test_fails_at_its_end"].detail
