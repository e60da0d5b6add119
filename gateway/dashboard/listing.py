"""One page of the query log, newest first, with a filter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from gateway.presentation.timeline import failed_over
from metastore.records import QueryRecord
from metastore.repositories.queries import Queries

PAGE_ROWS = 50
READ_AT_ONCE = 200
READ_AT_MOST = 2_000  # so that a page answers soon even where few queries match; a link shows the next ones


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice of queries. Empty texts and False exclude nothing."""

    state: str = ""
    engine: str = ""
    failed_over: bool = False
    before: dt.datetime | None = None
    """Time of submission from which on queries are excluded."""

    @property
    def narrows(self) -> bool:
        """Tell whether the filter excludes queries, paging aside."""
        return bool(self.state or self.engine or self.failed_over)

    def keeps(self, record: QueryRecord) -> bool:
        """Tell whether a query matches."""
        return (
            (not self.state or record.state.value == self.state)
            and (not self.engine or record.engine == self.engine)
            and (not self.failed_over or failed_over(record))
        )

    def query_string(self, *, before: dt.datetime | None = None) -> str:
        """Return the filter as the query string of an address. before: beginning of another page."""
        pairs = {
            "state": self.state,
            "engine": self.engine,
            "failed_over": "1" if self.failed_over else "",
            "before": before.isoformat() if before else "",
        }
        text = urlencode({name: value for name, value in pairs.items() if value})
        return f"?{text}" if text else ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Queries of one page."""

    records: tuple[QueryRecord, ...]
    older: dt.datetime | None
    """Beginning of the next page; None: this is the last one."""
    read: int
    """Number of queries that were compared with the filter."""


def read(queries: Queries, wanted: Filter, as_now: Callable[[QueryRecord], QueryRecord]) -> Listing:
    """Return the newest queries that match a filter. as_now: returns a query in its state of now."""
    matching: list[QueryRecord] = []
    before, seen = wanted.before, 0
    while seen < READ_AT_MOST:
        records = queries.list(limit=READ_AT_ONCE if wanted.narrows else PAGE_ROWS + 1, before=before)
        for record in map(as_now, records):
            if wanted.keeps(record):
                if len(matching) == PAGE_ROWS:
                    return Listing(tuple(matching), matching[-1].submitted_at, seen)
                matching.append(record)
            seen += 1
            before = record.submitted_at
        if len(records) < READ_AT_ONCE:
            return Listing(tuple(matching), None, seen)
    return Listing(tuple(matching), before, seen)


def moment(text: str) -> dt.datetime | None:
    """Parse the beginning of a page in an address; None: it is not a time."""
    try:
        read_back = dt.datetime.fromisoformat(text)
        return read_back.astimezone(dt.UTC) if read_back.tzinfo is not None else read_back.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):  # beyond the calendar, in UTC
        return None
