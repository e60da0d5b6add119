"""Routes about schedules of statistics."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter, Request

from gateway.commands.statistics.computing import AnalyzeTables
from gateway.errors import NotFound
from gateway.http.errors import declared
from gateway.http.models.schedules import ScheduleChange, ScheduleList, ScheduleReply, ScheduleRequest
from gateway.http.models.statistics import StatisticsJobReply
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing.permitted import require_permitted
from gateway.http.services import Services
from metastore.records import ALL_TABLES, Schedule
from sql.errors import AccessDenied
from sql.tables import canonical

router = APIRouter(route_class=BoundedRoute, prefix="/v1/stats/schedules", tags=["statistics"])


@router.get("")
def list_schedules(gateway: Served, user: User) -> ScheduleList:
    """List schedules for tables that the user may see, with their next and last runs."""
    catalog = gateway.catalog.shown_to(user)
    shown = [schedule for schedule in gateway.metastore.schedules.list() if catalog.shows_schedule(schedule)]
    return ScheduleList(schedules=[ScheduleReply.of(schedule) for schedule in shown])


@router.post("", status_code=201, responses=declared(409))
def add_schedule(body: ScheduleRequest, request: Request, gateway: Served, user: User) -> ScheduleReply:
    """Add a schedule."""
    wanted = body.schedule(at=dt.datetime.now(dt.UTC))
    _require_permitted(wanted, request, gateway, user)
    return ScheduleReply.of(gateway.schedules.add(wanted, by=user))


@router.patch("/{name}", responses=declared(404))
def change_schedule(name: str, body: ScheduleChange, request: Request, gateway: Served, user: User) -> ScheduleReply:
    """Pause, resume or change a schedule; fields that are left out stay as they are."""
    wanted = body.of(_shown(name, gateway, user))
    if not wanted.paused:
        _require_permitted(wanted, request, gateway, user)
    return ScheduleReply.of(gateway.schedules.change(wanted, by=user))


@router.delete("/{name}", responses=declared(404))
def remove_schedule(name: str, gateway: Served, user: User) -> dict[str, str]:
    """Remove a schedule; its running job continues."""
    _shown(name, gateway, user)
    gateway.schedules.remove(name, by=user)
    return {"removed": name}


@router.post("/{name}/run", status_code=202, responses=declared(404, 409))
def run_schedule(name: str, request: Request, gateway: Served, user: User) -> StatisticsJobReply:
    """Compute all tables of a schedule now, and return the job."""
    _require_permitted(_shown(name, gateway, user), request, gateway, user)
    return StatisticsJobReply.of(gateway.schedules.run(name, by=user))


def _shown(name: str, gateway: Services, user: User) -> Schedule:
    """Return a schedule for tables that the user may see. Raises NotFound."""
    schedule = gateway.schedules.get(name)
    if not gateway.catalog.shown_to(user).shows_schedule(schedule):
        raise NotFound(f"There is no schedule {name}.")
    return schedule


def _require_permitted(schedule: Schedule, request: Request, gateway: Services, user: User) -> None:
    """Raise RuleDenied, AccessDenied, UnknownTable where the sender may not compute what a schedule does."""
    catalog, everything = gateway.catalog.shown_to(user), gateway.catalog.current().tables
    if schedule.tables != ALL_TABLES:
        catalog.require_whole(user, schedule.tables)
    elif not catalog.shows_whole(everything):
        raise AccessDenied(f"{user.name} may not see all of all tables: name the tables of the schedule.")
    tables = tuple(map(canonical, everything if schedule.tables == ALL_TABLES else schedule.tables))
    require_permitted(AnalyzeTables(tables), request, gateway, user)
