"""Sessions of clients of all interfaces: their settings and temporary views.

Which settings mean something is said in ``settings.py``; those that do nothing are kept and shown.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import TypeAdapter

from gateway.errors import InvalidSetting, SessionFull, SettingNotObeyed, TooManySessions
from gateway.security.principals import Principal
from gateway.statements.partitions import PartitionSettings
from gateway.statements.settings import (
    CACHE,
    DIALECT,
    DYNAMIC,
    EARLY_ROWS,
    ENGINE,
    IDLE_S,
    IGNORED,
    NESTED_JSON,
    NOT_USED,
    OBEYED,
    OPTIONS,
    OVERWRITE,
    OWN,
    POLICY,
    POOL,
    REGULAR,
    STRICT,
    SUBSTITUTE,
    TAGS,
    TAGS_HEADER,
    THREADS,
    TIMEOUT_S,
    Influence,
    asks_for_leniency,
    influence_of,
    is_variable,
    level_of,
    near_miss,
    tags_of,
)
from gateway.statements.statement import Statement
from gateway.statements.variables import substitute
from sql.dialects.names import IMPALA, SPARK
from sql.parsing import USUAL_LIMITS, ParserLimits
from sql.tables import DEFAULT_DATABASE, View

LARGEST_SETTINGS = 1_000
LONGEST_VALUE = 64 << 10
LARGEST_BYTES = 4 << 20  # of settings and temporary views together
PREFIXES = ("hiveconf:", "sparkconf:", "spark:", "spark.hadoop.")  # by which other servers know a setting, too
HOUSEKEEPING_S = 0.5  # so that the sessions of a user who was removed end within a second
_VIEWS = TypeAdapter(dict[str, View])
LONG_POLL_S = 0.5  # that a question about a statement that runs waits for news


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on sessions.

    sessions: largest number of open sessions.
    sessions_per_user: largest number of one user.
    idle_s: seconds without a statement after which a session is closed.
    """

    sessions: int
    sessions_per_user: int
    idle_s: float


