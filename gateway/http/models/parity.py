"""Answers that were compared with the dependable engine's, as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel

from gateway.http.models.common import RecordModel


class ParityCaseModel(RecordModel):
    """A query whose answers on two engines differ; its template stays off `engine` until the case is released.

    rows, other_rows: first rows that the other answer has not. snapshots: that both read, by tables.
    version: of the gateway and of both engines, or of their drivers.
    """

    query_id: str
    template: str
    sql: str
    user: str
    engine: str
    other: str
    difference: str
    rows: list[str]
    other_rows: list[str]
    snapshots: dict[str, str]
    version: str
    found_at: dt.datetime
    released_at: dt.datetime | None
    released_by: str | None


class ParityReply(BaseModel):
    """Counts since a day, and all cases.

    share: of the queries of fast engines that are compared.
    left_out: answers that could not be compared, by reason. seconds: that the dependable engine took.
    """

    since: dt.datetime
    share: float
    compared: int
    different: int
    left_out: dict[str, int]
    seconds: float
    cases: list[ParityCaseModel]
