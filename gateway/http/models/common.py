"""What all requests and replies have of one form."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from engines.table_names import canonical
from metastore.records import (
    Failure,
)

DATABASE_NAME = r"^[A-Za-z0-9_]{1,128}$"
TableName = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_]{1,128}\.)?[A-Za-z_][A-Za-z0-9_]{0,127}$"), AfterValidator(canonical)
]
"""A name that a table may have, with its database before it where that is not the default one."""


def _written_out(value: object) -> object:
    """Refuse a number, which would be seconds, or milliseconds if it is large enough."""
    if (isinstance(value, str) and value[4:5] != "-") or isinstance(value, int | float):
        raise ValueError("a moment is written as 2026-01-31T23:59:59Z")
    return value


Moment = Annotated[dt.datetime, BeforeValidator(_written_out)]
"""A moment as clients send it; without a time zone it is in UTC."""


class RequestModel(BaseModel):
    """Base of what is sent here: nothing else than its fields, of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RecordModel(BaseModel):
    """Base of what shows records: a field of the same name is taken from there, also of records within records."""

    model_config = ConfigDict(from_attributes=True, ser_json_inf_nan="strings")

    @classmethod
    def showing(cls, *records: object, **others: Any) -> Self:
        """Show fields as the first record that has them. others: those that none has, or that are shown otherwise."""
        same = {
            name: getattr(record, name)
            for record in reversed(records)
            for name in cls.model_fields
            if hasattr(record, name)
        }
        return cls.model_validate(same | others)


class PositionModel(RecordModel):
    """A place in a statement, counted from one."""

    line: int
    column: int


class ErrorModel(RecordModel):
    """Why something failed. code: stable, for programs."""

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
