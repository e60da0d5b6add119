"""The real Spark Thrift Server from pyspark's wheel, in a JVM of its own on loopback, behind as many ports as wanted.

One JVM serves all ways in that HiveServer2 has: SASL, plain and TLS sockets and HTTP, with and without passwords. The
passwords are checked by Hive's own LDAP provider, against the few bytes of LDAP below.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from engines.machine.ports import free_port
from engines.spark.embedded.java import spark_environment

LOOPBACK = "127.0.0.1"
USER, PASSWORD = "ann", "a right password"
KEYSTORE_PASSWORD = "of-a-test"  # noqa: S105
START_TIMEOUT_S = 180.0
INVALID_CREDENTIALS = 49

_HTTP = {"hive.server2.transport.mode": "http"}
WAYS: Mapping[str, Mapping[str, str]] = {
    "sasl": {"hive.server2.authentication": "NONE"},
    "nosasl": {"hive.server2.authentication": "NOSASL"},
    "ldap": {"hive.server2.authentication": "LDAP"},
    "custom": {"hive.server2.authentication": "CUSTOM"},
    "http": {"hive.server2.authentication": "NONE", **_HTTP},
    "http ldap": {"hive.server2.authentication": "LDAP", **_HTTP},
    "tls": {"hive.server2.authentication": "NONE", "hive.server2.use.SSL": "true"},
    "https": {"hive.server2.authentication": "NONE", "hive.server2.use.SSL": "true", **_HTTP},
}
"""Name -> what makes a HiveServer2 let clients in that way."""


class ThriftServer:
    """A JVM with the server. ports: by way."""

    def __init__(self, folder: Path, ways: Sequence[str], ports: Mapping[str, int] | None = None) -> None:
        self.folder = folder
        self.ports = dict(ports or {way: free_port() for way in ways})
        self._ldap = _Ldap((LOOPBACK, 0), _Bind)
        threading.Thread(target=self._ldap.serve_forever, name="ldap", daemon=True).start()
        self._gateway = self._launch()
        try:
            session = self._session()
            for way, port in self.ports.items():
                with ThreadPoolExecutor(1) as own_thread:  # Hive keeps the first configuration that a thread has seen
                    own_thread.submit(self._serve, session, WAYS[way], port).result()
            for port in self.ports.values():
                _wait_for(port)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return int(self._gateway.proc.pid)

    def kill(self) -> None:
        """End the JVM with kill -9."""
        os.kill(self.pid, signal.SIGKILL)
        self._gateway.proc.wait()

    def stop(self) -> None:
        """End everything."""
        with suppress(Py4JError, Py4JNetworkError):
            self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.kill()
        self._gateway.proc.wait()
        self._ldap.shutdown()
        self._ldap.server_close()

    def _launch(self) -> Any:
        for part in ("local", "tmp", "warehouse"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        java = f"-Djava.io.tmpdir={self.folder / 'tmp'} -Duser.timezone=UTC"
        configuration = SparkConf(loadDefaults=False).setAll(
            [
                ("spark.driver.memory", "1g"),
                ("spark.driver.extraJavaOptions", java),
                ("spark.driver.host", LOOPBACK),
                ("spark.driver.bindAddress", LOOPBACK),
                ("spark.local.dir", str(self.folder / "local")),
            ]
        )
        with pytest.MonkeyPatch.context() as environment, (self.folder / "server.log").open("ab") as log:
            for name, value in spark_environment().items():
                environment.setenv(name, value)
            environment.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
            to_log = {"stdout": log, "stderr": log, "cwd": self.folder}
            with suppress(
                PySparkRuntimeError
            ):  # a fork among the threads of gRPC, which other tests of the process left
                return launch_gateway(configuration, to_log)
            with warnings.catch_warnings(action="ignore", category=ResourceWarning):
                gc.collect()  # the pipe to the process that did not start, which PySpark leaves open
            return launch_gateway(configuration, to_log)

    def _session(self) -> Any:
        jvm = self._gateway.jvm
        for name, value in self._for_new_configurations().items():
            jvm.java.lang.System.setProperty(name, value)
        builder = jvm.org.apache.spark.sql.classic.SparkSession.builder().master("local[2]").appName("thrift")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.shuffle.partitions": "4",
        }.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def _serve(self, session: Any, way: Mapping[str, str], port: int) -> None:
        own = session.newSession()
        over_http = "hive.server2.transport.mode" in way
        for name, value in {
            **way,
            **self._for_new_configurations(),
            "hive.server2.thrift.bind.host": LOOPBACK,
            "hive.server2.thrift.http.port" if over_http else "hive.server2.thrift.port": str(port),
            "hive.server2.thrift.max.worker.threads": "100",
        }.items():
            own.conf().set(name, value)
        thriftserver = self._gateway.jvm.org.apache.spark.sql.hive.thriftserver
        server = thriftserver.HiveThriftServer2.startWithSparkSession(own, False)
        if over_http:
            _to_loopback(server)

    def _for_new_configurations(self) -> dict[str, str]:
        """Return what Hive reads from a new configuration of its own, which takes it from Java's properties."""
        anybody = "org.apache.hive.service.auth.AnonymousAuthenticationProviderImpl"
        return {
            "hive.server2.authentication.ldap.url": f"ldap://{LOOPBACK}:{self._ldap.server_address[1]}",
            "hive.server2.custom.authentication.class": anybody,
            "hive.server2.keystore.path": str(self.folder / "keys.p12"),
            "hive.server2.keystore.password": KEYSTORE_PASSWORD,
        }


