from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from gateway.execution.parity.comparing import MOST_NEAR, ROWS_SHOWN, difference

NAN = math.nan


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ([1, 2], [2, 1], None),
        ([1, 2], [1, 3], "a: 2 and 3"),
        ([1.0, NAN], [NAN, 1.0 + 1e-13], None),
        ([1.0], [1.001], "a: 1.0 and 1.001"),
        ([None, "x"], ["x", None], None),
        ([None, "x"], ["", "x"], "a: None and ''"),
        ([Decimal("1.5")], [Decimal("1.5")], None),
        ([1], [1, 1], "rows: 1 and 2"),
        ([1], [1.0], "the type of a: int64 and double"),
        ([[1.0, 2.0]], [[1.0, 2.0 + 1e-12]], None),
        ([[1, 2]], [[2, 1]], "a: (1, 2) and (2, 1)"),
    ],
)
def test_answers_are_compared_without_order(one: list[object], other: list[object], differs: str | None) -> None:
    found = difference(pa.table({"a": one}), pa.table({"a": other}))
    assert (found.text if found else None) == differs


def test_names_count_unless_told_otherwise() -> None:
    one, other = pa.table({"a": [1]}), pa.table({"A": [1]})
    assert str(difference(one, other)) == "names: ['a'] and ['A']"
    assert difference(one, other, names=False) is None
    wider = pa.table({"a": [1], "b": [2]})
    assert str(difference(one, wider, names=False)) == "columns: 1 and 2"


def test_rows_that_only_one_answer_has_are_shown() -> None:
    one, other = pa.table({"a": [1, 2, 2, *range(10, 30)]}), pa.table({"a": [1, 2, *range(20, 30)]})
    found = difference(one, other)
    assert found is not None
    assert (found.one, found.other) == (((2,), (10,), (11,), (12,), (13,)), ())
    assert len(found.one) == ROWS_SHOWN


def test_the_order_counts_where_it_is_said() -> None:
    one, other = pa.table({"a": [1, 2], "b": [9, 8]}), pa.table({"a": [2, 1], "b": [8, 9]})
    assert difference(one, other) is None
    found = difference(one, other, sorted_by=[0])
    assert found is not None
    assert (found.text, found.one, found.other) == ("the order, from row 1 on", ((1, 9),), ((2, 8),))
    ties, turned = pa.table({"a": [1, 1], "b": [9, 8]}), pa.table({"a": [1, 1], "b": [8, 9]})
    assert difference(ties, turned, sorted_by=[0]) is None
    sums, near = pa.table({"a": [1.0, 2.0]}), pa.table({"a": [1.0 + 1e-13, 2.0]})
    assert difference(sums, near, sorted_by=[0]) is None


def test_many_differing_rows_are_told_at_once() -> None:
    one, other = ([float(n) + shift for n in range(MOST_NEAR + 1)] for shift in (0.0, 0.25))
    assert str(difference(pa.table({"a": one}), pa.table({"a": other}))) == f"{MOST_NEAR + 1} rows"


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")])
def test_days_that_python_does_not_have_are_compared_too(kind: pa.DataType) -> None:
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    late = 9_000_000 if pa.types.is_date32(kind) else 9_000_000 * 86_400_000_000
    tables = [pa.table({"x": pa.array([0, day], number).cast(kind)}) for day in (late, late, late + 1)]
    assert difference(tables[0], tables[1]) is None
    assert difference(tables[0], tables[2]) is not None
