"""The session of a shell: values that hold for its next statements.

HTTP has no sessions. The shell therefore sends these values with every statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gateway.cli.statements.running import Output
from gateway.statements import AUTO
from sql.dialects.names import SPARK
from sql.tables import DEFAULT_DATABASE

if TYPE_CHECKING:
    from gateway.cli.client import Client
    from gateway.cli.shell.names import NameCache

ENGINE_SETTING, DIALECT_SETTING = "fusion.engine", "fusion.dialect"


@dataclass(frozen=True, slots=True)
class Session:
    """Values that the gateway gets with every statement."""

    database: str = DEFAULT_DATABASE
    """Database of bare names."""
    engine: str = AUTO
    """auto, or the one engine that may run statements."""
    dialect: str = SPARK
    """Dialect of statements."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings by name, the last one that was set at the end."""

    def request(self) -> dict[str, Any]:
        """Return the fields of a request that this session decides."""
        return {
            "database": self.database,
            "engine": self.engine,
            "dialect": self.dialect,
            "settings": dict(self.settings),
        }

    def with_setting(self, name: str, value: str) -> Session:
        """Return the session with a setting; requests have fields of their own for engine and dialect."""
        match name.lower():
            case "fusion.engine":
                return replace(self, engine=value)
            case "fusion.dialect":
                return replace(self, dialect=value)
        others = {other: other_value for other, other_value in self.settings.items() if other != name}
        return replace(self, settings=others | {name: value})

    def without_setting(self, name: str | None) -> Session:
        """Return the session with the default of a setting, in any case of its letters; None: of all settings."""
        if name is None:
            return Session(self.database)
        match name.lower():
            case "fusion.engine":
                return replace(self, engine=AUTO)
            case "fusion.dialect":
                return replace(self, dialect=SPARK)
        others = {other: value for other, value in self.settings.items() if other.lower() != name.lower()}
        return replace(self, settings=others)

    def all_settings(self) -> dict[str, str]:
        """Return the settings, those with fields of their own among them."""
        return {ENGINE_SETTING: self.engine, DIALECT_SETTING: self.dialect, **self.settings}


@dataclass(frozen=True, slots=True)
class Display:
    """Form of results."""

    output: Output = Output.TABLE
    """Format of rows."""
    blocks: bool = False
    """Every row of a table is a block of lines."""
    timing: bool = True
    """The seconds that a statement took are told."""
    pager: bool = True
    """Results longer than the terminal go to a pager."""
    max_rows: int = 1_000
    """Most rows of a table; csv and json have all."""


@dataclass(slots=True)
class Shell:
    """One run of the shell: its gateway, and values that statements and commands change."""

    client: Client
    """Client of the gateway."""
    names: NameCache
    """Names for completion."""
    session: Session
    """Session of the next statement."""
    display: Display = Display()
    """Form of the next result."""
    last_sql: str = ""
    """Text of the last statements."""
    last_reply: Mapping[str, Any] | None = None
    """Record of the last statement that the gateway ran; None: there was none."""
    draft: str = ""
    """Text that the next prompt begins with."""
    is_over: bool = False
    """No further statement is read."""

    def adopt(self, session: Session) -> None:
        """Let a session hold from now on if the gateway accepts it. Raises RequestFailed."""
        require_accepted(self.client, session)
        self.session = session


def require_accepted(client: Client, session: Session) -> None:
    """Raise RequestFailed where the gateway refuses the values of a session. Nothing runs or is recorded."""
    from gateway.cli.client import RequestFailed

    try:
        client.post("/v1/explain", {"sql": "SELECT 1", **session.request()})
    except RequestFailed as error:
        raise RequestFailed(error.code, error.message) from error  # without a place in a text that nobody typed
