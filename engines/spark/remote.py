"""A look at a remote Spark Connect server: it answers a call of its protocol, with the TLS and token of statements."""

from __future__ import annotations

import socket
import threading
import uuid
import warnings
from urllib.parse import urlsplit

import grpc
from pyspark.errors import PySparkException

from engines.spark_sql.connect import DefaultChannelBuilder

with warnings.catch_warnings():  # as in ``spark_sql/connect.py``
    warnings.simplefilter("ignore", FutureWarning)
    from pyspark.sql.connect.proto import base_pb2 as base_pb2
    from pyspark.sql.connect.proto import base_pb2_grpc as base_pb2_grpc

DEFAULT_PORT = 15002
CHECK_S = 15.0
"""Time between two calls of a server that answers."""
SILENT_CHECK_S = 3.0
"""The same of one that does not."""
TIMEOUT_S = 5.0


class RemoteServer:
    """Looks after a server in a thread. Thread-safe. address: ``sc://...``, secret."""

    def __init__(self, address: str) -> None:
        self._address = address
        parts = urlsplit(address)
        self._port = parts.hostname or "", parts.port or DEFAULT_PORT
        self._closed = threading.Event()
        self._answer: tuple[bool, str] | None = None

    def start(self) -> None:
        """Begin to look after it."""
        threading.Thread(target=self._look_after, name="spark-remote", daemon=True).start()

    def status(self) -> tuple[bool, str]:
        """Return whether it answered last, or was not asked yet, and one line about that; asks nobody."""
        place = f"{self._port[0]}:{self._port[1]}"
        answers, text = self._answer or (True, "was not asked yet")
        return answers, f"{place} {text}"

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look_after(self) -> None:
        while not self._closed.is_set():
            failure = self.check()
            self._answer = (True, "answers") if failure is None else (False, f"does not answer: {failure}")
            self._closed.wait(CHECK_S if failure is None else SILENT_CHECK_S)

    def check(self) -> str | None:
        """Ask it for its version; return why that fails, or None."""
        try:
            socket.create_connection(self._port, timeout=TIMEOUT_S).close()
        except OSError as error:
            return error.strerror or str(error)
        try:
            builder = DefaultChannelBuilder(self._address)
            with builder.toChannel() as channel:
                request = base_pb2.AnalyzePlanRequest(
                    session_id=str(uuid.uuid4()),
                    user_context=base_pb2.UserContext(user_id="fusion"),
                    spark_version=base_pb2.AnalyzePlanRequest.SparkVersion(),
                )
                call = base_pb2_grpc.SparkConnectServiceStub(channel).AnalyzePlan
                call(request, metadata=builder.metadata(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return _reason(error)
        except PySparkException as error:
            return str(error.getMessage())
        return None


def _reason(error: grpc.RpcError) -> str:
    code, detail = error.code(), error.details() or ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return "it refuses the token (spark.remote_token)"
    if "SSL" in detail or "andshake" in detail or "certificate" in detail.lower():
        return f"no connection with TLS (spark.remote_tls): {detail[:200]}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"it takes connections, but no calls; does it want TLS (spark.remote_tls)? {detail[:200]}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no reply within {TIMEOUT_S:.0f} s"
    return f"{code.name}: {detail[:200]}"
