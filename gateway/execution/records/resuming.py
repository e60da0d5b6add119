"""Statements as they are recorded so that another gateway can run them again.

A read whose rows nobody has seen runs again under its id, from the beginning: a result appears whole, so that its
client sees rows of one run only. Whatever may have changed something is not run again.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from pydantic import TypeAdapter

from gateway.security.principals import Principal
from gateway.statements.partitions import PartitionSettings
from gateway.statements.statement import Statement
from metastore.records import QueryRecord
from selector.decision import Rule

_PARTITIONS = TypeAdapter(PartitionSettings)


def saved(statement: Statement) -> dict[str, Any] | None:
    """Return as JSON what a statement has beside its record; None: it depends on its gateway.

    That is so of a statement of a session that ends with its gateway, or has temporary views, and of one that the
    gateway itself asks.
    """
    session = statement.session
    if not statement.principal.address or (session is not None and (session.views or not session.may_go_on_elsewhere)):
        return None
    return {
        "address": statement.principal.address,
        "deadline_s": statement.deadline_s,
        "partitions": _PARTITIONS.dump_python(statement.partitions, mode="json"),
        "rule": statement.rule,
        "pool": statement.pool,
        "tags": list(statement.tags),
        "threads": statement.threads,
        "cache": statement.cache,
        "headers": dict(statement.headers),
        "of_hive": statement.of_hive,
    }


def address_in(request: dict[str, Any]) -> str:
    """Return the address of a saved statement's client."""
    return str(request["address"])


def restored(record: QueryRecord, request: dict[str, Any], principal: Principal) -> Statement:
    """Return a saved statement, with what is left of its time. principal: its user, with the rights of now."""
    passed_s = (dt.datetime.now(dt.UTC) - record.submitted_at).total_seconds()
    rule = request["rule"]
    return Statement(
        record.sql,
        dialect=record.dialect,
        engine=record.requested_engine,
        principal=principal,
        deadline_s=request["deadline_s"] - passed_s,
        partitions=_PARTITIONS.validate_python(request["partitions"]),
        database=record.database,
        rule=None if rule is None else Rule(rule),
        pool=request["pool"],
        tags=tuple(request["tags"]),
        headers=request["headers"],
        threads=request["threads"],
        cache=request["cache"],
        of_hive=request.get("of_hive", False),
        id=record.id,
        submitted_at=record.submitted_at,
    )
