"""Answers that were compared with another engine's: counts by day, and the cases in which they differ."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Engine, func, insert, select, update
from sqlalchemy.orm import Session

from metastore.database.models import ParityCaseRow, ParityCountRow
from metastore.records import ParityCase

COMPARED, DIFFERENT = "compared", "different"
"""Outcomes; any other one says why an answer was left out. What differs was compared, too."""
_FIELDS = tuple(field.name for field in fields(ParityCase))


@dataclass(frozen=True, slots=True)
class ParityCounts:
    """Counts of a time. left_out: by reason. seconds: that the other engine took."""

    compared: int
    different: int
    left_out: Mapping[str, int]
    seconds: float


class Parity:
    """All comparisons."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def count(self, outcome: str, at: dt.datetime, seconds: float = 0.0) -> None:
        """Count an outcome."""
        key = {"day": f"{at:%Y%m%d}", "outcome": outcome}
        rows, here = ParityCountRow.__table__, (ParityCountRow.day == key["day"], ParityCountRow.outcome == outcome)
        more = {"count": ParityCountRow.count + 1, "seconds": ParityCountRow.seconds + seconds}
        with self._engine.begin() as connection:
            if connection.execute(update(ParityCountRow).where(*here).values(more)).rowcount:
                return
            counted = connection.execute(select(ParityCountRow.count).where(*here)).first()
            if counted is None:
                connection.execute(insert(rows), {**key, "count": 1, "seconds": seconds})  # type: ignore[arg-type]

    def counts(self, since: dt.datetime) -> ParityCounts:
        """Return the counts of the days since a time."""
        sums = func.sum(ParityCountRow.count), func.sum(ParityCountRow.seconds)
        wanted = select(ParityCountRow.outcome, *sums).where(ParityCountRow.day >= f"{since:%Y%m%d}")
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.group_by(ParityCountRow.outcome)).all()
        counts = {outcome: int(count) for outcome, count, _ in rows}
        return ParityCounts(
            compared=counts.pop(COMPARED, 0),
            different=counts.pop(DIFFERENT, 0),
            left_out=counts,
            seconds=float(sum(seconds for _, _, seconds in rows)),
        )

    def keep(self, case: ParityCase) -> None:
        """Store a case."""
        with Session(self._engine) as session, session.begin():
            session.merge(
                ParityCaseRow(**asdict(case) | {"rows": list(case.rows), "other_rows": list(case.other_rows)})
            )

    def cases(self, *, limit: int = 1_000) -> tuple[ParityCase, ...]:
        """Return cases, those that are not released first, and of each kind the newest."""
        order = ParityCaseRow.released_at.is_not(None), ParityCaseRow.found_at.desc()
        with Session(self._engine) as session:
            return tuple(map(_case, session.scalars(select(ParityCaseRow).order_by(*order).limit(limit))))

    def open_templates(self) -> Mapping[tuple[str, str], str]:
        """Return the ids of the queries of open cases, by engine and template."""
        columns = ParityCaseRow.engine, ParityCaseRow.template, ParityCaseRow.query_id
        with self._engine.connect() as connection:
            rows = connection.execute(select(*columns).where(ParityCaseRow.released_at.is_(None))).all()
        return {(engine, template): query_id for engine, template, query_id in rows}

    def release(self, query_id: str, *, by: str, at: dt.datetime) -> bool:
        """Release a case, and all others of its template. Return False if there is no open one with this id."""
        template = select(ParityCaseRow.template).where(ParityCaseRow.query_id == query_id).scalar_subquery()
        is_open = ParityCaseRow.released_at.is_(None)
        with self._engine.begin() as connection:
            known = connection.scalar(select(ParityCaseRow.query_id).where(ParityCaseRow.query_id == query_id, is_open))
            released = update(ParityCaseRow).where(ParityCaseRow.template == template, is_open)
            connection.execute(released.values(released_at=at, released_by=by))
        return known is not None


def _case(row: Any) -> ParityCase:
    values = {name: getattr(row, name) for name in _FIELDS}
    return ParityCase(**values | {"rows": tuple(row.rows), "other_rows": tuple(row.other_rows)})
