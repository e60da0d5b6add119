"""Search over the query log: which queries, in which order, from where on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from metastore.database.models import AttemptRow, QueryRow
from metastore.query_log.changes import OPEN_STATES

ESCAPE = "\\"


NO_ENGINE = "-"
"""Engine of queries that were refused, or that the gateway ran by itself."""


class QueryOrder(StrEnum):
    """Column that a list is sorted by. Queries without a value in it are left out."""

    SUBMITTED = "submitted"
    SECONDS = "seconds"
    EXPECTED = "expected"
    PEAK = "peak"
    ROWS = "rows"


_COLUMNS: dict[QueryOrder, InstrumentedAttribute[Any]] = {
    QueryOrder.SUBMITTED: QueryRow.submitted_at,
    QueryOrder.SECONDS: QueryRow.seconds,
    QueryOrder.EXPECTED: QueryRow.expected_bytes,
    QueryOrder.PEAK: QueryRow.peak_bytes,
    QueryOrder.ROWS: QueryRow.rows,
}


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """A choice of queries; what is None or empty excludes nothing.

    text: part of the statement, capital or small letters alike.
    text_of: user whose statements alone, beside those of nobody, may be searched for a text; None: all may be.
    names_of: user whose statements alone may be searched for a table or template; None: all may be.
    id: beginning of the query's id.
    state: an open state finds all open queries: which of them wait is not on record.
    reason: code of the first reason, or of the error.
    table: name of a table that it read, with its database unless that is the default.
    engine: its name, or NO_ENGINE. pool, template: as in its record.
    since, before: times of submission; the second one is excluded.
    least_s, least_bytes: least seconds, and least measured peak.
    failed_over: more than one attempt. ran_out: an attempt ran out of memory. above_bound: the peak is above its bound.
    """

    text: str = ""
    text_of: str | None = None
    names_of: str | None = None
    id: str = ""
    user: str = ""
    pool: str = ""
    state: str = ""
    engine: str = ""
    reason: str = ""
    table: str = ""
    template: str = ""
    since: dt.datetime | None = None
    before: dt.datetime | None = None
    least_s: float | None = None
    least_bytes: int | None = None
    failed_over: bool = False
    ran_out: bool = False
    above_bound: bool = False


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """Place of a query in a sorted list: its value of the order's column, and its id."""

    value: dt.datetime | float
    id: str


def select_ids(
    wanted: QueryFilter, order: QueryOrder, *, descending: bool, after: QueryPlace | None, dialect: str
) -> Select[str]:
    """Return a SELECT of the ids of queries. after: only those behind this place. dialect: of the database."""
    column = _COLUMNS[order]
    chosen = select(QueryRow.id).where(*_conditions(wanted, dialect))
    if order is not QueryOrder.SUBMITTED:
        chosen = chosen.where(column.is_not(None))
    if after is not None:
        behind = column < after.value if descending else column > after.value
        behind_id = QueryRow.id < after.id if descending else QueryRow.id > after.id
        chosen = chosen.where(or_(behind, and_(column == after.value, behind_id)))
    return chosen.order_by(*((one.desc() if descending else one.asc()) for one in (column, QueryRow.id)))


def _conditions(wanted: QueryFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    if wanted.id:
        yield QueryRow.id.startswith(wanted.id, autoescape=True)
    for column, name in (
        (QueryRow.user, wanted.user),
        (QueryRow.pool, wanted.pool),
        (QueryRow.template, wanted.template),
    ):
        if name:
            yield column == name
    if wanted.engine:
        yield QueryRow.engine.is_(None) if wanted.engine == NO_ENGINE else QueryRow.engine == wanted.engine
    if wanted.state:
        yield QueryRow.state.in_(OPEN_STATES if wanted.state in OPEN_STATES else (wanted.state,))
    if wanted.reason:
        yield or_(QueryRow.reason == wanted.reason, QueryRow.error_code == wanted.reason)
    if wanted.table:
        yield _contains("," + func.coalesce(QueryRow.statistics_version, ""), f",{wanted.table}@", dialect)
    if wanted.names_of is not None and (wanted.table or wanted.template):
        yield and_(QueryRow.user == wanted.names_of, QueryRow.authenticated.is_(True))
    if wanted.since is not None:
        yield QueryRow.submitted_at >= wanted.since
    if wanted.before is not None:
        yield QueryRow.submitted_at < wanted.before
    if wanted.least_s is not None:
        yield QueryRow.seconds >= wanted.least_s
    if wanted.least_bytes is not None:
        yield QueryRow.peak_bytes >= wanted.least_bytes
    if wanted.failed_over:
        tried = select(func.count()).where(AttemptRow.query_id == QueryRow.id).scalar_subquery()
        yield func.coalesce(QueryRow.attempt_count, tried) > 1
    if wanted.ran_out:
        yield QueryRow.ran_out.is_(True)
    if wanted.above_bound:
        yield QueryRow.within_bound.is_(False)
    if wanted.text:  # at the end, since it takes longest
        yield _contains(QueryRow.sql, wanted.text, dialect)
        if wanted.text_of is not None:
            yield or_(QueryRow.user == wanted.text_of, QueryRow.authenticated.is_(False))


def _contains(column: Any, text: str, dialect: str) -> ColumnElement[bool]:
    """Return a condition on a part of a text; small and capital letters of ASCII are alike."""
    escaped = text
    for special in (ESCAPE, "%", "_"):
        escaped = escaped.replace(special, ESCAPE + special)
    pattern = f"%{escaped}%"
    if dialect == "postgresql":
        condition = column.collate("C").ilike(pattern, escape=ESCAPE)  # by other collations, it takes twice as long
    else:
        condition = column.like(pattern, escape=ESCAPE)
    return condition  # type: ignore[no-any-return]
