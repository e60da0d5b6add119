"""Pages about tables and views, their statistics, and the jobs and schedules that compute these."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from gateway.dashboard import pages
from gateway.dashboard.statistics import (
    ColumnPage,
    ScheduleLine,
    column_lines,
    drift_words,
    partition_lines,
    table_facts,
    version_words,
)
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.presentation.disclosure import may_see_schedule
from gateway.security.policy import Action
from sql.tables import canonical, database_of, in_two_parts

SOON = dt.timedelta(minutes=1)
JOBS_SHOWN = 20
SAMPLE_ROWS = 100

router = APIRouter(route_class=BoundedRoute, prefix="/dashboard", include_in_schema=False)


@router.get("/statistics")
def statistics_page(request: Request, gateway: Served, user: User) -> HTMLResponse:
    """Show the jobs and schedules of statistics."""
    now, store = _now(), gateway.metastore
    catalog = gateway.catalog.shown_to(user)
    jobs = [job for job in store.jobs.list(limit=JOBS_SHOWN) if catalog.shows_job(job)]
    schedules = [one for one in store.schedules.list() if may_see_schedule(one, catalog, user, gateway.policy)]
    soon = any(due - now < SOON for schedule in schedules if (due := schedule.next_run_at))
    newest = {schedule.name: store.jobs.get(schedule.last_job_id or "") for schedule in schedules}
    return pages.rendered(
        request,
        "statistics.html",
        jobs=jobs,
        schedules=[ScheduleLine.of(schedule, newest[schedule.name], now) for schedule in schedules],
        may_schedule=gateway.policy.allows(user, Action.CREATE_SCHEDULE),
        now=now,
        live=True,
        refresh_s=pages.REFRESH_S if soon or any(not job.state.ended for job in jobs) else pages.REFRESH_IDLE_S,
    )


@router.get("/tables")
def tables_page(request: Request, gateway: Served, user: User, database: str = "") -> HTMLResponse:
    """Show tables with the state of their statistics, and views. database: the only one to show; empty: all."""
    catalog = gateway.catalog.shown_to(user)
    builds, views = catalog.statistics, list(catalog.views.values())
    tables = [shown for table in gateway.metastore.catalog.list() if (shown := catalog.shown(table)) is not None]
    names = [*(table.name for table in tables), *(view.name for view in views)]
    databases = {*catalog.databases, *map(database_of, names)}
    return pages.rendered(
        request,
        "tables.html",
        databases=sorted(databases),
        chosen=database,
        tables=[
            (table, builds.get(table.name), gateway.freshness.recent(table.source, builds.get(table.name)))
            for table in tables
            if database in ("", database_of(table.name))
        ],
        views=[view for view in views if database in ("", database_of(view.name))],
        may_compute=gateway.policy.allows(user, Action.COMPUTE_STATISTICS),
        version_of=version_words,
        drift_of=drift_words,
        now=_now(),
        live=False,
    )


@router.get("/statistics/{name}")
def table_page(request: Request, gateway: Served, user: User, name: str) -> HTMLResponse:
    """Show one table: its columns with their statistics, its partitions, and the jobs that compute it now."""
    stored, catalog = gateway.metastore.catalog.get(canonical(name)), gateway.catalog.shown_to(user)
    table = catalog.shown(stored) if stored is not None else None
    if table is None:
        return pages.not_found(request, "There is no such table.", name)
    is_whole = catalog.shows_whole((table.name,))
    build = gateway.metastore.statistics.current(table.name) if is_whole else None
    drift = gateway.freshness.recent(table.source, build)
    jobs = gateway.metastore.jobs.list(limit=JOBS_SHOWN, table=table.name)
    running = [job for job in jobs if is_whole and not job.state.ended]
    partitions = partition_lines(table)
    return pages.rendered(
        request,
        "table.html",
        name=table.name,
        database=database_of(table.name),
        comment=table.annotations.comment,
        location=table.source.location,
        is_whole=is_whole,
        facts=table_facts(table, build, drift, _now(), gateway.objects.bytes_here(table.source)) if is_whole else (),
        notes=build.notes if build else (),
        columns=column_lines(build),
        unknown=[column for column in table.source.columns if build is None or column.name not in build.columns],
        partition_columns=table.source.partition_columns,
        partitions=partitions,
        running=running,
        sample=f"SELECT * FROM {in_two_parts(table.name)} LIMIT {SAMPLE_ROWS}",  # noqa: S608 - of a quoted name
        may_compute=is_whole and gateway.policy.allows(user, Action.COMPUTE_STATISTICS),
        may_query=gateway.policy.allows(user, Action.QUERY),
        live=bool(running),
    )


@router.get("/statistics/{name}/{column:path}")
def column_page(request: Request, gateway: Served, user: User, name: str, column: str) -> HTMLResponse:
    """Show one column: its histogram, its most common values, and its bins where it is a key."""
    build = gateway.catalog.shown_to(user).statistics.get(canonical(name))
    statistics = build.columns.get(column) if build else None
    if build is None or statistics is None:
        return pages.not_found(request, "There are no statistics of such a column.", f"{name}.{column}")
    return pages.rendered(request, "column.html", column=ColumnPage.of(build, statistics), live=False)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
