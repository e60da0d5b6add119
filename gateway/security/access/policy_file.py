"""Policy file: access rules in TOML, read at the start and again after a change.

An invalid file leaves the rules active that were read before; a file that is gone closes everything.
"""

from __future__ import annotations

import hashlib
import logging
import stat
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from engines.machine.file_marks import FileMark, mark_of
from gateway.security.access.rules import (
    ALL_PRIVILEGES,
    EVERYBODY,
    GROUP,
    ROLE,
    USER,
    AccessRules,
    ColumnMask,
    Grant,
    Privilege,
    RowFilter,
)
from sql.access.parts import require_expression
from sql.errors import SqlError

log = logging.getLogger(__name__)

LARGEST_BYTES = 4 << 20
VERSION_HEX = 12
GONE = AccessRules(version="gone", closed=("*",))
"""Rules while there is no file: only owners and administrators see anything."""


class AccessRulesInvalid(Exception):
    """The file holds no rules. problems: messages, at least one; each names the key that it is about."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


# ---------------------------------------------------------------------- grammar of the file


def _text(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("a text that is not empty and can be printed is needed")
    return value


def _expression(value: str) -> str:
    try:
        require_expression(value)
    except SqlError as error:
        raise ValueError(f"no expression of Spark's SQL: {error.message}") from error
    return value


def _grantee(value: str) -> str:
    text = _text(value)
    return text if text == EVERYBODY or text.startswith((USER, GROUP, ROLE)) else f"{USER}{text}"


def _several(value: object) -> object:
    values = [value] if isinstance(value, str) else value
    if values == []:
        raise ValueError("the list is empty: leave the key out, or name something")
    return values


Pattern = Annotated[str, AfterValidator(_text), AfterValidator(str.lower)]
Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_several)]
Grantee = Annotated[str, AfterValidator(_grantee)]
Grantees = Annotated[tuple[Grantee, ...], BeforeValidator(_several)]
Expression = Annotated[str, AfterValidator(_expression)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class GrantEntry(_Part):
    """``[[grant]]``: privileges on relations."""

    on: Patterns
    to: Grantees
    privileges: Annotated[tuple[str, ...], BeforeValidator(_several)] = ("SELECT",)
    columns: Annotated[tuple[Pattern, ...], BeforeValidator(_several)] = ()

    def value(self) -> Grant:
        """Return the grant. Raises ValueError."""
        names = {name.upper() for name in self.privileges}
        unknown = names - {*Privilege, "ALL"}
        if unknown:
            raise ValueError(f"there is no privilege {', '.join(sorted(unknown))}: give {', '.join(Privilege)} or ALL")
        privileges = ALL_PRIVILEGES if "ALL" in names else frozenset(map(Privilege, names))
        if self.columns and privileges != {Privilege.SELECT}:
            raise ValueError("columns limit SELECT alone: give the other privileges in a grant of their own")
        return Grant(self.on, frozenset(self.to), privileges, frozenset(self.columns))


class FilterEntry(_Part):
    """``[[filter]]``: rows that users see of relations."""

    on: Patterns
    where: Expression
    to: Grantees = (EVERYBODY,)
    but: Grantees = Field((), alias="except")

    def value(self) -> RowFilter:
        """Return the filter."""
        return RowFilter(self.on, self.where, frozenset(self.to), frozenset(self.but))


class MaskEntry(_Part):
    """``[[mask]]``: value in the place of a column's."""

    on: Patterns
    column: Pattern
    value_: Expression = Field(alias="value")
    to: Grantees = (EVERYBODY,)
    but: Grantees = Field((), alias="except")

    def value(self) -> ColumnMask:
        """Return the mask."""
        return ColumnMask(self.on, self.column, self.value_, frozenset(self.to), frozenset(self.but))


