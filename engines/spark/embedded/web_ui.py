"""The embedded server's web UI, used by the gateway to see running work and the heap, and to kill jobs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

_ANSWER_WITHIN_S = 15.0  # on a busy machine
_CSRF_TOKEN = re.compile(r'name="csrfToken"\s+value="([^"]+)"|value="([^"]+)"\s+name="csrfToken"')
_TASK_THREAD = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.")
_TAG = "_Tag_"
_STATEMENT_THREAD = "SparkConnectExecuteThread_"


def tag_of(of_spark: str) -> str:
    """Return the client's tag from Spark's tag."""
    return of_spark.rpartition(_TAG)[2]


@dataclass(frozen=True, slots=True)
class Job:
    """A running job. tags: Spark's, which end with the clients' tags."""

    id: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heap:
    """State of the heap. live_bytes: after the last full collection. full_collections: their number so far."""

    used_bytes: int
    max_bytes: int
    live_bytes: int
    full_collections: int


@dataclass(frozen=True, slots=True)
class Threads:
    """Running threads.

    orphans: names of tasks of stages that have ended, with their jobs' tags; no tags: Spark forgot the job.
    statements: threads of Spark Connect's statements.
    """

    orphans: Mapping[str, tuple[str, ...]]
    statements: int


@dataclass(frozen=True, slots=True)
class WebUi:
    """The web UI of one server. Only requests signed with the key are accepted. Calls raise httpx.HTTPError."""

    host: str
    port: int
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def settings(self) -> Mapping[str, str]:
        """Return the Spark settings of this web UI, with the key."""
        return {
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.port),
            "spark.ui.filters": "org.apache.spark.ui.JWSFilter",
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": base64.urlsafe_b64encode(self.key).decode("ascii"),
            "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
        }

    def running_jobs(self) -> list[Job]:
        """Return the running jobs."""
        with self._client() as client:
            jobs = _of_applications(client, "jobs?status=running")
            return [Job(job["jobId"], tuple(job["jobTags"])) for job in jobs]

    def kill(self, job: Job) -> None:
        """Cancel a job."""
        with self._client() as client:
            # The kill buttons have a token, so that foreign pages cannot use them.
            button = _CSRF_TOKEN.search(client.get("/jobs/").raise_for_status().text)
            token = (button[1] or button[2]) if button else ""
            answer = client.post("/jobs/job/kill/", params={"id": job.id}, data={"csrfToken": token})
            if not answer.is_redirect:  # back to the list
                answer.raise_for_status()

    def heap(self) -> Heap:
        """Return the state of the heap. Raises KeyError if the server does not report it."""
        with self._client() as client:
            gauges = client.get("/metrics/json/").raise_for_status().json()["gauges"]
        values = {name.partition(".jvm.")[2]: gauge["value"] for name, gauge in gauges.items() if ".jvm." in name}
        return Heap(
            values["heap.used"],
            values["heap.max"],
            values["pools.G1-Old-Gen.used-after-gc"],
            values["G1-Old-Generation.count"],
        )

    def threads(self) -> Threads:
        """Return the threads of tasks and statements. Takes the server 0.1 s."""
        with self._client() as client:
            # Threads first: a stage that begins between the requests has no thread in the list.
            threads = [thread["threadName"] for thread in _of_applications(client, "executors/driver/threads")]
            active = {stage["stageId"] for stage in _of_applications(client, "stages?status=active")}
            ended = {
                name: int(task[1])
                for name in threads
                if (task := _TASK_THREAD.match(name)) and int(task[1]) not in active
            }
            jobs = _of_applications(client, "jobs") if ended else []
        tags = {stage: tuple(job.get("jobTags", ())) for job in jobs for stage in job["stageIds"]}
        return Threads(
            orphans={name: tags.get(stage, ()) for name, stage in ended.items()},
            statements=sum(name.startswith(_STATEMENT_THREAD) for name in threads),
        )

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://{self.host}:{self.port}",
            headers={"Authorization": f"Bearer {_signed(self.key)}"},
            timeout=_ANSWER_WITHIN_S,
            trust_env=False,  # no proxy between two processes of one machine
        )


def _of_applications(client: httpx.Client, path: str) -> list[Any]:
    """Return a list of the server's application; a server has one, or none yet."""
    listed: list[Any] = []
    for application in client.get("/api/v1/applications").raise_for_status().json():
        listed += client.get(f"/api/v1/applications/{application['id']}/{path}").raise_for_status().json()
    return listed


def _signed(key: bytes) -> str:
    """Return a JSON Web Signature without claims, for JWSFilter."""
    head = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"HS256"}', b"{}"))
    signature = hmac.new(key, head, hashlib.sha256).digest()
    return b".".join((head, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode("ascii")
