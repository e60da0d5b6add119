from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from impala._thrift_gen.hive_metastore import ttypes  # type: ignore[import-untyped]
from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
from thrift.transport.TTransport import TMemoryBuffer  # type: ignore[import-untyped]

from selector.statistics import ColumnStatistics, CommonValues, Histogram
from sql.tables import Column
from statsproc.hive.column_statistics import Unreadable, from_hive, kind_of, to_hive

ROWS = 1_000
SECOND = 1e6  # in microseconds


def _over_the_wire(sent: Any) -> Any:
    """Write an object as Thrift does and read it again."""
    buffer = TMemoryBuffer()
    sent.write(TBinaryProtocol(buffer))
    received = type(sent)()
    received.read(TBinaryProtocol(TMemoryBuffer(buffer.getvalue())))
    return received


@pytest.mark.parametrize(
    ("data_type", "minimum", "maximum"),
    [
        ("tinyint", -128.0, 127.0),
        ("bigint", -(2.0**53), 2.0**62),
        ("float", -0.5, 1e30),
        ("double", 1e-300, 1e300),
        ("decimal(10,2)", -142.71, 0.01),
        ("decimal(38,0)", 1e30, 1e37),
        ("decimal(20,4)", 0.0, 128.0),
        ("date", -719_162.0, 20_000.0),
        ("timestamp", -3 * SECOND, 1_577_836_800 * SECOND),
        ("int", None, None),
        ("decimal(4,1)", None, None),
        ("date", None, None),
    ],
)
def test_numbers_survive_the_way_there_and_back(data_type: str, minimum: float | None, maximum: float | None) -> None:
    ours = ColumnStatistics("Price", data_type, 10, 99.6, minimum, maximum)
    sent = _over_the_wire(to_hive(ttypes, ours, data_type, ROWS))
    assert (sent.colName, sent.colType) == ("price", data_type)
    found = from_hive(sent, Column("Price", data_type))
    assert (found.name, found.data_type, found.nulls, found.ndv) == ("Price", data_type, 10, 100.0)
    assert (found.minimum, found.maximum) == (minimum, maximum)


def test_numbers_that_no_long_holds_are_cut() -> None:
    sent = to_hive(ttypes, ColumnStatistics("c", "bigint", 0, 1, -1e30, 2.0**63), "bigint", ROWS)
    assert (sent.statsData.longStats.lowValue, sent.statsData.longStats.highValue) == (1 - 2**63, 2**63 - 1)
    _over_the_wire(sent)


@pytest.mark.parametrize("hive_type", ["string", "varchar(20)", "char(3)"])
def test_strings(hive_type: str) -> None:
    ours = ColumnStatistics("c", "string", 3, 7, "a", "z", 2.5, 9)
    found = from_hive(_over_the_wire(to_hive(ttypes, ours, hive_type, ROWS)), Column("c", "string"))
    assert (found.nulls, found.ndv, found.average_length, found.maximum_length) == (3, 7.0, 2.5, 9)
    assert (found.minimum, found.maximum) == (None, None)


def test_lengths_of_a_column_without_values_are_zero() -> None:
    empty = to_hive(ttypes, ColumnStatistics("c", "string", ROWS, 0), "string", ROWS)
    assert (empty.statsData.stringStats.maxColLen, empty.statsData.stringStats.avgColLen) == (0, 0.0)
    with pytest.raises(Unreadable, match="lengths"):
        to_hive(ttypes, ColumnStatistics("c", "string", 0, 9), "string", ROWS)


def test_binary_goes_out_and_has_no_ndv_to_come_in() -> None:
    ours = ColumnStatistics("c", "binary", 3, 7, average_length=2.5, maximum_length=9)
    sent = _over_the_wire(to_hive(ttypes, ours, "binary", ROWS))
    data = sent.statsData.binaryStats
    assert (data.numNulls, data.avgColLen, data.maxColLen) == (3, 2.5, 9)
    with pytest.raises(Unreadable, match="binary"):
        from_hive(sent, Column("c", "binary"))


