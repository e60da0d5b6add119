"""Jobs that outlive their statement, and their end.

Spark ends a statement by interrupting its thread, which then cancels the jobs that carry the statement's tag.
Adaptive execution submits stages from another thread: one that comes a moment after that cancel belongs to nobody
and fills the cores until it is done, which may take hours. No call of Spark Connect reaches it; Spark's web UI does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx

_log = logging.getLogger(__name__)

_WATCH_FOR_S = 30.0
"""Spark may list files and wait for subqueries before it submits a stage."""

_LOOK_EVERY_S = 1.0
_ANSWER_WITHIN_S = 5.0
_CSRF_TOKEN = re.compile(r'name="csrfToken"\s+value="([^"]+)"|value="([^"]+)"\s+name="csrfToken"')


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs. tags: Spark's own, which end with those that clients gave."""

    id: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WebUi:
    """The web UI of one server, which lists jobs and kills them. Only callers that sign with the key get in."""

    host: str
    port: int
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def settings(self) -> Mapping[str, str]:
        """Return the Spark settings that make it so; they hold the key."""
        return {
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.port),
            "spark.ui.filters": "org.apache.spark.ui.JWSFilter",
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": base64.urlsafe_b64encode(self.key).decode("ascii"),
        }

    def running_jobs(self) -> list[Job]:
        """Ask for the jobs that run now. Raises httpx.HTTPError."""
        with self._client() as client:
            jobs: list[Job] = []
            for application in client.get("/api/v1/applications").raise_for_status().json():
                listed = client.get(f"/api/v1/applications/{application['id']}/jobs?status=running").raise_for_status()
                jobs.extend(Job(job["jobId"], tuple(job["jobTags"])) for job in listed.json())
            return jobs

    def kill(self, job: Job) -> None:
        """Cancel a job. Raises httpx.HTTPError."""
        with self._client() as client:
            # Its kill buttons bear a token, so that no foreign page can press them.
            button = _CSRF_TOKEN.search(client.get("/jobs/").raise_for_status().text)
            token = (button[1] or button[2]) if button else ""
            answer = client.post("/jobs/job/kill/", params={"id": job.id}, data={"csrfToken": token})
            if not answer.is_redirect:  # back to the list
                answer.raise_for_status()

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://{self.host}:{self.port}",
            headers={"Authorization": f"Bearer {_signed(self.key)}"},
            timeout=_ANSWER_WITHIN_S,
            trust_env=False,  # no proxy stands between two processes of one machine
        )


class StrayJobs:
    """Kills what Spark still submits for statements that were ended. Thread-safe; waits in a thread of its own."""

    def __init__(self, web_ui: Callable[[], WebUi | None]) -> None:
        self._web_ui = web_ui
        self._lock = threading.Lock()
        self._watched: dict[str, float] = {}  # until when; while there are any, the thread runs

    def watch(self, tag: str) -> None:
        """From now on kill the jobs of the statement with this tag, for as long as they may still come."""
        with self._lock:
            runs = bool(self._watched)
            self._watched[tag] = time.monotonic() + _WATCH_FOR_S
        if not runs:
            threading.Thread(target=self._watch, name="spark-strays", daemon=True).start()

    def _watch(self) -> None:
        while tags := self._tags():
            try:
                self._kill(tags)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                _log.debug("Spark's web UI does not answer, or not as it should: %s", error)
            time.sleep(_LOOK_EVERY_S)

    def _tags(self) -> set[str]:
        """Return the tags that are still watched; none is the end of the thread."""
        now_s = time.monotonic()
        with self._lock:
            self._watched = {tag: until_s for tag, until_s in self._watched.items() if until_s > now_s}
            return set(self._watched)

    def _kill(self, tags: set[str]) -> None:
        web_ui = self._web_ui()
        if web_ui is None:
            return
        for job in web_ui.running_jobs():
            if any(tag.rpartition("_Tag_")[2] in tags for tag in job.tags):
                web_ui.kill(job)
                _log.warning("Killed job %d of Spark, which was submitted after its statement had ended", job.id)


def _signed(key: bytes) -> str:
    """Return a JSON Web Signature without claims, as JWSFilter wants it."""
    head = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"HS256"}', b"{}"))
    signature = hmac.new(key, head, hashlib.sha256).digest()
    return b".".join((head, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode("ascii")
