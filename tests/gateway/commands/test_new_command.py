"""A command of another file's: all of it stands here, and one more entry of the registry is all that knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from engines.scripted import ScriptedEngine
from gateway.commands import registry
from gateway.commands.command import Family, TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.policy import Action
from gateway.security.principals import Role
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.settings import AuthenticationSettings
from gateway.statements.command import Kind
from tests.gateway.conftest import register, serving, settings_for


@dataclass(frozen=True, slots=True)
class Greet(TableCommand):
    """GREET t [AS 'name']: write to a table, in the sense of a letter."""

    table: str
    name: str

    rule_kind = Kind.DDL
    table_action = Action.WRITE_ROWS
    impala_words = "Greetings have been sent."

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per column of the table."""
        columns = services.table(self.table).source.columns
        return pa.table({"greeting": [f"Dear {column.name}, yours {self.name}" for column in columns]})


def parse(reader: Reader) -> Greet:
    """Read the one statement of this family."""
    reader.expect("GREET")
    table = reader.table()
    return Greet(table.name, reader.text("a name") if reader.accept("AS") else "nobody")


@pytest.fixture(scope="module", params=[Role.WRITER, Role.READER])
def client(
    tmp_path_factory: pytest.TempPathFactory, bookstore: Path, request: pytest.FixtureRequest
) -> Iterator[httpx.Client]:
    """Serve a gateway that has the command, to users of a role."""
    login = AuthenticationSettings(anonymous_role=request.param)
    settings = settings_for(tmp_path_factory.mktemp("home")).model_copy(update={"authentication": login})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "FAMILIES", (*registry.FAMILIES, Family("GREET", parse)))
        gateway = wiring.assemble(settings, EngineRegistry([EngineEntry(ScriptedEngine())]))
    register(gateway, bookstore)
    with serving(create_app(gateway)) as served:
        yield served


def sent(client: httpx.Client, sql: str, **fields: str) -> Any:
    return client.post("/v1/queries", json={"sql": sql, "wait_s": 60, **fields}).json()


@pytest.mark.parametrize("client", [Role.WRITER], indirect=True)
def test_a_new_command_runs_and_replies(client: httpx.Client) -> None:
    reply = sent(client, "/* a letter */ greet transactions AS 'ann';")
    assert [column["name"] for column in reply["columns"]] == ["greeting"]
    assert ["Dear quantity, yours ann"] in reply["rows"]
    assert sent(client, "GREET books", dialect="impala")["rows"] == [["Greetings have been sent."]]


@pytest.mark.parametrize("client", [Role.WRITER], indirect=True)
def test_its_mistakes_are_named_with_their_place(client: httpx.Client) -> None:
    wrong = {
        "GREET bocks": ("UNKNOWN_TABLE", 7),
        "GREET books AS": ("SYNTAX_ERROR", 15),
        "GREET books x": ("SYNTAX_ERROR", 13),
    }
    for sql, (code, column) in wrong.items():
        error = sent(client, sql)["error"]
        assert (error["code"], error["position"]["column"]) == (code, column)


@pytest.mark.parametrize("client", [Role.READER], indirect=True)
def test_its_rights_are_asked(client: httpx.Client) -> None:
    error = sent(client, "GREET books")["error"]
    assert (error["code"], "may not write to the table books" in error["message"]) == ("ACCESS_DENIED", True)


@pytest.mark.parametrize("client", [Role.WRITER], indirect=True)
def test_routing_rules_know_its_kind_and_tables(client: httpx.Client) -> None:
    told = client.post("/v1/rules/explain", json={"sql": "GREET books"}).json()
    assert (told["kinds"], told["tables"]) == (["ddl"], ["books"])
