from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gateway.security.audit import LONGEST_TEXT, AuditFile, note, note_statement
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from tests.gateway.conftest import Scripted, serving

ANN, EVE = ("ann", "correct"), ("eve", "wrong")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    opened = AuditFile(tmp_path / "audit.log", size_bytes=1 << 20, earlier=2)
    yield tmp_path / "audit.log"
    opened.close()


@pytest.fixture
def served(scripted: Callable[..., Scripted], tmp_path: Path, file: Path) -> Iterator[httpx.Client]:
    gateway = scripted().gateway
    users = tmp_path / "users"
    users.write_text(user_line(*ANN, Role.READER), encoding="utf-8")
    gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(gateway)) as client:
        yield client


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_logins_refusals_and_changes_are_in_the_file(served: httpx.Client, file: Path) -> None:
    assert served.get("/v1/tables", auth=EVE).status_code == 401
    assert served.get("/v1/tables", auth=ANN).status_code == 200
    assert served.delete("/v1/misestimates/f", auth=ANN).status_code == 403
    assert served.delete("/v1/queries/nobody", auth=ANN).status_code == 404
    told = [(line["event"], line["user"], line["allowed"]) for line in lines(file)]
    assert told == [
        ("login", "eve", False),
        ("login", "ann", True),
        ("refusal", "ann", False),
        ("request", "ann", False),
        ("request", "ann", True),
    ]
    assert lines(file)[3]["what"] == "DELETE /v1/misestimates/f"
    assert lines(file)[3]["status"] == 403
    assert all(line["address"] == "127.0.0.1" for line in lines(file))
    assert "correct" not in file.read_text() and "wrong" not in file.read_text().replace("wrong password", "")


def test_what_a_stranger_writes_stays_within_its_line(file: Path) -> None:
    note("login", 'eve\n{"event": "forged"}', "1.2.3.4", allowed=False, what="log in")
    note_statement("ann\r\n", "", allowed=True, sql="SELECT 1\n--\u2028" + "x" * LONGEST_TEXT)
    written = file.read_text(encoding="utf-8")
    assert written.count("\n") == 2
    login, statement = lines(file)
    assert login["user"] == 'eve\n{"event": "forged"}'
    assert len(str(statement["sql"])) == LONGEST_TEXT + 3


def test_the_file_rotates_and_stays_private(tmp_path: Path) -> None:
    opened = AuditFile(tmp_path / "audit.log", size_bytes=1 << 16, earlier=2)
    for number in range(2_000):
        note("login", f"user {number}", "", allowed=True, what="log in")
    opened.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1 << 16 and not file.stat().st_mode & 0o077 for file in files)
    assert lines(files[0])[-1]["user"] == "user 1999"
