"""The part that this gateway has of budgets shared with others, exchanged with each sign of life.

Each gateway publishes its statements, and what it may hold, in its row of the metastore. One gateway at a time
exchanges, and none takes more than the others leave. So what they hold together stays within the budget.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.routing.admission.admission import Admission
from gateway.routing.admission.division import Amounts, Budgets, Item, Place, Report, content_of, divide, report_of
from gateway.routing.admission.holdings import Sharer
from gateway.routing.admission.values import POOL, Elsewhere, Leased, Resource, limits_of

log = logging.getLogger(__name__)

MOST_ITEMS = 64  # statements of one engine that run, and as many that wait, which the others are told of


class Shares:
    """The exchange of one gateway. home: name of its home folder, whose embedded engines it has."""

    def __init__(self, admission: Admission, budgets: Budgets, home: str) -> None:
        self._admission = admission
        self._budgets = budgets
        self._home = home
        self._others: Mapping[str, Report] = {}
        self._read_ones: Mapping[str, tuple[Any, Report]] = {}  # what the others publish, and what it says
        self._entitled: Amounts | None = None
        self._part: Amounts = Counter()
        self._next: Amounts = Counter()
        self._held: Amounts = Counter()
        self._is_short = False
        self._places: Mapping[str, Place] = {
            **{engine: budgets.place(engine, home) for engine in budgets.engines},
            **{POOL + pool: (POOL, pool) for pool in budgets.pools},
        }

    def begin(self) -> None:
        """Grant nothing until the first exchange, which tells what the others leave."""
        self._part = self._next = Counter()
        self._limit(self._part)

    def look(self, me: str, published: Mapping[str, Any], now_s: float) -> None:
        """Divide the budgets before ``exchange``, whose arguments it has: that one is done by one gateway at a time.

        What changes in between delays turns until the next exchange; nobody takes more than the others leave.
        """
        self._entitled = self._divided(me, published, now_s)

    def _divided(self, me: str, published: Mapping[str, Any], now_s: float) -> Amounts:
        items = self._admission.statements(MOST_ITEMS, clock_offset_s=now_s - time.time())
        return divide({**self._reports(published), me: Report(self._home, items)}, self._budgets)[me]

    def exchange(self, me: str, published: Mapping[str, Any], now_s: float) -> tuple[dict[str, Any], bool]:
        """Give back what is beyond this gateway's part. Return what it publishes, and whether others should look at it.

        me: its id. published: what the others published, by id. now_s: seconds since 1970 by the database's clock.
        """
        entitled = self._divided(me, published, now_s) if self._entitled is None else self._entitled
        self._entitled = None
        self._others = self._reports(published)
        items = self._admission.statements(MOST_ITEMS, clock_offset_s=now_s - time.time())
        part: Amounts = Counter()
        for place in self._places.values():
            for resource, limit in self._budgets.of(place).items():
                key = place, resource
                free = limit - sum(report.held[key] for report in self._others.values())
                part[key] = max(0, min(entitled[key], free))
        leased = self._limit(Counter({key: min(amount, self._part[key]) for key, amount in part.items()}))
        self._next = part
        held = Counter({key: max(amount, leased[key]) for key, amount in part.items()})
        is_short = any(amount < entitled[key] for key, amount in part.items())
        waiting = Counter(self._budgets.place(item.engine, self._home) for item in items if not item.runs)
        waiting.update((POOL, item.pool) for item in items if not item.runs)
        gives_back = any(amount < self._held[key] for key, amount in held.items())
        is_news = (is_short and not self._is_short) or (
            gives_back and any(report.is_short for report in self._others.values())
        )
        self._held, self._is_short = held, is_short
        return content_of(Report(self._home, items, held, leased, waiting, is_short)), is_news

    def _reports(self, published: Mapping[str, Any]) -> dict[str, Report]:
        """Return the others' reports; one that has not changed is not read again."""
        earlier = self._read_ones
        self._read_ones = {
            member: earlier[member]
            if member in earlier and earlier[member][0] == content
            else (content, self._read(content))
            for member, content in published.items()
        }
        return {member: report for member, (_, report) in self._read_ones.items()}

    def _read(self, content: Any) -> Report:
        """Return another gateway's report; of one that cannot be read, that it holds everything."""
        try:
            return report_of(content)
        except (KeyError, TypeError, ValueError):
            log.warning("another gateway, of another release, publishes what this one cannot read")
            places = self._places.values()
            held = {(place, what): limit for place in places for what, limit in self._budgets.of(place).items()}
            return Report(self._home, held=Counter(held))

    def confirm(self) -> None:
        """Take the whole part, since what ``exchange`` returned is published."""
        self._part = self._next
        self._limit(self._part)

    def _elsewhere(self) -> Elsewhere:
        """Return what the others told of engines and pools that this gateway shares with them."""
        leases = [
            Leased(
                item.query_id,
                item.engine,
                item.pool,
                None if self._budgets.engines[item.engine].capacity_bytes is None else item.bytes,
                item.threads,
                dt.datetime.fromtimestamp(item.since_s, dt.UTC),
            )
            for item in self._items()
            if item.runs
        ]
        return Elsewhere({name: self._sums(place) for name, place in self._places.items()}, tuple(leases))

    def _items(self) -> Iterator[Item]:
        """Yield the others' statements on engines that this gateway shares with them."""
        for report in self._others.values():
            for item in report.items:
                if self._places.get(item.engine) == self._budgets.place(item.engine, report.home):
                    yield item

    def _sums(self, place: Place) -> tuple[int, int, int]:
        """Return slots and bytes that the others hold of a place, and how many statements wait there."""
        reports = self._others.values()
        slots = sum(report.leased[place, slot] for report in reports for slot in (Resource.SLOTS, Resource.GUEST_SLOTS))
        held = sum(report.leased[place, part] for report in reports for part in (Resource.BYTES, Resource.GUEST_BYTES))
        return slots, held, sum(report.waiting[place] for report in reports)

    def _limit(self, part: Amounts) -> Amounts:
        """Have admission grant no more than this part; return what is leased."""
        limits = {
            name: {resource: part[place, resource] for resource in self._budgets.of(place)}
            for name, place in self._places.items()
        }
        for name, budget in self._budgets.engines.items():
            limits[name] = {**limits_of(budget), **limits[name]}
        leased = self._admission.limit(limits, self._shares(), self._elsewhere())
        return Counter(
            {
                (self._places[name], resource): amount
                for name, amounts in leased.items()
                for resource, amount in amounts.items()
            }
        )

    def _shares(self) -> Mapping[tuple[str, Sharer, str], float]:
        """Return the shares of engines that pools, sources and accounts hold on other gateways."""
        shares: defaultdict[tuple[str, Sharer, str], float] = defaultdict(float)
        for item in self._items():
            if item.runs:
                share = self._budgets.engines[item.engine].share(1, item.bytes)
                shares[item.engine, Sharer.POOL, item.pool] += share
                shares[item.engine, Sharer.SOURCE, item.source] += share
                shares[item.engine, Sharer.ACCOUNT, item.account] += share
        return shares
