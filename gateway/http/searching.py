"""Search over queries on record, as addresses have it: filters, an order, and the place from which a page goes on."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import Query

from gateway.errors import BadRequest
from gateway.http.models.common import Moment
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import Principal, Role
from metastore.query_log.search import QueryFilter, QueryOrder, QueryPlace
from metastore.records import QueryRecord, QueryState

LARGEST = 1 << 62  # of a place's value, which is to fit into a column
SEPARATOR = "~"  # between a place's value and its id
SOMEBODY = Owned("query", "", "somebody else's")

Text = Annotated[str, Query(max_length=1_000)]


class QuerySearch:
    """Filters and order of a list of queries, as parameters of a request."""

    def __init__(
        self,
        text: Annotated[str, Query(max_length=1_000, description="A part of the statement.")] = "",
        id: Annotated[str, Query(max_length=64, description="The beginning of the id.")] = "",
        user: Text = "",
        pool: Text = "",
        state: QueryState | None = None,
        engine: Annotated[str, Query(max_length=1_000, description="Name; -: none was tried.")] = "",
        reason: Annotated[str, Query(max_length=64, description="The first reason's code, or the error's.")] = "",
        table: Annotated[str, Query(max_length=1_000, description="Name of a table that it read.")] = "",
        template: Text = "",
        since: Moment | None = None,
        before: Moment | None = None,
        least_s: Annotated[float | None, Query(ge=0.0, description="Least seconds.")] = None,
        least_bytes: Annotated[int | None, Query(ge=0, lt=1 << 62, description="Least measured peak.")] = None,
        failed_over: bool = False,
        ran_out: bool = False,
        above_bound: Annotated[bool, Query(description="The peak is above the estimate's upper bound.")] = False,
        order: QueryOrder = QueryOrder.SUBMITTED,
        ascending: bool = False,
        after: Annotated[str, Query(max_length=200, description="As `next` of the page before.")] = "",
    ) -> None:
        self.filter = QueryFilter(
            text=text,
            id=id,
            user=user,
            pool=pool,
            state=state or "",
            engine=engine,
            reason=reason,
            table=table,
            template=template,
            since=since,
            before=before,
            least_s=least_s,
            least_bytes=least_bytes,
            failed_over=failed_over,
            ran_out=ran_out,
            above_bound=above_bound,
        )
        self.order = order
        self.descending = not ascending
        self.after = read_place(order, after)
        if after and self.after is None:
            raise BadRequest("The parameter after is not the value next of an earlier page in the same order.")


def searchable_of(user: Principal, policy: Policy) -> dict[str, Any]:
    """Return ``text_of`` and ``names_of`` of a filter of queries: whose statements alone a user may search.

    A text that is found, or not, would tell a value of a statement that is shown without its values, and a table its
    existence.
    """
    own = None if policy.allows(user, Action.SEE_STATEMENT, SOMEBODY) else user.owner or ""
    return {"text_of": own, "names_of": own if policy.hides_names(user) else None}


def shows_expectations(user: Principal, policy: Policy) -> bool:
    """Tell whether a user may see what was expected of all statements: it tells of rows that a policy hides."""
    return not policy.hides_names(user) or user.role.includes(Role.OPERATOR)


def place_of(order: QueryOrder, record: QueryRecord) -> QueryPlace | None:
    """Return the place of a query in a list; None: it has no value in the order's column."""
    summary = record.summary
    value = {
        QueryOrder.SUBMITTED: record.submitted_at,
        QueryOrder.SECONDS: summary.seconds if summary else None,
        QueryOrder.EXPECTED: summary.expected_bytes if summary else None,
        QueryOrder.PEAK: summary.peak_bytes if summary else None,
        QueryOrder.ROWS: record.rows,
    }[order]
    return None if value is None else QueryPlace(value, record.id)


def written_place(place: QueryPlace) -> str:
    """Write a place for an address."""
    value = place.value.isoformat() if isinstance(place.value, dt.datetime) else repr(place.value)
    return f"{value}{SEPARATOR}{place.id}"


def read_place(order: QueryOrder, text: str) -> QueryPlace | None:
    """Read a place; None: it is not one of this order."""
    value, separator, query_id = text.partition(SEPARATOR)
    if not separator:
        return None
    try:
        if order is QueryOrder.SUBMITTED:
            at = dt.datetime.fromisoformat(value)
            return QueryPlace(at.astimezone(dt.UTC), query_id) if at.tzinfo is not None else None
        number = float(value) if order is QueryOrder.SECONDS else int(value)
    except (ValueError, OverflowError):
        return None
    return QueryPlace(number, query_id) if abs(number) < LARGEST else None  # NaN is not
