"""Replies that show records: fields come over by their names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from gateway.http.models.common import RecordModel


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Outer:
    name: str
    parts: tuple[Inner, ...]
    inside: str = "not shown"


class InnerModel(RecordModel):
    size: int


class OuterModel(RecordModel):
    name: str
    parts: list[InnerModel]
    total: int
    note: str | None = None


OUTER = Outer("outer", (Inner(1), Inner(2)))


def test_fields_of_one_name_are_shown_and_no_others() -> None:
    shown = OuterModel.showing(OUTER, total=3)
    assert shown.model_dump() == {"name": "outer", "parts": [{"size": 1}, {"size": 2}], "total": 3, "note": None}


def test_what_is_given_and_the_first_record_come_first() -> None:
    shown = OuterModel.showing(Outer("first", ()), OUTER, total=3, parts=[Inner(9)])
    assert (shown.name, shown.parts) == ("first", [InnerModel(size=9)])


def test_a_field_that_nobody_gives_is_missed() -> None:
    with pytest.raises(ValidationError, match="total"):
        OuterModel.showing(OUTER)
