"""Servers that a benchmark measures from outside, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from benchmarks.claim import RunFailed

START_WITHIN_S = 180.0
END_WITHIN_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A gateway that serves. told: what it says about itself in its home: url, drivers, flight."""

    told: Mapping[str, str]
    process: psutil.Process

    @property
    def url(self) -> str:
        """Where it answers over HTTP."""
        return self.told["url"]

    def workers_cpu_s(self) -> dict[int, float]:
        """Return the CPU seconds of each process that works for it, by its id; others may start or end meanwhile."""
        return {each.pid: cpu_s(each) for each in self.process.children(recursive=True)}

    def metric(self, name: str) -> float:
        """Return the sum of a metric that has no labels, or the same over all of them."""
        lines = httpx.get(f"{self.url}/v1/metrics").raise_for_status().text.splitlines()
        samples = [line.rpartition(" ") for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(value) for _, _, value in samples)


def room_for(clients: int, sessions: int = 0) -> dict[str, str]:
    """Return settings by which so many clients of one user may ask at once, through any door.

    The places that are free bound what one user has: of four, one stays free for others. sessions: of clients that do
    not ask, beside them.
    """
    places, sessions = max(64, 2 * clients), max(64, 2 * clients, clients + sessions)
    return {
        "FUSION_LIMITS__QUERIES": str(places),
        "FUSION_RESULTS__DOWNLOADS": str(2 * places),
        "FUSION_RESULTS__DOWNLOADS_PER_USER": str(places),
        "FUSION_HS2__CONNECTIONS": str(max(512, 2 * sessions)),
        "FUSION_HS2__SESSIONS": str(max(256, sessions)),
        "FUSION_HS2__SESSIONS_PER_USER": str(sessions),
        "FUSION_FLIGHT__CALLS": str(max(128, 4 * clients)),
        "FUSION_FLIGHT__SESSIONS": str(max(256, sessions)),
        "FUSION_FLIGHT__SESSIONS_PER_USER": str(sessions),
    }


@contextmanager
def gateway_process(work: Path, **variables: str) -> Iterator[GatewayProcess]:
    """Serve a gateway without Spark, its home under a folder, on a free port. variables: settings, as FUSION_ has them.

    Raises RunFailed where it does not start.
    """
    home = work / "home"
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    environment = {**os.environ, "FUSION_SPARK__ENABLED": "false", **variables}
    with server_process(command, work / "gateway.log", environment) as process:
        told = wait_for(process, lambda: json.loads((home / "gateway.json").read_text(encoding="utf-8")))
        wait_for(process, lambda: httpx.get(f"{told['url']}/livez").raise_for_status())
        yield GatewayProcess(told, psutil.Process(process.pid))


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has taken by itself; 0 of one that has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@contextmanager
def server_process(
    command: list[str], log_file: Path, environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, and end it. log_file: for what it says."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process: subprocess.Popen[bytes], attempt: Callable[[], T]) -> T:
    """Return what an attempt returns once it succeeds. Raises RunFailed where the process ends, or takes too long."""
    until = time.monotonic() + START_WITHIN_S
    while True:
        try:
            return attempt()
        except (OSError, EOFError, ValueError, LookupError, httpx.HTTPError) as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RunFailed(f"a server did not start: {error}") from error
            time.sleep(0.3)
