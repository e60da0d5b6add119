"""Gateways of different homes on one PostgreSQL, as processes: any of them answers for a query of another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.postgresql import postgresql
from tests.waiting import wait_until

START_S = 120.0
NUMBERS = 4_000
DRAIN_S = 3.0
LONG = "SELECT count(*) AS n FROM n AS a CROSS JOIN n AS b CROSS JOIN n AS c WHERE (a.i * b.i + c.i) % 7 = 3"
APART = "levenshtein(CAST(a.i AS STRING), CAST(b.i AS STRING)) = 3"
SLOW = f"SELECT count(*) AS n FROM n AS a CROSS JOIN n AS b WHERE {APART}"
FAR = "levenshtein(CAST(a.i AS STRING), CAST(b.i + c.i AS STRING)) = 3"
SLOWER = f"SELECT count(*) AS n FROM n AS a CROSS JOIN n AS b CROSS JOIN (SELECT i FROM n WHERE i < 5) AS c WHERE {FAR}"


class Served:
    """A gateway in a process of its own."""

    def __init__(
        self, home: Path, database: str, *, port: int = 0, hive: int | None = None, flight: int | None = None
    ) -> None:
        """hive, flight: ports; None: there is no such door."""
        self.home, self.database, self.port, self._hive, self._flight = home, database, port, hive, flight
        self.start()

    @property
    def hive_port(self) -> int:
        assert self._hive is not None
        return self._hive

    @property
    def flight_port(self) -> int:
        assert self._flight is not None
        return self._flight

    @property
    def flight(self) -> str:
        """Address for clients of Flight."""
        return str(json.loads((self.home / "gateway.json").read_text())["flight"])

    def start(self) -> None:
        command = [
            str(Path(sys.executable).with_name("fusion")),
            "serve",
            "--home",
            str(self.home),
            "--port",
            str(self.port),
            "--drivers-port",
            str(self._hive or 0),
            "--flight-port",
            str(self._flight or 0),
        ]
        off = {"FUSION_SPARK__ENABLED": "false", "FUSION_HS2__ENABLED": str(self._hive is not None).lower()}
        off["FUSION_FLIGHT__ENABLED"] = str(self._flight is not None).lower()
        environment = {**os.environ, **off, "FUSION_METASTORE__URL": self.database, "FUSION_DUCKDB__WORKERS": "1"}
        environment |= {"FUSION_SERVER__DRAIN_S": str(DRAIN_S), "FUSION_HS2__DRAIN_S": "1"}
        self.home.mkdir(exist_ok=True)
        with (self.home / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_until(lambda: self._is_ready() or self.process.poll() is not None, "it serves", START_S)
        address = self._address()
        assert address is not None, (self.home / "serve.log").read_text()
        self.http = httpx.Client(base_url=address, timeout=120)

    def _is_ready(self) -> bool:
        address = self._address()
        try:
            return address is not None and httpx.get(f"{address}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _address(self) -> str | None:
        try:
            address = json.loads((self.home / "gateway.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return str(address["url"]) if address["pid"] == self.process.pid else None

    def ask(self, sql: str, **options: Any) -> dict[str, Any]:
        reply = self.http.post("/v1/queries", json={"sql": sql, **options})
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def look(self, query_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get(f"/v1/queries/{query_id}").json()
        return answer

    def kill(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Served]]:
    """Start gateways by the names of their homes."""
    served: list[Served] = []
    with postgresql() as server:

        def begin(name: str) -> Served:
            served.append(Served(tmp_path / name, server.url))
            return served[-1]

        try:
            yield begin
        finally:
            for one in served:
                one.http.close()
                if one.process.poll() is None:
                    one.process.kill()
                    one.process.wait()


def register_numbers(gateway: Served, folder: Path) -> None:
    """Make the table n, and register it."""
    folder.mkdir()
    pq.write_table(pa.table({"i": pa.array(range(NUMBERS), pa.int64())}), folder / "n.parquet")
    gateway.http.post("/v1/tables", json={"name": "n", "location": str(folder)}).raise_for_status()


@pytest.mark.e2e
def test_any_gateway_answers_and_none_is_missed(start: Callable[[str], Served], tmp_path: Path) -> None:
    one, other = start("one"), start("other")
    register_numbers(one, tmp_path / "n")

    began_s = time.monotonic()
    while "n" not in {table["name"] for table in other.http.get("/v1/tables").json()["tables"]}:
        assert time.monotonic() < began_s + 1.0
    small = one.ask("SELECT 40 + 2 AS x")["id"]
    large = one.ask("SELECT a.i, b.i AS j FROM n AS a JOIN n AS b ON a.i % 40 = b.i % 40")["id"]
    assert other.look(small)["rows"] == [[42]]
    rows = [side.http.get(f"/v1/queries/{large}/result", params={"format": "csv"}).text for side in (one, other)]
    assert rows[0] == rows[1] and rows[0].count("\n") == NUMBERS * 100 + 1

    running = one.ask(LONG, wait_s=0, timeout_s=600)["id"]
    wait_until(lambda: other.look(running)["state"] == "RUNNING", "it runs")
    leases = other.http.get("/v1/leases").json()["leases"]
    assert leases == []  # of an embedded engine of another home
    assert other.http.delete(f"/v1/queries/{running}").json()["state"] == "CANCELLED"
    assert one.look(running)["state"] == "CANCELLED"

    taken = one.ask(SLOW, wait_s=0, timeout_s=600)["id"]
    wait_until(lambda: bool(one.look(taken)["attempts"]), "it runs")
    one.kill()
    killed_s = time.monotonic()
    wait_until(lambda: "is run again" in (other.home / "serve.log").read_text(), "it is taken over", 15)
    assert time.monotonic() - killed_s < 10
    record = other.look(taken)
    assert record["state"] in ("QUEUED", "RUNNING", "FINISHED"), record
    wait_until(lambda: other.look(taken)["state"] == "FINISHED", "it has rows", 120)
    record = other.look(taken)
    assert len(record["rows"]) == 1
    assert [attempt["failure"] for attempt in record["attempts"]] == ["GATEWAY_LOST", None]
    gone = other.http.get(f"/v1/queries/{large}/result")
    assert gone.json()["error"]["code"] == "RESULT_GONE"  # its rows lie with a gateway that is gone
    one.start()
    assert one.look(taken)["rows"] == record["rows"]
    again = one.http.get(f"/v1/queries/{large}/result", params={"format": "csv"})
    assert again.text == rows[0]
    assert other.http.get(f"/v1/queries/{large}/result", params={"format": "csv"}).text == rows[0]


@pytest.mark.e2e
@pytest.mark.thorough  # with scripted engines, test_two_gateways.py
def test_a_gateway_that_is_stopped_leaves_its_reads_to_the_others(
    start: Callable[[str], Served], tmp_path: Path
) -> None:
    """So that gateways can be restarted one after the other under load."""
    one, other = start("one"), start("other")
    register_numbers(one, tmp_path / "n")
    query_id = one.ask(SLOWER, wait_s=0, timeout_s=600)["id"]
    wait_until(lambda: bool(one.look(query_id)["attempts"]), "it runs")
    one.process.terminate()
    wait_until(lambda: one.http.get("/readyz").status_code == 503, "it is about to stop", DRAIN_S)
    assert one.look(query_id)["state"] == "RUNNING"  # and still answers
    one.process.wait(60)
    wait_until(lambda: other.look(query_id)["state"] == "FINISHED", "it has rows", 120)
    assert [attempt["failure"] for attempt in other.look(query_id)["attempts"]] == ["GATEWAY_LOST", None]


@pytest.mark.e2e
def test_a_gateway_is_drained_from_another_one(start: Callable[[str], Served]) -> None:
    one, other = start("one"), start("other")

    def gateways(of: Served) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in of.http.get("/v1/gateways").json()["gateways"]}

    (name,) = [name for name, each in gateways(one).items() if each["answers"]]
    assert len(gateways(other)) == 2
    assert other.http.post(f"/v1/gateways/{name}/drain").status_code == 200
    assert one.http.get("/readyz").status_code == 503
    assert other.http.get("/readyz").status_code == 200
    assert one.ask("SELECT 1 AS x")["rows"] == [[1]]
    assert gateways(one)[name]["is_leaving"]
    wait_until(lambda: gateways(other)[name]["is_leaving"], "the other one is told", 5)
    assert one.http.post(f"/v1/gateways/{name}/resume").status_code == 200
    assert one.http.get("/readyz").status_code == 200
    assert one.http.post("/v1/gateways/nobody/drain").status_code == 404


@pytest.mark.e2e
@pytest.mark.thorough  # as above, for longer
def test_a_read_goes_on_after_its_only_gateway_was_killed(start: Callable[[str], Served], tmp_path: Path) -> None:
    one = start("one")
    register_numbers(one, tmp_path / "n")
    query_id = one.ask(SLOW, wait_s=0, timeout_s=600)["id"]
    wait_until(lambda: bool(one.look(query_id)["attempts"]), "it runs")
    one.kill()
    one.start()
    wait_until(lambda: one.look(query_id)["state"] == "FINISHED", "it has rows", 120)
    record = one.look(query_id)
    assert len(record["attempts"]) == 2
    one.stop()
