"""Rules and pinned engines have their say about cached results as about runs. The engines play back what is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway import settings as settings_module
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.caching import CacheUse
from gateway.statements.statement import Run, Statement
from selector.decision import ReasonCode
from sql.errors import RuleDenied, RuleForbidsEngine
from tests.gateway.conftest import BY_MEMORY, LIMIT, SLOW, register, settings_for
from tests.gateway.execution.caching.conftest import SETTLES_S
from tests.gateway.execution.test_coordinator import PLAN

HIT, MISS, BYPASS = CacheUse.HIT, CacheUse.MISS, CacheUse.BYPASS
SQL = "SELECT id FROM books WHERE price < 10"
DENY = '[[rule]]\nname = "closed"\nmatch = {table = "books"}\ndeny = "Books are being moved."\n'


@dataclass(frozen=True, slots=True)
class Ruled:
    """Two engines that read exactly, one that does not, and a file of rules."""

    gateway: Gateway
    engines: dict[str, ScriptedEngine]

    def write(self, rules: str) -> None:
        (self.gateway.settings.home / settings_module.RULES_NAME).write_text(rules, encoding="utf-8")
        self.gateway.router.rules.reload()

    def ask(self, sql: str = SQL, **fields: Any) -> Run:
        run = self.gateway.coordinator.submit(Statement(sql, **{"cache": True, **fields}))
        run.done.result(timeout=30)
        return run

    def asked(self) -> dict[str, int]:
        return {name: len(engine.asked) for name, engine in self.engines.items()}


@pytest.fixture
def ruled(tmp_path: Path, bookstore: Path) -> Iterator[Ruled]:
    home = tmp_path / "home"
    home.mkdir()
    engines = {"fast": ScriptedEngine("fast"), "impala": ScriptedEngine("impala", kind=EngineKind.DEPENDABLE)}
    engines["spark"] = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
    for name, engine in engines.items():
        engine.script("books", Script(steps=(pa.RecordBatch.from_pydict({"by": [name]}),), plan=PLAN))
    exact = frozenset({"parquet"})
    entries = [
        EngineEntry(engines["fast"], limit_bytes=LIMIT, exact_formats=exact),
        EngineEntry(engines["spark"], speed=SLOW, exact_formats=exact),
        EngineEntry(engines["impala"], speed=SLOW),
    ]
    gateway = wiring.assemble(settings_for(home, routing=BY_MEMORY), EngineRegistry(entries))
    gateway.registration.files._settled_s = SETTLES_S
    register(gateway, bookstore)
    gateway.start()
    yield Ruled(gateway, engines)
    gateway.close()


def engine_of(run: Run) -> str:
    assert run.record.error is None, run.record.error
    assert run.record.engine is not None
    return run.record.engine


def test_who_asks_for_an_engine_gets_what_it_answered(ruled: Ruled) -> None:
    assert [ruled.ask(engine="spark").cache for _ in range(2)] == [MISS, HIT]
    assert (ruled.ask(engine="fast").cache, ruled.ask(engine="fast").cache) == (MISS, HIT)
    assert engine_of(ruled.ask(engine="spark")) == "spark"
    assert engine_of(ruled.ask("SELECT /*+ ENGINE(spark) */ id FROM books WHERE price < 10")) == "spark"
    assert ruled.asked() == {"fast": 1, "spark": 1, "impala": 0}


def test_any_engines_answer_will_do_where_none_is_asked_for(ruled: Ruled) -> None:
    ruled.ask(engine="spark")
    run = ruled.ask()
    assert (run.cache, engine_of(run)) == (HIT, "spark")
    assert ruled.asked() == {"fast": 0, "spark": 1, "impala": 0}


def test_what_an_engine_with_a_list_of_files_of_its_own_found_is_not_kept(ruled: Ruled) -> None:
    assert [ruled.ask(engine="impala").cache for _ in range(2)] == [BYPASS, BYPASS]
    ruled.write('[[rule]]\nname = "there"\nstrict = "impala"\n')
    assert [ruled.ask().cache for _ in range(2)] == [MISS, MISS]
    assert ruled.asked()["impala"] == 4
    assert ruled.gateway.coordinator.cached.usage().entries == 0


def test_a_rule_that_denies_does(ruled: Ruled) -> None:
    assert [ruled.ask().cache for _ in range(2)] == [MISS, HIT]
    ruled.write(DENY)
    record = ruled.ask().record
    assert record.error is not None
    assert record.error.code == RuleDenied.code and "being moved" in record.error.message
    assert ruled.gateway.router.rules.state().hits["closed"] == 1
    ruled.write("")
    assert ruled.ask().cache is HIT


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('strict = "spark"', {"spark"}),
        ('allow = ["spark", "impala"]', {"spark"}),
        ('pin = "spark"', {"spark"}),
        ('prefer = ["spark"]', {"spark", "fast"}),
        ('allow = ["fast", "spark"]', {"spark", "fast"}),
    ],
)
def test_rules_about_engines_are_about_whose_answer_it_is(ruled: Ruled, says: str, expected: set[str]) -> None:
    ruled.ask(engine="fast")
    ruled.write(f'[[rule]]\nname = "where"\nmatch = {{tag = "x"}}\n{says}\n')
    assert engine_of(ruled.ask()) == "fast"  # it meets no rule
    run = ruled.ask(tags=("x",))
    assert engine_of(run) in expected
    assert run.cache is (HIT if "fast" in expected else MISS)
    ruled.ask(engine="spark")
    run = ruled.ask(tags=("x",))
    assert (run.cache, engine_of(run) in expected) == (HIT, True)
    assert run.record.decision is not None and run.record.decision.matched == "where"
    assert [reason.code for reason in run.record.decision.reasons] == [ReasonCode.CACHED]
    assert ruled.gateway.router.rules.state().hits["where"] == 2


def test_a_rule_forbids_the_engine_that_is_asked_for(ruled: Ruled) -> None:
    assert [ruled.ask(engine="fast").cache for _ in range(2)] == [MISS, HIT]
    ruled.write('[[rule]]\nname = "there"\nstrict = "spark"\n')
    error = ruled.ask(engine="fast").record.error
    assert error is not None and error.code == RuleForbidsEngine.code


def test_a_rule_on_an_estimate_is_asked(ruled: Ruled) -> None:
    ruled.ask(engine="fast")
    ruled.write('[[rule]]\nname = "small"\nmatch = {estimate = {peak_below = "1 TiB"}}\ndeny = "Too small."\n')
    error = ruled.ask().record.error
    assert error is not None and error.code == RuleDenied.code
    ruled.write('[[rule]]\nname = "large"\nmatch = {estimate = {peak_above = "1 TiB"}}\ndeny = "Too large."\n')
    assert ruled.ask().cache is HIT


def test_an_answer_is_there_while_its_engine_is_not(ruled: Ruled) -> None:
    ruled.ask(engine="spark")
    ruled.engines["spark"].close()
    ruled.engines["fast"].close()
    assert ruled.ask().cache is HIT
