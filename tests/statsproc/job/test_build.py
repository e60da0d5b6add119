"""What a build takes over from the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.records import StatisticsPart
from sql.tables import Column, TableSource
from statsproc.job.build import MOST_ADDITIONS, PreviousBuild
from statsproc.sketches.table_summary import TableSummary, encode
from tests.statsproc.runs import NOON

TYPES = {"n": "bigint", "s": "string"}
SOURCE = TableSource(
    name="t",
    location="/data/t",
    format="parquet",
    columns=(*(Column(name, data_type) for name, data_type in TYPES.items()), Column("day", "int")),
    partition_columns=("day",),
)
SUMMARY = TableSummary(rows=1, types=TYPES)


def _part(folder: str, summary: bytes) -> StatisticsPart:
    return StatisticsPart(folder, (), 1, 1, 1.0, NOON, summary)


@pytest.mark.parametrize(
    "other",
    [
        encode(replace(SUMMARY, types=TYPES | {"n": "int"})),
        encode(replace(SUMMARY, types={"n": "bigint"})),
        encode(replace(SUMMARY, types=dict(reversed(TYPES.items())))),
        encode(replace(SUMMARY, types=TYPES | {"more": "date"})),
        encode(replace(SUMMARY, additions=MOST_ADDITIONS)),
        b"of an older release",
    ],
    ids=["another type", "fewer columns", "another order", "more columns", "added to too often", "another format"],
)
def test_summaries_that_cannot_be_gone_on_from_are_dropped(other: bytes) -> None:
    good = encode(replace(SUMMARY, additions=MOST_ADDITIONS - 1))
    before = PreviousBuild.of(SOURCE, None, [_part("day=1", good), _part("day=2", other)])
    assert [part.folder for part in before.parts] == ["day=1"]
    assert set(before.summaries or ()) == {"day=1"}
