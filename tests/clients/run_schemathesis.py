"""Schemathesis over /openapi.json of a real gateway: no undeclared status, no body beside its schema, no 5xx.

    python -m tests.clients.run_schemathesis --seconds 600

It runs all phases of Schemathesis, in an environment of its own that is made for the run unless ``--tool`` names the
program. Exits as Schemathesis does: 0 where it found nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.cli.client import running_address
from gateway.security.authentication import user_line
from gateway.security.principals import Role

START_WITHIN_S = 60.0
END_WITHIN_S = 60.0
USER, PASSWORD = "joe", "right"
BOOKS = 1_000
# Texts of statements, places of tables and the like have no schema: being refused for what they say is no defect. The
# 404 after a DELETE is not meant where DELETE cancels: a query and a job stay on record.
CONFIGURATION = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 410, 422]

[auth.openapi.login]
username = "{user}"
password = "{password}"

[[operations]]
include-path-regex = "^/v1/(queries|stats/jobs)"
checks.use_after_free.enabled = false
"""


def main(arguments: list[str]) -> int:
    """Run Schemathesis; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run_schemathesis", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--tool", type=Path, help="The program; without it, one is installed for this run.")
    parser.add_argument("--seed", type=int, help="Of a run that is to be repeated.")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="schemathesis-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        tool = chosen.tool or installed(work / "environment", "schemathesis")
        configuration = CONFIGURATION.replace("{user}", USER).replace("{password}", PASSWORD)
        (work / "schemathesis.toml").write_text(configuration, encoding="utf-8")
        with serving(work) as url:
            described = httpx.get(f"{url}/openapi.json", auth=(USER, PASSWORD)).raise_for_status()
            (work / "openapi.json").write_bytes(described.content)
            command = [str(tool), "run", "openapi.json", "--url", url, "--max-time", str(chosen.seconds), "--no-color"]
            command += ["--continue-on-failure"]
            command += ["--seed", str(chosen.seed)] if chosen.seed is not None else []
            return subprocess.run(command, cwd=work).returncode


def installed(folder: Path, program: str) -> Path:
    """Install a program of the same package's name from PyPI into an environment of its own; returns where it is."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", program], check=True)
    return folder / "bin" / program


@contextmanager
def serving(work: Path) -> Iterator[str]:
    """Serve a table of books to one user, over DuckDB alone; yields the address."""
    users, roots, home = work / "users", work / "tables", work / "home"
    users.write_text(user_line(USER, PASSWORD, Role.ADMIN), encoding="utf-8")
    users.chmod(0o600)
    (roots / "books").mkdir(parents=True)
    books = {"id": range(BOOKS), "price": [number % 100 for number in range(BOOKS)]}
    pq.write_table(pa.table({name: list(values) for name, values in books.items()}), roots / "books" / "books.parquet")
    variables = {
        "FUSION_SPARK__ENABLED": "false",
        "FUSION_DUCKDB__WORKERS": "1",
        "FUSION_AUTHENTICATION__USERS_FILE": str(users),
        "FUSION_AUTHENTICATION__ANONYMOUS": "never",
        "FUSION_CATALOG__ROOTS": json.dumps([str(roots)]),
    }
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    with (work / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
    try:
        give_up_s = time.monotonic() + START_WITHIN_S
        while (url := running_address(home)) is None:
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"the gateway did not start:\n{(work / 'serve.log').read_text(encoding='utf-8')}")
            time.sleep(0.2)
        table = {"name": "books", "location": str(roots / "books")}
        httpx.post(f"{url}/v1/tables", json=table, auth=(USER, PASSWORD)).raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait(END_WITHIN_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
