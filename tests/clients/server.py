"""The gateway that clients are tried against: `fusion serve` in a process of its own, DuckDB and an embedded Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from gateway.cli.client import running_address
from gateway.security.authentication import user_line
from gateway.server.startup import ADDRESS_FILE
from tests.clients.environment import ROOT

START_WITHIN_S = 180.0
END_WITHIN_S = 60.0
STATEMENT_WITHIN_S = 300.0
# PyHive's suite logs in as these; everybody else is the administrator of the machine, as without a users file.
USERS = {"existing": "testpw", "the-user": "p4ssw0rd"}


class SetupFailed(Exception):
    """A statement of a suite's data was refused; the message has the statement and the gateway's error."""


@dataclass(frozen=True, slots=True)
class ServedGateway:
    """A gateway that runs. data: where tables may lie beside its own. drivers_port, http_port: TCP, on 127.0.0.1."""

    home: Path
    data: Path
    http: httpx.Client
    drivers_port: int

    @property
    def http_port(self) -> int:
        """Return the port of HTTP."""
        port = self.http.base_url.port
        assert port is not None
        return port

    def run(self, sql: str, dialect: str) -> None:
        """Run a statement to its end. Raises SetupFailed."""
        asked = {"sql": sql, "dialect": dialect, "wait_s": STATEMENT_WITHIN_S}
        reply = self.http.post("/v1/queries", json=asked).json()
        if reply.get("state") != "FINISHED":
            raise SetupFailed(f"{' '.join(sql.split())[:200]}: {reply.get('error', reply)}")


@contextmanager
def serving(home: Path) -> Iterator[ServedGateway]:
    """Serve a gateway over an empty home folder until the block ends; its log is HOME/serve.log, its data HOME.data."""
    home.mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    data = home.with_name(f"{home.name}.data")
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    users = home / "users"
    users.write_text("".join(f"{user_line(name, password)}\n" for name, password in USERS.items()), encoding="utf-8")
    users.chmod(0o600)
    variables = {
        "PYTHONPATH": str(ROOT),
        "FUSION_DUCKDB__WORKERS": "2",
        "FUSION_DUCKDB__MEMORY_LIMIT": "1GiB",
        "FUSION_AUTHENTICATION__USERS_FILE": str(users),
        "FUSION_AUTHENTICATION__ANONYMOUS_ROLE": "admin",
        "FUSION_CATALOG__ROOTS": json.dumps([str(data)]),
        "FUSION_CATALOGS__LAKE__TYPE": "sql",
        "FUSION_CATALOGS__LAKE__URI": f"sqlite:///{home / 'lake.db'}",
        "FUSION_CATALOGS__LAKE__WAREHOUSE": f"file://{data}/lake",
    }
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
    try:
        give_up_s = time.monotonic() + START_WITHIN_S
        while (url := running_address(home)) is None:
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise SetupFailed(f"The gateway did not start:\n{(home / 'serve.log').read_text(encoding='utf-8')}")
            time.sleep(0.2)
        with httpx.Client(base_url=url, timeout=STATEMENT_WITHIN_S + 10) as client:
            yield ServedGateway(home, data, client, _drivers_port(home))
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def _drivers_port(home: Path) -> int:
    """Return the port of drivers, as the gateway tells it where it starts."""
    told = json.loads((home / ADDRESS_FILE).read_text(encoding="utf-8"))
    return int(str(told["drivers"]).rpartition(":")[2])
