"""The port as people start it: ``fusion serve`` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pytest

from gateway.cli.client import running_address

pytestmark = pytest.mark.e2e

FUSION = str(Path(sys.executable).with_name("fusion"))
ENVIRONMENT = {**os.environ, "FUSION_SPARK__ENABLED": "false", "FUSION_DUCKDB__WORKERS": "1"}
WITHIN_S = 60.0


def test_a_gateway_tells_its_port_and_gives_it_back(tmp_path: Path) -> None:
    process = subprocess.Popen([FUSION, "serve", "--home", str(tmp_path), "--port", "0"], env=ENVIRONMENT)
    try:
        give_up_s = time.monotonic() + WITHIN_S
        while running_address(tmp_path) is None:
            assert process.poll() is None
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        address = json.loads((tmp_path / "gateway.json").read_text())["flight"]
        connection = adbc.connect(f"grpc://{address}", autocommit=True)
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute("SHOW TABLES")
            assert cursor.fetchall() == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [FUSION, "serve", "--home", str(tmp_path), "--port", "0", "--flight-port", port]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=WITHIN_S)

    assert ended.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--flight-port" in ended.stderr
