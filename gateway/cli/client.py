"""The command line's side of the REST interface."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import httpx

from gateway.server.startup import ADDRESS_FILE

POLL_S = 0.3
TIMEOUT_S = 620.0
WAIT_S = 600.0


class RequestFailed(Exception):
    """The gateway answered with an error. code: stable; place: line and column of the statement."""

    def __init__(self, code: str, message: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place


def trusting(certificate: Path | None) -> ssl.SSLContext | bool:
    """Return what trusts exactly one certificate, whatever name it has; without one, what the system trusts."""
    if certificate is None:
        return True
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


class Client:
    """One gateway over HTTP. certificate: the gateway's own, where it has one.

    Logs in as FUSION_USER with FUSION_PASSWORD where the environment has them.
    """

    def __init__(self, url: str, *, certificate: Path | None = None) -> None:
        self.url = url
        user = os.environ.get("FUSION_USER")
        login = (user, os.environ.get("FUSION_PASSWORD", "")) if user else None
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, verify=trusting(certificate), auth=login)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON under a path. Raises RequestFailed."""
        return self._checked(self._http.get(path, params=parameters))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return the reply. Raises RequestFailed."""
        return self._checked(self._http.post(path, json=body))

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Change what is under a path and return the reply. Raises RequestFailed."""
        return self._checked(self._http.patch(path, json=body))

    def delete(self, path: str) -> Any:
        """Delete and return the reply. Raises RequestFailed."""
        return self._checked(self._http.delete(path))

    def write(self, path: str, sink: TextIO, **parameters: Any) -> None:
        """Write the text under a path while it comes. Raises RequestFailed."""
        with self._http.stream("GET", path, params=parameters) as response:
            if response.is_error:
                response.read()
                self._checked(response)
            for piece in response.iter_text():
                sink.write(piece)

    def query(self, sql: str, **options: Any) -> Any:
        """Run a query to its end and return its record. Raises RequestFailed only where it was refused."""
        reply = self.post("/v1/queries", {"sql": sql, "wait_s": WAIT_S, **options})
        while reply["state"] in ("QUEUED", "RUNNING"):
            time.sleep(POLL_S)
            reply = self.get(f"/v1/queries/{reply['id']}")
        return reply

    def compute_statistics(self, tables: Sequence[str], advance: Callable[[float], None]) -> Any:
        """Run a statistics job to its end, telling how many tables are done, and return it."""
        return self.follow(self.post("/v1/stats/jobs", {"tables": list(tables)}), advance)

    def follow(self, job: Any, advance: Callable[[float], None]) -> Any:
        """Wait for the end of a job that was started, telling how many tables are done, and return it."""
        return self.watch(job, lambda seen: advance(seen["tables_done"]))

    def watch(self, job: Any, tell: Callable[[Any], None]) -> Any:
        """Wait for the end of a job that was started, telling how it goes, and return it."""
        tell(job)
        while job["finished_at"] is None:
            time.sleep(POLL_S)
            job = self.get(f"/v1/stats/jobs/{job['id']}")
            tell(job)
        return job

    @staticmethod
    def _checked(response: httpx.Response) -> Any:
        try:
            body = response.json()
        except ValueError as error:
            raise RequestFailed("UNREADABLE", f"the gateway answered {response.status_code} without JSON") from error
        if response.is_error and "attempts" not in body:
            told = body["error"]
            place = told.get("position")
            raise RequestFailed(told["code"], told["message"], (place["line"], place["column"]) if place else None)
        return body


def running_address(home: Path) -> str | None:
    """Return the address of the gateway that serves a home, None where none does."""
    try:
        told = json.loads((home / ADDRESS_FILE).read_text(encoding="utf-8"))
        url = str(told["url"])
        certificate = Path(told["certificate"]) if told.get("certificate") else None
        httpx.get(f"{url}/livez", timeout=2.0, verify=trusting(certificate)).raise_for_status()
    except (OSError, ValueError, LookupError, httpx.HTTPError):
        return None
    return url