@pytest.fixture(scope="session")
def thrift_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThriftServer]:
    """Give the one Thrift Server of this run, with every way in."""
    folder = tmp_path_factory.mktemp("thrift")
    encrypted = make_keys(folder)
    ways = [way for way, settings in WAYS.items() if encrypted or "hive.server2.use.SSL" not in settings]
    with serving(folder, ways) as server:
        yield server


@contextmanager
def serving(folder: Path, ways: Sequence[str]) -> Iterator[ThriftServer]:
    """Run a server for a while."""
    try:
        server = ThriftServer(folder, ways)
    except Py4JError:  # another program took one of its ports meanwhile
        server = ThriftServer(folder, ways)
    try:
        yield server
    finally:
        server.stop()


def make_keys(folder: Path) -> bool:
    """Make a key for 127.0.0.1 and a certificate that it signs itself; False where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return False
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    for command in (
        [
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={LOOPBACK}"),
            *("-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(key), "-out", str(certificate)),
        ],
        [
            *("pkcs12", "-export", "-name", "server", "-passout", f"pass:{KEYSTORE_PASSWORD}"),
            *("-inkey", str(key), "-in", str(certificate), "-out", str(folder / "keys.p12")),
        ],
    ):
        subprocess.run([openssl, *command], check=True, capture_output=True)
    return True


class _Ldap(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Bind(socketserver.BaseRequestHandler):
    """LDAP as far as a login needs it: a simple bind is granted if it brings the password."""

    def handle(self) -> None:
        while (request := self.request.recv(4096)) and request[0] == 0x30:
            if b"\x60" not in request[4:7]:  # not a bind: the client takes its leave
                return
            result = 0 if PASSWORD.encode() in request else INVALID_CREDENTIALS
            self.request.sendall(bytes([0x30, 12, 2, 1, request[4], 0x61, 7, 0x0A, 1, result, 4, 0, 4, 0]))


def _to_loopback(server: Any) -> None:
    """Bind HTTP anew: its service knows no address to bind to."""
    service = next(part for part in server.getServices() if part.getName() == "ThriftHttpCLIService")
    field = service.getClass().getDeclaredField("httpServer")
    field.setAccessible(True)
    jetty = field.get(service)
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while not jetty.isStarted():
        assert time.monotonic() < give_up_s, "the HTTP server did not start"
        time.sleep(0.01)
    connector = jetty.getConnectors()[0]
    connector.stop()
    connector.setHost(LOOPBACK)
    connector.start()


def _wait_for(port: int) -> None:
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.1)
