"""What DuckDB prints of scans, and what is read of it."""

from __future__ import annotations

import json

import pytest

from engines.duckdb.plan_reader import read
from selector.plan import TableShape

TABLES = [TableShape("t", {"k": "bigint", "v": "string"}, rows=10)]


@pytest.mark.parametrize(
    ("printed", "applied", "optional"),
    [
        (["k>3"], ("k>3",), ()),
        (["optional: (k IN (1, 5, 9))"], (), ("(k IN (1, 5, 9))",)),
        (["optional: (k IN (1, 5)) AND k>=1"], ("true AND k>=1",), ("(k IN (1, 5))",)),
        (["k>=1", "optional: (v IN (')', 'b('))"], ("k>=1",), ("(v IN (')', 'b('))",)),
        (["optional: dynamic filter"], (), ()),
    ],
)
def test_a_scan_need_not_apply_an_optional_filter(
    printed: list[str], applied: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    info = {"Projections": ["k", "v"], "Filters": printed, "Estimated Cardinality": "10"}
    scan = read(json.dumps([{"name": "READ_PARQUET", "extra_info": info}]), TABLES).root
    assert (scan.predicates, scan.optional) == (applied, optional)
