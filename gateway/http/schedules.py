"""Routes about schedules of statistics and statements."""

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
from gateway.presentation.disclosure import may_see_schedule
from metastore.records import ALL_TABLES, Schedule
from sql.errors import AccessDenied
from sql.tables import canonical

router = APIRouter(route_class=BoundedRoute, prefix="/v1/stats/schedules", tags=["statistics"])


@router.get("")
def list_schedules(gateway: Served, user: User) -> ScheduleList:
    """List schedules that the user may see, with their next and last runs."""
    catalog = gateway.catalog.shown_to(user)
    schedules = gateway.metastore.schedules.list()
    shown = [ScheduleReply.of(one) for one in schedules if may_see_schedule(one, catalog, user, gateway.policy)]
    return ScheduleList(schedules=shown)


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
    """Remove a schedule; its running job or statement continues."""
    _shown(name, gateway, user)
    gateway.schedules.remove(name, by=user)
    return {"removed": name}


@router.post("/{name}/run", status_code=202, responses=declared(404, 409))
def run_schedule(name: str, request: Request, gateway: Served, user: User) -> StatisticsJobReply | ScheduleReply:
    """Compute all tables of a schedule now, and return the job; or begin its statements, and return the schedule."""
    _require_permitted(_shown(name, gateway, user), request, gateway, user)
    job = gateway.schedules.run(name, by=user)
    return StatisticsJobReply.of(job) if job is not None else ScheduleReply.of(gateway.schedules.get(name))


def _shown(name: str, gateway: Services, user: User) -> Schedule:
    """Return a schedule that the user may see. Raises NotFound."""
    schedule = gateway.schedules.get(name)
    if not may_see_schedule(schedule, gateway.catalog.shown_to(user), user, gateway.policy):
        raise NotFound(f"There is no schedule {name}.")
    return schedule


def _require_permitted(schedule: Schedule, request: Request, gateway: Services, user: User) -> None:
    """Raise SqlError, RuleDenied, AccessDenied where the sender may not do what a schedule does."""
    if schedule.statements:
        if schedule.owner in (None, user.owner):  # another one's are his to mend, and run with his rights
            for sql in schedule.statements:
                gateway.coordinator.classify(gateway.session(user).statement(sql, with_values=True))
        return
    catalog, everything = gateway.catalog.shown_to(user), gateway.catalog.current().tables
    if schedule.tables != ALL_TABLES:
        catalog.require_whole(user, schedule.tables)
    elif not catalog.shows_whole(everything):
        raise AccessDenied(f"{user.name} may not see all of all tables: name the tables of the schedule.")
    tables = tuple(map(canonical, everything if schedule.tables == ALL_TABLES else schedule.tables))
    require_permitted(AnalyzeTables(tables), request, gateway, user)
