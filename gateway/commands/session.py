"""Settings and the database of a session.

USE d      SET [ALL | -v]      SET name      SET name = value     RESET [name]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gateway.commands.command import DONE, RunnableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.grammar.token_reader import first_word
from gateway.commands.services import CommandServices
from gateway.errors import NoSession
from gateway.statements.command import Kind
from gateway.statements.settings import OBEYED, options_of_impala
from gateway.statistics.tables import texts_of
from sql.dialects.names import IMPALA
from sql.errors import NotAllowed, SyntaxInvalid
from sql.nodes import position_at
from sql.parsers.words import why_refused
from sql.tables import DEFAULT_DATABASE

if TYPE_CHECKING:
    from gateway.statements.session import Session

OPTION_HEADINGS = ("key", "value", "level")  # impala-shell wants a third column
IMPALA_OPTION_HEADINGS = ("option", "value", "level")  # ibis looks columns up by these names
TIME_ZONE_KEY = "spark.sql.session.timeZone"
SERVER_TIME_ZONE = "UTC"  # of a gateway, wherever it stands

_NAME = r"[\w.:$-]+"
_SET = re.compile(rf"(?:(?P<all>ALL|-v)|(?P<name>{_NAME})\s*(?:=(?P<value>.*))?)?", re.DOTALL | re.IGNORECASE)
_RESET = re.compile(rf"(?P<name>{_NAME})?")
_TIME_ZONE = re.compile(r"TIME\s++ZONE\b\s*+(?P<zone>.*)", re.DOTALL | re.IGNORECASE)


class _SessionCommand(RunnableCommand):
    """A command about the session that sent it."""

    __slots__ = ()

    rule_kind = Kind.SESSION
    returns_rows = False


@dataclass(frozen=True, slots=True)
class UseDatabase(_SessionCommand):
    """Change the database of the session's bare names."""

    database: str

    def run(self, services: CommandServices) -> pa.Table:
        """Change it. Without a session, only the default database can be meant."""
        session = services.session
        if session is not None:
            session.use(self.database)
        elif self.database != DEFAULT_DATABASE:
            raise NoSession("There is no session here that could keep a database; send it with the query.")
        return DONE


@dataclass(frozen=True, slots=True)
class SetOption(_SessionCommand):
    """Change a setting of the session."""

    name: str
    value: str

    def run(self, services: CommandServices) -> pa.Table:
        """Change it."""
        _session_of(services).set(self.name, self.value)
        return DONE


@dataclass(frozen=True, slots=True)
class ResetOptions(_SessionCommand):
    """Give settings of the session their defaults back. name: of one of them; None for all."""

    name: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Reset them."""
        _session_of(services).reset(self.name)
        return DONE


@dataclass(frozen=True, slots=True)
class ShowOptions(_SessionCommand):
    """Show settings of the session."""

    name: str | None = None
    """One setting; None for all."""
    meanings: bool = False
    """A column says what each one does."""
    everything: bool = False
    """Also settings of the dialect that nobody set and that mean nothing here."""

    returns_rows = True
    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per setting."""
        session = _session_of(services)
        settings = self._settings(session)
        rows = [[name, value, session.level_of(name)] for name, value in settings.items()]
        table = texts_of(IMPALA_OPTION_HEADINGS if session.dialect == IMPALA else OPTION_HEADINGS, rows)
        if not self.meanings:
            return table
        meanings = {option.name: option.meaning for option in OBEYED}
        return table.append_column("meaning", pa.array([meanings.get(name, "") for name in settings], pa.string()))

    def _settings(self, session: Session) -> Mapping[str, str]:
        if self.name is not None:
            return {self.name: session.get(self.name) or "<undefined>"}
        settings = session.settings()
        if not self.everything or session.dialect != IMPALA:
            return settings
        set_here = {name.lower() for name in settings}
        others = {name: value for name, value in options_of_impala().items() if name not in set_here}
        return {**settings, **{name: session.get(name) or value for name, value in others.items()}}


def _session_of(services: CommandServices) -> Session:
    session = services.session
    if session is None:
        raise NoSession("There is no session here that could keep settings; send them with the query.")
    return session


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> UseDatabase | SetOption | ResetOptions | ShowOptions | None:
    """Read a statement that begins with USE, SET or RESET."""
    verb = first_word(reader.sql)
    assert verb is not None  # it chose this family
    if verb[1].upper() == "USE":
        reader.expect("USE")
        return UseDatabase(reader.database())
    reader.skip_rest()
    return _option(reader.sql, verb)


def _option(sql: str, verb: re.Match[str]) -> SetOption | ResetOptions | ShowOptions:
    """Read the text behind SET or RESET: a value reaches to the end, as in Hive, and needs no quotes."""
    rest = sql[verb.end() :].strip().rstrip(";").strip()
    resets = verb[1].upper() == "RESET"
    zone = None if resets else _TIME_ZONE.fullmatch(rest)
    if zone is not None and zone["zone"] and not zone["zone"].startswith("="):
        local = zone["zone"].upper() == "LOCAL"
        return SetOption(TIME_ZONE_KEY, SERVER_TIME_ZONE if local else _unquoted(zone["zone"].strip()))
    option = (_RESET if resets else _SET).fullmatch(rest)
    if option is None and not resets and rest.split(maxsplit=1)[0].upper() in ("VAR", "VARIABLE"):
        raise NotAllowed(f"SET VAR is not allowed{why_refused('SET VAR')}", position_at(sql, verb.start(1)))
    if option is None:
        message = f"Syntax error: {verb[1].upper()} takes {'a name' if resets else 'name = value'}."
        raise SyntaxInvalid(message, position_at(sql, verb.start(1)))
    name = option["name"] and option["name"].removeprefix("hiveconf:")
    if resets:
        return ResetOptions(name)
    if option["value"] is not None:
        return SetOption(name, _unquoted(option["value"].strip()))
    shown = (option["all"] or "").lower()
    return ShowOptions(name, meanings=shown == "-v", everything=shown == "all")


def _unquoted(text: str) -> str:
    """Take quotes away that stand around the whole of a value, as Impala's users write them."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text
