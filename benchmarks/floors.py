"""How fast clients read from the gateway, beside how fast they read the same bytes from a mere socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.claim import show_table, step
from benchmarks.drains import PYTHON_DRAINS, Drain
from benchmarks.replay import Protocol, recording, replaying


@dataclass(frozen=True, slots=True)
class Floor:
    """One client. Seconds of each turn, from the gateway and from the replay. size: bytes that were replayed."""

    client: str
    rows: int
    size: int
    gateway_s: Sequence[float]
    replay_s: Sequence[float]

    @property
    def of_floor(self) -> float:
        """The gateway's speed as a share of the replay's, of the turns' median."""
        return median(floor / took for floor, took in zip(self.replay_s, self.gateway_s, strict=True))


def floors(addresses: Mapping[str, str], sql: str, rows: int, turns: int) -> list[Floor]:
    """Measure each client. addresses: host:port by the client's name; turns: from either, which begin in turns."""
    found = list[Floor]()
    for client, address in addresses.items():
        step(f"{client}: what it can do by itself")
        found.append(_floor(client, PYTHON_DRAINS[client], address, sql, rows, turns))
    return found


def _floor(client: str, drain: Drain, address: str, sql: str, rows: int, turns: int) -> Floor:
    protocol = Protocol.GRPC if client == "adbc" else Protocol.HS2
    with recording(protocol, address) as (proxy, recorded):
        drain(proxy, sql, rows)
    seconds: dict[str, list[float]] = {address: []}
    with replaying(recorded) as replay:
        seconds[replay] = []
        drain(replay, sql, rows)  # warm, as the gateway's side is
        for turn in range(turns):
            for place in (address, replay) if turn % 2 else (replay, address):
                seconds[place].append(drain(place, sql, rows))
    size = sum(connection.reply_bytes for connection in recorded.connections)
    return Floor(client, rows, size, seconds[address], seconds[replay])


def figures_of(found: Sequence[Floor]) -> dict[str, float]:
    """Return figures by name."""
    return {
        name: figure
        for each in found
        for name, figure in (
            (f"{each.client}.gateway_rows_per_s", each.rows / median(each.gateway_s)),
            (f"{each.client}.floor_rows_per_s", each.rows / median(each.replay_s)),
            (f"{each.client}.of_floor", each.of_floor),
        )
    }


def show(found: Sequence[Floor]) -> None:
    """Print a table."""
    rows = [
        [
            each.client,
            f"{each.rows / median(each.gateway_s):,.0f}",
            f"{each.rows / median(each.replay_s):,.0f}",
            f"{each.size / median(each.replay_s) / 1e6:,.0f}",
            f"{each.of_floor:.2f}",
        ]
        for each in found
    ]
    head = ["client", "rows/s from the gateway", "rows/s from a replay", "MB/s from a replay", "of the replay's speed"]
    show_table("Each client's own limit; medians", head, rows)
