"""The savings ledger as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel

from gateway.http.models.common import RecordModel
from metastore.query_log.workload import SavingsBy


class SavingsModel(RecordModel):
    """Queries of one day, user, pool or template.

    key: which one; a day as YYYYMMDD, in UTC; empty: all, or queries without a template.
    queries: in the sums. unknown: ended queries in none.
    failed_over: queries with more than one attempt. ran_out: those that ran out of memory.
    spent_s: engine-seconds, failed attempts included. alone_s: the same on the dependable engine alone.
    forecast_share: part of alone_s that is a forecast, the rest is measured.
    saved_s: alone_s without spent_s. The money is by the settings `pricing`; null: an engine has no price.
    """

    key: str
    queries: int
    unknown: int
    failed_over: int
    ran_out: int
    spent_s: float
    alone_s: float
    saved_s: float
    forecast_share: float | None
    spent_money: float | None
    alone_money: float | None
    saved_money: float | None


class SavingsReply(BaseModel):
    """The savings ledger."""

    since: dt.datetime
    until: dt.datetime | None
    by: SavingsBy
    savings: list[SavingsModel]
