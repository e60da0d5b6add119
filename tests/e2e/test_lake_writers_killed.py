"""Two gateways write one lake table for several clients, and are killed at random.

Each acknowledged change is there once, no reader sees half of one, and the format's own library reads the table.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from gateway.cli.client import running_address
from metastore.lake.iceberg.reading import newest_metadata
from metastore.lake.place import place_of
from metastore.objects.access import NO_OBJECTS
from sql.tables import LAKE_FORMATS, Column, TableSource

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(7_200)]

COMMITS = int(os.environ.get("LAKE_COMMITS", "120"))
KILLS = max(2, COMMITS // 40)
CLIENTS, GATEWAYS = 4, 2
STARTED_WITHIN_S = 180.0
OPEN = ("QUEUED", "RUNNING")
COLUMNS = (Column("client", "int"), Column("pair", "int"), Column("side", "int"), Column("amount", "bigint"))
SUMS = (
    "SELECT client, count(*) AS n, count(DISTINCT pair) AS pairs, sum(side * amount) AS balance FROM ledger "
    "GROUP BY client"
)

Pairs = dict[int, int]
"""Amounts of a client by pair; a pair is two rows, with the sides 1 and -1."""


class GatewayDied(Exception):
    """The gateway went away before it said how a statement ended."""


@dataclass
class Served:
    """A gateway that is started anew whenever it was killed."""

    home: Path
    process: subprocess.Popen[bytes] = field(init=False)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start the gateway, and wait until it is ready."""
        self.home.mkdir(exist_ok=True)
        command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(self.home), "--port", "0"]
        environment = {**os.environ, "FUSION_CATALOG__ROOTS": json.dumps([str(self.home.parent)])}
        with (self.home / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        give_up_s = time.monotonic() + STARTED_WITHIN_S
        while True:
            assert self.process.poll() is None, (self.home / "serve.log").read_text()
            assert time.monotonic() < give_up_s, (self.home / "serve.log").read_text()
            url = running_address(self.home)
            try:
                if url is not None and httpx.get(f"{url}/readyz", timeout=5).status_code == httpx.codes.OK:
                    self.url = url
                    return
            except httpx.TransportError:  # the address of the one before
                pass
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the gateway, and start another one on the same home."""
        with self.lock:
            self.process.kill()
            self.process.wait(30)
            self.start()

    def query(self, sql: str) -> dict[str, object]:
        """Run a statement to its end. Raises GatewayDied."""
        url = self.url
        try:
            reply: dict[str, object] = httpx.post(
                f"{url}/v1/queries", json={"sql": sql, "wait_s": 0}, timeout=60
            ).json()
            while reply.get("state") in OPEN:
                time.sleep(0.05)
                url = self.url
                reply = httpx.get(f"{url}/v1/queries/{reply['id']}", timeout=60).json()
        except (httpx.TransportError, ValueError) as failure:
            with self.lock:  # it is up again
                raise GatewayDied from failure
        return reply


@dataclass
class Client:
    """A client and the rows that it must see."""

    number: int
    gateways: list[Served]
    pairs: Pairs = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    chance: random.Random = field(init=False)
    next_pair: int = 0
    newest: deque[tuple[str, str, object]] = field(default_factory=lambda: deque(maxlen=10))
    """Last statements with their ends and ids, for whoever looks for what went wrong."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.number)  # noqa: S311 - what it writes is no secret

    def change(self) -> bool:
        """Send a change, and return True if it was acknowledged."""
        sql, after = self._drawn()
        gateway = self.chance.choice(self.gateways)
        try:
            reply = gateway.query(sql)
        except GatewayDied:
            self.newest.append((sql, "gateway died", None))
            self._look(after, "gateway died")
            return False
        error = reply.get("error")
        code = error["code"] if isinstance(error, dict) else "none"
        self.newest.append((sql, code, reply.get("id")))
        if reply.get("state") == "FINISHED":
            self.pairs = after
            self.outcomes[sql.split()[0]] += 1
            return True
        if code == "WRITE_CONFLICT":  # it says that nothing was changed
            self.outcomes[code] += 1
            return False
        self._look(after, code)
        return False

    def _drawn(self) -> tuple[str, Pairs]:
        kind = self.chance.choice(("INSERT", "MERGE", "DELETE") if self.pairs else ("INSERT",))
        me, after = self.number, dict(self.pairs)
        if kind == "INSERT":
            pair, amount = self.next_pair, self.chance.randrange(1, 100)
            self.next_pair += 1
            after[pair] = amount
            return f"INSERT INTO ledger VALUES ({me}, {pair}, 1, {amount}), ({me}, {pair}, -1, {amount})", after
        pair = self.chance.choice(sorted(self.pairs))
        if kind == "DELETE":
            del after[pair]
            return f"DELETE FROM ledger WHERE client = {me} AND pair = {pair}", after
        new = self.next_pair
        self.next_pair += 1
        after[pair] += 1
        after[new] = 1
        rows = ", ".join(f"({me}, {one}, {side}, 1)" for one in (pair, new) for side in (1, -1))
        return (
            f"MERGE INTO ledger t USING (SELECT * FROM VALUES {rows} AS v(client, pair, side, amount)) s "
            "ON t.client = s.client AND t.pair = s.pair AND t.side = s.side "
            "WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount WHEN NOT MATCHED THEN INSERT *"
        ), after

    def _look(self, after: Pairs, why: str) -> None:
        """Ask whether a change is there whose end nobody told: as a whole, or not at all."""
        there = self.seen()
        assert there in (self.pairs, after), (
            f"client {self.number}, {why}: is {sorted(there.items() - self.pairs.items())}, "
            f"was {sorted(self.pairs.items() - there.items())} and its change would make it "
            f"{sorted(after.items() - self.pairs.items())}; {list(self.newest)}"
        )
        self.outcomes[f"{why}, {'there' if there == after else 'not there'}"] += 1
        self.pairs = there

    def seen(self) -> Pairs:
        """Return the client's pairs as a gateway sees them."""
        while True:
            try:
                reply = self.chance.choice(self.gateways).query(
                    f"SELECT pair, side, amount FROM ledger WHERE client = {self.number} ORDER BY pair, side"
                )
            except GatewayDied:
                continue
            if reply["state"] == "FINISHED":
                return as_pairs(reply["rows"])


def as_pairs(rows: object) -> Pairs:
    """Return pairs of (pair, side, amount) in order. Fails where one row is missing or twice there."""
    assert isinstance(rows, list)
    pairs = dict[int, int]()
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        assert (left[0], left[1], left[2]) == (right[0], -right[1], right[2]), (left, right)
        assert left[0] not in pairs
        pairs[left[0]] = left[2]
    return pairs


def balanced(gateways: list[Served], stopped: threading.Event, faults: list[object], reads: list[int]) -> None:
    """Read until the end: no sum may show half of a change."""
    while not stopped.is_set():
        try:
            reply = random.choice(gateways).query(SUMS)  # noqa: S311 - which one is asked is no secret
        except GatewayDied:
            continue
        if reply.get("state") == "FINISHED":
            reads[0] += 1
            assert isinstance(reply["rows"], list)
            faults += [row for row in reply["rows"] if row[1] != 2 * row[2] or row[3] != 0]


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_what_was_acknowledged_is_there_once(tmp_path: Path, format: str) -> None:
    location = tmp_path / "tables" / "ledger"
    gateways = [Served(tmp_path / f"home{number}") for number in range(GATEWAYS)]
    clients = [Client(number, gateways) for number in range(CLIENTS)]
    try:
        for gateway in gateways:
            gateway.start()
        columns = ", ".join(f"{column.name} {column.data_type}" for column in COLUMNS)
        for gateway, written in zip(gateways, (f"({columns}) ", ""), strict=True):
            made = gateway.query(f"CREATE TABLE ledger {written}USING {format} LOCATION '{location}'")
            assert made["state"] == "FINISHED", made["error"]
        stopped, faults, reads, acknowledged = threading.Event(), list[object](), [0], [0] * CLIENTS

        def keep_changing(client: Client) -> None:
            try:
                while acknowledged[client.number] < COMMITS // CLIENTS and not faults:
                    acknowledged[client.number] += client.change()
            except BaseException as failure:
                faults.append(repr(failure))
                raise

        threads = [threading.Thread(target=keep_changing, args=(client,)) for client in clients]
        reader = threading.Thread(target=balanced, args=(gateways, stopped, faults, reads))
        for thread in (*threads, reader):
            thread.start()
        chance = random.Random(7)  # noqa: S311 - when they die is no secret
        for kill in range(1, KILLS + 1):
            while sum(acknowledged) < kill * COMMITS // (KILLS + 1) and any(thread.is_alive() for thread in threads):
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 3.0))
            chance.choice(gateways).kill()
        for thread in threads:
            thread.join()
        stopped.set()
        reader.join()
        print(
            f"{format}: {sum(acknowledged)} acknowledged, {KILLS} kills, {reads[0]} reads,",
            dict(sum((client.outcomes for client in clients), Counter())),
        )
        assert not faults
        assert reads[0] > 0
        for client in clients:
            assert client.seen() == client.pairs
        by_library = rows_of(format, location)
        for client in clients:
            mine = sorted((pair, side, amount) for number, pair, side, amount in by_library if number == client.number)
            assert as_pairs([list(row) for row in mine]) == client.pairs
    finally:
        for gateway in gateways:
            stop(gateway)


def rows_of(format: str, location: Path) -> list[tuple[int, int, int, int]]:
    """Return the table's rows as the format's own library reads them."""
    if format == "delta":
        table = DeltaTable(location).to_pyarrow_table()
    else:
        place = place_of(TableSource("ledger", str(location), format, COLUMNS), NO_OBJECTS)
        table = StaticTable.from_metadata(newest_metadata(place)).scan().to_arrow()
    return [(row["client"], row["pair"], row["side"], row["amount"]) for row in table.to_pylist()]


def stop(gateway: Served) -> None:
    """End a gateway, and require that it takes its processes along."""
    if gateway.process.poll() is not None:
        return
    children = psutil.Process(gateway.process.pid).children(recursive=True)
    gateway.process.terminate()
    gateway.process.wait(60)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
