"""Gateways with rules, over two fast and two dependable engines that play back the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.protocol import EngineKind
from engines.scripted import ScriptedEngine
from gateway import settings as settings_module
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.authentication import user_line
from gateway.security.principals import Role
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord
from tests.gateway.conftest import BY_MEMORY, LIMIT, SLOW, register, settings_for
from tests.gateway.execution.test_coordinator import ANSWER
from tests.gateway.scripted_gateway import WritingEngine

FAST, DEPENDABLE = ("duckdb", "impala"), ("spark", "hive")
ENGINES = (*FAST, *DEPENDABLE)


@dataclass(frozen=True, slots=True)
class Ruled:
    """A gateway with a file of rules."""

    gateway: Gateway
    engines: Mapping[str, ScriptedEngine]
    file: Path

    def write(self, rules: str) -> None:
        """Write other rules and have them read."""
        self.file.write_text(rules, encoding="utf-8")
        self.gateway.router.rules.reload()

    def started(self, statement: Statement) -> Run:
        return self.gateway.coordinator.start(statement)

    def ended(self, statement: Statement) -> QueryRecord:
        """Run a statement to its end, whatever that is."""
        return self.started(statement).done.result(timeout=30)

    def explained(self) -> dict[str, int]:
        """Return how often each engine was asked for a plan."""
        return {name: len(engine.explained) for name, engine in self.engines.items()}


Build = Callable[..., Ruled]


@pytest.fixture
def ruled(tmp_path: Path, bookstore: Path) -> Iterator[Build]:
    """Build gateways with rules; each closes at the end of the test."""
    built: list[Gateway] = []

    def build(rules: str = "", *, users: Mapping[str, Role] = {}, queue_s: float = 30.0) -> Ruled:
        home = tmp_path / "home"
        home.mkdir()
        file = home / settings_module.RULES_NAME
        file.write_text(rules, encoding="utf-8")
        engines = {name: ScriptedEngine(name) for name in FAST}
        engines |= {name: WritingEngine(name, kind=EngineKind.DEPENDABLE) for name in DEPENDABLE}
        for engine in engines.values():
            engine.script("books", ANSWER)
            engine.script("transactions", ANSWER)
        entries = [EngineEntry(engines[name], limit_bytes=LIMIT) for name in FAST]
        entries += [EngineEntry(engines[name], speed=SLOW) for name in DEPENDABLE]
        settings = settings_for(home, routing=BY_MEMORY, queue_s=queue_s)
        if users:
            (home / "users").write_text("\n".join(user_line(name, name, role) for name, role in users.items()))
            login = settings.authentication.model_copy(update={"users_file": home / "users"})
            settings = settings.model_copy(update={"authentication": login})
        gateway = wiring.assemble(settings, EngineRegistry(entries))
        built.append(gateway)
        register(gateway, bookstore)
        gateway.start()
        return Ruled(gateway, engines, file)

    yield build
    for gateway in built:
        gateway.close()
