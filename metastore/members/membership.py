"""START HERE: the gateways that share the database, each under an id that is new at each start (its epoch).

A member renews its row before ``TTL`` is over, by the database's clock. One whose time is over is removed by any other
member, and only then is it dead: what it owned belongs to nobody. A gateway that was paused finds its row gone. Until
it joins again under a new id, it writes nothing (``fence.py``).
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, and_, delete, func, insert, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from metastore.database.connection import SERVER_LIMITS
from metastore.database.models import GatewayRow, MemberSecretRow, QueryRow
from metastore.members.fence import EPOCH, Fenced, exempt, install, limit_pauses

log = logging.getLogger(__name__)

TTL = dt.timedelta(seconds=5)
"""Time from a sign of life until a member may be removed."""
EARLIER_TTL = dt.timedelta(seconds=60)
"""The same for a gateway of release 0.2, which gives a sign every ten seconds."""
LONGEST_NAME = 54
"""Characters of a gateway's name in its ids: they fit into their column with an epoch."""
_NAME_END = 21  # characters at the end of a long name that tell it from others
_LOCK_MS = 2_000  # that a removal waits for a transaction of the gateway that it removes, and a renewal for others
SURE_S = TTL.total_seconds() - 0.5
"""Time after the begin of a renewal in which nobody can have removed the member."""


EPOCH_BYTES = 4
LIVING_S = 1.0
"""Time for which this gateway believes that others live of whom it has read."""
CHANNEL = "fusion_members"
"""Channel on which members of PostgreSQL hear that another one has news of its part."""
_LOCK_NOT_AVAILABLE = "55P03"
_LOCK = 0x465553  # of the exchange, among PostgreSQL's advisory locks


class Exchange(Protocol):
    """Exchange of what members publish.

    The arguments are the id of this member, what the others publish by id, and seconds since 1970 by the database's
    clock.
    """

    def look(self, me: str, published: Mapping[str, Any], now_s: float) -> None:
        """Prepare the exchange, while others may do the same."""

    def exchange(self, me: str, published: Mapping[str, Any], now_s: float) -> tuple[dict[str, Any], bool]:
        """Return what this one publishes, as JSON, and whether others should look at it at once.

        One member at a time does it.
        """

    def confirm(self) -> None:
        """Take note that it is published."""