class Session:
    """One client's session. Thread-safe.

    principal: its user, as last seen.
    deadline_s: deadline of its statements.
    limits: limits on their texts.
    dialect: dialect of its statements, until it sets one.
    of_hive: its client is a driver of Hive, Impala or Spark: it expects Hive's type names, and sends settings that are
        unknown here: they are accepted with a warning.
    """

    def __init__(
        self,
        principal: Principal,
        *,
        deadline_s: float,
        limits: ParserLimits = USUAL_LIMITS,
        dialect: str = SPARK,
        of_hive: bool = False,
    ) -> None:
        self.principal = principal
        self.of_hive = of_hive
        self._presumed_dialect = dialect
        self._limits = limits
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._settings: dict[str, str] = {}
        self._ignored: dict[str, str] = {}
        self._views: dict[str, View] = {}
        self._database = DEFAULT_DATABASE
        self._waits = 0
        self._idle_since = time.monotonic()
        self.on_change: Callable[[], object] = lambda: None
        """Called after each change, before anybody hears of it."""
        self.may_go_on_elsewhere = False
        """Its client can ask another gateway for its statements."""

    @property
    def user(self) -> str:
        """Name of who it belongs to."""
        return self.principal.name

    @property
    def database(self) -> str:
        """The database of bare names in its statements."""
        return self._database

    def use(self, database: str) -> None:
        """Set the current database, which must exist."""
        with self._changing():
            self._database = database

    def presume_dialect(self, dialect: str) -> None:
        """Set the presumed dialect of the client; its own setting takes precedence."""
        with self._changing():
            self._presumed_dialect = dialect

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Tell of a change; where nobody can be told, nothing has changed."""
        before = self.state()
        try:
            yield
            self.on_change()
        except BaseException:
            self.restore(before)
            raise

    def state(self) -> dict[str, Any]:
        """Return as JSON what its client has set, for ``restore``."""
        with self._lock:
            return {
                "database": self._database,
                "dialect": self._presumed_dialect,
                "settings": dict(self._settings),
                "ignored": dict(self._ignored),
                "views": _VIEWS.dump_python(self._views, mode="json"),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what a client has set at another gateway."""
        views = _VIEWS.validate_python(state["views"])
        with self._lock:
            self._database = state["database"]
            self._presumed_dialect = state["dialect"]
            self._settings, self._ignored, self._views = dict(state["settings"]), dict(state["ignored"]), views

    @property
    def dialect(self) -> str:
        """The dialect that its statements are read in."""
        return str(DIALECT.read(self.settings()[DIALECT.name]))

    @property
    def nested_json(self) -> bool:
        """Tell whether its driver is sent nested values as JSON, not as Hive writes them."""
        return bool(NESTED_JSON.read(self.settings()[NESTED_JSON.name]))

    def open_with(self, name: str, value: str) -> None:
        """Take a setting that its client opens it with; one that only asks that less be refused does nothing.

        Raises as ``set`` does.
        """
        try:
            self.set(name, value)
        except SettingNotObeyed as error:
            if not asks_for_leniency(name):
                raise
            self._keep(name, value, f"{IGNORED}: {error}")

    def set(self, name: str, value: str) -> None:
        """Change a setting. Raises InvalidSetting, SettingNotObeyed, SessionFull."""
        name, value, is_known = self._checked(name, value)
        self._keep(name, value, None if is_known else f"{IGNORED}: {name[:200]} is not known here; it changes nothing.")

    def _keep(self, name: str, value: str, warning: str | None) -> None:
        """Keep a setting; with a warning where it does nothing. Raises SessionFull."""
        with self._changing(), self._lock:
            others = {other: setting for other, setting in self._settings.items() if not _is_same(other, name)}
            if len(others) >= LARGEST_SETTINGS:
                raise SessionFull(f"A session holds {LARGEST_SETTINGS:,} settings at most; RESET some.")
            changed = others | {name: value}
            _require_memory(changed, self._views)
            self._settings = changed
            self._ignored = {other: text for other, text in self._ignored.items() if other in others}
            if warning is not None:
                self._ignored[name] = warning

    def reset(self, name: str | None = None) -> None:
        """Give one setting, or all of them, back its default."""
        with self._changing(), self._lock:
            if name is None:
                self._settings.clear()
                self._ignored.clear()
            else:
                for same in [other for other in self._settings if _is_same(other, _spelled(name))]:
                    del self._settings[same]
                    self._ignored.pop(same, None)

    def settings(self) -> Mapping[str, str]:
        """Return all settings by name: those of the gateway with their defaults, then what else was set."""
        own = {option.name: option.default for option in OBEYED} | {DIALECT.name: self._presumed_dialect}
        with self._lock:
            return own | dict(sorted(self._settings.items()))

    def get(self, name: str) -> str | None:
        """Return one setting's value, None where it is not set."""
        spelled = _spelled(name)
        return next((value for other, value in self.settings().items() if _is_same(other, spelled)), None)

    def level_of(self, name: str) -> str:
        """Return what SET tells of a setting that is kept under this name."""
        level = level_of(name)
        with self._lock:
            return NOT_USED if level == REGULAR and name in self._ignored else level

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of settings that are kept although nobody knows or obeys them, a line each."""
        with self._lock:
            return tuple(self._ignored.values())

    def statement(
        self,
        sql: str,
        *,
        overlay: Mapping[str, str] = {},
        timeout_s: float = 0.0,
        dialect: str | None = None,
        engine: str | None = None,
        with_values: bool = False,
        headers: Mapping[str, str] = {},
    ) -> Statement:
        """Make a statement under these settings, with the values of its variables in it.

        overlay: settings of this statement alone; dialect and engine: in the place of the session's.
        with_values: its variables are put in already; what looks like one is data. headers: that came with it, by name
        in lower case.
        Raises InvalidSetting, SettingNotObeyed, SqlError.
        """
        settings = dict(self.settings())
        for name, value in overlay.items():
            name, value, _ = self._checked(name, value)
            settings[name] = value
        limits = (self._deadline_s, TIMEOUT_S.read(settings[TIMEOUT_S.name]), timeout_s)
        dialect = dialect or DIALECT.read(settings[DIALECT.name])
        if not with_values and SUBSTITUTE.read(settings[SUBSTITUTE.name]):
            sql = substitute(sql, dialect, settings, self._limits)
        return Statement(
            sql=sql,
            dialect=dialect,
            engine=engine or ENGINE.read(settings[ENGINE.name]),
            principal=self.principal,
            deadline_s=min(limit for limit in limits if limit),
            session=self,
            database=self._database,
            rule=POLICY.read(settings[POLICY.name]),
            pool=POOL.read(settings[POOL.name]),
            tags=_tags(TAGS.read(settings[TAGS.name]), headers.get(TAGS_HEADER, "")),
            headers=headers,
            threads=THREADS.read(settings[THREADS.name]),
            cache=CACHE.read(settings[CACHE.name]),
            early_rows=EARLY_ROWS.read(settings[EARLY_ROWS.name]),
            of_hive=self.of_hive,
            partitions=PartitionSettings(
                overwrite=OVERWRITE.read(settings[OVERWRITE.name]),
                dynamic=DYNAMIC.read(settings[DYNAMIC.name]),
                strict=STRICT.read(settings[STRICT.name]),
            ),
        )

    def _checked(self, name: str, value: str) -> tuple[str, str, bool]:
        """Return a setting's name and value, and whether it is known at all."""
        option = OPTIONS.get(_spelled(name).lower())
        if option is not None:
            try:
                option.read(value)
            except ValueError as error:
                raise InvalidSetting(f"{option.name} is {error}, not {value[:80]}.") from error
            return option.name, value, True
        if name.lower().startswith(OWN):
            names = ", ".join(option.name for option in OBEYED)
            raise InvalidSetting(f"There is no setting {name}; there are {names}.")
        if len(name) + len(value) > LONGEST_VALUE:
            raise InvalidSetting("The setting is too long.")
        influence = influence_of(name, value)
        unknown = influence is Influence.UNKNOWN or (
            influence is Influence.VARIABLE and "." not in name and self.dialect == IMPALA
        )
        if unknown and not self.of_hive:
            raise SettingNotObeyed(f"{name[:200]} is not known here, so that nobody can say what it would change.")
        meant = near_miss(name) if unknown else None
        if meant is not None:
            raise SettingNotObeyed(f"{name[:200]} is not known here; did you mean {meant}?")
        return name, value, not unknown

    def keep_view(self, view: View, *, replace: bool) -> bool:
        """Keep a temporary view; returns whether that was done: not where one of its name is not to be replaced.

        Raises SessionFull.
        """
        with self._changing(), self._lock:
            if view.name in self._views and not replace:
                return False
            changed = self._views | {view.name: view}
            _require_memory(self._settings, changed)
            self._views = changed
            return True

    def drop_view(self, name: str) -> bool:
        """Forget a temporary view; returns whether it was there."""
        with self._changing(), self._lock:
            return self._views.pop(name.lower(), None) is not None

    @property
    def views(self) -> Mapping[str, View]:
        """Temporary views by bare name."""
        with self._lock:
            return dict(self._views)

    def touch(self) -> None:
        """Record a request of the client: it is idle from now on, unless it waits for an answer."""
        self._idle_since = time.monotonic()

    def begin_wait(self) -> None:
        """Note that the client waits for an answer."""
        with self._lock:
            self._waits += 1

    def end_wait(self) -> None:
        """Note that it got its answer."""
        with self._lock:
            self._waits -= 1
        self.touch()

    @property
    def idle_s(self) -> float:
        """Seconds since the client last asked for something; zero while it waits for an answer."""
        with self._lock:
            return 0.0 if self._waits else time.monotonic() - self._idle_since

    def is_idle_too_long(self, limit_s: float) -> bool:
        """Tell whether nobody asked for anything for longer than a limit, or than the client's own where it is less."""
        own_s = IDLE_S.read(self.settings()[IDLE_S.name])
        return self.idle_s > (limit_s if own_s is None else min(own_s, limit_s))


