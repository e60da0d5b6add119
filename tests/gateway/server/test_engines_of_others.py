"""Engines of another package, found by their entry points alone: examined, routed by their own estimates, shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from gateway.cli.client import running_address
from tests.engines.toy import ENTRY_POINTS, HUNGRY_MIB, TAKES_MIB
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FUSION = str(Path(sys.executable).with_name("fusion"))
SETTINGS = """
[toyfast]
enabled = true

[toydependable]
enabled = true

[duckdb]
enabled = false

[spark]
enabled = false

[server]
port = 0

[hs2]
enabled = false

[flight]
enabled = false
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("others") / "home"
    home.mkdir(mode=0o700)
    (home / "fusion.toml").write_text(SETTINGS, encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which a package with both engines is installed."""
    site = tmp_path_factory.mktemp("site")
    package = site / "toys-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{name} = {place}\n" for name, place in ENTRY_POINTS.items())
    (package / "entry_points.txt").write_text(f"[fusion.engines]\n{points}", encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(site)}


@pytest.fixture(scope="module")
def client(home: Path, environment: dict[str, str], bookstore: Path) -> Iterator[httpx.Client]:
    log = home.with_suffix(".log")
    with log.open("wb") as output:
        process = psutil.Popen([FUSION, "serve", "--home", str(home)], env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: running_address(home) is not None or process.poll() is not None, "the gateway starts")
        url = running_address(home)
        assert url is not None, log.read_text(encoding="utf-8")
        with httpx.Client(base_url=url, timeout=60) as client:
            table = {"name": "books", "location": str(bookstore / "books")}
            client.post("/v1/tables", json=table).raise_for_status()
            yield client
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize(
    ("sql", "engine", "takes"),
    [
        ("SELECT count(*) AS n FROM books", "toyfast", TAKES_MIB),
        ("SELECT 'hungry' AS n FROM books", "toydependable", HUNGRY_MIB),
    ],
)
def test_they_are_routed_by_their_own_estimates(client: httpx.Client, sql: str, engine: str, takes: int) -> None:
    reply = client.post("/v1/queries", json={"sql": sql}).raise_for_status().json()
    assert (reply["state"], reply["engine"]) == ("FINISHED", engine)
    assert reply["decision"]["estimate"]["peak_bytes"] == takes << 20
    assert reply["decision"]["ranking"][-1] == "toydependable"


def test_the_dashboard_shows_them(client: httpx.Client) -> None:
    names = [engine["name"] for engine in client.get("/v1/engines").json()["engines"]]
    assert names == list(ENTRY_POINTS)
    page = client.get("/dashboard").text
    assert all(name in page for name in ENTRY_POINTS)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["doctor"], ["Toy fast: it plays", "Toy dependable: it plays"]),
        (["reference"], ["| `toyfast.memory_limit` | `64.0MiB` | Memory that one statement may take on the toy. |"]),
    ],
)
def test_the_command_line_knows_them(
    home: Path, environment: dict[str, str], command: list[str], told: list[str]
) -> None:
    place = ["--home", str(home)] if command == ["doctor"] else []
    done = subprocess.run([FUSION, *command, *place], env=environment, capture_output=True, text=True, check=True)
    for line in told:
        assert line in done.stdout
