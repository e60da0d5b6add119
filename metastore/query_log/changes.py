"""Changes to write of queries: the values of their rows and of their attempts' rows after several steps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Insert, Update, bindparam, insert, update
from sqlalchemy.dialects import postgresql, sqlite

from engines.protocol import Actuals
from metastore.database.models import AttemptRow, QueryRow
from metastore.records import Attempt, QueryRecord, QueryState, QuerySummary
from selector.decision import Decision
from selector.estimate import LARGEST_BYTES, Uncertainty
from sql.errors import Failure

DECISION = TypeAdapter(Decision)
ACTUALS = TypeAdapter(Actuals)
UNCERTAINTY = TypeAdapter(Uncertainty)
OPEN_STATES = (QueryState.QUEUED, QueryState.RUNNING)

Values = dict[str, Any]
_QUERIES = QueryRow.metadata.tables[QueryRow.__tablename__]  # plain rows: written three times as fast as objects
_ATTEMPTS = AttemptRow.metadata.tables[AttemptRow.__tablename__]
_NO_QUERY: Values = {column.name: None for column in _QUERIES.columns}
_NO_ATTEMPT: Values = {column.name: None for column in _ATTEMPTS.columns}
_INSERT_QUERIES = insert(_QUERIES)
_INSERT_ATTEMPTS: Mapping[str, Insert] = {
    "postgresql": postgresql.insert(_ATTEMPTS).on_conflict_do_nothing(),
    "sqlite": sqlite.insert(_ATTEMPTS).on_conflict_do_nothing(),
}
"""Rows that exist were written by an earlier try, in which the connection was lost."""


@dataclass(slots=True)
class _AttemptChanges:
    is_new: bool = False
    values: Values = field(default_factory=dict)


@dataclass(slots=True)
class QueryChanges:
    """Changes of one query in one transaction, collected by its methods."""

    query_id: str
    is_new: bool = False
    """Its row is inserted."""
    values: Values = field(default_factory=dict)
    request: Callable[[], Any | None] = field(default=lambda: None)
    attempts: dict[int, _AttemptChanges] = field(default_factory=dict)
    ending: Values | None = None
    """Values that are written only if the query has not ended yet."""

    def open(self, record: QueryRecord, gateway: str | None, request: Callable[[], Any | None]) -> None:
        """Insert a query that was just submitted.

        gateway: the one that runs it.
        request: see ``QueryRow``; it is called only if the query is written before it ends.
        """
        self.is_new, self.request = True, request
        self.values |= {
            "sql": record.sql,
            "dialect": record.dialect,
            "database": record.database,
            "user": record.user,
            "authenticated": record.authenticated,
            "requested_engine": record.requested_engine,
            "gateway": gateway,
            "state": record.state,
            "submitted_at": record.submitted_at,
        }

    def keep_from_others(self) -> None:
        """Note that no other gateway may run it again: its client is about to see rows."""
        self.request = lambda: None
        if not self.is_new:
            self.values["request"] = None

    def decide(self, fingerprint: str, template: str, statistics_version: str, decision: Decision) -> None:
        """Store the decision."""
        self.values |= {
            "fingerprint": fingerprint,
            "template": template,
            "statistics_version": statistics_version,
            "decision": DECISION.dump_python(decision, mode="json"),
        }

    def answer(self, engine: str, at: dt.datetime, rows: int, result_bytes: int, summary: QuerySummary) -> None:
        """End the query with the result of an earlier one on this engine, unless it has ended."""
        if self.ending is None:
            self.end(QueryState.FINISHED, at, None, rows, result_bytes, None, summary)
            self.ending = {**(self.ending or {}), "engine": engine}

    def start(self, attempt: Attempt) -> None:
        """Insert an attempt; the query runs from now on."""
        self.values |= {"state": QueryState.RUNNING, "engine": attempt.engine}
        self.attempts[attempt.ordinal] = _AttemptChanges(
            is_new=True,
            values={
                "engine": attempt.engine,
                "state": attempt.state,
                "started_at": attempt.started_at,
                "expected_bytes": _storable(attempt.expected.peak_bytes),
                "uncertainty": UNCERTAINTY.dump_python(attempt.expected.uncertainty, mode="json"),
                "limit_bytes": attempt.expected.limit_bytes,
                "expected_s": attempt.expected.seconds,
            },
        )

    def end_attempt(self, attempt: Attempt) -> None:
        """Close an attempt with its measurements."""
        changes = self.attempts.setdefault(attempt.ordinal, _AttemptChanges())
        changes.values |= {
            "state": attempt.state,
            "wall_s": attempt.wall_s,
            "waited_s": attempt.waited_s,
            "failure": attempt.failure,
            "message": attempt.message,
            "rows": attempt.rows,
            "peak_bytes": attempt.peak_bytes,
            "lease_bytes": attempt.lease_bytes,
            "threads": attempt.threads,
            "actuals": ACTUALS.dump_python(attempt.actuals, mode="json") if attempt.actuals else None,
        }
        if attempt.lease_bytes is not None:
            changes.values["limit_bytes"] = attempt.expected.limit_bytes

    def end(
        self,
        state: QueryState,
        at: dt.datetime,
        attempt: Attempt | None,
        rows: int | None,
        result_bytes: int | None,
        error: Failure | None,
        summary: QuerySummary | None,
    ) -> None:
        """End the query, with its last attempt, unless it has ended."""
        if attempt is not None:
            self.end_attempt(attempt)
        if self.ending is not None:
            return
        self.ending = {
            "state": state,
            "finished_at": at,
            "rows": rows,
            "result_bytes": result_bytes,
            "error_code": error.code if error else None,
            "error_message": error.message if error else None,
            "error_position": [error.position.line, error.position.column] if error and error.position else None,
            **(_summary(summary) if summary else {}),
        }
        if attempt is not None:
            self.ending["engine"] = attempt.engine


def _summary(summary: QuerySummary) -> Values:
    alone = summary.alone
    return {
        "pool": summary.pool,
        "reason": summary.reason,
        "seconds": summary.seconds,
        "attempt_count": summary.attempts,
        "ran_out": summary.ran_out,
        "expected_bytes": _storable(summary.expected_bytes),
        "peak_bytes": summary.peak_bytes,
        "within_bound": summary.within_bound,
        "alone_engine": alone.engine if alone else None,
        "alone_s": alone.seconds if alone else None,
        "alone_measured": alone.measured if alone else None,
    }


def write(connection: Connection, changes: Sequence[QueryChanges]) -> tuple[bool, ...]:
    """Write the changes of different queries. Return for each whether this ended it.

    New rows are inserted in their last state, in one statement for all. A query that has ended stays as it ended. The
    changes of a query that is not new may be written twice.
    """
    new = [
        {
            **_NO_QUERY,
            "id": query.query_id,
            **query.values,
            **(query.ending or {"request": query.request()}),
        }
        for query in changes
        if query.is_new
    ]
    if new:
        connection.execute(_INSERT_QUERIES, new)
    for query in changes:
        if query.ending is None and not query.is_new:
            _update_open(connection, query, query.values)
    attempts = [
        {**_NO_ATTEMPT, "query_id": query.query_id, "ordinal": ordinal, **attempt.values}
        for query in changes
        for ordinal, attempt in query.attempts.items()
        if attempt.is_new
    ]
    if attempts:
        connection.execute(_INSERT_ATTEMPTS[connection.dialect.name], attempts)
    for query in changes:
        for ordinal, attempt in query.attempts.items():
            if not attempt.is_new:
                key = {"this": query.query_id, "number": ordinal}
                connection.execute(_update_attempt(frozenset(attempt.values)), attempt.values | key)
    return tuple(_end(connection, query) for query in changes)


def _end(connection: Connection, query: QueryChanges) -> bool:
    if query.ending is None or query.is_new:
        return query.is_new and query.ending is not None
    return _update_open(connection, query, query.values | query.ending | {"request": None})


def _update_open(connection: Connection, query: QueryChanges, values: Values) -> bool:
    """Update a query. Return True if it was open; if not, neither its state nor its end changes."""
    if "state" not in values:
        return _update(connection, query.query_id, values)
    if _update(connection, query.query_id, values, only_open=True):
        return True
    _update(connection, query.query_id, {name: value for name, value in query.values.items() if name != "state"})
    return False


def _update(connection: Connection, query_id: str, values: Values, *, only_open: bool = False) -> bool:
    """Update a query if there are values. Return True if its row exists."""
    if not values:
        return False
    statement = _update_query(frozenset(values), only_open=only_open)
    return connection.execute(statement, {**values, "this": query_id}).rowcount > 0


@cache  # to build a statement takes longer than to run it
def _update_query(columns: frozenset[str], *, only_open: bool = False) -> Update:
    """Return an UPDATE of some columns of the query ``this``."""
    statement = update(_QUERIES).where(_QUERIES.c.id == bindparam("this"))
    if only_open:
        statement = statement.where(_QUERIES.c.state.in_(OPEN_STATES))
    return statement.values({name: bindparam(name) for name in columns})


@cache
def _update_attempt(columns: frozenset[str]) -> Update:
    """Return an UPDATE of some columns of the attempt ``number`` of the query ``this``."""
    key = _ATTEMPTS.c.query_id == bindparam("this"), _ATTEMPTS.c.ordinal == bindparam("number")
    return update(_ATTEMPTS).where(*key).values({name: bindparam(name) for name in columns})


def _storable(count: int | None) -> int | None:
    """Return bytes that fit into a column: estimates of cross joins may be larger than its largest number."""
    return None if count is None else min(count, LARGEST_BYTES)