@pytest.mark.parametrize(
    "known",
    [
        {"common": CommonValues(np.array([1.0, 0.0]), np.array([600, 300]))},
        {"histogram": Histogram(np.array([0.0, 1.0]), np.array([0.0, 1 / 3]), np.array([1 / 3, 1.0]))},
    ],
)
def test_booleans(known: dict[str, Any]) -> None:
    ours = ColumnStatistics("c", "boolean", 100, 2, 0.0, 1.0, **known)
    sent = _over_the_wire(to_hive(ttypes, ours, "boolean", ROWS))
    assert (sent.statsData.booleanStats.numTrues, sent.statsData.booleanStats.numFalses) == (600, 300)
    found = from_hive(sent, Column("c", "boolean"))
    assert (found.nulls, found.ndv, found.minimum, found.maximum) == (100, 2.0, 0.0, 1.0)
    assert found.common is not None
    assert dict(zip(found.common.values, found.common.rows, strict=True)) == {1.0: 600, 0.0: 300}


@pytest.mark.parametrize(("value", "counts"), [(1.0, (900, 0)), (0.0, (0, 900))])
def test_booleans_of_one_value(value: float, counts: tuple[int, int]) -> None:
    sent = to_hive(ttypes, ColumnStatistics("c", "boolean", 100, 1, value, value), "boolean", ROWS)
    assert (sent.statsData.booleanStats.numTrues, sent.statsData.booleanStats.numFalses) == counts
    found = from_hive(sent, Column("c", "boolean"))
    assert (found.ndv, found.minimum, found.maximum) == (1.0, value, value)


def test_booleans_of_which_only_the_number_of_values_is_known() -> None:
    with pytest.raises(Unreadable, match="true"):
        to_hive(ttypes, ColumnStatistics("c", "boolean", 100, 2, 0.0, 1.0), "boolean", ROWS)


def _long(**fields: int | None) -> Any:
    data = ttypes.ColumnStatisticsData(longStats=ttypes.LongColumnStatsData(**fields))
    return ttypes.ColumnStatisticsObj(colName="c", colType="int", statsData=data)


@pytest.mark.parametrize("fields", [{"numNulls": -1, "numDVs": 5}, {"numNulls": 5, "numDVs": -1}, {"numNulls": 0}])
def test_minus_one_is_not_a_count(fields: dict[str, int]) -> None:
    with pytest.raises(Unreadable, match="does not know"):
        from_hive(_long(**fields), Column("c", "int"))


def test_nan_is_no_end() -> None:
    data = ttypes.DoubleColumnStatsData(lowValue=1.0, highValue=float("nan"), numNulls=0, numDVs=2)
    sent = ttypes.ColumnStatisticsObj("c", "double", ttypes.ColumnStatisticsData(doubleStats=data))
    found = from_hive(sent, Column("c", "double"))
    assert (found.minimum, found.maximum) == (1.0, None)


def test_statistics_of_another_type_are_not_taken() -> None:
    with pytest.raises(Unreadable, match="not of string"):
        from_hive(_long(numNulls=0, numDVs=1), Column("c", "string"))


@pytest.mark.parametrize("data_type", ["array<int>", "map<string,int>", "struct<a:int>", "void"])
def test_types_without_statistics(data_type: str) -> None:
    with pytest.raises(Unreadable, match="keeps no statistics"):
        to_hive(ttypes, ColumnStatistics("c", data_type, 0, 1), data_type, ROWS)
    with pytest.raises(Unreadable, match="keeps no statistics"):
        from_hive(_long(numNulls=0, numDVs=1), Column("c", data_type))


def test_kinds() -> None:
    assert kind_of("int") == kind_of("BIGINT") == kind_of("tinyint")
    assert kind_of("varchar(10)") == kind_of("char(2)") == kind_of("string")
    assert kind_of("timestamp") == kind_of("timestamp_ntz")
    assert kind_of("decimal(10,2)") == kind_of("decimal(38,0)") != kind_of("double")
    assert kind_of("array<int>") == kind_of("struct<a:int>")