def require_room(sessions: Iterable[Session], principal: Principal, limits: Limits) -> None:
    """Raise TooManySessions where as many are open as may be, in total or of one user."""
    accounts = [session.principal.account for session in sessions]
    if len(accounts) >= limits.sessions:
        raise TooManySessions("Too many sessions are open; try again later.")
    of_user = accounts.count(principal.account)
    if of_user >= limits.sessions_per_user:
        raise TooManySessions(f"{principal.name} has {of_user} sessions open already; close one.")


def expire_idle(close_idle: Callable[[], object], stopping: threading.Event, *, name: str) -> None:
    """Start a thread that closes idle sessions until the end."""

    def keep_house() -> None:
        while not stopping.wait(HOUSEKEEPING_S):
            close_idle()

    threading.Thread(target=keep_house, name=name, daemon=True).start()


def _tags(own: tuple[str, ...], header: str) -> tuple[str, ...]:
    """Return a statement's tags: its session's, and those of its header. Raises InvalidSetting."""
    try:
        return (*own, *tags_of(header))
    except ValueError as error:
        raise InvalidSetting(f"The header {TAGS_HEADER} holds {error}, not {header[:80]}.") from error


def _require_memory(settings: Mapping[str, str], views: Mapping[str, View]) -> None:
    """Raise SessionFull where a session would hold too much."""
    columns = [column for view in views.values() for column in view.columns]
    texts = chain(
        settings.keys(),
        settings.values(),
        views.keys(),
        (view.sql for view in views.values()),
        (column.name for column in columns),
        (column.data_type for column in columns),
    )
    if sum(map(sys.getsizeof, texts)) > LARGEST_BYTES:
        raise SessionFull(
            f"A session's settings and temporary views take {LARGEST_BYTES >> 20} MiB at most; RESET or drop some."
        )


def _is_same(one: str, other: str) -> bool:
    """Tell whether two names are one setting's: those of products are the same in any case, variables are not."""
    return one == other or (one.lower() == other.lower() and not is_variable(one))


def _spelled(name: str) -> str:
    """Return a setting's name; those that are obeyed are the same in any case, and behind the prefixes of others."""
    lower = name.lower()
    for prefix in PREFIXES:
        lower = lower.removeprefix(prefix)
    option = OPTIONS.get(lower)
    return option.name if option else name
