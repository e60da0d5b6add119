"""One page of the query log: a search with its order and its place, as it stands in a page's address."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from gateway.http.searching import place_of, read_place, searchable_of, shows_expectations, written_place
from gateway.security.policy import Policy
from gateway.security.principals import Principal
from metastore.query_log.search import QueryFilter, QueryOrder, QueryPlace
from metastore.records import QueryRecord, QueryState
from metastore.repositories.queries import Queries

PAGE_ROWS = 50
OPEN_ROWS = 1_000  # more than can be open at once
WINDOWS: Mapping[str, dt.timedelta] = {
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
    "week": dt.timedelta(days=7),
}
ORDERS: Mapping[str, str] = {
    QueryOrder.SUBMITTED: "time",
    QueryOrder.SECONDS: "seconds",
    QueryOrder.EXPECTED: "estimated peak",
    QueryOrder.PEAK: "measured peak",
    QueryOrder.ROWS: "rows",
}
"""Orders in words."""
_TEXTS = ("text", "id", "user", "pool", "state", "engine", "reason", "table", "template")
_FLAGS = ("failed_over", "ran_out", "above_bound")


@dataclass(frozen=True, slots=True)
class Search:
    """A search as its form has it. last: name of a window, of which the queries were submitted; "": any time."""

    filter: QueryFilter
    last: str
    order: QueryOrder
    descending: bool
    after: QueryPlace | None

    @classmethod
    def of(cls, parameters: Mapping[str, str], user: Principal, policy: Policy, now: dt.datetime) -> Search:
        """Read a page's address. An unknown order or time is left out."""
        order = next((one for one in QueryOrder if one.value == parameters.get("order")), QueryOrder.SUBMITTED)
        if order is QueryOrder.EXPECTED and not shows_expectations(user, policy):
            order = QueryOrder.SUBMITTED
        last = parameters.get("last", "")
        last = last if last in WINDOWS else ""
        wanted = replace(
            QueryFilter(),
            since=now - WINDOWS[last] if last else None,
            before=moment(parameters.get("before", "")),
            least_s=_number(parameters.get("least_s", "")),
            **searchable_of(user, policy),
        )
        texts: dict[str, Any] = {name: parameters.get(name, "").strip() for name in _TEXTS}
        flags: dict[str, Any] = {name: parameters.get(name, "") not in ("", "0") for name in _FLAGS}
        wanted = replace(wanted, **texts, **flags)
        after = read_place(order, parameters.get("after", ""))
        return cls(wanted, last, order, parameters.get("ascending", "") in ("", "0"), after)

    @property
    def narrows(self) -> bool:
        """Tell whether it excludes queries, paging aside."""
        return replace(self.filter, text_of=None, names_of=None) != QueryFilter()

    def address(self, **changes: Any) -> str:
        """Return the query string of this search with changes of its fields, on its first page."""
        changed = replace(self, **{"after": None, **changes})
        wanted = changed.filter
        pairs: dict[str, str] = {name: getattr(wanted, name) for name in _TEXTS}
        pairs |= {name: "1" if getattr(wanted, name) else "" for name in _FLAGS}
        pairs["last"] = changed.last
        pairs["before"] = wanted.before.isoformat() if wanted.before else ""
        pairs["least_s"] = "" if wanted.least_s is None else f"{wanted.least_s:g}"
        pairs["order"] = "" if changed.order is QueryOrder.SUBMITTED else changed.order.value
        pairs["ascending"] = "" if changed.descending else "1"
        pairs["after"] = written_place(changed.after) if changed.after else ""
        text = urlencode({name: value for name, value in pairs.items() if value})
        return f"?{text}" if text else ""

    def sorted_by(self, order: str) -> str:
        """Return the query string of the same queries by another order, or the other way round."""
        wanted = QueryOrder(order)
        return self.address(order=wanted, descending=not self.descending if wanted is self.order else True)

    def direction_of(self, order: str) -> str:
        """Return the direction of an order, as ``aria-sort`` has it."""
        if order != self.order.value:
            return "none"
        return "descending" if self.descending else "ascending"


@dataclass(frozen=True, slots=True)
class Listing:
    """Queries of one page. next: place behind which the next page begins; None: this is the last one."""

    records: tuple[QueryRecord, ...]
    next: QueryPlace | None


def read(queries: Queries, search: Search, as_now: Callable[[QueryRecord], QueryRecord]) -> Listing:
    """Return the queries of a page. as_now: returns a query in its state of now."""
    state = search.filter.state
    is_open = state in (QueryState.QUEUED, QueryState.RUNNING)
    found = queries.search(
        search.filter,
        order=search.order,
        descending=search.descending,
        after=search.after,
        limit=OPEN_ROWS if is_open else PAGE_ROWS + 1,
    )
    records = tuple(map(as_now, found))
    if is_open:
        return Listing(tuple(record for record in records if record.state == state), None)
    shown = records[:PAGE_ROWS]
    return Listing(shown, place_of(search.order, shown[-1]) if len(records) > PAGE_ROWS else None)


def moment(text: str) -> dt.datetime | None:
    """Parse a time in an address; None: it is not a time."""
    try:
        read_back = dt.datetime.fromisoformat(text)
        return read_back.astimezone(dt.UTC) if read_back.tzinfo is not None else read_back.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):  # beyond the calendar, in UTC
        return None


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