@dataclass(frozen=True, slots=True)
class Member:
    """A gateway that shares the database.

    id: its name and its epoch.
    address: host and port at which other members reach it; empty: it takes no calls of theirs.
    """

    id: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member as operators see it.

    is_leaving: it is about to stop, or drained. open_queries: that it runs, or that wait there.
    seen_at: its last sign of life.
    """

    member: Member
    is_leaving: bool
    open_queries: int
    seen_at: dt.datetime


LEAVING = "leaving"
"""Key in what a member publishes: it is about to stop, or drained."""


class Membership:
    """Membership of this process among the gateways that share a database. Thread-safe.

    current: its id; None: it is no member, as before ``join``, and nothing that it writes is fenced.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.current: str | None = None
        self.secret = b""
        """With which members prove to each other that they are such; empty before ``join``."""
        self._is_fenced = False
        self._renewed_s = -math.inf  # begin of the last successful renewal
        self._living: tuple[float, Mapping[bytes, Member]] = (-math.inf, {})  # by epoch, and when they were read

    @property
    def epoch(self) -> bytes:
        """``EPOCH_BYTES`` by which this member differs from all others, and from itself after another start."""
        return _epoch_in(self.current) if self.current is not None else bytes(EPOCH_BYTES)

    def of_epoch(self, epoch: bytes) -> Member | None:
        """Return the living member of an epoch, as of a second ago at most. Raises SQLAlchemyError."""
        read_s, living = self._living
        if epoch not in living or time.monotonic() - read_s > LIVING_S:
            read_s = time.monotonic()
            living = {_epoch_in(member.id): member for member in self.members() if "/" in member.id}
            self._living = read_s, living
        return living.get(epoch)

    @property
    def tells_news(self) -> bool:
        """Tell whether the database tells members of each other's news (``news.py``)."""
        return self._engine.dialect.name == "postgresql"

    def connect_arguments(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments with which the database's driver connects."""
        arguments, keywords = self._engine.dialect.create_connect_args(self._engine.url)
        return arguments, {**SERVER_LIMITS, **keywords}

    def join(self, name: str, address: str = "", *, solo: bool = False) -> str:
        """Become a member under a new id, and remove earlier ones of this name, which only one process has at a time.

        solo: nobody else uses the database; the row is never removed for silence. Raises SQLAlchemyError.
        """
        began_s = time.monotonic()
        name = _fitting(name)
        member = f"{name}/{secrets.token_hex(EPOCH_BYTES)}"
        with self._engine.begin() as connection:
            exempt(connection)
            now = database_time(connection)
            connection.execute(delete(GatewayRow).where(or_(GatewayRow.name == name, GatewayRow.id == name)))
            until = None if solo else now + TTL
            row = {"id": member, "name": name, "address": address, "seen_at": now, "alive_until": until}
            connection.execute(insert(GatewayRow).values(row))
        self.secret = self._shared_secret()
        if not solo and not self._is_fenced:
            self._is_fenced = True
            install(self._engine, lambda: self.current)
            if self.tells_news:
                limit_pauses(self._engine)
                self._engine.dispose()
        self._renewed_s = began_s if not solo else math.inf
        self.current = member
        return member

    def _shared_secret(self) -> bytes:
        """Return the secret of all members, which the first one makes."""
        with self._engine.begin() as connection:
            exempt(connection)
            own = {"id": 1, "secret": secrets.token_hex(32)}
            is_postgresql = connection.dialect.name == "postgresql"
            insertion = postgresql.insert(MemberSecretRow) if is_postgresql else sqlite.insert(MemberSecretRow)
            connection.execute(insertion.values(own).on_conflict_do_nothing())
            return bytes.fromhex(str(connection.scalar(select(MemberSecretRow.secret))))

    def renew(self, shares: Exchange | None = None, *, is_leaving: bool = False) -> bool:
        """Give a sign of life, and exchange what members publish; False: other members have removed this one.

        The sign of life waits for nobody. If others exchange for too long, this one does not exchange.
        Raises SQLAlchemyError.
        """
        member, began_s = self.current, time.monotonic()
        assert member is not None
        own = update(GatewayRow).where(GatewayRow.id == member)
        others = select(GatewayRow.id, GatewayRow.report).where(GatewayRow.id != member)

        def published(connection: Connection) -> Mapping[str, Any]:
            return {row.id: row.report for row in connection.execute(others) if row.report is not None}

        try:
            with self._engine.begin() as connection:
                now = database_time(connection)
                if not connection.execute(own.values(seen_at=now, alive_until=now + TTL)).rowcount:
                    return False
                reports = {} if shares is None else published(connection)
            self._renewed_s = began_s
            if shares is not None:
                shares.look(member, reports, now.timestamp())
                with self._engine.begin() as connection:
                    if self.tells_news:
                        connection.execute(text(f"SET LOCAL lock_timeout = {_LOCK_MS}"))
                        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
                    else:
                        connection.execute(own.values(seen_at=now))  # SQLite is locked from here on
                    now = database_time(connection)
                    report, is_news = shares.exchange(member, published(connection), now.timestamp())
                    if not connection.execute(own.values(report={**report, LEAVING: is_leaving})).rowcount:
                        return False
                    if is_news and self.tells_news:
                        connection.execute(select(func.pg_notify(CHANNEL, member)))
                shares.confirm()
        except Fenced:
            return False
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            log.warning("the other gateways exchange budgets for too long; this one keeps its part")
        return True

    @property
    def is_surely_alive(self) -> bool:
        """Tell, without the database, whether no other member can have removed this one."""
        return time.monotonic() - self._renewed_s < SURE_S

    def may_grant(self) -> bool:
        """Tell whether this gateway may hand out what it shares with others: not while it may have been removed."""
        return self.current is None or self.is_surely_alive

    def require_alive(self) -> None:
        """Raise Fenced if other members have removed the one that this context belongs to. Raises SQLAlchemyError."""
        member = EPOCH.get() or self.current
        if not self._is_fenced or (member == self.current and self.is_surely_alive):
            return
        with self._engine.connect() as connection:
            if connection.scalar(select(GatewayRow.id).where(GatewayRow.id == member)) is None:
                raise Fenced

    def is_member(self, member: str) -> bool:
        """Tell whether a gateway is a member. Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            return connection.scalar(select(GatewayRow.id).where(GatewayRow.id == member)) is not None

    def leave(self) -> None:
        """End regularly: what is still open belongs to nobody from now on, and nothing more is written under its id."""
        member = self.current
        if member is None:
            return
        if not self._is_fenced:
            self.current = None
        try:
            with self._engine.begin() as connection:
                exempt(connection)
                connection.execute(delete(GatewayRow).where(GatewayRow.id == member))
        except SQLAlchemyError as error:
            log.warning("the other gateways learn only by its silence that this one has ended: %s", error)

    def owner_of(self, query_id: str) -> Member | None:
        """Return the living gateway that runs a query, or has its result; None: there is none.

        One that has started again under another id has the results of before. Raises SQLAlchemyError.
        """
        beginning = func.substr(QueryRow.gateway, 1, func.length(GatewayRow.name) + 1)
        same_name = beginning == GatewayRow.name.concat("/")
        owned = select(GatewayRow.id, GatewayRow.name, GatewayRow.address).join(QueryRow, same_name)
        with self._engine.connect() as connection:
            row = connection.execute(owned.where(QueryRow.id == query_id)).first()
            return None if row is None else Member(row.id, row.name, row.address or "")

    def remove(self, name: str) -> None:
        """Remove a gateway whose process has ended. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            connection.execute(delete(GatewayRow).where(GatewayRow.name == _fitting(name)))

    def members(self) -> tuple[Member, ...]:
        """Return all members, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(GatewayRow.id, GatewayRow.name, GatewayRow.address).order_by(GatewayRow.name, GatewayRow.id)
            )
            return tuple(Member(row.id, row.name or row.id, row.address or "") for row in rows)

    def states(self) -> tuple[MemberState, ...]:
        """Return all members, by name, with what operators want to know of them. Raises SQLAlchemyError."""
        is_open = and_(QueryRow.gateway == GatewayRow.id, QueryRow.finished_at.is_(None))
        queries = select(func.count()).where(is_open).scalar_subquery()
        rows = select(GatewayRow.__table__, queries.label("open_queries")).order_by(GatewayRow.name, GatewayRow.id)
        with self._engine.connect() as connection:
            return tuple(
                MemberState(
                    Member(row.id, row.name or row.id, row.address or ""),
                    bool((row.report or {}).get(LEAVING)),
                    row.open_queries,
                    row.seen_at,
                )
                for row in connection.execute(rows)
            )

    def remove_silent(self) -> tuple[str, ...]:
        """Remove the members whose time is over; return their ids.

        Waits for a transaction of such a member, since it might be committed. Raises SQLAlchemyError.
        """
        with self._engine.begin() as connection:
            now = database_time(connection)
            of_earlier_release = and_(GatewayRow.name.is_(None), GatewayRow.seen_at < now - EARLIER_TTL)
            silent = or_(GatewayRow.alive_until < now, of_earlier_release)
            ids = tuple(connection.scalars(select(GatewayRow.id).where(silent)))
            if not ids:  # the usual case: no write
                return ()
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SET LOCAL lock_timeout = {_LOCK_MS}"))
            removed = delete(GatewayRow).where(GatewayRow.id.in_(ids), silent).returning(GatewayRow.id)
            return tuple(connection.scalars(removed))


def database_time(connection: Connection) -> dt.datetime:
    """Return the time by the database's clock, which is this machine's for SQLite."""
    if connection.dialect.name == "sqlite":
        return dt.datetime.now(dt.UTC)
    now = connection.scalar(select(func.clock_timestamp()))
    assert isinstance(now, dt.datetime)
    return now.astimezone(dt.UTC)


def _epoch_in(member: str) -> bytes:
    return bytes.fromhex(member.rpartition("/")[2])


def _fitting(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - _NAME_END] + name[-_NAME_END:]
