"""Prometheus itself reads the metrics, the alert rules and the panels' queries."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.presentation.metrics import METRICS
from gateway.server.app import create_app
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import SMALL, TOO_BIG, scripted_gateway
from tests.waiting import wait_until

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\bfusion_[a-z_]+")
SUFFIXES = ("_bucket", "_sum", "_count")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROMTOOL is None or PROMETHEUS is None, reason="no prometheus and promtool on PATH"),
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    gateway = scripted_gateway(tmp_path / "home").gateway
    with serving(create_app(gateway)) as client:
        for sql in (SMALL, TOO_BIG, "SELECT * FROM nowhere"):
            client.post("/v1/queries", json={"sql": sql})
        yield client


def promtool(*arguments: str, text: str = "") -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def panel_queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_metrics_are_as_prometheus_wants_them(client: httpx.Client) -> None:
    promtool("check", "metrics", text=client.get("/v1/metrics").text)


def test_rules_and_panels_ask_for_metrics_that_there_are() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    promtool("check", "rules", str(DEPLOY / "prometheus-rules.yml"))
    known = {metric.name for metric in METRICS}
    known |= {metric.name + suffix for metric in METRICS if metric.kind == "histogram" for suffix in SUFFIXES}
    rules = (DEPLOY / "prometheus-rules.yml").read_text(encoding="utf-8")
    assert set(NAME.findall(rules)) <= known
    assert set(NAME.findall(" ".join(panel_queries()))) <= known


def test_prometheus_scrapes_a_gateway_with_rules_and_panels(client: httpx.Client, tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    config = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    config = config.replace("127.0.0.1:8650", f"127.0.0.1:{client.base_url.port}").replace("15s", "1s")
    config = config.replace("prometheus-rules.yml", str(DEPLOY / "prometheus-rules.yml"))
    (tmp_path / "prometheus.yml").write_text(config, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PROMETHEUS, f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*command, f"--storage.tsdb.path={tmp_path / 'data'}"], stdout=log, stderr=log) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as server,
    ):
        try:

            def found(query: str) -> list[dict[str, object]]:
                try:
                    reply = server.get("/api/v1/query", params={"query": query}).json()
                except (httpx.HTTPError, ValueError):  # it is about to start
                    return []
                result: list[dict[str, object]] = reply["data"]["result"]
                return result

            wait_until(lambda: bool(found('fusion_queries_total{engine="spark",state="FINISHED"}')), "it is scraped")
            (finished,) = found('sum(fusion_queries_total{state="FINISHED"})')
            assert finished["value"][1] == "2"  # type: ignore[index]
            (failed_over,) = found('fusion_failovers_total{from="duckdb",to="spark"}')
            assert failed_over["value"][1] == "1"  # type: ignore[index]
            for expression in panel_queries():
                filled = expression.replace("$__rate_interval", "5m").replace("$instance", ".*")
                asked = server.get("/api/v1/query", params={"query": filled})
                assert asked.json()["status"] == "success", (filled, asked.text)
            groups = server.get("/api/v1/rules").json()["data"]["groups"]
            wait_until(lambda: bool(found("up")), "the gateway is up")
            rules = [rule["name"] for group in groups for rule in group["rules"]]
            assert len(rules) == 7 and all(rule["health"] != "err" for group in groups for rule in group["rules"])
        finally:
            process.terminate()
            process.wait(30)
