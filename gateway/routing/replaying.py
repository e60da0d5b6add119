"""Replays of the query log under other settings, and advice from them. Nothing runs.

``History`` is read by ``history.py``; what would have become of it is worked out in ``selector/replay``.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import ByteSize, TypeAdapter, ValidationError

from engines.adapter import Size
from engines.running_statement import require_time
from gateway.errors import InvalidSetting, TooManyQueries
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.history import Explain, RecordedHistory, read_history
from gateway.settings import RoutingSettings
from metastore.store import Metastore
from selector.decision import Rule
from selector.replay.advice import Option, advise
from selector.replay.hindsight import Hindsight
from selector.replay.recorded import ReplaySettings
from selector.replay.replay import Load, Replayed, ReplayedStatement, recorded_load, replay
from sql.names import did_you_mean

SHOWN = 20  # statements that would go elsewhere
MOST_SLOTS = 1_024
MEMORY_LIMIT, SLOTS = "memory_limit", ("workers", "slots")
ROUTING = ("policy", "safe_miss", "miss_price_s", "explore", "seed")

_SIZE: TypeAdapter[ByteSize] = TypeAdapter(Size)


@dataclass(frozen=True, slots=True)
class Question:
    """Question to the recorded history.

    limit: largest number of statements.
    since: time of the first statement; None: as far back as ``limit`` statements go.
    settings: settings to change, by name, as texts.
    rule: routing policy of every statement; None: as recorded.
    prices: price of an hour in which an engine works for one statement, by engine.
    """

    limit: int
    since: dt.datetime | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    rule: Rule | None = None
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Statement that would run on another engine. sql, dialect: as submitted."""

    replayed: ReplayedStatement
    sql: str
    dialect: str


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Changes that other settings would make.

    recorded: history that was read.
    before: load as recorded.
    after: load under the settings.
    client_before_s, client_after_s: seconds from submission to end, of all statements together.
    own: history decided again under its own settings, which shows how far to trust the replay.
    replayed: history decided again under the settings.
    changes: statements whose seconds change most, the most first.
    sample: random sample of all statements that change.
    """

    recorded: RecordedHistory
    before: Load
    after: Load
    client_before_s: float
    client_after_s: float
    own: Replayed
    replayed: Replayed
    changes: tuple[Change, ...]
    sample: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class EngineAdvice:
    """Options for one fast engine, the least memory first. memory_bytes: memory available to the engine."""

    engine: str
    memory_bytes: int
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """Recommended limits and slots of each fast engine."""

    recorded: RecordedHistory
    engines: tuple[EngineAdvice, ...]


class Replaying:
    """Runs replays one at a time: each takes a processor for seconds. Thread-safe. routing: configured settings."""

    def __init__(self, engines: EngineRegistry, metastore: Metastore, routing: RoutingSettings) -> None:
        self._engines = engines
        self._metastore = metastore
        self._routing = routing
        self._busy = threading.Lock()

    def replay(
        self, question: Question, *, explain: Explain | None = None, sample: int = 0, seed: int = 0
    ) -> ReplayReport:
        """Decide history again. explain: estimates statements by today's statistics; without, as it was then.

        sample, seed: how many statements to draw of those that would go elsewhere. Raises InvalidSetting,
        UnknownEngine, TooManyQueries.
        """
        settings = self._settings(question)
        own_settings = ReplaySettings(self._routing.routing_policy)
        with self._turn():
            recorded = self._read(question, explain)
            history = recorded.history
            hindsight = Hindsight(history)
            replayed = replay(history, settings, hindsight)
            require_time()
            as_it_was = self._read(question, None).history if explain else history
            own = replay(as_it_was, own_settings)
            elsewhere = [statement for statement in replayed.statements if statement.is_elsewhere]
            elsewhere.sort(key=lambda statement: -abs(statement.seconds - statement.statement.seconds))
            drawn = random.Random(seed).sample(elsewhere, min(sample, len(elsewhere)))  # noqa: S311 - no secrets
            return ReplayReport(
                recorded,
                before=recorded_load(history.statements),
                after=replayed.load,
                client_before_s=sum(statement.client_s for statement in history.statements),
                client_after_s=sum(replayed.client_s(history, {**history.slots, **settings.slots})),
                own=own,
                replayed=replayed,
                changes=tuple(self._shown(elsewhere[:SHOWN])),
                sample=tuple(self._shown(drawn)),
            )

    def advise(self, question: Question, *, memory_bytes: int | None = None) -> AdviceReport:
        """Return limits and slots of each fast engine, and what history would have taken with them.

        memory_bytes: that an engine may take; None: what it is configured to. Raises InvalidSetting, UnknownEngine,
        TooManyQueries.
        """
        settings = self._settings(question)
        with self._turn():
            recorded = self._read(question, None)
            advice = []
            for entry in self._engines.values():
                require_time()
                if entry.dependable or entry.limit_bytes is None:
                    continue
                memory = memory_bytes or entry.budget.capacity_bytes or entry.limit_bytes
                options = advise(
                    recorded.history,
                    settings,
                    engine=entry.name,
                    limit_bytes=entry.limit_bytes,
                    memory_bytes=memory,
                    prices=question.prices,
                )
                advice.append(EngineAdvice(entry.name, memory, tuple(options)))
            return AdviceReport(recorded, tuple(advice))

    def _read(self, question: Question, explain: Explain | None) -> RecordedHistory:
        return read_history(self._metastore, self._engines, since=question.since, limit=question.limit, explain=explain)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise TooManyQueries("Another replay is under way; try again soon.")
        try:
            yield
        finally:
            self._busy.release()

    def _shown(self, statements: list[ReplayedStatement]) -> Iterator[Change]:
        for statement in statements:
            record = self._metastore.queries.get(statement.statement.id)
            if record is not None:  # else it was deleted meanwhile
                yield Change(statement, record.sql, record.dialect)

    def _settings(self, question: Question) -> ReplaySettings:
        """Parse settings that are given as texts."""
        for engine in question.prices:
            self._engines.require(engine)
        limits: dict[str, int] = {}
        slots: dict[str, int] = {}
        overrides: dict[str, str] = {}
        for name, value in question.settings.items():
            section, _, setting = name.partition(".")
            entry = self._engines.get(section)
            if section == "routing" and setting in ROUTING:
                overrides[setting] = value
            elif entry is not None and setting == MEMORY_LIMIT and entry.limit_bytes is not None:
                limits[section] = _limit(name, value)
            elif entry is not None and setting in SLOTS:
                slots[section] = _slots(name, value)
            else:
                setting_names = list(_setting_names(self._engines))
                raise InvalidSetting(f"A replay knows no setting {name}{did_you_mean(name, setting_names)}")
        try:
            routing = RoutingSettings.model_validate(self._routing.model_dump() | overrides)
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidSetting(f"routing.{'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
        rule = routing.policy if "policy" in overrides else None
        return ReplaySettings(routing.routing_policy, question.rule or rule, limits, slots)


def _setting_names(engines: EngineRegistry) -> Iterator[str]:
    """Yield the settings that a replay can change."""
    yield from (f"routing.{setting}" for setting in ROUTING)
    for entry in engines.values():
        yield from _of_engine(entry)


def _of_engine(entry: EngineEntry) -> Iterator[str]:
    if entry.limit_bytes is not None:
        yield f"{entry.name}.{MEMORY_LIMIT}"
    yield from (f"{entry.name}.{setting}" for setting in SLOTS)


def _limit(name: str, value: str) -> int:
    try:
        limit_bytes = int(_SIZE.validate_python(value))
    except ValidationError as error:
        raise InvalidSetting(f"{name}: {value} is no size, such as 384MiB.") from error
    if limit_bytes <= 0:
        raise InvalidSetting(f"{name}: {value} is too little.")
    return limit_bytes


def _slots(name: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:9]) <= MOST_SLOTS:
        raise InvalidSetting(f"{name}: {value} is no number between 1 and {MOST_SLOTS:,}.")
    return int(value)
