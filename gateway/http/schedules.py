"""Routes about schedules of statistics."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter

from gateway.http.errors import declared
from gateway.http.login import User
from gateway.http.models.schedules import ScheduleChange, ScheduleList, ScheduleReply, ScheduleRequest
from gateway.http.models.statistics import StatisticsJobReply
from gateway.http.queries import Served

router = APIRouter(prefix="/v1/stats/schedules", tags=["statistics"])


@router.get("")
def list_schedules(gateway: Served) -> ScheduleList:
    """List schedules with their next and their last run."""
    return ScheduleList(schedules=[ScheduleReply.of(schedule) for schedule in gateway.metastore.schedules.list()])


@router.post("", status_code=201, responses=declared(409))
def add_schedule(body: ScheduleRequest, gateway: Served, user: User) -> ScheduleReply:
    """Add a schedule."""
    return ScheduleReply.of(gateway.schedules.add(body.schedule(at=dt.datetime.now(dt.UTC)), by=user))


@router.patch("/{name}", responses=declared(404))
def change_schedule(name: str, body: ScheduleChange, gateway: Served, user: User) -> ScheduleReply:
    """Pause or resume a schedule, or change what it does; what is left out stays as it is."""
    return ScheduleReply.of(gateway.schedules.change(body.of(gateway.schedules.get(name)), by=user))


@router.delete("/{name}", responses=declared(404))
def remove_schedule(name: str, gateway: Served, user: User) -> dict[str, str]:
    """Remove a schedule; a job that it started goes on."""
    gateway.schedules.remove(name, by=user)
    return {"removed": name}


@router.post("/{name}/run", status_code=202, responses=declared(404, 409))
def run_schedule(name: str, gateway: Served, user: User) -> StatisticsJobReply:
    """Compute all tables of a schedule now, whatever it waits for, and return the job."""
    return StatisticsJobReply.of(gateway.schedules.run(name, by=user))
