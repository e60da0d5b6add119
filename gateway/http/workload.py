"""Sums over the query log: the savings ledger."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, Response

from gateway.http.models.common import Moment
from gateway.http.models.savings import SavingsModel, SavingsReply
from gateway.http.queries import Served
from gateway.http.replies import ModelResponse
from gateway.http.requests.routes import BoundedRoute
from gateway.presentation.savings import Savings
from metastore.query_log.workload import SavingsBy

MONTH = dt.timedelta(days=30)

router = APIRouter(route_class=BoundedRoute, prefix="/v1", tags=["engines"])


@router.get(
    "/savings",
    response_model=SavingsReply,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def get_savings(
    gateway: Served,
    since: Annotated[Moment | None, Query(description="Without it, 30 days ago.")] = None,
    until: Moment | None = None,
    by: SavingsBy = SavingsBy.ALL,
    format: Literal["json", "csv"] = "json",
) -> Response:
    """Return engine-seconds with the gateway beside those of the dependable engine alone, and money with prices.

    Queries are counted by when they were submitted. Those whose time alone is not known are in no sum.
    """
    begin = since or dt.datetime.now(dt.UTC) - MONTH
    prices = gateway.settings.pricing.per_hour
    lines = [Savings.of(line, prices) for line in gateway.metastore.workload.savings(begin, until, by)]
    shown = [SavingsModel.showing(line) for line in lines]
    if format == "json":
        return ModelResponse(SavingsReply(since=begin, until=until, by=by, savings=shown))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(SavingsModel.model_fields))
    writer.writeheader()
    writer.writerows(model.model_dump() for model in shown)
    return PlainTextResponse(text.getvalue(), media_type="text/csv; charset=utf-8")
