"""What all requests and replies have of one form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from metastore.records import (
    Failure,
)

NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"


class RequestModel(BaseModel):
    """Base of what is sent here: nothing else than its fields, of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PositionModel(BaseModel):
    """A place in a statement, counted from one."""

    line: int
    column: int


class ErrorModel(BaseModel):
    """Why something failed. code: stable, for programs."""

    code: str
    message: str
    position: PositionModel | None = None
    query_id: str | None = None

    @classmethod
    def of(cls, failure: Failure, query_id: str | None = None) -> ErrorModel:
        """Show a failure."""
        position = failure.position
        place = PositionModel(line=position.line, column=position.column) if position else None
        return cls(code=failure.code, message=failure.message, position=place, query_id=query_id)


class ErrorReply(BaseModel):
    """The one shape of every error."""

    error: ErrorModel


class ColumnModel(BaseModel):
    """A column. type: Spark's short form."""

    name: str
    type: str
