"""The embedded server's web UI, as a program uses it: what runs, what is in memory, and an end to jobs."""

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

_ANSWER_WITHIN_S = 15.0  # a busy machine takes its time
_CSRF_TOKEN = re.compile(r'name="csrfToken"\s+value="([^"]+)"|value="([^"]+)"\s+name="csrfToken"')
_TASK_THREAD = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.")
_TAG = "_Tag_"
_STATEMENT_THREAD = "SparkConnectExecuteThread_"


def tag_of(of_spark: str) -> str:
    """Return the tag that a client gave, from Spark's own of it."""
    return of_spark.rpartition(_TAG)[2]


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs. tags: Spark's own, which end with those that clients gave."""

    id: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heap:
    """The heap now. live_bytes: what the last collection of old objects left. full_collections: how many there were."""

    used_bytes: int
    max_bytes: int
    live_bytes: int
    full_collections: int


@dataclass(frozen=True, slots=True)
class Threads:
    """What runs now. orphans: tasks of stages that have ended, with their jobs' tags; none where Spark forgot the job.

    statements: those of Spark Connect.
    """

    orphans: Mapping[str, tuple[str, ...]]
    statements: int


@dataclass(frozen=True, slots=True)
class WebUi:
    """The web UI of one server. Only callers that sign with the key get in. Calls raise httpx.HTTPError."""

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
            "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
        }

    def running_jobs(self) -> list[Job]:
        """Ask for the jobs that run now."""
        with self._client() as client:
            jobs = _of_applications(client, "jobs?status=running")
            return [Job(job["jobId"], tuple(job["jobTags"])) for job in jobs]

    def kill(self, job: Job) -> None:
        """Cancel a job."""
        with self._client() as client:
            # Its kill buttons bear a token, so that no foreign page can press them.
            button = _CSRF_TOKEN.search(client.get("/jobs/").raise_for_status().text)
            token = (button[1] or button[2]) if button else ""
            answer = client.post("/jobs/job/kill/", params={"id": job.id}, data={"csrfToken": token})
            if not answer.is_redirect:  # back to the list
                answer.raise_for_status()

    def heap(self) -> Heap:
        """Ask how full the heap is. Raises KeyError where the server does not say."""
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
        """Ask which threads work for tasks and statements. Costs the server 0.1 s."""
        with self._client() as client:
            # In this order: a stage that begins in between has no thread in the list yet.
            threads = [thread["threadName"] for thread in _of_applications(client, "executors/driver/threads")]
            active = {stage["stageId"] for stage in _of_applications(client, "stages?status=active")}
            ended = {
                name: int(found[1])
                for name in threads
                if (found := _TASK_THREAD.match(name)) and int(found[1]) not in active
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
            trust_env=False,  # no proxy stands between two processes of one machine
        )


def _of_applications(client: httpx.Client, path: str) -> list[Any]:
    """Return a list that the server keeps by application; a server runs one, or none yet."""
    listed: list[Any] = []
    for application in client.get("/api/v1/applications").raise_for_status().json():
        listed += client.get(f"/api/v1/applications/{application['id']}/{path}").raise_for_status().json()
    return listed


def _signed(key: bytes) -> str:
    """Return a JSON Web Signature without claims, as JWSFilter wants it."""
    head = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"HS256"}', b"{}"))
    signature = hmac.new(key, head, hashlib.sha256).digest()
    return b".".join((head, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode("ascii")
