"""Statements on an engine that runs them as the users who sent them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.errors import UserRefused
from engines.protocol import EngineKind, Lease
from engines.scripted import Script, ScriptedEngine, ScriptedResult
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import Principal, Role
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState
from tests.gateway.conftest import settings_for
from tests.gateway.drivers.hs2.conftest import scripted as scripted_drivers
from tests.gateway.scripted_gateway import PLAN, ROWS

SQL = "SELECT 42 AS answer"


class ActingEngine(ScriptedEngine):
    """Notes as whom statements run; None: as the gateway's own user."""

    acts_for_users = True

    def __init__(self, name: str) -> None:
        super().__init__(name, kind=EngineKind.DEPENDABLE)
        self.users: list[str | None] = []

    def execute(self, sql: str, *, user: str | None = None, **others: Any) -> ScriptedResult:
        self.users.append(user)
        return super().execute(sql, **others)


@pytest.fixture
def engine() -> ActingEngine:
    engine = ActingEngine("hive")
    engine.script("select", Script(steps=(ROWS,), plan=PLAN))
    return engine


@pytest.fixture
def gateway(tmp_path: Path, engine: ActingEngine) -> Iterator[Gateway]:
    built = wiring.assemble(settings_for(tmp_path / "home"), EngineRegistry([EngineEntry(engine)]))
    built.start()
    yield built
    built.close()


def ran(gateway: Gateway, user: Principal) -> QueryRecord:
    run = gateway.coordinator.submit(Statement(SQL, principal=user))
    run.done.result(timeout=30)
    return run.record


def test_a_statement_runs_as_its_user(gateway: Gateway, engine: ActingEngine) -> None:
    for name in ("ann", "joe", "ann"):
        assert ran(gateway, Principal(name, Role.READER, authenticated=True)).state is QueryState.FINISHED
    assert engine.users == ["ann", "joe", "ann"]  # and no answer of one user is given to another


def test_a_name_without_proof_is_nobody_there(gateway: Gateway, engine: ActingEngine) -> None:
    record = ran(gateway, Principal("ann", Role.ADMIN, address="127.0.0.1"))
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == UserRefused.code
    assert "ann has not" in record.error.message
    assert engine.users == []


def test_an_engine_that_is_not_told_to_runs_all_as_its_own_user(gateway: Gateway, engine: ActingEngine) -> None:
    engine.acts_for_users = False
    for user in (Principal("ann", authenticated=True), Principal("joe")):
        assert ran(gateway, user).state is QueryState.FINISHED
    assert engine.users == [None, None]


def test_hiveserver2_that_does_not_let_the_gateway_act_for_a_user(tmp_path: Path) -> None:
    """The server is another gateway: none of them lets anybody act for others."""
    pytest.importorskip("pyhive", reason="PyHive is not installed: pip install fusion-sql-gateway[hive]")
    from engines.hive.engine import HiveEngine

    with scripted_drivers(tmp_path / "home") as drivers:
        hive = HiveEngine([(drivers.host, drivers.port)], dialect="hive", tables="metastore", acts_for_users=True)
        with pytest.raises(UserRefused, match=r"no session for the user ann: .*impersonation is not supported"):
            hive.execute(SQL, user="ann", query_id="anns", lease=Lease(0), deadline_s=30.0)
        hive.close()
