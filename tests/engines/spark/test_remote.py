"""A remote Spark is alive if it answers a call of its protocol: a port that takes connections says little."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from engines.spark import remote
from engines.spark.remote import RemoteServer, base_pb2, base_pb2_grpc
from tests.waiting import wait_until

TOKEN = "right"  # noqa: S105 - of a server that lives for this test


class Connect(base_pb2_grpc.SparkConnectServiceServicer):  # type: ignore[misc]  # generated, without types
    """Tells its version to whoever has the token."""

    def AnalyzePlan(
        self, request: base_pb2.AnalyzePlanRequest, context: grpc.ServicerContext
    ) -> base_pb2.AnalyzePlanResponse:
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {TOKEN}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        return base_pb2.AnalyzePlanResponse()


@pytest.fixture
def port() -> Iterator[int]:
    """Serve without TLS."""
    server = grpc.server(ThreadPoolExecutor(2))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(Connect(), server)
    number = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield number
    server.stop(0).wait()


def check(port: int, parameters: str) -> str | None:
    # pyspark sends a token without TLS to localhost only
    return RemoteServer(f"sc://localhost:{port}/{parameters}").check()


def test_a_server_that_lets_the_token_in_answers(port: int) -> None:
    assert check(port, f";token={TOKEN};use_ssl=false") is None


def test_a_wrong_token_is_told(port: int) -> None:
    assert "refuses the token" in str(check(port, ";token=wrong"))


def test_tls_where_there_is_none_is_told(port: int) -> None:
    assert "TLS (spark.remote_tls)" in str(check(port, ";use_ssl=true"))


def test_a_port_that_takes_connections_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert check(listening.getsockname()[1], "") is not None


def test_it_is_looked_after_in_the_background(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENT_CHECK_S", 0.05)
    server = RemoteServer(f"sc://localhost:{port}/;token=wrong")
    assert server.status() == (True, f"localhost:{port} was not asked yet")
    server.start()
    wait_until(lambda: not server.status()[0], "it is told")
    assert "refuses the token" in server.status()[1]
    server.close()
