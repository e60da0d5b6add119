"""One page of the query log, newest first, with what was asked for left in."""

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
READ_AT_MOST = 2_000  # a page answers soon even where next to nothing matches; the rest is a link away


@dataclass(frozen=True, slots=True)
class Filter:
    """Which queries to show. Empty texts and False leave everything in. before: only those submitted earlier."""

    state: str = ""
    engine: str = ""
    failed_over: bool = False
    before: dt.datetime | None = None

    @property
    def narrows(self) -> bool:
        """Whether anything is left out but by paging."""
        return bool(self.state or self.engine or self.failed_over)

    def keeps(self, record: QueryRecord) -> bool:
        """Tell whether a query is to be shown."""
        return (
            (not self.state or record.state.value == self.state)
            and (not self.engine or record.engine == self.engine)
            and (not self.failed_over or failed_over(record))
        )

    def query_string(self, *, before: dt.datetime | None = None) -> str:
        """Return the filter as it stands in an address, on another page."""
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
    """Queries of one page. older: where the next page begins, None at the end. read: queries looked at."""

    records: tuple[QueryRecord, ...]
    older: dt.datetime | None
    read: int


def read(queries: Queries, wanted: Filter, as_now: Callable[[QueryRecord], QueryRecord]) -> Listing:
    """Return the newest queries that a filter keeps. as_now: returns one in the state that it is in now."""
    found: list[QueryRecord] = []
    before, seen = wanted.before, 0
    while seen < READ_AT_MOST:
        records = queries.list(limit=READ_AT_ONCE if wanted.narrows else PAGE_ROWS + 1, before=before)
        for record in map(as_now, records):
            if wanted.keeps(record):
                if len(found) == PAGE_ROWS:
                    return Listing(tuple(found), found[-1].submitted_at, seen)
                found.append(record)
            seen += 1
            before = record.submitted_at
        if len(records) < READ_AT_ONCE:
            return Listing(tuple(found), None, seen)
    return Listing(tuple(found), before, seen)


def moment(text: str) -> dt.datetime | None:
    """Read a page's beginning from an address; None where it is not one."""
    try:
        read_back = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return read_back if read_back.tzinfo is not None else read_back.replace(tzinfo=dt.UTC)
