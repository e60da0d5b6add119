"""What an engine brings with it: its settings, how it is built, and what it needs of the machine.

An engine is found by its entry point in the group ``fusion.engines``, so that nothing else names it;
another package may bring one, too. Adapters are imported by whoever reads settings, their drivers only where an engine
is built.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict

from engines.machine.sharing import Caller, Function, Holder, part_of
from engines.parser_settings import first_conflict
from engines.protocol import Engine
from selector.forecast.seconds import Speed

GROUP = "fusion.engines"


def _plain_size(value: Any) -> Any:
    """Read ``384 MiB`` and ``1_000`` alike."""
    return value.replace(" ", "").replace("_", "") if isinstance(value, str) else value


Size = Annotated[ByteSize, BeforeValidator(_plain_size)]


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address} is not host:port")
    return host.strip("[]"), int(port)


def _checked_address(address: str) -> str:
    split_address(address)
    return address


HostPort = Annotated[str, AfterValidator(_checked_address)]


def _without_conflict(settings: dict[str, str]) -> dict[str, str]:
    found = first_conflict(settings)
    if found is not None:
        name, needed = found
        raise ValueError(f"{name} must be {needed}, so that statements are read there as they were checked here")
    return settings


ServerConfiguration = Annotated[dict[str, str], AfterValidator(_without_conflict)]


class Section(BaseModel):
    """One section of the settings; a field's docstring says what it means, in the reference too."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class EngineSettings(Section):
    """Base of an engine's section."""

    enabled: bool = False
    """Whether statements may run on it."""

    def quiet(self) -> Self:
        """Return the same for a gateway of the moment, where nothing starts before it is needed."""
        return self


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What a gateway gives its engines. folder: for the engine's own files. planners: statements planned at once.

    processes: gateways that share the machine, and each have an engine. common: folder of what they share, and shared:
    by which they reach it; None where there is one.
    """

    folder: Path
    planners: int
    processors: int
    processes: int = 1
    common: Path | None = None
    shared: Caller | None = None

    def part(self, of_all: int) -> int:
        """Return how many of the machine's are this process's, so that all together have at least as many."""
        return part_of(of_all, self.processes)


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine, and what the gateway counts of it.

    limit_bytes: memory that one statement may take, None where it spills instead of failing. capacity_bytes: that
    all statements together may take; None: the limit for each slot. guests: slots more, for small statements of
    users who hold none. threads, hosts: that work for one statement, for its cost model. most_threads: that a lease
    may name; None where it has always the same. threads_by_load: a lease names fewer beside other long statements.
    abreast: long statements at once, and short ones beside them; None: as many as slots. processors: of this
    machine, that one statement keeps busy; 0 where it runs elsewhere. planners: statements that it plans at once.
    speed: before it has run anything; None: as usual for its kind. exact_formats: of tables whose files each statement
    reads as they are when it starts, so that its answer holds while they stay.
    """

    engine: Engine
    limit_bytes: int | None = None
    capacity_bytes: int | None = None
    guests: int = 0
    threads: int = 1
    most_threads: int | None = None
    threads_by_load: bool = False
    abreast: int | None = None
    hosts: int = 1
    processors: int = 0
    planners: int = 2
    speed: Speed | None = None
    exact_formats: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at. needed: the configured gateway does not work without it."""

    subject: str
    good: bool
    detail: str
    remedy: str = ""
    needed: bool = True


Settings = TypeVar("Settings", bound=EngineSettings)


class Adapter(Protocol, Generic[Settings]):
    """One engine's entry point.

    section: of the settings, and the engine's name. product: as people call it. extra: of the package, that brings its
    driver. rank: among engines of its kind, the lowest is tried first.
    """

    section: str
    product: str
    extra: str
    rank: int
    settings: type[Settings]

    def build(self, settings: Settings, around: EngineContext) -> BuiltEngine:
        """Build the engine. Raises ImportError where its driver is not installed."""

    def findings(self, settings: Settings) -> Iterator[CheckResult]:
        """Look at what the engine needs of this machine."""

    def memory_bytes(self, settings: Settings) -> int:
        """Return the memory of this machine that the engine may take."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """What all processes of a gateway use together. functions, holders: see ``Host``. stop: ends it for good."""

    functions: Mapping[str, Function]
    holders: Mapping[str, Holder]
    stop: Callable[[], None]


@runtime_checkable
class SharingAdapter(Protocol):
    """An adapter of whose engine there is one part for all processes of a gateway, where it has several."""

    def share(self, settings: Any, around: EngineContext) -> SharedPart | None:
        """Build that part; None where the settings ask for none. Raises ImportError."""


@cache
def adapters() -> tuple[Adapter[Any], ...]:
    """Return the adapters of all engines that are installed, in the order in which they are tried."""
    found: list[Adapter[Any]] = [entry.load() for entry in entry_points(group=GROUP)]
    return tuple(sorted(found, key=lambda adapter: (adapter.rank, adapter.section)))


def package(subject: str, module: str, extra: str) -> CheckResult:
    """Tell whether an engine's driver is installed."""
    remedy = f"pip install 'fusion-sql-gateway[{extra}]'"
    if importlib.util.find_spec(module) is None:
        return CheckResult(subject, False, "not installed", remedy)
    try:
        return CheckResult(subject, True, version(module))
    except PackageNotFoundError:
        return CheckResult(subject, True, "installed")
