"""Division of all budgets between the gateways that share them: pure, and the same on each of them.

It grants what runs and what waits on all gateways anew. Between the gateways, each in its own order, it chooses as one
gateway would: by the share that a pool holds per weight, then a user, then by arrival. A gateway's part is the sum of
what it was granted, and an equal part of the rest, so that it can start a statement without asking anybody. What runs
counts in its order, too: where others are more entitled, a part is less than what its gateway has leased, and grows
free as that ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, TypeAlias

from gateway.routing.admission.values import POOL, EngineBudget, Pool, Resource, limits_of, pool_limits

Place: TypeAlias = tuple[str, str]
"""An engine and the home folder that it belongs to (empty: it is everybody's), or ``POOL`` and a pool."""

Amounts: TypeAlias = Counter[tuple[Place, Resource]]


@dataclass(frozen=True, slots=True)
class Item:
    """A statement that runs or waits.

    since_s: time of its arrival, by the database's clock.
    bytes: memory that counts.
    runs: it has its lease.
    is_guest: it has resources of guests, and none of the others.
    """

    engine: str
    pool: str
    source: str
    account: str
    bytes: int
    is_long: bool
    since_s: float
    runs: bool
    is_guest: bool = False
    query_id: str = ""
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One gateway's statements, as the others see them.

    home: its home folder, whose embedded engines only gateways of this folder share.
    items: its statements in its order: those that run by arrival, then those that wait by turn.
    held: of each resource the larger one of its part and what it has leased.
    leased: what it has leased.
    waiting: number of waiting statements by engine and by pool.
    is_short: it was granted more than there was.
    """

    home: str
    items: Sequence[Item] = ()
    held: Amounts = field(default_factory=Counter)
    leased: Amounts = field(default_factory=Counter)
    waiting: Counter[Place] = field(default_factory=Counter)
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Budgets:
    """All that is divided. local: names of the engines whose budget is a home folder's."""

    engines: Mapping[str, EngineBudget]
    pools: Mapping[str, Pool]
    local: frozenset[str]

    def place(self, engine: str, home: str) -> Place:
        """Return the place of an engine as gateways of a home folder use it."""
        return engine, home if engine in self.local else ""

    def of(self, place: Place) -> dict[Resource, int]:
        """Return what is divided of a place; a resource without a limit is missing.

        Places for short statements are not divided: they would wait for an exchange while processors are idle.
        """
        kind, name = place
        if kind == POOL:
            return pool_limits(self.pools[name])
        limits = limits_of(self.engines[kind])
        return {resource: limit for resource, limit in limits.items() if resource is not Resource.SHORT}


def amounts_of(item: Item, place: Place) -> Iterator[tuple[Place, Resource, int]]:
    """Yield what a statement takes of its engine's place and of its pool."""
    if item.is_guest:
        yield place, Resource.GUEST_SLOTS, 1
    else:
        yield place, Resource.SLOTS, 1
        yield place, Resource.LONG if item.is_long else Resource.SHORT, 1
        yield place, Resource.BYTES, item.bytes
    yield (POOL, item.pool), Resource.SLOTS, 1
    yield (POOL, item.pool), Resource.BYTES, item.bytes


def divide(reports: Mapping[str, Report], budgets: Budgets) -> dict[str, Amounts]:
    """Return each gateway's part of everything. reports: by gateway."""
    parts: dict[str, Amounts] = {member: Counter() for member in reports}
    taken: Amounts = Counter()
    places: dict[Place, list[str]] = defaultdict(list)
    for member in sorted(reports):
        for engine in budgets.engines:
            places[budgets.place(engine, reports[member].home)].append(member)
    for place, members in places.items():
        _grant(place, {member: reports[member].items for member in members}, budgets, parts, taken)
    for place, members in [*places.items(), *(((POOL, pool), sorted(reports)) for pool in budgets.pools)]:
        for resource, limit in budgets.of(place).items():
            free = max(0, limit - taken[place, resource])
            for number, member in enumerate(members):
                parts[member][place, resource] += free // len(members) + (number < free % len(members))
    return parts


def _grant(
    place: Place,
    items: Mapping[str, Iterable[Item]],
    budgets: Budgets,
    parts: Mapping[str, Amounts],
    taken: Amounts,
) -> None:
    """Grant the statements on one engine in order, as far as there is room; what has none is passed.

    A gateway's own order stays: what stands first on some gateway is granted first, so that it can start there.
    """
    budget, limits = budgets.engines[place[0]], {place: budgets.of(place)}
    queues = {
        member: deque(item for item in of_member if item.engine == place[0]) for member, of_member in items.items()
    }
    held: defaultdict[tuple[str, str], float] = defaultdict(float)

    def order(member: str) -> tuple[float, float, float, float, str]:
        head = queues[member][0]
        weight = budgets.pools[head.pool].weight if head.pool in budgets.pools else 1.0
        shares = held["pool", head.pool] / weight, held["source", head.source], held["account", head.account]
        return *shares, head.since_s, member

    while True:
        queues = {member: queue for member, queue in queues.items() if queue}
        if not queues:
            return
        member = min(queues, key=order)
        item = queues[member].popleft()
        wanted = list(amounts_of(item, place))
        limits[POOL, item.pool] = budgets.of((POOL, item.pool)) if item.pool in budgets.pools else {}
        if any(
            resource in limits[where] and taken[where, resource] + amount > limits[where][resource]
            for where, resource, amount in wanted
        ):
            continue
        for where, resource, amount in wanted:
            taken[where, resource] += amount
            parts[member][where, resource] += amount
        share = budget.share(1, item.bytes)
        for name in (("pool", item.pool), ("source", item.source), ("account", item.account)):
            held[name] += share


def content_of(report: Report) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "home": report.home,
        "items": [list(astuple(item)) for item in report.items],
        "held": [[*place, resource, amount] for (place, resource), amount in report.held.items() if amount],
        "leased": [[*place, resource, amount] for (place, resource), amount in report.leased.items() if amount],
        "waiting": [[*place, count] for place, count in report.waiting.items() if count],
        "short": report.is_short,
    }


def report_of(content: Mapping[str, Any]) -> Report:
    """Return a report from its JSON. Raises KeyError, TypeError or ValueError for one that this release cannot read."""

    def amounts(rows: Iterable[tuple[str, str, str, int]]) -> Amounts:
        return Counter({((kind, name), Resource(resource)): amount for kind, name, resource, amount in rows})

    return Report(
        content["home"],
        tuple(Item(*row) for row in content["items"]),
        amounts(content["held"]),
        amounts(content["leased"]),
        Counter({(kind, name): count for kind, name, count in content["waiting"]}),
        content["short"],
    )
