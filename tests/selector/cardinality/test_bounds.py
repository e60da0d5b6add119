"""Estimates of plans whose rows no float can count."""

import json
import math
from typing import Any

import pytest

from engines.duckdb.memory.model import estimate
from engines.duckdb.plan_reader import read
from selector.cardinality.tree import estimate_rows
from selector.estimate import LARGEST_BYTES, MOST_ROWS, bounded_rows, whole_bytes


@pytest.mark.parametrize("number", [math.inf, math.nan, 1e308, 1e30])
def test_what_is_no_number_counts_as_the_most(number: float) -> None:
    assert (bounded_rows(number), whole_bytes(number)) == (MOST_ROWS, LARGEST_BYTES)


@pytest.mark.parametrize("sides", [2, 20, 60])
def test_a_product_of_many_tables_has_an_estimate(sides: int) -> None:
    scan: dict[str, Any] = {
        "name": "DUMMY_SCAN",
        "extra_info": {"Estimated Cardinality": "1" + "0" * 18},
        "children": [],
    }
    plan = scan
    for _ in range(sides):
        plan = {"name": "CROSS_PRODUCT", "extra_info": {}, "children": [plan, scan]}
    found = estimate(estimate_rows(read(json.dumps([plan]), []), {}, []), {}, threads=2)
    assert found.peak_bytes is not None
    assert found.upper_bytes is not None
    assert found.peak_bytes <= found.upper_bytes <= LARGEST_BYTES