class PolicyDocument(_Part):
    """A whole file."""

    closed: Annotated[tuple[Pattern, ...], BeforeValidator(_several)] = ()
    roles: dict[str, Grantees] = Field(default_factory=dict)
    grant: tuple[GrantEntry, ...] = ()
    filter: tuple[FilterEntry, ...] = ()
    mask: tuple[MaskEntry, ...] = ()


def read_access_rules(content: bytes) -> AccessRules:
    """Read rules. Raises AccessRulesInvalid, whatever the bytes are."""
    if len(content) > LARGEST_BYTES:
        raise AccessRulesInvalid([f"the file has more than {LARGEST_BYTES:,} bytes"])
    try:
        entries = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and TOMLDecodeError are ValueErrors
        raise AccessRulesInvalid([f"the file is no TOML: {error}"]) from error
    return rules_of(entries, content)


def rules_of(entries: Mapping[str, object], content: bytes) -> AccessRules:
    """Return the rules of a document. Raises AccessRulesInvalid.

    content: text of the document, of which the version is a digest.
    """
    try:
        document = PolicyDocument.model_validate(entries)
    except ValidationError as error:
        raise AccessRulesInvalid([_problem(detail) for detail in error.errors(include_url=False)]) from error
    except RecursionError as error:
        raise AccessRulesInvalid(["an expression is nested too deep"]) from error
    try:
        rules = AccessRules(
            hashlib.sha256(content).hexdigest()[:VERSION_HEX],
            document.closed,
            {name: frozenset(members) for name, members in document.roles.items()},
            tuple(entry.value() for entry in document.grant),
            tuple(entry.value() for entry in document.filter),
            tuple(entry.value() for entry in document.mask),
        )
    except ValueError as error:
        raise AccessRulesInvalid([f"grant: {error}"]) from error
    if problems := list(_unknown_roles(rules)):
        raise AccessRulesInvalid(problems)
    return rules


def _problem(detail: Any) -> str:
    place = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{place}: there is no such key"
    return f"{place}: {str(detail['msg']).removeprefix('Value error, ')}"


def _unknown_roles(rules: AccessRules) -> Iterator[str]:
    """Yield messages about roles that are used and not defined."""
    named = [*rules.roles.values(), *(grant.to for grant in rules.grants)]
    named += [names for rule in rules.filters for names in (rule.to, rule.but)]
    named += [names for rule in rules.masks for names in (rule.to, rule.but)]
    used = {name.removeprefix(ROLE) for names in named for name in names if name.startswith(ROLE)}
    for role in sorted(used - rules.roles.keys()):
        yield f"there is no role {role}: define it under [roles]"


# ---------------------------------------------------------------------- the file


class PolicyFile:
    """Access rules of a file. Thread-safe. Raises AccessRulesInvalid for an invalid file at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._mark = mark_of(self._path)
        self._rules = read_access_rules(content_of(path))

    def current(self) -> AccessRules:
        """Return the active rules; looks whether the file has changed."""
        mark = mark_of(self._path)
        with self._lock:
            if mark != self._mark:
                self._take(mark)
            return self._rules

    def stop(self) -> None:
        """Do nothing: reading a file needs no thread."""

    def _take(self, mark: FileMark) -> None:
        """Read the file and activate its rules. mark: state of the file before it is read."""
        self._mark = mark
        if mark is None:
            self._rules = GONE
            log.error("the access policy %s is gone: only owners and administrators see anything", self._path)
            return
        try:
            self._rules = read_access_rules(content_of(self._path))
        except AccessRulesInvalid as error:
            for problem in error.problems:
                log.error("the access policy %s is wrong, the last valid rules stay active: %s", self._path, problem)
        else:
            log.info("access policy %s holds, version %s", self._path, self._rules.version)


def content_of(path: Path) -> bytes:
    """Return the bytes of a policy file. Raises AccessRulesInvalid."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise AccessRulesInvalid(["it is no file"])
        return path.read_bytes()
    except OSError as error:
        raise AccessRulesInvalid([f"the file cannot be read: {error.strerror}"]) from error
