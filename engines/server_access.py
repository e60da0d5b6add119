"""Access to a server with HiveServer2's protocol: Hive's or Impala's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from engines.adapter import EngineSettings


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ServerAccess:
    """Login, transport and encryption; an engine adds its ways to log in, and Kerberos' service.

    http_path: of the HTTP transport, such as ``cliservice``; None: a plain socket.
    ca_file: certificates to trust instead of the system's.
    database: of bare names.
    """

    auth: StrEnum
    kerberos_service: str
    user: str = "fusion"
    password: str | None = None
    http_path: str | None = None
    tls: bool = False
    ca_file: str | None = None
    verify: bool = True
    database: str = "default"

    @classmethod
    def of(cls, settings: EngineSettings, **others: Any) -> Self:
        """Return the access of settings with the same names. others: fields with other values."""
        names = [field.name for field in fields(cls) if field.name not in others]
        return cls(**{name: _plain(getattr(settings, name)) for name in names}, **others)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(auth={self.auth.value!r}, user={self.user!r}, tls={self.tls}, http_path={self.http_path!r})"


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case Path():
            return str(value)
    return value


def kerberos_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the package by which drivers log in with tickets; none where it is not installed."""
    try:
        return (import_module("kerberos").KrbError,)
    except ImportError:
        return ()
