"""The adapter of an engine: its settings, its construction, and its checks of the machine.

An engine is found by its entry point in the group ``fusion.engines``, so that nothing else names it; another package
may add one. Adapters are imported when settings are read, drivers only when an engine is built.
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
    conflict = first_conflict(settings)
    if conflict is not None:
        name, needed = conflict
        raise ValueError(f"{name} must be {needed}, so that the server parses statements as they were checked here")
    return settings


ServerConfiguration = Annotated[dict[str, str], AfterValidator(_without_conflict)]


class Section(BaseModel):
    """One section of the settings; a field's docstring is its meaning in the reference, too."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineSettings(Section):
    """Base of an engine's section."""

    enabled: bool = False
    """Statements may run on it."""

    def quiet(self) -> Self:
        """Return the settings for a short-lived gateway, where nothing starts before it is needed."""
        return self


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Folders and resources of the machine that a gateway assigns to its engines."""

    folder: Path
    """For the engine's own files."""
    planners: int
    """Statements that are planned at once."""
    processors: int
    processes: int = 1
    """Processes of the gateway on this machine, each with an engine."""
    common: Path | None = None
    """Folder that the processes share; None: there is one process."""
    shared: Caller | None = None
    """Connection to shared objects; None: there is one process."""

    def part(self, of_all: int) -> int:
        """Return this process's part of a number, rounded up."""
        return part_of(of_all, self.processes)


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine with its capacities."""

    engine: Engine
    limit_bytes: int | None = None
    """Memory that one statement may take; None: it spills instead of failing."""
    capacity_bytes: int | None = None
    """Memory that all statements together may take; None: the limit for each slot."""
    guests: int = 0
    """Extra slots for small statements of users who hold none."""
    threads: int = 1
    """Threads that one statement uses; input of the cost model."""
    most_threads: int | None = None
    """Threads that a lease may grant; None: always the same number."""
    threads_by_load: bool = False
    """A lease grants fewer threads beside other long statements."""
    abreast: int | None = None
    """Long statements at once, with short ones beside them; None: as many as slots."""
    hosts: int = 1
    """Hosts that one statement uses; input of the cost model."""
    planners: int = 2
    """Statements that it plans at once."""
    speed: Speed | None = None
    """Speed before it has run anything; None: the usual one of its kind."""
    is_local: bool = False
    """Its resources are this home folder's; without it, all gateways of a metastore share them."""
    exact_formats: frozenset[str] = frozenset()
    """Formats of tables whose files each statement reads as they are at its start, so that its answer can be cached."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check. needed: the configured gateway does not work without it."""

    subject: str
    good: bool
    detail: str
    remedy: str = ""
    needed: bool = True


Settings = TypeVar("Settings", bound=EngineSettings)


class Adapter(Protocol, Generic[Settings]):
    """One engine's entry point.

    section: of the settings, and the engine's name.
    product: name of the product.
    extra: of the package that installs its driver.
    rank: among engines of its kind, the lowest is tried first.
    """

    section: str
    product: str
    extra: str
    rank: int
    settings: type[Settings]

    def build(self, settings: Settings, around: EngineContext) -> BuiltEngine:
        """Build the engine. Raises ImportError if its driver is not installed."""

    def findings(self, settings: Settings) -> Iterator[CheckResult]:
        """Check the engine's requirements on this machine."""

    def memory_bytes(self, settings: Settings) -> int:
        """Return the memory of this machine that the engine may take."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """Part of an engine that all processes of a gateway share. functions, holders: see ``Host``. stop: ends it."""

    functions: Mapping[str, Function]
    holders: Mapping[str, Holder]
    stop: Callable[[], None]


@runtime_checkable
class SharingAdapter(Protocol):
    """An adapter whose engine has one part for all processes of a gateway."""

    def share(self, settings: Any, around: EngineContext) -> SharedPart | None:
        """Build the shared part; None: the settings need none. Raises ImportError."""


@cache
def adapters() -> tuple[Adapter[Any], ...]:
    """Return the adapters of all installed engines, in the order in which they are tried."""
    installed: list[Adapter[Any]] = [entry.load() for entry in entry_points(group=GROUP)]
    return tuple(sorted(installed, key=lambda adapter: (adapter.rank, adapter.section)))


def package(subject: str, module: str, extra: str) -> CheckResult:
    """Check that an engine's driver is installed."""
    remedy = f"pip install 'fusion-sql-gateway[{extra}]'"
    if importlib.util.find_spec(module) is None:
        return CheckResult(subject, False, "not installed", remedy)
    try:
        return CheckResult(subject, True, version(module))
    except PackageNotFoundError:
        return CheckResult(subject, True, "installed")
