"""What is to be written of queries: their rows and those of their attempts, as several changes leave them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Insert, Update, bindparam, insert, update
from sqlalchemy.dialects import postgresql, sqlite

from engines.protocol import Actuals
from metastore.database.models import AttemptRow, QueryRow
from metastore.records import Attempt, Failure, QueryRecord, QueryState
from selector.decision import Decision
from selector.estimate import LARGEST_BYTES, Uncertainty

_DECISION = TypeAdapter(Decision)
_ACTUALS = TypeAdapter(Actuals)
_UNCERTAINTY = TypeAdapter(Uncertainty)
OPEN_STATES = (QueryState.QUEUED, QueryState.RUNNING)

Values = dict[str, Any]
_QUERIES = QueryRow.metadata.tables[QueryRow.__tablename__]  # rows as such, which are written three times as fast
_ATTEMPTS = AttemptRow.metadata.tables[AttemptRow.__tablename__]
_NO_QUERY: Values = {column.name: None for column in _QUERIES.columns}
_NO_ATTEMPT: Values = {column.name: None for column in _ATTEMPTS.columns}
_INSERT_QUERIES = insert(_QUERIES)
_INSERT_ATTEMPTS: Mapping[str, Insert] = {
    "postgresql": postgresql.insert(_ATTEMPTS).on_conflict_do_nothing(),
    "sqlite": sqlite.insert(_ATTEMPTS).on_conflict_do_nothing(),
}
"""But for those that were written before the database was lost in the midst of it."""


@dataclass(slots=True)
class _AttemptChanges:
    is_new: bool = False
    values: Values = field(default_factory=dict)


@dataclass(slots=True)
class QueryChanges:
    """What becomes of one query in one transaction: as the methods that were called leave it.

    is_new: its row is inserted. ending: what is written only where it has not ended yet.
    """

    query_id: str
    is_new: bool = False
    values: Values = field(default_factory=dict)
    attempts: dict[int, _AttemptChanges] = field(default_factory=dict)
    ending: Values | None = None

    def open(self, record: QueryRecord, gateway: str | None) -> None:
        """Insert a query that was just submitted. gateway: that runs it."""
        self.is_new = True
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

    def decide(self, fingerprint: str, template: str, statistics_version: str, decision: Decision) -> None:
        """Keep where it goes and why."""
        self.values |= {
            "fingerprint": fingerprint,
            "template": template,
            "statistics_version": statistics_version,
            "decision": _DECISION.dump_python(decision, mode="json"),
        }

    def answer(self, engine: str, at: dt.datetime, rows: int, result_bytes: int) -> None:
        """End the query with the result of an earlier one on this engine, unless it has ended."""
        if self.ending is None:
            self.end(QueryState.FINISHED, at, None, rows, result_bytes, None)
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
                "uncertainty": _UNCERTAINTY.dump_python(attempt.expected.uncertainty, mode="json"),
                "limit_bytes": attempt.expected.limit_bytes,
                "expected_s": attempt.expected.seconds,
            },
        )

    def end_attempt(self, attempt: Attempt) -> None:
        """Close an attempt with what it took."""
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
            "actuals": _ACTUALS.dump_python(attempt.actuals, mode="json") if attempt.actuals else None,
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
        }
        if attempt is not None:
            self.ending["engine"] = attempt.engine


def write(connection: Connection, changes: Sequence[QueryChanges]) -> tuple[bool, ...]:
    """Write what becomes of some queries, each named once; tell of each whether it was ended by this.

    What is new is inserted as it is in the end, in one statement for all. A query that has ended stays as it ended. It
    does no harm to write the changes of a query that is not new once more.
    """
    new = [{**_NO_QUERY, "id": each.query_id, **each.values, **(each.ending or {})} for each in changes if each.is_new]
    if new:
        connection.execute(_INSERT_QUERIES, new)
    for each in changes:
        if each.ending is None and not each.is_new:
            _update_open(connection, each, each.values)
    attempts = [
        {**_NO_ATTEMPT, "query_id": each.query_id, "ordinal": ordinal, **attempt.values}
        for each in changes
        for ordinal, attempt in each.attempts.items()
        if attempt.is_new
    ]
    if attempts:
        connection.execute(_INSERT_ATTEMPTS[connection.dialect.name], attempts)
    for each in changes:
        for ordinal, attempt in each.attempts.items():
            if not attempt.is_new:
                this = {"this": each.query_id, "number": ordinal}
                connection.execute(_update_attempt(frozenset(attempt.values)), attempt.values | this)
    return tuple(_ended(connection, each) for each in changes)


def _ended(connection: Connection, each: QueryChanges) -> bool:
    if each.ending is None or each.is_new:
        return each.is_new and each.ending is not None
    return _update_open(connection, each, each.values | each.ending)


def _update_open(connection: Connection, each: QueryChanges, values: Values) -> bool:
    """Update a query, and tell whether it was open; of one that has ended, neither its state nor its end changes."""
    if "state" not in values:
        return _update(connection, each.query_id, values)
    if _update(connection, each.query_id, values, only_open=True):
        return True
    _update(connection, each.query_id, {name: value for name, value in each.values.items() if name != "state"})
    return False


def _update(connection: Connection, query_id: str, values: Values, *, only_open: bool = False) -> bool:
    """Update a query, if there is anything to update, and tell whether it was there."""
    if not values:
        return False
    wanted = _update_query(frozenset(values), only_open=only_open)
    return connection.execute(wanted, {**values, "this": query_id}).rowcount > 0


@cache
def _update_query(columns: frozenset[str], *, only_open: bool = False) -> Update:
    """Return what updates some columns of the query ``this``; it is made once, which takes longer than to run it."""
    wanted = update(_QUERIES).where(_QUERIES.c.id == bindparam("this"))
    if only_open:
        wanted = wanted.where(_QUERIES.c.state.in_(OPEN_STATES))
    return wanted.values({name: bindparam(name) for name in columns})


@cache
def _update_attempt(columns: frozenset[str]) -> Update:
    """Return what updates some columns of the attempt ``number`` of the query ``this``."""
    this = _ATTEMPTS.c.query_id == bindparam("this"), _ATTEMPTS.c.ordinal == bindparam("number")
    return update(_ATTEMPTS).where(*this).values({name: bindparam(name) for name in columns})


def _storable(count: int | None) -> int | None:
    """Return bytes that fit into a column: estimates of cross joins may be larger than any number there."""
    return None if count is None else min(count, LARGEST_BYTES)
