"""Bases and field types of all requests and replies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sized
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sql.bounds import LONGEST_PATH, LONGEST_STATEMENT, LONGEST_VALUE, LONGEST_WORD, MOST_NAMES, MOST_SETTINGS
from sql.errors import Failure
from sql.tables import canonical

DATABASE_NAME = r"^([A-Za-z][A-Za-z0-9_]{0,62}\.)?[A-Za-z0-9_]{1,128}$"
"""The name of a catalog may stand in front."""


def _at_most(most: int) -> Callable[[object], object]:
    """Return a validator that refuses a map with more entries before it looks at any of them."""

    def require(value: object) -> object:
        if isinstance(value, Sized) and len(value) > most:
            raise ValueError(f"there are {len(value):,} entries, and {most:,} are allowed at most")
        return value

    return require


Word = Annotated[str, Field(max_length=LONGEST_WORD)]
"""A name."""

SqlText = Annotated[str, Field(max_length=LONGEST_STATEMENT)]
"""A statement; ``limits.statement`` may allow less."""

PathText = Annotated[str, Field(max_length=LONGEST_PATH)]
"""A path or a part of one."""

Words = Annotated[list[Word], Field(max_length=MOST_NAMES, fail_fast=True)]
"""Names."""

Database = Annotated[str, Field(pattern=DATABASE_NAME, max_length=192)]
"""A name of a database."""

TextMap = Annotated[
    dict[Word, Annotated[str, Field(max_length=LONGEST_VALUE)]],
    Field(max_length=MOST_SETTINGS),
    BeforeValidator(_at_most(MOST_SETTINGS)),
]
"""Settings, options or headers by name."""

NumberMap = Annotated[dict[Word, float], Field(max_length=MOST_NAMES), BeforeValidator(_at_most(MOST_NAMES))]
"""Numbers by name."""

TableName = Annotated[
    str,
    Field(pattern=r"^([A-Za-z0-9_]{1,128}\.)?[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=LONGEST_WORD + 2),
    AfterValidator(canonical),
]
"""Name of a table, with its database where that is not the default one."""


def _written_out(value: object) -> object:
    """Refuse a number, which would be seconds, or milliseconds if it is large enough."""
    if (isinstance(value, str) and value[4:5] != "-") or isinstance(value, int | float):
        raise ValueError("a moment is written as 2026-01-31T23:59:59Z")
    return value


_FIRST = dt.datetime(1, 1, 2, tzinfo=dt.UTC)
_LAST = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)


def _in_utc(moment: dt.datetime) -> dt.datetime:
    """Return a moment in UTC; refuse one that has no date in some time zone."""
    aware = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    if not _FIRST <= aware < _LAST:  # compared without a change of zone, which such a moment may not have
        raise ValueError(f"a moment lies between {_FIRST.date()} and {_LAST.date()}, in UTC")
    return aware.astimezone(dt.UTC)


Moment = Annotated[dt.datetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""A moment in UTC; without a time zone it is in UTC already."""


class RequestModel(BaseModel):
    """Base of requests: unknown fields and other types are refused.

    Every text, list and map has a limit (``sql/bounds.py``), and validation ends after the first few errors.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _require_few_fields(cls, value: object) -> object:
        """Refuse many unknown fields as one error: pydantic would make one of each."""
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            unknown = next(name for name in value if name not in cls.model_fields)
            raise ValueError(f"there is no field {unknown:.80}")
        return value


class RecordModel(BaseModel):
    """Base of replies that show records: fields have the values of the record's attributes of the same names."""

    model_config = ConfigDict(from_attributes=True, ser_json_inf_nan="strings")

    @classmethod
    def showing(cls, *records: object, **others: Any) -> Self:
        """Take each field from the first record that has it. others: fields that no record has, or other values."""
        fields = {
            name: getattr(record, name)
            for record in reversed(records)
            for name in cls.model_fields
            if hasattr(record, name)
        }
        return cls.model_validate(fields | others)


class PositionModel(RecordModel):
    """A place in a statement, counted from one."""

    line: int
    column: int


class ErrorModel(RecordModel):
    """An error. code: stable, for programs."""

    code: str
    message: str
    position: PositionModel | None = None
    query_id: str | None = None

    @classmethod
    def of(cls, failure: Failure, query_id: str | None = None) -> ErrorModel:
        """Show a failure."""
        return cls.showing(failure, query_id=query_id)


class ErrorReply(BaseModel):
    """The one shape of every error."""

    error: ErrorModel


class ColumnModel(BaseModel):
    """A column. type: Spark's short form."""

    name: str
    type: str
