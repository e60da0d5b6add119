"""What settings say about a login reaches the connection, and a password no log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr

from engines.adapter import EngineSettings
from engines.server_access import ServerAccess


class Way(StrEnum):
    OPEN = "OPEN"
    PASSWORD = "PASSWORD"  # noqa: S105


class ToySettings(EngineSettings):
    user: str = "fusion"
    password: SecretStr | None = None
    kerberos_service: str = "toy"
    http_path: str | None = None
    tls: bool = False
    ca_file: Path | None = None
    verify: bool = True
    database: str = "toys"
    slots: int = 4


@dataclass(frozen=True, slots=True, repr=False)
class ToyAccess(ServerAccess):
    auth: Way = Way.OPEN
    kerberos_service: str = "toy"


def test_settings_are_taken_by_their_names() -> None:
    settings = ToySettings(
        user="ana", password=SecretStr("s3cret"), http_path="cliservice", tls=True, ca_file=Path("/ca"), verify=False
    )
    wanted = ToyAccess(
        Way.PASSWORD,
        user="ana",
        password="s3cret",
        http_path="cliservice",
        tls=True,
        ca_file="/ca",
        verify=False,
        database="toys",
    )
    assert ToyAccess.of(settings, auth=Way.PASSWORD) == wanted


def test_what_is_not_set_stays_unset() -> None:
    access = ToyAccess.of(ToySettings(), auth=Way.OPEN)
    assert (access.password, access.ca_file, access.http_path, access.database) == (None, None, None, "toys")


def test_a_password_is_not_printed() -> None:
    access = ToyAccess(Way.PASSWORD, password="s3cret")
    assert "s3cret" not in f"{access!r} {access}"
