"""Spark through Spark Connect: the dependable engine, embedded or remote."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from pydantic import ByteSize, Field, SecretStr

from engines.adapter import (
    BuiltEngine,
    CheckResult,
    EngineContext,
    EngineSettings,
    ServerConfiguration,
    SharedPart,
    Size,
    package,
)
from engines.errors import EngineError
from selector.forecast.seconds import USUAL_DEPENDABLE

if TYPE_CHECKING:
    from engines.spark.embedded.server import ServerSettings

log = logging.getLogger(__name__)

_MASTER_PORT = 7077
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
_HADOOP_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CHECK_S = 3.0
SPEED = USUAL_DEPENDABLE  # measured on two processors


class SparkSettings(EngineSettings):
    """The dependable engine."""

    enabled: bool = True
    """Statements may run on Spark."""
    remote: str | None = Field(None, pattern=r"^sc://.+")
    """Spark Connect address (sc://host:port); without it, an embedded server is started when first needed."""
    remote_token: SecretStr | None = None
    """Token for a remote server; sent over TLS only, unless the server is on this machine."""
    remote_tls: bool = False
    """Encrypt the connection to a remote server, also without a token."""
    master: str | None = Field(None, pattern=r"^(spark|yarn|k8s|local)")
    """Cluster for the embedded server's executors (spark://host:7077, yarn); without it, tasks run in the server."""
    driver_memory: Size = Field(ByteSize(2 << 30), ge=512 << 20)
    """Heap of the embedded server, which takes a quarter more outside of it; also of statistics jobs."""
    executor_memory: Size = Field(ByteSize(1 << 30), ge=512 << 20)
    """Heap of each executor on a cluster; without one, tasks run in the driver's."""
    hive_metastore_uri: str | None = Field(None, pattern=r"^thrift://.+")
    """Hive Metastore (thrift://host:port) whose tables the embedded server can read beside ours."""
    configuration: ServerConfiguration = Field(default_factory=dict)
    """Further Spark settings of the embedded server, by Spark's names; in a file that others cannot read."""
    environment: tuple[str, ...] = ()
    """Names of the gateway's environment variables that the embedded server and statistics jobs get, too."""
    slots: int = Field(4, ge=1)
    """Statements at once."""
    warm_up: bool = True
    """Start the embedded server with the gateway instead of with the first statement."""

    @property
    def remote_address(self) -> str | None:
        """The address of a remote server with its token and options, as Spark Connect's clients write it. Secret."""
        if self.remote is None:
            return None
        parameters = ["use_ssl=true"] if self.remote_tls else []
        if self.remote_token is not None:
            parameters.append(f"token={quote(self.remote_token.get_secret_value(), safe='')}")
        separator = ";" if "/;" in self.remote else "/;"
        return separator.join((self.remote.rstrip("/"), ";".join(parameters))) if parameters else self.remote

    def quiet(self) -> Self:
        """Return the settings without an early start of the server."""
        return self.model_copy(update={"warm_up": False})


class SparkAdapter:
    """Implements ``Adapter``."""

    section = "spark"
    product = "PySpark"
    extra = "spark"
    rank = 30
    settings = SparkSettings

    def build(self, settings: SparkSettings, around: EngineContext) -> BuiltEngine:
        """Build the engine; with ``warm_up``, the embedded server starts in the background. Raises ImportError."""
        from engines.spark.embedded.gate import Gate
        from engines.spark.embedded.server import SparkConnectServer
        from engines.spark.embedded.shared import SharedGate, SharedServer
        from engines.spark.engine import SparkConnectEngine

        server: SparkConnectServer | str
        gate = Gate()
        if settings.remote_address is not None:
            server = settings.remote_address
        elif around.shared is not None:
            server, gate = SharedServer(_server_settings(settings, around), around.shared), SharedGate(around.shared)
        else:
            server = SparkConnectServer(_server_settings(settings, around))
        engine = SparkConnectEngine(server, slots=settings.slots, gate=gate)
        if settings.warm_up:

            def warm_up() -> None:
                try:
                    engine.warm_up()
                except EngineError as error:
                    log.warning("Spark did not warm up: %s", error.message)

            threading.Thread(target=warm_up, name="spark warm-up", daemon=True).start()
        is_here = settings.remote is None and (settings.master or "local").startswith("local")
        exact = engine.formats if is_here else frozenset[str]()  # other machines may see changes of files later
        return BuiltEngine(engine, speed=SPEED, is_local=settings.remote_address is None, exact_formats=exact)

    def share(self, settings: SparkSettings, around: EngineContext) -> SharedPart | None:
        """Build the embedded server for several processes; it starts when one of them needs it."""
        if settings.remote_address is not None:
            return None
        from engines.spark.embedded.gate import Gate
        from engines.spark.embedded.orphaned_jobs import OrphanedJobs
        from engines.spark.embedded.server import SparkConnectServer
        from engines.spark.embedded.shared import shared_part

        server = SparkConnectServer(_server_settings(settings, around))
        return shared_part(server, Gate(), OrphanedJobs(server.web_ui).watch)

    def findings(self, settings: SparkSettings) -> Iterator[CheckResult]:
        """Look for the package, for the Java of an embedded server, and for whom it or the gateway calls."""
        pyspark = package(self.product, "pyspark", self.extra)
        yield pyspark
        if not pyspark.good:
            return
        if settings.remote_address is not None:
            from engines.spark.remote import RemoteServer

            failure = RemoteServer(settings.remote_address).check()
            yield CheckResult(
                "Spark server", failure is None, failure or "answers", "look at spark.remote and the server's log"
            )
            return
        if settings.master is not None:
            yield _master_check(settings.master)
        own = settings.configuration
        if own.get("spark.authenticate") == "true" and not own.get(_SECRET):
            remedy = f'set it, for example with FUSION_SPARK__CONFIGURATION=\'{{"{_SECRET}": "..."}}\''
            yield CheckResult("Spark secret", False, f"spark.authenticate is true, and there is no {_SECRET}", remedy)
        from engines.spark.embedded.java import JavaNotFound, find_java_home

        try:
            yield CheckResult("Java", True, str(find_java_home()))
        except JavaNotFound as error:
            yield CheckResult("Java", False, "none", str(error))

    def memory_bytes(self, settings: SparkSettings) -> int:
        """Return the memory of an embedded server: its heap, and a quarter of it outside of the heap."""
        return int(settings.driver_memory) * 5 // 4 if settings.remote is None else 0


def _master_check(master: str) -> CheckResult:
    """Look for the cluster's manager, as far as it can be told without Spark."""
    remedy = "look at spark.master"
    if master.startswith("spark://"):
        for host, _, port in (place.partition(":") for place in master.removeprefix("spark://").split(",")):
            try:
                socket.create_connection((host, int(port or _MASTER_PORT)), timeout=_CHECK_S).close()
            except (OSError, ValueError) as error:
                return CheckResult("Spark master", False, f"{host}:{port} does not answer: {error}", remedy)
    if master.startswith("yarn"):
        if not any(map(os.environ.get, _HADOOP_FOLDERS)):
            return CheckResult(
                "Spark master",
                False,
                "yarn without the configuration of Hadoop",
                "set HADOOP_CONF_DIR in the gateway's environment",
            )
    return CheckResult("Spark master", True, master)


def _server_settings(settings: SparkSettings, around: EngineContext) -> ServerSettings:
    from engines.spark.embedded.server import ServerSettings

    return ServerSettings(
        work_folder=around.common or around.folder,
        driver_memory_bytes=int(settings.driver_memory),
        cores=around.processors,
        master=settings.master,
        executor_memory_bytes=int(settings.executor_memory),
        hive_metastore_uri=settings.hive_metastore_uri,
        configuration=settings.configuration,
        environment=settings.environment,
    )


ADAPTER = SparkAdapter()
