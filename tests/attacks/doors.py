"""The four ways into a gateway, alike: text goes in, rows or a refusal come out.

``HTTP`` posts JSON, ``HS2`` and ``HS2_HTTP`` are PyHive on the drivers' port and on HTTP's, ``FLIGHT`` is ADBC. The
gateway is a process of its own, started as people start it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
import psutil

from gateway.cli.client import running_address
from gateway.server.startup import ADDRESS_FILE

START_WITHIN_S = 600.0  # on a machine that is busy with other tests
STOP_WITHIN_S = 30.0
ANSWER_WITHIN_S = 120.0
OPTIONS = ("dialect", "engine")  # of a statement over HTTP; settings of a session elsewhere


class Door(StrEnum):
    """A way in."""

    HTTP = "http"
    HS2 = "hs2"
    HS2_HTTP = "hs2-http"
    FLIGHT = "flight"


class Refused(Exception):
    """A statement came to nothing. code and sqlstate: None where the interface does not tell them."""

    def __init__(self, message: str, *, code: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(f"{code or sqlstate}: {message}")
        self.message = message
        self.code = code
        self.sqlstate = sqlstate


@dataclass(slots=True)
class Served:
    """``fusion serve`` on a home folder. drivers, flight: host:port."""

    home: Path
    process: psutil.Popen
    url: str
    drivers: str
    flight: str

    @property
    def log(self) -> str:
        """All that it said."""
        return self.home.with_suffix(".log").read_text(encoding="utf-8")

    @contextmanager
    def http(self, user: str | None = None, password: str = "") -> Iterator[httpx.Client]:
        """Connect a client of the HTTP interface."""
        login = None if user is None else (user, password)
        with httpx.Client(base_url=self.url, timeout=ANSWER_WITHIN_S, auth=login) as client:
            yield client

    def register(
        self, name: str, location: Path | str, user: str | None = None, password: str = "", **more: Any
    ) -> None:
        """Register a folder as a table. Raises Refused."""
        with self.http(user, password) as client:
            _replied(client.post("/v1/tables", json={"name": name, "location": str(location), **more}))

    def ask(
        self,
        door: Door,
        sql: str,
        *,
        parameters: Sequence[Any] = (),
        user: str | None = None,
        password: str = "",
        dialect: str = "spark",
        engine: str = "auto",
    ) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. Raises Refused.

        parameters: bound by the server over Flight, and there alone.
        """
        if door is Door.HTTP:
            return self._over_http(sql, user, password, dialect, engine)
        settings = {"fusion.dialect": dialect, "fusion.engine": engine}
        with ExitStack() as stack:
            connection = stack.enter_context(closing(self.connect(door, user, password)))
            cursor = stack.enter_context(closing(connection.cursor()))
            try:
                for name, value in settings.items():
                    cursor.execute(f"SET {name} = {value}")
                if parameters:
                    cursor.execute(sql, list(parameters))
                else:
                    cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            except Exception as error:  # each driver has a tree of its own
                raise _refusal(error) from error

    def connect(self, door: Door, user: str | None = None, password: str = "") -> Any:
        """Connect a driver. Raises what the driver raises."""
        host, _, port = self.drivers.rpartition(":")
        if door is Door.FLIGHT:
            import adbc_driver_flightsql.dbapi as adbc

            login = {} if user is None else {"username": user, "password": password}
            cookies = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}  # settings live in a session
            return adbc.connect(f"grpc://{self.flight}", db_kwargs={**login, **cookies}, autocommit=True)
        hive: Any = importlib.import_module("pyhive.hive")  # it ships no types
        name = user or "anonymous"
        if door is Door.HS2:
            login = {"auth": "CUSTOM", "password": password} if password else {"auth": "NONE"}
            return hive.connect(host, port=int(port), username=name, **login)
        url = httpx.URL(self.url)
        login = {"auth": "BASIC", "password": password} if password else {}
        return hive.connect(scheme="http", host=url.host, port=url.port, username=name, **login)

    def _over_http(self, sql: str, user: str | None, password: str, dialect: str, engine: str) -> list[tuple[Any, ...]]:
        body = {"sql": sql, "dialect": dialect, "engine": engine, "wait_s": ANSWER_WITHIN_S}
        with self.http(user, password) as client:
            reply = _replied(client.post("/v1/queries", json=body))
        if reply["error"] is not None:
            raise Refused(reply["error"]["message"], code=reply["error"]["code"])
        return [tuple(row) for row in reply["rows"] or ()]


@contextmanager
def served(home: Path, **settings: Mapping[str, Any]) -> Iterator[Served]:
    """Serve a gateway until the end of the block; it must not have left a process behind.

    settings: by section, as in ``fusion.toml``. Free ports of the loopback unless told otherwise.
    """
    sections: dict[str, dict[str, Any]] = {
        "server": {"port": 0},
        "hs2": {"port": 0},
        "flight": {"port": 0},
    }
    for section, values in settings.items():
        sections.setdefault(section, {}).update(values)
    variables = {
        f"FUSION_{section}__{name}".upper(): value if isinstance(value, str) else json.dumps(value)
        for section, values in sections.items()
        for name, value in values.items()
    }
    home.parent.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home)]
    with home.with_suffix(".log").open("ab") as log:
        process = psutil.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT)
    try:
        give_up_s = time.monotonic() + START_WITHIN_S
        while running_address(home) is None:
            assert process.poll() is None, home.with_suffix(".log").read_text()
            assert time.monotonic() < give_up_s, "it did not start in time"
            time.sleep(0.05)
        told = json.loads((home / ADDRESS_FILE).read_text(encoding="utf-8"))
        yield Served(home, process, told["url"], told["drivers"], told["flight"])
    finally:
        descendants = process.children(recursive=True) if process.is_running() else []
        process.terminate()
        _, stuck = psutil.wait_procs([process], timeout=STOP_WITHIN_S)
        for parent in stuck:
            parent.kill()
        process.poll()  # psutil may see its end without taking its status
        _, left = psutil.wait_procs(descendants, timeout=15)
        for child in left:
            child.kill()
    assert not stuck, f"it did not stop within {STOP_WITHIN_S:.0f} s"
    assert not left, f"it left processes behind: {left}"


def _replied(response: httpx.Response) -> dict[str, Any]:
    reply: dict[str, Any] = response.json()
    if response.is_error and "error" in reply and "attempts" not in reply:
        raise Refused(reply["error"]["message"], code=reply["error"]["code"])
    return reply


def _refusal(error: Exception) -> Refused:
    status = getattr(error.args[0], "status", None) if error.args else None
    if status is not None:  # PyHive's: the reply itself
        return Refused(status.errorMessage, sqlstate=status.sqlState)
    details = {str(name, "ascii"): str(value, "ascii") for name, value in getattr(error, "details", ())}
    if "fusion-code" in details:
        return Refused(str(error), code=details["fusion-code"], sqlstate=details["fusion-sqlstate"])
    raise error
