"""The command line's side of the REST interface."""

from __future__ import annotations

import concurrent.futures
import json
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpx

from gateway.server.startup import ADDRESS_FILE

POLL_S = 0.3
FIRST_POLL_S = 0.01
TIMEOUT = httpx.Timeout(620.0, connect=10.0)
INTERRUPTED_WAIT_S = 5.0  # for the id of a query that is interrupted before it is known
ALIVE = ("QUEUED", "RUNNING")


class RequestFailed(Exception):
    """Error reply of the gateway. code: stable error code. place: line and column in the statement; None: unknown."""

    def __init__(self, code: str, message: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place

    @classmethod
    def of(cls, error: Any) -> RequestFailed:
        """Return an error as the gateway has it in its replies."""
        place = error.get("position")
        return cls(error["code"], error["message"], (place["line"], place["column"]) if place else None)


@dataclass(frozen=True, slots=True)
class Login:
    """Identity of a client: a user name with a password, or a bearer token."""

    user: str = ""
    password: str = ""
    token: str = ""


def pinning(certificate: Path | None) -> ssl.SSLContext | bool:
    """Return what trusts exactly one certificate, whatever name it has; without one, what the system trusts."""
    if certificate is None:
        return True
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def trusting(certificates: Path | None) -> ssl.SSLContext | bool:
    """Return what trusts the certificates of a file, too, under their names."""
    if certificates is None:
        return True
    context = ssl.create_default_context()
    context.load_verify_locations(certificates)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class Client:
    """HTTP client of one gateway. Thread-safe. verify: trusted certificates."""

    def __init__(self, url: str, *, verify: ssl.SSLContext | bool = True, login: Login | None = None) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {login.token}"} if login is not None and login.token else {}
        basic = (login.user, login.password) if login is not None and not login.token else None
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT, verify=verify, auth=basic, headers=headers)

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

    def write(self, path: str, sink: BinaryIO, *, is_text: bool = True, **parameters: Any) -> None:
        """Write what is under a path while it comes, with a line's end behind a text. Raises RequestFailed."""
        with self._http.stream("GET", path, params=parameters) as response:
            if response.is_error:
                response.read()
                self._checked(response)
            last = b"\n"
            for piece in response.iter_bytes():
                sink.write(piece)
                sink.flush()
                last = piece[-1:]
            if is_text and last != b"\n":
                sink.write(b"\n")

    def query(
        self,
        sql: str,
        *,
        started: Callable[[str], None] = lambda _: None,
        waiting: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[Any], None] = lambda _: None,
        **options: Any,
    ) -> Any:
        """Run a query to its end and return its record. Raises RequestFailed only where it was refused.

        Interrupted by a signal, it is cancelled on the gateway. started: takes its id; waiting: the seconds so far;
        cancelled: how it ended once it was interrupted, None where
        its id is not known yet.
        """
        began = time.monotonic()
        submitted = _in_thread(lambda: self.post("/v1/queries", {"sql": sql, "wait_s": 0.0, **options}))
        rows = {name: options[name] for name in ("max_rows",) if options.get(name) is not None}
        try:
            reply = submitted.result()
            started(reply["id"])
            pause_s = FIRST_POLL_S
            while reply["state"] in ALIVE:
                time.sleep(pause_s)
                pause_s = min(2.0 * pause_s, POLL_S)
                waiting(time.monotonic() - began)
                reply = self.get(f"/v1/queries/{reply['id']}", **rows)
        except KeyboardInterrupt:
            cancelled(self._cancel(submitted))
            raise
        return reply

    def _cancel(self, submitted: concurrent.futures.Future[Any]) -> Any:
        """Cancel a query that was sent and return how it ended, None where its id is not known.

        Then the gateway cancels it by itself, once the connection is gone.
        """
        try:
            submission = submitted.result(timeout=INTERRUPTED_WAIT_S)
        except (TimeoutError, concurrent.futures.CancelledError, RequestFailed, httpx.HTTPError):
            return None
        return self.delete(f"/v1/queries/{submission['id']}")

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
            raise RequestFailed("UNREADABLE", f"{response.url} answered {response.status_code} without JSON") from error
        if not response.is_error or (isinstance(body, dict) and "attempts" in body):
            return body
        failure = body.get("error") if isinstance(body, dict) else None
        if not isinstance(failure, dict) or not {"code", "message"} <= failure.keys():
            raise RequestFailed("UNREADABLE", f"{response.url} answered {response.status_code}: is it a gateway?")
        raise RequestFailed.of(failure)


def _in_thread(call: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Begin a call that no signal interrupts, and that no end of the process waits for."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call())
        except (RequestFailed, httpx.HTTPError, httpx.InvalidURL) as error:
            future.set_exception(error)
        finally:
            future.cancel()  # where it was a defect, which the thread tells

    threading.Thread(target=run, name="request", daemon=True).start()
    return future


def running_address(home: Path) -> str | None:
    """Return the address of the gateway that serves a home, None where none does."""
    try:
        addresses = json.loads((home / ADDRESS_FILE).read_text(encoding="utf-8"))
        url = str(addresses["url"])
        certificate = Path(addresses["certificate"]) if addresses.get("certificate") else None
        httpx.get(f"{url}/livez", timeout=2.0, verify=pinning(certificate)).raise_for_status()
    except (OSError, ValueError, LookupError, httpx.HTTPError):
        return None
    return url
