"""The tutorial's commands, run in order against a real gateway; their output has the lines that the page shows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.client import running_address

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(900)]  # starts Spark twice, reads and computes

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"^```(console|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MEASURED = re.compile(r"\b\d[\d,.]* (?=s\b|MiB\b)")
SERVE, PORT = "fusion serve", "8650"
START_WITHIN_S, COMMANDS_WITHIN_S, STOP_WITHIN_S = 120.0, 240.0, 60.0


def lines_of(text: str) -> list[str]:
    """Return lines without what differs between runs and machines: seconds, sizes, widths of columns."""
    return [" ".join(MEASURED.sub("N ", line).split()) for line in text.splitlines() if line.strip()]


def is_shown(line: str, output: list[str]) -> bool:
    pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
    return any(pattern.fullmatch(printed) for printed in output)


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FUSION_")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ports = {"FUSION_SERVER__PORT": port, "FUSION_HS2__PORT": "0", "FUSION_FLIGHT__PORT": "0"}
    return inherited | ports | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def gateways() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.terminate()
        process.wait(STOP_WITHIN_S)


def serve(command: str, folder: Path, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(["bash", "-c", f"exec env {command}"], cwd=folder, env=variables, stderr=log)
    give_up_s = time.monotonic() + START_WITHIN_S
    while running_address(folder / ".fusion") is None:
        assert process.poll() is None, (folder / "serve.log").read_text()
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    return process


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, variables: dict[str, str], gateways: list[subprocess.Popen[bytes]]
) -> None:
    output: list[str] = []
    blocks = BLOCKS.findall(PAGE)
    assert len(blocks) >= 20
    for language, text in blocks:
        if language == "text":
            missing = [line for line in lines_of(text) if not is_shown(line, output)]
            assert missing == [], "\n".join(output)
        elif SERVE in text:
            gateways.append(serve(text.strip(), tmp_path, variables))
        else:
            ran = subprocess.run(
                ["bash", "-ec", text.replace(PORT, variables["FUSION_SERVER__PORT"])],
                cwd=tmp_path,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMANDS_WITHIN_S,
            )
            assert ran.returncode == 0, ran.stdout
            output = lines_of(ran.stdout)
